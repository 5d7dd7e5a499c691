"""All RPC of an instance: its listener, its links, and what it answers.

Here: Rpc.
Not here: a connection's life (served.py, dialled.py), messages (each part of the instance has its own).
"""

from __future__ import annotations

import asyncio
import functools
import random
import socket
from collections.abc import Callable, Collection
from typing import Final, TypeVar

import msgspec

from shoal.errors import Fault, ShoalError
from shoal.node.rpc.connection import Shared, Timing, log
from shoal.node.rpc.dialled import Link, LinkEvent
from shoal.node.rpc.login import login, nobody
from shoal.node.rpc.outcomes import NotSent
from shoal.node.rpc.registry import Caller, Handle, Registry
from shoal.node.rpc.served import Served
from shoal.pgwire.auth import Exchange
from shoal.protocol.envelope import Ping, Pong
from shoal.protocol.handshake import Introduction, Refusal, Role

# Connections that have not yet proved who they are. The oldest makes room for one more.
STRANGERS_MAX: Final = 256
# A host is named in the log for the same reason at most so often.
_SAID_SECONDS: Final = 10.0
_SAID_MAX: Final = 256

_HANDLERS_SECONDS: Final = 1.0

_PEERS: Final[tuple[Role, ...]] = ("peer",)

Q = TypeVar("Q", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)


