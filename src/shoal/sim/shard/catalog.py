"""The catalog as a replicaset sees it: versions of its row, one after another, that members apply late.

Here: Catalog: compare-and-swap, read indices, telling the members, and the governor.
Not here: how Raft agrees on it (raft/, with a simulation of its own). Here it is one register that may be away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from shoal.shard.config import Change, Config, Report, choose, failed_over
from shoal.shard.positions import ConfigVersion, Lsn, MemberId, Position

if TYPE_CHECKING:
    from shoal.sim.shard.cluster import Cluster

CATALOG: Final = MemberId(0)  # its place in the network


@dataclass(frozen=True, slots=True)
class Status:
    """What a member says of itself, now and then."""

    sender: MemberId
    sent_us: int  # by its own clock
    position: Position
    report: Report | None


class Catalog:
    def __init__(self, cluster: Cluster, first: Config) -> None:
        self._cluster = cluster
        self._rng: Random = cluster.rng
        self.log: list[Config] = [first]  # the index of a version is its place; targets change, too
        self.away = False  # nobody leads
        nothing = Position(ConfigVersion(0), Lsn(0))
        self._seen = dict.fromkeys(first.members, (0, nothing))
        self._reports: dict[MemberId, Report | None] = {}

    @property
    def config(self) -> Config:
        return self.log[-1]

    @property
    def index(self) -> int:
        return len(self.log) - 1

    def propose(self, change: Change) -> None:
        if self.away:
            return
        config = change.applied_to(self.config)
        cluster = self._cluster
        if config is None:
            if cluster.trace is not None:
                cluster.tell(f"catalog: too late for {change.base} → {change.master} {list(change.in_sync)}")
            return
        self._commit(config, change.why)

    def want_master(self, target: MemberId) -> None:
        config = self.config
        if not self.away and config.target != target:
            self._commit(
                Config(
                    version=config.version,
                    master=config.master,
                    in_sync=config.in_sync,
                    members=config.members,
                    target=target,
                ),
                "an admin",
            )

    def _commit(self, config: Config, why: str) -> None:
        cluster = self._cluster
        before = self.config
        self.log.append(config)
        if cluster.trace is not None:
            cluster.tell(
                f"catalog: v{config.version} master {config.master} in_sync {list(config.in_sync)} "
                f"target {config.target}: {why}"
            )
        cluster.invariants.configured(before, config)
        if cluster.harmful and self._rng.random() < cluster.knobs.ambushes:
            cluster.usurp()
        for member in config.members:
            self.tell(member)

    def tell(self, member: MemberId, echo_us: int | None = None) -> None:
        self._cluster.tell_catalog(member, self.index, echo_us)

    # --- what members ask ------------------------------------------------------------------------

    def on_status(self, status: Status) -> None:
        if self.away:
            return
        self._seen[status.sender] = (self._cluster.now_us, status.position)
        self._reports[status.sender] = status.report
        self.tell(status.sender, status.sent_us)

    def read_index(self) -> int | None:
        return None if self.away else self.index

    # --- the governor ----------------------------------------------------------------------------

    def govern(self) -> None:
        if self.away:
            return
        cluster, config = self._cluster, self.config
        knobs = cluster.knobs
        reachable = {
            member: position
            for member, (seen_us, position) in self._seen.items()
            if cluster.now_us - seen_us <= knobs.detect_us
        }
        if cluster.harmful and knobs.hasty and self._rng.random() < knobs.hasty:
            reachable.pop(self._rng.choice(config.members), None)
        change = choose(config, reachable, self._reports.get(config.master))
        if change is None:
            return
        delay_us = int(self._rng.expovariate(1.0) * knobs.delay_us)
        cluster.in_us(delay_us, lambda: self.propose(change))

    def depose(self, reachable: Iterable[MemberId]) -> None:
        """The governor takes the master for dead, whatever it is."""
        config = self.config
        positions = {member: self._seen[member][1] for member in reachable if member != config.master}
        change = failed_over(config, positions)
        if change is not None:
            self.propose(change)

    def forget(self) -> None:
        """Another one leads, and knows nobody yet. Whom it hasn't heard it gives the time to speak."""
        now_us = self._cluster.now_us
        self._seen = {member: (now_us, position) for member, (_, position) in self._seen.items()}
        self._reports.clear()
