"""One member of a Raft group: what it does about time, messages and proposals.

Here: Node, the protocol of the Raft paper with pre-vote, check-quorum, learners, leadership transfer and read index;
Ready, what it wants done.
Not here: doing it (node/raft_loop.py, sim/member.py). No clock, no chance: ticks come in, `rng` is given.

The contract with whoever drives it, one Ready at a time:

    node.step(envelope)  # or tick(), propose(), …
    send(node.take_messages())  # these depend on nothing that isn't on the disk yet
    if (ready := node.take_ready()) is not None:
        keep ready.chunks, install ready.install, save ready.save  # in this order, durable
        node.advance(ready)
        send(ready.messages)  # they promise what has just been saved

`ready.save` carries the committed entries too: they are applied in the transaction that saves the new ones. Between
take_ready() and advance() everything but take_ready() may be called.

A change of the members takes effect when its entry is applied, so it needs the quorum of the old ones; the next is
refused until then, and nobody campaigns who has one that is committed and not applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from shoal.errors import NotLeader, ProposalDropped
from shoal.raft.log import Log, size_of
from shoal.raft.membership import changed
from shoal.raft.messages import (
    NOBODY,
    Append,
    AppendReply,
    Chunk,
    Entry,
    EntryKind,
    Envelope,
    FetchChunk,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Index,
    Membership,
    MembershipChange,
    Message,
    RaftId,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    SnapshotMark,
    SnapshotOffer,
    Term,
    TimeoutNow,
    VoteReply,
    decode_change,
    encode_change,
)
from shoal.raft.progress import Inflight, Progress, State
from shoal.raft.quorum import VoteResult, committed, vote_result
from shoal.raft.store import Save, Stored


class Chance(Protocol):
    """As much of random.Random as is needed."""

    def randint(self, a: int, b: int) -> int: ...


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in ticks, sizes in bytes."""

    election_ticks: int = 10  # without a leader for so long, or up to twice of it by chance: campaign
    heartbeat_ticks: int = 3
    append_bytes: int = 1 << 20  # of entries in one message
    inflight_messages: int = 256
    inflight_bytes: int = 16 << 20
    apply_bytes: int = 4 << 20  # of entries in one Ready
    unsaved_proposals_bytes: int = 64 << 20  # proposed and not committed; past that proposals are dropped


@dataclass(frozen=True, slots=True)
class KeptChunk:
    mark: SnapshotMark
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Another member wants this part of the snapshot that this one offers: answer it with a Chunk."""

    member: RaftId
    mark: SnapshotMark
    offset: int


@dataclass(frozen=True, slots=True)
class Ready:
    chunks: tuple[KeptChunk, ...]
    install: SnapshotMark | None
    hard_state: HardState  # goes with `install`
    save: Save | None
    messages: tuple[Envelope, ...]


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The request's answer: whoever has applied this index has all that was acknowledged when it was asked."""

    request: int
    index: Index
    term: Term  # of the leader that says so


@dataclass(slots=True)
class _Read:
    sender: RaftId
    request: int
    index: Index
    round: int


@dataclass(slots=True)
class _Fetching:
    """A snapshot on its way here."""

    mark: SnapshotMark
    source: RaftId
    offset: int = 0
    quiet_ticks: int = 0


@dataclass(slots=True)
class _Told:
    """What has been collected for the shell since it asked last."""

    chunk_requests: list[ChunkRequest] = field(default_factory=list)
    reads: list[ReadAnswer] = field(default_factory=list)


