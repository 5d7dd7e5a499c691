"""Page checksums: a flipped bit in a page of a database file is found and named, never served.

Here: loading SQLite's own checksum VFS, remembering which page a read found damaged, and checking a file
page by page.
Not here: what a damaged write-ahead log means (wal_check.py), turning SQLite's error into ours
(translate.py), why it is done in C (docs/decisions/0002-page-checksums.md).

Each page ends in 8 reserved bytes. The VFS fills them when a page is written to the database file, and
compares them at each read of the file; a page that lies in SQLite's cache was checked when it got there. The
frames of the write-ahead log have checksums of SQLite's own.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import apsw
import apsw.sqlite_extra

from shoal.errors import DataCorrupted, FeatureNotSupported

CHECKSUM_VFS: Final = "cksmvfs"
CHECKSUM_BYTES: Final = 8

# Smaller pages make group commits cheaper (each changed row brings its whole page into the log), larger
# ones hardly speed up scans: 4096 won the measurements of the decision above.
PAGE_BYTES: Final = 4096

_FAULT_MESSAGE: Final = re.compile(r'^checksum fault offset (\d+) of "(.*)"$', re.DOTALL)


@dataclass(frozen=True, slots=True)
class DamagedPage:
    file: str
    number: int  # 1-based, as SQLite counts

    def __str__(self) -> str:
        return f"page {self.number} of {self.file} is damaged: its checksum is wrong"


class _LastSeen(threading.local):
    """SQLite reports which page it was to its log only, on the thread that reads it, just before the error."""

    page: DamagedPage | None = None


_last_seen: Final = _LastSeen()


def _on_sqlite_log(_code: int, message: str) -> None:
    if (fault := _FAULT_MESSAGE.match(message)) is not None:
        _last_seen.page = DamagedPage(fault[2], int(fault[1]) // PAGE_BYTES + 1)


def take_damaged_page() -> DamagedPage | None:
    """The page that this thread's last read found damaged; asked once per error."""
    page, _last_seen.page = _last_seen.page, None
    return page


@cache
def load_checksums() -> str:
    """Registers the VFS in this process, once; returns its name. SQLite's default VFS stays what it was."""
    apsw.config(apsw.SQLITE_CONFIG_LOG, _on_sqlite_log)
    if apsw.sqlite_extra.has("cksumvfs") != "extension":
        raise FeatureNotSupported(
            "this build of apsw lacks the cksumvfs extension, so pages could not be checked",
            hint="install apsw from its binary wheel",
        )
    before = apsw.vfs_names()[0]
    loader = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(loader, "cksumvfs")
    finally:
        loader.close()
    apsw.set_default_vfs(before)
    return CHECKSUM_VFS


# Pages per slice of a whole check: the GIL is free while SQLite computes, and other work gets its turn.
_SLICE_PAGES: Final = 256


def check_file(path: Path) -> int:
    """Reads a database file that nobody writes, page by page; returns how many pages there are.

    DataCorrupted names the first damaged page. The write-ahead log must have been copied back: a crash may leave
    a torn page in the file whose good version is in the log.
    """
    load_checksums()
    checker = apsw.Connection(":memory:")
    number = 0
    try:
        with path.open("rb") as file:
            while slice_ := file.read(_SLICE_PAGES * PAGE_BYTES):
                pages = [slice_[at : at + PAGE_BYTES] for at in range(0, len(slice_), PAGE_BYTES)]
                if len(pages[-1]) != PAGE_BYTES:
                    raise DataCorrupted(f"{path} ends in the middle of page {number + len(pages)}")
                bad = checker.execute(
                    "SELECT min(rowid) FROM carray(?) WHERE NOT verify_checksum(value)",
                    (apsw.carray(tuple(pages)),),
                ).get
                if bad is not None:
                    raise DataCorrupted(str(DamagedPage(str(path), number + bad)))
                number += len(pages)
    finally:
        checker.close()
    return number
