"""Who is in the cluster: instances, replicasets, addresses, and who owns which buckets.

Here: Topology, one version of all that, an immutable value; what is asked of it.
Not here: the rows that hold it durably (catalog/members.py), what is to change in it (governor/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

RPC: Final = "iproto"  # kinds of address, as _pico_peer_address spells them
PG: Final = "pgproto"
HTTP: Final = "http"


class Variant(Enum):
    OFFLINE = "Offline"
    ONLINE = "Online"
    EXPELLED = "Expelled"


@dataclass(frozen=True, slots=True)
class State:
    """`incarnation` counts the times that the instance came Online."""

    variant: Variant
    incarnation: int

    def __str__(self) -> str:
        return f"{self.variant.value}({self.incarnation})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    name: str
    uuid: str
    raft_id: int
    replicaset: str
    replicaset_uuid: str
    current: State
    target: State
    failure_domain: Mapping[str, str]
    tier: str
    version: str
    sync_incarnation: int | None = None
    reason: str | None = None  # of the last change of `target`
    changed_at: int | None = None  # µs since 1970

    @property
    def is_expelled(self) -> bool:
        return self.current.variant is Variant.EXPELLED

    @property
    def is_leaving(self) -> bool:
        return self.target.variant is Variant.EXPELLED

    @property
    def is_online(self) -> bool:
        return self.current.variant is Variant.ONLINE and self.target.variant is Variant.ONLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicaset:
    name: str
    uuid: str
    current_master: str
    target_master: str
    tier: str
    weight: float = 0.0
    weight_origin: str = "auto"
    state: str = "not-ready"  # "ready", "to-be-expelled", "expelled"
    current_config_version: int = 1
    target_config_version: int = 1
    in_sync: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketRange:
    """Both ends belong to it. `owner` and `target` are replicasets."""

    tier: str
    start: int
    end: int
    state: str
    owner: str
    target: str | None


@dataclass(frozen=True)
class Topology:
    instances: Mapping[str, Instance] = field(default_factory=dict)  # by name
    replicasets: Mapping[str, Replicaset] = field(default_factory=dict)  # by name
    addresses: Mapping[tuple[int, str], str] = field(default_factory=dict)  # by raft id and kind
    buckets: tuple[BucketRange, ...] = ()

    @cached_property
    def by_uuid(self) -> Mapping[str, Instance]:
        return {instance.uuid: instance for instance in self.instances.values()}

    @cached_property
    def by_raft_id(self) -> Mapping[int, Instance]:
        return {instance.raft_id: instance for instance in self.instances.values()}

    def members(self, replicaset: str) -> list[Instance]:
        """Those that aren't expelled, by name."""
        return [
            instance
            for _, instance in sorted(self.instances.items())
            if instance.replicaset == replicaset and not instance.is_expelled
        ]

    def address(self, raft_id: int, kind: str) -> str | None:
        return self.addresses.get((raft_id, kind))

    def masters(self, tier: str) -> list[Instance]:
        """Of all replicasets of the tier, whether they own buckets or not, by name."""
        names = {
            replicaset.current_master
            for replicaset in self.replicasets.values()
            if replicaset.tier == tier and replicaset.state != "expelled"
        }
        return [self.instances[name] for name in sorted(names)]

    def owners(self, tier: str) -> list[Instance]:
        """The masters of the replicasets that own the tier's buckets, by name."""
        names = {
            self.replicasets[buckets.owner].current_master for buckets in self.buckets if buckets.tier == tier
        }
        return [self.instances[name] for name in sorted(names)]


def distance(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    """How far apart two failure domains are: the keys in which they differ."""
    return sum(one.get(key) != other.get(key) for key in {*one, *other})


def overlap(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Could one failure hit both?"""
    return any(other.get(key) == value for key, value in one.items())
