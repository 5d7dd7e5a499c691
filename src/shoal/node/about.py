"""What SQL may ask about the instance and its cluster: pico_raft_leader_id(), _pico_bucket() and their kin.

Here: Facts, each computed when a statement asks.
Not here: what a session knows of itself (session.py), the functions (sql/functions.py).
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from shoal import __version__
from shoal.catalog.schema import TierName
from shoal.node.cluster import Cluster
from shoal.node.config import Config
from shoal.sql.plan import SessionFact
from shoal.topology.cluster import Instance, Topology, Variant
from shoal.types.values import Stored

Fact = Callable[[], Stored]

_write_json: Final = msgspec.json.Encoder().encode

VERSION: Final = f"Shoal {__version__} (PostgreSQL 15.0 compatible) on Python {sys.version.split()[0]}"


def facts_of(config: Config, cluster: Cluster) -> Mapping[SessionFact, Fact]:
    own_uuid, directory = cluster.identity.instance_uuid, str(config.instance_dir)
    config_file = None if config.config_file is None else str(config.config_file)

    def leader_uuid() -> Stored:
        leader = cluster.topology.by_raft_id.get(cluster.raft.leader)
        return None if leader is None else uuid.UUID(leader.uuid).bytes

    return {
        SessionFact.VERSION: lambda: VERSION,
        SessionFact.INSTANCE_UUID: lambda: own_uuid,
        SessionFact.INSTANCE_DIR: lambda: directory,
        SessionFact.CONFIG_FILE_PATH: lambda: config_file,
        SessionFact.RAFT_LEADER_ID: lambda: cluster.raft.leader or None,
        SessionFact.RAFT_LEADER_UUID: leader_uuid,
        SessionFact.BUCKETS: lambda: buckets_document(cluster.log.catalog.schema.tiers, cluster.topology),
        SessionFact.HEALTH: lambda: health_document(cluster.topology),
    }


def buckets_document(tiers: Iterable[TierName], topology: Topology) -> str:
    """JSON: tier → its ranges of buckets, in order."""
    uuids: dict[str | None, str | None] = {name: found.uuid for name, found in topology.replicasets.items()}
    ranges: dict[str, list[dict[str, object]]] = {tier: [] for tier in tiers}
    for range_ in topology.buckets:
        ranges[range_.tier].append(
            {
                "tier_name": range_.tier,
                "bucket_id_start": range_.start,
                "bucket_id_end": range_.end,
                "state": range_.state,
                "current_replicaset_uuid": uuids[range_.owner],
                "target_replicaset_uuid": uuids.get(range_.target),
            }
        )
    return _write_json(ranges).decode()


def health_document(topology: Topology) -> str:
    """JSON: instance's uuid → how it is, as far as the cluster's log tells: the same on every instance."""
    return _write_json(
        {instance.uuid: _health(instance) for instance in topology.instances.values()}
    ).decode()


def _health(instance: Instance) -> dict[str, object]:
    issues: list[str] = []
    if instance.current.variant is not Variant.ONLINE:
        issues.append(f"current state is {instance.current.variant.value}")
    if instance.target.variant is not instance.current.variant:
        issues.append(f"target state is {instance.target.variant.value}")
    broken = instance.current.variant is not Variant.ONLINE
    return {
        "status": "broken" if broken else "degraded" if issues else "healthy",
        "issues": issues,
        "name": instance.name,
        "uuid": instance.uuid,
        "version": instance.version,
        "raftId": instance.raft_id,
        "tier": instance.tier,
        "replicaset": instance.replicaset,
        "currentState": str(instance.current),
        "targetState": str(instance.target),
        "reason": instance.reason,
    }
