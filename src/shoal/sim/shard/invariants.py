"""What must hold after every step, whatever has happened to a replicaset.

Here: Invariants: the one history of the replicaset, what clients were told, and the checks against both.
Not here: whether anything gets done (cluster.py, after everything has healed).

| invariant | checked when |
|---|---|
| there is one history: whatever is committed or applied anywhere is its beginning, or its next entry | a group commits, a tail is committed, entries are applied, a snapshot is installed |
| no (config version, lsn) names two entries | entries are written to a disk |
| an answered write is in the history; one of which "nothing happened" was said never is | an answer leaves, an entry is committed |
| no value is written twice | an entry is committed |
| a read sees what is committed, and all that was answered to anybody before it was asked | an answer leaves |
| a read on another member sees all that was answered before the time that it states | … |
| two members never both serve | after every step |
| in_sync is never empty, has the master, and only its members become master | the catalog changes |
| with `promises`: each of in_sync has all that is committed on its disk; what is told to others is on the disk | something commits, the catalog changes, a log is cut, messages leave |

The last line isn't needed to find a bug, but finds it where it is made, instead of where it hurts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from shoal.shard.config import Config
from shoal.shard.master import Phase
from shoal.shard.messages import Ack, Envelope, LogEntry, SnapshotMark
from shoal.shard.positions import ConfigVersion, Lsn
from shoal.shard.store import Save
from shoal.sim.shard.disk import Key, Value, decode_writes

if TYPE_CHECKING:
    from shoal.sim.shard.cluster import Cluster
    from shoal.sim.shard.member import Member


class Violation(AssertionError):
    """An invariant doesn't hold: a bug of the core, or of the simulation."""


