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
from typing import TYPE_CHECKING

from shoal.raft.membership import changed
from shoal.raft.messages import (
    NOBODY,
    AppendReply,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Index,
    Membership,
    RaftId,
    SnapshotMark,
    Term,
    VoteReply,
    decode_change,
)
from shoal.raft.node import Role
from shoal.raft.store import Save
from shoal.sim.disk import State, digest_after

if TYPE_CHECKING:
    from shoal.sim.member import Member


class Violation(AssertionError):
    """An invariant doesn't hold: a bug of the core, or of the simulation."""


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
        self._seen: dict[
            tuple[Index, Term], tuple[Entry, Term]
        ] = {}  # an entry, and the term of the one before
        self._votes: dict[tuple[RaftId, Term], RaftId] = {}
        self._hard: dict[RaftId, HardState] = {}
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
        if node.role is Role.LEADER and member.led_term != node.term:
            member.led_term = node.term
            self._elected(member)
        if node.log.commit != member.seen_commit:
            self._commit_moved(member)
        if node.membership is not member.seen_membership:
            member.seen_membership = node.membership
            self._check_membership(member)

    def _elected(self, member: Member) -> None:
        node = member.node
        assert node is not None
        leader = self._leaders.setdefault(node.term, member.id)
        if leader != member.id:
            raise Violation(f"{leader} and {member.id} both lead in term {node.term}")
        count = bisect_left(self._committed_in, node.term)  # so many were committed in earlier terms
        if count:
            self._check_has(member, Index(self._start.index + count))
        if self._latest is None or self._latest.led_term < node.term:
            self._latest = member

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
        log, seen = node.log, member.seen_commit
        if log.commit < seen:
            raise Violation(f"the commit of {member.id} went back from {seen} to {log.commit}")
        if log.commit > log.last_index:
            raise Violation(f"{member.id} has committed {log.commit} of a log that ends at {log.last_index}")
        if seen < log.mark.index:
            mark = log.mark
            if mark.index > self.committed or mark.term != self._term_at(mark.index):
                raise Violation(f"{member.id} has a snapshot at {mark.index}/t{mark.term} of another history")
            seen = mark.index
        member.seen_commit = log.commit
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
        if latest is not None and latest.led_term > node.term and latest.node is not None:
            if latest.node.role is Role.LEADER and latest.node.term == latest.led_term:
                self._check_has(latest, self.committed)
        if self._promises and node.role is Role.LEADER:
            # One step may commit, and then switch to other members; or the other way round.
            before = member.seen_membership or node.membership
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

    def saved(self, member: Member, save: Save) -> None:
        """Called when it is durable."""
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
        member.seen_commit = Index(0)
        member.seen_membership = None
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
            elif isinstance(message, AppendReply):
                if self._promises and not message.rejected and member.disk.last_index < message.index:
                    raise Violation(
                        f"{member.id} acknowledges {message.index}, its disk has {member.disk.last_index}"
                    )
            if self._promises and message.term > member.disk.hard_state.term:
                if not getattr(message, "pre", False):
                    raise Violation(f"{member.id} sends {message}, its disk has {member.disk.hard_state}")

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

    def read(self, who: RaftId, index: Index, acknowledged: Index) -> None:
        if index < acknowledged:
            raise Violation(f"{who} may read at {index}, when it asked {acknowledged} was acknowledged")
