"""A damaged write-ahead log is told from one that a crash cut off.

Here: check_wal(), to be asked before SQLite opens a file that was not closed.
Not here: damaged pages of the database files (checksum.py).

SQLite replays its log up to the first frame whose checksum is wrong, and takes that for the end. After a crash
it is: the last transaction was being written. After a flipped bit it is not, and every acknowledged
transaction behind it would vanish without a word.

The two can be told apart, because a transaction is synced before the next one is begun: a crash damages
the last one only. Frame checksums are a chain, each starts from the one before as stored; so the frames
behind a wrong one can be checked by themselves. If they show that a transaction was finished there **and
another one begun**, then the wrong frame had been synced, and the disk has damaged it since. Only a flipped bit in
the very last transaction stays indistinguishable from a crash.

Not all that stands behind the end is of the last transaction: one that was rolled back, or torn by an earlier crash,
may have been longer than those that overwrote its beginning. Its frames follow each other, but none of
them follows the frame that ends what lies before it now. So "another one begun" means: the very next frame
continues the chain of a frame that ends a transaction.

The chain is SQLite's page checksum with a start value. That one is computed in C, by verify_checksum(), from
zero; zeros in front don't change it, and a start value can be added into the first two words. So
a log of 400 MB is checked in about half a second.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, cast

import apsw

from shoal.errors import DataCorrupted, IoError
from shoal.storage.checksum import PAGE_BYTES, load_checksums

# https://sqlite.org/fileformat.html#the_write_ahead_log
_HEADER: Final = struct.Struct(">8I")  # magic, format, page size, sequence, salt 1 and 2, checksum 1 and 2
_FRAME: Final = struct.Struct(">6I")  # page, size of the file after a commit or 0, salts, checksums
_WORDS: Final = struct.Struct("=2I")
_MAGIC: Final = 0x377F0682 if sys.byteorder == "little" else 0x377F0683
_MASK: Final = 0xFFFFFFFF
_SECTOR_BYTES: Final = 512

_FRAME_BYTES: Final = _FRAME.size + PAGE_BYTES
_PADDING: Final = bytes(PAGE_BYTES - 16)  # makes 2 words, a page and its checksum a power of two
_SLICE_FRAMES: Final = 256


@dataclass(frozen=True, slots=True)
class _Frame:
    number: int  # 1-based
    page: int
    commit: bool  # the last of its transaction; of a frame that isn't good, as far as that can be known
    good: bool  # of this log (not of one that it overwrites), and its checksum is right
    whole: bool  # its header lies in one sector


def check_wal(database: Path) -> None:
    """DataCorrupted when the log beside this database file lost transactions that had been synced.

    Only for logs that were written with a sync at every commit.
    """
    path = Path(f"{database}-wal")
    try:
        with path.open("rb") as file:
            _check(path, file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise IoError(f"{path} cannot be read: {error.strerror}") from error


def _check(path: Path, file: BinaryIO) -> None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not any(header):
        return  # begun, and never synced
    magic, _format, page_bytes, _sequence, salt1, salt2, sum1, sum2 = _HEADER.unpack(header)
    if _sum(header[:24]) != (sum1, sum2) or magic != _MAGIC or page_bytes != PAGE_BYTES:
        # It fits in a sector, so no crash can have torn it.
        raise DataCorrupted(f"the header of {path} is damaged: its checksum is wrong")
    damaged: _Frame | None = None
    previous: _Frame | None = None
    for frame in _frames(file, (salt1, salt2), (sum1, sum2)):
        if damaged is None:
            if not frame.good:
                damaged = frame
        elif (
            previous is not None
            and previous.commit
            and not (frame.commit and frame.page == previous.page)  # a commit repeated to fill a sector
            and (frame.good or (previous is damaged and _continues(file, frame.number, (sum1, sum2))))
        ):
            raise DataCorrupted(
                f"frame {damaged.number} of {path} is damaged: its checksum is wrong,"
                " and later transactions that were synced stand behind it",
                hint="restore this instance from another replica or from a backup",
            )
        previous = frame


def _continues(file: BinaryIO, number: int, first_seed: tuple[int, int]) -> bool:
    """Whether this frame follows what the frame before it holds, but for the checksum that is stored there."""

    def frame(number: int) -> bytes:
        return os.pread(file.fileno(), _FRAME_BYTES, _HEADER.size + (number - 1) * _FRAME_BYTES)

    def checksum(data: bytes, seed: tuple[int, int]) -> tuple[int, int]:
        return _sum(data[:8] + data[_FRAME.size :], seed)

    seed = first_seed
    if number > 2:
        seed = _FRAME.unpack_from(frame(number - 2))[4:]
    data = frame(number)
    return checksum(data, checksum(frame(number - 1), seed)) == _FRAME.unpack_from(data)[4:]


def _frames(file: BinaryIO, salts: tuple[int, int], seed: tuple[int, int]) -> Iterator[_Frame]:
    load_checksums()
    number = 0
    with closing(apsw.Connection(":memory:")) as checker:
        while (slice_ := file.read(_SLICE_FRAMES * _FRAME_BYTES)) and len(slice_) >= _FRAME_BYTES:
            frames: list[_Frame] = []
            claims: list[bytes] = []
            for at in range(0, len(slice_) - _FRAME_BYTES + 1, _FRAME_BYTES):
                page, size, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(slice_, at)
                ours = (salt1, salt2) == salts
                # In a header that lies across two sectors, a crash may have mixed new and old fields.
                offset = _HEADER.size + number * _FRAME_BYTES
                whole = offset % _SECTOR_BYTES + _FRAME.size <= _SECTOR_BYTES
                word1, word2 = _WORDS.unpack_from(slice_, at)
                claims.append(
                    b"".join(
                        (
                            _PADDING,
                            _WORDS.pack((word1 + seed[0] + seed[1]) & _MASK, (word2 + seed[1]) & _MASK),
                            slice_[at + _FRAME.size : at + _FRAME_BYTES],
                            _WORDS.pack(sum1, sum2),
                        )
                    )
                )
                number += 1
                frames.append(_Frame(number, page, ours and size > 0, ours, whole))
                seed = (sum1, sum2)
            right = checker.execute(
                "SELECT verify_checksum(value) FROM carray(?)", (apsw.carray(tuple(claims)),)
            )
            for frame, (is_right,) in zip(frames, cast("list[tuple[int]]", right.fetchall()), strict=True):
                good = frame.good and bool(is_right)
                yield replace(frame, commit=frame.commit and (good or frame.whole), good=good)


def _sum(data: bytes, seed: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """SQLite's checksum of a few bytes."""
    sum1, sum2 = seed
    for word1, word2 in _WORDS.iter_unpack(data):
        sum1 = (sum1 + word1 + sum2) & _MASK
        sum2 = (sum2 + word2 + sum1) & _MASK
    return sum1, sum2
