"""A mastership: one instance accepts writes, from one config version on until somebody else does.

Here: Master: its start, the life of a group, the lease, letting members in, telling who is silent, handing over.
Not here: what the others do (member.py), the catalog's side (config.py), when a mastership begins (replica.py).

    RECORDING   (version, first lsn) goes to the disk
    MATCHING    its tail, which an earlier master may have left, is being acknowledged by all required members
    APPLYING    … and is committed by that, and applied
    SERVING     groups run, reads are answered

**Required** are the members of in_sync, as this instance has applied it, and the one that is being let in. They
are the same for everything: a commit needs their acknowledgements, and an answer their promises.

**A group** is one transaction: begin_group(), its statements run, ran() ships its entries, all required acknowledge
them, it commits, the commit point moves, and its answers leave while the lease stands. Statements that come meanwhile
are the next group. Once shipped, a group either commits, or its outcome is unknown and the mastership ends: somebody
may have its entries, and their names must not be given to others.

**Letting in**: a member that has nearly everything is required first. When it has everything, and all that commits from now
on needs it, the catalog may say so. Having asked, this master goes on requiring it until it applies a version that
settles the question; if the member falls silent, it asks for a version that only raises the number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from shoal.shard.config import Change, Config, Report, admitted, handed_over, raised
from shoal.shard.follower import Follower, State, size_of
from shoal.shard.lease import Lease
from shoal.shard.messages import (
    Ack,
    Announce,
    Append,
    Chunk,
    FetchChunk,
    LogEntry,
    Offer,
    Release,
    SnapshotMark,
)
from shoal.shard.own import Own
from shoal.shard.positions import ConfigVersion, Lsn, MemberId


class Phase(Enum):
    RECORDING = "recording"
    MATCHING = "matching"
    APPLYING = "applying"
    SERVING = "serving"


class Progress(Enum):
    """Of a group."""

    RUNNING = "running"
    SHIPPED = "shipped"
    COMMITTING = "committing"


class Verdict(Enum):
    """What a group's clients may be told."""

    COMMITTED = "committed"  # what its statements have answered, errors too
    NOTHING = "nothing"  # nothing of it has happened, nor will; another member is to be asked
    UNKNOWN = "unknown"  # it may have happened, or happen yet


GroupNumber: TypeAlias = int


@dataclass(slots=True)
class Group:
    number: GroupNumber
    progress: Progress = Progress.RUNNING
    last: Lsn | None = None  # where the log ends with it; None: it is running
    is_empty: bool = False  # it has changed nothing


@dataclass(frozen=True, slots=True)
class LogRead:
    """Entries are to be read from the store, and given to has_read()."""

    version: ConfigVersion
    member: MemberId
    first: Lsn
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """A part of a snapshot is wanted: answer with has_read_chunk()."""

    version: ConfigVersion
    member: MemberId
    lsn: Lsn
    offset: int


