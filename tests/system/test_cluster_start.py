"""Instances that start for the first time find each other, and begin one cluster: in whatever order they come, whatever
they were told of each other, and whoever is cut off or killed meanwhile."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.cluster import Cluster, Instance, eventually, instances_of

Clusters = Callable[..., Cluster]

BEGAN = "this instance begins cluster"

# Whom each of three knows, by number. All are connected, so that no two of them may begin a cluster.
LISTS: Mapping[str, Sequence[Sequence[int]]] = {
    "all": ((0, 1, 2), (0, 1, 2), (0, 1, 2)),
    "ring": ((1,), (2,), (0,)),
    "chain": ((0, 1), (1, 2), (2,)),
    "star": ((0,), (0,), (0,)),
}


def tell(cluster: Cluster, lists: Sequence[Sequence[int]]) -> None:
    for instance, known in zip(cluster.instances, lists, strict=True):
        instance.peers = [cluster.addresses[number] for number in known]


def one_cluster(cluster: Cluster) -> None:
    """It is one, with each instance in it once."""
    for instance in cluster.running:
        instance.await_ready()
    leader = cluster.settle()
    members = instances_of(leader)
    assert sorted(row["raft_id"] for row in members.values()) == list(range(1, len(cluster.instances) + 1))
    assert len({str(row["uuid"]) for row in members.values()}) == len(members)
    began = [instance for instance in cluster.instances if BEGAN in instance.log()]
    assert len(began) == 1, [instance.directory.name for instance in began]


def is_looking(instance: Instance) -> bool:
    return bool(instance.health())


@pytest.mark.parametrize(
    "lists, order",
    [
        *(("all", order) for order in itertools.permutations(range(3))),
        ("ring", (0, 1, 2)),
        ("ring", (2, 0, 1)),
        ("chain", (0, 1, 2)),
        ("chain", (1, 2, 0)),
        ("star", (2, 1, 0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(map(str, value)),
)
def test_one_after_another(clusters: Clusters, timing_scale: float, lists: str, order: Sequence[int]) -> None:
    """Each comes when the one before it is looking for the others, or has found a cluster."""
    cluster = clusters(3)
    tell(cluster, LISTS[lists])
    for number in order:
        instance = cluster.instances[number]
        instance.begin()
        eventually(lambda instance=instance: is_looking(instance), 30 * timing_scale)  # type: ignore[misc]
    one_cluster(cluster)


def test_one_that_is_cut_off_keeps_the_others_waiting(clusters: Clusters, timing_scale: float) -> None:
    """It might have begun a cluster of its own: nobody else may before it has answered."""
    cluster = clusters(3, links=True)
    assert cluster.links is not None
    cluster.links.isolate("i1")
    for instance in cluster.instances:
        instance.begin()
    for instance in cluster.instances:
        eventually(lambda instance=instance: is_looking(instance), 30 * timing_scale)  # type: ignore[misc]
    time.sleep(1.5 * timing_scale)  # as long as it takes to begin one, and longer
    assert not any(BEGAN in instance.log() for instance in cluster.instances)
    assert not any(instance.raft() for instance in cluster.instances)
    cluster.links.heal()
    one_cluster(cluster)


def test_answers_that_are_lost_in_one_direction(clusters: Clusters, timing_scale: float) -> None:
    """i3 hears the others, and isn't heard."""
    cluster = clusters(3, links=True)
    assert cluster.links is not None
    cluster.links.hold("i3", "i1")
    cluster.links.hold("i3", "i2")
    for instance in cluster.instances:
        instance.begin()
    eventually(lambda: all(map(is_looking, cluster.instances)), 30 * timing_scale)
    time.sleep(1.5 * timing_scale)
    assert not any(BEGAN in instance.log() for instance in cluster.instances)
    cluster.links.heal()
    one_cluster(cluster)


def killed_while_they_start(cluster: Cluster, seed: int, *, kills: int) -> None:
    """kill -9 at any moment of the first start, also of the one that has just begun the cluster."""
    chance = random.Random(seed)
    for instance in cluster.instances:
        instance.begin()
    for _ in range(kills):
        time.sleep(chance.uniform(0.05, 1.2))
        instance = chance.choice(cluster.instances)
        instance.kill()
        time.sleep(chance.choice((0.0, 0.3)))
        instance.begin()
    one_cluster(cluster)


@pytest.mark.parametrize("seed", range(2))
def test_killed_while_they_start(clusters: Clusters, seed: int) -> None:
    killed_while_they_start(clusters(3), seed, kills=4)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_five_with_any_lists_in_any_order(clusters: Clusters, timing_scale: float, seed: int) -> None:
    chance = random.Random(seed)
    cluster = clusters(5)
    lists = [{number} for number in range(5)] if chance.random() < 0.5 else [set[int]() for _ in range(5)]
    for number in range(1, 5):  # each knows one that came before it, or is known by it
        other = chance.randrange(number)
        lists[number if chance.random() < 0.7 or not lists[other] else other].add(
            other if number != other else number
        )
        lists[number].add(other)
    for known in lists:
        known.update(chance.sample(range(5), chance.randint(0, 2)))
    tell(cluster, [sorted(known) or [0] for known in lists])
    order = list(cluster.instances)
    chance.shuffle(order)
    for instance in order:
        instance.begin()
        time.sleep(chance.choice((0.0, 0.2, 1.0)) * timing_scale)
    one_cluster(cluster)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 110))
def test_killed_often_while_they_start(clusters: Clusters, seed: int) -> None:
    killed_while_they_start(clusters(3), seed, kills=10)
