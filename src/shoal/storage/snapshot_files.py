"""Snapshots as files of chunks: the one that others may fetch, and the one that is being fetched.

Here: SnapshotFiles: cutting a stream of frames into chunks, each with a checksum, and putting it together again.
Not here: what the frames hold (catalog_snapshot.py), who fetches what when (raft/node.py).

Neither file needs to survive a crash: the state that the first was made of is in catalog.db, and what was
fetched is nothing before it is installed there. So no write is synced, and a start deletes both.

A chunk is its checksum, then its place (of which snapshot, which chunk, whether the last), then a part of the stream.
Of the stream, a frame is a table's id, a length and so many bytes; chunks end wherever they are full.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from shoal.errors import DataCorrupted, DiskFull, IoError, ObjectNotInPrerequisiteState, ProtocolViolation
from shoal.raft.messages import SnapshotMark

CHUNK_BYTES: Final = 1 << 20

_CHECKSUM_BYTES: Final = 16
_PLACE: Final = Struct(">BQQIB")  # format, index, term, offset, last
_FORMAT: Final = 1
_FRAME: Final = Struct(">IQ")  # id, length
_HEAD_BYTES: Final = _CHECKSUM_BYTES + _PLACE.size

_PREFIX: Final = "raft-snapshot-"

Frame = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Kept:
    mark: SnapshotMark
    path: Path
    chunk_bytes: int  # of each but the last
    count: int


@dataclass(slots=True)
class _Received:
    mark: SnapshotMark
    ends: list[int] = field(default_factory=list)  # of its chunks in the file
    whole: bool = False


class SnapshotFiles:
    """write() and read_chunk() are for any thread; what is received belongs to one."""

    def __init__(self, directory: Path, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self._directory = directory
        self._received_path = directory / f"{_PREFIX}received"
        self._making = threading.Lock()
        self._kept: _Kept | None = None
        self._made = 0
        self._received: _Received | None = None
        for left in directory.glob(f"{_PREFIX}*"):
            _delete(left)

    # --- to give ---------------------------------------------------------------------------------

    def write(self, mark: SnapshotMark, frames: Iterator[Frame]) -> None:
        """Takes the place of the one that was kept, unless it is the same."""
        with self._making:
            old = self._kept
            if old is not None and old.mark == mark:
                return
            self._made += 1
            path = self._directory / f"{_PREFIX}{self._made}"
            chunk_bytes = self.chunk_bytes
            try:
                count = 0
                with path.open("wb") as file:
                    for chunk in _chunks(mark, frames, chunk_bytes):
                        file.write(chunk)
                        count += 1
            except OSError as error:
                _delete(path)
                raise _said(path, error) from error
            except BaseException:
                _delete(path)
                raise
            self._kept = _Kept(mark, path, chunk_bytes, count)
            if old is not None:
                _delete(old.path)

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        kept = self._kept
        if kept is None or kept.mark != mark or not 0 <= offset < kept.count:
            return None
        try:
            with kept.path.open("rb") as file:
                file.seek(offset * kept.chunk_bytes)
                chunk = file.read(kept.chunk_bytes)
        except FileNotFoundError:
            return None  # a newer one has just taken its place
        except OSError as error:
            raise _said(kept.path, error) from error
        last = offset == kept.count - 1
        if not _is_sound(chunk, mark, offset, last):
            # Whoever fetches it begins anew, with one that is made anew.
            self._drop(kept)
            return None
        return chunk, last

    def _drop(self, kept: _Kept) -> None:
        with self._making:
            if self._kept is kept:
                self._kept = None
                _delete(kept.path)

    # --- to take ---------------------------------------------------------------------------------

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        received = self._received
        if offset == 0:
            received = _Received(mark)
        elif received is None or received.mark != mark or received.whole or offset != len(received.ends):
            raise ProtocolViolation(f"chunk {offset} of a snapshot is out of turn")
        last = len(data) >= _HEAD_BYTES and data[_HEAD_BYTES - 1] == 1
        if not _is_sound(data, mark, offset, last):
            raise DataCorrupted(f"chunk {offset} of a snapshot arrived damaged")
        at = received.ends[-1] if received.ends else 0
        self._received = received
        try:
            with self._received_path.open("wb" if offset == 0 else "r+b") as file:
                file.seek(at)
                file.write(data)
        except OSError as error:
            raise _said(self._received_path, error) from error
        received.ends.append(at + len(data))
        received.whole = last

    def received(self, mark: SnapshotMark) -> Iterator[Frame]:
        """All frames of what was kept. Refused if that isn't all of it, or was damaged on the disk."""
        received = self._received
        if received is None or received.mark != mark or not received.whole:
            raise ObjectNotInPrerequisiteState("the snapshot to install has not been received as a whole")
        return _frames(self._received_parts(received))

    def _received_parts(self, received: _Received) -> Iterator[bytes]:
        start = 0
        try:
            with self._received_path.open("rb") as file:
                for offset, end in enumerate(received.ends):
                    chunk = file.read(end - start)
                    if not _is_sound(chunk, received.mark, offset, offset == len(received.ends) - 1):
                        raise DataCorrupted(f"chunk {offset} of the received snapshot is damaged")
                    yield chunk[_HEAD_BYTES:]
                    start = end
        except OSError as error:
            raise _said(self._received_path, error) from error

    def forget_received(self) -> None:
        self._received = None
        _delete(self._received_path)


# --- chunks --------------------------------------------------------------------------------------


def _chunks(mark: SnapshotMark, frames: Iterable[Frame], chunk_bytes: int) -> Iterator[bytes]:
    room = chunk_bytes - _HEAD_BYTES
    assert room > 0, chunk_bytes
    offset = 0
    waiting = bytearray()
    for table_id, body in frames:
        waiting += _FRAME.pack(table_id, len(body))
        waiting += body
        at = 0
        while len(waiting) - at > room:
            yield _chunk(mark, offset, waiting[at : at + room], last=False)
            at += room
            offset += 1
        del waiting[:at]
    yield _chunk(mark, offset, waiting, last=True)


def _chunk(mark: SnapshotMark, offset: int, part: bytearray, *, last: bool) -> bytes:
    data = _PLACE.pack(_FORMAT, mark.index, mark.term, offset, last) + part
    return _checksum(data) + data


def _checksum(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


def _is_sound(chunk: bytes, mark: SnapshotMark, offset: int, last: bool) -> bool:
    return (
        len(chunk) >= _HEAD_BYTES
        and _PLACE.unpack_from(chunk, _CHECKSUM_BYTES) == (_FORMAT, mark.index, mark.term, offset, last)
        and _checksum(memoryview(chunk)[_CHECKSUM_BYTES:]) == chunk[:_CHECKSUM_BYTES]
    )


def _frames(parts: Iterable[bytes]) -> Iterator[Frame]:
    waiting = bytearray()
    for part in parts:
        waiting += part
        at = 0
        while len(waiting) - at >= _FRAME.size:
            table_id, length = _FRAME.unpack_from(waiting, at)
            end = at + _FRAME.size + length
            if end > len(waiting):
                break
            yield table_id, bytes(waiting[at + _FRAME.size : end])
            at = end
        del waiting[:at]
    if waiting:
        raise DataCorrupted("the received snapshot ends in the middle of a frame")


def _delete(path: Path) -> None:
    """What can't be deleted takes space, and does no other harm."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _said(path: Path, error: OSError) -> DiskFull | IoError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left for {path}")
    return IoError(f"{path} cannot be used: {error.strerror}")
