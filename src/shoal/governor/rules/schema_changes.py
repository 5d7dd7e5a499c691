"""What was prepared comes to an end: applied on the masters of the table's tier, then committed; or aborted, if one refuses.

A master that is Offline makes the change wait: it comes back, or is expelled, or an admin aborts the change. Nothing else
waits with it. The commit rests on who the masters are, too: one that is new isn't missed.

A DROP needs nobody's help, and a change of a global table is part of the log itself: it is only tried on the leader
before, because what is committed can't fail any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.catalog.apply import Pending, after
from shoal.catalog.cas import Range
from shoal.catalog.entries import DdlAbort, DdlCommit
from shoal.catalog.system import PICO_PENDING_SCHEMA_CHANGE, PICO_REPLICASET
from shoal.governor.state import (
    ApplyChange,
    CheckChange,
    Cluster,
    EndChange,
    Refusal,
    schema_change_lane,
)
from shoal.topology.cluster import Instance


def finish_schema_changes(cluster: Cluster) -> Iterator[ApplyChange | CheckChange | EndChange]:
    for version, pending in sorted(cluster.catalog.pending.items()):
        becomes = after(cluster.catalog.schema, pending.change, version)
        if becomes is None:
            yield _commit(pending)
        elif becomes.is_sharded:
            tier = becomes.distribution.tier  # type: ignore[union-attr]
            yield from _on_masters(cluster, pending, cluster.topology.masters(tier))
        elif (version, cluster.leader) not in cluster.verdicts:
            yield CheckChange(
                lane=schema_change_lane(version),
                why=f"schema change {version} is tried on the leader",
                version=version,
            )
        else:
            refusal = cluster.verdicts[version, cluster.leader]
            yield _commit(pending) if refusal is None else _abort(pending, refusal, "the leader")


def _on_masters(
    cluster: Cluster, pending: Pending, masters: list[Instance]
) -> Iterator[ApplyChange | EndChange]:
    missing: list[Instance] = []
    for master in masters:
        key = (pending.version, master.raft_id)
        if key not in cluster.verdicts:
            missing.append(master)
        elif (refusal := cluster.verdicts[key]) is not None:
            yield _abort(pending, refusal, master.name)
            return
    if not missing:
        yield _commit(pending)
    for master in missing:
        if master.is_online:
            yield ApplyChange(
                lane=schema_change_lane(pending.version, master),
                why=f"schema change {pending.version} is applied at {master.name}",
                version=pending.version,
                raft_id=master.raft_id,
            )


def _commit(pending: Pending) -> EndChange:
    return EndChange(
        lane=schema_change_lane(pending.version),
        why=f"schema change {pending.version} is committed",
        entry=DdlCommit(pending.version),
        ranges=(_row(pending), Range(PICO_REPLICASET.id)),
    )


def _abort(pending: Pending, refusal: Refusal, by: str) -> EndChange:
    return EndChange(
        lane=schema_change_lane(pending.version),
        why=f"schema change {pending.version} is aborted: {by} says: {refusal.cause}",
        entry=DdlAbort(pending.version, refusal.sqlstate, refusal.cause, refusal.detail),
        ranges=(_row(pending),),
    )


def _row(pending: Pending) -> Range:
    return Range.of_key(PICO_PENDING_SCHEMA_CHANGE.id, (pending.table_id,))
