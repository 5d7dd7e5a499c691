"""A node inside the test's own process, and clients that need no socket.

Here: InProcess, a node on an event loop that runs only while a test waits for something; Client, a session
with a wire that gathers what it is sent.
Not here: the notation of scripts (script_session.py), sockets and processes (tests/cluster.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import uvloop

from shoal.node.config import Address, load
from shoal.node.instance import Node, opened
from shoal.node.listen import bind, bound_address
from shoal.node.session import Session
from shoal.node.settings import SessionSettings
from shoal.pgwire import messages as m
from shoal.pgwire.codec import BackendFrames, Frames, encode_all
from shoal.protocol.cluster import Addresses
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.directory import InstanceDirectory
from shoal.storage.writer import WriteSession

PATIENCE_SECONDS: Final = 30.0
_ANY_PORT: Final = Address("127.0.0.1", 0)


class InProcess:
    """A node, started; `until()` runs its loop."""

    def __init__(self, runner: asyncio.Runner, node: Node) -> None:
        self.node = node
        self._runner = runner
        self._clients = 0
        self._holding: list[threading.Event] = []

    def client(self, user: str = "admin", **settings: str) -> Client:
        self._clients += 1
        return Client(self, user, settings, self._clients)

    # --- time ---

    def until(self, check: Callable[[], object], what: str = "") -> None:
        """Runs the loop until the answer is true."""

        async def wait() -> None:
            deadline = self.node.loop.time() + PATIENCE_SECONDS
            while not check():
                assert self.node.loop.time() < deadline, f"not in time: {what or check}"
                await asyncio.sleep(0.0005)

        self._runner.run(wait())

    def turn(self) -> None:
        """Runs what is ready, and waits for nothing."""

        async def few() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        self._runner.run(few())

    # --- what a test may hold up, so that it decides what comes first ---

    def hold_writer(self) -> None:
        """From now on writes of sharded tables wait, until release()."""
        started, go = threading.Event(), threading.Event()
        self.node.writer.submit(_Hold(started, go), lambda _outcome: None)
        assert started.wait(PATIENCE_SECONDS)
        self._holding.append(go)

    def hold_catalog(self) -> None:
        """The same for entries of the cluster's log."""
        started, go = threading.Event(), threading.Event()

        def hold(_db: CatalogDb) -> None:
            started.set()
            go.wait(PATIENCE_SECONDS)

        self.node.cluster.thread.post(hold, lambda _result: None)
        assert started.wait(PATIENCE_SECONDS)
        self._holding.append(go)

    def release(self) -> None:
        for go in self._holding:
            go.set()
        self._holding.clear()

    @property
    def is_held(self) -> bool:
        return bool(self._holding)


class _Hold:
    one_statement = False

    def __init__(self, started: threading.Event, go: threading.Event) -> None:
        self._started = started
        self._go = go

    def run(self, session: WriteSession) -> None:
        self._started.set()
        self._go.wait(PATIENCE_SECONDS)


class Client:
    """A session, and what it has answered."""

    def __init__(self, inside: InProcess, user: str, settings: dict[str, str], pid: int) -> None:
        self._inside = inside
        self._answers = BackendFrames()
        self._frames = Frames()
        self._frames.open_session()
        self.full = False  # the client doesn't read
        self.closed = False
        self.told_closed = False  # by a script
        self.paused = False
        self.received_bytes = 0
        node = inside.node
        self.session = Session(
            node,
            self,
            self._frames,
            node.catalog.rights.by_name[user],
            SessionSettings(user, settings),
            "shoal",
            pid,
        )

    # --- the session's side: a wire ---

    def write(self, data: bytes) -> None:
        assert not self.closed, f"written to a closed connection: {data!r}"
        self.received_bytes += len(data)
        self._answers.feed(data)

    def is_full(self) -> bool:
        return self.full

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    # --- the test's side ---

    def send(self, *messages: m.Message) -> None:
        """One chunk."""
        self.send_bytes(encode_all(*messages))

    def send_bytes(self, chunk: bytes) -> None:
        self._frames.feed(chunk)
        self.session.pump()

    def drain(self) -> None:
        """The client reads on."""
        self.full = False
        self.session.on_drained()

    def disconnect(self) -> None:
        self.closed = True
        self.session.close()

    @property
    def is_idle(self) -> bool:
        return not self.session.is_busy and not self.session._executing.pending

    def settle(self) -> None:
        """Until all that was sent is answered, or can't be while something is held up."""
        if self._inside.is_held:
            self._inside.turn()
        else:
            self._inside.until(lambda: self.is_idle or self.full, "an idle session")

    def answers(self) -> list[m.Message]:
        """What has come since the last call."""
        return [m.BACKEND_DECODERS[kind](payload) for kind, payload in self._answers]

    def ask(self, *messages: m.Message) -> list[m.Message]:
        self.send(*messages)
        self.settle()
        return self.answers()

    def rows(self, sql: str) -> list[tuple[bytes | None, ...]]:
        answers = self.ask(m.Query(sql))
        errors = [answer for answer in answers if isinstance(answer, m.ErrorResponse)]
        assert not errors, (sql, errors)
        return [answer.values for answer in answers if isinstance(answer, m.DataRow)]


@contextlib.contextmanager
def in_process(directory: Path) -> Iterator[InProcess]:
    """A node on a directory, which may have been used before."""
    config = load(assignments=(), flags={"instance_dir": str(directory)}, environment={}, file=None)
    stack = contextlib.AsyncExitStack()

    async def start() -> Node:
        claimed = stack.enter_context(InstanceDirectory.claim(directory))
        listener = bind("rpc_listen", _ANY_PORT)
        rpc = str(bound_address(listener, _ANY_PORT))
        addresses = Addresses(rpc=rpc, pg="127.0.0.1:1", http="127.0.0.1:3")
        return await stack.enter_async_context(opened(claimed, config, addresses, listener))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        inside: InProcess | None = None
        try:
            inside = InProcess(runner, runner.run(start()))
            yield inside
        finally:
            if inside is not None:
                inside.release()
            runner.run(stack.aclose())


__all__ = ["Client", "InProcess", "in_process"]
