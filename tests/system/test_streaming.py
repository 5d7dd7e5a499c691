"""Large answers: they are sent as they are read, and wait for who reads slowly, in a bounded memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from itertools import islice

import psycopg
import pytest

from shoal.pgwire import messages as m
from tests.cluster import Instance, eventually
from tests.system.numbers import make_numbered
from tests.system.processes import forget_peak, memory_mib, open_files
from tests.system.wire import Wire, error_fields

PAYLOAD_BYTES = 300
EXPONENT = 5  # 10^5 rows: 30 MiB of answer
# What a session may hold of an answer: the batch, what the transport has not sent, what garbage is left.
HELD_MIB = 16.0


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Instance]:
    running = Instance(tmp_path_factory.mktemp("streaming") / "i", timing_scale=timing_scale)
    running.start()
    try:
        make_numbered(running, "wide", EXPONENT, PAYLOAD_BYTES)
        running.execute("CREATE TABLE huge (id INT PRIMARY KEY, t TEXT)")
        with running.connect() as connection:
            connection.execute("INSERT INTO huge VALUES (1, %s)", ("x" * 1_000_000,))
        # Once, so that what follows finds threads, connections and caches as they stay.
        with running.connect() as connection:
            for row in connection.cursor().stream("SELECT * FROM wide", size=1000):
                assert row
        yield running
        assert running.stop() == 0
        assert not running.bugs(), running.bugs()
    finally:
        running.kill()


def test_memory_stays_small_while_a_client_reads_slowly(instance: Instance) -> None:
    forget_peak(instance.pid)
    before = memory_mib(instance.pid)
    with instance.connect() as other, Wire(instance, receive_bytes=64 * 1024).log_in() as wire:
        wire.say(m.Query("SELECT * FROM wide"))
        rows = 0
        for kind, _ in wire.read():
            rows += kind == "D"
            if rows % 5_000 == 1:  # beside it others are served
                found = other.execute("SELECT id FROM wide WHERE id = %s", (rows,)).fetchone()
                assert found == (rows,)
            if kind == "Z":
                break
    assert rows == 10**EXPONENT
    assert memory_mib(instance.pid, "VmHWM") - before < HELD_MIB


def test_memory_stays_small_while_clients_read_nothing(instance: Instance) -> None:
    forget_peak(instance.pid)
    before = memory_mib(instance.pid)
    wires = [Wire(instance, receive_bytes=4096).log_in() for _ in range(4)]
    with instance.connect() as other:
        for wire in wires:
            wire.say(m.Query("SELECT * FROM wide"))
        for wire in wires:
            assert wire.socket.recv(1) == b"T"
        for id_ in range(500):
            assert other.execute("SELECT id FROM wide WHERE id = %s", (id_,)).fetchone() == (id_,)
    assert memory_mib(instance.pid, "VmHWM") - before < len(wires) * HELD_MIB
    for wire in wires:
        wire.reset()


def test_answers_to_pipelined_questions_wait_for_the_reader_too(instance: Instance) -> None:
    """300 MiB, if nobody minded: point reads are answered at once, one after another."""
    forget_peak(instance.pid)
    before = memory_mib(instance.pid)
    count = 300
    with Wire(instance, receive_bytes=4096).log_in() as wire, instance.connect() as other:
        for _ in range(count):
            wire.say(m.Query("SELECT t FROM huge WHERE id = 1"))
        for _ in range(500):
            other.execute("SELECT 1")
        assert memory_mib(instance.pid, "VmHWM") - before < 4 * HELD_MIB
        answered = 0
        for kind, _ in wire.read():
            answered += kind == "Z"
            if answered == count:
                break


def test_a_portal_reads_as_far_as_it_is_asked(instance: Instance) -> None:
    with Wire(instance).log_in() as wire:
        wire.say(
            m.Query("BEGIN"),
            m.Parse("", "SELECT id FROM wide ORDER BY id", ()),
            m.Bind("p", "", (), (), ()),
            m.Execute("p", 7),
            m.Execute("p", 3),
            m.Execute("p", 0),
            m.Sync(),
        )
        wire.read_until_ready()
        kinds = [kind for kind, _ in wire.read_until_ready()]
    assert "".join(kinds[:14]) == "12" + "D" * 7 + "s" + "D" * 3 + "s"
    assert kinds[14:-2] == ["D"] * (10**EXPONENT - 10)
    assert kinds[-2:] == ["C", "Z"]


@pytest.mark.parametrize("reads", [False, True])
def test_cancel_in_the_middle_of_an_answer(instance: Instance, reads: bool) -> None:
    with instance.connect() as connection:
        cursor = connection.cursor()
        if reads:
            with pytest.raises(psycopg.errors.QueryCanceled):
                for number, _ in enumerate(cursor.stream("SELECT a.id FROM wide AS a, wide AS b")):
                    if number == 1000:
                        connection.cancel_safe()
        else:
            connection.pgconn.send_query(b"SELECT a.id FROM wide AS a, wide AS b")
            _wait_readable(connection.pgconn.socket)
            connection.cancel_safe()
            while (result := connection.pgconn.get_result()) is not None:
                last = result
            assert last.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == b"57014"
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_time_of_a_statement_includes_a_slow_reader(instance: Instance) -> None:
    with Wire(instance, receive_bytes=4096).log_in() as wire:
        wire.say(m.Query("SET statement_timeout = 200"))
        wire.read_until_ready()
        wire.say(m.Query("SELECT a.id FROM wide AS a, wide AS b"))
        last = None
        for kind, payload in wire.read():
            if kind == "Z":
                break
            last = kind, payload
        assert last is not None and last[0] == "E"
        assert error_fields(last[1])["C"] == "57014"


@pytest.mark.parametrize("how", ["reset", "close", "close in a portal", "reset in a portal"])
def test_a_client_that_goes_away_frees_what_it_held(
    instance: Instance, timing_scale: float, how: str
) -> None:
    """More often than suspended cursors, and connections to SQLite, may be: one that leaks is noticed."""
    files = open_files(instance.pid)
    for _ in range(80):
        wire = Wire(instance, receive_bytes=4096).log_in()
        if "portal" in how:
            wire.say(
                m.Parse("", "SELECT * FROM wide", ()), m.Bind("", "", (), (), ()), m.Execute("", 2), m.Flush()
            )
            assert [kind for kind, _ in islice(wire.read(), 5)] == list("12DDs")
        else:
            wire.say(m.Query("SELECT * FROM wide"))
            assert wire.socket.recv(1) == b"T"
        if "reset" in how:
            wire.reset()
        else:
            wire.socket.close()
    eventually(lambda: instance.metrics()["shoal_open_connections"] == 0, 10 * timing_scale)
    with instance.connect() as connection:
        assert len(connection.execute("SELECT * FROM wide WHERE id < 1000 AND id > -1").fetchall()) == 1000
    # A few more than before: connections of a pool stay open.
    eventually(lambda: open_files(instance.pid) < files + 200, 10 * timing_scale)


def test_suspended_queries_are_bounded_and_the_error_says_so(instance: Instance) -> None:
    with Wire(instance).log_in() as wire:
        wire.say(m.Query("BEGIN"))
        wire.read_until_ready()
        refused = None
        for number in range(100):
            wire.say(
                m.Parse("", "SELECT * FROM wide", ()),
                m.Bind(f"p{number}", "", (), (), ()),
                m.Execute(f"p{number}", 1),
                m.Sync(),
            )
            answers = wire.read_until_ready()
            errors = [error_fields(payload) for kind, payload in answers if kind == "E"]
            if errors:
                refused = errors[0]
                break
        assert refused is not None and refused["C"] == "53300"
        assert number >= 32
        with instance.connect() as other:  # a query that is read to its end needs no such place
            assert other.execute("SELECT count(*) FROM wide").fetchone() == (10**EXPONENT,)
        wire.say(m.Query("ROLLBACK"))
        wire.read_until_ready()
        wire.say(m.Query("SELECT count(*) FROM wide"))
        assert "D" in [kind for kind, _ in wire.read_until_ready()]


def _wait_readable(fd: int) -> None:
    """Without reading: the answer has begun."""
    with socket.socket(fileno=socket.dup(fd)) as duplicate:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if duplicate.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return
            except BlockingIOError:
                time.sleep(0.001)
    raise AssertionError("no answer began")
