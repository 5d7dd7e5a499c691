"""Waiting for an entry everywhere: three ends on loopback, with logs that tests move by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from shoal.node.applied import Applied
from shoal.topology.cluster import RPC, Instance, State, Topology, Variant
from tests.unit.node.rpc_ground import Cut, Ground, run


class Log:
    def __init__(self, applied: int) -> None:
        self.applied = applied
        self.moved = asyncio.Event()

    def move(self, applied: int) -> None:
        self.applied = applied
        self.moved.set()
        self.moved = asyncio.Event()

    async def wait_applied(self, index: int, deadline: float) -> None:
        async with asyncio.timeout_at(deadline):
            while self.applied < index:
                await self.moved.wait()


def instance(number: int, variant: Variant = Variant.ONLINE, incarnation: int = 1) -> Instance:
    state = State(variant, incarnation)
    return Instance(
        name=f"i{number}",
        uuid=f"u{number}",
        raft_id=number,
        replicaset="r",
        replicaset_uuid="r",
        current=state,
        target=state,
        failure_domain={},
        tier="default",
        version="1",
    )


class Three:
    """Instance 1 asks; 2 and 3 are reached through proxies that a test may freeze."""

    @classmethod
    async def at(cls, ground: Ground, applied: int) -> Three:
        self = cls()
        self.topology = Topology({f"i{n}": instance(n) for n in (1, 2, 3)})
        self.logs = {n: Log(applied) for n in (1, 2, 3)}
        self.held = {n: asyncio.Event() for n in (1, 2, 3)}
        for event in self.held.values():
            event.set()
        self.cuts: dict[int, Cut] = {}
        self.asking: dict[int, Applied] = {}
        addresses: dict[tuple[int, str], str] = {}
        for n in (2, 3, 1):
            rpc, address = await ground.listening(f"i{n}")
            self.cuts[n] = await ground.cut(address)
            addresses[n, RPC] = self.cuts[n].address

            async def settled(n: int = n) -> None:
                await self.held[n].wait()

            self.asking[n] = Applied(
                self.logs[n],
                rpc,
                ground.loop,
                self_uuid=f"u{n}",
                topology=lambda: self.topology,
                address=lambda raft_id: self.topology.address(raft_id, RPC),
                settled=settled,
            )
        self.topology = replace(self.topology, addresses=addresses)
        return self

    def becomes(self, number: int, variant: Variant, incarnation: int) -> None:
        changed = instance(number, variant, incarnation)
        self.topology = replace(self.topology, instances={**self.topology.instances, changed.name: changed})

    def ask(self, ground: Ground, index: int, seconds: float) -> asyncio.Task[tuple[str, ...]]:
        return ground.loop.create_task(self.asking[1].everywhere(index, ground.loop.time() + seconds))


async def pending(task: asyncio.Task[tuple[str, ...]], seconds: float = 0.2) -> bool:
    done, _ = await asyncio.wait([task], timeout=seconds)
    return not done


def test_all_have_it() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        assert await three.ask(ground, 7, 30) == ()

    run(main)


def test_it_waits_for_the_last() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=6)
        asked = three.ask(ground, 7, 30)
        for n in (1, 2, 3):
            assert await pending(asked)
            three.logs[n].move(7)
        assert await asked == ()

    run(main)


def test_it_waits_for_writes_that_were_let_in_before() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        for n in (1, 2):
            three.held[n].clear()
        asked = three.ask(ground, 7, 30)
        for n in (2, 1):
            assert await pending(asked)
            three.held[n].set()
        assert await asked == ()

    run(main)


def test_who_has_not_said_so_is_named() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=6)
        three.logs[1].move(7)
        three.cuts[2].freeze()
        assert await three.ask(ground, 7, 0.3) == ("i2", "i3")
        three.logs[1].applied = 6
        assert await three.ask(ground, 7, 0.3) == ("i1", "i2", "i3")

    run(main)


def test_who_is_not_online_is_not_asked() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        three.cuts[2].freeze()
        three.cuts[3].freeze()
        three.becomes(2, Variant.OFFLINE, 1)
        three.becomes(3, Variant.EXPELLED, 1)
        assert await three.ask(ground, 7, 30) == ()

    run(main)


def test_who_goes_offline_meanwhile_is_named_at_once() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        three.cuts[3].freeze()
        asked = three.ask(ground, 7, 30)
        assert await pending(asked)
        three.becomes(3, Variant.OFFLINE, 1)
        assert await asked == ("i3",)

    run(main)


def test_who_went_offline_by_a_later_entry_is_named() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        three.asking[1].on_topology()
        three.cuts[3].freeze()
        three.logs[1].move(8)
        three.becomes(3, Variant.OFFLINE, 1)
        three.asking[1].on_topology()
        three.logs[2].move(8)
        assert await three.ask(ground, 7, 30) == ("i3",)
        assert await three.ask(ground, 8, 30) == ()

    run(main)


def test_who_comes_back_meanwhile_has_it() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        three.cuts[3].freeze()
        asked = three.ask(ground, 7, 30)
        assert await pending(asked)
        three.becomes(3, Variant.ONLINE, 2)
        assert await asked == ()

    run(main)


def test_another_instance_at_its_address_does_not_answer_for_it() -> None:
    async def main(ground: Ground) -> None:
        three = await Three.at(ground, applied=7)
        addresses = {**three.topology.addresses, (3, RPC): three.cuts[2].address}
        three.topology = replace(three.topology, addresses=addresses)
        assert await three.ask(ground, 7, 0.3) == ("i3",)

    run(main)
