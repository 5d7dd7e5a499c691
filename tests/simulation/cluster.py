"""Simulated machines on a simulated network.

Here: SimCluster: several instances, made from a seed; waiting, in simulated time, until something is so.
Not here: one machine (instance.py), what is done to them and asked of them (run.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from shoal.node.instance import Node
from shoal.storage.catalog_db import CatalogDb
from tests.simulation import files
from tests.simulation.instance import SimInstance
from tests.simulation.loop import Scheduler
from tests.simulation.network import Delays, Machine, Network


class SimCluster:
    def __init__(
        self,
        seed: int,
        directory: Path,
        count: int,
        *,
        network: Delays | None = None,
        threads: Delays | None = None,
        flags: dict[str, object] | None = None,
        watch: Callable[[CatalogDb, object], None] = lambda db, value: None,
    ) -> None:
        self.rng = rng = Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, Random(rng.getrandbits(64)), network or Delays(0.0002, 0.0005))
        self.directory = directory
        self.instances: list[SimInstance] = []
        self._threads = threads or Delays(0.0001, 0.0005)
        self._flags = flags or {}
        self._watch = watch
        self._peers = ",".join(f"10.0.0.{number}:3301" for number in range(1, count + 1))
        for _ in range(count):
            self.add()

    def add(self, **flags: Any) -> SimInstance:
        """Another machine. Its instance isn't started yet."""
        number = len(self.instances) + 1
        machine = Machine(number, Random(self.rng.getrandbits(64)), self._threads)
        self.network.add(machine)
        instance = SimInstance(
            machine,
            self.network,
            self.scheduler,
            self.directory / f"i{number}",
            Random(self.rng.getrandbits(64)),
            {"peer": self._peers, **self._flags, **flags},
            self._watch,
        )
        self.instances.append(instance)
        return instance

    def start(self) -> None:
        for instance in self.instances:
            instance.start()

    def until(self, done: Callable[[], object], seconds: float, what: str = "") -> None:
        """Raises if it isn't so after that much simulated time."""
        found = self.scheduler.run(seconds, lambda: bool(done()))
        self.check()
        assert found, f"not after {seconds:g} s: {what or done}"

    def run(self, seconds: float) -> None:
        self.scheduler.run(seconds)
        self.check()

    def check(self) -> None:
        assert not self.scheduler.problems, "\n".join(self.scheduler.problems)

    @property
    def running(self) -> list[SimInstance]:
        return [instance for instance in self.instances if instance.node is not None]

    def leader(self) -> SimInstance | None:
        """Of the newest term."""
        leaders = [i for i in self.running if i.node is not None and i.node.cluster.raft.is_leader]
        return max(leaders, key=lambda i: i.node.cluster.raft.term, default=None)  # type: ignore[union-attr]

    @property
    def members(self) -> list[SimInstance]:
        return [instance for instance in self.instances if not instance.expelled]

    def is_whole(self) -> bool:
        """Everybody is there, has applied the same, and nothing is left to be done."""
        members = self.members
        if any(not instance.is_online or instance.is_frozen for instance in members):
            return False
        nodes = [instance.node for instance in members if instance.node is not None]
        if len({node.log.applied for node in nodes}) != 1:
            return False
        return all(_is_quiet(node) for node in nodes) and sum(n.cluster.raft.is_leader for n in nodes) == 1

    def standing(self) -> str:
        """How far everybody is, for people."""
        lines = []
        for instance in self.instances:
            node = instance.node
            what = "down"
            if node is not None:
                what = f"{node.cluster.raft.status()} pending {dict(node.catalog.pending)}"
                what += f" behind {sorted(node.own_tables.behind)}"
                what += "".join(
                    f"\n      {other.name} {other.current} → {other.target}"
                    for other in node.cluster.topology.instances.values()
                )
            lines.append(f"  {instance.name} online {instance.is_online}: {what} {instance.ended_by[-1:]}")
        return "\n".join(lines)

    def check_files(self) -> None:
        """All have the same catalog and global tables, and each the sharded tables that it is the master of."""
        files.same_catalogs(instance.directory for instance in self.members)
        for instance in self.members:
            assert instance.node is not None
            files.own_tables(instance.node, instance.directory)

    def close(self) -> None:
        for instance in self.instances:
            instance.kill()


def _is_quiet(node: Node) -> bool:
    return (
        not node.catalog.pending
        and not node.own_tables.behind
        and not node.cluster._governing._busy
        and all(
            instance.is_expelled or (instance.is_online and instance.current == instance.target)
            for instance in node.cluster.topology.instances.values()
        )
    )
