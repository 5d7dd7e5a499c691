"""Leaving a cluster and coming back: stops and crashes, cold restarts, expelling, and a directory that was lost."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

import psycopg
import pytest

from tests.cluster import Cluster, Instance, eventually, instances_of
from tests.system.clients import rows

Clusters = Callable[..., Cluster]


def three(clusters: Clusters, **options: object) -> Cluster:
    cluster = clusters(3, **options)
    cluster.start()
    cluster.settle()
    return cluster


def uuid_of(instance: Instance) -> str:
    return instance.running.uuid


def state_of(asked: Instance, instance: Instance) -> tuple[str, str]:
    row = instances_of(asked)[instance.running.name]
    return row["state"], row["target"]


def founder_of(cluster: Cluster) -> Instance:
    """The one whose replicaset has the buckets."""
    return next(each for each in cluster.instances if "this instance begins cluster" in each.log())


# --- stops ---------------------------------------------------------------------------------------


def test_who_stops_hands_over_and_is_offline(clusters: Clusters, timing_scale: float) -> None:
    cluster = three(clusters)
    leader = cluster.await_leader()
    term = leader.raft()["term"]
    others = [instance for instance in cluster.instances if instance is not leader]
    assert leader.stop() == 0
    assert "leaving without a good-bye" not in leader.log()
    # All of that was agreed before its process ended.
    successor = cluster.leader(others)
    assert successor is not None
    assert successor.raft()["term"] == term + 1  # it was told to, and nobody had to lose patience
    assert state_of(successor, leader) == ("Offline", "Offline")
    row = instances_of(successor)[leader.running.name]
    assert row["target_state_reason"] == "shutdown"
    follower = next(instance for instance in others if instance is not successor)
    assert follower.stop() == 0
    assert "leaving without a good-bye" not in follower.log()
    successor.kill()
    # Whoever comes first waits for one more.
    follower.begin()
    eventually(follower.raft, 30 * timing_scale)
    assert follower.health()["state"] == "starting"
    leader.start()
    follower.await_ready()
    successor.start()
    cluster.settle()
    assert all(row["state"] == "Online" for row in instances_of(successor).values())


def test_a_voter_that_stops_is_replaced(clusters: Clusters, timing_scale: float) -> None:
    cluster = clusters(4)
    cluster.start()
    leader = cluster.settle()
    (learner,) = leader.raft()["learners"]
    stopped = cluster.follower()
    its_id = stopped.raft()["id"]
    assert stopped.stop() == 0

    def replaced() -> bool:
        raft = leader.raft()
        return learner in raft["voters"] and its_id in raft["learners"] and len(raft["voters"]) == 3

    eventually(replaced, 30 * timing_scale, "the learner votes in its place")
    stopped.start()
    cluster.settle()


def test_two_stop_one_after_the_other(clusters: Clusters) -> None:
    """Of two voters both are needed; so the first one that goes gives up its vote."""
    cluster = clusters(2)
    cluster.start()
    leader = cluster.settle()
    other = next(instance for instance in cluster.instances if instance is not leader)
    assert leader.stop() == 0
    assert "without a good-bye" not in leader.log()
    assert state_of(other, leader) == ("Offline", "Offline")
    other.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", "INSERT INTO g VALUES (1)")
    assert other.stop() == 0
    cluster.start()
    cluster.settle()
    assert rows(leader, "SELECT id FROM g") == [(1,)]


def test_addresses_may_change_between_two_runs(clusters: Clusters) -> None:
    cluster = three(clusters)
    moved = cluster.follower()
    assert moved.stop() == 0
    cluster.move(moved)
    moved.start()
    leader = cluster.settle()
    address = rows(
        leader,
        "SELECT address FROM _pico_peer_address WHERE connection_type = 'iproto' AND raft_id = "
        f"{moved.raft()['id']}",
    )
    assert address == [(moved.running.rpc,)]
    moved.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", "INSERT INTO g VALUES (1)")
    cluster.same_everywhere()


def test_all_addresses_may_change_at_once(clusters: Clusters) -> None:
    """What they are told of their peers is enough to find each other, whatever the catalog says."""
    cluster = three(clusters)
    cluster.add().start()  # that one learns
    cluster.settle()
    for instance in cluster.instances:
        assert instance.stop() == 0
    for instance in cluster.instances:
        cluster.move(instance)
    cluster.start()
    leader = cluster.settle()
    found = rows(leader, "SELECT address FROM _pico_peer_address WHERE connection_type = 'iproto'")
    assert sorted(found) == sorted((instance.running.rpc,) for instance in cluster.instances)


# --- cold restarts -------------------------------------------------------------------------------


def work(instance: Instance) -> None:
    instance.execute(
        "CREATE TABLE g (id INT PRIMARY KEY, t TEXT) DISTRIBUTED GLOBALLY",
        "CREATE UNIQUE INDEX g_t ON g (t)",
        "INSERT INTO g VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE g ADD COLUMN more INT",
        "UPDATE g SET more = id * 10",
        "ALTER SYSTEM SET raft_wal_count_max = 4242",
    )


AFTER_WORK = [(1, "a", 10), (2, "b", 20)]


def kill_all(cluster: Cluster) -> None:
    for instance in cluster.running:
        instance.freeze()  # so that all are gone at once: nobody sees another die
    for instance in cluster.running:
        instance.kill()


def test_two_of_three_are_enough_after_a_cold_restart(clusters: Clusters) -> None:
    cluster = three(clusters)
    work(cluster.instances[0])
    cluster.same_everywhere()
    kill_all(cluster)
    *two, third = random.Random(1).sample(cluster.instances, 3)
    cluster.start(*two)
    assert rows(two[0], "SELECT * FROM g ORDER BY id") == AFTER_WORK
    two[1].execute("INSERT INTO g VALUES (3, 'c', 30)")
    third.start()
    cluster.settle()
    assert rows(third, "SELECT * FROM g ORDER BY id") == [*AFTER_WORK, (3, "c", 30)]


def test_six_after_a_cold_restart(clusters: Clusters, timing_scale: float) -> None:
    cluster = clusters(6)
    cluster.start()
    leader = cluster.settle()
    work(leader)
    cluster.same_everywhere()
    voters = leader.raft()["voters"]
    by_id = {instance.raft()["id"]: instance for instance in cluster.instances}
    kill_all(cluster)
    learner = next(instance for raft_id, instance in by_id.items() if raft_id not in voters)
    some = [by_id[voter] for voter in voters[:2]]
    # Two of five are no majority, whoever learns besides.
    for instance in (*some, learner):
        instance.begin()
    eventually(lambda: all(instance.raft() for instance in (*some, learner)), 60 * timing_scale)
    assert cluster.leader() is None
    rest = [instance for instance in cluster.instances if not instance.is_running]
    cluster.start(rest[0])
    for instance in (*some, learner):
        instance.await_ready()
    assert rows(learner, "SELECT * FROM g ORDER BY id") == AFTER_WORK
    cluster.start(*rest[1:])
    cluster.settle()


# --- expelling -----------------------------------------------------------------------------------


def expel(asked: Instance, instance: Instance, *, force: bool = False) -> None:
    asked.execute(f"ALTER SYSTEM EXPEL INSTANCE '{uuid_of(instance)}'{' FORCE' if force else ''}")


def is_out(cluster: Cluster, instance: Instance) -> None:
    """Its process has ended, it can't come back, and the others go on without it."""
    cluster.forgiven.add(instance)
    assert instance.await_end() == 1, instance.log()[-2000:]
    assert "was expelled from the cluster" in instance.log()
    instance.begin()
    assert instance.await_end() == 1
    leader = cluster.settle()
    raft = leader.raft()
    gone = instances_of(leader)[instance.running.name]
    assert gone["state"] == "Expelled"
    assert gone["raft_id"] not in (*raft["voters"], *raft["learners"])


