"""Disks that are full, that may not be written, or that return other bytes than were written.

Not here: I/O errors and power cuts (tests/unit/storage, with a VFS that fails as it is told).
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Instance, NotInTime, eventually
from tests.system.catalog_files import check_catalog_against_tables, wait_until_they_agree
from tests.system.clients import sqlstate
from tests.system.replication_log import check_log_against_tables

DISK_MIB = 48
PAGE_BYTES = 4096


def mount(directory: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a file system of a test's own can't be mounted here: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with little room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    directory = tmp_path / "disk"
    directory.mkdir()
    mount(directory, f"size={DISK_MIB}m")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """Takes all the space that is left, and returns what takes it."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    return ballast


class Filler:
    """Inserts until the disk is full, some rows at a time, and remembers what was acknowledged."""

    ROWS = 10

    def __init__(self, number: int) -> None:
        self.number = number
        self.acknowledged: set[int] = set()
        self.refused = 0
        self.failure: BaseException | None = None

    def run(self, instance: Instance) -> None:
        try:
            with instance.connect() as connection:
                for batch in range(100_000):
                    ids = [(batch * self.ROWS + i) * 16 + self.number for i in range(self.ROWS)]
                    values = ", ".join(f"({i}, '{'x' * 2000}')" for i in ids)
                    try:
                        connection.execute(f"INSERT INTO t VALUES {values}".encode())
                    except psycopg.errors.DiskFull:
                        self.refused += 1
                        if self.refused == 5:
                            return
                    else:
                        self.acknowledged.update(ids)
        except BaseException as error:
            self.failure = error


