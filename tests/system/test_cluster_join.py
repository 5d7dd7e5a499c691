"""Joining a cluster: who is let in and who is not, where it is placed, and that asking twice is one join."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from shoal import __version__
from tests.cluster import Cluster, Instance, eventually, instances_of
from tests.system.clients import rows

Clusters = Callable[..., Cluster]

MAJOR, MINOR = (int(part) for part in __version__.split(".")[:2])
NEXT = f"{MAJOR}.{MINOR + 1}.0"


# --- who is not let in ---------------------------------------------------------------------------


def test_refusals_name_what_is_wrong_and_leave_nothing(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(2)
    first, second = cluster.instances
    for instance, dc in ((first, "1"), (second, "2")):
        instance.options += ("--failure-domain", f"DC={dc}", "--instance-name", f"name-{dc}")
    cluster.start()
    leader = cluster.settle()
    before = cluster.same_everywhere()
    secret = tmp_path / "another.secret"
    secret.write_text("x" * 64 + "\n")
    secret.chmod(0o600)
    full = before["_pico_replicaset"]
    assert len(full) == 2

    def refused(*options: str, domain: str = "DC=3", version: str | None = None) -> Instance:
        instance = cluster.add("--failure-domain", domain, *options, peers=cluster.addresses[:2])
        instance.version = version
        instance.begin()
        return instance

    expected = {
        refused("--cluster-name", "other"): "belongs to cluster",
        refused("--secret-file", str(secret)): "don't have the same secret",
        refused("--tier", "storage"): "tier: the cluster has no tier 'storage', it has default",
        refused("--instance-name", "name-2"): "instance_name: there is an instance 'name-2' in the cluster",
        refused(domain="RACK=1"): "failure_domain: it must say DC, too",
        refused("--replicaset", "default_1"): "replicaset: 'default_1' has as many members as its tier wants",
        refused(version=f"{MAJOR}.{MINOR + 2}.0"): f"can't join a cluster of version {__version__}: it takes",
        refused(version=f"{MAJOR + 2}.0.0"): f"can't join a cluster of version {__version__}: it takes",
    }
    for instance, said in expected.items():
        assert instance.await_end() == 1, instance.log()
        assert said in instance.log(), instance.log()
        assert "Traceback" not in instance.log()
    assert cluster.same_everywhere([first, second]) == before
    # A later version may come, as long as there are no more than two.
    newer = refused(version=NEXT)
    newer.await_ready()
    assert rows(leader, "SELECT picodata_version FROM _pico_instance ORDER BY raft_id") == [
        (__version__,),
        (__version__,),
        (NEXT,),
    ]
    third = refused(version=f"{MAJOR + 1}.0.0")
    assert third.await_end() == 1
    assert "can't join" in third.log()


def test_a_member_that_says_it_is_somebody_else(clusters: Clusters) -> None:
    cluster = clusters(2)
    cluster.start()
    cluster.settle()
    instance = cluster.instances[1]
    assert instance.stop() == 0
    usual = instance.options
    for option, value in (
        ("cluster_name", "other"),
        ("instance_name", "somebody"),
        ("tier", "storage"),
        ("replicaset", "default_9"),
    ):
        instance.options = (*usual, f"--{option.replace('_', '-')}", value)
        instance.begin()
        assert instance.await_end() == 1
        said = f"{option}: {instance.directory} belongs to an instance with {option} '"
        assert said in instance.log(), instance.log()
    instance.options = usual
    instance.version = f"{MAJOR}.{MINOR + 2}.0"
    instance.begin()
    assert instance.await_end() == 1
    assert f"version {instance.version} can't" in instance.log()
    instance.version = None
    instance.start()
    cluster.settle()


# --- asking twice --------------------------------------------------------------------------------


def members(instance: Instance, name: str) -> list[tuple[object, ...]]:
    return rows(instance, f"SELECT raft_id, uuid FROM _pico_instance WHERE name = '{name}'")


def test_the_answer_to_a_join_is_lost_and_who_asked_killed(clusters: Clusters, timing_scale: float) -> None:
    cluster = clusters(3, links=True)
    assert cluster.links is not None
    first, second, late = cluster.instances
    for instance in (first, second):
        instance.peers = cluster.addresses[:2]
    cluster.start(first, second)
    leader = cluster.settle()
    arrived = cluster.links.lose_answer("join")
    late.begin()
    assert arrived.wait(30 * timing_scale)
    (member,) = eventually(lambda: members(leader, "i3"), 10 * timing_scale)
    late.kill()
    cluster.links.heal()
    late.start()
    assert members(leader, "i3") == [member]
    assert member[0] == 3
    addresses = rows(leader, "SELECT count(*) FROM _pico_peer_address WHERE raft_id = 3")
    assert addresses == [(3,)]
    cluster.settle()


def test_the_leader_is_lost_with_the_answer_to_a_join(clusters: Clusters, timing_scale: float) -> None:
    """Who asked goes on, and hears from the next leader what it has become already."""
    cluster = clusters(4, links=True, options=("--join-timeout", "60"))
    assert cluster.links is not None
    *old, late = cluster.instances
    for instance in old:
        instance.peers = cluster.addresses[:3]
    cluster.start(*old)
    leader = cluster.settle()
    others = [instance for instance in old if instance is not leader]
    arrived = cluster.links.lose_answer("join")
    late.begin()
    assert arrived.wait(30 * timing_scale)
    (member,) = eventually(lambda: members(others[0], "i4"), 10 * timing_scale)
    leader.kill()
    late.await_ready()
    assert members(others[0], "i4") == [member]
    leader.start()
    cluster.settle()


def test_joins_at_once_are_as_many_instances(clusters: Clusters) -> None:
    cluster = clusters(1)
    cluster.start()
    late = [cluster.add() for _ in range(4)]
    cluster.start(*late)
    leader = cluster.settle()
    found = instances_of(leader)
    assert sorted(row["raft_id"] for row in found.values()) == [1, 2, 3, 4, 5]
    assert sorted(found) == [f"default_{n}_1" for n in range(1, 6)]


# --- where it is placed --------------------------------------------------------------------------


def placed(instance: Instance) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, replicaset in rows(instance, "SELECT name, replicaset_name FROM _pico_instance ORDER BY name"):
        found.setdefault(str(replicaset), []).append(str(name))
    return found


def test_replicasets_are_filled_by_failure_domain(clusters: Clusters) -> None:
    tiers = {
        "storage": {"replication_factor": 2},
        "votes": {"replication_factor": 1, "bucket_count": 0},
    }
    cluster = clusters(1, options=("--tiers", json.dumps(tiers)))
    cluster.instances[0].options += ("--tier", "storage", "--failure-domain", "DC=1")
    cluster.start()

    def join(tier: str, domain: str, *options: str) -> Instance:
        instance = cluster.add("--tier", tier, "--failure-domain", domain, *options)
        instance.start()
        return instance

    first = cluster.instances[0]
    join("storage", "DC=1")  # not beside the first one
    join("storage", "DC=2")
    join("votes", "DC=2")
    join("storage", "DC=3")
    assert placed(first) == {
        "storage_1": ["storage_1_1", "storage_1_2"],
        "storage_2": ["storage_2_1", "storage_2_2"],
        "votes_1": ["votes_1_1"],
    }
    leader = cluster.settle()
    domains = {name: row["failure_domain"] for name, row in instances_of(leader).items()}
    assert domains["storage_1_2"] != domains["storage_1_1"]
    states = dict(rows(leader, "SELECT name, state FROM _pico_replicaset"))
    assert states == {"storage_1": "ready", "storage_2": "ready", "votes_1": "ready"}
    tiers_there = rows(
        leader, "SELECT name, replication_factor, bucket_count, can_vote FROM _pico_tier ORDER BY name"
    )
    assert tiers_there == [("storage", 2, 3000, True), ("votes", 1, 0, True)]
    # Buckets are in the tier that has some, all of them in one place.
    owned = rows(leader, "SELECT DISTINCT tier_name FROM _pico_bucket")
    assert owned == [("storage",)]


def test_names_steer_placement(clusters: Clusters) -> None:
    cluster = clusters(1, options=("--init-replication-factor", "2"))
    first = cluster.instances[0]
    first.options += ("--instance-name", "default_1_1")
    cluster.start()

    def join(*options: str) -> Instance:
        instance = cluster.add(*options)
        instance.start()
        return instance

    join("--instance-name", "default_2_1")  # though default_1 lacks one
    join("--instance-name", "default_2_2")
    join("--instance-name", "default_2_3")  # which is full: as if it had no name
    join("--replicaset", "islands")
    assert placed(first) == {
        "default_1": ["default_1_1", "default_2_3"],
        "default_2": ["default_2_1", "default_2_2"],
        "islands": ["islands_1"],
    }
    cluster.settle()


def test_the_first_of_a_replicaset_stays_its_master_though_it_is_slow(
    clusters: Clusters, timing_scale: float
) -> None:
    cluster = clusters(1, options=("--init-replication-factor", "2"))
    first = cluster.instances[0]
    first.options += ("--instance-name", "default_1_1")
    cluster.start()
    slow = cluster.add("--instance-name", "default_2_1")
    slow.begin()
    eventually(lambda: "joined cluster" in slow.log(), 30 * timing_scale)
    with slow.frozen():
        quick = cluster.add("--instance-name", "default_2_2")
        quick.start()
        masters = (
            "SELECT current_master_name, target_master_name FROM _pico_replicaset WHERE name = 'default_2'"
        )
        assert rows(first, masters) == [("default_2_1", "default_2_1")]
    slow.await_ready()
    cluster.settle()
    assert rows(first, masters) == [("default_2_1", "default_2_1")]


# --- who votes -----------------------------------------------------------------------------------


def test_voters_as_the_cluster_grows(clusters: Clusters, timing_scale: float) -> None:
    """One, two, three, three, five, five: the others learn. They are as far apart as can be."""
    cluster = clusters(0)
    domains = ("DC=1", "DC=1", "DC=2", "DC=3", "DC=3", "DC=1")
    for count, (domain, votes) in enumerate(zip(domains, (1, 2, 3, 3, 5, 5), strict=True), start=1):
        cluster.add("--failure-domain", domain).start()

        def right(count: int = count, votes: int = votes) -> bool:
            leader = cluster.leader()
            raft = leader.raft() if leader is not None else {}
            return bool(raft) and (len(raft["voters"]), len(raft["learners"])) == (votes, count - votes)

        eventually(right, 30 * timing_scale, f"{votes} of {count} vote")
        if count == 4:
            leader = cluster.await_leader()

            def spread(leader: Instance = leader) -> bool:
                by_id = {row["raft_id"]: row["failure_domain"] for row in instances_of(leader).values()}
                return len({str(by_id[voter]) for voter in leader.raft()["voters"]}) == 3

            eventually(spread, 30 * timing_scale, "one voter in each DC")
    cluster.settle()
    # Everybody says the same of who votes.
    assert len({str((i.raft()["voters"], i.raft()["learners"])) for i in cluster.instances}) == 1


def test_a_tier_that_does_not_vote(clusters: Clusters) -> None:
    tiers = {"core": {}, "edge": {"can_vote": False, "bucket_count": 0}}
    cluster = clusters(1, options=("--tiers", json.dumps(tiers)))
    cluster.instances[0].options += ("--tier", "core")
    cluster.start()
    for tier in ("edge", "edge", "core"):
        cluster.add("--tier", tier).start()
    leader = cluster.settle()
    raft = leader.raft()
    assert (sorted(raft["voters"]), sorted(raft["learners"])) == ([1, 4], [2, 3])


def test_who_does_not_vote_begins_no_cluster(clusters: Clusters, timing_scale: float) -> None:
    tiers = json.dumps({"core": {}, "edge": {"can_vote": False}})
    cluster = clusters(2, options=("--tiers", tiers))
    edge, core = cluster.instances
    edge.options += ("--tier", "edge")
    core.options += ("--tier", "core")
    edge.peers = core.peers = cluster.addresses[:2]
    edge.begin()
    eventually(lambda: "no answer from" in edge.log(), 30 * timing_scale)
    assert not edge.raft()
    core.start()
    edge.await_ready()
    assert cluster.settle() is core
