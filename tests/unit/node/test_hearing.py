"""What the leader hears, beat by beat: time is what the test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from shoal.governor.rules.offline import evidence
from shoal.node.hearing import Hearing
from shoal.raft.messages import Index
from shoal.raft.progress import Inflight, Progress, State

BEAT = 0.1
SECONDS = 2.0


class Leader:
    """Of three, and the clock."""

    def __init__(self) -> None:
        self.log = SimpleNamespace(applied=100, mark=SimpleNamespace(index=0))
        self.progress = {member: self.member() for member in (1, 2, 3)}
        self.core = SimpleNamespace(id=1, is_leader=True, progress=self.progress, log=self.log)
        self.timers: list[tuple[float, Any]] = []
        self.lost = 0
        self.hearing = Hearing(
            cast(Any, self.core),
            cast(Any, self),
            seconds=lambda: SECONDS,
            should_be_online=lambda raft_id: raft_id != 9,
            lost=self.on_lost,
            scale=1.0,
        )
        self.hearing.on_role()

    def member(self, match: int = 100) -> Progress:
        progress = Progress(Inflight(10, 1000), Index(match + 1))
        progress.match, progress.state = Index(match), State.REPLICATE
        return progress

    # --- the loop's side

    def call_later(self, seconds: float, call: Any) -> Any:
        self.timers.append((seconds, call))
        return SimpleNamespace(cancel=self.timers.clear)

    def on_lost(self) -> None:
        self.lost += 1

    # --- the test's side

    def lead(self, leads: bool) -> None:
        self.core.is_leader = leads
        self.hearing.on_role()

    def beats(self, count: int, *heard: int) -> None:
        for _ in range(count):
            (timer,) = self.timers
            self.timers.clear()
            assert timer[0] == BEAT
            timer[1]()
            for raft_id in heard:
                self.hearing.heard(raft_id)

    def says(self, raft_id: int) -> str | None:
        return evidence(self.hearing.of_all()[raft_id], SECONDS)


def test_silence_is_counted_in_beats() -> None:
    leader = Leader()
    leader.beats(19, 2)
    assert leader.says(3) is None and leader.lost == 0
    leader.beats(1, 2)
    assert leader.says(3) == "silent for 2 s" and leader.lost == 1
    assert leader.says(2) is None
    leader.hearing.heard(3)
    assert leader.says(3) is None


def test_a_loop_that_was_held_up_blames_nobody() -> None:
    """It beats once, however long that took; what came meanwhile is heard before the next beat."""
    leader = Leader()
    leader.beats(10, 2, 3)
    for _ in range(5):  # a minute each, say
        leader.beats(1)
        assert leader.says(2) is None and leader.says(3) is None
        leader.hearing.heard(2)
        leader.hearing.heard(3)
    assert leader.lost == 0


def test_a_new_leader_has_heard_nothing_yet() -> None:
    leader = Leader()
    leader.beats(15)
    leader.lead(False)
    assert leader.hearing.of_all() == {} and not leader.timers
    leader.lead(True)
    leader.beats(19)
    assert leader.says(2) is None
    leader.beats(1)
    assert leader.says(2) == "silent for 2 s"


def test_nobody_listens() -> None:
    leader = Leader()
    leader.beats(1, 2, 3)
    leader.hearing.refused(3)
    assert leader.says(3) == "nobody listens at its address" and leader.lost == 1
    leader.hearing.heard(3)
    assert leader.says(3) is None
    # What was before it has started again doesn't count.
    leader.hearing.refused(3)
    leader.beats(15)
    leader.hearing.began_anew(3)
    leader.beats(19)
    assert leader.says(3) is None
    # A follower notes it, too, and it counts as soon as it leads.
    leader.lead(False)
    lost = leader.lost
    leader.hearing.refused(2)
    assert leader.lost == lost
    leader.lead(True)
    leader.beats(1, 3)
    assert leader.says(2) == "nobody listens at its address"


def test_one_that_answers_and_does_nothing() -> None:
    leader = Leader()
    leader.progress[3] = leader.member(match=60)
    leader.beats(100, 2, 3)  # in the first it has come so far
    assert leader.says(3) is None
    leader.beats(1, 2, 3)
    assert leader.says(3) == "it answers, and has applied nothing for 10 s"
    assert leader.says(2) is None


def test_one_that_is_slow() -> None:
    leader = Leader()
    leader.progress[3] = leader.member(match=1)
    for match in range(2, 20):
        leader.log.applied += 1000
        leader.beats(90, 2, 3)
        leader.progress[3].match = Index(match)
        assert leader.says(3) is None
    # Entries that the leader itself has not applied yet are nobody's fault.
    leader.progress[3].match = leader.log.applied
    leader.beats(200, 2, 3)
    assert leader.says(3) is None


def test_one_that_needs_a_snapshot() -> None:
    leader = Leader()
    leader.progress[3] = leader.member(match=1)
    leader.log.mark.index = 50
    leader.beats(200, 2, 3)
    assert leader.says(3) is None
    leader.log.mark.index = 0
    leader.progress[3].become_snapshot(Index(100))
    leader.beats(200, 2, 3)
    assert leader.says(3) is None


def test_whoever_is_no_member_any_more_is_forgotten() -> None:
    leader = Leader()
    leader.beats(30, 2)
    del leader.progress[3]
    lost = leader.lost
    leader.beats(5, 2)
    assert 3 not in leader.hearing.of_all()
    # Nor is one looked for that isn't to be Online.
    leader.progress[9] = leader.member()
    leader.beats(30, 2)
    assert leader.says(9) == "silent for 2 s"
    assert leader.lost == lost
