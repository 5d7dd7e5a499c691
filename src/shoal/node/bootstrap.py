"""The first entry of a cluster's log, and what each later start changes in it.

Here: the rows that a new cluster begins with; the identity of an instance, checked against what it was
started with before; its state, Online and Offline.
Not here: joining a cluster that exists (not there yet), applying the entries (catalog_log.py).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec

from shoal import __version__
from shoal.catalog.entries import Dml, RowChange
from shoal.catalog.schema import Table
from shoal.catalog.system import (
    PICO_BUCKET,
    PICO_INDEX,
    PICO_INSTANCE,
    PICO_PEER_ADDRESS,
    PICO_PROPERTY,
    PICO_REPLICASET,
    PICO_TABLE,
    PICO_TIER,
    PICO_USER,
    SYSTEM_TABLES,
    Row,
    index_rows,
    json_text,
    table_row,
    tier_row,
)
from shoal.errors import InvalidConfiguration
from shoal.node.config import Config
from shoal.node.users import ADMIN_ID
from shoal.pgwire.auth import make_secret
from shoal.storage.catalog_db import CatalogDb

RAFT_ID: Final = 1
SERVICE_USER_ID: Final = 32

# id, name, kind
_USERS: Final = (
    (0, "guest", "user"),
    (ADMIN_ID, "admin", "user"),
    (2, "public", "role"),
    (3, "replication", "role"),
    (31, "super", "role"),
    (SERVICE_USER_ID, "pico_service", "user"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    instance_uuid: str
    replicaset_uuid: str
    cluster_uuid: str
    incarnation: int
    instance: Row  # the row of _pico_instance

    @property
    def name(self) -> str:
        return cast(str, self.instance[0])

    @property
    def replicaset(self) -> str:
        return cast(str, self.instance[3])


@dataclass(frozen=True, slots=True)
class Addresses:
    pg: str
    rpc: str
    http: str

    def rows(self) -> list[Row]:
        found = (("http", self.http), ("iproto", self.rpc), ("pgproto", self.pg))
        return [(RAFT_ID, address, kind) for kind, address in found]


def first_entry(config: Config, addresses: Addresses, now: int, salt: bytes) -> Dml:
    """Everything that a cluster of one instance begins with."""
    rows: list[tuple[Table, Row]] = []
    for table in SYSTEM_TABLES:
        rows.append((PICO_TABLE, table_row(table)))
        rows += [(PICO_INDEX, row) for row in index_rows(table)]
    rows += [(PICO_TIER, tier_row(tier)) for tier in config.founding_tiers]
    (tier,) = (tier for tier in config.founding_tiers if tier.name == config.tier)
    instance_uuid, replicaset_uuid = str(uuid.uuid4()), str(uuid.uuid4())
    replicaset = config.replicaset or f"{config.tier}_1"
    name = config.instance_name or f"{replicaset}_1"
    rows.append((PICO_REPLICASET, _replicaset_row(name, replicaset, config.tier, replicaset_uuid)))
    state = json_text(["Online", 1])
    rows.append(
        (
            PICO_INSTANCE,
            (
                name,
                instance_uuid,
                RAFT_ID,
                replicaset,
                replicaset_uuid,
                state,
                state,
                json_text(config.failure_domain),
                config.tier,
                __version__,
                1,
                "boot",
                now,
            ),
        )
    )
    rows += [(PICO_PEER_ADDRESS, row) for row in addresses.rows()]
    if tier.bucket_count:  # a tier without buckets only votes
        buckets = (config.tier, 1, tier.bucket_count, "active", replicaset, replicaset)
        rows.append((PICO_BUCKET, buckets))
    for user_id, user, kind in _USERS:
        auth = None
        if user_id == ADMIN_ID:
            password = config.admin_password
            secret = make_secret("scram-sha256", user, password, salt) if password else ""
            auth = json_text(["scram-sha256", secret])
        rows.append((PICO_USER, (user_id, user, 0, auth, ADMIN_ID, kind)))
    properties = {
        "cluster_name": config.cluster_name,
        "cluster_uuid": str(uuid.uuid4()),
        "cluster_version": __version__,
        "system_catalog_version": __version__,
        "global_schema_version": 0,
    }
    rows += [(PICO_PROPERTY, (key, json_text(value))) for key, value in properties.items()]
    return Dml(tuple(_put(table, row) for table, row in rows), ADMIN_ID)


def _replicaset_row(master: str, name: str, tier: str, replicaset_uuid: str) -> Row:
    return (
        name,
        replicaset_uuid,
        master,
        master,
        tier,
        1.0,
        "auto",
        "ready",
        1,
        1,
        json_text({}),
        0,
        1,
        1,
        json_text([master]),
    )


def _put(table: Table, row: Row) -> RowChange:
    positions = [table.columns.index(table.by_number[part.column]) for part in table.primary_key]
    return RowChange(table.id, tuple(row[at] for at in positions), row)


# --- later starts --------------------------------------------------------------------------------


def read_identity(db: CatalogDb) -> Identity | None:
    """Who this instance is; None in a new directory."""
    instances = db.rows(PICO_INSTANCE)
    if not instances:
        return None
    (instance,) = instances
    properties = {cast(str, key): cast(str, value) for key, value in db.rows(PICO_PROPERTY)}
    state = msgspec.json.decode(cast(str, instance[5]), type=tuple[str, int])
    return Identity(
        instance_uuid=cast(str, instance[1]),
        replicaset_uuid=cast(str, instance[4]),
        cluster_uuid=msgspec.json.decode(properties["cluster_uuid"], type=str),
        incarnation=state[1],
        instance=instance,
    )


def check_identity(db: CatalogDb, identity: Identity, config: Config) -> None:
    """A directory belongs to one instance for good: a changed name is a mistake, never a renaming."""
    properties = {cast(str, key): cast(str, value) for key, value in db.rows(PICO_PROPERTY)}
    instance = identity.instance
    known = {
        "cluster_name": msgspec.json.decode(properties["cluster_name"], type=str),
        "instance_name": instance[0],
        "replicaset": instance[3],
        "tier": instance[8],
    }
    for key, value in known.items():
        asked = getattr(config, key)
        if asked is not None and asked != value:
            raise InvalidConfiguration(
                f"{key}: {config.instance_dir} belongs to an instance with {key} {value!r}, not {asked!r}"
            )


def online_entry(identity: Identity, addresses: Addresses, now: int) -> tuple[Dml, Identity]:
    incarnation = identity.incarnation + 1
    row = _with_state(identity.instance, "Online", incarnation, "wakeup", now)
    changes = [_put(PICO_INSTANCE, row), *(_put(PICO_PEER_ADDRESS, r) for r in addresses.rows())]
    return Dml(tuple(changes), ADMIN_ID), replace(identity, incarnation=incarnation, instance=row)


def offline_entry(identity: Identity, now: int) -> Dml:
    row = _with_state(identity.instance, "Offline", identity.incarnation, "shutdown", now)
    return Dml((_put(PICO_INSTANCE, row),), ADMIN_ID)


def _with_state(instance: Row, state: str, incarnation: int, reason: str, now: int) -> Row:
    said = json_text([state, incarnation])
    return (*instance[:5], said, said, *instance[7:9], __version__, incarnation, reason, now)
