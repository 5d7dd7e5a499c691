"""The HTTP listener: /health for whoever watches the instance, /metrics for Prometheus.

Here: the routes, and uvicorn inside the instance's own event loop.
Not here: what is counted (node/metrics.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal import __version__
from shoal.node.metrics import Metrics, MetricsView
from shoal.node.raft_loop import RaftStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the instance is, in the words of /health."""

    state: str  # "starting" | "running" | "stopping" | "failed"
    instance: str
    uptime_seconds: float
    raft: RaftStatus | None = None  # None: it has not got so far


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the instance has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves on a socket that is already listening, until it is stopped."""

    def __init__(self, listener: socket.socket, health: Callable[[], Health], metrics: Metrics) -> None:
        view = MetricsView(metrics, lambda: health().uptime_seconds)

        async def serve_health(request: Request) -> JSONResponse:
            now = health()
            body = {
                "state": now.state,
                "instance": now.instance,
                "version": __version__,
                "uptime_seconds": round(now.uptime_seconds, 3),
                "raft": None if now.raft is None else asdict(now.raft),
            }
            return JSONResponse(body, status_code=200 if now.state == "running" else 503)

        async def serve_metrics(request: Request) -> Response:
            return Response(view.text(), media_type=CONTENT_TYPE_LATEST)

        app = Starlette(routes=[Route("/health", serve_health), Route("/metrics", serve_metrics)])
        settings: dict[str, Any] = {
            "log_config": None,
            "log_level": "warning",
            "access_log": False,
            "lifespan": "off",
            "server_header": False,
            "timeout_graceful_shutdown": 1,
        }
        self._listener = listener
        self._server = _Uvicorn(uvicorn.Config(app, **settings))
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="http")
        while not self._server.started:
            if self._serving.done():
                await self._serving  # raises what went wrong
                raise RuntimeError("the HTTP server ended before it had started")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        if self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._serving = None
