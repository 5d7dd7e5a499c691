"""A connection that we opened, and the link that opens it anew whenever it breaks.

Here: Link, one per address; Dialled, one of its connections; LinkEvent.
Not here: the proof (protocol/handshake.py), which addresses there are.

A link that breaks dials again at once: if the other side's kernel refuses, its process is dead, and whoever
waits for it needn't wait for a timeout. After that it dials again and again, ever more slowly.
"""

from __future__ import annotations

import asyncio
import enum
import functools
import math
import socket
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from shoal.errors import ProtocolViolation
from shoal.node.rpc.connection import Connection, Shared, log
from shoal.node.rpc.deadlines import Deadlines
from shoal.node.rpc.outcomes import NotSent, Rejected, ReplyLost, TimedOut
from shoal.protocol.envelope import (
    DEADLINE_MS_MAX,
    ONE_WAY,
    REQUEST,
    UNREADABLE,
    Answer,
    Failure,
    Ping,
    error_of,
    read_from_listener,
)
from shoal.protocol.frames import frame
from shoal.protocol.handshake import NONCE_BYTES, Dialling, Introduction, Refusal, dial, refused

# What may wait for a side that doesn't read. One message is always taken.
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
# Calls that wait for the connection.
WAITING_CALLS_MAX: Final = 4096
_ONCE_MORE_SECONDS: Final = 0.05
# A connection that lasted so long, in the greatest backoffs, begins anew to count its failures.
_STEADY_BACKOFFS: Final = 1.0

R = TypeVar("R", bound=msgspec.Struct)


class LinkEvent(enum.Enum):
    UP = "up"
    LOST = "lost"  # it was up, and broke
    REFUSED = "refused"  # nobody listens there: the kernel says so
    REJECTED = "rejected"  # somebody listens there, and turns us away
    UNREACHABLE = "unreachable"  # no answer, or not one that tells anything


