"""RPC with an end that is killed, and one that freezes."""

from __future__ import annotations

import asyncio
import signal

import pytest

from shoal.node.rpc import LinkEvent, ReplyLost, TimedOut
from shoal.protocol.envelope import Ping, Pong
from tests.unit.node.rpc_ground import Ground, Told, run
from tests.unit.node.rpc_process import Hold, Process


def test_killed_with_calls_in_flight_and_started_again() -> None:
    async def scenario(ground: Ground) -> None:
        with Process() as first:
            at = first.address
            dialler, told = ground.end("i1"), Told()
            dialler.on_link(told)
            assert await dialler.call(at, Ping(), Pong, 10) == Pong()
            calls = [asyncio.create_task(dialler.call(at, Hold(), Pong, 60)) for _ in range(20)]
            await dialler.call(at, Ping(), Pong, 10)  # behind them
            killed_at = ground.loop.time()
            first.kill()
            for call in calls:
                with pytest.raises(ReplyLost):
                    await call
            # That it is dead, and not cut off, is known at once.
            await ground.until(lambda: LinkEvent.REFUSED in told.of(at))
            assert ground.loop.time() - killed_at < 1
            assert told.of(at)[:3] == [LinkEvent.UP, LinkEvent.LOST, LinkEvent.REFUSED]
        with Process(first.port):
            await ground.until(lambda: dialler.is_up(at))
            assert await dialler.call(at, Ping(b"again"), Pong, 10) == Pong(b"again")

    run(scenario)


def test_frozen_and_thawed() -> None:
    async def scenario(ground: Ground) -> None:
        with Process() as apart:
            at = apart.address
            dialler, told = ground.end("i1"), Told()
            dialler.on_link(told)
            await dialler.call(at, Ping(), Pong, 10)
            apart.signal(signal.SIGSTOP)
            with pytest.raises(TimedOut):
                await dialler.call(at, Ping(), Pong, 0.2)
            # Its kernel still accepts connections, and nobody answers on them.
            await ground.until(lambda: LinkEvent.UNREACHABLE in told.of(at))
            assert told.of(at)[:3] == [LinkEvent.UP, LinkEvent.LOST, LinkEvent.UNREACHABLE]
            apart.signal(signal.SIGCONT)
            await ground.until(lambda: dialler.is_up(at))
            assert await dialler.call(at, Ping(b"back"), Pong, 10) == Pong(b"back")

    run(scenario)
