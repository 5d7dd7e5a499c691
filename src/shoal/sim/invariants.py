"""What must hold after every step, whatever has happened.

Here: Invariants, the history that all members have to agree on, and the checks against it. All are incremental: a
step costs what it has changed.
Not here: whether the cluster gets anything done (cluster.py, after everything has healed).

| invariant | checked when |
|---|---|
| one leader per term | a member leads |
| leader completeness: it has all that earlier terms have committed | a member leads |
| state-machine safety: at an index all commit, and apply, the same | a commit moves, a save applies, a snapshot is installed |
| members at an index are the same for all | a member's membership changes |
| log matching: an index and a term mean one entry, after the same one | entries are saved |
| term and vote never go back, and a term has one vote | a save, a restart, a vote is sent |
| changes of members one at a time | one is proposed |
| a read index covers all that was acknowledged when it was asked for | a read is answered |
| with `promises`: what is told to others is on the disk, what is committed is on a majority of disks | messages are sent, a leader's commit moves |

An entry is acknowledged when any member has applied it, so nothing acknowledged is lost as long as all agree on the
history, and every leader has it.

The last line of the table isn't needed to find a bug, but finds it where it is made, instead of where it hurts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shoal.raft.membership import changed
from shoal.raft.messages import (
    NOBODY,
    Append,
    AppendReply,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Heartbeat,
    Index,
    Membership,
    RaftId,
    RequestVote,
    SnapshotMark,
    SnapshotOffer,
    Term,
    TimeoutNow,
    VoteReply,
    decode_change,
)
from shoal.raft.node import Node, ReadAnswer, Role
from shoal.raft.store import Save
from shoal.sim.disk import State, digest_after

if TYPE_CHECKING:
    from shoal.sim.member import Member


class Violation(AssertionError):
    """An invariant doesn't hold: a bug of the core, or of the simulation."""


_NO_TERM: Final = Term(0)
_NOTHING: Final = Index(0)


@dataclass(slots=True)
class Seen:
    """Of a member, in this life."""

    term: Term = _NO_TERM
    role: Role = Role.FOLLOWER
    led_term: Term = _NO_TERM
    commit: Index = _NOTHING
    membership: Membership | None = None
    leader: tuple[Term, RaftId] = (_NO_TERM, NOBODY)  # the last that it heard
    leader_at: int = 0  # ticks
    # ticks, by who answered the leader that it is
    answered_at: dict[RaftId, int] = field(default_factory=dict)
    invited_to: Term = _NO_TERM  # by a leader that hands over
    handing_over_at: int = 0  # ticks, of when it was last told to
    pre_votes: tuple[Term, frozenset[RaftId]] = (_NO_TERM, frozenset())


@dataclass(frozen=True, slots=True)
class Asked:
    """How things stood when a read began."""

    acknowledged: Index
    term: Term  # the latest that had a leader