class Invariants:
    def __init__(self, cluster: Cluster, *, promises: bool = True) -> None:
        self._cluster = cluster
        self._promises = promises
        self.history: list[LogEntry] = []  # the entry with lsn n is at n - 1
        self.tables: dict[Key, Value] = {}  # after all of it
        self._names: dict[tuple[ConfigVersion, Lsn], int] = {}
        self._order: dict[Key, list[Value]] = {}  # the values that a row had, one after another; first None
        self._place: dict[Value, int] = {}  # where a value is in that
        self._never: set[Value] = set()  # of these it was said that nothing has happened
        self._floor: dict[Key, int] = {}  # so far a row's values were told to somebody
        self._floors: dict[Key, tuple[list[int], list[int]]] = {}  # when it rose, and to what
        self.commit_snapshots = 0

    # --- the history -----------------------------------------------------------------------------

    @property
    def committed(self) -> Lsn:
        return Lsn(len(self.history))

    def _extend(self, entry: LogEntry) -> None:
        self.history.append(entry)
        for key, value in decode_writes(entry.payload):
            order = self._order.setdefault(key, [None])
            if value is not None:
                if value in self._place:
                    raise Violation(f"{value} is written twice")
                if value in self._never:
                    raise Violation(f"{value} is written, and it was said that nothing had happened")
                self._place[value] = len(order)
            order.append(value)
            self.tables[key] = value

    def _agree(self, who: str, entry: LogEntry, *, may_extend: bool) -> bool:
        """Is it new?"""
        at = entry.lsn - 1
        if at < len(self.history):
            ours = self.history[at]
            if ours is not entry and ours != entry:
                raise Violation(f"{who} {_named(entry)}, where {_named(ours)} was committed before")
            return False
        if not may_extend:
            raise Violation(f"{who} {_named(entry)}, which is not committed")
        if at > len(self.history):
            raise Violation(f"{who} {_named(entry)}, and lacks what is before it")
        self._extend(entry)
        return True

    def group_committed(self, member: Member, entries: Sequence[LogEntry]) -> None:
        """Its commit is on the master's own disk."""
        for entry in entries:
            self._check_name(member, entry)
        if entries:
            log = member.disk
            before = log.entry(Lsn(entries[0].lsn - 1))
            if before is not None:
                self._agree(f"{member.id} commits behind", before, may_extend=False)
            for entry in entries:
                self._agree(f"{member.id} commits", entry, may_extend=True)
            self._check_in_sync(self._cluster.catalog.config)

    def after_step(self, member: Member) -> None:
        """The commit point may have moved, with a tail or by what a master says; or it may have begun to serve."""
        replica = member.replica
        assert replica is not None
        if replica.master is not None:
            self._check_alone(member)
        commit = replica.commit
        if commit <= member.seen_commit:
            return
        first = max(member.seen_commit + 1, member.disk.first, replica.first)
        member.seen_commit = commit
        master = replica.master
        is_tail = (
            master is not None and master.phase in (Phase.APPLYING, Phase.SERVING) and commit == master.tail
        )
        for lsn in range(first, commit + 1):
            entry = member.disk.entry(Lsn(lsn))
            if entry is None:
                break  # it is being saved
            self._agree(f"{member.id} takes as committed", entry, may_extend=is_tail)
        if is_tail:
            self._check_in_sync(self._cluster.catalog.config)

    def applied(self, member: Member, first: Lsn, last: Lsn) -> None:
        for lsn in range(first, last + 1):
            entry = member.disk.entry(Lsn(lsn))
            assert entry is not None
            self._agree(f"{member.id} applies", entry, may_extend=False)

    def installed(self, member: Member, mark: SnapshotMark) -> None:
        self.commit_snapshots += 1
        if mark.lsn > self.committed:
            raise Violation(f"{member.id} installs a snapshot at {mark.lsn}, committed is {self.committed}")
        self._check_tables(member, mark.lsn)
        if mark.lsn and mark.history.version_at(mark.lsn) != self.history[mark.lsn - 1].version:
            raise Violation(f"{member.id} installs {mark}, {self.history[mark.lsn - 1].version} is there")

    def _check_tables(self, member: Member, lsn: Lsn) -> None:
        tables: dict[Key, Value] = {}
        for entry in self.history[:lsn]:
            tables.update(decode_writes(entry.payload))
        if member.disk.tables != {key: value for key, value in tables.items() if value is not None}:
            raise Violation(f"the tables of {member.id} at {lsn} aren't what the history makes of them")

    def crashed(self, member: Member) -> None:
        self._check_tables(member, member.disk.applied)

    # --- the disk --------------------------------------------------------------------------------

    def saved(self, member: Member, save: Save) -> None:
        for entry in save.entries:
            self._check_name(member, entry)
        if self._promises and save.cut is not None and save.cut < self.committed:
            if member.id in self._cluster.catalog.config.in_sync and member.disk.last < self.committed:
                raise Violation(
                    f"{member.id} cuts its log at {save.cut}, and is in_sync; committed is {self.committed}"
                )

    def _check_name(self, member: Member, entry: LogEntry) -> None:
        name = (entry.version, entry.lsn)
        content = crc32(entry.payload, entry.continues)
        if self._names.setdefault(name, content) != content:
            raise Violation(f"{member.id} writes {_named(entry)}, and that is the name of another entry")

    def _check_in_sync(self, config: Config) -> None:
        """All that is committed is on the disks of all who may become master."""
        if not self._promises or not self.history:
            return
        last = self.history[-1]
        for id in config.in_sync:
            disk = self._cluster.members[id].disk
            has = disk.history.version_at(last.lsn) if last.lsn <= disk.last else 0
            if has != last.version:
                raise Violation(f"{_named(last)} is committed, and {id}, which is in_sync, doesn't have it")

    # --- messages --------------------------------------------------------------------------------

    def sends(self, member: Member, messages: Sequence[Envelope]) -> None:
        if not self._promises:
            return
        disk = member.disk
        for envelope in messages:
            message = envelope.message
            if isinstance(message, Ack):
                if message.version > disk.acted:
                    raise Violation(
                        f"{member.id} acknowledges in v{message.version}, its disk has {disk.acted}"
                    )
                if (
                    message.matched is not None
                    and message.matched > disk.last
                    and message.version == disk.acted
                ):
                    raise Violation(
                        f"{member.id} acknowledges {message.matched}, its disk ends at {disk.last}"
                    )

    # --- the catalog -----------------------------------------------------------------------------

    def configured(self, before: Config, after: Config) -> None:
        if after.master not in after.in_sync:
            raise Violation(f"{after} is without its master")
        if after.master not in before.in_sync:
            raise Violation(f"{after.master} becomes master, and wasn't in {before}")
        self._check_in_sync(after)

    # --- clients ---------------------------------------------------------------------------------

    def floor(self, key: Key) -> int:
        return self._floor.get(key, 0)

    def _told(self, key: Key, place: int) -> None:
        if place > self._floor.get(key, 0):
            self._floor[key] = place
            times, places = self._floors.setdefault(key, ([], []))
            times.append(self._cluster.now_us)
            places.append(place)

    def _check_alone(self, member: Member) -> None:
        others = [
            other
            for other in self._cluster.members.values()
            if other is not member and other.replica is not None and other.replica.master is not None
        ]
        if others and _serves(member):
            for other in others:
                if _serves(other):
                    raise Violation(f"{member.id} and {other.id} both serve")

    def wrote(self, key: Key, value: Value) -> None:
        """A client is told so."""
        place = self._place.get(value)
        if place is None:
            raise Violation(f"{value} is acknowledged, and not in the history")
        self._told(key, place)

    def nothing_happened(self, value: Value) -> None:
        if value in self._place:
            raise Violation(f"it is said that {value} was not written, and it is in the history")
        self._never.add(value)

    def read(self, who: str, key: Key, value: Value, floor: int) -> None:
        place = self._place_of(who, key, value)
        if place < floor:
            order = self._order[key]
            raise Violation(f"{who} reads {value} from {key}, and {order[floor]} was known before")
        self._told(key, place)

    def stale_read(self, who: str, key: Key, value: Value, as_of_us: int) -> None:
        """It has all that was answered by then."""
        place = self._place_of(who, key, value)
        times, places = self._floors.get(key, ([], []))
        at = bisect_right(times, as_of_us)
        if at and place < places[at - 1]:
            raise Violation(f"{who} reads {value} from {key}, as of {as_of_us}: that is too old")

    def _place_of(self, who: str, key: Key, value: Value) -> int:
        if value is None:
            return 0
        place = self._place.get(value)
        if place is None:
            raise Violation(f"{who} reads {value} from {key}, which isn't committed")
        return place


def _serves(member: Member) -> bool:
    """Might an answer leave now? Whoever stands still looks at the clock again when it goes on."""
    replica = member.replica
    return replica is not None and not member.is_paused and replica.stands(member.clock.now_us()) is not None


def _named(entry: LogEntry) -> str:
    return f"{entry.lsn}@{entry.version}"
