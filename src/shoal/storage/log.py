"""The replication log: every change of a row of the sharded tables, in the order in which they happened.

Here: the table `_log`, Capture (which collects changes while statements run), reading and trimming.
Not here: when a group of statements begins and ends (writer.py), who follows the log.

A pre-update hook sees the old and the new row of each change of a physical table `t<id>_<generation>` of
data.db. The changes of one group of statements become **one entry**, written in the group's transaction: the
log and the tables can't disagree, since they are one commit. One entry per group and not one per row,
because a row of `_log` costs as much as a row of a table: at 16 statements per commit that would halve the
writer's throughput; and because what is committed together must be applied together elsewhere. An entry is
closed at about 1 MiB, so that a bulk load makes no monsters; `continues` then says that the next entry
belongs to the same transaction.

Rows are in storage form and in the order of the physical columns (tables.physical_columns()). A REPLACE
appears as the DELETE and the INSERT that it is, as does an update of a key of a WITHOUT ROWID table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, NewType, cast

import apsw
import msgspec

from shoal.errors import DataCorrupted
from shoal.types.values import Stored

Lsn = NewType("Lsn", int)
Row = tuple[Stored, ...]

ENTRY_BYTES: Final = 1 << 20

# More changes than this are turned into MessagePack while the statement still runs: a DELETE of millions of
# rows then holds their bytes, not their Python objects.
_LOOSE_CHANGES: Final = 4096

_LOGGED: Final = re.compile(r"^t(\d+)_(\d+)$")


class Operation(IntEnum):
    INSERT = 1
    UPDATE = 2
    DELETE = 3


class Change(NamedTuple):
    """One row changed. A tuple, since there are as many as there are rows; on disk it is an array."""

    table_id: int
    generation: int
    operation: int  # an Operation
    old: Row | None  # None for INSERT
    new: Row | None  # None for DELETE


@dataclass(frozen=True, slots=True)
class LogEntry:
    lsn: Lsn
    config_version: int
    continues: bool  # the next entry is part of the same transaction
    payload: bytes

    def changes(self) -> list[Change]:
        try:
            return [Change(*change) for change in _decoder.decode(self.payload)]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DataCorrupted(f"entry {self.lsn} of the replication log can't be read: {error}") from error


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(list[tuple[int, int, int, tuple | None, tuple | None]])  # type: ignore[type-arg]

_OPERATIONS: Final = {
    apsw.SQLITE_INSERT: int(Operation.INSERT),
    apsw.SQLITE_UPDATE: int(Operation.UPDATE),
    apsw.SQLITE_DELETE: int(Operation.DELETE),
}


class Capture:
    """The changes of the running transaction. Installed as the writer's pre-update hook.

    Marks are a stack: one per statement (or savepoint) in progress. What was captured after the topmost mark
    is forgotten when that statement fails, as SQLite undoes it.
    """

    __slots__ = ("_changes", "_marks", "_sealed", "_tables")

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, int, Row | None, Row | None]] = []
        self._sealed: list[bytes] = []  # older than all of _changes
        self._marks: list[tuple[int, int]] = []  # (length of _sealed, length of _changes)
        self._tables: dict[str, tuple[int, int] | None] = {}  # by physical name; None is not logged

    def __call__(self, update: apsw.PreUpdate) -> None:
        name = update.table_name
        try:
            table = self._tables[name]
        except KeyError:
            table = self._first_sight(name, update.database_name)
        if table is not None:
            changes = self._changes
            changes.append((*table, _OPERATIONS[update.opcode], update.old, update.new))
            if len(changes) >= _LOOSE_CHANGES:
                self._seal()

    def push(self) -> None:
        self._marks.append((len(self._sealed), len(self._changes)))

    def pop(self) -> None:
        """The statement worked: its changes are now part of what surrounds it."""
        self._marks.pop()

    def discard(self) -> None:
        """The statement failed: nothing of it happened."""
        sealed, loose = self._marks.pop()
        del self._sealed[sealed:]
        del self._changes[loose:]

    def clear(self) -> None:
        self._marks.clear()
        self._sealed.clear()
        self._changes.clear()

    def take(self) -> list[bytes]:
        """The payloads of the transaction's entries, often one, and an empty Capture."""
        assert not self._marks, "a statement is still running"
        if not self._sealed and not self._changes:
            return []
        payloads = self._sealed
        payloads.extend(_payloads(self._changes))
        self._sealed, self._changes = [], []
        return payloads

    def _first_sight(self, name: str, schema: str) -> tuple[int, int] | None:
        """Table ids are unique in the cluster, so a name alone tells the file and whether it is logged."""
        match = _LOGGED.match(name) if schema == "main" else None
        table = (int(match[1]), int(match[2])) if match is not None else None
        self._tables[name] = table
        return table

    def _seal(self) -> None:
        """Turns loose changes into bytes, cut at every mark so that each can still be gone back to."""
        start = 0
        for depth, (sealed, loose) in enumerate(self._marks):
            if loose > start:
                self._sealed.extend(_payloads(self._changes[start:loose]))
                start = loose
            self._marks[depth] = (sealed if loose == 0 else len(self._sealed), 0)
        self._sealed.extend(_payloads(self._changes[start:]))
        self._changes.clear()


