"""Links between instances that are cut, also in one direction or between two only, slow, reset or half open: who leads goes on
leading where it can, somebody else leads where it can't, and whoever was cut off catches up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, Instance, eventually
from tests.system.clients import rows


@pytest.fixture(scope="module")
def _three(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("links"), 3, links=True, timing_scale=timing_scale)
    try:
        cluster.start()
        cluster.settle().execute(
            "CREATE TABLE g (id INT PRIMARY KEY, n INT NOT NULL) DISTRIBUTED GLOBALLY",
            "INSERT INTO g VALUES (1, 0)",
        )
        yield cluster
        assert not cluster.bugs(), cluster.bugs()
    finally:
        cluster.close()


@pytest.fixture
def three(_three: Cluster) -> Iterator[Cluster]:
    """Whole, before and after."""
    _three.settle()
    yield _three
    assert _three.links is not None
    _three.links.heal()
    _three.settle()


def roles(cluster: Cluster) -> tuple[Instance, Instance, Instance]:
    leader = cluster.await_leader()
    one, other = (instance for instance in cluster.instances if instance is not leader)
    return leader, one, other


def hold(cluster: Cluster, speaker: Instance, hearer: Instance) -> None:
    assert cluster.links is not None
    cluster.links.hold(speaker.running.name, hearer.running.name)


def count_up(instance: Instance) -> int:
    with instance.connect() as connection:
        found = connection.execute("UPDATE g SET n = n + 1 WHERE id = 1 RETURNING n").fetchone()
    assert found is not None
    return int(found[0])


def has(instance: Instance, n: int) -> bool:
    return rows(instance, "SELECT n FROM g WHERE id = 1") == [(n,)]


def goes_on_leading(cluster: Cluster, leader: Instance, through: Instance, seconds: float) -> None:
    """In the same term, and what is written is written."""
    term = leader.raft()["term"]
    deadline = time.monotonic() + seconds * cluster.timing_scale
    while time.monotonic() < deadline:
        count_up(through)
        raft = leader.raft()
        assert (raft["state"], raft["term"]) == ("leader", term)
        time.sleep(0.05)


def test_who_does_not_hear_the_leader_deposes_nobody(three: Cluster) -> None:
    leader, deaf, other = roles(three)
    hold(three, leader, deaf)
    goes_on_leading(three, leader, other, 3.0)


def test_two_that_do_not_hear_each_other(three: Cluster) -> None:
    leader, one, other = roles(three)
    hold(three, leader, one)
    hold(three, one, leader)
    goes_on_leading(three, leader, other, 3.0)


def test_followers_that_do_not_hear_each_other(three: Cluster) -> None:
    leader, one, other = roles(three)
    hold(three, one, other)
    hold(three, other, one)
    goes_on_leading(three, leader, other, 1.5)


@pytest.mark.parametrize("deaf", [True, False], ids=["hears nobody", "is heard by nobody"])
def test_a_leader_without_the_others(three: Cluster, deaf: bool) -> None:
    """It steps down, or is replaced, and they go on."""
    leader, one, other = roles(three)
    for each in (one, other):
        if deaf:
            hold(three, each, leader)
        else:
            hold(three, leader, each)
    successor = three.await_leader([one, other], seconds=8)
    assert successor in (one, other)
    count_up(one)
    eventually(lambda: leader.raft()["state"] != "leader", 8 * three.timing_scale, "it leads no more")


def test_a_slow_network(three: Cluster) -> None:
    assert three.links is not None
    leader, one, other = roles(three)
    for speaker in three.instances:
        for hearer in three.instances:
            if speaker is not hearer:
                three.links.delay(speaker.running.name, hearer.running.name, 0.1)
    goes_on_leading(three, leader, one, 2.0)
    for speaker in three.instances:
        for hearer in three.instances:
            if speaker is not hearer:
                three.links.delay(speaker.running.name, hearer.running.name, 0.0)
                three.links.trickle(speaker.running.name, hearer.running.name, 20_000)
    goes_on_leading(three, leader, other, 2.0)


def test_connections_that_are_reset_again_and_again(three: Cluster) -> None:
    assert three.links is not None
    leader, one, other = roles(three)
    n = count_up(one)
    for _ in range(8):
        for a, b in ((leader, one), (leader, other), (one, other)):
            three.links.reset(a.running.name, b.running.name)
        n += 1
        assert count_up(one) == n  # nothing is lost, nothing happens twice
    eventually(lambda: all(has(instance, n) for instance in three.instances), 10 * three.timing_scale)


@pytest.mark.parametrize("whose", ["leader", "follower"])
def test_connections_that_only_one_side_has(three: Cluster, whose: str) -> None:
    """Who dialled speaks to nobody, and is told nothing of it: it has to find out."""
    assert three.links is not None
    leader, one, other = roles(three)
    dialler, listener = (leader, one) if whose == "leader" else (one, leader)
    three.links.half_open(dialler.running.name, listener.running.name)
    n = count_up(other)
    eventually(lambda: has(one, n), 10 * three.timing_scale, "it hears of it")
    # Both directions work again: the leader hears it, and it is heard.
    eventually(lambda: one.raft()["leader_id"] != 0, 10 * three.timing_scale)
    count_up(one)
    log = dialler.log()
    eventually(lambda: "gives no sign of life" in dialler.log(), 10 * three.timing_scale, log[-2000:])