class Master:
    def __init__(self, own: Own, config: Config, now_us: int, number: GroupNumber) -> None:
        self._own = own
        self._limits = own.limits
        self.version = config.version
        self.config = config
        self.phase = Phase.RECORDING
        self.lease = Lease(own.limits.lease_us, own.limits.drift)
        self.followers: dict[MemberId, Follower] = {}
        self.required: tuple[MemberId, ...] = ()
        self.pending: MemberId | None = None  # is being let in
        self._asked = False  # … the catalog was asked to, and may do it until the version is another
        self._giving_up = False
        self.wish: Change | None = None  # what the catalog is asked for
        self.report: Report | None = None  # what the governor is to know
        self.group: Group | None = None
        self._number = number  # of the last group
        self._committed: deque[GroupNumber] = deque()  # their answers haven't left
        self._holding_since_us: int | None = None  # writes are held back: another one is to be the master
        self._held_until_us = 0  # … and it came to nothing
        self._recent: deque[LogEntry] = deque()  # the log's end, the open group's entries too
        self._recent_bytes = 0
        self.log_reads: list[LogRead] = []
        self.chunk_reads: list[ChunkRead] = []
        self.wants_snapshot = False
        self._snapshot: SnapshotMark | None = None  # that the shell keeps, to be offered
        self._beat_us = now_us  # when the next heartbeat is due
        own.act_in(self.version)
        own.log.begin(self.version)
        self.tail = own.log.last  # so far others have written
        self._set_members(now_us)

    # --- what it is asked ------------------------------------------------------------------------

    def serves(self, now_us: int) -> bool:
        """May groups be begun?"""
        return self.phase is Phase.SERVING and self._own.promises.until_us <= now_us

    def stands(self, now_us: int) -> bool:
        """May an answer leave, now? Nobody else has served since this mastership began to."""
        until_us = min(self.lease.until_us(self.required), self._own.contact_us + self._limits.contact_us)
        return self.serves(now_us) and now_us < until_us

    def begin_group(self, now_us: int) -> GroupNumber | None:
        if not self.serves(now_us) or self.group is not None or self._holding_since_us is not None:
            return None
        self._number += 1
        self.group = Group(self._number)
        return self._number

    @property
    def last_number(self) -> GroupNumber:
        return self._number

    @property
    def _last_shipped(self) -> Lsn:
        group = self.group
        return self._own.log.last if group is None or group.last is None else group.last

    # --- a group ---------------------------------------------------------------------------------

    def ran(self, number: GroupNumber, entries: Sequence[LogEntry], now_us: int) -> None:
        """Its statements have run, and these are its entries."""
        group = self.group
        if group is None or group.number != number or group.progress is not Progress.RUNNING:
            return  # it is being rolled back
        group.progress = Progress.SHIPPED
        group.is_empty = not entries
        last = self._own.log.last
        for entry in entries:
            assert (entry.lsn, entry.version) == (last + 1, self.version), (entry.lsn, entry.version)
            last = entry.lsn
            self._remember(entry)
        group.last = last
        if entries:
            assert not entries[-1].continues, entries[-1]
            for member, follower in self.followers.items():
                if follower.match == entries[0].lsn - 1:
                    follower.moved_us = now_us
                self._send_entries(member, follower, now_us)

    def gave_up(self, number: GroupNumber) -> None:
        """Its statements came to nothing before anything was shipped, and the transaction is rolled back."""
        group = self.group
        if group is not None and group.number == number and group.progress is Progress.RUNNING:
            self.group = None

    @property
    def may_commit(self) -> bool:
        """Has everybody who is required got all of the group?"""
        group = self.group
        if group is None or group.progress is not Progress.SHIPPED:
            return False
        return self._acknowledged >= self._last_shipped

    def commit(self) -> Lsn | None:
        """It is being committed, and can't be taken back. The lsn that the log then ends with; None: as before."""
        group = self.group
        assert group is not None and self.may_commit
        group.progress = Progress.COMMITTING
        if group.is_empty:
            return None
        last = self._last_shipped
        self._own.log.write(last)
        return last

    def committed(self) -> None:
        group = self.group
        assert group is not None and group.progress is Progress.COMMITTING
        self._committed.append(group.number)
        self.group = None

    def take_committed(self, now_us: int) -> list[GroupNumber]:
        """Whose answers leave now."""
        if not self._committed or not self.stands(now_us):
            return []
        numbers = list(self._committed)
        self._committed.clear()
        return numbers

    def end(self) -> list[tuple[GroupNumber, Verdict]]:
        """It serves no more: what is to be told to whom waits. An open group that isn't being committed is to be rolled
        back by the caller."""
        verdicts = [(number, Verdict.UNKNOWN) for number in self._committed]
        group = self.group
        if group is not None:
            surely_nothing = group.progress is Progress.RUNNING or group.is_empty
            verdicts.append((group.number, Verdict.NOTHING if surely_nothing else Verdict.UNKNOWN))
        for member in self.followers:
            self._own.send_at_once(member, Release(self.version))
        return verdicts

    @property
    def _acknowledged(self) -> Lsn:
        return min((self.followers[member].match for member in self.required), default=self._last_shipped)

    # --- its start -------------------------------------------------------------------------------

    def recorded(self, now_us: int) -> None:
        if self.phase is Phase.RECORDING:
            self.phase = Phase.MATCHING
            self._beat(now_us)
            self._advance(now_us)

    def _advance(self, now_us: int) -> None:
        """Something may have become true."""
        if self.phase is Phase.MATCHING and self._acknowledged >= self.tail:
            # Whoever may become master has it now, so it can't vanish any more.
            self._own.committed(self.tail)
            self.phase = Phase.APPLYING
        if self.phase is Phase.APPLYING and self._own.log.applied >= self.tail:
            self.phase = Phase.SERVING
        self._consider(now_us)

    def something_was_done(self, now_us: int) -> None:
        """Saved, or applied."""
        self._advance(now_us)

    # --- the catalog -----------------------------------------------------------------------------

    def reconfigured(self, config: Config, now_us: int) -> None:
        """The same master in the next version; or the same version, and other members or another target."""
        if config.version != self.config.version:
            # Whatever was asked for on the version before has happened by now, or never will.
            self.pending = None
            self._asked = self._giving_up = False
            self._own.act_in(config.version)
        self.config = config
        self._set_members(now_us)
        self._advance(now_us)

    def _set_members(self, now_us: int) -> None:
        own, config = self._own, self.config
        wanted = {*config.members, *config.in_sync}
        if self._asked and self.pending is not None:
            wanted.add(self.pending)
        wanted.discard(own.id)
        for member in [member for member in self.followers if member not in wanted]:
            del self.followers[member]
        for member in sorted(wanted):
            if member not in self.followers:
                self.followers[member] = Follower(now_us, moved_us=now_us)
        if self.pending not in self.followers and not self._asked:
            self.pending = None
        self._require()

    def _require(self) -> None:
        required = {*self.config.in_sync}
        if self.pending is not None:
            required.add(self.pending)
        required.discard(self._own.id)
        self.required = tuple(sorted(required))

    def _consider(self, now_us: int) -> None:
        """What to ask for, and what to report."""
        self._report(now_us)
        self.wish = None
        # Whoever is let in has promised nothing to the master before this one: nobody is, as long as that might serve.
        if not self.serves(now_us):
            return
        if self.pending is None:
            self._look_for_somebody(now_us)
        self._hold(now_us)
        if self._own.saved_acted < self.config.version:
            return  # a next run of this process must know that something may have been asked for in this version
        if self.pending is not None:
            if self._giving_up:
                self.wish = raised(self.config, f"{self.pending} isn't let in after all")
            elif self.followers[self.pending].match >= self._own.log.last:  # what is being committed, too
                self.wish = admitted(self.config, self.pending)
                self._asked = True
        elif self._holding_since_us is not None and self.group is None and not self._committed:
            self.wish = handed_over(self.config, self.config.target)

    def _look_for_somebody(self, now_us: int) -> None:
        for member, follower in self.followers.items():
            if (
                member not in self.config.in_sync
                and follower.state is State.APPENDING
                and follower.match + self._limits.admit_lag > self._own.commit
                and self.lease.until_us((member,)) > now_us
                and not self._is_silent(follower, now_us)
            ):
                self.pending = member
                self._require()
                return

    def _is_silent(self, follower: Follower, now_us: int) -> bool:
        if now_us - follower.heard_us > self._limits.silent_us:
            return True
        return follower.match < self._last_shipped and now_us - follower.moved_us > self._limits.stuck_us

    def _report(self, now_us: int) -> None:
        silent = frozenset(m for m in self.required if self._is_silent(self.followers[m], now_us))
        self.report = Report(version=self.config.version, silent=silent) if silent else None
        if self.pending in silent:
            if self._asked:
                self._giving_up = True
            else:
                self.pending = None
                self._require()

    def _hold(self, now_us: int) -> None:
        """Nothing is under way when another one becomes the master, so nothing is lost by it."""
        target = self.config.target
        wanted = (
            target != self._own.id
            and target in self.config.in_sync
            and self.pending is None
            and self.lease.until_us((target,)) > now_us
        )
        if self._holding_since_us is not None:
            if not wanted:
                self._holding_since_us = None
            elif now_us - self._holding_since_us > self._limits.hand_over_us:
                self._holding_since_us = None
                self._held_until_us = now_us + 2 * self._limits.hand_over_us
        elif wanted and now_us >= self._held_until_us:
            self._holding_since_us = now_us

    # --- the others' messages --------------------------------------------------------------------

    def on_ack(self, sender: MemberId, message: Ack, now_us: int) -> None:
        follower = self._heard(sender, message.version, message.echo_us, now_us)
        if follower is None:
            return
        follower.number = message.number
        if message.lost:
            if follower.state is not State.SNAPSHOT:
                self._offer(sender, follower, now_us)
        elif message.matched is None:
            if follower.state is State.APPENDING:
                follower.unmatched()
            self._announce(sender, follower, now_us)
        else:
            follower.matched(message.matched, now_us)
            if message.gap and message.echo_us > follower.rewound_us:
                follower.rewind(message.matched, now_us)
            self._send_entries(sender, follower, now_us)
        self._advance(now_us)

    def on_fetch(self, sender: MemberId, message: FetchChunk, now_us: int) -> None:
        follower = self._heard(sender, message.version, message.echo_us, now_us)
        if follower is None:
            return
        follower.asked_us = now_us
        if self._snapshot is not None and self._snapshot.lsn == message.lsn:
            self.chunk_reads.append(ChunkRead(self.version, sender, message.lsn, message.offset))
        else:
            self._own.send_at_once(
                sender, Chunk(self.version, now_us, message.lsn, message.offset, b"", last=False, gone=True)
            )
        self._advance(now_us)

    def _heard(self, sender: MemberId, version: ConfigVersion, echo_us: int, now_us: int) -> Follower | None:
        """What was said to an earlier mastership counts for nothing."""
        follower = self.followers.get(sender)
        if version != self.version or follower is None:
            return None
        self.lease.promised(sender, echo_us)
        follower.heard_us = now_us
        return follower

    def unreachable(self, member: MemberId, now_us: int) -> None:
        """Its process is known to be gone: it need not be waited for to be reported."""
        follower = self.followers.get(member)
        if follower is not None:
            follower.heard_us = min(follower.heard_us, now_us - self._limits.silent_us - 1)
            self._consider(now_us)

    # --- sending ---------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        if self.phase is Phase.RECORDING:
            return
        if now_us >= self._beat_us:
            self._beat(now_us)
        self._consider(now_us)

    def _beat(self, now_us: int) -> None:
        self._beat_us = now_us + self._limits.beat_us
        for member, follower in self.followers.items():
            match follower.state:
                case State.UNMATCHED:
                    self._announce(member, follower, now_us)
                case State.APPENDING:
                    self._send(member, follower, (), now_us)
                    self._send_entries(member, follower, now_us)
                case State.SNAPSHOT:
                    if now_us - follower.asked_us > 2 * self._limits.beat_us:
                        self._offer(member, follower, now_us)
                    else:
                        self._send(member, follower, (), now_us)

    def _announce(self, member: MemberId, follower: Follower, now_us: int) -> None:
        if (
            follower.state is not State.UNMATCHED
            or now_us - follower.announced_us < self._limits.beat_us // 2
        ):
            return
        follower.announced_us = now_us
        self._own.send_at_once(
            member, Announce(self.version, now_us, self._own.log.history, self._last_shipped)
        )

    def _send_entries(self, member: MemberId, follower: Follower, now_us: int) -> None:
        """All that it lacks, as far as the window allows."""
        if follower.state is not State.APPENDING:
            return
        limits, last = self._limits, self._last_shipped
        while follower.next <= last and not follower.reading:
            if not follower.has_room(limits.inflight_bytes):
                return
            if follower.next < self._own.log.first:
                self._offer(member, follower, now_us)
                return
            entries = self._recent_from(follower.next)
            if not entries:
                follower.reading = True
                self.log_reads.append(LogRead(self.version, member, follower.next, limits.append_bytes))
                return
            self._send(member, follower, entries, now_us)

    def _send(self, member: MemberId, follower: Follower, entries: tuple[LogEntry, ...], now_us: int) -> None:
        heard = follower.number if self.stands(now_us) else None
        after = Lsn(follower.next - 1)
        self._own.send_at_once(member, Append(self.version, now_us, after, entries, self._own.commit, heard))
        if entries:
            follower.sent(entries)

    def has_read(self, read: LogRead, entries: Sequence[LogEntry], now_us: int) -> None:
        follower = self.followers.get(read.member)
        if read.version != self.version or follower is None:
            return
        follower.reading = False
        if follower.state is State.APPENDING and entries and entries[0].lsn == follower.next:
            self._send(read.member, follower, tuple(entries), now_us)
        self._send_entries(read.member, follower, now_us)

    def _remember(self, entry: LogEntry) -> None:
        self._recent.append(entry)
        self._recent_bytes += size_of(entry)
        # The open group's entries are nowhere else.
        while self._recent_bytes > self._limits.recent_bytes and self._recent[0].lsn <= self._own.log.saved:
            self._recent_bytes -= size_of(self._recent.popleft())

    def _recent_from(self, first: Lsn) -> tuple[LogEntry, ...]:
        if not self._recent or first < self._recent[0].lsn:
            return ()
        found: list[LogEntry] = []
        room = self._limits.append_bytes
        for at in range(first - self._recent[0].lsn, len(self._recent)):
            entry = self._recent[at]
            room -= size_of(entry)
            if room < 0 and found:
                break
            found.append(entry)
        return tuple(found)

    # --- snapshots -------------------------------------------------------------------------------

    def _offer(self, member: MemberId, follower: Follower, now_us: int) -> None:
        mark = self._snapshot
        if mark is None or mark.lsn + 1 < self._own.log.first:
            self.wants_snapshot = True
            if follower.state is State.APPENDING:
                follower.unmatched()
            return
        follower.offer(mark.lsn, now_us)
        self._own.send_at_once(member, Offer(self.version, now_us, mark))

    def snapshot_made(self, mark: SnapshotMark) -> None:
        self.wants_snapshot = False
        self._snapshot = mark

    def has_read_chunk(self, read: ChunkRead, found: tuple[bytes, bool] | None, now_us: int) -> None:
        if read.version != self.version:
            return
        data, last = found or (b"", False)
        gone = found is None
        if gone and self._snapshot is not None and self._snapshot.lsn == read.lsn:
            self._snapshot = None
        self._own.send_at_once(
            read.member, Chunk(self.version, now_us, read.lsn, read.offset, data, last, gone)
        )

    def needs_from(self, now_us: int) -> Lsn:
        """The log is still wanted from there on, by members that answer."""
        wanted = self._own.log.applied
        snapshot = self._snapshot.lsn if self._snapshot is not None else wanted
        for follower in self.followers.values():
            if now_us - follower.heard_us <= self._limits.silent_us:
                wanted = min(wanted, follower.match if follower.state is State.APPENDING else snapshot)
        return Lsn(wanted + 1)
