"""The HTTP listener on its own: /health, /metrics, and addresses that can't be had."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import urllib.error
import urllib.request

import pytest
import uvloop

from shoal.errors import InvalidConfiguration
from shoal.node.config import Address
from shoal.node.http import Health, HttpServer
from shoal.node.listen import bind, bound_address
from shoal.node.metrics import Metrics
from shoal.node.raft_loop import RaftStatus

ANY = Address("127.0.0.1", 0)


def fetch(address: Address, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_and_metrics() -> None:
    metrics = Metrics()
    state = "running"
    raft: RaftStatus | None = None

    async def scenario() -> None:
        nonlocal state, raft
        handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        listener = bind("http_listen", ANY)
        address = bound_address(listener, ANY)
        server = HttpServer(
            listener, lambda: Health(state=state, instance="i1", uptime_seconds=1.5, raft=raft), metrics
        )
        await server.start()
        status, text = await asyncio.to_thread(fetch, address, "/health")
        assert status == 200
        body = json.loads(text)
        assert (body["state"], body["instance"], body["uptime_seconds"]) == ("running", "i1", 1.5)
        assert body["raft"] is None
        raft = RaftStatus(
            id=2,
            term=7,
            leader_id=1,
            state="follower",
            applied=40,
            commit=41,
            voters=(1, 2, 3),
            learners=(4,),
        )
        body = json.loads((await asyncio.to_thread(fetch, address, "/health"))[1])
        assert body["raft"] == {
            "id": 2, "term": 7, "leader_id": 1, "state": "follower", "applied": 40, "commit": 41,
            "voters": [1, 2, 3], "learners": [4],
        }  # fmt: skip
        metrics.rows += 7
        metrics.open_connections = 3
        status, text = await asyncio.to_thread(fetch, address, "/metrics")
        assert status == 200
        assert "\nshoal_rows_total 7.0\n" in text
        assert "\nshoal_open_connections 3.0\n" in text
        assert "\nshoal_uptime_seconds 1.5\n" in text
        state = "stopping"
        assert (await asyncio.to_thread(fetch, address, "/health"))[0] == 503
        assert (await asyncio.to_thread(fetch, address, "/nothing"))[0] == 404
        assert handlers == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        await server.stop()
        with pytest.raises(OSError):
            await asyncio.to_thread(fetch, address, "/health")

    uvloop.run(scenario())


def test_addresses_that_cannot_be_had() -> None:
    with bind("pg_listen", ANY) as listener:
        taken = bound_address(listener, ANY)
        assert taken.port > 0
        with pytest.raises(
            InvalidConfiguration, match=f"pg_listen: can't listen on {taken}: port .* is in use"
        ):
            bind("pg_listen", taken)
    with bind("pg_listen", taken):  # at once, whatever the last run's connections are up to
        pass
    with pytest.raises(InvalidConfiguration, match=r"203\.0\.113\.1 is no address of this machine"):
        bind("pg_listen", Address("203.0.113.1", 0))
    with pytest.raises(InvalidConfiguration, match=r"pg_listen: no such host: nowhere\.invalid"):
        bind("pg_listen", Address("nowhere.invalid", 0))


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6() -> None:
    try:
        with bind("pg_listen", Address("::1", 0)) as listener:
            assert str(bound_address(listener, Address("::1", 0))).startswith("[::1]:")
    except InvalidConfiguration as error:
        pytest.skip(error.message)
