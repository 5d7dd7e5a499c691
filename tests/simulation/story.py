"""A short story about a few instances: a test says what happens, in simulated time.

Here: Story.
Not here: stories (test_stories.py, moves.py), chance (run.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from shoal.node.instance import Node
from tests.simulation.clients import SimClient, Statement, follow_origins
from tests.simulation.cluster import SimCluster
from tests.simulation.history import Log, Replay, check
from tests.simulation.instance import SimInstance
from tests.simulation.workload import Ddl, Op


class Story:
    """Instances are named by their numbers: 1 is the first, and has begun the cluster."""

    def __init__(self, directory: Path, count: int = 3, seed: int = 1, **options: Any) -> None:
        self.log = Log()
        self.cluster = SimCluster(seed, directory, count, watch=self.log.watch, **options)
        self.statements: list[Statement] = []
        self._clients: dict[int, SimClient] = {}
        for instance in self.cluster.instances:
            self.look_after(instance)

    def look_after(self, instance: SimInstance) -> None:
        instance.on_node = follow_origins
        instance.on_end = self._on_end

    def _on_end(self, instance: SimInstance) -> None:
        for client in self._clients.values():
            client.instance_died(instance)

    def __enter__(self) -> Story:
        self.cluster.start()
        self.until(lambda: all(instance.is_online for instance in self.cluster.instances))
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.close()

    def __getitem__(self, number: int) -> SimInstance:
        return self.cluster.instances[number - 1]

    def node(self, number: int) -> Node:
        node = self[number].node
        assert node is not None, f"{self[number].name} doesn't run"
        return node

    def until(self, done: Callable[[], object], seconds: float = 60) -> None:
        self.cluster.until(done, seconds)

    def run(self, seconds: float) -> None:
        self.cluster.run(seconds)

    # --- statements ------------------------------------------------------------------------------

    def begin(self, number: int, what: str | Op) -> Statement:
        """Sends it, and waits for nothing."""
        client = self._clients.get(number)
        if client is None or client.statement is not None or client.instance is None:
            client = self._clients[number] = SimClient(self.cluster, self.log, number, Random(number))
            assert client.connect(self[number]), f"{self[number].name} lets nobody in"
        statement = client.ask(what if isinstance(what, Op) else Ddl(what))
        self.statements.append(statement)
        return statement

    def ask(self, number: int, what: str | Op, seconds: float = 60) -> Statement:
        statement = self.begin(number, what)
        self.until(lambda: statement.outcome, seconds)
        return statement

    def ok(self, number: int, what: str | Op) -> Statement:
        statement = self.ask(number, what)
        assert statement.outcome == "ok", str(statement)
        return statement

    def check(self) -> Replay:
        """All that was answered agrees with the log."""
        return check(self.log, [statement for statement in self.statements if statement.outcome])
