"""A disk for one member of a replicaset: it keeps its promises, and nothing else.

Here: ShardDisk, a ShardStore in memory, whose tables are one mapping of keys to values.
Not here: the real one (storage/shard_log.py). One conformance suite holds for both.

What isn't synced may be lost by a crash, but only from the end: applied entries come back to the log, and the open
group is gone. So every change of the tables notes what it has to take back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from shoal.shard.messages import LogEntry, SnapshotMark
from shoal.shard.positions import ConfigVersion, History, Lsn
from shoal.shard.store import Save, Stored

Key: TypeAlias = str
Value: TypeAlias = int | str | None  # None: there is no such row
Write: TypeAlias = tuple[Key, Value]

_Undo: TypeAlias = list[tuple[Key, Value]]

encode: Final = msgspec.msgpack.Encoder().encode
decode_writes: Final = msgspec.msgpack.Decoder(list[tuple[str, int | str | None]]).decode
_decode_tables: Final = msgspec.msgpack.Decoder(dict[str, int | str]).decode


class ShardDisk:
    def __init__(self, *, chunk_bytes: int = 64, entry_writes: int = 4, apply_entries: int = 3) -> None:
        self._chunk_bytes = chunk_bytes
        self._entry_writes = entry_writes  # of one entry; a transaction with more has several
        self._apply_entries = apply_entries  # in one go, or a whole transaction
        self.tables: dict[Key, int | str] = {}
        self.acted = ConfigVersion(0)
        self.history = History()
        self.first = Lsn(1)
        self.log: deque[LogEntry] = deque()
        self.applied = Lsn(0)
        self._unsynced: list[tuple[Lsn, _Undo]] = []  # what was applied up to when, since the last sync
        self._group: list[Write] | None = None
        self._group_undo: _Undo = []
        self._prepared: tuple[LogEntry, ...] = ()
        self._kept: tuple[SnapshotMark, bytes] | None = None
        self._parts: tuple[SnapshotMark, list[bytes]] | None = None

    @property
    def last(self) -> Lsn:
        return Lsn(self.first + len(self.log) - 1)

    def entry(self, lsn: Lsn) -> LogEntry | None:
        return self.log[lsn - self.first] if self.first <= lsn <= self.last else None

    # --- ShardStore ------------------------------------------------------------------------------

    def load(self) -> Stored:
        whole = self.last
        while whole >= self.first and self.log[whole - self.first].continues:
            whole = Lsn(whole - 1)
        return Stored(self.acted, self.history, self.first, self.last, whole, self.applied)

    def save(self, save: Save) -> None:
        assert self._group is None, "a group is open"
        if save.cut is not None:
            assert save.cut >= self.applied, (save.cut, self.applied)
            while self.last > save.cut:
                self.log.pop()
        if save.acted is not None:
            self.acted = save.acted
        if save.history is not None:
            self.history = save.history
        for entry in save.entries:
            assert entry.lsn == self.last + 1, (entry, self.last)
            self.log.append(entry)
        self._sync()

    def apply(self, to: Lsn) -> Lsn:
        assert self._group is None, "a group is open"
        assert self.applied <= to <= self.last, (self.applied, to, self.last)
        enough = self.applied + self._apply_entries
        undo: _Undo = []
        for lsn in range(self.applied + 1, to + 1):
            entry = self.log[lsn - self.first]
            self._write(decode_writes(entry.payload), undo)
            if not entry.continues:
                self._unsynced.append((self.applied, undo))
                self.applied = Lsn(lsn)
                undo = []
                if lsn >= enough:
                    break
        assert not undo, "it ends in the middle of a transaction"
        return self.applied

    def entries(self, first: Lsn, max_bytes: int) -> tuple[LogEntry, ...]:
        found: list[LogEntry] = []
        if first < self.first:
            return ()
        for lsn in range(first, self.last + 1):
            entry = self.log[lsn - self.first]
            max_bytes -= len(entry.payload)
            if max_bytes < 0 and found:
                break
            found.append(entry)
        return tuple(found)

    def trim(self, first: Lsn) -> None:
        assert self.first <= first <= self.applied + 1, (self.first, first, self.applied)
        self._sync()
        while self.first < first:
            self.log.popleft()
            self.first = Lsn(self.first + 1)

    def prepare(self, version: ConfigVersion) -> tuple[LogEntry, ...]:
        assert not self._prepared
        writes, size = self._group or [], self._entry_writes
        parts = [writes[at : at + size] for at in range(0, len(writes), size)]
        self._prepared = tuple(
            LogEntry(Lsn(self.last + 1 + at), version, at + 1 < len(parts), encode(part))
            for at, part in enumerate(parts)
        )
        return self._prepared

    def commit(self) -> None:
        self.log.extend(self._prepared)
        self.applied = self.last
        self._group, self._group_undo, self._prepared = None, [], ()
        self._sync()

    def rollback(self) -> None:
        self._take_back(self._group_undo)
        self._group, self._group_undo, self._prepared = None, [], ()

    def make_snapshot(self) -> SnapshotMark:
        assert self._group is None, "a group is open"
        mark = SnapshotMark(self.applied, self.history)
        self._kept = (mark, encode(self.tables))
        return mark

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        if self._kept is None or self._kept[0] != mark:
            return None
        data, size = self._kept[1], self._chunk_bytes
        return data[offset * size : (offset + 1) * size], (offset + 1) * size >= len(data)

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        if offset == 0:
            self._parts = (mark, [])
        assert self._parts is not None, (mark, offset)
        assert self._parts[0] == mark and len(self._parts[1]) == offset, (self._parts, mark, offset)
        self._parts[1].append(data)

    def install(self, mark: SnapshotMark) -> None:
        assert self._parts is not None and self._parts[0] == mark, (self._parts, mark)
        assert self._group is None, "a group is open"
        self.tables = _decode_tables(b"".join(self._parts[1]))
        self.history = mark.history
        self.log.clear()
        self.first = Lsn(mark.lsn + 1)
        self.applied = mark.lsn
        self._parts = None
        self._sync()

    @property
    def kept_mark(self) -> SnapshotMark | None:
        return self._kept[0] if self._kept is not None else None

    # --- the group's statements ------------------------------------------------------------------

    @property
    def group_is_open(self) -> bool:
        return self._group is not None

    @property
    def prepared(self) -> tuple[LogEntry, ...]:
        return self._prepared

    def committed(self, key: Key) -> Value:
        """What a reader sees: nothing of the open group."""
        for each, value in self._group_undo:
            if each == key:
                return value
        return self.tables.get(key)

    def begin(self) -> None:
        assert self._group is None
        self._group = []

    def write(self, writes: Iterable[Write]) -> None:
        """A statement of the open group."""
        assert self._group is not None
        made = list(writes)
        self._group += made
        self._write(made, self._group_undo)

    # --- crashes ---------------------------------------------------------------------------------

    def crash(self, choose: Callable[[int], int]) -> None:
        """The process dies, or the power goes: `choose(n)` says how many of the n transactions that weren't synced are
        lost."""
        self.rollback()
        for _ in range(choose(len(self._unsynced))):
            self.applied, undo = self._unsynced.pop()
            self._take_back(undo)
        self._sync()
        self._kept = self._parts = None

    def _sync(self) -> None:
        self._unsynced.clear()

    def _write(self, writes: Iterable[Write], undo: _Undo) -> None:
        tables = self.tables
        for key, value in writes:
            undo.append((key, tables.get(key)))
            if value is None:
                tables.pop(key, None)
            else:
                tables[key] = value

    def _take_back(self, undo: _Undo) -> None:
        for key, value in reversed(undo):
            if value is None:
                self.tables.pop(key, None)
            else:
                self.tables[key] = value
