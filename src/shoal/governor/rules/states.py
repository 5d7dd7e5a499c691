"""What an instance is asked to become, it becomes: `current_state` follows `target_state`.

Offline and Online follow at once. Expelled waits until the instance leads no more; a replicaset that it was the master of
gets another one, or ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shoal.catalog.cas import Range
from shoal.catalog.entries import RowChange
from shoal.catalog.members import instance_change, replicaset_change
from shoal.catalog.system import PICO_INSTANCE, PICO_REPLICASET
from shoal.governor.state import Cluster, Write, instance_lane
from shoal.topology.cluster import Instance, Variant


def reach_targets(cluster: Cluster) -> Iterator[Write]:
    for _, instance in sorted(cluster.topology.instances.items()):
        if instance.current == instance.target:
            continue
        if instance.is_leaving:
            if instance.raft_id != cluster.leader:
                yield _expelled(cluster, instance)
            continue
        if instance.target.variant is Variant.ONLINE and instance.raft_id not in (
            *cluster.voters,
            *cluster.learners,
        ):
            continue  # it wouldn't hear of it
        changed = replace(instance, current=instance.target)
        if instance.target.variant is Variant.ONLINE:
            changed = replace(changed, sync_incarnation=instance.target.incarnation)
        yield Write(
            lane=instance_lane(instance),
            why=f"{instance.name} becomes {instance.target}",
            changes=(instance_change(changed),),
            ranges=(Range.of_key(PICO_INSTANCE.id, (instance.name,)),),
        )


def _expelled(cluster: Cluster, instance: Instance) -> Write:
    changes: list[RowChange] = [instance_change(replace(instance, current=instance.target))]
    replicaset = cluster.topology.replicasets[instance.replicaset]
    left = [other for other in cluster.topology.members(replicaset.name) if other.name != instance.name]
    if replicaset.current_master == instance.name:
        if left:
            master = next((other for other in left if other.is_online), left[0])
            changes.append(
                replicaset_change(
                    replace(
                        replicaset,
                        current_master=master.name,
                        target_master=master.name,
                        current_config_version=replicaset.current_config_version + 1,
                        target_config_version=replicaset.target_config_version + 1,
                        in_sync=(master.name,),
                    )
                )
            )
        else:
            changes.append(replicaset_change(replace(replicaset, state="expelled", weight=0.0)))
    return Write(
        lane=instance_lane(instance),
        why=f"{instance.name} is expelled",
        changes=tuple(changes),
        ranges=(Range(PICO_INSTANCE.id), Range(PICO_REPLICASET.id)),
    )