def fill_by_writing(instance: Instance) -> list[Filler]:
    fillers = [Filler(number) for number in range(4)]
    threads = [threading.Thread(target=filler.run, args=(instance,)) for filler in fillers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for filler in fillers:
        if filler.failure is not None:
            raise filler.failure
    return fillers


def test_a_full_disk(small_disk: Path, timing_scale: float) -> None:
    instance = Instance(small_disk / "i", timing_scale=timing_scale)
    instance.log_file = small_disk.parent / "log"  # there is room for it elsewhere
    instance.start()
    try:
        instance.execute("CREATE TABLE t (id INT PRIMARY KEY, payload TEXT)")
        fillers = fill_by_writing(instance)
        acknowledged = set().union(*(filler.acknowledged for filler in fillers))
        ballast = fill(small_disk)
        with instance.connect() as connection:
            # Reads go on, and see what was acknowledged and nothing else.
            assert ids(connection) == acknowledged
            for sql in (
                "INSERT INTO t SELECT id + 8, payload FROM t",
                "UPDATE t SET payload = payload || 'y'",
                "CREATE INDEX t_payload ON t (payload)",
                "CREATE TABLE u (id INT PRIMARY KEY)",
                "ALTER TABLE t ADD COLUMN c INT",
                "DELETE FROM t",
                "ALTER SYSTEM SET pg_portal_max = 7",
            ):
                with pytest.raises(psycopg.errors.DiskFull, match="no space left"):
                    connection.execute(sql.encode())
            assert ids(connection) == acknowledged
            # Space returns: without a restart everything works again, what had begun included.
            ballast.unlink()
            mount_larger(small_disk)
            connection.execute("INSERT INTO t (id, payload) VALUES (-1, 'after')")
            connection.execute("CREATE INDEX t_payload ON t (payload)")
            connection.execute("ALTER TABLE t ADD COLUMN c INT")
            connection.execute("UPDATE t SET c = 1 WHERE id < 0")
            connection.execute("CREATE TABLE u (id INT PRIMARY KEY)")
            assert ids(connection) == acknowledged | {-1}
            assert connection.execute("SELECT * FROM _pico_pending_schema_change").fetchall() == []
        check_catalog_against_tables(instance.directory)
        check_log_against_tables(instance.directory)
        instance.kill()
        instance.start()
        wait_until_they_agree(instance.directory, 10 * timing_scale)
        check_log_against_tables(instance.directory)
        with instance.connect() as connection:
            assert ids(connection) == acknowledged | {-1}
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
    finally:
        instance.kill()


def mount_larger(directory: Path) -> None:
    options = f"remount,size={4 * DISK_MIB}m"
    subprocess.run(["mount", "-o", options, str(directory)], check=True)


def ids(connection: psycopg.Connection) -> set[int]:
    return {id_ for (id_,) in connection.execute("SELECT id FROM t").fetchall()}


def test_schema_changes_that_run_out_of_space_anywhere(small_disk: Path, timing_scale: float) -> None:
    """Whichever step meets the full disk: afterwards the table can be used, and is what the catalog says."""
    instance = Instance(small_disk / "i", timing_scale=timing_scale)
    instance.log_file = small_disk.parent / "log"
    instance.start()
    try:
        instance.execute("CREATE TABLE t (id INT PRIMARY KEY, payload TEXT)")
        with instance.connect() as connection:
            rows = ", ".join(f"({i}, '{'x' * 200}')" for i in range(500))
            connection.execute(f"INSERT INTO t VALUES {rows}".encode())
            outcomes = set()
            for pages in range(32):
                change = (
                    f"CREATE INDEX i{pages} ON t (payload, id)",
                    f"ALTER TABLE t ADD COLUMN c{pages} INT",
                    f"CREATE TABLE u{pages} (id INT PRIMARY KEY)",
                    f"DROP INDEX i{pages - 3}",
                )[pages % 4]
                ballast = fill(small_disk)
                os.truncate(ballast, ballast.stat().st_size - pages * PAGE_BYTES)
                # Taking a change back needs space, too: it may have to wait for it, longer than its client does.
                connection.execute(b"SET statement_timeout = '1s'")
                outcomes.add(sqlstate(connection, change))
                connection.execute(b"RESET statement_timeout")
                assert connection.execute("SELECT count(payload) FROM t").fetchone() == (500 + pages,)
                ballast.unlink()
                connection.execute(f"INSERT INTO t (id, payload) VALUES ({1000 + pages}, 'x')".encode())
            assert outcomes <= {"00000", "53100", "42704", "40003"}
            assert {"00000", "53100"} <= outcomes
            eventually(
                lambda: connection.execute("SELECT * FROM _pico_pending_schema_change").fetchall() == [],
                10 * timing_scale,
                "no change is left",
            )
        wait_until_they_agree(instance.directory, 10 * timing_scale)
        instance.kill()
        instance.start()
        wait_until_they_agree(instance.directory, 10 * timing_scale)
        check_log_against_tables(instance.directory)
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
    finally:
        instance.kill()


def test_a_disk_that_is_full_at_the_start(small_disk: Path, timing_scale: float) -> None:
    instance = Instance(small_disk / "i", timing_scale=timing_scale)
    instance.log_file = small_disk.parent / "log"
    instance.start()
    try:
        instance.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        instance.kill()
        ballast = fill(small_disk)
        refused_to_start(instance, "no space left")
        ballast.unlink()
        instance.start()
        with instance.connect() as connection:
            assert ids(connection) == {1}
        # And a stop without space for a word of farewell.
        ballast = fill(small_disk)
        assert instance.stop() == 0
        ballast.unlink()
        instance.start()
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
    finally:
        instance.kill()


def test_a_read_only_disk(small_disk: Path, timing_scale: float) -> None:
    instance = Instance(small_disk / "i", timing_scale=timing_scale)
    instance.log_file = small_disk.parent / "log"
    instance.start()
    try:
        instance.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        instance.kill()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        refused_to_start(instance, "read-only file system")
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        instance.start()
        with instance.connect() as connection:
            assert ids(connection) == {1}
    finally:
        instance.kill()


def test_a_new_directory_on_a_read_only_disk(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    instance = Instance(small_disk / "i")
    instance.log_file = small_disk.parent / "log"
    refused_to_start(instance, "read-only file system")


def refused_to_start(instance: Instance, why: str) -> None:
    """With one clear message, and no traceback."""
    with pytest.raises(NotInTime, match="it ended"):
        instance.start()
    last = instance.log().rstrip().splitlines()[-1]
    assert last.startswith("shoal: "), last
    assert why in last
    assert str(instance.directory.parent) in last
    assert not instance.bugs(), instance.bugs()


# --- damage --------------------------------------------------------------------------------------


@pytest.fixture
def stopped(own: Instance) -> Instance:
    """An instance that has three tables with 2,000 rows each, and was stopped."""
    own.execute(
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, payload TEXT NOT NULL){where}"
            for name, where in (("a", ""), ("b", ""), ("g", " DISTRIBUTED GLOBALLY"))
        ),
        "CREATE INDEX a_payload ON a (payload)",
    )
    with own.connect() as connection:
        for name in "abg":
            values = ", ".join(f"({i}, '{payload(name, i)}')" for i in range(2000))
            connection.execute(f"INSERT INTO {name} VALUES {values}".encode())
        # The cluster's log forgets the rows: a start reads the log, and would meet the damage there.
        connection.execute(b"ALTER SYSTEM SET raft_wal_count_max = 1")
    assert own.stop() == 0
    for file in ("data.db", "catalog.db"):  # what was logged ahead has been copied back
        assert not Path(f"{own.directory / file}-wal").exists()
    return own


