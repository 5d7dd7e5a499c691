"""One socket of RPC, whichever side dialled.

Here: Connection: frames in, frames out, as few writes as possible, and an end that loses nothing but itself.
Not here: what frames say (dialled.py, served.py).

All frames that one turn of the loop makes leave in one write. A side that doesn't read is not read either
(served) or is sent nothing more (dialled): what waits has a bound.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from shoal.errors import ProtocolViolation
from shoal.protocol.envelope import append_frame
from shoal.protocol.frames import Frames

log: Final = logging.getLogger("shoal.node.rpc")

READ_BYTES: Final = 128 * 1024
_WRITE_HIGH_BYTES: Final = 1024 * 1024
# Frames are handed to the transport at the end of the turn, or when there are this many bytes of them.
_BATCH_BYTES: Final = 256 * 1024
_LINGER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """`scale` stretches all of it."""

    scale: float = 1.0
    handshake_seconds: float = 2.0  # connecting, or being connected, and proving who we are
    # A link on which a call timed out, or nothing was heard for this long, is asked for a sign of life,
    quiet_seconds: float = 2.0
    # and given this long.
    probe_seconds: float = 1.0
    # The kernel gives up on what the other side's kernel doesn't take.
    unacknowledged_seconds: float = 10.0
    backoff_seconds: float = 0.02
    backoff_seconds_max: float = 1.0


@dataclass(slots=True)
class Shared:
    """What all connections of an instance share."""

    loop: asyncio.AbstractEventLoop
    timing: Timing
    chance: random.Random  # for nonces, too
    # One buffer serves all reads: the loop fills it and hands it over in one turn.
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))


class Connection(asyncio.BufferedProtocol):
    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.loop = shared.loop
        self.frames = Frames()
        self.heard_at = 0.0
        self.heard = 0  # how many times: the clock is too coarse to tell what came before what
        self.closed = shared.loop.create_future()
        self.out = bytearray()  # whole frames, not yet handed to the transport
        self.paused = False  # the transport's buffer is full
        self.open = False
        self.reason = "it closed the connection"  # why it ended, for people
        self._buffer = shared.buffer
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        self._not_reading = False
        self._taking = False
        self._linger: asyncio.TimerHandle | None = None
        self._take: Callable[[bytes], None] = self.take_handshake

    # --- of the two sides ------------------------------------------------------------------------

    def begin(self) -> None:
        raise NotImplementedError

    def take_handshake(self, payload: bytes) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """The connection is no more."""
        raise NotImplementedError

    def on_flush(self) -> None:
        """All of `out` has been handed to the transport."""

    # --- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses, only look alike.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        peer_socket = transport.get_extra_info("socket")
        timing = self.shared.timing
        peer_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Without it a connection that a partition has cut stays for a quarter of an hour, and the kernel's own
        # retransmissions come minutes after the cut is healed.
        peer_socket.setsockopt(
            socket.IPPROTO_TCP,
            socket.TCP_USER_TIMEOUT,
            int(timing.unacknowledged_seconds * timing.scale * 1000),
        )
        self.open = True
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if exc is not None and str(exc):
            self.reason = str(exc)
        if self._linger is not None:
            self._linger.cancel()
        self.end()
        if not self.closed.done():
            self.closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.open:
            return  # its words count no more, and mustn't pile up
        self.heard_at = self.loop.time()
        self.heard += 1
        self.frames.feed(self._buffer[:nbytes])
        self._take_frames()

    def eof_received(self) -> bool:
        # Nobody there reads what we would still send, and who waits for the news shouldn't wait longer.
        self.abort("it closed the connection")
        return False

    def pause_writing(self) -> None:
        self.paused = True
        self.on_pause()

    def resume_writing(self) -> None:
        self.paused = False
        self.flush()
        if self._not_reading and not self.paused:
            self._not_reading = False
            self._take_frames()
            if not self._not_reading and self.open and self._transport is not None:
                self._transport.resume_reading()

    def on_pause(self) -> None:
        """Whether the other side's words are still wanted is the sides' affair."""

    # --- in --------------------------------------------------------------------------------------

    def session(self, take: Callable[[bytes], None]) -> None:
        """The handshake is over: long frames may come, and `take` gets them."""
        self.frames.trust()
        self._take = take

    def _take_frames(self) -> None:
        if self._taking:
            return
        self._taking = True
        try:
            for payload in self.frames:
                if not self.open:
                    return
                self._take(payload)
                if self._not_reading:
                    break
        except ProtocolViolation as error:
            if self.open:
                self.violated(error)
        except Exception:
            log.exception("a bug met by what %s sent", self.other_side())
            self.abort("a bug of ours; the log has it")
        finally:
            self._taking = False
        if self.out:
            self.flush()

    def violated(self, error: ProtocolViolation) -> None:
        self.abort(error.message)

    def stop_reading(self) -> None:
        """Until the other side has taken what waits for it."""
        if not self._not_reading and self.open and self._transport is not None:
            self._not_reading = True
            self._transport.pause_reading()

    def other_side(self) -> str:
        raise NotImplementedError

    # --- out -------------------------------------------------------------------------------------

    def put(self, envelope: tuple[object, ...]) -> None:
        """A frame that leaves at the end of this turn. Raises, and puts nothing, if it can't be encoded."""
        append_frame(self.out, envelope)
        if len(self.out) >= _BATCH_BYTES:
            self.flush()
        elif not self._flushing and not self._taking:
            self._flushing = True
            self.loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        if self.out and not self.paused and self.open and self._transport is not None:
            # uvloop keeps the buffer until all of it is sent, so the next frames get another.
            waiting, self.out = self.out, bytearray()
            self.on_flush()
            self._transport.write(waiting)

    def write(self, data: bytes) -> None:
        """At once: the handshake's frames."""
        if self.open and self._transport is not None:
            self._transport.write(data)

    # --- the end ---------------------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        """Sends what waits, if the other side takes it soon."""
        if not self.open or self._transport is None:
            return
        if reason is not None:
            self.reason = reason
        self.flush()
        self.open = False
        self._transport.close()
        self._linger = self.loop.call_later(_LINGER_SECONDS, self._transport.abort)

    def abort(self, reason: str) -> None:
        if self._transport is not None and not self.closed.done():
            self.reason = reason
            self.open = False
            self._transport.abort()