class Call(Generic[R]):
    __slots__ = ("deadline", "future", "heard", "read", "request")

    def __init__(
        self,
        request: msgspec.Struct,
        read: Callable[[msgspec.Raw], R],
        deadline: float,
        future: asyncio.Future[R],
    ) -> None:
        self.request = request
        self.read = read
        self.deadline = deadline
        self.future = future
        self.heard = 0  # what the connection had heard when this was sent

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Dialled(Connection):
    def __init__(self, shared: Shared, address: str, ours: Introduction, secret: bytes) -> None:
        super().__init__(shared)
        self.ready: asyncio.Future[Introduction] = shared.loop.create_future()
        self.on_end: Callable[[Dialled], None] | None = None  # set when it is up
        self.pending: dict[int, Call[Any]] = {}
        self._address = address
        self._exchange: Dialling = dial(ours, shared.chance.randbytes(NONCE_BYTES), secret)
        self._last_id = 0
        self._handed_id = 0  # up to this one, requests may have left
        self._probed: int | None = None  # what had been heard when a sign of life was asked for
        self._looking: asyncio.TimerHandle | None = None

    def other_side(self) -> str:
        return self._address

    # --- the handshake ---------------------------------------------------------------------------

    def begin(self) -> None:
        self.write(frame(next(self._exchange)))

    def take_handshake(self, payload: bytes) -> None:
        try:
            self.write(frame(self._exchange.send(payload)))
        except StopIteration as end:
            self.session(self._take_envelope)
            self._look(-1)
            if not self.ready.done():
                self.ready.set_result(end.value)
        except Refusal as error:
            if not error.by_them:
                self.write(frame(refused(error)))
            self._give_up(error)
            self.close(error.message)

    def violated(self, error: ProtocolViolation) -> None:
        if self.ready.done():
            super().violated(error)
        else:
            self._give_up(Refusal("malformed", f"it doesn't speak our protocol: {error.message}"))
            self.abort(error.message)

    def _give_up(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # whoever dialled may have given up before

    # --- out -------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return len(self.out) >= WAITING_BYTES_MAX

    def ask(self, call: Call[Any], now: float) -> None:
        if self.is_full:
            call.fail(NotSent(f"too much waits to be sent to {self._address}"))
            return
        self._last_id = request_id = self._last_id + 1
        left = min(max(math.ceil((call.deadline - now) * 1000), 0), DEADLINE_MS_MAX)
        try:
            self.put((REQUEST, request_id, left, call.request))
        except Exception as error:
            call.fail(error)  # too long, or no message at all
            return
        call.heard = self.heard
        self.pending[request_id] = call

    def send(self, payload: bytes) -> bool:
        if self.is_full:
            return False
        self.put((ONE_WAY, payload))
        return True

    def on_flush(self) -> None:
        self._handed_id = self._last_id

    # --- in --------------------------------------------------------------------------------------

    def _take_envelope(self, payload: bytes) -> None:
        message = read_from_listener(payload)
        call = self.pending.pop(message.request_id, None)
        if call is None:
            # An answer that comes after its deadline. Of what was never asked there can be none.
            if not 0 < message.request_id <= self._last_id:
                raise ProtocolViolation(f"answer to request {message.request_id}, which was not asked")
            return
        future = call.future
        if future.done():
            return  # nobody waits any more
        if type(message) is Answer:
            try:
                future.set_result(call.read(message.payload))
            except UNREADABLE as error:
                future.set_exception(ReplyLost(f"the answer of {self._address} can't be read: {error}"))
        else:
            assert type(message) is Failure
            future.set_exception(error_of(message))

    # --- silence ---------------------------------------------------------------------------------

    def expire(self, now: float) -> float | None:
        """Fails the calls that are due; returns the earliest deadline of the others."""
        earliest: float | None = None
        silent = False
        for request_id, call in list(self.pending.items()):
            if call.deadline <= now:
                del self.pending[request_id]
                silent = silent or self.heard == call.heard
                call.fail(TimedOut(f"{self._address} did not answer in time"))
            elif earliest is None or call.deadline < earliest:
                earliest = call.deadline
        if silent:
            self._probe()
        return earliest

    def _look(self, heard: int) -> None:
        """One-way messages have no answers. Something between us may take them, and bring them to nobody."""
        if not self.open:
            return
        if self.heard == heard:
            self._probe()
        timing = self.shared.timing
        self._looking = self.loop.call_later(timing.quiet_seconds * timing.scale, self._look, self.heard)

    def _probe(self) -> None:
        """Nothing has been heard for a while, or since a call was sent that timed out. Is anybody there?"""
        if self._probed is not None or not self.open:
            return
        self._probed = self.heard
        if not self.is_full:
            self._last_id += 1  # the answer is to nobody
            self.put((REQUEST, self._last_id, DEADLINE_MS_MAX, Ping()))
        timing = self.shared.timing
        self.loop.call_later(timing.probe_seconds * timing.scale, self._check_life)

    def _check_life(self, again: bool = True) -> None:
        if self.heard != self._probed:
            self._probed = None
        elif again:
            # Had our own loop been held up, this would come before what has arrived meanwhile.
            self.loop.call_later(_ONCE_MORE_SECONDS, self._check_life, False)
        else:
            self.abort("it gives no sign of life")

    # --- the end ---------------------------------------------------------------------------------

    def end(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._give_up(ConnectionResetError(self.reason))
        pending, self.pending = self.pending, {}
        for request_id, call in pending.items():
            if request_id <= self._handed_id:
                call.fail(ReplyLost(f"the connection to {self._address} was lost: {self.reason}"))
            else:
                call.fail(NotSent(f"the connection to {self._address} was lost: {self.reason}"))
        if self.on_end is not None:
            self.on_end(self)


class Link:
    """Keeps a connection to one address, from the first call until forget()."""

    def __init__(
        self,
        shared: Shared,
        address: str,
        *,
        introduction: Callable[[], Introduction],
        secret: bytes,
        tell: Callable[[str, LinkEvent], None],
    ) -> None:
        self.peer: Introduction | None = None  # who was there when it was up last
        self.trouble = ""  # why it isn't up, for people
        self._shared = shared
        self._loop = shared.loop
        self._address = address
        self._introduction = introduction
        self._secret = secret
        self._tell = tell
        self._connection: Dialled | None = None  # while it is up
        self._waiting: list[Call[Any]] = []
        self._deadlines = Deadlines(shared.loop, self._expire)
        self._keeping: asyncio.Task[None] | None = shared.loop.create_task(
            self._keep(), name=f"rpc link {address}"
        )

    @property
    def is_up(self) -> bool:
        return self._connection is not None and self._connection.open

    # --- what is sent ----------------------------------------------------------------------------

    def call(
        self, request: msgspec.Struct, read: Callable[[msgspec.Raw], R], timeout: float
    ) -> asyncio.Future[R]:
        now = self._loop.time()
        call = Call(request, read, now + timeout, self._loop.create_future())
        if self._connection is not None and self._connection.open:
            self._connection.ask(call, now)
        elif len(self._waiting) < WAITING_CALLS_MAX:
            self._waiting.append(call)
        else:
            call.fail(NotSent(f"too many calls wait for {self._address}"))
        self._deadlines.add(call.deadline)
        return call.future

    def send(self, payload: bytes) -> bool:
        return self._connection is not None and self._connection.open and self._connection.send(payload)

    def _expire(self, now: float) -> float | None:
        earliest = self._connection.expire(now) if self._connection is not None else None
        still: list[Call[Any]] = []
        for call in self._waiting:
            if call.deadline <= now:
                call.fail(NotSent(f"no connection to {self._address} in time" + self._because()))
            elif not call.future.done():
                still.append(call)
                earliest = call.deadline if earliest is None else min(earliest, call.deadline)
        self._waiting = still
        return earliest

    def _because(self) -> str:
        return f": {self.trouble}" if self.trouble else ""

    # --- keeping it up ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        timing = self._shared.timing
        failures = 0
        while True:
            connection = await self._dial()
            if connection is None:
                failures += 1
            else:
                since = self._loop.time()
                await asyncio.shield(connection.closed)
                if self._loop.time() - since >= timing.backoff_seconds_max * _STEADY_BACKOFFS:
                    failures = 0
            await asyncio.sleep(self._backoff(failures))
            if connection is not None:
                failures += 1

    def _backoff(self, failures: int) -> float:
        if failures == 0:
            return 0.0
        timing = self._shared.timing
        # 2 ** 30 is past any bound, and no float's end.
        most = min(timing.backoff_seconds * 2.0 ** min(failures - 1, 30), timing.backoff_seconds_max)
        return most * (0.5 + self._shared.chance.random() / 2)

    async def _dial(self) -> Dialled | None:
        timing = self._shared.timing
        event = LinkEvent.UNREACHABLE
        failed: NotSent | None = None
        try:
            async with asyncio.timeout(timing.handshake_seconds * timing.scale):
                connection, peer = await self._connect()
        except TimeoutError:
            trouble = "it gives no answer"
        except ConnectionRefusedError:
            event, trouble = LinkEvent.REFUSED, "nobody listens there"
        except Refusal as error:
            event, trouble = LinkEvent.REJECTED, error.message
            failed = Rejected(f"{self._address} turns us away: {error.message}", error.reason)
        except (OSError, ValueError) as error:
            trouble = (error.strerror if isinstance(error, OSError) else None) or str(error)
        except Exception:
            log.exception("a bug met by a dial of %s", self._address)
            trouble = "a bug of ours; the log has it"
        else:
            if connection.open:
                self._up(connection, peer)
                return connection
            trouble = connection.reason
        if trouble != self.trouble:
            log.warning("no connection to %s: %s", self._address, trouble)
        self.trouble = trouble
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.fail(failed or NotSent(f"no connection to {self._address}: {trouble}"))
        self._tell(self._address, event)
        return None

    async def _connect(self) -> tuple[Dialled, Introduction]:
        """One connection to one of the addresses that the host's name stands for."""
        host, port = parse_address(self._address)
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        errors: list[OSError] = []
        for address in dict.fromkeys(str(info[4][0]) for info in found):
            connection = Dialled(self._shared, self._address, self._introduction(), self._secret)
            try:
                await self._loop.create_connection(functools.partial(_same, connection), address, port)
                return connection, await connection.ready
            except OSError as error:
                errors.append(error)
            except asyncio.CancelledError:
                connection.abort("it took too long")
                raise
        # That one is refused tells nothing while another might be there.
        raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[0])

    def _up(self, connection: Dialled, peer: Introduction) -> None:
        self.peer = peer
        self.trouble = ""
        self._connection = connection
        connection.on_end = self._lost
        log.info("connected to %s, instance %r", self._address, peer.instance)
        now = self._loop.time()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.future.done():
                connection.ask(call, now)
        self._tell(self._address, LinkEvent.UP)

    def _lost(self, connection: Dialled) -> None:
        self._connection = None
        self.trouble = connection.reason
        log.warning("the connection to %s is lost: %s", self._address, connection.reason)
        self._tell(self._address, LinkEvent.LOST)

    # --- the end ---------------------------------------------------------------------------------

    async def close(self, reason: str) -> None:
        connection, keeping = self._connection, self._keeping
        self.forget(reason)
        if connection is not None:
            await asyncio.shield(connection.closed)
        if keeping is not None:
            await asyncio.wait((keeping,))

    def forget(self, reason: str) -> None:
        """Nothing is told of it any more."""
        self._deadlines.cancel()
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        if self._connection is not None:
            self._connection.on_end = None
            self._connection.close(reason)
            self._connection = None
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.fail(NotSent(f"not sent to {self._address}: {reason}"))


def _same(connection: Dialled) -> Dialled:
    return connection


def parse_address(text: str) -> tuple[str, int]:
    """host:port, where the host of IPv6 stands in brackets."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no address")
    return host, int(port)
