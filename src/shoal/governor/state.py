"""What the governor's rules see of the cluster.

Here: Cluster, one moment of it, and the steps that rules may ask for.
Not here: the rules (rules/), which of their steps are taken (plan.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NewType, TypeAlias

from shoal.catalog.cas import Range
from shoal.catalog.entries import RowChange
from shoal.catalog.schema import Tier, TierName
from shoal.topology.cluster import Instance, Topology

Lane = NewType("Lane", str)  # steps of different lanes don't wait for each other

RAFT: Final = Lane("raft")


def instance_lane(instance: Instance) -> Lane:
    return Lane(f"instance {instance.name}")


def replicaset_lane(name: str) -> Lane:
    return Lane(f"replicaset {name}")


def tier_lane(name: str) -> Lane:
    return Lane(f"tier {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """As the leader has applied it, and what only the leader knows: who follows the log."""

    topology: Topology
    tiers: Mapping[TierName, Tier]
    leader: int  # raft ids, all of these
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    caught_up: frozenset[int] = field(default_factory=frozenset)  # little is missing in their logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Rows of system tables, if nothing in `ranges` has changed since."""

    lane: Lane
    why: str
    changes: tuple[RowChange, ...]
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLearner:
    lane: Lane = RAFT
    why: str
    raft_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVoter:
    lane: Lane = RAFT
    why: str
    raft_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    lane: Lane = RAFT
    why: str
    raft_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Another is to lead."""

    lane: Lane = RAFT
    why: str
    raft_id: int


Step: TypeAlias = Write | AddLearner | AddVoter | Remove | HandOver
