"""A simulated cluster: its members, its clients, and who does it harm. One seed is one run.

Here: Cluster, run_seed(), Outcome.
Not here: what a seed draws (knobs.py), what must hold (invariants.py), many seeds (campaign.py).

First comes the safety phase: faults, while clients propose, read, hand the leadership over and change the members.
Then everything heals, and within a bounded time there must be a leader, a write must commit, and all members must
have the same state. A cluster that is safe because it stands still has not passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from shoal.errors import NotLeader, ProposalDropped
from shoal.raft.membership import RefusedChange
from shoal.raft.messages import (
    ChangeKind,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    SnapshotMark,
    Term,
    encode_change,
)
from shoal.raft.node import Node
from shoal.sim.disk import Disk
from shoal.sim.invariants import Invariants, Violation
from shoal.sim.knobs import ENTRIES_US_MAX, INSTANCES_MAX, REPLAY_TICKS, TICK_US, Knobs, draw
from shoal.sim.member import Member
from shoal.sim.network import SHAPES, Link, Network, between, deaf, mute
from shoal.sim.trace import Trace

TICKS: Final = 150  # of the safety phase
_HEALED_TICKS: Final = 600  # the most that a healed cluster may need
_MEMBERS_EVER: Final = 14
_EVENTS_MAX: Final = 400_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    knobs: Knobs
    failure: str | None
    step: int  # events until then
    simulated_us: int
    committed: int  # entries
    terms: int
    reads: int
    changes: int  # of the members
    crashes: int
    snapshots: int


def run_seed(
    seed: int,
    *,
    instances: int | None = None,
    ticks: int = TICKS,
    trace: Trace | None = None,
    promises: bool = True,
) -> Outcome:
    cluster = Cluster(seed, instances=instances, trace=trace, promises=promises)
    failure: str | None = None
    try:
        cluster.run(ticks)
    except Violation as violation:
        failure = str(violation)
    except NameError:
        raise  # a slip of the pen, and no behaviour
    except Exception as error:
        failure = f"{type(error).__name__}: {error}{_where(error)}"
    return cluster.outcome(failure)


def _where(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f" ({at.tb_frame.f_code.co_qualname}, line {at.tb_lineno})" if at is not None else ""


class Cluster:
    def __init__(
        self, seed: int, *, instances: int | None = None, trace: Trace | None = None, promises: bool = True
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.knobs = draw(self.rng, instances)
        self.trace = trace
        self.now_us = 0
        self.step = 0
        self.harmful = True  # until the cluster is healed
        self.reads_answered = 0
        self._events: list[tuple[int, int, Callable[[object], None], object]] = []
        self._scheduled = 0
        self._crashes = 0
        self._proposed = 0
        self._requests = 0
        self.members: dict[RaftId, Member] = {}
        self.network = Network(self.knobs, self.rng, self._deliver_in, self._lost)
        first = tuple(RaftId(id) for id in range(1, self.knobs.instances + 1))
        voters = self.knobs.instances - self.knobs.learners
        members = Membership(first[:voters], first[voters:])
        mark, entries = _beginning(members, self.knobs.snapshot_bootstrap)
        self.invariants = Invariants(mark, entries, promises=promises)
        for id in first:
            disk = Disk(self.knobs.chunk_bytes)
            disk.bootstrap(mark, entries, HardState(Term(1), commit=Index(mark.index + len(entries))))
            self.members[id] = Member(self, id, disk)

    def tell(self, text: str) -> None:
        if self.trace is not None:
            self.trace.add(self.now_us, text)

    # --- the clock -------------------------------------------------------------------------------

    def at_us(self, us: int, event: Callable[[object], None], argument: object) -> None:
        self._scheduled += 1  # events of the same moment happen in the order in which they were asked for
        heapq.heappush(self._events, (us, self._scheduled, event, argument))

    def in_us(self, us: int, event: Callable[[object], None], argument: object) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_us + us, self._scheduled, event, argument))

    def _ticks(self, mean: float) -> int:
        return int(self.rng.expovariate(1.0) * mean * TICK_US) + 1

    def _run_until(self, us: int) -> None:
        events, pop, network = self._events, heapq.heappop, self.network
        while events and events[0][0] <= us:
            now, _, event, argument = pop(events)
            self.now_us = network.now_us = now
            self.step += 1
            event(argument)
        self.now_us = us
        if self.step > _EVENTS_MAX:
            raise Violation(f"{self.step} events: the members talk without an end")

    def run(self, ticks: int) -> None:
        for member in self.members.values():
            member.start()
        for every, event in (
            (1 / self.knobs.proposals, self._propose),
            (1 / self.knobs.reads if self.knobs.reads else 0, self._read),
            (self.knobs.fault_period, self._fault),
            (self.knobs.leader_fault_period, self._harm_a_leader),
            (self.knobs.reconnect_period, self._reconnect),
            (self.knobs.membership_period, self._change_members),
            (self.knobs.transfer_period, self._transfer),
        ):
            if every:
                self._recurring(every, event)
        self._run_until(ticks * TICK_US)
        self._heal()
        self._check_liveness()

    def _recurring(self, every_ticks: float, event: Callable[[], None]) -> None:
        def happens(_: object) -> None:
            if self.harmful:
                event()
                self.in_us(self._ticks(every_ticks), happens, None)

        self.in_us(self._ticks(every_ticks), happens, None)

    # --- messages --------------------------------------------------------------------------------

    def _deliver_in(self, us: int, envelope: Envelope) -> None:
        sender, receiver = self.members[envelope.sender], self.members.get(envelope.receiver)
        if receiver is not None:
            self.in_us(us, self._deliver, (envelope, sender, sender.incarnation, receiver))

    def _deliver(self, what: object) -> None:
        assert isinstance(what, tuple)
        envelope, sender, incarnation, receiver = what
        lost = sender.lost_in_flight and (sender.incarnation != incarnation or sender.node is None)
        if not lost:
            receiver.deliver(envelope)

    def _lost(self, envelope: Envelope) -> None:
        """A connection broke over it, and its sender may notice."""
        if self.knobs.reports_loss and self.rng.random() < self.knobs.reports_loss:
            sender = self.members[envelope.sender]
            self.in_us(
                self.rng.randint(1, 20_000), self._report, (sender, sender.incarnation, envelope.receiver)
            )

    def _report(self, what: object) -> None:
        assert isinstance(what, tuple)
        sender, incarnation, receiver = what
        if sender.node is not None and sender.incarnation == incarnation:
            self.tell(f"{sender.id} is told that {receiver} can't be reached")
            sender.ask(lambda node: node.unreachable(receiver))

    def _reconnect(self) -> None:
        members = self.leaders() or self._up()
        if members:
            member = self.rng.choice(members)
            self.tell(f"{member.id} finds all its connections broken")
            others = sorted(self.members)

            def break_all(node: Node) -> None:
                for other in others:
                    node.unreachable(other)

            member.ask(break_all)

    # --- clients ---------------------------------------------------------------------------------

    def _up(self) -> list[Member]:
        return [member for member in self.members.values() if member.node is not None]

    def leaders(self) -> list[Member]:
        return [
            member for member in self.members.values() if member.node is not None and member.node.is_leader
        ]

    def _propose(self) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        leader = self.rng.choice(leaders)
        count = self.rng.randint(1, self.knobs.proposal_batch)
        self.propose(leader, count)

    def propose(self, leader: Member, count: int) -> None:
        data = []
        for _ in range(count):
            self._proposed += 1
            data.append(f"w{self._proposed}".encode().ljust(self.knobs.data_bytes, b"."))

        def arrives(node: Node) -> None:
            try:
                index = node.propose(data)
            except (NotLeader, ProposalDropped):
                return
            self.tell(f"client → {node.id}  writes {count} from {index}")

        leader.ask(arrives)

    def _read(self) -> None:
        leaders = self.leaders()
        asked = leaders if leaders and self.rng.random() < 0.5 else self._up()
        if asked:
            self.read(self.rng.choice(asked))

    def read(self, member: Member) -> None:
        self._requests += 1
        request, asked = self._requests, self.invariants.asks()

        def arrives(node: Node) -> None:
            try:
                node.read_index(request)
            except NotLeader:
                return
            member.reads[request] = asked
            self.tell(f"client → {node.id}  reads, {asked.acknowledged} was acknowledged: request {request}")

        member.ask(arrives)

    def _transfer(self) -> None:
        leaders = self.leaders()
        if leaders:
            leader, to = self.rng.choice(leaders), self.rng.choice(sorted(self.members))
            self.tell(f"client → {leader.id}  hand over to {to}")
            self._hand_over(leader, to)

    def _hand_over(self, leader: Member, to: RaftId) -> None:
        def arrives(node: Node) -> None:
            node.transfer_leadership(to)
            self.invariants.asked_to_hand_over(leader)

        leader.ask(arrives)

    def elected(self, leader: Member) -> None:
        """Many wait for a leader, and ask the new one at once."""
        if self.harmful:
            soon_us = self.rng.randint(1, 3 * TICK_US)
            if self.knobs.membership_period:
                self.in_us(soon_us, self._changes_at_once, (leader, leader.incarnation))
            if self.knobs.reads:
                self.in_us(soon_us, self._reads_still, leader)

    def _changes_at_once(self, what: object) -> None:
        assert isinstance(what, tuple)
        leader, incarnation = what
        if self.harmful and leader.incarnation == incarnation and leader.node is not None:
            if leader.node.is_leader:
                self._change_members_of(leader)

    # --- members ---------------------------------------------------------------------------------

    def _change_members(self) -> None:
        leaders = self.leaders()
        if leaders:
            self._change_members_of(self.rng.choice(leaders))

    def _change_members_of(self, leader: Member) -> None:
        rng, change = self.rng, self._drawn_change(leader)
        if change is None:
            return
        for _ in range(rng.choice((1, 1, 2))):  # the second one comes too early
            if self._propose_change(leader, change):
                if rng.random() < 0.5:
                    leader.pump()
                else:
                    self.propose(leader, 1)

    def _propose_change(self, leader: Member, change: MembershipChange) -> bool:
        if leader.node is None:
            return False
        try:
            index = leader.node.propose_change(change)
        except (NotLeader, ProposalDropped, RefusedChange):
            return False
        self.tell(f"client → {leader.id}  {change.kind.name} {change.member} at {index}")
        self.invariants.proposes_change(leader, index)
        return True

    def _drawn_change(self, leader: Member) -> MembershipChange | None:
        assert leader.node is not None
        rng, change, members = self.rng, MembershipChange, leader.node.membership
        voters, learners = members.voters, members.learners
        match rng.randint(0, 5):
            case 0 | 1 if len(voters) + len(learners) < INSTANCES_MAX and len(self.members) < _MEMBERS_EVER:
                id = RaftId(max(self.members) + 1)  # an id is used once
                self.members[id] = Member(self, id, Disk(self.knobs.chunk_bytes))
                self.members[id].start()
                wild = self.knobs.wild_changes and rng.random() < 0.5
                return change(ChangeKind.ADD_VOTER if wild else ChangeKind.ADD_LEARNER, id)
            case 2 if learners:
                return change(ChangeKind.ADD_VOTER, rng.choice(learners))
            case 3:
                return change(ChangeKind.ADD_LEARNER, rng.choice(voters))
            case 4:
                return change(ChangeKind.REMOVE, rng.choice(voters + learners))
            case 5:
                return change(ChangeKind.REMOVE, leader.id)
        return None

    def _expel(self) -> None:
        """Switches off who is removed, when all voters know that it is: from then on nobody needs it."""
        known = min(
            (self.members[voter].disk.applied for voter in self.invariants.membership.voters),
            default=Index(0),
        )
        if known < self.invariants.changes[-1][0]:
            return
        members = self.invariants.membership
        ever = {id for _, each in self.invariants.changes for id in (*each.voters, *each.learners)}
        gone = sorted(ever - {*members.voters, *members.learners})
        for id in gone:
            member = self.members[id]
            if not member.expelled and self.rng.random() < 0.5:
                if member.is_up:
                    member.crash("for good, it was removed")
                member.expelled = True

    # --- harm ------------------------------------------------------------------------------------

    def crashed(self, member: Member) -> None:
        """It comes back later; the others may notice at once."""
        self._crashes += 1
        if member.expelled:
            return
        self.in_us(self._ticks(self.knobs.down_ticks) if self.harmful else TICK_US, self._restart, member)
        if self.rng.random() < self.knobs.fast_failover:
            self.in_us(self.rng.randint(1, 20_000), self._notice, member)

    def _restart(self, member: object) -> None:
        assert isinstance(member, Member)
        if not member.is_up and not member.expelled:
            member.start()

    def _notice(self, gone: object) -> None:
        """Connections to it broke, and dialling was refused."""
        assert isinstance(gone, Member)
        for member in self._up():
            if member is gone or (member.id, gone.id) in self.network.cut or member.node is None:
                continue
            if self.rng.random() < 0.2:
                continue
            member.node.unreachable(gone.id)
            if member.node.leader == gone.id:
                self.tell(f"{member.id} sees that its leader {gone.id} is gone")
                member.node.leader_lost()
                member.node.campaign()
            member.pump()

    def _fault(self) -> None:
        rng = self.rng
        up = self._up()
        match rng.randint(0, 11):
            case 0 | 1 | 2:
                order = sorted(self.members)
                rng.shuffle(order)
                leaders = self.leaders()
                if leaders and rng.random() < 0.5:  # where it hurts
                    order.remove(leaders[-1].id)
                    order.insert(0, leaders[-1].id)
                shape = rng.choice(SHAPES)
                self.network.cut = shape(order)
                self.tell(f"the network is cut: {shape.__name__} of {order}")
            case 3 | 4:
                self.network.heal_links()
                self.tell("the network is whole")
            case 5 | 6 if up:
                rng.choice(up).crash("by chance")
            case 7:
                for leader in self.leaders():
                    leader.crash("while it leads")
            case 8 if rng.random() < 0.4:
                for member in up:
                    member.crash("with all others")
            case 9 if len(self.members) > 1:
                sender, receiver = rng.sample(sorted(self.members), 2)
                self.network.clogged[sender, receiver] = self._ticks(10)
                self.tell(f"the path from {sender} to {receiver} is clogged")
            case 10 if self.knobs.pauses and up:
                member = rng.choice(self.leaders() or up)
                member.pause(self._ticks(2 * self.knobs.limits.election_ticks))
                self.tell(f"{member.id} stands still")
            case 11 if up:
                self._unfounded(rng.choice(up))
        self._expel()

    def _harm_a_leader(self) -> None:
        """What hurts most: whoever leads loses some or all of the others, its process, or time."""
        rng, leaders = self.rng, self.leaders()
        if not leaders:
            return
        leader = rng.choice(leaders)
        others = [id for id in sorted(self.members) if id != leader.id]
        rng.shuffle(others)
        while_us = int(self.knobs.limits.election_ticks * TICK_US * (1 + 3 * rng.random()))
        match rng.randint(0, 8):
            case 0:
                leader.crash("while it leads")
                return
            case 1 | 2 if self.knobs.pauses:
                self.tell(f"{leader.id} stands still, and leads")
                leader.pause(while_us)
            case 3:
                self._cut_for(while_us, deaf([leader.id, *others]))
            case 4:
                self._cut_for(while_us, mute([leader.id, *others]))
            case 5 if others:
                self._cut_for(while_us, mute([*others, leader.id]))
                self.tell(f"client → {leader.id}  hand over to {others[0]}, whom nobody hears")
                self._hand_over(leader, others[0])
            case _:
                friends = self._minority(leader, others)
                self._cut_for(while_us, between(friends, [id for id in others if id not in friends]))
        # Some clients know no other leader.
        for _ in range(rng.randint(0, 6)):
            self.in_us(rng.randint(0, while_us), self._asks_still, leader)

    def _minority(self, leader: Member, others: list[RaftId]) -> list[RaftId]:
        """A leader, and some with whom it is no majority: learners may be as many as they like."""
        assert leader.node is not None
        voters = leader.node.membership.voters
        places = self.rng.randint(0, max(0, (len(voters) - 1) // 2 - 1))
        friends = [leader.id]
        for id in others:
            if id not in voters:
                friends.append(id)
            elif places:
                places -= 1
                friends.append(id)
        return friends

    def _asks_still(self, member: object) -> None:
        assert isinstance(member, Member)
        if not self.harmful:
            return
        if self.rng.random() < 0.5:
            self.propose(member, 1)
        else:
            for _ in range(self.rng.randint(1, 3)):
                self.in_us(self.rng.randint(1, 3 * TICK_US), self._reads_still, member)

    def _reads_still(self, member: object) -> None:
        assert isinstance(member, Member)
        self.read(member)

    def _cut_for(self, us: int, links: set[Link]) -> None:
        self.tell(f"the network is cut: {sorted(links)}")
        self.network.cut = links
        self.in_us(us, self._mend, links)

    def _mend(self, links: object) -> None:
        if self.network.cut is links:
            self.tell("the network is whole")
            self.network.cut = set()

    def _unfounded(self, member: Member) -> None:
        """What a member may be told though nothing has happened."""
        node = member.node
        assert node is not None
        match self.rng.randint(0, 2):
            case 0:
                node.campaign()
                self.tell(f"{member.id} is told to campaign")
            case 1:
                node.leader_lost()
                self.tell(f"{member.id} is told that its leader is lost")
            case 2:
                other = self.rng.choice(sorted(self.members))
                node.unreachable(other)
                self.tell(f"{member.id} is told that {other} can't be reached")
        member.pump()

    # --- healing ---------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.harmful = False
        self.tell("all is healed")
        self.network.heal()
        for member in list(self.members.values()):
            member.timeouts.collide = 0.0
            member.paused_until_us = 0
            if not member.is_up and not member.expelled:
                member.start()

    def _check_liveness(self) -> None:
        healed_us = self.now_us
        # What was sent before still arrives.
        late_us = max(self.knobs.tail_us + ENTRIES_US_MAX, REPLAY_TICKS * TICK_US)
        deadline_us = healed_us + _HEALED_TICKS * TICK_US + late_us
        written = self.invariants.committed
        while self.now_us < deadline_us:
            leaders = self.leaders()
            if self.invariants.committed <= written:
                if leaders:
                    self.propose(
                        max(leaders, key=lambda member: member.node.term if member.node is not None else 0), 1
                    )
            elif self._has_converged():
                self._check_calm(healed_us + late_us)
                return
            self._run_until(self.now_us + TICK_US)
        leading = [member.id for member in self.leaders()]
        applied = {member.id: member.disk.applied for member in self._up()}
        raise Violation(
            f"healed, and not well after {_HEALED_TICKS} ticks: leaders {leading}, committed {self.invariants.committed} "
            f"(then {written}), applied {applied}, {self.invariants.membership}"
        )

    def _check_calm(self, late_until_us: int) -> None:
        """Nothing happens any more, so the leader stays. Not where clocks or limits are such that patience ends between
        two heartbeats."""
        limits, drift = self.knobs.limits, self.knobs.drift / 2
        elections = self.knobs.watch_elections
        if not elections or limits.heartbeat_ticks * (1 + drift) + 1 > limits.election_ticks * (1 - drift):
            return
        election_us = 2 * limits.election_ticks * TICK_US
        self._run_until(max(late_until_us, self.now_us) + 2 * election_us)
        before = [(leader.id, leader.seen.led_term) for leader in self.leaders()]
        self._run_until(self.now_us + elections * election_us)
        after = [(leader.id, leader.seen.led_term) for leader in self.leaders()]
        if len(before) != 1 or before != after:
            raise Violation(f"nothing happens, and the leader doesn't stay: first {before}, then {after}")

    def _has_converged(self) -> bool:
        members = self.invariants.membership
        return all(
            self.members[id].disk.applied == self.invariants.committed
            for id in (*members.voters, *members.learners)
        )

    def outcome(self, failure: str | None) -> Outcome:
        return Outcome(
            seed=self.seed,
            knobs=self.knobs,
            failure=failure,
            step=self.step,
            simulated_us=self.now_us,
            committed=len(self.invariants.history),
            terms=max((member.disk.hard_state.term for member in self.members.values()), default=0),
            reads=self.reads_answered,
            changes=len(self.invariants.changes) - 1,
            crashes=self._crashes,
            snapshots=self.invariants.installs,
        )


def _beginning(first: Membership, from_mark: bool) -> tuple[SnapshotMark, tuple[Entry, ...]]:
    """Who comes later learns from the log, or from a snapshot, who the first ones are."""
    if from_mark:
        return SnapshotMark(Index(1), Term(1), first), ()
    changes = (
        *(MembershipChange(ChangeKind.ADD_VOTER, id) for id in first.voters),
        *(MembershipChange(ChangeKind.ADD_LEARNER, id) for id in first.learners),
    )
    entries = tuple(
        Entry(Index(at + 1), Term(1), EntryKind.MEMBERSHIP, encode_change(change))
        for at, change in enumerate(changes)
    )
    return SnapshotMark(Index(0), Term(0), Membership()), entries
