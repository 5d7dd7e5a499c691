"""A simulated replicaset: its members, their catalog, its clients, and who does it harm. One seed is one run.

Here: Cluster, run_seed(), Outcome.
Not here: what a seed draws (knobs.py), what must hold (invariants.py), many seeds (sim/campaign.py).

First all is well for a moment; then come faults; then everything heals, and within a bounded time clients must be served
again, everybody be in_sync, and all tables be the same. A run in which too little was answered before or after
the faults has tested nothing, and says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from shoal.shard.config import Config
from shoal.shard.messages import Envelope, decode, encode
from shoal.shard.positions import ConfigVersion, MemberId
from shoal.sim.shard.catalog import CATALOG, Catalog, Status
from shoal.sim.shard.disk import ShardDisk
from shoal.sim.shard.invariants import Invariants, Violation
from shoal.sim.shard.knobs import MS, SECOND, Knobs, draw
from shoal.sim.shard.member import Clock, Member, Operation
from shoal.sim.shard.network import SHAPES, Network, one_alone
from shoal.sim.trace import Trace

CALM_US: Final = 1 * SECOND
HARM_US: Final = 6 * SECOND
_HEALED_US: Final = 40 * SECOND  # the most that a healed replicaset may need
_ENOUGH: Final = 5  # operations, before the faults and after them
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
    answered: int  # operations
    calm_answered: int
    stale_reads: int
    versions: int
    crashes: int
    snapshots: int
    healed_us: int


def run_seed(
    seed: int,
    *,
    members: int | None = None,
    harm_us: int = HARM_US,
    trace: Trace | None = None,
    promises: bool = True,
) -> Outcome:
    cluster = Cluster(seed, members=members, trace=trace, promises=promises)
    failure: str | None = None
    try:
        cluster.run(harm_us)
    except Violation as violation:
        failure = str(violation)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        failure = f"{type(error).__name__}: {error}{_where(error)}"
    return cluster.outcome(failure)


def _where(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f" ({at.tb_frame.f_code.co_qualname}, line {at.tb_lineno})" if at is not None else ""


class Cluster:
    def __init__(
        self, seed: int, *, members: int | None = None, trace: Trace | None = None, promises: bool = True
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.knobs = draw(self.rng, members)
        self.trace = trace
        self.now_us = 0
        self.step = 0
        self.harmful = False
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._crashes = 0
        self._operations = 0
        self._answered = 0
        self._calm_answered = 0
        self._stale_reads = 0
        self._healed_us = 0
        self._asks = True
        self._waiting: dict[int, int] = {}  # operations that clients wait for, and which client
        self.network = Network(self.knobs, self.rng, self.in_us)
        self._ids = ids = tuple(MemberId(id) for id in range(1, self.knobs.members + 1))
        first = Config(version=ConfigVersion(1), master=ids[0], in_sync=ids[:1], members=ids, target=ids[0])
        self.invariants = Invariants(self, promises=promises)
        self.catalog = Catalog(self, first)
        self.members: dict[MemberId, Member] = {}
        for id in ids:
            disk = ShardDisk(
                chunk_bytes=self.knobs.chunk_bytes,
                entry_writes=self.knobs.entry_writes,
                apply_entries=self.knobs.apply_entries,
            )
            drift = self.knobs.limits.drift * self.knobs.clocks
            rate = 1 + drift * self.rng.choice((-1.0, 0.0, 1.0, 2 * self.rng.random() - 1))
            clock = Clock(lambda: self.now_us, rate, -self.rng.randint(0, 10 * SECOND))
            self.members[id] = Member(self, id, disk, clock)
        for member in self.members.values():
            member.start()

    def tell(self, text: str) -> None:
        if self.trace is not None:
            self.trace.add(self.now_us, text)

    # --- the clock -------------------------------------------------------------------------------

    def at_us(self, us: int, event: Callable[[], None]) -> None:
        self._scheduled += 1  # events of the same moment happen in the order in which they were asked for
        heapq.heappush(self._events, (us, self._scheduled, event))

    def in_us(self, us: int, event: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._events, (self.now_us + us, self._scheduled, event))

    def _time(self, mean_us: float) -> int:
        return int(self.rng.expovariate(1.0) * mean_us) + 1

    def _run_until(self, us: int) -> None:
        events, pop, network = self._events, heapq.heappop, self.network
        while events and events[0][0] <= us:
            now, _, event = pop(events)
            self.now_us = network.now_us = now
            self.step += 1
            event()
        self.now_us = us
        if self.step > _EVENTS_MAX:
            raise Violation(f"{self.step} events: the members talk without an end")

    def run(self, harm_us: int) -> None:
        knobs = self.knobs
        for client in range(knobs.clients):
            self._ask(client)
        self._recurring(40 * MS, self.catalog.govern, always=True)
        self._recurring(10 * MS, self._look)
        for every_us, event in (
            (knobs.fault_us, self._fault),
            (knobs.hand_over_us, self._want_another_master),
        ):
            if every_us:
                self._recurring(every_us, event)
        while self._answered < _ENOUGH and self.now_us < 10 * CALM_US:
            self._run_until(self.now_us + CALM_US)
        self._calm_answered = self._answered
        self.harmful = True
        self.network.be_bad()
        self._run_until(self.now_us + harm_us)
        self._heal()
        self._check_liveness()

    def _recurring(self, every_us: int, event: Callable[[], None], *, always: bool = False) -> None:
        def happens() -> None:
            if always or self.harmful:
                event()
            self.in_us(self._time(every_us), happens)

        self.in_us(self._time(every_us), happens)

    # --- messages --------------------------------------------------------------------------------

    def send(self, envelope: Envelope) -> None:
        if self.knobs.over_the_wire:
            envelope = decode(encode(envelope))
        receiver = self.members[envelope.receiver]
        self.network.send(envelope.sender, envelope.receiver, lambda: receiver.deliver(envelope))

    def to_catalog(self, sender: MemberId, status: Status) -> None:
        self.network.send(sender, CATALOG, lambda: self.catalog.on_status(status))

    def tell_catalog(self, member: MemberId, index: int, echo_us: int | None) -> None:
        late_us = self._time(self.knobs.catalog_us) if self.knobs.catalog_us and self.harmful else 0
        receiver = self.members[member]

        def arrives() -> None:
            self.in_us(late_us, lambda: receiver.catalog_at(index, echo_us))

        self.network.send(CATALOG, member, arrives)

    def ask_for_index(self, member: MemberId, answered: Callable[[int], None]) -> None:
        def asked() -> None:
            index = self.catalog.read_index()
            if index is not None:
                self.network.send(CATALOG, member, lambda: answered(index))

        self.network.send(member, CATALOG, asked)

    # --- clients ---------------------------------------------------------------------------------

    def _ask(self, client: int) -> None:
        """Whoever has no answer after a while asks for something else."""
        if not self._asks:
            return
        operation = self._operation()
        self._waiting[operation.number] = client
        member = self._whom_to_ask()
        self.in_us(self._time(200), lambda: member.ask(operation))
        self.in_us(100 * MS + 2 * self.knobs.read_us, lambda: self._is_done(operation.number))

    def _is_done(self, number: int) -> None:
        client = self._waiting.pop(number, None)
        if client is not None:
            think_us = (
                self.knobs.think_us
                if self.harmful
                else max(self.knobs.think_us, 50 * MS * self.knobs.clients)
            )
            self.in_us(self._time(think_us), lambda: self._ask(client))

    def answered(self, operation: Operation, *, stale: bool = False) -> None:
        self._stale_reads += stale
        self._answered += not stale
        self._is_done(operation.number)

    def _operation(self) -> Operation:
        rng, knobs = self.rng, self.knobs
        self._operations += 1
        reads = rng.random() < knobs.reads
        count = min(knobs.keys, rng.randint(1, knobs.writes_max))
        keys = tuple(f"k{at}" for at in rng.sample(range(knobs.keys), count))
        absent = not reads and rng.random() < knobs.inserts
        if absent and rng.random() < 0.5:
            keys = (f"n{self._operations}",)
        return Operation(
            number=self._operations,
            reads=reads,
            keys=keys,
            values=() if reads else tuple(self._operations * 10 + at for at in range(len(keys))),
            only_if_absent=absent,
            floors={key: self.invariants.floor(key) for key in keys},
            replica_ok=rng.random() < 0.7,
        )

    def _whom_to_ask(self) -> Member:
        """Who has been told of another master late asks one of before."""
        rng = self.rng
        if rng.random() < self.knobs.stray:
            masters = self._masters()
            return (
                rng.choice(masters) if masters and rng.random() < 0.5 else self.members[rng.choice(self._ids)]
            )
        return self.members[self.catalog.config.master]

    def _look(self) -> None:
        self.members[self.rng.choice(self._ids)].look([f"k{at}" for at in range(self.knobs.keys)])

    # --- harm ------------------------------------------------------------------------------------

    def _up(self) -> list[Member]:
        return [member for member in self.members.values() if member.replica is not None]

    def _masters(self) -> list[Member]:
        return [m for m in self._up() if m.replica is not None and m.replica.master is not None]

    def crashed(self, member: Member) -> None:
        """It comes back later; the others may notice at once."""
        self._crashes += 1
        down_us = self._time(self.knobs.down_us) if self.harmful else 10 * MS
        self.in_us(down_us, member.restart)
        if self.rng.random() < self.knobs.notice:
            self.in_us(self._time(MS), lambda: self._notice(member))

    def _notice(self, gone: Member) -> None:
        for member in self._up():
            if member is not gone and not gone.is_up and (member.id, gone.id) not in self.network.cut:
                member.unreachable(gone.id)

    def _want_another_master(self) -> None:
        self.catalog.want_master(self.rng.choice(self.catalog.config.members))

    def _fault(self) -> None:
        rng, network = self.rng, self.network
        up = self._up()
        match rng.randint(0, 16):
            case 0 | 1 | 2:
                order = [CATALOG, *self.members] if rng.random() < 0.5 else list(self.members)
                rng.shuffle(order)
                masters = self._masters()
                if masters and rng.random() < 0.6:  # where it hurts
                    order.remove(masters[-1].id)
                    order.insert(0, masters[-1].id)
                shape = rng.choice(SHAPES)
                network.cut = shape(order)
                self.tell(f"the network is cut: {shape.__name__} of {order}")
            case 3 | 4:
                network.heal_links()
                self.tell("the network is whole")
            case 5 if up:
                rng.choice(up).crash("by chance")
            case 6:
                for master in self._masters():
                    master.crash("while it is the master")
            case 7 if rng.random() < 0.4:
                for member in up:
                    member.crash("with all others")
            case 8:
                sender, receiver = rng.sample([CATALOG, *self.members], 2)
                network.clogged[sender, receiver] = self._time(self.knobs.limits.lease_us)
                self.tell(f"the path from {sender} to {receiver} is clogged")
            case 9 if self.knobs.pauses and up:
                member = rng.choice(self._masters() or up)
                member.pause(self._time(2 * self.knobs.limits.lease_us))
                self.tell(f"{member.id} stands still")
            case 10 if self.knobs.outages:
                self._nobody_leads()
            case 11 if self.knobs.full_disks and up:
                self._fill(rng.choice(up))
            case 12 if up:
                member, other = rng.choice(up), rng.choice(sorted(self.members))
                self.tell(f"{member.id} is told that {other} can't be reached")
                member.unreachable(other)
            case 13 | 14 | 15 | 16:
                self.usurp()

    def usurp(self) -> None:
        """The master is well, and can't hear that another one takes over; perhaps one that has just started again."""
        rng, network, config = self.rng, self.network, self.catalog.config
        master = config.master
        if rng.random() < 0.8:
            network.cut |= {(CATALOG, master), (master, CATALOG)}
        if rng.random() < 0.4:
            network.cut |= one_alone([master, *(other for other in self._ids if other != master)])
        for other in config.in_sync:
            if other != master and rng.random() < 0.5:
                network.clogged[other, master] = self._time(self.knobs.limits.lease_us / 2)
        self.tell(f"{master}, the master, is taken for dead")
        if rng.random() < 0.3 and self.members[master].is_up:
            self.members[master].pause(self._time(1.5 * self.knobs.limits.lease_us))
            self.tell("… and stands still")
        if rng.random() < 0.3:
            for member in self._up():
                if member.id in config.in_sync and member.id != master:
                    self.in_us(self._time(5 * MS), partial(self._start_again, member))
        self.in_us(self._time(10 * MS), lambda: self.catalog.depose(self.members))
        if self.harmful and rng.random() < 0.3:
            self.in_us(self._time(self.knobs.limits.lease_us / 3), self._usurp_again)

    def _usurp_again(self) -> None:
        if self.harmful:
            self.usurp()

    def _start_again(self, member: Member) -> None:
        if member.is_up:
            member.crash("and comes back at once")
            member.restart()

    def _nobody_leads(self) -> None:
        self.tell("the catalog has no leader")
        self.catalog.away = True

        def is_back() -> None:
            self.tell("the catalog has a leader again")
            self.catalog.away = False
            self.catalog.forget()

        self.in_us(self._time(500 * MS), is_back)

    def _fill(self, member: Member) -> None:
        self.tell(f"the disk of {member.id} is full")
        member.disk_is_full = True

        def has_room() -> None:
            member.disk_is_full = False

        self.in_us(self._time(SECOND), has_room)

    # --- healing ---------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.harmful = False
        self.tell("all is healed")
        self.network.be_good()
        self.catalog.away = False
        for member in list(self.members.values()):
            member.disk_is_full = False
            if not member.is_up:
                member.start()

    def _check_liveness(self) -> None:
        healed_us = self.now_us
        late_us = int(self.knobs.tail_us * 1.1)  # what was sent before still arrives
        backlog_us = self.invariants.committed * 10 * MS  # an entry at a time, with an answer to each
        deadline_us = healed_us + _HEALED_US + late_us + backlog_us
        wanted = self._answered + max(_ENOUGH, self.knobs.clients)
        self._run_until(self.now_us + late_us)
        while self.now_us < deadline_us:
            if self._answered >= wanted and self._everybody_is_in_sync():
                break
            self._run_until(self.now_us + 50 * MS)
        else:
            raise Violation(
                f"healed, and not well after {_HEALED_US // SECOND} s: {self._answered - wanted + _ENOUGH} answers, "
                f"{self.catalog.config}"
            )
        self._healed_us = self.now_us - healed_us
        self._asks = False  # all that is under way comes to its end
        while self.now_us < deadline_us + SECOND:
            if self._is_still():
                return
            self._run_until(self.now_us + 50 * MS)
        states = {id: (member.disk.last, member.disk.applied) for id, member in self.members.items()}
        raise Violation(
            f"healed, and the members aren't the same: {states}, committed {self.invariants.committed}"
        )

    def _everybody_is_in_sync(self) -> bool:
        config = self.catalog.config
        return config.in_sync == config.members and config.target == config.master

    def _is_still(self) -> bool:
        committed = self.invariants.committed
        members = self.members.values()
        for disk in (member.disk for member in members):
            if disk.group_is_open or not disk.applied == disk.last == committed:
                return False
        wanted = {key: value for key, value in self.invariants.tables.items() if value is not None}
        for member in members:
            if member.disk.tables != wanted:
                raise Violation(f"{member.id} has applied all, and has another state")
        return True

    def outcome(self, failure: str | None) -> Outcome:
        if failure is None and self._calm_answered < _ENOUGH:
            failure = f"only {self._calm_answered} operations were answered before there was any fault"
        return Outcome(
            seed=self.seed,
            knobs=self.knobs,
            failure=failure,
            step=self.step,
            simulated_us=self.now_us,
            committed=self.invariants.committed,
            answered=self._answered,
            calm_answered=self._calm_answered,
            stale_reads=self._stale_reads,
            versions=self.catalog.config.version,
            crashes=self._crashes,
            snapshots=self.invariants.commit_snapshots,
            healed_us=self._healed_us,
        )
