"""Flipped bits: found and named, never served."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import apsw
import pytest

from shoal.errors import DataCorrupted, ShoalError
from shoal.storage.checksum import PAGE_BYTES, check_file
from shoal.storage.directory import InstanceDirectory
from shoal.storage.readers import PointReader
from shoal.storage.sqlite import Settings, SqliteFiles, WalMode, close, open_catalog, open_reader
from shoal.storage.translate import translate
from shoal.storage.wal_check import check_wal
from tests.unit.storage.open_storage import Sql, Storage, storage

FRAME_BYTES = 24 + PAGE_BYTES
FLIPS = 60


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def content(files: SqliteFiles) -> list[tuple[object, ...]]:
    reader = open_reader(files, Settings())
    try:
        return [
            *reader.execute("SELECT * FROM t1_1 ORDER BY c1").fetchall(),
            *reader.execute("SELECT c2, count(*) FROM t1_1 GROUP BY c2").fetchall(),
            *reader.execute("SELECT * FROM t2_1 ORDER BY c1").fetchall(),
        ]
    finally:
        reader.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that were closed, so all of it is in data.db."""
    directory = tmp_path_factory.mktemp("sound")
    with storage(directory) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 INTEGER, c3 TEXT) STRICT")
        opened.execute("CREATE INDEX t1_1_i1 ON t1_1 (c2)")
        opened.execute("CREATE TABLE t2_1 (c1 TEXT PRIMARY KEY, c2 BLOB) STRICT, WITHOUT ROWID")
        opened.execute(
            "INSERT INTO t1_1 WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 2000)"
            " SELECT n, n % 7, 'text ' || n FROM r"
        )
        opened.execute("INSERT INTO t2_1 SELECT 'key ' || c1, zeroblob(c1 * 10) FROM t1_1 WHERE c1 < 900")
        opened.execute("DELETE FROM t2_1 WHERE length(c2) > 8500")  # leaves free pages
    return directory


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.copytree(sound, target)
    return target


def open_and_read(directory: Path) -> list[tuple[object, ...]]:
    """As an instance does."""
    with storage(directory) as opened:
        try:
            return content(opened.files)
        except apsw.Error as error:
            raise translate(error, files=str(opened.files.data)) from error


def test_a_flipped_bit_is_named_and_never_served(sound: Path, tmp_path: Path) -> None:
    truth, rng = open_and_read(sound), random.Random(3)
    size = (sound / "data.db").stat().st_size
    met = 0
    for number in range(FLIPS):
        directory = tmp_path / str(number)
        shutil.copytree(sound, directory)
        path = directory / "data.db"
        # Some in the first page, whose header tells how to read all others.
        bit = rng.randrange(100 * 8) if number < 20 else rng.randrange(size * 8)
        flip(path, bit)
        page = bit // 8 // PAGE_BYTES + 1
        with pytest.raises(DataCorrupted, match=f"^page {page} of {re.escape(str(path))} is damaged"):
            check_file(path)
        try:
            assert open_and_read(directory) == truth, f"bit {bit} was served"
        except ShoalError as error:
            met += 1
            assert isinstance(error, DataCorrupted), error
            assert f"page {page} of {path}" in error.message
        shutil.rmtree(directory)
    assert met > FLIPS / 2, "most pages are read"


