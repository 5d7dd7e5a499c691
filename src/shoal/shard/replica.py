"""One instance in its replicaset: told what has happened, it says what is to be done.

Here: Replica, which is the master or another member, as its catalog says; Ready, what it wants done.
Not here: doing it (node/, sim/shard_member.py), what the roles do (master.py, member.py). No clock, no chance: times come in,
on a clock that goes on while the machine is suspended, and so does a number for the run of the process.

The contract with whoever drives it, one Ready at a time:

    replica.step(envelope, now_us)  # or tick(), configured(), begin_group(), ran(), …
    send(replica.take_messages())  # these depend on nothing that isn't on the disk yet
    for number, verdict in replica.take_answers(now_us): ...  # these leave at once, or are asked for again
    if (ready := replica.take_ready()) is not None:
        commit or roll back the open group, as ready.end says
        keep ready.chunks, install ready.install, store.save(ready.save)  # in this order, durable
        replica.advance(ready, now_us)  # or commit_failed()
        send(ready.messages)  # they speak of what has just been saved
        replica.applied(store.apply(ready.apply_to), now_us)  # after them: nobody waits for it

`now_us` is the time of that very call: an answer's leaving is decided by it. Between take_ready() and advance()
everything but take_ready() may be called. A save that fails without having changed anything is tried again;
unable() tells, so that another member can be made the master.

A statement that reads: `version = replica.stands(now_us)` before it begins, and when its answer leaves
`replica.stands(now_us) == version`; otherwise the answer waits, or is thrown away.

| it says | the shell |
|---|---|
| `index_wanted` is a new number | asks Raft for a read index, and when the catalog has it applied, calls index_applied(number) |
| `wish` | proposes that change of the catalog; whatever comes of it, it calls configured() when one is applied |
| `report` | tells the governor |
| `wants_snapshot` | makes one, and calls snapshot_made() |
| take_log_reads(), take_chunk_reads() | reads, and gives them back by has_read(), has_read_chunk() |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from shoal.shard.config import Change, Config, Report, raised
from shoal.shard.master import ChunkRead, GroupNumber, LogRead, Master, Verdict
from shoal.shard.member import KeptChunk, Member
from shoal.shard.messages import (
    Ack,
    Announce,
    Append,
    Chunk,
    Envelope,
    FetchChunk,
    LogEntry,
    Offer,
    Refused,
    Release,
    SnapshotMark,
)
from shoal.shard.own import Limits, Own
from shoal.shard.positions import ConfigVersion, Lsn, MemberId, Position
from shoal.shard.store import Save, Stored


class End(Enum):
    """Of the open group."""

    COMMIT = "commit"
    ROLL_BACK = "roll back"


@dataclass(frozen=True, slots=True)
class Ready:
    end: End | None = None
    last: Lsn | None = None  # of the group that commits, if it has changed anything
    chunks: tuple[KeptChunk, ...] = ()
    install: SnapshotMark | None = None
    save: Save | None = None
    messages: tuple[Envelope, ...] = ()
    apply_to: Lsn | None = None


class Replica:
    def __init__(self, id: MemberId, stored: Stored, limits: Limits, *, now_us: int, run: int) -> None:
        """`run`: drawn by chance out of many, for each run of the process."""
        self._own = Own(id, stored, limits, now_us, run)
        self._member = Member(self._own)
        self.master: Master | None = None  # None: it isn't the master, or doesn't know, or can't be it yet
        self.config: Config | None = None
        self.index_wanted = 0
        self._index_has = 0  # the number of the last one that came
        self._newest_seen = ConfigVersion(0)  # that another member has acted in
        self._is_unable = False
        self._rolls_back = False
        self._taken: Ready | None = None
        self._answers: list[tuple[GroupNumber, Verdict]] = []
        self._groups: GroupNumber = 0

    # --- what the shell asks ---------------------------------------------------------------------

    @property
    def id(self) -> MemberId:
        return self._own.id

    @property
    def acted(self) -> ConfigVersion:
        return self._own.acted

    @property
    def position(self) -> Position:
        """What the governor compares."""
        return self._own.log.position

    @property
    def commit(self) -> Lsn:
        return self._own.commit

    @property
    def first(self) -> Lsn:
        """The log's first entry that isn't forgotten, nor in a snapshot that is being installed."""
        return self._own.log.first

    @property
    def wish(self) -> Change | None:
        config = self.config
        if self.master is not None:
            return self.master.wish
        if config is None or config.master != self.id or self._newest_seen > config.version:
            return None
        if config.version <= self._own.acted:
            return raised(config, f"{self.id} begins anew")
        return None

    @property
    def report(self) -> Report | None:
        if self._is_unable and self.config is not None and self.config.master == self.id:
            return Report(version=self.config.version, silent=frozenset(), unable=True)
        return self.master.report if self.master is not None else None

    @property
    def wants_snapshot(self) -> bool:
        return self.master is not None and self.master.wants_snapshot

    def stands(self, now_us: int) -> ConfigVersion | None:
        """The mastership in which an answer may leave now. It is the same one as long as nobody else has served."""
        master = self.master
        return master.version if master is not None and master.stands(now_us) else None

    def fresh_us(self, now_us: int) -> int | None:
        """For reads on a member that isn't the master: what is applied here has all that was answered by then."""
        if now_us >= self._own.contact_us + self._own.limits.contact_us:
            return None
        return self._member.fresh_us

    def needs_from(self, now_us: int) -> Lsn:
        """The log's entries before this one may be forgotten: all is applied, and no member is being sent them. A shell
        that has room for no more may forget more: a member that needs it then gets a snapshot."""
        if self.master is None:
            return Lsn(self._own.log.applied + 1)
        return self.master.needs_from(now_us)

    def take_messages(self) -> list[Envelope]:
        """To be sent now."""
        messages, self._own.at_once = self._own.at_once, []
        return messages

    def take_answers(self, now_us: int) -> list[tuple[GroupNumber, Verdict]]:
        """What may be told now to those who wait for these groups."""
        answers, self._answers = self._answers, []
        if self.master is not None:
            answers += [(number, Verdict.COMMITTED) for number in self.master.take_committed(now_us)]
        return answers

    def take_log_reads(self) -> list[LogRead]:
        if self.master is None:
            return []
        reads, self.master.log_reads = self.master.log_reads, []
        return reads

    def take_chunk_reads(self) -> list[ChunkRead]:
        if self.master is None:
            return []
        reads, self.master.chunk_reads = self.master.chunk_reads, []
        return reads

    def take_ready(self) -> Ready | None:
        """What is to be made durable, and what to do then; None if there is nothing."""
        assert self._taken is None, "the last one was not advanced"
        self._taken = self._ready()
        return self._taken

    def _ready(self) -> Ready | None:
        own, member, master = self._own, self._member, self.master
        if self._rolls_back:
            return Ready(End.ROLL_BACK)
        if master is not None and master.group is not None:
            # The group's transaction is open: nothing else can be saved meanwhile.
            return Ready(End.COMMIT, master.commit()) if master.may_commit else None
        save: Save | None = None
        if own.acted != own.saved_acted or own.log.is_unsaved:
            save = own.log.take(own.acted if own.acted != own.saved_acted else None)
        apply_to = own.commit if own.commit > own.log.applying else None
        install, chunks, messages = member.install, tuple(member.chunks), tuple(own.after_save)
        if save is None and apply_to is None and install is None and not chunks and not messages:
            return None
        member.install = None
        member.chunks.clear()
        own.after_save.clear()
        if apply_to is not None:
            own.log.apply(apply_to)
        return Ready(None, None, chunks, install, save, messages, apply_to)

    def advance(self, ready: Ready, now_us: int) -> None:
        """All of it is done, but for the messages and what is to be applied."""
        assert self._taken is ready
        self._taken = None
        own = self._own
        if ready.end is End.ROLL_BACK:
            self._rolls_back = False
        elif ready.end is End.COMMIT:
            if ready.last is not None:
                own.log.written(ready.last)
                # Only now others may apply it: it is on the disk of whoever may be asked for it.
                own.committed(ready.last)
            if self.master is not None:
                self.master.committed()
        if ready.install is not None:
            own.installing = False
            self._member.was_applied()
        if ready.save is not None:
            own.log.was_saved()
            if ready.save.acted is not None:
                own.saved_acted = ready.save.acted
            self._is_unable = False
        if self.master is not None and own.saved_acted >= self.master.version:
            self.master.recorded(now_us)
            self.master.something_was_done(now_us)
        self._begin(now_us)

    def commit_failed(self, ready: Ready, now_us: int) -> None:
        """Instead of advance(): the group's transaction could not commit, and is rolled back."""
        assert self._taken is ready and ready.end is End.COMMIT
        self._taken = None
        if ready.last is not None:
            self._own.log.not_written()
            self._own.after_save.clear()
        if self.master is not None:
            self._end_mastership(rolled_back=True)
        self._begin(now_us)

    def unable(self) -> None:
        """The disk refuses what is to be saved, and the shell goes on trying."""
        self._is_unable = True

    def applied(self, lsn: Lsn, now_us: int) -> None:
        """The tables have what the entries up to there did."""
        self._own.log.was_applied(lsn)
        self._member.was_applied()
        if self.master is not None:
            self.master.something_was_done(now_us)

    # --- what the shell tells --------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Often enough: a few times in a beat."""
        if self.master is not None:
            self.master.tick(now_us)

    def contact(self, now_us: int) -> None:
        """The instance is connected to a majority of the cluster, as of then."""
        self._own.contact_us = max(self._own.contact_us, now_us)

    def configured(self, config: Config, now_us: int) -> None:
        """The catalog has applied this, or had it at the start. Versions may be skipped."""
        before = self.config
        if before is not None and config.version < before.version:
            return
        self.config = config
        master = self.master
        if master is not None:
            if config.master != self.id or config.version > master.config.version + 1:
                self._end_mastership()
            else:
                master.reconfigured(config, now_us)
        if config.master == self.id and self.master is None:
            if before is None or before.version != config.version:
                self.index_wanted += 1
        self._begin(now_us)

    def index_applied(self, number: int, now_us: int) -> None:
        """A read index that was asked for after `index_wanted` became this number is applied."""
        self._index_has = max(self._index_has, number)
        self._begin(now_us)

    def _begin(self, now_us: int) -> None:
        """A mastership, if all is there for it."""
        own, config = self._own, self.config
        if (
            config is None
            or config.master != self.id
            or self.master is not None
            or config.version <= own.acted
            or self._index_has < self.index_wanted
            or self._taken is not None
            or self._rolls_back
            or own.installing
        ):
            return
        self.master = Master(own, config, now_us, self._groups)

    def _end_mastership(self, *, rolled_back: bool = False) -> None:
        master = self.master
        assert master is not None
        self._answers += master.end()
        self._groups = master.last_number
        if master.group is not None and not rolled_back:
            committing = self._taken is not None and self._taken.end is End.COMMIT
            self._rolls_back = not committing
        self.master = None

    def begin_group(self, now_us: int) -> GroupNumber | None:
        """A transaction is to be opened; None: not now. It ends by a Ready, or by gave_up()."""
        if self.master is None or self._taken is not None or self._own.is_unsaved:
            return None
        return self.master.begin_group(now_us)

    def ran(self, number: GroupNumber, entries: Sequence[LogEntry], now_us: int) -> None:
        """The group's statements have run; these are its entries, not on the disk yet."""
        if self.master is not None:
            self.master.ran(number, entries, now_us)

    def gave_up(self, number: GroupNumber) -> None:
        """The group has come to nothing before its entries were known, and its transaction is rolled back."""
        if self.master is not None:
            self.master.gave_up(number)
        else:
            self._rolls_back = False

    def unreachable(self, member: MemberId, now_us: int) -> None:
        """Its process is gone, as far as can be seen: connecting to it is refused."""
        if self.master is not None:
            self.master.unreachable(member, now_us)

    def trimmed(self, first: Lsn) -> None:
        """The store has forgotten the entries before this one."""
        self._own.log.trimmed(first, self._own.limits.masterships_max)

    def has_read(self, read: LogRead, entries: Sequence[LogEntry], now_us: int) -> None:
        if self.master is not None:
            self.master.has_read(read, entries, now_us)

    def has_read_chunk(self, read: ChunkRead, found: tuple[bytes, bool] | None, now_us: int) -> None:
        if self.master is not None:
            self.master.has_read_chunk(read, found, now_us)

    def snapshot_made(self, mark: SnapshotMark) -> None:
        if self.master is not None:
            self.master.snapshot_made(mark)

    def step(self, envelope: Envelope, now_us: int) -> None:
        """A message has come."""
        sender, message = envelope.sender, envelope.message
        match message:
            case Announce() | Append() | Offer() | Chunk():
                self._from_master(sender, message, now_us)
            case Release(version):
                self._own.promises.release(version)
            case Refused(acted):
                self._newest_seen = max(self._newest_seen, acted)
                if self.master is not None and acted > self.master.version:
                    self._end_mastership()
            case Ack() if self.master is not None:
                self.master.on_ack(sender, message, now_us)
            case FetchChunk() if self.master is not None:
                self.master.on_fetch(sender, message, now_us)
            case _:
                pass  # an answer that came late

    def _from_master(self, sender: MemberId, message: Announce | Append | Offer | Chunk, now_us: int) -> None:
        if self.master is not None:
            if message.version == self._own.acted:
                return  # it can't be: this is the master
            if message.version > self._own.acted:
                self._end_mastership()
        if not self._member.follows(sender, message.version, now_us):
            return
        match message:
            case Announce():
                self._member.on_announce(sender, message, now_us)
            case Append():
                self._member.on_append(sender, message, now_us)
            case Offer():
                self._member.on_offer(sender, message, now_us)
            case Chunk():
                self._member.on_chunk(sender, message, now_us)