class Invariants:
    def __init__(self, mark: SnapshotMark, entries: Iterable[Entry], *, promises: bool = True) -> None:
        self._promises = promises
        self._start = mark  # history begins after it
        self.history: list[Entry] = []
        self._committed_in: list[Term] = []  # the term of who committed it first; never decreases
        self._digests = [0]  # by position in history, after it; [0] is the state at the mark
        self.changes: list[tuple[Index, Membership]] = [(mark.index, mark.membership)]
        self._leaders: dict[Term, RaftId] = {}
        self._latest: Member | None = None  # of the leaders, by term
        self._latest_term = Term(0)
        self._seen: dict[
            tuple[Index, Term], tuple[Entry, Term]
        ] = {}  # an entry, and the term of the one before
        self._votes: dict[tuple[RaftId, Term], RaftId] = {}
        self._hard: dict[RaftId, HardState] = {}
        self._knew: dict[RaftId, Index] = {}  # to be committed, when it last saved
        self._campaigned = {Term(0), Term(1)}  # terms that somebody has campaigned for, and the first ones
        self._proposals: set[bytes] = set()  # that are in the history
        self.installs = 0  # of snapshots
        for entry in entries:
            self._extend(entry, entry.term)

    # --- what is agreed on -----------------------------------------------------------------------

    @property
    def committed(self) -> Index:
        return Index(self._start.index + len(self.history))

    @property
    def membership(self) -> Membership:
        """The latest that is committed."""
        return self.changes[-1][1]

    def _entry(self, index: Index) -> Entry:
        return self.history[index - self._start.index - 1]

    def _term_at(self, index: Index) -> Term:
        return self._start.term if index == self._start.index else self._entry(index).term

    def _membership_at(self, index: Index) -> Membership:
        for at, membership in reversed(self.changes):
            if at <= index:
                return membership
        raise Violation(f"nothing is known of index {index}")

    def _extend(self, entry: Entry, term: Term) -> None:
        if entry.index != self.committed + 1:
            raise Violation(f"entry {entry.index} is committed after {self.committed}")
        if entry.kind is EntryKind.NORMAL and entry.data:
            if entry.data in self._proposals:
                raise Violation(f"{entry} was committed before, at another index")
            self._proposals.add(entry.data)
        self.history.append(entry)
        self._committed_in.append(term)
        self._digests.append(digest_after(self._digests[-1], entry))
        if entry.kind is EntryKind.MEMBERSHIP:
            self.changes.append((entry.index, changed(self.membership, decode_change(entry.data))))

    def _agree(self, who: str, entry: Entry, term: Term) -> bool:
        """Was it new?"""
        if entry.index > self.committed:
            self._extend(entry, term)
            return True
        ours = self._entry(entry.index)
        if ours is not entry and ours != entry:
            raise Violation(f"{who} has {entry} where {ours} was committed before")
        return False

    # --- after each step -------------------------------------------------------------------------

    def after_step(self, member: Member) -> None:
        node = member.node
        assert node is not None
        seen = member.seen
        if node.term != seen.term:
            self._term_moved(member)
        if node.role is not seen.role:
            seen.role = node.role
            if self._promises and node.role is Role.PRE_CANDIDATE:
                self._check_knows_members(member)
        if node.role is Role.LEADER and seen.led_term != node.term:
            seen.led_term = node.term
            seen.answered_at.clear()
            self._elected(member)
        if node.log.commit != seen.commit:
            self._commit_moved(member)
        if node.membership is not seen.membership:
            seen.membership = node.membership
            seen.answered_at.clear()  # others are needed now
            self._check_membership(member)

    def _term_moved(self, member: Member) -> None:
        node, seen = member.node, member.seen
        assert node is not None
        seen.term = node.term
        if node.vote != member.id or node.role is Role.FOLLOWER:
            if node.term not in self._campaigned:
                raise Violation(f"{member.id} moves to term {node.term}, for which nobody has campaigned")
            return
        self._campaigned.add(node.term)
        term, granted = seen.pre_votes
        if self._promises and seen.invited_to != node.term:
            voters = node.membership.voters
            asked = {member.id} | (granted if term == node.term else frozenset())
            if sum(voter in asked for voter in voters) <= len(voters) // 2:
                raise Violation(
                    f"{member.id} campaigns for term {node.term}, and of {voters} only {sorted(asked)} would vote for it"
                )

    def _check_knows_members(self, member: Member) -> None:
        node = member.node
        assert node is not None
        known = max(node.log.commit, self._knew.get(member.id, Index(0)))
        for index, _ in reversed(self.changes):
            if index <= node.log.applied:
                return
            if index <= known:
                raise Violation(
                    f"{member.id} campaigns among {node.membership.voters}, and knew of the change at {index}"
                )

    def _elected(self, member: Member) -> None:
        node = member.node
        assert node is not None
        leader = self._leaders.setdefault(node.term, member.id)
        if leader != member.id:
            raise Violation(f"{leader} and {member.id} both lead in term {node.term}")
        if self._promises:
            voters = node.membership.voters
            given = [v for v in voters if v == member.id or self._votes.get((v, node.term)) == member.id]
            if len(given) <= len(voters) // 2:
                raise Violation(f"{member.id} leads in term {node.term} by the votes of {given} of {voters}")
        count = bisect_left(self._committed_in, node.term)  # so many were committed in earlier terms
        if count:
            self._check_has(member, Index(self._start.index + count))
        if self._latest is None or self._latest_term < node.term:
            self._latest, self._latest_term = member, node.term

    def _check_has(self, member: Member, index: Index) -> None:
        """It has the history up to there; by log matching its last entry speaks for all."""
        node = member.node
        assert node is not None
        if index > node.log.mark.index and node.log.term_at(index) != self._term_at(index):
            raise Violation(
                f"{member.id} leads in term {node.term} without {self._entry(index)}, which is committed"
            )

    def _commit_moved(self, member: Member) -> None:
        node = member.node
        assert node is not None
        log, seen = node.log, member.seen.commit
        if log.commit < seen:
            raise Violation(f"the commit of {member.id} went back from {seen} to {log.commit}")
        if log.commit > log.last_index:
            raise Violation(f"{member.id} has committed {log.commit} of a log that ends at {log.last_index}")
        if seen < log.mark.index:
            mark = log.mark
            if mark.index > self.committed or mark.term != self._term_at(mark.index):
                raise Violation(f"{member.id} has a snapshot at {mark.index}/t{mark.term} of another history")
            seen = mark.index
        member.seen.commit = log.commit
        if log.commit == seen:
            return
        new = False
        who = f"{member.id}, in term {node.term}, commits: it"
        for entry in log.entries(Index(seen + 1), log.commit):
            new |= self._agree(who, entry, node.term)
        if new:
            self._newly_committed(member)

    def _newly_committed(self, member: Member) -> None:
        node = member.node
        assert node is not None
        latest = self._latest
        if latest is not None and latest.node is not None and self._latest_term > node.term:
            if latest.node.role is Role.LEADER and latest.node.term == self._latest_term:
                self._check_has(latest, self.committed)
        if self._promises and node.role is Role.LEADER:
            alone = node.membership.voters == (member.id,)
            if not alone and node.log.term_at(node.log.commit) != node.term:
                raise Violation(
                    f"{member.id} leads in term {node.term} and commits {self.history[-1]}: its successor may undo that"
                )
            # One step may commit, and then switch to other members; or the other way round.
            before = member.seen.membership or node.membership
            if not self._majority_has(member, before) and not self._majority_has(member, node.membership):
                index = node.log.commit
                raise Violation(
                    f"{member.id} commits {index}, which no majority of {before.voters} has saved"
                )

    def _majority_has(self, leader: Member, membership: Membership) -> bool:
        assert leader.node is not None
        index = leader.node.log.commit
        term = leader.node.log.term_at(index)
        having = sum(leader.disk_of(voter).has(index, term) for voter in membership.voters)
        return having > len(membership.voters) // 2

    def _check_membership(self, member: Member) -> None:
        node = member.node
        assert node is not None
        applied = node.log.applied
        expected = self._membership_at(applied) if applied >= self._start.index else Membership()
        if node.membership != expected:
            raise Violation(f"{member.id} has {node.membership} at {applied}, it should be {expected}")

    # --- the disk --------------------------------------------------------------------------------

    def saved(self, member: Member, save: Save, hard_state: HardState) -> None:
        """Called when it is durable. `hard_state` is that of the core when it asked for it."""
        self._knew[member.id] = hard_state.commit
        if save.hard_state is not None:
            self._check_hard_state(member.id, save.hard_state)
        if save.entries:
            first = save.entries[0]
            before = self._term_before(member, first)
            for entry in save.entries:
                self._check_matching(member.id, entry, before)
                before = entry.term
        if save.committed:
            node = member.node
            assert node is not None
            for entry in save.committed:
                self._agree(f"{member.id} applies: it", entry, node.term)
            self.check_state(member.id, member.disk.applied, member.disk.state)

    def _term_before(self, member: Member, entry: Entry) -> Term:
        index = Index(entry.index - 1)
        if index == member.disk.mark.index:
            return member.disk.mark.term
        found = member.disk.entry(index)
        assert found is not None, index
        return found.term

    def _check_matching(self, who: RaftId, entry: Entry, before: Term) -> None:
        seen = self._seen.setdefault((entry.index, entry.term), (entry, before))
        if seen[1] != before or (seen[0] is not entry and seen[0] != entry):
            raise Violation(
                f"logs don't match: {who} has {entry} after a t{before}, elsewhere {seen[0]} is after a t{seen[1]}"
            )

    def about_to_install(self, member: Member, mark: SnapshotMark) -> None:
        found = member.disk.entry(mark.index)
        if self._promises and found is not None and found.term == mark.term:
            raise Violation(
                f"{member.id} installs a snapshot at {mark.index}/t{mark.term}, and has that and more up to "
                f"{member.disk.last_index}, which it may have acknowledged"
            )

    def installed(self, member: Member, mark: SnapshotMark, hard_state: HardState) -> None:
        self.installs += 1
        self._check_hard_state(member.id, hard_state)
        if mark.index > self.committed or mark.term != self._term_at(mark.index):
            raise Violation(
                f"{member.id} installs a snapshot at {mark.index}/t{mark.term} of another history"
            )
        if mark.membership != self._membership_at(mark.index):
            raise Violation(
                f"{member.id} installs {mark}, where the members are {self._membership_at(mark.index)}"
            )
        self.check_state(member.id, mark.index, member.disk.state)

    def restarted(self, member: Member) -> None:
        """What it finds is what it had."""
        disk, node = member.disk, member.node
        assert node is not None
        hard_state = self._hard.get(member.id)
        if hard_state is not None and (disk.hard_state.term, disk.hard_state.vote) != (
            hard_state.term,
            hard_state.vote,
        ):
            raise Violation(f"{member.id} finds {disk.hard_state}, it had saved {hard_state}")
        self.check_state(member.id, disk.applied, disk.state)
        member.seen = Seen()
        if disk.applied >= self._start.index:
            self.after_step(member)

    def check_state(self, who: RaftId, index: Index, state: State) -> None:
        at = index - self._start.index
        if at < 0:
            return  # a member that has just come
        if at >= len(self._digests) or state.digest != self._digests[at]:
            raise Violation(f"the state of {who} at {index} isn't what the history makes of it")
        n = len(state.rows)
        for position in range(max(1, at - n + 1), at + 1):
            if state.rows[(position + self._start.index) % n] != self._digests[position]:
                raise Violation(f"a row of {who} at {index} isn't what the history makes of it")

    def _check_hard_state(self, who: RaftId, new: HardState) -> None:
        old = self._hard.get(who)
        if old is not None:
            if new.term < old.term:
                raise Violation(f"{who} goes back from term {old.term} to {new.term}")
            if new.term == old.term and new.vote != old.vote and old.vote != NOBODY:
                raise Violation(f"{who} changes its vote in term {new.term} from {old.vote} to {new.vote}")
        self._hard[who] = new
        if new.vote != NOBODY:
            self._check_vote(who, new.term, new.vote)

    def _check_vote(self, who: RaftId, term: Term, candidate: RaftId) -> None:
        voted = self._votes.setdefault((who, term), candidate)
        if voted != candidate:
            raise Violation(f"in term {term}, {who} votes for {voted} and for {candidate}")

    # --- messages --------------------------------------------------------------------------------

    def sends(self, member: Member, messages: Sequence[Envelope]) -> None:
        for envelope in messages:
            message = envelope.message
            if isinstance(message, VoteReply):
                if message.granted and not message.pre:
                    self._check_vote(member.id, message.term, envelope.receiver)
                    hard = member.disk.hard_state
                    if self._promises and hard.term == message.term and hard.vote != envelope.receiver:
                        raise Violation(f"{member.id} votes for {envelope.receiver}, its disk has {hard}")
            elif isinstance(message, AppendReply):
                if self._promises and not message.rejected:
                    self._check_acknowledged(member, message)
            elif isinstance(message, TimeoutNow):
                if self._promises:
                    self._check_invited(member, envelope.receiver, message)
            if self._promises and message.term > member.disk.hard_state.term:
                if not getattr(message, "pre", False):
                    raise Violation(f"{member.id} sends {message}, its disk has {member.disk.hard_state}")

    def _check_acknowledged(self, member: Member, message: AppendReply) -> None:
        node, index = member.node, message.index
        assert node is not None
        disk, term = member.disk, node.log.term_at(index)
        # Of an earlier term: what it says is older than what made it move on. No term: a snapshot has just come, too.
        if message.term == node.term and not (
            disk.has(index, term) if term is not None else index <= disk.last_index
        ):
            found = disk.entry(index) or disk.last_index
            raise Violation(f"{member.id} acknowledges {index} in term {node.term}, its disk has {found}")

    def _check_invited(self, member: Member, to: RaftId, message: TimeoutNow) -> None:
        node = member.node
        assert node is not None
        log = node.log
        if node.is_leader and message.term == node.term:
            if not member.disk_of(to).has(log.last_index, log.last_term):
                raise Violation(
                    f"{member.id} hands over to {to}, which lacks {log.last_index}/t{log.last_term}"
                )

    def takes_in(self, member: Member, envelope: Envelope) -> None:
        """Gives a message to a member's core, and looks at what it makes of it."""
        node, seen = member.node, member.seen
        assert node is not None
        message, term = envelope.message, node.term
        loyal = False
        if message.term == term:
            seen.answered_at[envelope.sender] = member.ticks
        match message:
            case RequestVote(transfer=False):
                loyal = (
                    message.term > term
                    and seen.leader == (term, node.leader) != (term, NOBODY)
                    and member.ticks - seen.leader_at < node.limits.election_ticks
                )
            case VoteReply(granted=True, pre=True) if message.term == term + 1:
                granted = seen.pre_votes[1] if seen.pre_votes[0] == message.term else frozenset[RaftId]()
                seen.pre_votes = (message.term, granted | {envelope.sender})
            case TimeoutNow() if message.term == term:
                seen.invited_to = Term(term + 1)
            case _:
                pass
        late = _heard_of(node, envelope.sender) if message.term < term else None
        node.step(envelope)
        if self._promises:
            if late is not None and late != _heard_of(node, envelope.sender):
                raise Violation(f"{member.id} leads in term {term}, and believes {message}")
            if isinstance(message, AppendReply):
                self._check_match(member, envelope.sender)
        if isinstance(message, Append | Heartbeat | SnapshotOffer) and message.term == node.term:
            seen.leader, seen.leader_at = (node.term, envelope.sender), member.ticks
        elif loyal and node.term != term:
            raise Violation(
                f"{member.id} hears its leader {seen.leader[1]}, and leaves it for {envelope.sender} and term {node.term}"
            )

    def _check_match(self, leader: Member, other: RaftId) -> None:
        """What a leader believes that another has is on its disk, as long as that one follows it."""
        node = leader.node
        assert node is not None
        progress, disk = node.progress.get(other), leader.disk_of(other)
        if progress is None or disk.hard_state.term != node.term:
            return
        term = node.log.term_at(progress.match)
        if term is not None and not disk.has(progress.match, term):
            found = disk.entry(progress.match) or disk.last_index
            raise Violation(
                f"{leader.id} believes that {other} matches up to {progress.match}/t{term}, it has {found}"
            )

    # --- time ------------------------------------------------------------------------------------

    def ticked(self, member: Member) -> None:
        """A leader that no quorum answers must not go on for long, nor one that hands over in vain refuse proposals."""
        node, seen = member.node, member.seen
        assert node is not None
        if node.role is not Role.LEADER or not self._promises or seen.led_term != node.term:
            return
        patience = 2 * node.limits.election_ticks
        if node.transferring_to != NOBODY and member.ticks - seen.handing_over_at > patience:
            raise Violation(
                f"{member.id} hands over to {node.transferring_to}, for {patience} ticks and more"
            )
        voters = node.membership.voters
        for voter in voters:
            seen.answered_at.setdefault(voter, member.ticks)
        silent = [
            voter
            for voter in voters
            if voter != member.id and member.ticks - seen.answered_at[voter] > patience
        ]
        if len(voters) - len(silent) <= len(voters) // 2:
            raise Violation(f"{member.id} leads, and hasn't heard {silent} of {voters} for {patience} ticks")

    # --- clients ---------------------------------------------------------------------------------

    def proposes_change(self, member: Member, index: Index) -> None:
        """Called when it was accepted, with its index."""
        node = member.node
        assert node is not None
        for entry in node.log.entries(Index(node.log.applied + 1), Index(index - 1)):
            if entry.kind is EntryKind.MEMBERSHIP:
                raise Violation(
                    f"{member.id} proposes a change at {index}, that of {entry.index} isn't applied yet"
                )

    def asked_to_hand_over(self, member: Member) -> None:
        member.seen.handing_over_at = member.ticks

    def asks(self) -> Asked:
        """What a read that begins now has to see."""
        return Asked(self.committed, self._latest_term)

    def confirmed(self, who: RaftId, answer: ReadAnswer, asked: Asked) -> None:
        if answer.index < asked.acknowledged:
            raise Violation(
                f"{who} may read at {answer.index}, when it asked {asked.acknowledged} was acknowledged"
            )
        if self._promises and answer.term < asked.term:
            raise Violation(
                f"{who} may read by the word of term {answer.term}, when it asked term {asked.term} had begun"
            )

    def returned(self, member: Member, asked: Asked) -> None:
        """A read is answered with the state of this moment."""
        applied = member.disk.applied
        if applied < asked.acknowledged:
            raise Violation(
                f"{member.id} reads at {applied}, when it was asked {asked.acknowledged} was acknowledged"
            )


def _heard_of(node: Node, other: RaftId) -> tuple[int, int, bool] | None:
    """What a leader has heard of another."""
    progress = node.progress.get(other)
    return (progress.match, progress.round, progress.recently_active) if progress is not None else None
