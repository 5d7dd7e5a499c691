"""Instances, replicasets, addresses and buckets as rows of the system tables, and back.

Here: rows ↔ the objects of topology/cluster.py.
Not here: which of them change when (governor/, node/joining.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from shoal.catalog.entries import RowChange
from shoal.catalog.schema import Table, TableId
from shoal.catalog.system import (
    PICO_BUCKET,
    PICO_INSTANCE,
    PICO_PEER_ADDRESS,
    PICO_REPLICASET,
    Row,
    json_text,
)
from shoal.topology.cluster import BucketRange, Instance, Replicaset, State, Topology, Variant

TABLES: Final = (PICO_INSTANCE, PICO_REPLICASET, PICO_PEER_ADDRESS, PICO_BUCKET)
TABLE_IDS: Final = frozenset(table.id for table in TABLES)


def put(table: Table, row: Row) -> RowChange:
    """The row as it becomes."""
    positions = [table.columns.index(table.by_number[part.column]) for part in table.primary_key]
    return RowChange(table.id, tuple(row[at] for at in positions), row)


def topology_of_rows(rows: Mapping[TableId, Iterable[Row]]) -> Topology:
    instances = [instance_of_row(row) for row in rows[PICO_INSTANCE.id]]
    replicasets = [_replicaset_of_row(row) for row in rows[PICO_REPLICASET.id]]
    buckets = [_buckets_of_row(row) for row in rows[PICO_BUCKET.id]]
    return Topology(
        {instance.name: instance for instance in instances},
        {replicaset.name: replicaset for replicaset in replicasets},
        {
            (cast(int, raft_id), cast(str, kind)): cast(str, address)
            for raft_id, address, kind in rows[PICO_PEER_ADDRESS.id]
        },
        tuple(sorted(buckets, key=lambda range_: (range_.tier, range_.start))),
    )


# --- instances -----------------------------------------------------------------------------------


def instance_change(instance: Instance) -> RowChange:
    return put(PICO_INSTANCE, instance_row(instance))


def instance_row(instance: Instance) -> Row:
    return (
        instance.name,
        instance.uuid,
        instance.raft_id,
        instance.replicaset,
        instance.replicaset_uuid,
        _state_text(instance.current),
        _state_text(instance.target),
        json_text(dict(instance.failure_domain)),
        instance.tier,
        instance.version,
        instance.sync_incarnation,
        instance.reason,
        instance.changed_at,
    )


def instance_of_row(row: Row) -> Instance:
    (
        name,
        uuid,
        raft_id,
        replicaset,
        replicaset_uuid,
        current,
        target,
        domain,
        tier,
        version,
        sync,
        why,
        when,
    ) = row
    return Instance(
        name=cast(str, name),
        uuid=cast(str, uuid),
        raft_id=cast(int, raft_id),
        replicaset=cast(str, replicaset),
        replicaset_uuid=cast(str, replicaset_uuid),
        current=_state_of_text(cast(str, current)),
        target=_state_of_text(cast(str, target)),
        failure_domain=msgspec.json.decode(cast(str, domain), type=dict[str, str]),
        tier=cast(str, tier),
        version=cast(str, version),
        sync_incarnation=cast("int | None", sync),
        reason=cast("str | None", why),
        changed_at=cast("int | None", when),
    )


def _state_text(state: State) -> str:
    return json_text([state.variant.value, state.incarnation])


def _state_of_text(text: str) -> State:
    variant, incarnation = msgspec.json.decode(text, type=tuple[str, int])
    return State(Variant(variant), incarnation)


# --- addresses -----------------------------------------------------------------------------------


def address_change(raft_id: int, kind: str, address: str) -> RowChange:
    return put(PICO_PEER_ADDRESS, (raft_id, address, kind))


# --- replicasets ---------------------------------------------------------------------------------


def replicaset_change(replicaset: Replicaset) -> RowChange:
    return put(PICO_REPLICASET, _replicaset_row(replicaset))


def _replicaset_row(replicaset: Replicaset) -> Row:
    return (
        replicaset.name,
        replicaset.uuid,
        replicaset.current_master,
        replicaset.target_master,
        replicaset.tier,
        replicaset.weight,
        replicaset.weight_origin,
        replicaset.state,
        replicaset.current_config_version,
        replicaset.target_config_version,
        json_text({}),
        0,
        1,
        1,
        json_text(list(replicaset.in_sync)),
    )


def _replicaset_of_row(row: Row) -> Replicaset:
    in_sync = row[14]
    return Replicaset(
        name=cast(str, row[0]),
        uuid=cast(str, row[1]),
        current_master=cast(str, row[2]),
        target_master=cast(str, row[3]),
        tier=cast(str, row[4]),
        weight=cast(float, row[5]),
        weight_origin=cast(str, row[6]),
        state=cast(str, row[7]),
        current_config_version=cast(int, row[8]),
        target_config_version=cast(int, row[9]),
        in_sync=() if in_sync is None else tuple(msgspec.json.decode(cast(str, in_sync), type=list[str])),
    )


# --- buckets -------------------------------------------------------------------------------------


def bucket_change(buckets: BucketRange) -> RowChange:
    return put(
        PICO_BUCKET,
        (buckets.tier, buckets.start, buckets.end, buckets.state, buckets.owner, buckets.target),
    )


def _buckets_of_row(row: Row) -> BucketRange:
    return BucketRange(
        tier=cast(str, row[0]),
        start=cast(int, row[1]),
        end=cast(int, row[2]),
        state=cast(str, row[3]),
        owner=cast(str, row[4]),
        target=cast("str | None", row[5]),
    )
