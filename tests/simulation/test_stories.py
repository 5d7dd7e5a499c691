"""Short stories: what one instance does at the wrong moment, and what must come of it."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.network import Delays
from tests.simulation.story import Story
from tests.simulation.workload import create_table


def test_a_master_that_stops_while_it_applies_a_change_aborts_nothing(tmp_path: Path) -> None:
    with Story(tmp_path) as story:
        story[2].machine.threads = Delays(5.0, 0.0)
        created = story.begin(1, create_table("s1"))
        story.until(lambda: story.node(2).own_tables._applying)
        story[2].stop()
        story.until(lambda: not story[2].is_up)
        story[2].machine.threads = Delays(0.0001, 0.0001)
        story[2].start()
        story.until(lambda: created.outcome)
        assert created.succeeded, str(created)
        story.check()


def test_an_instance_that_dies_between_joining_and_its_first_entry_finds_the_others_again(
    tmp_path: Path,
) -> None:
    with Story(tmp_path, 2) as story:
        late = story.cluster.add()
        story.look_after(late)
        story.cluster.network.delays = Delays(0.02, 0.01)
        late.start()
        story.until(lambda: late.node is not None)
        assert story.node(3).log.applied == 0
        late.kill()
        late.start()
        story.until(lambda: late.is_online)
        story.ok(3, create_table("s1"))
