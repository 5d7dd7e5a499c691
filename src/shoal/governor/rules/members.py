"""Who is in the cluster follows its log, and who was expelled doesn't any more."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.governor.state import AddLearner, Cluster, Remove


def follow_the_log(cluster: Cluster) -> Iterator[AddLearner | Remove]:
    members = (*cluster.voters, *cluster.learners)
    instances = cluster.topology.by_raft_id
    for raft_id in members:
        instance = instances.get(raft_id)
        if raft_id == cluster.leader or (instance is not None and not instance.is_expelled):
            continue
        # Without a row: an expelled one, whose name another has taken.
        who = f"raft id {raft_id}" if instance is None else instance.name
        yield Remove(why=f"{who} was expelled", raft_id=raft_id)
    for raft_id, instance in sorted(instances.items()):
        if raft_id not in members and not instance.is_expelled:
            yield AddLearner(why=f"{instance.name} has joined", raft_id=raft_id)
