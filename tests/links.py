"""What is between instances, in the hands of a test: TCP links that can be cut, one way too, delayed, slowed down, reset,
and left half open.

Here: Links, a thread that stands in for the RPC ports of instances; who dials is read off the first frame, so each pair and
each direction has its own rule.
Not here: starting instances so that they advertise these ports (cluster.py).

What is cut is kept, as TCP would send it again: nothing is lost in the middle of a stream, and when the link is healed all
of it arrives, late. The end of a connection doesn't get through a cut link either.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

import msgspec

from shoal.protocol.frames import Frames
from shoal.protocol.handshake import Hello

HOST: Final = "127.0.0.1"

_TICK_SECONDS: Final = 0.02
_KEPT_BYTES_MAX: Final = 1 << 20  # then the sender's kernel has to wait
_RETRY_SECONDS: Final = 0.05
_DEADLINE_SECONDS: Final = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """How what one instance says gets to another."""

    held: bool = False
    delay_seconds: float = 0.0
    bytes_per_second: int = 0  # 0: as fast as it comes


_FREE: Final = Rule()


class Links:
    """All methods are for any thread; what they say holds when they return."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._fronts: dict[str, _Front] = {}
        self._rules: dict[tuple[str, str], Rule] = {}
        self._pairs: set[_Pair] = set()
        self._lost_answers: dict[bytes, threading.Event] = {}
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_DEADLINE_SECONDS)

    def front(self, name: str, port: int) -> int:
        """The port that stands for the instance's own."""

        def make() -> int:
            made = self._fronts[name] = _Front(self, name, port)
            return made.port

        return self._do(make)

    def close(self) -> None:
        def end() -> None:
            for front in self._fronts.values():
                front.close()
            for pair in list(self._pairs):
                pair.reset()

        self._do(end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- what a test does with them; names, in the order in which words travel

    def hold(self, speaker: str, hearer: str) -> None:
        """Nothing that the one says reaches the other. The other way round nothing changes."""
        self._change(speaker, hearer, held=True)

    def cut(self, one: str, other: str) -> None:
        self.hold(one, other)
        self.hold(other, one)

    def isolate(self, name: str) -> None:
        """From everybody."""
        for other in self._fronts:
            if other != name:
                self.cut(name, other)

    def delay(self, speaker: str, hearer: str, seconds: float) -> None:
        self._change(speaker, hearer, delay_seconds=seconds)

    def trickle(self, speaker: str, hearer: str, bytes_per_second: int) -> None:
        self._change(speaker, hearer, bytes_per_second=bytes_per_second)

    def heal(self) -> None:
        """Everything is as it was, and what was held arrives."""

        def change() -> None:
            self._rules.clear()
            self._lost_answers.clear()
            for pair in list(self._pairs):
                pair.released()

        self._do(change)

    def reset(self, one: str, other: str) -> None:
        """The connections that there are between them end at once, for both. New ones may follow."""
        self._do(lambda: [pair.reset() for pair in self._between(one, other)])

    def half_open(self, one: str, other: str) -> None:
        """Who was dialled knows nothing of those connections any more; who dialled hears nothing of that."""
        self._do(lambda: [pair.half_open() for pair in self._between(one, other)])

    def lose_answer(self, request: str) -> threading.Event:
        """The next request of this name arrives, and nothing comes back on its connection. Set when it has arrived."""
        arrived = threading.Event()
        tag = msgspec.msgpack.encode(request)
        self._do(lambda: self._lost_answers.__setitem__(tag, arrived))
        return arrived

    def _change(self, speaker: str, hearer: str, **changes: object) -> None:
        def change() -> None:
            self._rules[speaker, hearer] = replace(self.rule(speaker, hearer), **changes)  # type: ignore[arg-type]

        self._do(change)

    def _between(self, one: str, other: str) -> list[_Pair]:
        return [pair for pair in self._pairs if {pair.dialler, pair.front.name} == {one, other}]

    # --- for the connections, on the links' own thread

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def rule(self, speaker: str, hearer: str) -> Rule:
        return self._rules.get((speaker, hearer), _FREE)

    def began(self, pair: _Pair) -> None:
        self._pairs.add(pair)

    def ended(self, pair: _Pair) -> None:
        self._pairs.discard(pair)

    def answer_is_lost(self, frame: bytes) -> bool:
        # A request's payload is the last of its envelope: an array that begins with its name.
        for tag, arrived in list(self._lost_answers.items()):
            if tag in frame[:64]:
                del self._lost_answers[tag]
                arrived.set()
                return True
        return False


class _Front:
    """Listens for an instance, as long as that listens itself: a port whose process is gone refuses."""

    def __init__(self, links: Links, name: str, port: int) -> None:
        self.links = links
        self.name = name
        self.target = port
        self._reserved = _bound(0)
        self.port: int = self._reserved.getsockname()[1]
        self._listener: socket.socket | None = None
        self._knocking = links.loop.create_task(self._knock())

    def close(self) -> None:
        self._knocking.cancel()
        self._stop_listening()
        self._reserved.close()

    def refused(self) -> None:
        self._stop_listening()
        if self._knocking.done():
            self._knocking = self.links.loop.create_task(self._knock())

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self.links.loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    async def _knock(self) -> None:
        """Until somebody listens there."""
        while True:
            with socket.socket() as probe:
                probe.setblocking(False)
                try:
                    await self.links.loop.sock_connect(probe, (HOST, self.target))
                    break
                except OSError:
                    pass
            await asyncio.sleep(_RETRY_SECONDS)
        self._listener = _bound(self.port)
        self._listener.listen(100)
        self._listener.setblocking(False)
        self.links.loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                _Pair(self, accepted)


class _Pair:
    """A connection that was dialled, and the one that goes on from here. The second is made when the first words of
    who dialled may pass."""

    def __init__(self, front: _Front, accepted: socket.socket) -> None:
        self.front = front
        self.links = front.links
        self.dialler = "?"
        self.near = _Side(self)
        self.far: _Side | None = None
        self._frames: Frames | None = Frames()
        self.asked = _Flow(self, from_dialler=True)
        self.answered = _Flow(self, from_dialler=False)
        self._connecting: asyncio.Task[None] | None = None
        self.links.began(self)
        self._begin(self.near, accepted)

    def _begin(self, side: _Side, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self.links.loop.create_task(_attach(self.links.loop, side, connection))
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())

    # --- what the sides tell

    def heard(self, side: _Side, data: bytes) -> None:
        if side is self.near:
            self._read_along(data)
            self.asked.feed(data)
        else:
            self.answered.feed(data)

    def _read_along(self, data: bytes) -> None:
        """Who dials, and which requests pass."""
        if self._frames is None:
            return
        try:
            self._frames.feed(data)
            for payload in self._frames:
                if self.dialler == "?":
                    self.dialler = msgspec.msgpack.decode(payload, type=Hello).introduction.instance
                    self._frames.trust()
                elif self.links.answer_is_lost(payload):
                    self.answered.lost = True
        except Exception:  # somebody speaks another language
            self._frames = None

    def lost(self, side: _Side) -> None:
        (self.asked if side is self.near else self.answered).feed(None)

    # --- what the flows do

    def pass_on(self, flow: _Flow, data: bytes | None) -> None:
        """None: the end of the connection."""
        if data is None:
            self.reset()
            return
        if flow is self.answered:
            self.near.write(data)
        elif self.far is not None:
            self.far.write(data)
        else:
            self.far = _Side(self)
            self.far.write(data)
            self._connecting = self.links.loop.create_task(self._connect(self.far))

    async def _connect(self, far: _Side) -> None:
        onward = socket.socket()
        onward.setblocking(False)
        try:
            await self.links.loop.sock_connect(onward, (HOST, self.front.target))
        except OSError:
            onward.close()
            self.front.refused()
            self.reset()
            return
        self._begin(far, onward)

    def pause(self, flow: _Flow, paused: bool) -> None:
        side = self.near if flow is self.asked else self.far
        if side is not None:
            side.pause(paused)

    # --- what a test does

    def released(self) -> None:
        self.answered.lost = False
        self.asked.pump()
        self.answered.pump()

    def reset(self) -> None:
        self.links.ended(self)
        for flow in (self.asked, self.answered):
            flow.end()
        for side in (self.near, self.far):
            if side is not None:
                side.reset()

    def half_open(self) -> None:
        if self.far is not None:
            self.far.reset()
        self.asked.swallow()
        self.answered.swallow()


class _Flow:
    """What one side of a pair says, on its way to the other."""

    def __init__(self, pair: _Pair, *, from_dialler: bool) -> None:
        self._pair = pair
        self._from_dialler = from_dialler
        self._waiting: deque[tuple[float, bytes | None]] = deque()  # with the time when it came
        self._bytes = 0
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._swallowing = False
        self._ended = False
        self.lost = False  # an answer that is not to come

    def _rule(self) -> Rule:
        pair = self._pair
        if self._from_dialler:
            return pair.links.rule(pair.dialler, pair.front.name)
        return pair.links.rule(pair.front.name, pair.dialler)

    def feed(self, data: bytes | None) -> None:
        if self._ended or self._swallowing:
            if data is None:
                self._pair.reset()
            return
        self._waiting.append((self._pair.links.loop.time(), data))
        self._bytes += len(data or b"")
        if self._bytes > _KEPT_BYTES_MAX and not self._paused:
            self._paused = True
            self._pair.pause(self, True)
        if self._timer is None:
            self.pump()

    def pump(self) -> None:
        self._timer = None
        loop, rule = self._pair.links.loop, self._rule()
        allowed = int(rule.bytes_per_second * _TICK_SECONDS) + 1 if rule.bytes_per_second else 1 << 30
        # What is held is looked at again when it is released.
        while self._waiting and not rule.held and not self.lost and not self._ended:
            came, data = self._waiting[0]
            due = came + rule.delay_seconds
            if due > loop.time():
                self._timer = loop.call_at(due, self.pump)
                break
            if allowed <= 0:
                self._timer = loop.call_later(_TICK_SECONDS, self.pump)
                break
            self._waiting.popleft()
            if data is not None and len(data) > allowed:
                self._waiting.appendleft((came, data[allowed:]))
                data = data[:allowed]
            size = len(data or b"")
            allowed -= size
            self._bytes -= size
            self._pair.pass_on(self, data)
        if self._paused and self._bytes <= _KEPT_BYTES_MAX // 2 and not self._ended:
            self._paused = False
            self._pair.pause(self, False)

    def swallow(self) -> None:
        self._swallowing = True
        self._waiting.clear()

    def end(self) -> None:
        self._ended = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()


class _Side(asyncio.Protocol):
    """One of the two sockets of a pair. What is written before it is connected waits."""

    def __init__(self, pair: _Pair) -> None:
        self._pair = pair
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        early, self._early = self._early, []
        for data in early:
            self._transport.write(data)
        if self._over:
            self.reset()

    def data_received(self, data: bytes) -> None:
        self._pair.heard(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over:
            self._over = True
            self._pair.lost(self)

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early.append(data)
        elif not self._over:
            self._transport.write(data)

    def pause(self, paused: bool) -> None:
        if self._transport is not None and not self._over:
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def reset(self) -> None:
        self._over = True
        if self._transport is not None:
            connection = self._transport.get_extra_info("socket")
            if connection is not None:  # it may be closed already
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()


async def _attach(loop: asyncio.AbstractEventLoop, side: _Side, connection: socket.socket) -> None:
    connection.setblocking(False)
    await loop.create_connection(lambda: side, sock=connection)


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, port))
    return made
