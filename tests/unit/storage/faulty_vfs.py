"""A disk that fails as disks do: it loses power at any moment, returns errors, and runs full.

Here: Disk, the VFS through which SQLite uses it, and that VFS below the checksums.
Not here: what must survive (test_power_cuts.py, test_disk_errors.py).

A Disk is a directory. What SQLite writes lands in real files, as in the kernel's cache; beside them the Disk keeps
what is durable, and the writes since the last sync of each file. When the power is cut, every 512-byte
sector of those is kept or lost by chance, so writes are lost, torn and reordered; a file that was never synced
may be gone. Everything after the cut fails, closing included: closing checkpoints, and would hide each
loss.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import apsw
import apsw.sqlite_extra

SECTOR_BYTES: Final = 512

_NAME: Final = "shoal-faulty"
_CHECKSUMS_NAME: Final = "cksmflt"  # as long as the name that it replaces


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    exists: bool = False  # durably
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data), (size, None)


class Disk:
    """The failures are set by attributes, at any time; `operations` counts writes, truncations and syncs."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.operations = 0
        self.cut_at: int | None = None  # the number of the operation at which the power fails
        self.dead = False
        self.free_bytes: int | None = None  # of new space in files; None is plenty
        self.write_errors = 0.0  # the share of writes that fail with EIO
        self.full_errors = 0.0  # the share that finds the disk full
        self.sync_errors = 0.0
        self.read_errors = 0.0
        self._files: dict[str, _File] = {}
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        _disks[str(directory)] = self

    def close(self) -> None:
        del _disks[str(self.directory)]

    def adopt(self) -> None:
        """What lies in the directory has been there for long: all of it is durable."""
        for path in self.directory.iterdir():
            image = bytearray(path.read_bytes())
            self._files[str(path)] = _File(image, exists=True)
            self._sizes[str(path)] = len(image)

    def survivors(self, directory: Path) -> None:
        """What a machine finds there when the power is back."""
        keep = self.rng.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for name, file in self._files.items():
            if not file.exists and self.rng.random() > keep:
                continue
            image = bytearray(file.durable)
            for at, data in file.pending:
                if data is None:
                    if self.rng.random() < keep:
                        del image[at:]
                    continue
                # Sectors are whole or not written; the last one may be partly beyond the data.
                start = at
                while start < at + len(data):
                    end = min(start - start % SECTOR_BYTES + SECTOR_BYTES, at + len(data))
                    if self.rng.random() < keep:
                        if len(image) < end:
                            image.extend(bytes(end - len(image)))
                        image[start:end] = data[start - at : end - at]
                    start = end
            (directory / Path(name).name).write_bytes(image)

    # --- what the VFS asks

    def wrote(self, name: str, at: int, data: bytes, into: Callable[[], None]) -> None:
        with self._lock:
            self._operate()
            if self.rng.random() < self.write_errors:
                raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
            if self.full_errors and self.rng.random() < self.full_errors:
                raise apsw.exception_for(apsw.SQLITE_FULL)
            grown = at + len(data) - self._sizes.get(name, 0)
            if grown > 0:
                if self.free_bytes is not None:
                    if grown > self.free_bytes:
                        raise apsw.exception_for(apsw.SQLITE_FULL)
                    self.free_bytes -= grown
                self._sizes[name] = at + len(data)
            into()
            self._files.setdefault(name, _File()).pending.append((at, data))

    def truncated(self, name: str, size: int, into: Callable[[], None]) -> None:
        with self._lock:
            self._operate()
            into()
            if self.free_bytes is not None:
                self.free_bytes += max(0, self._sizes.get(name, 0) - size)
            self._sizes[name] = size
            self._files.setdefault(name, _File()).pending.append((size, None))

    def synced(self, name: str) -> None:
        with self._lock:
            self._operate(apsw.SQLITE_IOERR_FSYNC)
            if self.rng.random() < self.sync_errors:
                raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)
            file = self._files.setdefault(name, _File())
            for at, data in file.pending:
                if data is None:
                    del file.durable[at:]
                else:
                    if len(file.durable) < at:
                        file.durable.extend(bytes(at - len(file.durable)))
                    file.durable[at : at + len(data)] = data
            file.pending.clear()
            file.exists = True

    def deleted(self, name: str, into: Callable[[], None]) -> None:
        with self._lock:
            self._operate()
            into()
            self._files.pop(name, None)
            self._sizes.pop(name, None)

    def reading(self) -> None:
        if self.dead or (self.read_errors and self.rng.random() < self.read_errors):
            raise apsw.exception_for(apsw.SQLITE_IOERR_READ)

    def _operate(self, error: int = apsw.SQLITE_IOERR_WRITE) -> None:
        self.operations += 1
        if self.cut_at is not None and self.operations >= self.cut_at:
            self.dead = True
        if self.dead:
            raise apsw.exception_for(error)


_disks: dict[str, Disk] = {}


def _disk_of(name: str) -> Disk:
    return _disks[str(Path(name).parent)]


class _FaultyFile(apsw.VFSFile):
    def __init__(self, name: apsw.URIFilename | str, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._name = name if isinstance(name, str) else name.filename()
        self._disk = _disk_of(self._name)

    def excepthook(self, *_about: object) -> bool:
        return True  # injected, and told by the return code

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.reading()
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        copy = bytes(data)
        self._disk.wrote(self._name, offset, copy, lambda: super(_FaultyFile, self).xWrite(copy, offset))

    def xTruncate(self, newsize: int) -> None:
        self._disk.truncated(self._name, newsize, lambda: super(_FaultyFile, self).xTruncate(newsize))

    def xSync(self, flags: int) -> None:
        self._disk.synced(self._name)

    def xSectorSize(self) -> int:
        return SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        # As on Linux: bytes beside a torn write stay what they were.
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class _FaultyVfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(_NAME, base="unix")

    def excepthook(self, *_about: object) -> bool:
        return True

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a temporary file: no durability to speak of
            return apsw.VFSFile("unix", name, flags)
        return _FaultyFile(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        _disk_of(filename).deleted(filename, lambda: super(_FaultyVfs, self).xDelete(filename, syncdir))


_registered: list[apsw.VFS] = []  # a VFS lives as long as something refers to it


@cache
def faulty_vfs() -> str:
    """The VFS of all Disks, without checksums."""
    _registered.append(_FaultyVfs())
    return _NAME


@cache
def faulty_vfs_with_checksums() -> str:
    """The checksum VFS above the one of all Disks.

    The extension keeps what lies below it in a static variable, and knows one name. So a copy of it, in which
    the name is another, is loaded while the faulty VFS is the default one.
    """
    before = apsw.vfs_names()[0]
    apsw.set_default_vfs(faulty_vfs())
    try:
        original = Path(apsw.sqlite_extra.path("cksumvfs")).read_bytes()
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "cksumvfs.so"
            copy.write_bytes(original.replace(b"cksmvfs\0", _CHECKSUMS_NAME.encode("ascii") + b"\0"))
            loader = apsw.Connection(":memory:", vfs="unix")
            loader.enable_load_extension(True)
            loader.load_extension(str(copy), "sqlite3_cksumvfs_init")
            loader.close()
    finally:
        apsw.set_default_vfs(before)
    assert _CHECKSUMS_NAME in apsw.vfs_names(), apsw.vfs_names()
    return _CHECKSUMS_NAME
