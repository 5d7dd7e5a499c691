"""Logging in: from a connection's first byte to its session.

Here: Login, one per connection, which answers encryption requests, asks for the password, and tells the
client what it should know.
Not here: who may come in (accounts.py), the proof itself (pgwire/auth.py), frames (pgwire/codec.py), the socket (pg_server.py).

An error here ends the connection: a stranger gets one attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from shoal import __version__
from shoal.catalog.rights import ADMIN, User
from shoal.errors import CannotConnectNow, InvalidAuthorization
from shoal.node.accounts import Accounts
from shoal.node.settings import SessionSettings
from shoal.pgwire.auth import Exchange
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
    trusted: bool  # came in without a proof, and so needs no right to log in


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The connection ends, without a word."""


Progress: TypeAlias = LoggedIn | CancelRequest | Goodbye | None


class Login:
    def __init__(
        self,
        frames: Frames,
        accounts: Accounts,
        *,
        trusted: bool,
        admin_only: bool,
        where: str,
        key: BackendKeyData,
    ) -> None:
        self.out: list[bytes] = []  # to be written, whatever comes of it
        self._frames = frames
        self._accounts = accounts
        self._trusted = trusted  # admin needs no password
        self._admin_only = admin_only
        self._where = where  # the client is, for the audit
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
        if self._admin_only and parameters.user != ADMIN:
            raise InvalidAuthorization(
                f'the admin socket is for "{ADMIN}" alone, not for "{parameters.user}"',
                hint="Other users connect over TCP, with their password.",
            )
        if ADMIN not in self._accounts.rights.by_name:
            raise CannotConnectNow("this instance has no catalog yet: it waits for its cluster")
        if self._trusted and parameters.user == ADMIN:
            self._exchange = self._accounts.trust(ADMIN, self._where)
        else:
            self._trusted = False
            self._exchange = self._accounts.exchange(parameters.user, self._where)
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
        is_admin = parameters.user == ADMIN
        self._settings = SessionSettings(parameters.user, settings, is_superuser=is_admin)
        statuses = statuses_after_login(
            version=__version__,
            user=parameters.user,
            is_superuser=is_admin,
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
        user = self._accounts.rights.by_name[self._parameters.user]
        return LoggedIn(user, self._settings, self._parameters.database, self._trusted)
