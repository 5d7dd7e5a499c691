"""The PostgreSQL side's sockets: TCP for clients, a Unix socket for the administrator.

Here: PgServer with its listeners and the sessions that can be cancelled, and PgConnection, one socket.
Not here: what is said on them (login.py, session.py).

One buffer serves all reads: the loop fills it and hands it over in one turn, and frames are copied out of
it. uvloop calls buffer_updated() with a whole chunk, so a pipelined request is one call.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from shoal.catalog.rights import Rights
from shoal.errors import AdminShutdown, IoError, ShoalError, TooManyConnections
from shoal.node.catalog_log import Change
from shoal.node.login import Goodbye, LoggedIn, Login
from shoal.node.session import Session
from shoal.pgwire.codec import Frames
from shoal.pgwire.messages import BackendKeyData, CancelRequest, ErrorResponse

if TYPE_CHECKING:
    from shoal.node.instance import Node

_log: Final = logging.getLogger(__name__)

_READ_BYTES: Final = 64 * 1024
_WRITE_HIGH_BYTES: Final = 1024 * 1024
# What a client may send ahead while it waits for an answer.
_AHEAD_BYTES_MAX: Final = 4 * 1024 * 1024
_LOGIN_SECONDS: Final = 60.0
# How long a connection that we have closed waits for its client to read the last answers.
_LINGER_SECONDS: Final = 60.0
_GOODBYE_SECONDS: Final = 1.0  # the same, when the instance stops
_PID_MAX: Final = 2**31 - 1


class PgServer:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.buffer = memoryview(bytearray(_READ_BYTES))
        self.connections: set[PgConnection] = set()
        self.tcp_count = 0
        self.sessions: dict[tuple[int, int], Session] = {}
        self._servers: list[asyncio.Server] = []
        self._last_pid = 0
        self._socket_path: Path | None = None
        node.log.on_change(self._on_change)

    async def listen(self, listener: socket.socket) -> None:
        loop = self.node.loop
        server = await loop.create_server(
            lambda: PgConnection(self, trusted=self.node.config.trust), sock=listener
        )
        self._servers.append(server)

    async def listen_admin(self, path: Path) -> None:
        """Whoever may open the socket's file is the administrator."""
        try:
            path.unlink(missing_ok=True)
            server = await self.node.loop.create_unix_server(
                lambda: PgConnection(self, trusted=True, is_admin_socket=True), str(path)
            )
            path.chmod(0o600)
        except OSError as error:
            raise IoError(f"cannot listen on the admin socket {path}: {error.strerror or error}") from error
        self._servers.append(server)
        self._socket_path = path

    def new_key(self) -> BackendKeyData:
        self._last_pid = self._last_pid % _PID_MAX + 1
        return BackendKeyData(self._last_pid, secrets.randbits(32))

    def cancel(self, request: CancelRequest) -> None:
        session = self.sessions.get((request.process_id, request.secret_key))
        if session is not None:
            session.cancel()

    def _on_change(self, change: Change) -> None:
        """Whoever may not log in any more has no session either."""
        rights = change.after.rights
        if rights is change.before.rights:
            return
        for connection in list(self.connections):
            connection.check_user(rights)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        if self._socket_path is not None:
            self._socket_path.unlink(missing_ok=True)
        for connection in list(self.connections):
            connection.say_goodbye()
        # Also of clients that are gone already: nobody waits for the answer any more.
        tasks = list(self.node.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self.connections):
            await connection.closed.wait()