def test_a_follower_is_expelled(clusters: Clusters, timing_scale: float) -> None:
    cluster = three(clusters)
    founder = founder_of(cluster)
    gone = next(i for i in cluster.instances if i is not founder and i is not cluster.leader())
    asked = next(i for i in cluster.instances if i is not founder and i is not gone)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is Online"):
        expel(asked, gone)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="their rows are nowhere else"):
        expel(asked, founder, force=True)
    with pytest.raises(psycopg.errors.UndefinedObject, match="the cluster has no instance with uuid"):
        asked.execute("ALTER SYSTEM EXPEL INSTANCE '00000000-0000-0000-0000-000000000000'")
    assert gone.stop() == 0
    expel(asked, gone)
    expel(asked, gone)  # again does no harm
    cluster.forgiven.add(gone)
    gone.begin()
    assert gone.await_end() == 1
    assert "was expelled from the cluster" in gone.log()
    leader = cluster.settle()

    def two_vote() -> bool:
        raft = leader.raft()
        return len(raft["voters"]) == 2 and not raft["learners"]

    eventually(two_vote, 30 * timing_scale, "it votes no more")
    # Whoever comes now is somebody else, also under the same name.
    again = cluster.add("--instance-name", gone.running.name)
    again.start()
    found = instances_of(leader)[gone.running.name]
    assert (found["state"], found["raft_id"]) == ("Online", 4)
    assert str(found["uuid"]) != uuid_of(gone)
    cluster.settle()


