"""EIO, ENOSPC and failed syncs: a clear error, nothing acknowledged lost, and the service goes on if it may."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.catalog.entries import Dml, RowChange
from shoal.catalog.system import PICO_PROPERTY
from shoal.errors import DiskFull, Fault, IoError, OutcomeUnknown, ShoalError
from shoal.raft.messages import Entry, HardState, Index, Membership, RaftId, Term
from shoal.raft.store import Save
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.directory import InstanceDirectory
from shoal.storage.readers import PointReader
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog
from shoal.storage.writer import Writer
from tests.unit.storage.catalog_dump import dump, normal
from tests.unit.storage.faulty_vfs import Disk, faulty_vfs_with_checksums
from tests.unit.storage.open_storage import Sql, Storage, call, storage
from tests.unit.storage.power_cuts import Create, History, check, write_some

FILL = "INSERT INTO t1_1 SELECT 1, ?, 0, printf('%.*c', 50000, 'x')"


@pytest.fixture
def disk() -> Iterator[Disk]:
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    made = Disk(directory, random.Random(5))
    yield made
    made.close()
    shutil.rmtree(directory)


@contextmanager
def on(disk: Disk, **options: int) -> Iterator[Storage]:
    with storage(disk.directory, settings=Settings(vfs=faulty_vfs_with_checksums(), **options)) as opened:  # type: ignore[arg-type]
        opened.writer.run(Create())
        yield opened


def test_a_full_disk_is_said_and_survived(disk: Disk) -> None:
    with on(disk) as opened:
        disk.free_bytes = 600_000
        inserted = 0
        with pytest.raises(DiskFull, match=r"no space left for .*data\.db"):
            for inserted in range(100):
                opened.execute(FILL, inserted)
        assert inserted > 2
        assert opened.rows("SELECT c1 FROM t1_1") == [(n,) for n in range(inserted)]
        assert opened.faults == []
        with pytest.raises(DiskFull):
            opened.execute(FILL, 1000)
        # Somebody makes room.
        disk.free_bytes = None
        opened.execute(FILL, inserted)
        assert opened.rows("SELECT count(*) FROM t1_1") == [(inserted + 1,)]


def test_one_statement_too_large_for_the_disk_leaves_the_others_alone(disk: Disk) -> None:
    """SQLite rolls the whole transaction back; the others of the group run again."""
    with storage(
        disk.directory, settings=Settings(vfs=faulty_vfs_with_checksums(), writer_cache_bytes=1 << 16)
    ) as opened:
        opened.writer.run(Create())
        disk.free_bytes = 1_000_000
        many = "INSERT INTO t1_1 WITH RECURSIVE r(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM r LIMIT 5000) SELECT 1, n, 0, printf('%.*c', 1000, 'x') FROM r"
        outcomes = opened.together(
            [
                Sql("INSERT INTO t1_1 VALUES (1, 1, 0, 'before')"),
                Sql(many),
                Sql("INSERT INTO t1_1 VALUES (1, 2, 0, 'after')"),
            ]
        )
        assert [type(outcome.error) for outcome in outcomes] == [type(None), DiskFull, type(None)]
        assert opened.rows("SELECT c1 FROM t1_1") == [(1,), (2,)]
        disk.free_bytes = None
        assert opened.execute(many) == 5000


def test_write_errors_are_answers_and_the_service_goes_on(disk: Disk) -> None:
    """Nothing acknowledged is lost, the log agrees with the tables, and a Fault is not needed."""
    history, rng = History(), random.Random(9)
    with on(disk, checkpoint_pages=50) as opened:
        for share, start in ((0.05, 1), (0.0, 500), (0.2, 1000), (0.0, 1500)):
            disk.write_errors = share
            write_some(opened.writer, history, rng, 80, start=start)
        assert any(isinstance(error, IoError | OutcomeUnknown) for error in history.errors)
        assert opened.faults == []
        # The last writes met no errors, so they were all done.
        assert sum(n >= 1500 for n in history.acknowledged) > 20
    check(SqliteFiles(disk.directory), history)


def test_a_failed_sync_is_a_fault(disk: Disk) -> None:
    history, rng = History(), random.Random(9)
    with on(disk) as opened:
        write_some(opened.writer, history, rng, 30)
        disk.sync_errors = 1.0
        with pytest.raises(OutcomeUnknown):
            opened.execute("INSERT INTO t1_1 VALUES (1, 1000000, 10000, 'x')")
        disk.sync_errors = 0.0
        # Never again, even though the disk says that it works: what it holds is unknown.
        with pytest.raises(Fault):
            opened.execute("INSERT INTO t1_1 VALUES (1, 1000001, 10000, 'x')")
        assert len(opened.faults) == 1
        assert "fsync" in str(opened.faults[0])
        assert opened.writer.fault is opened.faults[0]
    # The next start goes by what the disk has.
    check(SqliteFiles(disk.directory), history)


def test_read_errors_are_answers(disk: Disk) -> None:
    with on(disk) as opened:
        for n in range(20):
            opened.execute(FILL, n)
        point = PointReader(opened.files, opened.settings)
        disk.read_errors = 1.0
        with pytest.raises(IoError, match="the disk failed"):
            point.rows("SELECT * FROM t1_1 WHERE c1 = 5", ())
        disk.read_errors = 0.0
        assert len(point.rows("SELECT * FROM t1_1 WHERE c1 = 5", ())) == 1
        point.close()


def test_errors_during_the_start_are_said(disk: Disk) -> None:
    """Whichever write fails, and afterwards a start works."""
    settings = Settings(vfs=faulty_vfs_with_checksums())
    files = SqliteFiles(disk.directory)
    failed = 0
    for _ in range(20):
        disk.write_errors = 0.3
        catalog = writer = None
        try:
            catalog = open_catalog(files, settings)
            writer = Writer(files, settings, post=call, on_fault=lambda _fault: None)
        except ShoalError as error:
            failed += 1
            assert isinstance(error, IoError), error
        finally:
            disk.write_errors = 0.0
            if writer is not None:
                writer.stop()
            if catalog is not None:
                close(catalog)
    assert failed
    with storage(disk.directory, settings=settings) as opened:
        opened.writer.run(Create())


# --- the Raft store


def entry(index: int, rows: int = 1) -> Entry:
    keys = [f"{index}/{n}" for n in range(rows)]
    return normal(
        index, Dml(tuple(RowChange(PICO_PROPERTY.id, (k,), (k, f'"{"x" * 2000}"')) for k in keys), 1)
    )


@contextmanager
def catalog_on(disk: Disk) -> Iterator[CatalogDb]:
    settings = Settings(vfs=faulty_vfs_with_checksums(), writer_cache_bytes=1 << 16)
    db = CatalogDb(SqliteFiles(disk.directory), settings, chunk_bytes=10_000)
    try:
        yield db
    finally:
        disk.free_bytes = None
        db.close()


@pytest.mark.parametrize("rows", [1, 200], ids=["at the commit", "before the commit"])
def test_a_save_that_finds_the_disk_full_has_changed_nothing(disk: Disk, rows: int) -> None:
    with catalog_on(disk) as db:
        first = entry(1)
        db.save(Save(HardState(Term(1), RaftId(1), Index(1)), (first,), (first,)))
        before, stored, sizes = dump(db), db.load(), (db.log_count, db.log_bytes)
        second = entry(2, rows)
        save = Save(HardState(Term(2), RaftId(2), Index(2)), (second,), (second,), Membership((RaftId(1),)))
        disk.free_bytes = 4000 * rows
        for _ in range(3):
            with pytest.raises(DiskFull, match=r"no space left for .*catalog\.db"):
                db.save(save)
            assert (dump(db), db.load(), (db.log_count, db.log_bytes)) == (before, stored, sizes)
        disk.free_bytes = None
        (done,) = db.save(save)
        assert done.index == db.applied == 2
        assert db.load().membership == Membership((RaftId(1),))
        assert len(db.rows(PICO_PROPERTY)) == 1 + rows


def test_a_save_whose_sync_fails_is_a_fault(disk: Disk) -> None:
    with catalog_on(disk) as db:
        first = entry(1)
        disk.sync_errors = 1.0
        with pytest.raises(Fault, match=r"a commit failed on catalog\.db: .*FSYNC"):
            db.save(Save(entries=(first,), committed=(first,)))
        disk.sync_errors = 0.0


def test_a_save_that_cannot_read_may_be_tried_again(disk: Disk) -> None:
    with catalog_on(disk) as db:
        made = tuple(entry(n, 50) for n in range(1, 11))
        db.save(Save(entries=made, committed=made))
    with catalog_on(disk) as db:
        stored = db.load()
        gone = tuple(
            RowChange(PICO_PROPERTY.id, (f"{n}/{k}",), None) for n in range(1, 11) for k in range(50)
        )
        last = normal(11, Dml(gone, 1))
        disk.read_errors = 1.0
        with pytest.raises(IoError):
            db.save(Save(entries=(last,), committed=(last,)))
        disk.read_errors = 0.0
        assert db.load() == stored
        db.save(Save(entries=(last,), committed=(last,)))
        assert db.rows(PICO_PROPERTY) == []


def test_an_installation_that_finds_the_disk_full_may_be_tried_again(disk: Disk, tmp_path: Path) -> None:
    source = CatalogDb(SqliteFiles(tmp_path), Settings(), chunk_bytes=10_000)
    made = tuple(entry(n, 50) for n in range(1, 5))
    source.save(Save(entries=made, committed=made))
    mark = source.make_snapshot()
    with catalog_on(disk) as db:
        first = entry(1)
        db.save(Save(entries=(first,), committed=(first,)))
        before, stored = dump(db), db.load()
        offset, last = 0, False
        while not last:
            chunk = source.read_chunk(mark, offset)
            assert chunk is not None
            data, last = chunk
            db.keep_chunk(mark, offset, data)
            offset += 1
        disk.free_bytes = 100_000
        with pytest.raises(DiskFull):
            db.install(mark, HardState(Term(1), RaftId(0), mark.index))
        assert (dump(db), db.load()) == (before, stored)
        disk.free_bytes = None
        db.install(mark, HardState(Term(1), RaftId(0), mark.index))
        assert dump(db) == dump(source)
    source.close()


def test_files_of_a_snapshot_that_cannot_be_written(tmp_path: Path) -> None:
    db = CatalogDb(SqliteFiles(tmp_path), Settings())
    first = entry(1)
    db.save(Save(entries=(first,), committed=(first,)))
    for name in ("raft-snapshot-1", "raft-snapshot-received"):
        (tmp_path / name).mkdir()
    with pytest.raises(IoError, match="raft-snapshot-1 cannot be used"):
        db.make_snapshot()
    mark = db.make_snapshot()  # under another name
    chunk = db.read_chunk(mark, 0)
    assert chunk is not None
    with pytest.raises(IoError, match="raft-snapshot-received cannot be used"):
        db.keep_chunk(mark, 0, chunk[0])
    (tmp_path / "raft-snapshot-received").rmdir()
    db.keep_chunk(mark, 0, chunk[0])
    db.install(mark, HardState())
    assert db.load().mark == mark
    db.close()


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_a_directory_on_a_full_file_system(tmp_path: Path) -> None:
    """The real thing, where the machine allows a small tmpfs."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount")
    try:
        (small / "data").mkdir()
        with InstanceDirectory.claim(small / "data") as instance, storage(instance.path) as opened:
            opened.writer.run(Create())
            inserted = 0
            with pytest.raises(DiskFull):
                for inserted in range(1000):
                    opened.execute(FILL, inserted)
            assert opened.rows("SELECT count(*) FROM t1_1") == [(inserted,)]
            assert opened.faults == []
        with suppress(OSError):
            (small / "filler").write_bytes(bytes(4 << 20))
        with pytest.raises(DiskFull, match="no space left"):
            InstanceDirectory.claim(small / "data")
    finally:
        subprocess.run(["umount", str(small)], check=True)
