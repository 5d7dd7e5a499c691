"""Buckets without an owner get one: all those of a tier go to its first replicaset.

Not here yet: spreading them over the replicasets.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.catalog.cas import Range
from shoal.catalog.members import bucket_change
from shoal.catalog.system import PICO_BUCKET
from shoal.governor.state import Cluster, Write, tier_lane
from shoal.topology.cluster import BucketRange


def give_buckets_an_owner(cluster: Cluster) -> Iterator[Write]:
    owned = {buckets.tier for buckets in cluster.topology.buckets}
    for tier in cluster.tiers.values():
        if tier.name in owned or not tier.bucket_count:
            continue
        first = min(
            (
                replicaset.name
                for replicaset in cluster.topology.replicasets.values()
                if replicaset.tier == tier.name and replicaset.state != "expelled"
            ),
            default=None,
        )
        if first is not None:
            all_of_it = BucketRange(
                tier=tier.name, start=1, end=tier.bucket_count, state="active", owner=first, target=first
            )
            yield Write(
                lane=tier_lane(tier.name),
                why=f"the buckets of {tier.name} go to {first}",
                changes=(bucket_change(all_of_it),),
                ranges=(Range(PICO_BUCKET.id),),
            )
