"""The first entries of a cluster's log.

Here: boot(), which begins a cluster in an empty directory: what its log and its catalog start with.
Not here: joining a cluster that exists (membership.py), who begins one (discovery.py).
"""

from __future__ import annotations

from typing import Final

from shoal import __version__
from shoal.catalog.entries import Dml, Record, RowChange, encode_record
from shoal.catalog.members import address_change, bucket_change, instance_change, put, replicaset_change
from shoal.catalog.rights import ADMIN, ADMIN_ID, founding_rows
from shoal.catalog.system import (
    PICO_INDEX,
    PICO_PROPERTY,
    PICO_TABLE,
    PICO_TIER,
    SYSTEM_TABLES,
    index_rows,
    json_text,
    table_row,
    tier_row,
)
from shoal.governor.admission import replicaset_spoken_of
from shoal.node.config import Config
from shoal.node.outside import Outside
from shoal.pgwire.auth import SALT_BYTES, make_secret
from shoal.protocol.cluster import Addresses
from shoal.raft.messages import (
    ChangeKind,
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    Term,
    encode_change,
)
from shoal.raft.store import Save
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.raft_log import MemberIdentity
from shoal.topology.cluster import HTTP, PG, RPC, BucketRange, Instance, Replicaset, State, Variant

FIRST_ID: Final = RaftId(1)


def boot(
    db: CatalogDb, config: Config, instance_uuid: str, addresses: Addresses, outside: Outside
) -> MemberIdentity:
    """Begins a cluster: its only voter is this instance, and what it starts with is committed."""
    term = Term(1)
    change = MembershipChange(ChangeKind.ADD_VOTER, FIRST_ID)
    identity = MemberIdentity(FIRST_ID, instance_uuid, outside.new_uuid(), config.cluster_name)
    now = outside.now()
    first = _first_entry(config, identity, addresses, now, outside)
    entries = (
        Entry(Index(1), term, EntryKind.MEMBERSHIP, encode_change(change)),
        Entry(Index(2), term, EntryKind.NORMAL, encode_record(Record(now, (0, 0), first))),
    )
    save = Save(HardState(term, FIRST_ID, Index(2)), entries, entries, Membership((FIRST_ID,), ()))
    db.begin(identity, save)
    return identity


def _first_entry(
    config: Config, identity: MemberIdentity, addresses: Addresses, now: int, outside: Outside
) -> Dml:
    changes: list[RowChange] = []
    for table in SYSTEM_TABLES:
        changes.append(put(PICO_TABLE, table_row(table)))
        changes += [put(PICO_INDEX, row) for row in index_rows(table)]
    changes += [put(PICO_TIER, tier_row(tier)) for tier in config.founding_tiers]
    (tier,) = (tier for tier in config.founding_tiers if tier.name == config.tier)
    spoken_of = replicaset_spoken_of(config.instance_name, config.tier)
    replicaset_name = config.replicaset or spoken_of or f"{config.tier}_1"
    name = config.instance_name or f"{replicaset_name}_1"
    replicaset = Replicaset(
        name=replicaset_name,
        uuid=outside.new_uuid(),
        current_master=name,
        target_master=name,
        tier=config.tier,
        in_sync=(name,),
    )
    offline = State(Variant.OFFLINE, 0)
    instance = Instance(
        name=name,
        uuid=identity.instance_uuid,
        raft_id=identity.raft_id,
        replicaset=replicaset.name,
        replicaset_uuid=replicaset.uuid,
        current=offline,
        target=offline,
        failure_domain=config.failure_domain,
        tier=config.tier,
        version=__version__,
        reason="boot",
        changed_at=now,
    )
    changes.append(replicaset_change(replicaset))
    changes.append(instance_change(instance))
    for kind, address in ((HTTP, addresses.http), (RPC, addresses.rpc), (PG, addresses.pg)):
        changes.append(address_change(identity.raft_id, kind, address))
    if tier.bucket_count:  # a tier without buckets only votes
        everything = BucketRange(
            tier=config.tier,
            start=1,
            end=tier.bucket_count,
            state="active",
            owner=replicaset.name,
            target=replicaset.name,
        )
        changes.append(bucket_change(everything))
    password, salt = config.admin_password, outside.chance.randbytes(SALT_BYTES)
    secret = make_secret("scram-sha256", ADMIN, password, salt) if password else None
    changes += founding_rows(None if secret is None else ("scram-sha256", secret))
    properties = {
        "cluster_name": config.cluster_name,
        "cluster_uuid": identity.cluster_uuid,
        "cluster_version": __version__,
        "system_catalog_version": __version__,
        "global_schema_version": 0,
        "next_schema_version": 1,
    }
    changes += [put(PICO_PROPERTY, (key, json_text(value))) for key, value in properties.items()]
    return Dml(tuple(changes), ADMIN_ID)