@pytest.mark.parametrize("through_itself", [False, True])
def test_a_leader_is_expelled(clusters: Clusters, through_itself: bool, timing_scale: float) -> None:
    cluster = three(clusters)
    founder = founder_of(cluster)
    if cluster.await_leader() is founder:
        # The founder has buckets, which nobody else could take. So let another one lead.
        assert founder.stop() == 0
        founder.start()
    leader = cluster.settle()
    assert leader is not founder
    others = [instance for instance in cluster.instances if instance is not leader]
    if through_itself:
        # Its answer may get lost with it: what counts is what the others know.
        try:
            expel(leader, leader, force=True)
        except psycopg.Error as error:
            assert error.sqlstate in ("40003", "57P01", None), error
    else:
        expel(others[0], leader, force=True)
    is_out(cluster, leader)
    assert len(cluster.await_leader().raft()["voters"]) == 2
    late = cluster.add()
    late.start()
    assert late.raft()["id"] == 4
    others[0].execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    cluster.settle()


def test_the_last_one_is_not_expelled(clusters: Clusters) -> None:
    cluster = clusters(2)
    cluster.start()
    cluster.settle()
    founder = founder_of(cluster)
    other = next(instance for instance in cluster.instances if instance is not founder)
    expel(founder, other, force=True)
    is_out(cluster, other)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="is the only instance"):
        expel(founder, founder, force=True)
    assert founder.raft()["voters"] == [founder.raft()["id"]]
    founder.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", "INSERT INTO g VALUES (1)")


def test_whoever_was_away_when_it_was_expelled_is_told(clusters: Clusters) -> None:
    """It was cut off and runs on: nobody talks to it any more, so it asks."""
    cluster = three(clusters, links=True)
    assert cluster.links is not None
    founder = founder_of(cluster)
    gone = next(i for i in cluster.instances if i is not founder and i is not cluster.leader())
    cluster.links.isolate(gone.running.name)
    expel(founder, gone, force=True)
    cluster.links.heal()
    is_out(cluster, gone)


# --- a lost directory ----------------------------------------------------------------------------


def test_a_lost_directory_is_a_new_instance(clusters: Clusters, timing_scale: float) -> None:
    cluster = three(clusters)
    founder = founder_of(cluster)
    wiped = next(instance for instance in cluster.instances if instance is not founder)
    name, uuid = wiped.running.name, uuid_of(wiped)
    wiped.kill()
    shutil.rmtree(wiped.directory)
    usual = wiped.options
    wiped.options += ("--instance-name", name)
    wiped.begin()
    assert wiped.await_end() == 1
    assert f"instance_name: there is an instance '{name}' in the cluster" in wiped.log()
    wiped.options = usual
    wiped.start()  # at the address where the old one was
    assert wiped.running.name != name
    assert uuid_of(wiped) != uuid
    found = instances_of(founder)
    assert found[wiped.running.name]["raft_id"] == 4
    assert found[name]["raft_id"] in (2, 3)
    founder.execute(f"ALTER SYSTEM EXPEL INSTANCE '{uuid}' FORCE")

    def right() -> bool:
        leader = cluster.leader()
        raft = leader.raft() if leader is not None else {}
        return bool(raft) and len(raft["voters"]) == 3 and 4 in raft["voters"]

    eventually(right, 30 * timing_scale, "the new one votes in the place of the old")
    wiped.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", "INSERT INTO g VALUES (1)")
    cluster.settle()
