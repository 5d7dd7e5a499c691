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

from shoal.errors import DiskFull, Fault, IoError, OutcomeUnknown, ShoalError
from shoal.storage.directory import InstanceDirectory
from shoal.storage.readers import PointReader
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog
from shoal.storage.writer import Writer
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
