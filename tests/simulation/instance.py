"""One machine of a simulated cluster, and the process of Shoal on it: started, frozen, killed, started again on its files.

Here: SimInstance.
Not here: when any of this happens (run.py), what clients ask it (clients.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from shoal.errors import Fault, ShoalError
from shoal.node.config import load
from shoal.node.instance import Node, Stopped, opened
from shoal.protocol.cluster import Addresses
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.directory import InstanceDirectory
from tests.simulation.loop import Handle, InstanceLoop, Scheduler
from tests.simulation.network import Listener, Machine, Network
from tests.simulation.threads import outside_of

SECRET: Final = b"a secret of the simulation's own\n"


class SimInstance:
    def __init__(
        self,
        machine: Machine,
        network: Network,
        scheduler: Scheduler,
        directory: Path,
        rng: Random,
        flags: dict[str, object],
        watch: Callable[[CatalogDb, object], None],
    ) -> None:
        self.machine = machine
        self.network = network
        self.scheduler = scheduler
        self.directory = directory
        self.name = f"i{machine.number}"
        self.node: Node | None = None  # while it runs, from before it is Online
        self.loop: InstanceLoop | None = None
        self.is_online = False  # as it believes: clients are let in
        self.expelled = False
        self.ended_by: list[str] = []  # of processes that came to an end by themselves
        self.on_node: Callable[[SimInstance, Node], None] = lambda instance, node: None
        self.on_end: Callable[[SimInstance], None] = lambda instance: None
        self._rng = rng
        self._watch = watch
        self._runs = 0
        self._opened: list[Any] = []
        self._claimed: InstanceDirectory | None = None
        directory.mkdir(parents=True, exist_ok=True)
        secret = directory.parent / "cluster.secret"
        if not secret.exists():
            secret.write_bytes(SECRET)
            secret.chmod(0o600)
        self.config = load(
            assignments=(),
            flags={"instance_dir": str(directory), "secret_file": str(secret), **flags},
            environment={},
            file=None,
        )

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    @property
    def is_frozen(self) -> bool:
        return self.loop is not None and self.loop.frozen is not None

    def start(self) -> None:
        assert self.loop is None and not self.expelled
        self._runs += 1
        loop = self.loop = InstanceLoop(
            self.scheduler, self.network, self.machine, f"{self.name}.{self._runs}"
        )
        self.machine.dark = False
        self.machine.loop = loop
        self.scheduler.soon(Handle(loop, 0.0, lambda: loop.create_task(self._live(loop)), (), None))
        self.network.release()

    async def _live(self, loop: InstanceLoop) -> None:
        chance = Random(self._rng.getrandbits(64))
        outside = outside_of(
            loop, self.scheduler, chance, self._rng.uniform(-0.2, 0.2), self._watch, self._opened
        )
        address = self.machine.address
        addresses = Addresses(
            rpc=address, pg=address.replace("3301", "4327"), http=address.replace("3301", "5327")
        )
        self._claimed = InstanceDirectory.claim(self.directory)
        try:
            async with opened(
                self._claimed,
                self.config,
                addresses,
                cast(Any, Listener(address)),
                admitting=self._admitting,
                outside=outside,
            ) as node:
                self.is_online = True
                await node.stopping.wait()
                self.is_online = False
                if node.fault is not None:
                    raise node.fault
        except Stopped:
            pass
        except (ShoalError, Fault) as error:
            self.ended_by.append(str(error))
            if "expelled" in str(error):
                self.expelled = True
            elif isinstance(error, Fault):
                self.scheduler.problems.append(f"{self.name} stopped: {error}")
        self.scheduler.call_later(0.0, self._ended, loop)

    @contextlib.asynccontextmanager
    async def _admitting(self, node: Node) -> AsyncIterator[None]:
        self.node = node
        self.on_node(self, node)
        yield

    def _ended(self, loop: InstanceLoop) -> None:
        if self.loop is loop:
            self.kill()

    def kill(self, *, dark: bool = False) -> None:
        """At any moment between two events. `dark`: its machine goes with it, so that nobody is told."""
        loop = self.loop
        if loop is None:
            return
        self.machine.dark = dark
        loop.kill()
        self.loop = self.node = None
        self.is_online = False
        self.network.process_died(self.machine)
        self._close_files()
        self.on_end(self)

    def _close_files(self) -> None:
        opened, self._opened[:] = list(self._opened), []
        for made in opened:
            made.abandon()
        if self._claimed is not None:
            self._claimed.release()
            self._claimed = None

    def stop(self) -> None:
        """SIGTERM."""
        if self.node is not None and self.loop is not None:
            node = self.node
            self.scheduler.soon(Handle(self.loop, 0.0, node.stopping.set, (), None))

    def freeze(self) -> None:
        if self.loop is not None:
            self.loop.freeze()

    def thaw(self) -> None:
        if self.loop is not None:
            self.loop.thaw()
