"""Schema changes by several clients while instances are killed and frozen, whoever they are: in the end all agree with each
other, and with what the clients were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.cluster import Cluster, Instance, NotInTime, eventually
from tests.system.conftest import clusters
from tests.system.schema_writers import SchemaWriter
from tests.system.test_schema_scenarios import PENDING, agree, leader_rows, owner

__all__ = ["clusters"]  # a fixture

ROUNDS = 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_to_instances(
    clusters: Callable[..., Cluster], timing_scale: float, seed: int
) -> None:
    chance = random.Random(seed)
    cluster = clusters(3)
    cluster.start()
    cluster.settle()
    master = owner(cluster)
    writers = [SchemaWriter(number, seed) for number in (1, 2, 3)]
    for _ in range(ROUNDS):
        threads = [threading.Thread(target=writer.run, args=(master,)) for writer in writers]
        for thread in threads:
            thread.start()
        for _ in range(chance.randint(1, 3)):
            _await_more(writers, chance.randint(2, 15), timing_scale)
            _disturb(chance.choice(cluster.instances), chance)
        _await_more(writers, 3, timing_scale)
        master.kill()
        for thread in threads:
            thread.join()
        for writer in writers:
            if writer.failure is not None:
                raise writer.failure
        master.start()
        cluster.settle()
        eventually(lambda: not leader_rows(master, PENDING), 60 * timing_scale, "nothing is pending")
        agree(cluster, timing_scale)
        for writer in writers:
            writer.check(master)
    assert sum(writer.changes for writer in writers) > 5 * ROUNDS


def _disturb(victim: Instance, chance: random.Random) -> None:
    seconds = chance.choice((0.0, 0.3, 1.0, 3.0))
    if chance.random() < 0.5:
        with victim.frozen():
            time.sleep(seconds)
    else:
        victim.kill()
        time.sleep(seconds)
        victim.start()


def _await_more(writers: list[SchemaWriter], count: int, timing_scale: float) -> None:
    """As long as somebody goes on: those whose instance was killed have ended."""
    enough = sum(writer.acknowledged for writer in writers) + count
    try:
        eventually(
            lambda: (
                any(writer.failure for writer in writers)
                or all(writer.unanswered is not None for writer in writers)
                or sum(writer.acknowledged for writer in writers) >= enough
            ),
            30 * timing_scale,
        )
    except NotInTime:
        pass  # the instance was killed between two statements