def test_the_start_can_check_every_page(copy: Path) -> None:
    (copy / "instance.lock").touch()
    size = (copy / "data.db").stat().st_size
    with InstanceDirectory.claim(copy) as instance:
        instance.prepare_files(Settings(), check_pages=True)
        flip(instance.files.data, (size - PAGE_BYTES // 2) * 8)
        with pytest.raises(DataCorrupted, match=f"page {size // PAGE_BYTES} of .*data.db is damaged"):
            instance.prepare_files(Settings(), check_pages=True)


def test_pages_that_a_crash_left_torn_are_no_damage(copy: Path, tmp_path: Path) -> None:
    """A checkpoint was cut off: the page's good version is in the write-ahead log."""
    crashed = tmp_path / "crashed"
    with storage(copy) as opened:
        opened.execute("UPDATE t1_1 SET c3 = 'new' WHERE c1 = 1")
        shutil.copytree(copy, crashed)
        truth = content(opened.files)
    wal = (crashed / "data.db-wal").read_bytes()
    first_page = int.from_bytes(wal[32:36], "big")
    flip(crashed / "data.db", (first_page - 1) * PAGE_BYTES * 8 + 4000)
    (crashed / "instance.lock").touch()
    with InstanceDirectory.claim(crashed) as instance:
        instance.prepare_files(Settings(), check_pages=True)
        assert open_and_read(crashed) == truth


def test_a_damaged_page_met_by_a_write_fails_only_that_statement(copy: Path) -> None:
    with storage(copy, settings=Settings(writer_cache_bytes=1 << 16)) as opened:
        leaf = damage_leaf_of_key_5(opened)
        outcomes = opened.together(
            [
                Sql("INSERT INTO t2_1 VALUES ('a', NULL)"),
                Sql("UPDATE t1_1 SET c3 = 'x' WHERE c1 = 5"),
                Sql("INSERT INTO t2_1 VALUES ('b', NULL)"),
            ]
        )
        assert outcomes[0].error is None
        assert outcomes[2].error is None
        assert isinstance(outcomes[1].error, DataCorrupted)
        assert f"page {leaf} of" in outcomes[1].error.message
        assert opened.rows("SELECT c1 FROM t2_1 WHERE c1 < 'c'") == [("a",), ("b",)]


def test_a_damaged_page_met_by_a_point_read(copy: Path) -> None:
    with storage(copy) as opened:
        leaf = damage_leaf_of_key_5(opened)
        point = PointReader(opened.files, opened.settings)
        with pytest.raises(DataCorrupted, match=f"page {leaf} of .*data.db is damaged"):
            point.rows("SELECT c3 FROM t1_1 WHERE c1 = ?", (5,))
        assert point.rows("SELECT c3 FROM t1_1 WHERE c1 = ?", (2000,)) == [("text 2000",)]
        point.close()


def damage_leaf_of_key_5(opened: Storage) -> int:
    """Flips a bit in the first leaf of the table; nobody has read it yet, so it is in no cache."""
    looking = apsw.Connection(str(opened.files.data), vfs=opened.settings.vfs)
    page = int(
        looking.execute("SELECT min(pageno) FROM dbstat WHERE name = 't1_1' AND pagetype = 'leaf'").get
    )
    looking.close()
    assert b"text 5" in opened.files.data.read_bytes()[(page - 1) * PAGE_BYTES : page * PAGE_BYTES]
    flip(opened.files.data, page * PAGE_BYTES * 8 - 1000)
    return page


# --- the write-ahead log


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """What kill -9 leaves: nothing copied back, 40 transactions in the log, and where each of them ends."""
    directory = tmp_path_factory.mktemp("open")
    left = tmp_path_factory.mktemp("crashed") / "it"
    ends = []
    with storage(directory) as opened:
        wal = Path(f"{opened.files.data}-wal")
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 TEXT) STRICT")
        for number in range(40):
            opened.execute("INSERT INTO t1_1 VALUES (?, printf('%.*c', ?, 'x'))", number, number * 321)
            ends.append(wal.stat().st_size)
        shutil.copytree(directory, left)
    return left, ends


def rows_after_recovery(directory: Path) -> int:
    catalog = open_catalog(SqliteFiles(directory), Settings())
    reader = open_reader(SqliteFiles(directory), Settings())
    try:
        return int(reader.execute("SELECT count(*) FROM t1_1").get)
    except apsw.SQLError:
        return 0  # not even the table
    finally:
        reader.close()
        close(catalog)


def test_a_sound_log_passes(crashed: tuple[Path, list[int]]) -> None:
    directory, _ends = crashed
    check_wal(directory / "data.db")
    check_wal(directory / "no such file")


def test_a_log_that_a_crash_cut_off_passes(crashed: tuple[Path, list[int]], tmp_path: Path) -> None:
    directory, ends = crashed
    wal = (directory / "data.db-wal").read_bytes()
    rng = random.Random(1)
    for number in range(60):
        target = tmp_path / str(number)
        target.mkdir()
        transaction = rng.randrange(1, len(ends))
        synced, written = ends[transaction - 1], ends[transaction]
        # Of the last transaction some sectors arrived, the others have what was there before: nothing.
        log = bytearray(wal[:synced]) + bytearray(written - synced)
        for at in range(synced, written):
            if at % 512 == 0 or at == synced:
                keep = rng.random() < 0.7
            if keep:
                log[at] = wal[at]
        (target / "data.db-wal").write_bytes(log)
        check_wal(target / "data.db")


def test_a_flipped_bit_in_the_log_is_found(crashed: tuple[Path, list[int]], tmp_path: Path) -> None:
    """SQLite would take it for the end of the log, and forget what had been acknowledged."""
    directory, ends = crashed
    rng = random.Random(2)
    found = 0
    for number in range(FLIPS):
        target = tmp_path / str(number)
        shutil.copytree(directory, target)
        wal = target / "data.db-wal"
        bit = rng.randrange(wal.stat().st_size * 8) if number else 5
        flip(wal, bit)
        transaction = next(n for n, end in enumerate(ends) if bit // 8 < end)
        try:
            check_wal(target / "data.db")
        except DataCorrupted as error:
            found += 1
            assert str(wal) in error.message
            if bit // 8 >= 32:
                assert f"frame {(bit // 8 - 32) // FRAME_BYTES + 1} of" in error.message
        else:
            # In the very last transaction nobody can tell it from a crash; and in the one before, if it hit
            # the page that tells its end.
            assert transaction >= len(ends) - 2, f"bit {bit} of transaction {transaction}"
            assert rows_after_recovery(target) >= len(ends) - 2
    assert found > FLIPS * 0.8


@pytest.mark.parametrize("first_end", ["rolled back", "torn"])
def test_what_older_transactions_left_behind_the_end_is_no_damage(tmp_path: Path, first_end: str) -> None:
    """A long transaction came to nothing, a shorter one overwrote its beginning, and a crash tore that one."""

    def opened(name: str) -> apsw.Connection:
        connection = open_catalog(SqliteFiles(tmp_path / name), Settings(writer_cache_bytes=1 << 16))
        connection.wal_autocheckpoint(0)
        return connection

    def write(connection: apsw.Connection, rows: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            connection.execute("INSERT INTO t VALUES (zeroblob(3000))")

    def left_by(connection: apsw.Connection, name: str) -> Path:
        shutil.copytree(Path(connection.filename).parent, tmp_path / name)
        close(connection)
        return tmp_path / name / "catalog.db-wal"

    (tmp_path / "first").mkdir()
    connection = opened("first")
    wal = tmp_path / "first" / "catalog.db-wal"
    connection.execute("CREATE TABLE t (a)")
    start = wal.stat().st_size
    write(connection, 100)
    if first_end == "rolled back":
        connection.execute("ROLLBACK")  # the cache was too small, so most of it is in the log
    else:
        connection.execute("COMMIT")
        wal = left_by(connection, "second")
        flip(wal, (start + 1000) * 8)
        check_wal(wal.with_name("catalog.db"))
        connection = opened("second")
        assert connection.execute("SELECT count(*) FROM t").get == 0
    length = wal.stat().st_size
    assert length > start + 50 * FRAME_BYTES
    write(connection, 5)
    connection.execute("COMMIT")
    wal = left_by(connection, "third")
    assert wal.stat().st_size == length, "the log began anew"
    check_wal(wal.with_name("catalog.db"))
    # Torn: any of its frames, the last one included.
    whole = wal.read_bytes()
    for at in range(start + 1000, start + 9 * FRAME_BYTES, FRAME_BYTES):
        wal.write_bytes(whole)
        flip(wal, at * 8)
        check_wal(wal.with_name("catalog.db"))


@pytest.mark.parametrize("at", [16, 20, 1000], ids=["checksum 1", "checksum 2", "page"])
def test_a_flip_in_the_frame_that_ends_the_last_but_one(
    crashed: tuple[Path, list[int]], tmp_path: Path, at: int
) -> None:
    """What follows it continues either its checksum or its content."""
    directory, ends = crashed
    wal = tmp_path / "data.db-wal"
    for end in (ends[-2], ends[-3], ends[5]):
        shutil.copy(directory / "data.db-wal", wal)
        flip(wal, (end - FRAME_BYTES + at) * 8)
        with pytest.raises(DataCorrupted, match=f"frame {(end - 32) // FRAME_BYTES} of"):
            check_wal(tmp_path / "data.db")


def test_logs_that_were_written_without_syncs_are_not_judged(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    target = tmp_path / "it"
    shutil.copytree(crashed[0], target)
    (target / "instance.lock").touch()
    flip(target / "data.db-wal", 100_000)
    write = Settings(wal_mode=WalMode.WRITE)
    with InstanceDirectory.claim(target) as instance:
        with pytest.raises(DataCorrupted):
            instance.prepare_files(write)  # the log is still one of wal_mode=fsync
    (target / "instance.lock").write_text("1\nwrite\n")
    with InstanceDirectory.claim(target) as instance:
        instance.prepare_files(write)
        instance.prepare_files(Settings())
        with pytest.raises(DataCorrupted):
            instance.prepare_files(Settings())