class Rpc:
    """Lives on the event loop. `introduction` is asked for each connection anew, since an instance learns its
    cluster's and its own ids only when it has joined. No client gets in before admit_clients()."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        introduction: Callable[[], Introduction],
        secret: bytes,
        on_fault: Callable[[Fault], None] | None = None,
        timing: Timing | None = None,
        chance: random.Random | None = None,
    ) -> None:
        assert secret
        self.registry = Registry()
        self.introduction = introduction
        self.secret = secret
        self._shared = Shared(loop, timing or Timing(), chance or random.SystemRandom())
        self.log_in = nobody(self._shared.chance)
        self._loop = loop
        self._on_fault = on_fault
        self._receive: Callable[[Caller, bytes], None] | None = None
        self._changed: Callable[[str, LinkEvent], None] | None = None
        self._met: Callable[[Introduction], None] | None = None
        self._links: dict[str, Link] = {}
        self._servers: list[asyncio.Server] = []
        self._served: dict[Served, None] = {}  # these two in the order in which they came
        self._strangers: dict[Served, None] = {}
        self._said: dict[tuple[str, str], float] = {}
        self._closing = False
        self.handle(Ping, lambda caller, ping, deadline: Pong(ping.echo), roles=("peer", "client"))

    # --- what we answer --------------------------------------------------------------------------

    def handle(self, request_type: type[Q], handle: Handle[Q], *, roles: Collection[Role] = _PEERS) -> None:
        """`handle(caller, request, deadline)` returns the reply, or what gives it when awaited (it is cancelled
        when the deadline has passed or the caller is gone). What it raises is the caller's error."""
        self.registry.add(request_type, handle, roles)

    def admit_clients(self, begin: Callable[[str], Exchange]) -> None:
        """`begin` gives the exchange of SCRAM with a user."""
        self.log_in = login(begin)

    def end_clients(self, is_welcome: Callable[[str], bool]) -> None:
        """Closes the connections of users that are not welcome any more. What they have asked is not answered."""
        for connection in list(self._served):
            user = connection.user
            if user and not is_welcome(user):
                connection.close(f"user {user!r} may not log in any more")

    def on_one_way(self, receive: Callable[[Caller, bytes], None]) -> None:
        self._receive = receive

    def on_link(self, changed: Callable[[str, LinkEvent], None]) -> None:
        """Told of every dial's outcome, and of every connection that breaks."""
        self._changed = changed

    def on_peer(self, met: Callable[[Introduction], None]) -> None:
        """Told who is there whenever a peer has proved itself, whichever side has dialled."""
        self._met = met

    async def listen(self, listener: socket.socket) -> None:
        server = await self._loop.create_server(lambda: Served(self._shared, self), sock=listener)
        self._servers.append(server)

    # --- what we ask -----------------------------------------------------------------------------

    async def call(self, address: str, request: msgspec.Struct, reply_type: type[R], timeout: float) -> R:
        """The other side's reply, or its error. NotSent: it never left. ReplyLost, TimedOut: it may have happened.

        While there is no connection the call waits for one, until the dial under way has failed or the next one
        has: so whoever asks again and again is slowed down to the pace of the dials.
        """
        return await self._link(address).call(request, _reader(reply_type), timeout)

    def send(self, address: str, payload: bytes) -> bool:
        """A one-way message, dropped (False) while there is no connection, or too much waits to be sent. True
        promises nothing either. Raises ProgramLimitExceeded for what no frame can hold."""
        return not self._closing and self._link(address).send(payload)

    def dial(self, address: str) -> None:
        """Has a connection made before it is needed."""
        if not self._closing:
            self._link(address)

    def forget(self, address: str) -> None:
        """No longer dialled, and nothing more told of it; until somebody calls it again."""
        link = self._links.pop(address, None)
        if link is not None:
            link.forget("the address is no longer in use")

    def is_up(self, address: str) -> bool:
        link = self._links.get(address)
        return link is not None and link.is_up

    def peer(self, address: str) -> Introduction | None:
        """Who was there when it was up last: it may be another instance than the one that was expected."""
        link = self._links.get(address)
        return link.peer if link is not None else None

    def trouble(self, address: str) -> str:
        """Why there is no connection, for people; "" while there is one, or no dial has failed yet."""
        link = self._links.get(address)
        return link.trouble if link is not None else ""

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            if self._closing:
                raise NotSent("the instance is stopping")
            link = self._links[address] = Link(
                self._shared,
                address,
                introduction=self.introduction,
                secret=self.secret,
                tell=self._tell,
            )
        return link

    def _tell(self, address: str, event: LinkEvent) -> None:
        peer = self.peer(address) if event is LinkEvent.UP else None
        if peer is not None:
            self._meet(peer)
        if self._changed is None:
            return
        try:
            self._changed(address, event)
        except Fault as fault:
            self.fault(fault)
        except Exception:
            log.exception("a bug met by the news that %s is %s", address, event.value)

    def _meet(self, peer: Introduction) -> None:
        if self._met is None:
            return
        try:
            self._met(peer)
        except Exception:
            log.exception("a bug met by the news of who is there")

    # --- the end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """What was put is sent, if the other sides take it within a second; calls in flight are lost. Handlers
        are cancelled, and are over when this returns, unless they resist."""
        self._closing = True
        for server in self._servers:
            server.close()
        links, self._links = self._links, {}
        served = list(self._served)
        running = [future for connection in served for future in connection.running()]
        for connection in served:
            connection.close("the instance is stopping")
        await asyncio.gather(
            *(link.close("the instance is stopping") for link in links.values()),
            *(asyncio.shield(connection.closed) for connection in served),
        )
        if running:
            await asyncio.wait(running, timeout=_HANDLERS_SECONDS)

    # --- the served connections' questions -------------------------------------------------------

    def one_way(self, caller: Caller, payload: bytes) -> None:
        if self._receive is not None:
            self._receive(caller, payload)

    def fault(self, fault: Fault) -> None:
        log.critical("met while answering: %s", fault)
        if self._on_fault is not None:
            self._on_fault(fault)

    def arrived(self, connection: Served) -> None:
        self._served[connection] = None
        if self._closing:
            connection.abort("the instance is stopping")
            return
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort("too many strangers")
        self._strangers[connection] = None

    def admitted(self, connection: Served, caller: Caller) -> None:
        self._strangers.pop(connection, None)
        if caller.role == "peer":
            self._meet(caller.introduction)

    def left(self, connection: Served) -> None:
        self._strangers.pop(connection, None)
        self._served.pop(connection, None)

    def refusal(self, host: str, who: str, error: ShoalError) -> None:
        now = self._loop.time()
        key = (host, type(error).__name__ + getattr(error, "reason", ""))
        if now - self._said.get(key, -_SAID_SECONDS) < _SAID_SECONDS:
            return
        if len(self._said) >= _SAID_MAX:
            self._said.clear()
        self._said[key] = now
        by_them = isinstance(error, Refusal) and error.by_them
        said = "%s turns us away: %s" if by_them else "refused a connection from %s: %s"
        log.warning(said, who, error.message)


@functools.cache
def _reader(reply_type: type[R]) -> Callable[[msgspec.Raw], R]:
    return msgspec.msgpack.Decoder(reply_type).decode
