"""The instance directory: one process owns it, and it is usable before anything is started on it.

Here: InstanceDirectory, which holds the lock, and what is checked before the files are opened.
Not here: the files of SQLite (sqlite.py), the identity of the instance (the catalog has it).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar, cast

from shoal.errors import DiskFull, InvalidParameterValue, IoError, ObjectInUse, ShoalError
from shoal.storage.checksum import check_file
from shoal.storage.sqlite import Settings, SqliteFiles, WalMode, copy_log_back
from shoal.storage.wal_check import check_wal

T = TypeVar("T")

_LOCK: Final = "instance.lock"

# What may lie in a directory that no instance has used yet.
_HARMLESS_SUFFIXES: Final = frozenset({".yaml", ".yml", ".log", ".sock", ".md", ".pem", ".crt", ".key"})

# What a start needs at least: the first pages of the files and of their logs.
_SPACE_NEEDED_BYTES: Final = 1 << 20


class InstanceDirectory:
    """A directory that this process owns until release(), or until it dies: the kernel drops the lock then."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.files = SqliteFiles(path)
        self._lock: int | None = lock

    @classmethod
    def claim(cls, path: Path) -> InstanceDirectory:
        """Makes the directory if need be, and takes its lock. Errors say what is wrong and where."""
        path = path.absolute()
        lock_path = path / _LOCK
        _said(path, lambda: path.mkdir(parents=True, exist_ok=True, mode=0o700))
        if not lock_path.exists():
            _refuse_foreign(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = _said(lock_path, lambda: os.open(lock_path, flags, 0o600))
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.pread(lock, 64, 0).decode("ascii", "replace").partition("\n")[0]
                raise ObjectInUse(
                    f"{path} is in use by another Shoal process" + (f" (pid {owner})" if owner else "")
                ) from error
            _said(lock_path, lambda: _write_lock(lock))
            _said(path, lambda: _try_write(path))
        except BaseException:
            os.close(lock)
            raise
        return cls(path, lock)

    def prepare_files(self, settings: Settings, *, check_pages: bool = False) -> None:
        """Before the files are opened: drops what is left of UNLOGGED tables, and looks for damage.

        The write-ahead logs are always checked: what is wrong there SQLite would take for the end of the
        log, and forget acknowledged rows. `check_pages` reads every page of the files besides.
        """
        self.files.delete_unlogged()
        assert self._lock is not None
        lines = os.pread(self._lock, 64, 0).decode("ascii", "replace").splitlines()
        synced = len(lines) < 2 or lines[1] != WalMode.WRITE.value
        for path in (self.files.catalog, self.files.data):
            if path.exists():
                # Without syncs, a crash may leave gaps before whole transactions. The catalog's are always synced.
                if synced or path == self.files.catalog:
                    check_wal(path)
                if check_pages:
                    copy_log_back(path, settings)
                    check_file(path)
        _said(self.path / _LOCK, lambda: _write_lock(cast(int, self._lock), settings.wal_mode))

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # the file stays: deleting it would let two processes lock two files
            self._lock = None

    def __enter__(self) -> InstanceDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _refuse_foreign(path: Path) -> None:
    entries = sorted(entry.name for entry in _said(path, lambda: list(path.iterdir())))
    foreign = [
        name for name in entries if not name.startswith(".") and Path(name).suffix not in _HARMLESS_SUFFIXES
    ]
    if foreign:
        raise InvalidParameterValue(
            f"{path} is not the directory of a Shoal instance: it holds {foreign[0]!r} and no {_LOCK}",
            hint="name an empty or a new directory",
        )


def _write_lock(lock: int, mode: WalMode | None = None) -> None:
    """Who owns the directory, and how it writes; the mode stays the old one until the logs were checked."""
    lines = os.pread(lock, 64, 0).decode("ascii", "replace").splitlines()
    kept = mode.value if mode is not None else lines[1] if len(lines) > 1 else WalMode.FSYNC.value
    os.ftruncate(lock, os.pwrite(lock, f"{os.getpid()}\n{kept}\n".encode("ascii"), 0))
    os.fsync(lock)


def _try_write(path: Path) -> None:
    """A file system that is read-only or full says so now, not in the middle of the first statement."""
    probe = path / ".write-probe"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, _SPACE_NEEDED_BYTES)
    finally:
        probe.unlink(missing_ok=True)


def _said(path: Path, action: Callable[[], T]) -> T:
    """Runs it; what the operating system refuses is said with the path."""
    try:
        return action()
    except OSError as error:
        raise _error(path, error) from error


def _error(path: Path, error: OSError) -> ShoalError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left in {path}")
    if error.errno == errno.EROFS:
        return IoError(f"{path} lies on a read-only file system")
    if error.errno in (errno.EACCES, errno.EPERM):
        return IoError(f"{path} cannot be written: no permission")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return IoError(f"{path} is not a directory")
    return IoError(f"{path} cannot be used: {error.strerror}")
