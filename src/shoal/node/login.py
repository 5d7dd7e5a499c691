"""Logging in: from a connection's first byte to its session.

Here: Login, one per connection, which answers encryption requests, asks for the password, and tells the
client what it should know.
Not here: the proof itself (pgwire/auth.py), frames (pgwire/codec.py), the socket (pg_server.py).

An error here ends the connection: a stranger gets one attempt.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from shoal import __version__
from shoal.errors import InvalidAuthorization
from shoal.node.settings import SessionSettings
from shoal.node.users import ADMIN, ADMIN_ID, User
from shoal.pgwire.auth import NONCE_BYTES, Exchange, authenticate, trust
from shoal.pgwire.codec import Frames
from shoal.pgwire.messages import (
    READY_FOR_QUERY,
    BackendKeyData,
    BackendMessage,
    CancelRequest,
    EncryptionRefused,
    GSSENCRequest,
    PasswordMessage,
    ReadyForQuery,
    SASLInitialResponse,
    SASLResponse,
    SSLRequest,
    StartupMessage,
    Terminate,
    decode_startup,
)
from shoal.pgwire.phases import IDLE, STARTUP, Phase, frontend_type, step
from shoal.pgwire.settings import statuses_after_login
from shoal.pgwire.startup import StartupParameters, negotiate, read_startup

_DECODERS: Final[Mapping[type, Callable[[bytes], PasswordMessage | SASLInitialResponse | SASLResponse]]] = {
    PasswordMessage: PasswordMessage.decode,
    SASLInitialResponse: SASLInitialResponse.decode,
    SASLResponse: SASLResponse.decode,
}


@dataclass(frozen=True, slots=True)
class LoggedIn:
    user: User
    settings: SessionSettings
    database: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The connection ends, without a word."""


Progress: TypeAlias = LoggedIn | CancelRequest | Goodbye | None


class Login:
    def __init__(
        self,
        frames: Frames,
        users: Mapping[str, User],
        *,
        trusted: bool,
        mock_key: bytes,
        key: BackendKeyData,
    ) -> None:
        self.out: list[bytes] = []  # to be written, whatever comes of it
        self._frames = frames
        self._users = users
        self._trusted = trusted
        self._mock_key = mock_key
        self._key = key
        self._phase: Phase = STARTUP
        self._parameters: StartupParameters | None = None
        self._exchange: Exchange | None = None

    def go_on(self) -> Progress:
        """Takes what has arrived; None: wait for more."""
        while self._parameters is None:
            payload = self._frames.startup()
            if payload is None:
                return None
            message = decode_startup(payload)
            if isinstance(message, CancelRequest):
                return message
            self._phase = step(self._phase, type(message))
            if isinstance(message, SSLRequest | GSSENCRequest):
                refusal = EncryptionRefused()
                self._phase = step(self._phase, EncryptionRefused)
                self.out.append(refusal.encode())
                continue
            self._start(message)
            if self._phase is IDLE:
                return self._logged_in()
        for kind, payload in self._frames:
            expected = frontend_type(self._phase, kind)
            if expected is Terminate:
                return Goodbye()
            self._phase = step(self._phase, expected)
            self._reply(_DECODERS[expected](payload))
            if self._phase is IDLE:
                return self._logged_in()
        return None

    def _start(self, message: StartupMessage) -> None:
        parameters = read_startup(message)
        negotiation = negotiate(message)
        if negotiation is not None:
            self.out.append(negotiation.encode())
        self._parameters = parameters
        self._frames.open_authentication()
        user = self._users.get(parameters.user)
        if self._trusted:
            if user is None or user.id != ADMIN_ID:
                raise InvalidAuthorization(
                    f'without a password only "{ADMIN}" may log in, not "{parameters.user}"',
                    hint=f"Connect as {ADMIN}; other users come with CREATE USER, which isn't there yet.",
                )
            self._exchange = trust()
        else:
            self._exchange = authenticate(
                parameters.user,
                user.secret if user is not None else None,
                chance=secrets.token_bytes(NONCE_BYTES),
                mock_key=self._mock_key,
            )
        self._ask(lambda exchange: next(exchange))

    def _reply(self, message: PasswordMessage | SASLInitialResponse | SASLResponse) -> None:
        self._ask(lambda exchange: exchange.send(message))

    def _ask(self, advance: Callable[[Exchange], BackendMessage]) -> None:
        assert self._exchange is not None
        try:
            self._say(advance(self._exchange))
        except StopIteration as end:
            for message in end.value:
                self._say(message)
            self._tell()

    def _say(self, message: BackendMessage) -> None:
        self._phase = step(self._phase, type(message))
        self.out.append(message.encode())

    def _tell(self) -> None:
        """The settings that clients follow, the key for CancelRequest, and that we are ready."""
        parameters = self._parameters
        assert parameters is not None
        settings = dict(parameters.settings) | {"application_name": parameters.application_name}
        self._settings = SessionSettings(parameters.user, settings)
        statuses = statuses_after_login(
            version=__version__,
            user=parameters.user,
            is_superuser=True,
            application_name=self._settings["application_name"],
            time_zone=self._settings["TimeZone"],
            default_transaction_read_only=self._settings.read_only,
        )
        self.out += [status.encode() for status in statuses]
        self.out.append(self._key.encode())
        self._phase = step(self._phase, ReadyForQuery)
        self.out.append(READY_FOR_QUERY["I"])

    def _logged_in(self) -> LoggedIn:
        assert self._parameters is not None
        self._frames.open_session()
        return LoggedIn(self._users[self._parameters.user], self._settings, self._parameters.database)
