"""A disk that keeps its promises, and nothing else.

Here: Disk, a LogStore in memory. It is written as a journal of records on top of a base; restart() reads the base and
replays the journal, up to a last record that was torn by a crash.
Not here: the real one (storage/catalog_db.py). One conformance suite holds for both.

The state machine is the smallest whose state tells its history: a chained checksum, and a ring of its last values, so
that a snapshot has something to lose.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from zlib import crc32

from shoal.raft.membership import changed
from shoal.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    SnapshotMark,
    Term,
    decode_change,
)
from shoal.raft.store import Save, Stored

ROWS: Final = 12
_STATE: Final = struct.Struct(f">{ROWS + 1}I")
_CHECKPOINT_RECORDS: Final = 40


def digest_after(digest: int, entry: Entry) -> int:
    """Of a history that ended in `digest`, and goes on with this entry."""
    return crc32(
        entry.data, (digest ^ (entry.index * 0x9E3779B1 + entry.term * 0x85EBCA6B + entry.kind)) & 0xFFFFFFFF
    )


@dataclass(slots=True)
class State:
    digest: int = 0
    rows: list[int] = field(default_factory=lambda: [0] * ROWS)

    def apply(self, entry: Entry) -> None:
        self.digest = digest_after(self.digest, entry)
        self.rows[entry.index % ROWS] = self.digest

    def copy(self) -> State:
        return State(self.digest, self.rows.copy())

    def to_bytes(self) -> bytes:
        return _STATE.pack(self.digest, *self.rows)

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        digest, *rows = _STATE.unpack(data)
        return cls(digest, rows)


@dataclass(slots=True)
class _Image:
    hard_state: HardState
    mark: SnapshotMark
    entries: list[Entry]
    applied: Index
    membership: Membership
    state: State

    def copy(self) -> _Image:
        return replace(self, entries=self.entries.copy(), state=self.state.copy())

    @property
    def last_index(self) -> Index:
        return Index(self.mark.index + len(self.entries))

    def entry(self, index: Index) -> Entry:
        return self.entries[index - self.mark.index - 1]


@dataclass(frozen=True, slots=True)
class _Compact:
    index: Index


@dataclass(frozen=True, slots=True)
class _Install:
    mark: SnapshotMark
    hard_state: HardState
    state: bytes


_Record: TypeAlias = Save | _Compact | _Install


class Disk:
    def __init__(self, chunk_bytes: int = 16) -> None:
        self._chunk_bytes = chunk_bytes
        mark = SnapshotMark(Index(0), HardState().term, Membership())
        self._image = _Image(HardState(), mark, [], Index(0), Membership(), State())
        self._base = self._image.copy()
        self._journal: list[tuple[_Record, bool]] = []  # and whether it is whole
        self._kept: tuple[SnapshotMark, bytes] | None = None
        self._parts: tuple[SnapshotMark, list[bytes]] | None = None

    # --- LogStore --------------------------------------------------------------------------------

    def load(self) -> Stored:
        image = self._image
        return Stored(image.hard_state, image.mark, tuple(image.entries), image.applied, image.membership)

    def save(self, save: Save) -> None:
        self._write(save)

    def compact(self, index: Index) -> None:
        if index > self._image.mark.index:
            self._write(_Compact(index))

    def make_snapshot(self) -> SnapshotMark:
        image = self._image
        term = image.mark.term if image.applied == image.mark.index else image.entry(image.applied).term
        mark = SnapshotMark(image.applied, term, image.membership)
        self._kept = (mark, image.state.to_bytes())
        return mark

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        if self._kept is None or self._kept[0] != mark:
            return None
        data, size = self._kept[1], self._chunk_bytes
        return data[offset * size : (offset + 1) * size], (offset + 1) * size >= len(data)

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        if offset == 0:
            self._parts = (mark, [])
        if self._parts is None or self._parts[0] != mark or len(self._parts[1]) != offset:
            raise ValueError(f"part {offset} of {mark} after {self._parts}")
        self._parts[1].append(data)

    def install(self, mark: SnapshotMark, hard_state: HardState) -> None:
        if self._parts is None or self._parts[0] != mark:
            raise ValueError(f"a snapshot at {mark} is not there, but {self._parts}")
        state = b"".join(self._parts[1])
        if len(state) != _STATE.size:
            raise ValueError(f"{len(state)} bytes of a snapshot of {_STATE.size}")
        self._write(_Install(mark, hard_state, state))
        self._parts = None

    # --- for the simulation ----------------------------------------------------------------------

    def bootstrap(self, mark: SnapshotMark, entries: Sequence[Entry], hard_state: HardState) -> None:
        """How a cluster's first members begin: all behind the same mark, or with the same log, all of it applied."""
        image = self._image
        image.mark, image.applied, image.membership = mark, mark.index, mark.membership
        membership = mark.membership
        for entry in entries:
            assert entry.kind is EntryKind.MEMBERSHIP
            membership = changed(membership, decode_change(entry.data))
        self._replay(Save(hard_state, tuple(entries), tuple(entries), membership))
        self._base = image.copy()

    def restart(self) -> None:
        """Reads what it holds; what was only in memory is forgotten."""
        self._kept = self._parts = None
        self._image = self._base.copy()
        for at, (record, whole) in enumerate(self._journal):
            if not whole:
                assert at == len(self._journal) - 1, "only the last record may be torn"
                self._journal.pop()
                break
            self._replay(record)

    def tear(self, record: Save, parts: int) -> None:
        """The power goes while a save is written: some of its parts are on the disk, its end isn't."""
        torn = Save(
            record.hard_state, record.entries[:parts], record.committed[: max(0, parts - len(record.entries))]
        )
        self._journal.append((torn, False))

    @property
    def applied(self) -> Index:
        return self._image.applied

    @property
    def hard_state(self) -> HardState:
        return self._image.hard_state

    @property
    def mark(self) -> SnapshotMark:
        return self._image.mark

    @property
    def state(self) -> State:
        return self._image.state

    @property
    def last_index(self) -> Index:
        return self._image.last_index

    def has(self, index: Index, term: Term | None) -> bool:
        """An entry, or a state that has come of it."""
        found = self.entry(index)
        return index <= self._image.mark.index or (found is not None and found.term == term)

    def entry(self, index: Index) -> Entry | None:
        """None: compacted, or not there."""
        image = self._image
        return image.entry(index) if image.mark.index < index <= image.last_index else None

    # --- the journal -----------------------------------------------------------------------------

    def _write(self, record: _Record) -> None:
        self._replay(record)
        self._journal.append((record, True))
        if len(self._journal) >= _CHECKPOINT_RECORDS:
            self._base = self._image.copy()
            self._journal.clear()

    def _replay(self, record: _Record) -> None:
        image = self._image
        match record:
            case Save():
                if record.hard_state is not None:
                    image.hard_state = record.hard_state
                if record.entries:
                    first = record.entries[0].index
                    assert image.applied < first <= image.last_index + 1, (
                        image.applied,
                        first,
                        image.last_index,
                    )
                    del image.entries[first - image.mark.index - 1 :]
                    image.entries += record.entries
                for entry in record.committed:
                    assert entry.index == image.applied + 1, (entry, image.applied)
                    assert entry.index <= image.last_index, (entry, image.last_index)
                    assert entry == image.entry(entry.index), (entry, image.entry(entry.index))
                    image.state.apply(entry)
                    image.applied = entry.index
                if record.membership is not None:
                    image.membership = record.membership
            case _Compact(index):
                assert image.mark.index <= index <= image.applied, (image.mark, index, image.applied)
                gone = image.entries[: index - image.mark.index]
                membership = image.mark.membership
                for entry in gone:
                    if entry.kind is EntryKind.MEMBERSHIP:
                        membership = changed(membership, decode_change(entry.data))
                del image.entries[: len(gone)]
                image.mark = SnapshotMark(index, gone[-1].term, membership)
            case _Install(mark, hard_state, state):
                assert mark.index > image.applied, (mark, image.applied)
                image.mark, image.hard_state, image.applied = mark, hard_state, mark.index
                image.entries.clear()
                image.membership = mark.membership
                image.state = State.from_bytes(state)
