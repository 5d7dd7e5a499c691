"""A connection that we accepted: who is there, what it asks, our answers.

Here: Served.
Not here: who answers what (registry.py), the proof (protocol/handshake.py).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import Final, Protocol

import msgspec

from shoal.errors import Fault, InternalError, ProtocolViolation, QueryCanceled, RetryableError, ShoalError
from shoal.node.rpc.connection import Connection, Shared, log
from shoal.node.rpc.deadlines import Deadlines
from shoal.node.rpc.registry import Caller, Registry
from shoal.protocol.envelope import ANSWER, OneWay, Request, failure, read_from_dialer
from shoal.protocol.frames import FRAME_BYTES_MAX, frame
from shoal.protocol.handshake import (
    NONCE_BYTES,
    Answering,
    Introduction,
    LogIn,
    Refusal,
    answer,
    refused,
)

# What one connection may have asked and not yet been answered.
RUNNING_MAX: Final = 4096
# Answers that wait for a dialer that doesn't read. One of the greatest length is always taken.
_WAITING_BYTES_MAX: Final = FRAME_BYTES_MAX


class Host(Protocol):
    """What a connection asks of the instance that accepted it."""

    registry: Registry
    secret: bytes
    log_in: LogIn

    def introduction(self) -> Introduction: ...
    def one_way(self, caller: Caller, payload: bytes) -> None: ...
    def fault(self, fault: Fault) -> None: ...
    def arrived(self, connection: Served) -> None: ...
    def admitted(self, connection: Served, caller: Caller) -> None: ...
    def left(self, connection: Served) -> None: ...
    def refusal(self, host: str, who: str, error: ShoalError) -> None: ...


class Served(Connection):
    def __init__(self, shared: Shared, host: Host) -> None:
        super().__init__(shared)
        self._host = host
        self._exchange: Answering | None = None
        self._caller: Caller | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._running: dict[int, tuple[asyncio.Future[msgspec.Struct], float]] = {}
        self._deadlines = Deadlines(self.loop, self._expire)
        self._address = "?"

    @property
    def user(self) -> str:
        """Of a client that has logged in; else ""."""
        return "" if self._caller is None or self._caller.role != "client" else self._caller.user

    def other_side(self) -> str:
        if self._caller is None:
            return f"a stranger at {self._address}"
        who = self._caller.user or self._caller.introduction.instance
        return f"{self._caller.role} {who!r} at {self._address}"

    # --- the handshake ---------------------------------------------------------------------------

    def begin(self) -> None:
        assert self._transport is not None
        where = self._transport.get_extra_info("peername")
        if where:
            self._address = f"{where[0]}:{where[1]}"
        timing = self.shared.timing
        self._timer = self.loop.call_later(timing.handshake_seconds * timing.scale, self._too_late)
        self._host.arrived(self)

    def take_handshake(self, payload: bytes) -> None:
        host = self._host
        try:
            if self._exchange is None:
                self._exchange = answer(
                    payload,
                    host.introduction(),
                    self.shared.chance.randbytes(NONCE_BYTES),
                    host.secret,
                    host.log_in,
                )
                self.write(frame(next(self._exchange)))
            else:
                self.write(frame(self._exchange.send(payload)))
        except StopIteration as end:
            hello, last = end.value
            self._caller = Caller(hello.role, hello.introduction, hello.user, self._address)
            assert self._timer is not None
            self._timer.cancel()
            self._exchange = None
            self.session(self._take_envelope)
            self.write(frame(last))
            host.admitted(self, self._caller)
        except ShoalError as error:
            self._refuse(error)

    def _too_late(self) -> None:
        if self.open:
            self._refuse(ProtocolViolation("the handshake takes too long"))

    def _refuse(self, error: ShoalError) -> None:
        by_them = isinstance(error, Refusal) and error.by_them
        self._host.refusal(self._address.rpartition(":")[0], self._address, error)
        if not by_them:
            self.write(frame(refused(error)))
        self.close(error.message)

    def violated(self, error: ProtocolViolation) -> None:
        if self._caller is None:
            self._refuse(error)
        else:
            log.warning("the connection with %s is closed: %s", self.other_side(), error.message)
            super().violated(error)

    # --- requests --------------------------------------------------------------------------------

    def _take_envelope(self, payload: bytes) -> None:
        message = read_from_dialer(payload)
        if type(message) is Request:
            self._take_request(message)
        else:
            self._take_one_way(message)  # type: ignore[arg-type]

    def _take_one_way(self, message: OneWay) -> None:
        caller = self._caller
        assert caller is not None
        if caller.role != "peer":
            raise ProtocolViolation("one-way messages are not for clients")
        try:
            self._host.one_way(caller, message.payload)
        except Fault as fault:
            self._host.fault(fault)
        except Exception:
            log.exception("a bug met by a one-way message of %s", self.other_side())

    def _take_request(self, message: Request) -> None:
        request_id = message.request_id
        running = self._running
        caller = self._caller
        assert caller is not None
        if request_id in running:
            raise ProtocolViolation(f"request {request_id} is asked twice")
        if len(running) >= RUNNING_MAX:
            self._fail(request_id, RetryableError(f"{RUNNING_MAX} requests wait for an answer already"))
            return
        deadline = self.heard_at + message.deadline_ms_left / 1000
        try:
            handle, request = self._host.registry.find(message.payload, caller.role)
            reply = handle(caller, request, deadline)
            if isinstance(reply, msgspec.Struct):
                self._answer(request_id, reply)
                return
            future = _future(reply, self.loop)
        except Exception as error:
            self._fail(request_id, self._told(error))
            return
        running[request_id] = future, deadline
        future.add_done_callback(functools.partial(self._done, request_id))
        self._deadlines.add(deadline)

    def _done(self, request_id: int, future: asyncio.Future[msgspec.Struct]) -> None:
        self._running.pop(request_id, None)
        if future.cancelled():
            self._fail(request_id, QueryCanceled("nobody waits for the answer any more"))
            return
        error = future.exception()
        if error is not None:
            self._fail(request_id, self._told(error))
        else:
            self._answer(request_id, future.result())

    def _answer(self, request_id: int, reply: msgspec.Struct) -> None:
        if not self.open:
            return
        try:
            self.put((ANSWER, request_id, reply))
        except Exception as error:
            self._fail(request_id, self._told(error))
        else:
            self._check_waiting()

    def _fail(self, request_id: int, error: ShoalError) -> None:
        if self.open:
            try:
                self.put(failure(request_id, error))
            except Exception:
                log.exception("an error that can't be told")
                self.put(failure(request_id, InternalError("internal error; the instance's log has it")))
            self._check_waiting()

    def _told(self, error: BaseException) -> ShoalError:
        """What the asker is told of an error that a handler raised."""
        if isinstance(error, ShoalError):
            return error
        if isinstance(error, Fault):
            self._host.fault(error)
            return InternalError("the instance stops")
        log.error("a bug met by a request of %s", self.other_side(), exc_info=error)
        return InternalError("internal error; the instance's log has it")

    def _expire(self, now: float) -> float | None:
        """Nobody waits for these any more."""
        for future, deadline in list(self._running.values()):
            if deadline <= now:
                future.cancel()
        return min((deadline for _, deadline in self._running.values() if deadline > now), default=None)

    def _check_waiting(self) -> None:
        if self.paused and len(self.out) > _WAITING_BYTES_MAX:
            log.warning("%s doesn't read its answers: the connection is closed", self.other_side())
            self.abort("it doesn't read its answers")

    def on_pause(self) -> None:
        # Who doesn't read the answers is not asked for more questions.
        self.stop_reading()

    def running(self) -> list[asyncio.Future[msgspec.Struct]]:
        return [future for future, _ in self._running.values()]

    # --- the end ---------------------------------------------------------------------------------

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._deadlines.cancel()
        for future, _ in list(self._running.values()):
            future.cancel()
        self._host.left(self)


def _future(
    reply: Awaitable[msgspec.Struct], loop: asyncio.AbstractEventLoop
) -> asyncio.Future[msgspec.Struct]:
    if asyncio.iscoroutine(reply):
        return loop.create_task(reply)
    return asyncio.ensure_future(reply, loop=loop)
