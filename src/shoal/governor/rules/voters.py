"""Who votes: a few instances, far apart, and alive.

Of n instances in tiers that can vote, 1, 2, 3, 3 and from five on 5 do; all others learn. More would make each entry
slower and elections harder, and five survive the loss of two. Whoever is Offline gives its place to somebody who
isn't. Only instances whose logs are nearly complete are promoted: a voter that lags counts in the majority, and can't
help it.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.catalog.schema import TierName
from shoal.governor.state import AddLearner, AddVoter, Cluster
from shoal.topology.cluster import Instance, distance


def choose_voters(cluster: Cluster) -> Iterator[AddVoter | AddLearner]:
    chosen = {instance.raft_id: instance for instance in desired_voters(cluster)}
    # First in, then out: there is never less than there was.
    for raft_id, instance in chosen.items():
        if raft_id not in cluster.voters:
            yield AddVoter(why=f"{instance.name} is to vote", raft_id=raft_id)
    for raft_id in cluster.voters:
        if raft_id not in chosen and raft_id != cluster.leader:
            yield AddLearner(why=f"raft id {raft_id} votes no more", raft_id=raft_id)


def voters_wanted(instances: int) -> int:
    if instances >= 5:
        return 5
    return 3 if instances >= 3 else instances


def desired_voters(cluster: Cluster) -> list[Instance]:
    """The best there are, one after another; the leader is always among them."""
    eligible = [
        instance
        for _, instance in sorted(cluster.topology.by_raft_id.items())
        if not instance.is_leaving
        and not instance.is_expelled
        and cluster.tiers[TierName(instance.tier)].can_vote
        and _may_vote(cluster, instance)
    ]
    wanted = voters_wanted(_could_vote(cluster))
    if wanted == 2 and any(not instance.is_online for instance in eligible):
        # Of two voters both are needed: one that has said good-bye must not stop the other.
        wanted = 1
    chosen = [instance for instance in eligible if instance.raft_id == cluster.leader]
    left = [instance for instance in eligible if instance.raft_id != cluster.leader]
    while left and len(chosen) < wanted:
        best = max(left, key=lambda instance: _worth(cluster, instance, chosen))
        chosen.append(best)
        left.remove(best)
    return chosen


def _could_vote(cluster: Cluster) -> int:
    """Online or not: a crash must not make the group smaller."""
    return sum(
        not instance.is_leaving
        and not instance.is_expelled
        and cluster.tiers[TierName(instance.tier)].can_vote
        for instance in cluster.topology.instances.values()
    )


def _may_vote(cluster: Cluster, instance: Instance) -> bool:
    if instance.raft_id in cluster.voters:
        return True
    return (
        instance.is_online and instance.raft_id in cluster.caught_up and instance.raft_id in cluster.learners
    )


def _worth(cluster: Cluster, instance: Instance, chosen: list[Instance]) -> tuple[bool, int, int, bool, int]:
    distances = [distance(instance.failure_domain, other.failure_domain) for other in chosen]
    return (
        instance.is_online,
        min(distances, default=0),
        sum(distances),
        instance.raft_id in cluster.voters,  # of equals the one that votes already
        -instance.raft_id,
    )