def _payloads(changes: list[tuple[int, int, int, Row | None, Row | None]]) -> Iterator[bytes]:
    if not changes:
        return
    whole = _encode(changes)
    pieces = min(-(-len(whole) // ENTRY_BYTES), len(changes))
    if pieces == 1:
        yield whole
        return
    per_piece = -(-len(changes) // pieces)
    for start in range(0, len(changes), per_piece):
        yield _encode(changes[start : start + per_piece])


@dataclass(frozen=True, slots=True)
class LogBound:
    """What is kept of the log. The newest entry always is: it holds the last lsn."""

    bytes: int = 256 << 20
    entries: int = 1_000_000


# What one transaction trims at most, so that trimming is never what a client waits for.
_TRIM_ENTRIES: Final = 256
_TRIM_BYTES: Final = 4 << 20


class LogWriter:
    """Appends to `_log` and trims it, inside the transactions of the one connection that writes data.db.

    It remembers how long the log is; what a rolled back transaction had counted is taken back by rollback().
    """

    def __init__(self, connection: apsw.Connection, bound: LogBound) -> None:
        self._connection = connection
        self._bound = bound
        with connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS main._log ("
                " lsn INTEGER PRIMARY KEY, config_version INTEGER NOT NULL, continues INTEGER NOT NULL,"
                " payload BLOB NOT NULL) STRICT"
            )
        first, last, size = connection.execute(
            "SELECT coalesce(min(lsn), 1), coalesce(max(lsn), 0), coalesce(sum(length(payload)), 0) FROM main._log"
        ).get
        self._committed: tuple[int, int, int] = (first, last, size)
        self._first, self._last, self._size = self._committed

    @property
    def last_lsn(self) -> Lsn:
        """Of what is committed. 0: nothing was ever logged."""
        return Lsn(self._committed[1])

    @property
    def size_bytes(self) -> int:
        return self._committed[2]

    def append(self, payloads: list[bytes], config_version: int) -> None:
        """Entries of one transaction, and a little trimming where the log is longer than its bound."""
        more = len(payloads)
        for payload in payloads:
            more -= 1
            self._last += 1
            self._connection.execute(
                "INSERT INTO main._log VALUES (?, ?, ?, ?)", (self._last, config_version, more > 0, payload)
            )
            self._size += len(payload)
        if self._size > self._bound.bytes or self._last - self._first >= self._bound.entries:
            self._trim()

    def commit(self) -> None:
        self._committed = (self._first, self._last, self._size)

    def rollback(self) -> None:
        self._first, self._last, self._size = self._committed

    def _trim(self) -> None:
        """Oldest entries first, whole transactions or parts of them: a trimmed log is not replayed from there."""
        surplus_bytes = min(self._size - self._bound.bytes, _TRIM_BYTES)
        surplus_entries = self._last - self._first + 1 - self._bound.entries
        oldest = self._connection.execute(
            "SELECT lsn, length(payload) FROM main._log WHERE lsn < ? ORDER BY lsn LIMIT ?",
            (self._last, _TRIM_ENTRIES),
        ).fetchall()
        until, freed = self._first, 0
        for count, (lsn, length) in enumerate(cast(list[tuple[int, int]], oldest)):
            if freed >= surplus_bytes and count >= surplus_entries:
                break
            until, freed = lsn + 1, freed + length
        self._connection.execute("DELETE FROM main._log WHERE lsn < ?", (until,))
        self._first, self._size = until, self._size - freed


def entries(connection: apsw.Connection, from_lsn: Lsn, *, limit: int = 1000) -> list[LogEntry]:
    """Entries from this lsn on, in order; on any connection whose `main` is data.db."""
    rows = connection.execute(
        "SELECT lsn, config_version, continues, payload FROM main._log WHERE lsn >= ? ORDER BY lsn LIMIT ?",
        (from_lsn, limit),
    ).fetchall()
    return [
        LogEntry(Lsn(lsn), config_version, bool(continues), payload)
        for lsn, config_version, continues, payload in cast(list[tuple[int, int, int, bytes]], rows)
    ]
