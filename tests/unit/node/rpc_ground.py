"""Real sockets on loopback for the tests of RPC: instances' ends, and ends of the tests' own making.

Here: run(), which checks that nothing stray is left; Ground, with ends that it closes; Wire, a raw connection;
Cut, a proxy that can be cut, frozen or made to vanish.
Not here: other processes (rpc_process.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

import msgspec
import uvloop

from shoal.errors import ShoalError
from shoal.node.rpc import LinkEvent, Rpc
from shoal.node.rpc.connection import Timing
from shoal.protocol.frames import Frames, frame
from shoal.protocol.handshake import Introduction, answer, dial

SECRET: Final = b"ab12-the-secret-of-all-of-them"
PATIENCE_SECONDS: Final = 30.0


def who(name: str, raft_id: int = 0, *, cluster: str = "shop", cluster_uuid: str = "") -> Introduction:
    return Introduction(cluster, cluster_uuid, f"uuid-{name}", name, raft_id)


def listener(port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen(100)
    made.setblocking(False)
    return made


def address_of(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


class Told:
    """What on_link() was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, LinkEvent]] = []

    def __call__(self, address: str, event: LinkEvent) -> None:
        self.events.append((address, event))

    def of(self, address: str) -> list[LinkEvent]:
        return [event for told, event in self.events if told == address]


class Ground:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ends: list[Rpc] = []
        self.wires: list[Wire] = []
        self.cuts: list[Cut] = []
        self.servers: list[asyncio.Server] = []
        self.serving: set[asyncio.Task[None]] = set()

    def end(self, name: str, *, secret: bytes = SECRET, timing: Timing | None = None, **options: Any) -> Rpc:
        introduction = options.pop("introduction", None) or who(name)
        made = Rpc(self.loop, introduction=lambda: introduction, secret=secret, timing=timing, **options)
        self.ends.append(made)
        return made

    async def listening(self, name: str, *, port: int = 0, **options: Any) -> tuple[Rpc, str]:
        made = self.end(name, **options)
        bound = listener(port)
        address = address_of(bound)
        await made.listen(bound)
        return made, address

    async def wire(self, address: str) -> Wire:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        made = Wire(reader, writer)
        self.wires.append(made)
        return made

    async def admitted(self, address: str, name: str = "hand-made") -> Wire:
        """A wire that has shown itself to be a peer."""
        made = await self.wire(address)
        await made.shake(dial(who(name), b"n" * 32, SECRET))
        return made

    async def cut(self, address: str) -> Cut:
        made = Cut(address)
        await made.start()
        self.cuts.append(made)
        return made

    async def pretending(self, serve: Callable[[Wire], Awaitable[None]]) -> str:
        """The address of a listener that is none of ours: `serve` does what it likes with each connection."""

        async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self.serving.add(task)
            wire = Wire(reader, writer)
            self.wires.append(wire)
            try:
                await serve(wire)
            except (EOFError, ConnectionError, ShoalError, asyncio.CancelledError):
                pass
            finally:
                self.serving.discard(task)
                writer.transport.abort()

        bound = listener()
        self.servers.append(await asyncio.start_server(begin, sock=bound))
        return address_of(bound)

    async def until(self, check: Callable[[], object], what: str = "") -> None:
        deadline = self.loop.time() + PATIENCE_SECONDS
        while not check():
            assert self.loop.time() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what or check}"
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        for wire in self.wires:
            wire.writer.transport.abort()
        for cut in self.cuts:
            await cut.close()
        for end in reversed(self.ends):  # who dials comes last, and goes first
            await end.close()
        for server in self.servers:
            server.close()
        for task in list(self.serving):
            task.cancel()
        if self.serving:
            await asyncio.wait(self.serving)


class Wire:
    """One side of a connection, hand-made."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = Frames(2**31)

    def say(self, payload: bytes) -> None:
        self.writer.write(frame(payload))

    def say_raw(self, stream: bytes) -> None:
        self.writer.write(stream)

    def put(self, *envelope: object) -> None:
        self.say(msgspec.msgpack.encode(envelope))

    async def hear(self) -> bytes:
        """The next payload; EOFError when there is none."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for payload in self._frames:
                    return payload
                chunk = await self.reader.read(65_536)
                if not chunk:
                    raise EOFError
                self._frames.feed(chunk)

    async def heard(self) -> Any:
        return msgspec.msgpack.decode(await self.hear())

    async def shake(self, exchange: Generator[bytes, bytes, Any]) -> Any:
        said = next(exchange)
        while True:
            self.say(said)
            try:
                said = exchange.send(await self.hear())
            except StopIteration as end:
                return end.value

    async def admit(self, name: str) -> None:
        """As a listener that is one of ours."""
        exchange = answer(await self.hear(), who(name), b"n" * 32, SECRET, _nobody)
        self.say(next(exchange))
        try:
            exchange.send(await self.hear())
        except StopIteration as end:
            self.say(end.value[1])

    async def ends(self) -> None:
        """Waits for the other side to close."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await self.reader.read(65_536):
                    pass
        except ConnectionError:
            pass


def _nobody(user: str, client_first: bytes) -> Generator[bytes, bytes, bytes]:
    raise AssertionError("no client comes here")


class Cut:
    """A proxy to an address. It passes bytes on until it is told otherwise."""

    def __init__(self, to: str) -> None:
        self.to = to
        self.address = ""
        self.accepting = True  # what is accepted is answered
        self.connections = 0
        self._pairs: list[tuple[asyncio.Transport, asyncio.Transport]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        bound = listener()
        self.address = address_of(bound)
        self._server = await asyncio.start_server(self._serve, sock=bound)
        self._passing = asyncio.Event()
        self._passing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        host, _, port = self.to.rpartition(":")
        await self._passing.wait()
        try:
            there, to_there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._pairs.append((writer.transport, to_there.transport))
        for source, sink in ((reader, to_there), (there, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65_536):
                await self._passing.wait()
                sink.write(chunk)
                await sink.drain()
        except (ConnectionError, RuntimeError):  # RuntimeError: uvloop's for a transport that was aborted
            pass
        sink.transport.abort()

    def freeze(self) -> None:
        """Connections stay, and nothing passes."""
        self._passing.clear()

    def thaw(self) -> None:
        self._passing.set()

    def reset(self) -> None:
        """All connections break; new ones are possible."""
        pairs, self._pairs = self._pairs, []
        for here, there in pairs:
            here.abort()
            there.abort()

    async def close(self) -> None:
        self._server.close()
        self.thaw()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class _Bugs(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage() + (f" {record.exc_info[1]!r}" if record.exc_info else ""))


def run(scenario: Callable[[Ground], Awaitable[None]], *, bugs: list[str] | None = None) -> None:
    """Runs it on a loop of its own. Stray exceptions, tasks that are left and logged bugs fail it; `bugs` are
    the beginnings of those that it provokes."""
    stray: list[str] = []
    handler = _Bugs()

    async def guarded() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: stray.append(repr(context)))
        ground = Ground(loop)
        try:
            async with asyncio.timeout(4 * PATIENCE_SECONDS):
                await scenario(ground)
        finally:
            await ground.close()
        for _ in range(3):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    logger = logging.getLogger("shoal.node.rpc")
    logger.addHandler(handler)
    try:
        uvloop.run(guarded())
    finally:
        logger.removeHandler(handler)
    assert not stray, stray
    expected = bugs or []
    assert len(handler.found) == len(expected), handler.found
    for found, beginning in zip(handler.found, expected, strict=True):
        assert found.startswith(beginning), found