class Node:
    def __init__(self, id: RaftId, stored: Stored, limits: Limits, rng: Chance) -> None:
        assert id != NOBODY
        self.id = id
        self.limits = limits
        self._rng = rng
        self.log = Log(stored)
        self.term = stored.hard_state.term
        self.vote = stored.hard_state.vote
        self.membership = stored.membership
        self.role = Role.FOLLOWER
        self.leader = NOBODY
        self.progress: dict[RaftId, Progress] = {}  # of all members, on the leader; empty elsewhere
        self.transferring_to = NOBODY

        self._saved_hard_state = stored.hard_state
        self._at_once: list[Envelope] = []  # depend on nothing that must be saved first
        self._after_save: list[Envelope] = []
        self._told = _Told()
        self._taken = False  # a Ready is out, and not advanced yet

        self._election_elapsed = 0
        self._heartbeat_elapsed = 0
        self._election_timeout = 0
        self._transfer_elapsed = 0
        self._votes: dict[RaftId, bool] = {}
        self._last_change = Index(0)  # leader: no change of members before everything up to here is applied
        self._uncommitted_bytes = 0
        self._round = 0  # of heartbeats
        self._reads: list[_Read] = []  # wait for their round to be answered by a quorum, in order
        self._early_reads: list[tuple[RaftId, int]] = []  # wait for an entry of this term to be committed

        self._snapshot: SnapshotMark | None = None  # that the shell keeps, to be offered
        self.wants_snapshot = False  # a member needs one: make it, and tell with snapshot_made()
        self._fetching: _Fetching | None = None
        self._chunks: list[KeptChunk] = []
        self._install: SnapshotMark | None = None
        self._install_chunks: list[KeptChunk] = []  # the last of its parts; those in _chunks are another's

        self._reset_election_timer()

    # --- what the shell asks ---------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote, self.log.commit)

    @property
    def may_campaign(self) -> bool:
        return self.id in self.membership.voters and not self._unapplied_change()

    @property
    def has_committed_in_its_term(self) -> bool:
        """A new leader knows what is committed only after an entry of its own is."""
        return self.log.term_at(self.log.commit) == self.term

    def take_messages(self) -> list[Envelope]:
        """To be sent now."""
        if self._hard_state_is_unsaved or not self._at_once:
            return []  # what they say of the term isn't true after a crash
        messages, self._at_once = self._at_once, []
        return messages

    def take_chunk_requests(self) -> list[ChunkRequest]:
        requests, self._told.chunk_requests = self._told.chunk_requests, []
        return requests

    def take_reads(self) -> list[ReadAnswer]:
        reads, self._told.reads = self._told.reads, []
        return reads

    def take_ready(self) -> Ready | None:
        """What is to be made durable, and what to send then; None if there is nothing."""
        assert not self._taken, "the last one was not advanced"
        log = self.log
        unsaved = log.unsaved()
        # A group's only voter needs nobody else: what this save makes durable, it may also apply.
        alone = self.is_leader and self.membership.voters == (self.id,)
        commit = log.last_index if alone else log.commit
        to_apply: tuple[Entry, ...] = ()
        if commit > log.applied:
            to_apply = log.entries(Index(log.applied + 1), commit, self.limits.apply_bytes)
        dirty = self._hard_state_is_unsaved
        # Whoever starts again must know of a committed change of the members: applied, or at least committed. Otherwise
        # it could campaign among members who are long gone.
        leaves_committed = log.commit > (to_apply[-1].index if to_apply else log.applied)
        save: Save | None = None
        if unsaved or to_apply or (dirty and self._install is None):
            save = Save(
                self.hard_state if dirty or leaves_committed else None,
                unsaved,
                to_apply,
                _after_changes(self.membership, to_apply),
            )
        messages = tuple(self._after_save)
        if dirty:
            messages = (*self._at_once, *messages)
            self._at_once.clear()
        # While a snapshot waits to be installed the next one's parts may come: they must not mix.
        chunks = self._chunks if self._install is None else self._install_chunks
        if save is None and self._install is None and not chunks and not messages:
            return None
        hard_state = self.hard_state
        if self._install is not None:
            # What was committed since comes with `save`: the power may go in between.
            hard_state = HardState(self.term, self.vote, self._install.index)
        ready = Ready(tuple(chunks), self._install, hard_state, save, messages)
        self._after_save.clear()
        chunks.clear()
        self._install = None
        self._taken = True
        return ready

    def advance(self, ready: Ready) -> None:
        """All of it is durable, and what it applies is applied."""
        assert self._taken
        self._taken = False
        log = self.log
        if ready.install is not None or (ready.save is not None and ready.save.hard_state is not None):
            self._saved_hard_state = ready.hard_state
        if ready.save is None:
            return
        if ready.save.entries:
            log.was_saved(ready.save.entries)
            if self.is_leader:
                self.progress[self.id].matched(log.saved)
                if self._commit():
                    self._broadcast_append()
        if ready.save.committed and ready.save.committed[-1].index > log.applied:
            log.applied = ready.save.committed[-1].index
            # The only voter commits by saving, even if it has stepped down meanwhile.
            log.commit = max(log.commit, log.applied)
            if ready.save.membership is not None:
                self._switch(ready.save.membership)

    def give_up(self, ready: Ready) -> bool:
        """The disk has refused to save it, and holds nothing of it. Instead of trying again for ever, a group's only member
        forgets what it has proposed: nobody else has heard of it. False: somebody may have, or there is nothing to
        forget, so it must be tried again."""
        assert self._taken
        log = self.log
        alone = self.is_leader and self.membership == Membership((self.id,), ())
        # Without the entry that its term begins with, a leader could commit nothing.
        if not alone or ready.install is not None or log.term_at(log.saved) != self.term:
            return False
        if log.saved == log.last_index:
            return False
        self._taken = False
        log.forget_unsaved()
        self._last_change = min(self._last_change, log.last_index)
        self._uncommitted_bytes = 0
        return True

    # --- what the shell tells --------------------------------------------------------------------

    def tick(self) -> None:
        self._election_elapsed += 1
        if self._fetching is not None and self._fetching.source == self.leader:
            self._fetching.quiet_ticks += 1
            if self._fetching.quiet_ticks >= self.limits.election_ticks:
                self._fetch_chunk()  # the last request or its answer got lost
        if not self.is_leader:
            if self._election_elapsed >= self._election_timeout:
                # Whoever may not campaign goes on counting: it hears no leader, and votes when it is asked.
                self.campaign()
            return
        self._heartbeat_elapsed += 1
        self._transfer_elapsed += 1
        if self._election_elapsed >= self.limits.election_ticks:
            self._election_elapsed = 0
            if not self._hears_a_quorum():
                self._become_follower(self.term, NOBODY)
                return
        if self._transfer_elapsed >= self.limits.election_ticks:
            self.transferring_to = NOBODY  # it had time enough
        if self._heartbeat_elapsed >= self.limits.heartbeat_ticks:
            for progress in self.progress.values():
                progress.quiet_beats += 1
            self._broadcast_heartbeat()

    def campaign(self) -> None:
        """Asks first whether it could win: who has lost touch must not raise the term of the others."""
        if not self.is_leader and self.may_campaign:
            self._campaign(pre=True)

    def propose(self, data: Sequence[bytes]) -> Index:
        """Appends an entry for each, and returns the index of the first. Raises NotLeader or ProposalDropped."""
        self._check_may_propose()
        size = sum(len(each) for each in data)
        if self._uncommitted_bytes + size > self.limits.unsaved_proposals_bytes and self._uncommitted_bytes:
            raise ProposalDropped("too much is proposed and not committed yet")
        first = Index(self.log.last_index + 1)
        self._append_own(
            Entry(Index(first + i), self.term, EntryKind.NORMAL, each) for i, each in enumerate(data)
        )
        return first

    def propose_change(self, change: MembershipChange) -> Index:
        """The same for a change of the members. Raises RefusedChange, too."""
        self._check_may_propose()
        if not self.has_committed_in_its_term or self.log.applied < self._last_change:
            raise ProposalDropped("the last change of the members isn't applied yet")
        changed(self.membership, change)
        self._last_change = Index(self.log.last_index + 1)
        entry = Entry(self._last_change, self.term, EntryKind.MEMBERSHIP, encode_change(change))
        self._append_own([entry])
        return entry.index

    def read_index(self, request: int) -> None:
        """The answer comes in take_reads(), or never: whoever waits asks again. Raises NotLeader if none is known."""
        if self.is_leader:
            self._read(self.id, request)
        elif self.leader == NOBODY:
            raise NotLeader
        else:
            self._send(self.leader, ReadIndex(self.term, request))

    def transfer_leadership(self, to: RaftId) -> None:
        """It campaigns as soon as it has all entries. Until then, or for an election timeout, nothing is proposed."""
        if not self.is_leader or to == self.id or to not in self.membership.voters:
            return
        if to == self.transferring_to:
            return  # being asked again and again doesn't give it more time
        self.transferring_to = to
        self._transfer_elapsed = 0
        if self.progress[to].match == self.log.last_index:
            self._send(to, TimeoutNow(self.term))
        else:
            self._send_append(to)

    def leader_lost(self) -> None:
        """The leader's process is known to be gone. A vote for another needn't wait for the timeout."""
        if not self.is_leader:
            self.leader = NOBODY

    def unreachable(self, member: RaftId) -> None:
        """What was sent to it may be lost: find out where it stands."""
        progress = self.progress.get(member)
        if progress is not None and progress.state is State.REPLICATE:
            progress.become_probe()

    def snapshot_made(self, mark: SnapshotMark) -> None:
        self._snapshot = mark
        self.wants_snapshot = False
        for member in sorted(self.progress):
            progress = self.progress[member]
            needs_it = self.log.term_at(Index(progress.next - 1)) is None
            if member != self.id and (progress.state is State.PROBE or needs_it):
                self._send_append(member)

    def compact(self, index: Index) -> None:
        """Forgets the entries up to this one, which is applied."""
        if index > self.log.mark.index:
            self.log.compact(index, self.membership)

    # --- messages --------------------------------------------------------------------------------

    def step(self, envelope: Envelope) -> None:
        assert envelope.receiver == self.id, envelope
        sender, message = envelope.sender, envelope.message
        if message.term > self.term:
            if isinstance(message, RequestVote) and not message.transfer and self._hears_a_leader():
                return  # so a member that was cut off can't depose a leader whom the others hear
            if not _is_about_a_future_term(message):
                follows = isinstance(message, Append | Heartbeat | SnapshotOffer)
                self._become_follower(message.term, sender if follows else NOBODY)
        elif message.term < self.term:
            self._answer_late(sender, message)
            return
        match message:
            case RequestVote():
                self._on_request_vote(sender, message)
            case VoteReply():
                self._on_vote(sender, message)
            case Append():
                self._follow(sender)
                self._on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)
            case Heartbeat():
                self._follow(sender)
                self._commit_up_to(message.commit)
                # It promises nothing but to be there, in this term: a slow disk is no silence.
                self._send(sender, HeartbeatReply(self.term, message.round))
            case HeartbeatReply():
                self._on_heartbeat_reply(sender, message)
            case TimeoutNow():
                if not self.is_leader and self.may_campaign:
                    self._campaign(pre=False, transfer=True)
            case ReadIndex():
                if self.is_leader:
                    self._read(sender, message.request)
            case ReadIndexReply():
                self._told.reads.append(ReadAnswer(message.request, message.index, self.term))
            case SnapshotOffer():
                self._follow(sender)
                self._on_offer(sender, message)
            case FetchChunk():
                self._on_fetch(sender, message)
            case Chunk():
                self._on_chunk(sender, message)

    def _answer_late(self, sender: RaftId, message: Message) -> None:
        """The sender hasn't heard of this term. If it leads, or asks for votes, an answer makes it step down."""
        match message:
            case Append() | Heartbeat() | SnapshotOffer():
                self._send_after_save(sender, AppendReply(self.term, Index(0), rejected=True))
            case RequestVote(pre=True):
                self._refuse_vote(sender, pre=True)
            case VoteReply():
                self._learn_commit(message)
            case _:
                pass

    def _follow(self, leader: RaftId) -> None:
        """It leads in our term."""
        assert not self.is_leader, (self.id, leader, self.term)
        if self.role is not Role.FOLLOWER:
            self._become_follower(self.term, leader)
        self.leader = leader
        self._election_elapsed = 0

    def _send(self, to: RaftId, message: Message) -> None:
        self._at_once.append(Envelope(self.id, to, message))

    def _send_after_save(self, to: RaftId, message: Message) -> None:
        self._after_save.append(Envelope(self.id, to, message))

    # --- elections -------------------------------------------------------------------------------

    def _reset_election_timer(self) -> None:
        """Chance keeps two members from campaigning against each other for ever."""
        ticks = self.limits.election_ticks
        self._election_elapsed = 0
        self._election_timeout = self._rng.randint(ticks, 2 * ticks - 1)

    def _reset(self, term: Term) -> None:
        if term != self.term:
            assert term > self.term, (term, self.term)
            self.term = term
            self.vote = NOBODY
        self.leader = NOBODY
        self.transferring_to = NOBODY
        self.progress = {}
        self.wants_snapshot = False
        self._votes = {}
        self._heartbeat_elapsed = 0
        self._uncommitted_bytes = 0
        self._reads.clear()
        self._early_reads.clear()
        self._reset_election_timer()

    def _become_follower(self, term: Term, leader: RaftId) -> None:
        self._reset(term)
        self.role = Role.FOLLOWER
        self.leader = leader

    def _become_leader(self) -> None:
        self._reset(self.term)
        self.role = Role.LEADER
        self.leader = self.id
        self._round = 0
        self._snapshot = None
        self._fetching = None
        for member in (*self.membership.voters, *self.membership.learners):
            self._track(member)
        # There may be a change of the members in the log that isn't applied yet.
        self._last_change = self.log.last_index
        # What earlier terms left is committed only along with an entry of this one.
        self._append_own([Entry(Index(self.log.last_index + 1), self.term, EntryKind.NORMAL, b"")])

    def _campaign(self, *, pre: bool, transfer: bool = False) -> None:
        if pre:
            # The term stays: nothing is promised yet.
            self._reset(self.term)
            self.role = Role.PRE_CANDIDATE
            term = Term(self.term + 1)
        else:
            self._reset(Term(self.term + 1))
            self.role = Role.CANDIDATE
            self.vote = self.id
            term = self.term
        self._votes[self.id] = True
        if self._count_votes():
            return
        request = RequestVote(term, self.log.last_index, self.log.last_term, pre, transfer)
        for voter in self.membership.voters:
            if voter != self.id:
                self._send_after_save(voter, request)

    def _count_votes(self) -> bool:
        """Is it decided?"""
        match vote_result(self.membership.voters, self._votes):
            case VoteResult.WON if self.role is Role.PRE_CANDIDATE:
                self._campaign(pre=False)
            case VoteResult.WON:
                self._become_leader()
            case VoteResult.LOST:
                self._become_follower(self.term, NOBODY)
            case VoteResult.PENDING:
                return False
        return True

    def _on_request_vote(self, sender: RaftId, message: RequestVote) -> None:
        free = self.vote == sender or (self.vote == NOBODY and self.leader == NOBODY)
        if message.pre:
            free = free or message.term > self.term
        if free and self.log.is_up_to_date(message.last_index, message.last_term):
            # Learners answer, too: they may be voters, and not know it yet.
            if not message.pre:
                self.vote = sender
                self._election_elapsed = 0
            self._send_after_save(sender, VoteReply(message.term, granted=True, pre=message.pre))
        else:
            self._refuse_vote(sender, pre=message.pre)

    def _refuse_vote(self, candidate: RaftId, *, pre: bool) -> None:
        commit = self.log.commit
        commit_term = self.log.term_at(commit) or Term(0)
        self._send_after_save(candidate, VoteReply(self.term, False, pre, commit, commit_term))

    def _learn_commit(self, message: VoteReply) -> None:
        """What is committed is so in every term. A leader that removes itself may be the only one to know, and is none
        any more: without this the others would ask it for its vote for ever."""
        if message.commit > self.log.commit and self.log.term_at(message.commit) == message.commit_term:
            self._commit_up_to(message.commit)
            if self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE) and self._unapplied_change():
                self._become_follower(self.term, NOBODY)  # it has asked the members of before

    def _on_vote(self, sender: RaftId, message: VoteReply) -> None:
        self._learn_commit(message)
        role = Role.PRE_CANDIDATE if message.pre else Role.CANDIDATE
        if self.role is not role:
            return  # decided already
        if message.pre and message.granted and message.term != self.term + 1:
            return  # of an earlier campaign
        self._votes.setdefault(sender, message.granted)
        self._count_votes()

    def _hears_a_leader(self) -> bool:
        if self.is_leader:
            return True
        return self.leader != NOBODY and self._election_elapsed < self.limits.election_ticks

    def _hears_a_quorum(self) -> bool:
        active = {member for member, progress in self.progress.items() if progress.recently_active}
        active.add(self.id)
        for progress in self.progress.values():
            progress.recently_active = False
        votes = dict.fromkeys(active, True)
        return vote_result(self.membership.voters, votes) is VoteResult.WON

    # --- replication, on the leader --------------------------------------------------------------

    def _check_may_propose(self) -> None:
        if not self.is_leader:
            raise NotLeader(self.leader)
        if self.transferring_to != NOBODY:
            raise ProposalDropped("leadership is being handed over")
        if self.id not in self.progress:
            raise ProposalDropped("this instance is no member of the cluster any more")

    def _append_own(self, entries: Iterable[Entry]) -> None:
        added = list(entries)
        self.log.append(added)
        self._uncommitted_bytes += sum(len(entry.data) for entry in added)
        self._broadcast_append()

    def _track(self, member: RaftId) -> None:
        inflight = Inflight(self.limits.inflight_messages, self.limits.inflight_bytes)
        progress = Progress(inflight, Index(self.log.last_index + 1))
        self.progress[member] = progress
        if member == self.id:
            progress.matched(self.log.saved)
            progress.become_replicate()

    def _broadcast_append(self) -> None:
        for member in self.progress:
            if member != self.id:
                self._send_append(member)

    def _send_append(self, member: RaftId, *, even_if_empty: bool = True) -> bool:
        """The next entries, or a snapshot if they are gone; also tells what is committed. False: nothing was sent."""
        progress, log = self.progress[member], self.log
        if progress.is_paused:
            return False
        previous = Index(progress.next - 1)
        previous_term = log.term_at(previous)
        if previous_term is None:
            return self._offer_snapshot(member, progress)
        entries: tuple[Entry, ...] = ()
        if progress.next <= log.last_index and not (
            progress.state is State.REPLICATE and progress.inflight.is_full
        ):
            entries = log.entries(progress.next, max_bytes=self.limits.append_bytes)
        if not entries and not even_if_empty:
            return False
        progress.sent(len(entries), sum(map(size_of, entries)))
        self._send(member, Append(self.term, previous, previous_term, entries, log.commit))
        return True

    def _offer_snapshot(self, member: RaftId, progress: Progress) -> bool:
        if not progress.recently_active:
            return False  # for whoever comes back
        if self._snapshot is None or self._snapshot.index < self.log.mark.index:
            self.wants_snapshot = True
            return False
        progress.become_snapshot(self._snapshot.index)
        self._send(member, SnapshotOffer(self.term, self._snapshot))
        return True

    def _on_append_reply(self, sender: RaftId, message: AppendReply) -> None:
        progress = self.progress.get(sender)
        if progress is None:
            return
        progress.recently_active = True
        if message.rejected:
            could_match = message.hint_index
            if message.hint_term > 0:
                could_match = self.log.conflict_hint(message.hint_index, message.hint_term)
            if progress.rejected(message.index, could_match):
                if progress.state is State.REPLICATE:
                    progress.become_probe()
                self._send_append(sender)
            return
        was_paused = progress.is_paused
        if not progress.matched(message.index) and not (
            progress.match == message.index and progress.state is State.PROBE
        ):
            return
        match progress.state:
            case State.PROBE:
                progress.become_replicate()
            case State.SNAPSHOT if progress.match + 1 >= self.log.first_index:
                # It need not be the snapshot that was offered: what counts is that the log goes on from there.
                progress.become_replicate()
            case State.REPLICATE:
                progress.inflight.answered(message.index)
            case State.SNAPSHOT:
                pass
        if self._commit():
            self._broadcast_append()
        elif was_paused:
            # It may wait for news of what is committed.
            self._send_append(sender)
        # The answer has made room in the window: fill it.
        while self._send_append(sender, even_if_empty=False):
            pass
        if sender == self.transferring_to and progress.match == self.log.last_index:
            self._send(sender, TimeoutNow(self.term))

    def _commit(self) -> bool:
        """Is there news of what is committed?"""
        log = self.log
        match = {member: progress.match for member, progress in self.progress.items()}
        index = committed(self.membership.voters, match)
        # An entry of an earlier term isn't safe by a majority alone: a member without it could still win.
        if index <= log.commit or log.term_at(index) != self.term:
            return False
        newly = log.entries(Index(log.commit + 1), index)
        self._uncommitted_bytes = max(0, self._uncommitted_bytes - sum(len(entry.data) for entry in newly))
        log.commit = index
        if self._early_reads:
            early, self._early_reads = self._early_reads, []
            for sender, request in early:
                self._read(sender, request)
        return True

    # --- replication, on a follower --------------------------------------------------------------

    def _on_append(self, leader: RaftId, message: Append) -> None:
        log = self.log
        if message.previous_index < log.commit:
            # An old message: what is committed is the leader's, whatever it says of it.
            self._send_after_save(leader, AppendReply(self.term, log.commit))
            return
        if log.term_at(message.previous_index) != message.previous_term:
            hint = log.conflict_hint(message.previous_index, message.previous_term)
            hint_term = log.term_at(hint) or Term(0)
            reply = AppendReply(self.term, message.previous_index, True, hint, hint_term)
            self._send_after_save(leader, reply)
            return
        log.merge(message.entries)
        last = Index(message.previous_index + len(message.entries))
        # What is behind the message's last entry may be another leader's, so it isn't committed by this one's word.
        self._commit_up_to(min(message.commit, last))
        self._send_after_save(leader, AppendReply(self.term, last))

    def _commit_up_to(self, index: Index) -> None:
        if index > self.log.commit:
            assert index <= self.log.last_index, (index, self.log.last_index)
            self.log.commit = index

    # --- heartbeats and reads --------------------------------------------------------------------

    def _broadcast_heartbeat(self) -> None:
        self._heartbeat_elapsed = 0
        self._round += 1
        for member, progress in self.progress.items():
            if member != self.id:
                # Not beyond what it is known to have: it may have something else there.
                commit = min(progress.match, self.log.commit)
                self._send(member, Heartbeat(self.term, commit, self._round))

    def _on_heartbeat_reply(self, sender: RaftId, message: HeartbeatReply) -> None:
        progress = self.progress.get(sender)
        if progress is None:
            return
        progress.recently_active = True
        progress.waits = False
        progress.round = max(progress.round, message.round)
        if progress.state is State.SNAPSHOT:
            self._offer_again(sender, progress)
        elif progress.match < self.log.last_index or progress.state is State.PROBE:
            self._send_append(sender)
        self._confirm_reads()

    def _read(self, sender: RaftId, request: int) -> None:
        if not self.has_committed_in_its_term:
            # Until then an earlier leader may have committed, and acknowledged, more than is known here.
            self._early_reads.append((sender, request))
            return
        # Another leader may have been elected. A quorum that answers a heartbeat sent from now on says that there was
        # none when the request came. Requests that come while a round is under way share the next.
        if self._reads:
            self._reads.append(_Read(sender, request, self.log.commit, self._round + 1))
            return
        self._broadcast_heartbeat()
        self._reads.append(_Read(sender, request, self.log.commit, self._round))
        self._confirm_reads()

    def _confirm_reads(self) -> None:
        if not self._reads:
            return
        rounds = {member: Index(progress.round) for member, progress in self.progress.items()}
        rounds[self.id] = Index(self._round)
        confirmed = committed(self.membership.voters, rounds)
        done = 0
        for read in self._reads:
            if read.round > confirmed:
                break
            done += 1
            if read.sender == self.id:
                self._told.reads.append(ReadAnswer(read.request, read.index, self.term))
            else:
                self._send(read.sender, ReadIndexReply(self.term, read.request, read.index))
        del self._reads[:done]
        if done and self._reads and self._reads[0].round > self._round:
            self._broadcast_heartbeat()

    # --- snapshots -------------------------------------------------------------------------------

    def _offer_again(self, member: RaftId, progress: Progress) -> None:
        """It answers heartbeats, and asks for no part: the offer may be lost, or it has started anew."""
        if progress.quiet_beats > 2:
            progress.become_probe()
            progress.next = Index(progress.match + 1)
            self._send_append(member)

    def _on_fetch(self, sender: RaftId, message: FetchChunk) -> None:
        progress = self.progress.get(sender)
        if progress is None:
            return
        progress.recently_active = True
        progress.quiet_beats = 0
        if message.mark == self._snapshot:
            self._told.chunk_requests.append(ChunkRequest(sender, message.mark, message.offset))
        else:
            self._send(sender, Chunk(self.term, message.mark, message.offset, b"", last=False, gone=True))

    def _on_offer(self, leader: RaftId, message: SnapshotOffer) -> None:
        mark = message.mark
        if mark.index <= self.log.commit:
            self._send_after_save(leader, AppendReply(self.term, self.log.commit))
        elif self.log.term_at(mark.index) == mark.term:
            # All of it is here: it only wasn't known to be committed.
            self._commit_up_to(mark.index)
            self._send_after_save(leader, AppendReply(self.term, mark.index))
        else:
            fetching = self._fetching
            if fetching is None or fetching.mark != mark or fetching.source != leader:
                self._fetching = _Fetching(mark, leader)
            self._fetch_chunk()

    def _fetch_chunk(self) -> None:
        fetching = self._fetching
        assert fetching is not None
        fetching.quiet_ticks = 0
        self._send(fetching.source, FetchChunk(self.term, fetching.mark, fetching.offset))

    def _on_chunk(self, sender: RaftId, message: Chunk) -> None:
        fetching = self._fetching
        if fetching is None or sender != fetching.source or message.mark != fetching.mark:
            return
        if message.gone or message.mark.index <= self.log.commit:
            self._fetching = None  # the leader will offer another, if it is still needed
            return
        if message.offset != fetching.offset:
            return  # it came twice
        self._chunks.append(KeptChunk(fetching.mark, fetching.offset, message.data))
        if not message.last:
            fetching.offset += 1
            self._fetch_chunk()
            return
        self._fetching = None
        mark = fetching.mark
        if self.log.term_at(mark.index) == mark.term:
            # Appends were quicker. What is behind the mark may have been acknowledged, so it must stay.
            self._commit_up_to(mark.index)
        else:
            if self.role is not Role.FOLLOWER:
                # It asked for votes with another log, among other members.
                self._become_follower(self.term, NOBODY)
            self.log.restore(mark)
            self.membership = mark.membership
            self._install = mark
            self._install_chunks += self._chunks
            self._chunks.clear()
        self._send_after_save(sender, AppendReply(self.term, mark.index))

    # --- members ---------------------------------------------------------------------------------

    def _unapplied_change(self) -> bool:
        log = self.log
        if log.commit == log.applied:
            return False
        committed_entries = log.entries(Index(log.applied + 1), log.commit)
        return any(entry.kind is EntryKind.MEMBERSHIP for entry in committed_entries)

    def _switch(self, membership: Membership) -> None:
        self.membership = membership
        if not self.is_leader:
            return
        members = (*membership.voters, *membership.learners)
        if self.id not in membership.voters:
            # It has led the group to do without it.
            self._become_follower(self.term, NOBODY)
            return
        for member in [member for member in self.progress if member not in members]:
            del self.progress[member]
        new = [member for member in members if member not in self.progress]
        for member in new:
            self._track(member)
            # It has had no time to answer yet.
            self.progress[member].recently_active = True
        if self.transferring_to not in membership.voters:
            self.transferring_to = NOBODY
        if self._commit():  # fewer may be enough now
            self._broadcast_append()
        else:
            for member in members:
                if member != self.id:
                    self._send_append(member, even_if_empty=member in new)

    # --- state -----------------------------------------------------------------------------------

    @property
    def _hard_state_is_unsaved(self) -> bool:
        saved = self._saved_hard_state
        # `commit` is only a hint at a restart: `applied` is there, too. It goes along, it is no reason to save.
        return self.term != saved.term or self.vote != saved.vote


def _after_changes(membership: Membership, entries: Iterable[Entry]) -> Membership | None:
    """The members after these entries are applied; None: as before."""
    result: Membership | None = None
    for entry in entries:
        if entry.kind is EntryKind.MEMBERSHIP:
            result = changed(result or membership, decode_change(entry.data))
    return result


def _is_about_a_future_term(message: Message) -> bool:
    """It names a term in which nobody is yet: the term of a campaign that may never come."""
    match message:
        case RequestVote(pre=True):
            return True
        case VoteReply(pre=True, granted=True):
            return True
        case _:
            return False
