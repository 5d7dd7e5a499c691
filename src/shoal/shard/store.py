"""What a replicaset's member asks of a disk.

Here: ShardStore, what a member finds after a restart, and what it wants saved.
Not here: when to call what (replica.py says it in each Ready). One implementation is SQLite's (storage/shard_log.py), one
the simulation's (sim/shard_disk.py); one conformance suite holds for both.

The log lies in the same store as the tables that its entries change. A member keeps entries before they are
applied; a master writes them in the very transaction that changes the tables, so there they are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from shoal.shard.messages import LogEntry, SnapshotMark
from shoal.shard.positions import ConfigVersion, History, Lsn


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a member finds after a restart."""

    acted: ConfigVersion  # the greatest version that it has ever acted in
    history: History
    first: Lsn  # the log's entries are first … last, without a gap
    last: Lsn  # first - 1 if there are none
    whole: Lsn  # the end of the last transaction in the log: behind it is the beginning of one more
    applied: Lsn  # the tables have what the entries up to here did; always the end of a transaction


NOTHING: Final = Stored(ConfigVersion(0), History(), Lsn(1), Lsn(0), Lsn(0), Lsn(0))


@dataclass(frozen=True, slots=True)
class Save:
    """One transaction of the store. In this order; None is unchanged."""

    acted: ConfigVersion | None = None
    cut: Lsn | None = None  # the entries behind it are removed; none of them is applied
    history: History | None = None
    entries: tuple[LogEntry, ...] = ()  # behind the last one


class ShardStore(Protocol):
    """Each call is atomic: after a crash all of it is there, or nothing. save(), commit() and install() are durable when
    they return; so is, by then, all that was done before. They raise Fault if it can't be known what the disk holds;
    any other error has changed nothing, but for commit(), which leaves it open."""

    def load(self) -> Stored: ...

    def save(self, save: Save) -> None: ...

    def apply(self, to: Lsn) -> Lsn:
        """Does to the tables what the entries up to there say. It may stop earlier, at the end of a transaction, if there is
        much to do, and says how far it came: at least one transaction. After a crash less may be applied, in order."""
        ...

    def entries(self, first: Lsn, max_bytes: int) -> tuple[LogEntry, ...]:
        """From there on, as many as max_bytes allow, but at least one where there is one. Not those of an open group;
        and none if the first is forgotten."""
        ...

    def trim(self, first: Lsn) -> None:
        """Forgets the entries before this one, all of which are applied."""
        ...

    # --- the master's groups ---------------------------------------------------------------------
    #
    # A group is a transaction that stays open while its entries travel. How its statements come to be run is each
    # store's own.

    def prepare(self, version: ConfigVersion) -> tuple[LogEntry, ...]:
        """The group's statements have run: the entries that will be in the log when it commits, or none."""
        ...

    def commit(self) -> None:
        """Its entries are then in the log, and applied."""
        ...

    def rollback(self) -> None: ...

    # --- snapshots -------------------------------------------------------------------------------

    def make_snapshot(self) -> SnapshotMark:
        """Keeps the tables as of `applied` for readers; there is one such at a time. Needs no open group."""
        ...

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        """A part of that snapshot, and whether it is the last; None: that snapshot isn't kept any more."""
        ...

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        """A part of another member's snapshot, in order; offset 0 begins anew. Not durable: install() is."""
        ...

    def install(self, mark: SnapshotMark) -> None:
        """The parts that were kept are all of it: they become the tables, the log is empty and begins behind the mark."""
        ...
