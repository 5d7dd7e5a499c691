"""Who may join, come and go: what an instance's request changes in the catalog, or why it is refused.

Here: join(), go_online(), go_offline(), expel(): pure functions of what the leader has applied.
Not here: how the requests reach the leader (node/membership.py), what the governor makes of the new targets (rules/).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from shoal.catalog.cas import Range
from shoal.catalog.entries import RowChange
from shoal.catalog.members import address_change, instance_change, replicaset_change
from shoal.catalog.schema import Tier, TierName
from shoal.catalog.system import PICO_INSTANCE, PICO_PEER_ADDRESS, PICO_REPLICASET, PICO_TIER
from shoal.errors import InvalidConfiguration, ObjectNotInPrerequisiteState, UndefinedObject
from shoal.topology.cluster import HTTP, PG, RPC, Instance, Replicaset, State, Topology, Variant, overlap

# What all of these decisions rest on.
RANGES: Final = (
    Range(PICO_INSTANCE.id),
    Range(PICO_REPLICASET.id),
    Range(PICO_TIER.id),
    Range(PICO_PEER_ADDRESS.id),
)


class InstanceExpelled(ObjectNotInPrerequisiteState):
    """It was expelled, and can't come back: its directory is of no more use."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"instance {name} was expelled from the cluster", hint="Start it on a new directory."
        )
        self.extra = {"expelled": name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Joiner:
    """Who asks to join."""

    cluster_name: str
    uuid: str
    version: str
    tier: str
    name: str | None  # None: the cluster chooses
    replicaset: str | None
    failure_domain: Mapping[str, str]
    addresses: Mapping[str, str]  # by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The cluster as the leader has applied it."""

    cluster_name: str
    cluster_version: str
    topology: Topology
    tiers: Mapping[TierName, Tier]
    now: int  # µs since 1970


@dataclass(frozen=True, slots=True)
class Admitted:
    instance: Instance
    changes: tuple[RowChange, ...]  # () if it had joined already


# --- joining -------------------------------------------------------------------------------------


def join(seen: Seen, joiner: Joiner, replicaset_uuid: str) -> Admitted:
    """`replicaset_uuid` is for a replicaset that is made for it."""
    topology = seen.topology
    if joiner.cluster_name != seen.cluster_name:
        raise InvalidConfiguration(
            f"cluster_name: this cluster is {seen.cluster_name!r}, not {joiner.cluster_name!r}"
        )
    known = topology.by_uuid.get(joiner.uuid)
    if known is not None:
        return _again(known, joiner)
    check_version(seen.cluster_version, joiner.version, _versions(topology))
    tier = seen.tiers.get(TierName(joiner.tier))
    if tier is None:
        raise InvalidConfiguration(
            f"tier: the cluster has no tier {joiner.tier!r}, it has {', '.join(sorted(seen.tiers))}"
        )
    _check_failure_domain(topology, joiner)
    changes: list[RowChange] = []
    if joiner.name is not None and (other := topology.instances.get(joiner.name)) is not None:
        if not other.is_expelled:
            raise InvalidConfiguration(f"instance_name: there is an instance {joiner.name!r} in the cluster")
        # Its row becomes the newcomer's, whose raft id is greater: so none is ever used twice.
        changes += [RowChange(PICO_PEER_ADDRESS.id, (other.raft_id, kind), None) for kind in (HTTP, RPC, PG)]
    raft_id = max((instance.raft_id for instance in topology.instances.values()), default=0) + 1
    replicaset = _replicaset_for(topology, joiner, tier)
    name = joiner.name or _name_in(topology, replicaset)
    found = topology.replicasets.get(replicaset)
    if found is None or found.state == "expelled":
        found = Replicaset(
            name=replicaset,
            uuid=replicaset_uuid,
            current_master=name,
            target_master=name,
            tier=joiner.tier,
            in_sync=(name,),
        )
        changes.append(replicaset_change(found))
    offline = State(Variant.OFFLINE, 0)
    instance = Instance(
        name=name,
        uuid=joiner.uuid,
        raft_id=raft_id,
        replicaset=replicaset,
        replicaset_uuid=found.uuid,
        current=offline,
        target=offline,
        failure_domain=dict(joiner.failure_domain),
        tier=joiner.tier,
        version=joiner.version,
        reason="join",
        changed_at=seen.now,
    )
    changes.append(instance_change(instance))
    changes += _addresses(raft_id, joiner.addresses)
    return Admitted(instance, tuple(changes))


def _again(known: Instance, joiner: Joiner) -> Admitted:
    """It has asked before, and hasn't heard the answer; or it lost its memory of it."""
    if known.is_expelled or known.is_leaving:
        raise InstanceExpelled(known.name)
    asked = (joiner.tier, joiner.name or known.name, joiner.replicaset or known.replicaset)
    if asked != (known.tier, known.name, known.replicaset):
        raise InvalidConfiguration(
            f"the instance has joined as {known.name!r} of {known.replicaset!r} in tier {known.tier!r}, and asks for"
            " something else now"
        )
    if known.current.incarnation:
        raise ObjectNotInPrerequisiteState(
            f"instance {known.name} has been in the cluster, and its directory doesn't know it any more",
            hint="Expel it, and let it join on a new directory.",
        )
    return Admitted(known, ())


def _addresses(raft_id: int, addresses: Mapping[str, str]) -> list[RowChange]:
    return [address_change(raft_id, kind, addresses[kind]) for kind in (HTTP, RPC, PG)]


def _versions(topology: Topology) -> set[tuple[int, int]]:
    return {minor_of(other.version) for other in topology.instances.values() if not other.is_expelled}


def minor_of(version: str) -> tuple[int, int]:
    """1.2.3 and 1.2.4 are one version as far as a cluster is concerned."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        raise InvalidConfiguration(f"{version!r} is no version")
    return int(found[1]), int(found[2])


def check_version(cluster: str, joining: str, present: set[tuple[int, int]]) -> None:
    """The cluster's, or the next one; and never three different ones at a time."""
    major, minor = minor_of(cluster)
    asked = minor_of(joining)
    if asked not in ((major, minor), (major, minor + 1), (major + 1, 0)):
        raise InvalidConfiguration(
            f"an instance of version {joining} can't join a cluster of version {cluster}: it takes {major}.{minor} and"
            " the version after it"
        )
    if len({*present, asked}) > 2:
        raise InvalidConfiguration(
            f"an instance of version {joining} can't join: the cluster runs two versions already"
        )


def _check_failure_domain(topology: Topology, joiner: Joiner) -> None:
    needed = {
        key
        for other in topology.instances.values()
        if not other.is_expelled
        for key in other.failure_domain
        if key not in joiner.failure_domain
    }
    if needed:
        raise InvalidConfiguration(
            f"failure_domain: it must say {', '.join(sorted(needed))}, too, as the others' do"
        )


def _replicaset_for(topology: Topology, joiner: Joiner, tier: Tier) -> str:
    """The one that it says; else the one that its own name speaks of, if there is room; else the first that lacks a member
    and has none in the same failure domain; else a new one."""
    if joiner.replicaset is not None:
        found = topology.replicasets.get(joiner.replicaset)
        if found is not None and found.state != "expelled" and found.tier != joiner.tier:
            raise InvalidConfiguration(f"replicaset: {joiner.replicaset!r} is in tier {found.tier!r}")
        if found is not None and found.state == "to-be-expelled":
            raise InvalidConfiguration(f"replicaset: {joiner.replicaset!r} is being expelled")
        if found is not None and len(topology.members(found.name)) >= tier.replication_factor:
            raise InvalidConfiguration(
                f"replicaset: {joiner.replicaset!r} has as many members as its tier wants copies, which is"
                f" {tier.replication_factor}"
            )
        return joiner.replicaset
    spoken_of = replicaset_spoken_of(joiner.name, joiner.tier)
    if spoken_of is not None and (
        spoken_of not in topology.replicasets or _has_room(topology, joiner, tier, spoken_of)
    ):
        return spoken_of
    for name in sorted(topology.replicasets, key=_numbered):
        if _has_room(topology, joiner, tier, name):
            return name
    number = 1
    while f"{joiner.tier}_{number}" in topology.replicasets:
        number += 1
    return f"{joiner.tier}_{number}"


def _has_room(topology: Topology, joiner: Joiner, tier: Tier, name: str) -> bool:
    replicaset = topology.replicasets[name]
    if replicaset.tier != joiner.tier or replicaset.state in ("to-be-expelled", "expelled"):
        return False
    members = topology.members(name)
    return len(members) < tier.replication_factor and not any(
        overlap(joiner.failure_domain, member.failure_domain) for member in members
    )


def replicaset_spoken_of(name: str | None, tier: str) -> str | None:
    """default_2_1 says that it is of default_2, in tier default."""
    found = re.fullmatch(rf"({re.escape(tier)}_[1-9]\d*)_[1-9]\d*", name or "")
    return found[1] if found is not None else None


def _numbered(name: str) -> tuple[str, int]:
    """default_2 comes before default_10."""
    stem, _, number = name.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (name, 0)


def _name_in(topology: Topology, replicaset: str) -> str:
    number = 1
    while f"{replicaset}_{number}" in topology.instances:
        number += 1
    return f"{replicaset}_{number}"


# --- coming and going ----------------------------------------------------------------------------


def go_online(
    seen: Seen,
    uuid: str,
    version: str,
    addresses: Mapping[str, str],
    failure_domain: Mapping[str, str],
    reason: str,
) -> tuple[RowChange, ...]:
    """It has started: a new incarnation, and where it is found now."""
    instance = _instance(seen.topology, uuid)
    if instance.is_leaving or instance.is_expelled:
        raise InstanceExpelled(instance.name)
    check_version(seen.cluster_version, version, _versions(seen.topology) - {minor_of(instance.version)})
    online = replace(
        instance,
        target=State(Variant.ONLINE, instance.target.incarnation + 1),
        failure_domain=dict(failure_domain),
        version=version,
        reason=reason,
        changed_at=seen.now,
    )
    return (instance_change(online), *_addresses(instance.raft_id, addresses))


def go_offline(seen: Seen, uuid: str, incarnation: int, reason: str) -> tuple[RowChange, ...]:
    """Of that incarnation: a later one is another run of the instance, which isn't meant."""
    instance = _instance(seen.topology, uuid)
    if instance.target != State(Variant.ONLINE, incarnation):
        return ()
    target = State(Variant.OFFLINE, incarnation)
    return (instance_change(replace(instance, target=target, reason=reason, changed_at=seen.now)),)


def expel(seen: Seen, uuid: str, *, force: bool) -> tuple[RowChange, ...]:
    topology = seen.topology
    instance = topology.by_uuid.get(uuid)
    if instance is None:
        raise UndefinedObject(f"the cluster has no instance with uuid {uuid}")
    if instance.is_leaving or instance.is_expelled:
        return ()
    others = [
        other
        for other in topology.instances.values()
        if other.uuid != uuid and not other.is_leaving and not other.is_expelled
    ]
    if not others:
        raise _not_allowed(f"{instance.name} is the only instance of the cluster")
    tier = seen.tiers[TierName(instance.tier)]
    if tier.can_vote and not any(seen.tiers[TierName(other.tier)].can_vote for other in others):
        raise _not_allowed(f"{instance.name} is the only instance that can vote")
    replicaset = topology.replicasets[instance.replicaset]
    if replicaset.current_master == instance.name and any(
        buckets.owner == replicaset.name for buckets in topology.buckets
    ):
        # No force helps: there is no other copy that could take its place yet.
        raise _not_allowed(
            f"{instance.name} is the master of {replicaset.name}, which owns buckets: their rows are nowhere else"
        )
    if not force:
        if instance.is_online or instance.current.variant is Variant.ONLINE:
            raise _not_allowed(f"{instance.name} is Online", "Stop it first, or say FORCE.")
        if replicaset.current_master == instance.name and len(topology.members(replicaset.name)) > 1:
            raise _not_allowed(
                f"{instance.name} is the master of {replicaset.name}", "Say FORCE to expel it."
            )
    target = State(Variant.EXPELLED, instance.target.incarnation)
    return (instance_change(replace(instance, target=target, reason="expel", changed_at=seen.now)),)


def _not_allowed(why: str, hint: str | None = None) -> ObjectNotInPrerequisiteState:
    return ObjectNotInPrerequisiteState(f"the instance can't be expelled: {why}", hint=hint)


def _instance(topology: Topology, uuid: str) -> Instance:
    found = topology.by_uuid.get(uuid)
    if found is None:
        raise UndefinedObject(f"the cluster has no instance with uuid {uuid}")
    return found