class PgConnection(asyncio.BufferedProtocol):
    """A socket, and whoever answers on it: a Login first, then a Session."""

    def __init__(self, server: PgServer, *, trusted: bool, is_admin_socket: bool = False) -> None:
        self._server = server
        self._buffer = server.buffer
        self._frames = Frames()
        self._trusted = trusted
        self._is_admin_socket = is_admin_socket
        self._counted = not is_admin_socket
        self._needs_login = True
        self._transport: asyncio.Transport | None = None
        self._login: Login | None = None
        self._session: Session | None = None
        self._full = False
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._key = server.new_key()
        self.closed = asyncio.Event()

    # --- the transport's calls -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server, node = self._server, self._server.node
        # uvloop's transports are no subclasses, only look alike.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        server.connections.add(self)
        node.metrics.connections += 1
        node.metrics.open_connections += 1
        server.tcp_count += self._counted
        self._login = Login(
            self._frames,
            node.accounts,
            trusted=self._trusted,
            admin_only=self._is_admin_socket,
            where=_address(transport),
            key=self._key,
        )
        self._timer = node.loop.call_later(_LOGIN_SECONDS, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        server = self._server
        server.connections.discard(self)
        server.node.metrics.open_connections -= 1
        server.tcp_count -= self._counted
        if self._timer is not None:
            self._timer.cancel()
        server.sessions.pop((self._key.process_id, self._key.secret_key), None)
        if self._session is not None:
            self._session.close()
        self.closed.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.feed(self._buffer[:nbytes])
        session = self._session
        if session is not None:
            session.pump()
            if session.is_busy and self._frames.held_bytes > _AHEAD_BYTES_MAX:
                self.pause()
        else:
            self._go_on_with_login()

    def eof_received(self) -> bool:
        self.close()
        return False

    def pause_writing(self) -> None:
        # Who doesn't read the answers is not asked for more questions.
        self._full = True
        self.pause()

    def resume_writing(self) -> None:
        self._full = False
        if self._session is not None:
            self._session.on_drained()
        else:
            self.resume()

    # --- the session's side ----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def is_full(self) -> bool:
        return self._full

    def pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        transport = self._transport
        if self._paused and not self._full and transport is not None and not transport.is_closing():
            self._paused = False
            transport.resume_reading()

    def close(self) -> None:
        self._close(_LINGER_SECONDS)

    def _close(self, linger_seconds: float) -> None:
        """The transport waits until all is sent: for ever, if its client reads no more."""
        if self._transport is None:
            return
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._server.node.loop.call_later(linger_seconds, self._transport.abort)

    def say_goodbye(self) -> None:
        """The instance stops."""
        if self._transport is None:
            return
        if not self._transport.is_closing():
            error = AdminShutdown("terminating connection due to administrator command")
            self._transport.write(ErrorResponse.of(error, fatal=True).encode())
            if self._session is not None:
                self._session.close()
        self._close(_GOODBYE_SECONDS)

    def check_user(self, rights: Rights) -> None:
        """Ends the session of a user that may not log in any more."""
        session = self._session
        if session is not None and self._needs_login and not rights.may_log_in(session.user_id):
            session.terminate(AdminShutdown("terminating connection: the user may not log in any more"))

    # --- logging in ------------------------------------------------------------------------------

    def _go_on_with_login(self) -> None:
        login = self._login
        assert login is not None and self._transport is not None
        try:
            progress = login.go_on()
            if isinstance(progress, LoggedIn):
                self._check_room()
        except ShoalError as error:
            # The phase before Ready has no way back: whatever is wrong, it is the end.
            self._transport.write(ErrorResponse.of(error, fatal=True).encode())
            self.close()
            return
        except Exception:
            _log.exception("a bug met by a connection's first messages")
            self._transport.abort()
            return
        if login.out:
            self._transport.write(b"".join(login.out))
            login.out.clear()
        match progress:
            case None:
                return
            case LoggedIn():
                self._open_session(progress)
            case CancelRequest():
                self._server.cancel(progress)
                self.close()
            case Goodbye():
                self.close()

    def _check_room(self) -> None:
        most = self._server.node.config.max_connections
        if self._counted and self._server.tcp_count > most:
            raise TooManyConnections(f"sorry, too many clients already: max_connections is {most}")

    def _open_session(self, logged_in: LoggedIn) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._login = None
        self._needs_login = not logged_in.trusted
        session = Session(
            self._server.node,
            self,
            self._frames,
            logged_in.user,
            logged_in.settings,
            logged_in.database,
            self._key.process_id,
        )
        self._session = session
        self._server.sessions[self._key.process_id, self._key.secret_key] = session
        session.pump()


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "the admin socket"
