"""Starting on a directory: who owns it, and what is wrong with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import apsw
import pytest

from shoal.errors import DataCorrupted, FeatureNotSupported, InvalidParameterValue, IoError, ObjectInUse
from shoal.storage.directory import InstanceDirectory
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog
from tests.unit.storage.open_storage import storage


def test_a_new_directory_is_made(tmp_path: Path) -> None:
    with InstanceDirectory.claim(tmp_path / "a" / "b") as instance:
        instance.prepare_files(Settings())
        assert instance.files.data == tmp_path / "a" / "b" / "data.db"
        assert sorted(path.name for path in instance.path.iterdir()) == ["instance.lock"]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent("""
            import sys, time
            from pathlib import Path
            from shoal.storage.directory import InstanceDirectory
            held = InstanceDirectory.claim(Path(sys.argv[1]))
            print("claimed", flush=True)
            time.sleep(60)
        """), str(tmp_path)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "claimed\n"
        with pytest.raises(
            ObjectInUse, match=f"{tmp_path} is in use by another Shoal process .pid {owner.pid}."
        ):
            InstanceDirectory.claim(tmp_path)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        # The lock died with its owner.
        InstanceDirectory.claim(tmp_path).release()
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_the_same_directory_twice_in_one_process(tmp_path: Path) -> None:
    with InstanceDirectory.claim(tmp_path), pytest.raises(ObjectInUse):
        InstanceDirectory.claim(tmp_path)
    InstanceDirectory.claim(tmp_path).release()


def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shoal.yaml").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidParameterValue, match="holds 'thesis.tex'"):
        InstanceDirectory.claim(tmp_path)
    assert not (tmp_path / "instance.lock").exists()
    (tmp_path / "thesis.tex").unlink()
    InstanceDirectory.claim(tmp_path).release()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IoError, match="is not a directory"):
        InstanceDirectory.claim(tmp_path / "file")
    with pytest.raises(IoError, match="is not a directory"):
        InstanceDirectory.claim(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(IoError, match="no permission"):
            InstanceDirectory.claim(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs mount")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "none", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount")
    try:
        with pytest.raises(IoError, match="lies on a read-only file system"):
            InstanceDirectory.claim(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_what_is_left_of_unlogged_tables_is_deleted(tmp_path: Path) -> None:
    with InstanceDirectory.claim(tmp_path) as instance:
        for name in ("unlogged.db", "unlogged.db-wal", "unlogged.db-shm"):
            (tmp_path / name).write_bytes(b"garbage")
        instance.prepare_files(Settings())
        assert not list(tmp_path.glob("unlogged*"))


def test_a_database_of_another_program(tmp_path: Path) -> None:
    other = apsw.Connection(str(tmp_path / "catalog.db"))
    other.execute("CREATE TABLE photos (id INTEGER)")
    other.close()
    with pytest.raises(FeatureNotSupported, match=r"catalog\.db is a database of another program"):
        open_catalog(SqliteFiles(tmp_path), Settings())


def test_a_format_of_the_future(tmp_path: Path) -> None:
    files = SqliteFiles(tmp_path)
    catalog = open_catalog(files, Settings())
    catalog.pragma("user_version", 99)
    close(catalog)
    with pytest.raises(FeatureNotSupported, match="has format 99, this Shoal reads format 2"):
        open_catalog(files, Settings())


def test_garbage_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(os.urandom(8192))
    with pytest.raises(DataCorrupted, match=r"catalog\.db is damaged"):
        open_catalog(SqliteFiles(tmp_path), Settings())


def test_files_are_set_up_as_they_should_be(tmp_path: Path) -> None:
    with storage(tmp_path) as opened:
        connection = opened.writer._connection
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("journal_mode", schema="unlogged") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("synchronous", schema="unlogged") == 0
        for schema in ("main", "unlogged", "catalog"):
            assert connection.reserve_bytes(schema) == 8
            assert connection.pragma("page_size", schema=schema) == 4096
        assert connection.execute("SELECT 'a' LIKE 'A'").get == 0
        assert connection.readonly("catalog")
        with pytest.raises(apsw.SQLError):
            connection.execute('SELECT "no such column"')
