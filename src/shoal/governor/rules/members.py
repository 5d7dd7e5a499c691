"""Who is in the cluster follows its log, and who was expelled doesn't any more."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.governor.state import AddLearner, Cluster, Remove


def follow_the_log(cluster: Cluster) -> Iterator[AddLearner | Remove]:
    members = (*cluster.voters, *cluster.learners)
    instances = cluster.topology.by_raft_id
    for raft_id in members:
        instance = instances.get(raft_id)
        if instance is not None and instance.is_expelled and raft_id != cluster.leader:
            yield Remove(why=f"{instance.name} was expelled", raft_id=raft_id)
    for raft_id, instance in sorted(instances.items()):
        if raft_id not in members and not instance.is_expelled:
            yield AddLearner(why=f"{instance.name} has joined", raft_id=raft_id)
