"""A replicaset is ready as soon as it has as many members Online as its tier wants copies, and stays so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shoal.catalog.cas import Range
from shoal.catalog.members import replicaset_change
from shoal.catalog.schema import TierName
from shoal.catalog.system import PICO_REPLICASET
from shoal.governor.state import Cluster, Write, replicaset_lane


def become_ready(cluster: Cluster) -> Iterator[Write]:
    for name, replicaset in sorted(cluster.topology.replicasets.items()):
        if replicaset.state != "not-ready":
            continue
        online = [member for member in cluster.topology.members(name) if member.is_online]
        if len(online) < cluster.tiers[TierName(replicaset.tier)].replication_factor:
            continue
        weight = 1.0 if replicaset.weight_origin == "auto" else replicaset.weight
        yield Write(
            lane=replicaset_lane(name),
            why=f"{name} is ready",
            changes=(replicaset_change(replace(replicaset, state="ready", weight=weight)),),
            ranges=(Range.of_key(PICO_REPLICASET.id, (name,)),),
        )
