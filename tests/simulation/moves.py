"""One story, told again and again: each time leadership moves at another moment of what the governor does.

Here: the story, which has every kind of step in it; Point, a moment; WAYS, how leadership moves; moments(), and told_with().
Not here: which of them a test takes (test_moves.py).

A point is an event of a step that is being carried out: the step's task begins or goes on, a timer of it is due, or
something that it waits for has come. There the leader is taken away. In three of the four ways it goes on as if nothing
had happened, with what it was about to do: it must change nothing, since another leads by then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.raft.messages import Envelope, TimeoutNow, encode
from tests.simulation.clients import Statement
from tests.simulation.history import Disagreement
from tests.simulation.instance import SimInstance
from tests.simulation.loop import Handle, InstanceLoop
from tests.simulation.story import Story
from tests.simulation.workload import Insert, Op, ShardedInsert, create_table

_STEP: Final[ContextVar[tuple[str, int] | None]] = ContextVar("the governor's step", default=None)

_GIVE_UP_SECONDS: Final = 8.0  # where nobody else can lead, the leader is given back
_HEAL_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Point:
    """The `event`-th event of the `nth` step of a kind."""

    step: str
    nth: int
    event: int

    def __str__(self) -> str:
        return f"{self.step}, {self.nth}.{self.event}"


class Watch:
    """Sees every point of a story, and does something at one of them."""

    def __init__(self, story: Story, at: Point | None, do: Callable[[SimInstance], None]) -> None:
        self.points: list[Point] = []
        self.done = False
        self._story = story
        self._at = at
        self._do = do
        self._steps: Counter[str] = Counter()
        self._events: Counter[tuple[str, int]] = Counter()
        story.cluster.scheduler.context_of = self._context_of
        story.cluster.scheduler.before = self._before

    def _context_of(self, loop: InstanceLoop, coroutine: Any) -> Context | None:
        if coroutine.__qualname__ != "Governing._carry_out":
            return None
        label = _label(coroutine.cr_frame.f_locals["step"])
        self._steps[label] += 1
        context = copy_context()
        context.run(_STEP.set, (label, self._steps[label]))
        return context

    def _before(self, handle: Handle) -> None:
        step = handle.context.get(_STEP) if handle.context is not None else None
        if step is None or self.done:
            return
        self._events[step] += 1
        point = Point(*step, self._events[step])
        self.points.append(point)
        if point == self._at:
            self.done = True
            self._do(next(i for i in self._story.cluster.instances if i.loop is handle.loop))


def _label(step: Any) -> str:
    """Its kind, without the names of whom it is about."""
    why = re.sub(r"[a-z]+(_\d+)+|\d+|: .*", "", step.why)
    return f"{type(step).__name__} {' '.join(why.split())}"


# --- how leadership moves ------------------------------------------------------------------------


def _cut(story: Story, leader: SimInstance) -> None:
    """Nobody hears it, and it hears nobody, until another leads."""
    network = story.cluster.network
    number = leader.machine.number
    for instance in story.cluster.instances:
        if instance is not leader:
            network.cut(number, instance.machine.number)
            network.cut(instance.machine.number, number)
    _when_replaced(story, leader, network.heal)


def _freeze(story: Story, leader: SimInstance) -> None:
    """It stands still right there, and goes on when another leads."""
    loop = leader.loop
    assert loop is not None
    loop.freeze()
    _when_replaced(story, leader, loop.thaw)


def _kill(story: Story, leader: SimInstance) -> None:
    leader.kill()
    story.cluster.scheduler.call_later(0.5, lambda: None if leader.is_up else leader.start())


def _depose(story: Story, leader: SimInstance) -> None:
    """Another takes over while all hear each other: the old one learns of it a moment later."""
    assert leader.node is not None
    raft = leader.node.cluster.raft.core
    for instance in story.cluster.running:
        node = instance.node
        assert node is not None and instance.loop is not None
        core = node.cluster.raft.core
        if instance is not leader and core.id in raft.membership.voters:
            message = encode(Envelope(raft.id, core.id, TimeoutNow(raft.term)))
            story.cluster.scheduler.soon(
                Handle(instance.loop, 0.0, node.cluster.raft.receive, (message,), None)
            )
            return


WAYS: Final[dict[str, Callable[[Story, SimInstance], None]]] = {
    "cut": _cut,
    "freeze": _freeze,
    "kill": _kill,
    "depose": _depose,
}


def _when_replaced(story: Story, leader: SimInstance, do: Callable[[], None]) -> None:
    scheduler = story.cluster.scheduler
    end = scheduler.now + _GIVE_UP_SECONDS

    def look() -> None:
        others = [i.node for i in story.cluster.running if i is not leader and i.node is not None]
        if scheduler.now >= end or any(
            node.cluster.raft.is_leader and node.cluster.raft.core.has_committed_in_its_term
            for node in others
        ):
            # So that the new one has acted by the time that the old one is back.
            scheduler.call_later(0.3, do)
        else:
            scheduler.call_later(0.05, look)

    look()


# --- the story -----------------------------------------------------------------------------------


def moments(directory: Path) -> list[Point]:
    """Of the story, when nothing happens."""
    return _told(directory, None, lambda story, leader: None).points


def told_with(directory: Path, point: Point, way: str) -> None:
    """Raises Disagreement."""
    watch = _told(directory, point, WAYS[way])
    if not watch.done:
        raise Disagreement(f"{point} never came")


def _told(directory: Path, point: Point | None, way: Callable[[Story, SimInstance], None]) -> Watch:
    story = Story(directory, 3, flags={"raft_tick_ms": 30})
    watch = Watch(story, point, lambda leader: way(story, leader))
    try:
        with story:
            _Tale(story).tell()
    except AssertionError as error:
        how = next((name for name, known in WAYS.items() if known is way), "")
        raise Disagreement(f"{how} at {point}: {error}") from error
    return watch


class _Tale:
    """Schema changes of all kinds, those that are refused, too; instances that come, die, leave and are expelled."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def tell(self) -> None:
        story = self._story
        self._schema_changes()
        self._somebody_comes()
        self._a_voter_dies()
        self._the_leader_leaves()
        self._the_leader_is_expelled()
        self._until_whole()
        story.run(2.0)  # what was dropped is cleared when nobody waits for it
        story.cluster.check_files()
        replay = story.check()
        for instance in story.cluster.members:
            assert instance.node is not None
            if instance.node.catalog != replay.catalogs[instance.node.log.applied]:
                raise Disagreement(f"the catalog of {instance.name} isn't what the log adds up to")

    def _schema_changes(self) -> None:
        self._ask(2, create_table("g1"))
        self._ask(3, create_table("s1"))
        rows = ((1, 0, 7), (2, 0, 7))
        self._ask(1, Insert("INSERT INTO g1 (k, n, u) VALUES (1, 0, 7), (2, 0, 7)", "g1", rows))
        for key in (1, 2):
            self._ask(1, ShardedInsert(f"INSERT INTO s1 (k, n, u) VALUES ({key}, 0, 7)", "s1", key, 7))
        self._ask(2, "CREATE UNIQUE INDEX g1_u ON g1 (u)")
        self._ask(3, "CREATE UNIQUE INDEX s1_u ON s1 (u)")
        self._ask(1, "ALTER TABLE s1 ADD COLUMN a INT")
        self._ask(1, "TRUNCATE TABLE g1")
        self._ask(2, "DROP TABLE s1")

    def _somebody_comes(self) -> None:
        story = self._story
        self._until_whole()
        late = story.cluster.add()
        story.look_after(late)
        late.start()

    def _a_voter_dies(self) -> None:
        """Another votes in its place."""
        story = self._story
        self._until_whole()
        leader = story.cluster.leader()
        assert leader is not None and leader.node is not None
        voters = leader.node.cluster.raft.core.membership.voters
        victim = next(i for i in story.cluster.instances if i is not leader and _raft_id(i) in voters)
        raft_id = _raft_id(victim)
        victim.kill()
        story.until(lambda: raft_id not in self._voters(), _HEAL_SECONDS)
        victim.start()

    def _voters(self) -> tuple[int, ...]:
        leader = self._story.cluster.leader()
        return (
            () if leader is None or leader.node is None else leader.node.cluster.raft.core.membership.voters
        )

    def _the_leader_leaves(self) -> None:
        story = self._story
        self._until_whole()
        leader = story.cluster.leader()
        assert leader is not None
        leader.stop()
        story.until(lambda: not leader.is_up, _HEAL_SECONDS)
        leader.start()

    def _the_leader_is_expelled(self) -> None:
        """It hands over first. The first instance has all the buckets, so it must be another."""
        story = self._story
        first = story[1]
        self._until_whole()
        while (leader := story.cluster.leader()) is None or leader is first:
            if leader is not None and leader.node is not None and leader.loop is not None:
                to = next(voter for voter in self._voters() if voter != _raft_id(first))
                transfer = leader.node.cluster.raft.transfer_leadership
                story.cluster.scheduler.soon(Handle(leader.loop, 0.0, transfer, (to,), None))
            story.run(1.0)
        self._until_whole()
        assert leader.node is not None
        uuid = leader.node.cluster.identity.instance_uuid
        while not leader.expelled:
            said = self._ask(1, Op(f"ALTER SYSTEM EXPEL INSTANCE '{uuid}' FORCE"))
            if said.succeeded:
                story.until(lambda: leader.expelled, _HEAL_SECONDS)
            elif not said.is_unknown and said.sqlstate not in ("40001", "57P03", "55000"):
                raise Disagreement(f"it can't be expelled: {said}")

    def _ask(self, number: int, what: str | Op) -> Statement:
        story = self._story
        instance = story[number]
        story.until(lambda: instance.is_online and not instance.is_frozen, _HEAL_SECONDS)
        return story.ask(number, what, _HEAL_SECONDS)

    def _until_whole(self) -> None:
        cluster = self._story.cluster
        try:
            cluster.until(cluster.is_whole, _HEAL_SECONDS, "whole")
        except AssertionError as error:
            raise Disagreement(f"{error}\n{cluster.standing()}") from None


def _raft_id(instance: SimInstance) -> int:
    assert instance.node is not None
    return instance.node.cluster.identity.raft_id