def payload(name: str, number: int) -> str:
    return f"<{name} {number}>" + "." * 50


def test_a_flipped_bit_in_a_row_is_named_and_not_served(stopped: Instance) -> None:
    data = stopped.directory / "data.db"
    pages = flip_in(data, payload("a", 777).encode())
    stopped.start()
    with stopped.connect() as connection:
        for sql in (
            "SELECT payload FROM a WHERE id = 777",
            "SELECT max(length(payload)) FROM a",
            "SELECT * FROM a",
            "UPDATE a SET payload = 'x' WHERE id = 777",
            "UPDATE a SET payload = 'x'",
            "INSERT INTO b SELECT id + 10000, payload FROM a",
            "DELETE FROM a",
        ):
            with pytest.raises(psycopg.errors.DataCorrupted, match=f"page ({pages}) of .*data.db is damaged"):
                connection.execute(sql.encode())
        # All else is served.
        assert connection.execute("SELECT payload FROM a WHERE id = 1").fetchone() == (payload("a", 1),)
        assert connection.execute("SELECT count(*) FROM b").fetchone() == (2000,)
        connection.execute("INSERT INTO b VALUES (-1, 'new')")
        connection.execute("INSERT INTO a VALUES (-1, 'new')")
        assert connection.execute("SELECT payload FROM a WHERE id = -1").fetchone() == ("new",)


def test_a_flipped_bit_in_a_global_row(stopped: Instance) -> None:
    catalog = stopped.directory / "catalog.db"
    pages = flip_in(catalog, payload("g", 777).encode())
    stopped.start()
    with stopped.connect() as connection:
        for sql in (
            "SELECT payload FROM g WHERE id = 777",
            "SELECT * FROM g",
            "UPDATE g SET payload = 'x' WHERE id = 777",
        ):
            with pytest.raises(
                psycopg.errors.DataCorrupted, match=f"page ({pages}) of .*catalog.db is damaged"
            ):
                connection.execute(sql.encode())
        assert connection.execute("SELECT payload FROM a WHERE id = 1").fetchone() == (payload("a", 1),)
        connection.execute("CREATE TABLE more (id INT PRIMARY KEY)")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("file", ["data.db", "catalog.db"])
def test_a_bit_flipped_anywhere(stopped: Instance, file: str, seed: int) -> None:
    """Either the start is refused, or every statement is answered rightly or with the page's name."""
    chance = random.Random(seed)
    path = stopped.directory / file
    pages = path.stat().st_size // PAGE_BYTES
    number = chance.randrange(min(pages, 40) if seed % 2 else pages)
    flip(path, number * PAGE_BYTES + chance.randrange(PAGE_BYTES), 1 << chance.randrange(8))
    named = f"page {number + 1} of .*{file}.* is damaged"
    try:
        stopped.start()
    except NotInTime:
        last = stopped.log().rstrip().splitlines()[-1]
        assert last.startswith("shoal: ")
        assert f"page {number + 1} of " in last and file in last, last
        return
    with stopped.connect() as connection:
        for name in "abg":
            try:
                rows = dict(connection.execute(f"SELECT id, payload FROM {name}".encode()).fetchall())
            except psycopg.errors.DataCorrupted as error:
                assert_matches(named, str(error))
            else:
                assert rows == {i: payload(name, i) for i in range(2000)}
            try:
                connection.execute(f"INSERT INTO {name} VALUES (-5, 'x')".encode())
                connection.execute(f"DELETE FROM {name} WHERE id = -5".encode())
            except psycopg.errors.DataCorrupted as error:
                assert_matches(named, str(error))


def assert_matches(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)


def flip_in(path: Path, text: bytes) -> str:
    """Flips a bit wherever this text is: in its table, an index, a log. Returns the pages' numbers, from 1,
    as a regular expression."""
    content = path.read_bytes()
    found = [match.start() + len(text) // 2 for match in re.finditer(re.escape(text), content)]
    assert found
    for at in found:
        flip(path, at, 4)
    return "|".join(str(at // PAGE_BYTES + 1) for at in found)


def flip(path: Path, at: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))
