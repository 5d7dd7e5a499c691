"""What Raft asks of a disk.

Here: LogStore, what a member finds after a restart, and what it wants saved.
Not here: when to call what (node.py says it in each Ready). One implementation is SQLite's (storage/catalog_db.py),
one the simulation's (sim/disk.py); one conformance suite holds for both.

The log since its last compaction is small (raft_wal_count_max, raft_wal_size_max), so the core holds it in memory:
the store is read at start, and only written afterwards.

The state machine lies in the same store as the log, so that one transaction can do both: new entries, and what
the committed ones change. After a crash the two can't disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.raft.messages import Entry, HardState, Index, Membership, SnapshotMark


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a member finds after a restart."""

    hard_state: HardState
    mark: SnapshotMark  # the log begins after it; index 0: nothing was ever compacted
    entries: tuple[Entry, ...]  # without a gap, from mark.index + 1 on
    applied: Index  # the state machine has everything up to here; mark.index <= applied <= last index
    membership: Membership  # as of `applied`


@dataclass(frozen=True, slots=True)
class Save:
    """One transaction of the store."""

    hard_state: HardState | None = None  # None: unchanged
    entries: tuple[Entry, ...] = ()  # replace whatever the log has from the index of the first of them on
    committed: tuple[
        Entry, ...
    ] = ()  # to apply, in order, after `entries` are in the log; the next after `applied`
    membership: Membership | None = None  # as of the last of `committed`, where they change it


class LogStore(Protocol):
    """Each call is durable when it returns, and atomic: after a crash all of it is there, or nothing."""

    def load(self) -> Stored: ...

    def save(self, save: Save) -> object:
        """Raises Fault if it can't be known what the disk holds; any other error has changed nothing."""
        ...

    def compact(self, index: Index) -> None:
        """Forgets the entries up to this index, which are applied. The mark of `load` becomes (index, its term)."""
        ...

    def make_snapshot(self) -> SnapshotMark:
        """Keeps the state as of `applied` for readers; there is one such at a time. The log stays as it is."""
        ...

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        """A part of that snapshot, and whether it is the last; None: that snapshot isn't kept any more."""
        ...

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        """A part of another member's snapshot, in order; offset 0 begins anew. Not durable: install() is."""
        ...

    def install(self, mark: SnapshotMark, hard_state: HardState) -> object:
        """The parts that were kept are all of it: they become the state, the log is empty and begins after mark."""
        ...
