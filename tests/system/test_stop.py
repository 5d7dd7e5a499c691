"""SIGTERM while clients are in the middle of something: nobody keeps the instance from stopping."""

from __future__ import annotations

import threading
import time
from itertools import islice

import psycopg
import pytest

from shoal.pgwire import messages as m
from tests.cluster import Instance, eventually
from tests.system.catalog_files import wait_until_they_agree
from tests.system.numbers import DIGITS, LONG_SELECT, make_numbered
from tests.system.wire import Wire

SOON_SECONDS = 10.0


def stop_soon(instance: Instance, timing_scale: float) -> None:
    started = time.monotonic()
    assert instance.stop() == 0, instance.log()[-4000:]
    assert time.monotonic() - started < SOON_SECONDS * timing_scale


def test_a_client_that_does_not_read_its_large_answer(own: Instance, timing_scale: float) -> None:
    make_numbered(own, "wide", 5, 200)
    with Wire(own, receive_bytes=4096).log_in() as wire:
        wire.say(m.Query("SELECT * FROM wide"))
        assert wire.socket.recv(1)
        stop_soon(own, timing_scale)


def test_a_client_that_sent_garbage_and_does_not_read(own: Instance, timing_scale: float) -> None:
    """Its connection is being closed already, and can't be: what it was sent waits for it."""
    own.execute("CREATE TABLE huge (id INT PRIMARY KEY, t TEXT)")
    with own.connect() as other:
        other.execute("INSERT INTO huge VALUES (1, %s)", ("x" * 1_000_000,))
        with Wire(own, receive_bytes=4096).log_in() as wire:
            # More than the kernel takes, and all of it answered before the garbage is met.
            wire.say(*[m.Query("SELECT t FROM huge WHERE id = 1")] * 6)
            wire.socket.sendall(b"\xff\x00\x00\x00\x00")
            for _ in range(100):
                other.execute("SELECT 1")
            stop_soon(own, timing_scale)


def test_clients_that_have_not_logged_in(own: Instance, timing_scale: float) -> None:
    with Wire(own) as silent, Wire(own) as half:
        half.socket.sendall(b"\x00\x00\x00\x40\x00\x03")
        with own.connect() as other:
            other.execute("SELECT 1")
        stop_soon(own, timing_scale)
        assert silent.read_all() == half.read_all()


def test_a_query_that_takes_for_ever_and_a_portal_read_in_part(own: Instance, timing_scale: float) -> None:
    own.execute(*DIGITS)
    with Wire(own).log_in() as part, Wire(own).log_in() as long, own.connect() as other:
        part.say(
            m.Parse("", "SELECT n FROM digits", ()),
            m.Bind("p", "", (), (), ()),
            m.Execute("p", 2),
            m.Flush(),
        )
        assert [kind for kind, _ in islice(part.read(), 5)] == list("12DDs")
        long.say(m.Query(LONG_SELECT))
        other.execute("SELECT 1")
        stop_soon(own, timing_scale)
        assert [kind for kind, _ in long.read_all()][-1] == "E"
        assert [kind for kind, _ in part.read_all()] == ["E"]


def test_schema_changes_and_long_writes(own: Instance, timing_scale: float) -> None:
    """They are ended or undone, and the next start finds them one way or the other."""
    make_numbered(own, "wide", 5, 50)
    statements = (
        "CREATE INDEX wide_index ON wide (payload, id)",
        "UPDATE wide SET payload = payload || 'more'",
        "ALTER TABLE wide ADD COLUMN another INT",
        "INSERT INTO wide (id, payload) VALUES (-1, 'late')",
        "TRUNCATE wide",
    )
    answered: list[str] = []

    def client(sql: str) -> None:
        with own.connect() as connection:
            begun.wait(60)
            try:
                connection.execute(sql.encode())
                answered.append(sql)
            except psycopg.Error as error:
                assert error.sqlstate in ("57P01", "40003", None, "57014"), error

    begun = threading.Barrier(len(statements) + 1)
    threads = [threading.Thread(target=client, args=(sql,)) for sql in statements]
    for thread in threads:
        thread.start()
    begun.wait(60)
    eventually(lambda: own.metrics()["shoal_open_connections"] >= 1, 10 * timing_scale)
    assert own.stop() == 0
    for thread in threads:
        thread.join()
    own.start()
    wait_until_they_agree(own.directory, 10 * timing_scale)
    with own.connect() as connection:
        updated, all_rows = connection.execute(
            "SELECT count(CASE WHEN payload LIKE '%more' THEN 1 END), count(*) FROM wide"
        ).fetchall()[0]
        assert updated in (0, all_rows, all_rows - 1)
        if "TRUNCATE wide" in answered:
            assert all_rows <= 1


@pytest.mark.parametrize("signals", [2, 5])
def test_more_than_one_sigterm(own: Instance, timing_scale: float, signals: int) -> None:
    process = own._process
    assert process is not None
    for _ in range(signals):
        process.terminate()
    stop_soon(own, timing_scale)
