"""A leader that is about to go hands over first: the others then need no election."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.governor.state import Cluster, HandOver
from shoal.topology.cluster import Variant


def hand_over(cluster: Cluster) -> Iterator[HandOver]:
    instances = cluster.topology.by_raft_id
    leader = instances.get(cluster.leader)
    if leader is None or leader.target.variant is Variant.ONLINE:
        return
    for raft_id in cluster.voters:
        other = instances.get(raft_id)
        if (
            raft_id != cluster.leader
            and other is not None
            and other.is_online
            and raft_id in cluster.caught_up
        ):
            yield HandOver(why=f"{leader.name}, which leads, is leaving", raft_id=raft_id)
            return
