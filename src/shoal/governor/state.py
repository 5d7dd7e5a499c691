"""What the governor's rules see of the cluster.

Here: Cluster, one moment of it, and the steps that rules may ask for.
Not here: the rules (rules/), which of their steps are taken (plan.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NewType, TypeAlias

from shoal.catalog.apply import Catalog
from shoal.catalog.cas import Range
from shoal.catalog.entries import DdlAbort, DdlCommit, RowChange
from shoal.catalog.schema import Schema, Tier, TierName
from shoal.topology.cluster import Instance, Topology

Lane = NewType("Lane", str)  # steps of different lanes don't wait for each other

RAFT: Final = Lane("raft")


def instance_lane(instance: Instance) -> Lane:
    return Lane(f"instance {instance.name}")


def replicaset_lane(name: str) -> Lane:
    return Lane(f"replicaset {name}")


def tier_lane(name: str) -> Lane:
    return Lane(f"tier {name}")


def schema_change_lane(version: int, at: Instance | None = None) -> Lane:
    """Of the change as a whole, or of applying it at one instance: one that is silent keeps nobody else waiting."""
    return Lane(f"schema change {version}" + ("" if at is None else f" at {at.name}"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a schema change can't be applied."""

    sqlstate: str
    cause: str
    detail: str | None = None


# What an instance has answered when it was asked to apply a schema change; None: it is done.
Verdict: TypeAlias = Refusal | None


@dataclass(frozen=True, slots=True)
class Heard:
    """What the leader has heard of an instance, in time that it was listening itself."""

    silent_seconds: float  # nothing came from it for so long
    gone: bool  # nobody listens at its address, and nothing has come from it since that was found
    stalled_seconds: float  # there is more in the log for it, and it has not moved for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """As the leader has applied it, and what only the leader knows: who follows the log, and what it was answered. That
    is lost with the leader, so the next one asks again: everything that is asked may be asked twice."""

    topology: Topology
    catalog: Catalog = field(default_factory=lambda: Catalog(Schema(0)))
    leader: int  # raft ids, all of these
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    caught_up: frozenset[int] = field(default_factory=frozenset)  # little is missing in their logs
    verdicts: Mapping[tuple[int, int], Verdict] = field(default_factory=dict)  # by version and raft id
    heard: Mapping[int, Heard] = field(
        default_factory=dict
    )  # by raft id; who isn't in it can't be judged yet
    offline_seconds: float = 2.0  # governor_auto_offline_timeout
    now: int = 0  # µs since 1970: for the rows that say since when

    @property
    def tiers(self) -> Mapping[TierName, Tier]:
        return self.catalog.schema.tiers


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChange:
    """An instance is to apply a pending schema change to its own tables. Its answer is a verdict."""

    lane: Lane
    why: str
    version: int
    raft_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckChange:
    """The leader tries, without keeping it, what every instance will do when a change of a global table is committed: that
    can't fail there. What it finds is the leader's verdict."""

    lane: Lane
    why: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndChange:
    """The end of a schema change goes into the log, if nothing in `ranges` has changed since."""

    lane: Lane
    why: str
    entry: DdlCommit | DdlAbort
    ranges: tuple[Range, ...]


Step: TypeAlias = Write | AddLearner | AddVoter | Remove | HandOver | ApplyChange | CheckChange | EndChange
