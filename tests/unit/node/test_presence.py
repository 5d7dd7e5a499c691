"""How an instance comes back, and how often it asks when that doesn't last."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

from shoal.node.presence import Patience, Presence
from shoal.topology.cluster import Instance, State, Variant


def test_patience_grows_and_is_forgotten() -> None:
    patience = Patience(lambda: 1.0)
    asked = []
    now = 0.0
    for _ in range(12):
        asked.append(patience.seconds(now))
        now += asked[-1] + 1
        patience.online(now)
        now += 5  # and is given up again
    assert asked[:4] == [0.1, 0.2, 0.4, 0.8]
    assert asked[-1] == 60.0
    patience.online(now)
    assert patience.seconds(now + 30) == 0.1


def test_those_that_come_back_together_ask_at_different_moments() -> None:
    early, late = Patience(lambda: 0.0), Patience(lambda: 1.0)
    for _ in range(5):
        assert early.seconds(0.0) * 2 == late.seconds(0.0)


class Cluster:
    """As one instance sees it: its row, which the test changes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        offline = State(Variant.OFFLINE, 0)
        self.row = Instance(
            name="i1",
            uuid="u1",
            raft_id=1,
            replicaset="r1",
            replicaset_uuid="r",
            current=offline,
            target=offline,
            failure_domain={},
            tier="default",
            version="0.1.0",
        )
        self.asked: list[tuple[str, float]] = []
        self.caught_up = 0
        self.lasts = True
        self.more = asyncio.Event()
        self.presence = Presence(
            loop,
            instance=lambda: self.row,
            catch_up=self.catch_up,
            ask=self.ask,
            chance=lambda: 0.0,
            scale=0.1,
        )

    async def catch_up(self, seconds: float) -> None:
        self.caught_up += 1

    async def ask(self, reason: str) -> None:
        assert self.caught_up, "first it knows what it has missed"
        self.asked.append((reason, self.loop.time()))
        self.more.set()
        self.become(Variant.ONLINE, self.row.target.incarnation + 1)
        if not self.lasts:
            self.become(Variant.OFFLINE, self.row.target.incarnation)

    def become(self, variant: Variant, incarnation: int) -> None:
        state = State(variant, incarnation)
        self.row = replace(self.row, current=state, target=state)
        self.presence.on_topology()

    async def until_asked(self, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.asked) < times:
                self.more.clear()
                await self.more.wait()


def test_it_comes_back_by_itself() -> None:
    async def run() -> None:
        cluster = Cluster(asyncio.get_running_loop())
        await cluster.presence.begin(5.0)
        assert [reason for reason, _ in cluster.asked] == ["join"]
        cluster.become(Variant.OFFLINE, 1)
        await cluster.until_asked(2)
        assert cluster.asked[1][0] == "return" and cluster.row.is_online
        await cluster.presence.stop()
        cluster.become(Variant.OFFLINE, 2)
        await asyncio.sleep(0.1)
        assert len(cluster.asked) == 2, "who stops doesn't come back"

    asyncio.run(run())


def test_one_that_is_given_up_again_and_again_asks_ever_less_often() -> None:
    async def run() -> None:
        cluster = Cluster(asyncio.get_running_loop())
        await cluster.presence.begin(5.0)
        cluster.lasts = False
        cluster.become(Variant.OFFLINE, 1)
        await cluster.until_asked(7)
        await cluster.presence.stop()
        times = [at for _, at in cluster.asked[1:]]
        pauses = [later - at for at, later in itertools.pairwise(times)]
        # 5 ms at first, here; twice as much each time.
        assert all(pause >= 0.005 * 2**number for number, pause in enumerate(pauses))

    asyncio.run(run())
