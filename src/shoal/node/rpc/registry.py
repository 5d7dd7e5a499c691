"""Who answers which request, and who may ask.

Here: Registry, Caller.
Not here: running what has been found here (served.py).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from shoal.errors import FeatureNotSupported, InsufficientPrivilege, ProtocolViolation
from shoal.protocol.envelope import UNREADABLE
from shoal.protocol.handshake import Introduction, Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of a connection that we accepted."""

    role: Role
    introduction: Introduction  # proved to be of our cluster if a peer; of a client it is only what it says
    user: str  # of a client: who has logged in
    address: str  # where the connection comes from; not where to dial


Q = TypeVar("Q", bound=msgspec.Struct)

Reply: TypeAlias = msgspec.Struct | Awaitable[msgspec.Struct]
# Given caller, request and deadline (of the loop's clock). Who returns a Struct is answered without a task.
Handle: TypeAlias = Callable[[Caller, Q, float], Reply]


@dataclass(frozen=True, slots=True)
class _Entry:
    handle: Handle[Any]
    roles: frozenset[Role]


class Registry:
    def __init__(self) -> None:
        self._entries: dict[type[msgspec.Struct], _Entry] = {}
        self._decoder: msgspec.msgpack.Decoder[msgspec.Struct] | None = None

    def add(self, request_type: type[Q], handle: Handle[Q], roles: Collection[Role]) -> None:
        config = request_type.__struct_config__
        assert config.array_like and isinstance(config.tag, str), f"{request_type} must be a tagged array"
        assert request_type not in self._entries, f"{request_type} has its handler already"
        self._entries[request_type] = _Entry(handle, frozenset(roles))
        self._decoder = None

    def find(self, payload: msgspec.Raw, role: Role) -> tuple[Handle[Any], msgspec.Struct]:
        """The request that these bytes are, and who answers it; or the error that is the answer."""
        if self._decoder is None:
            union = functools.reduce(operator.or_, self._entries)
            self._decoder = msgspec.msgpack.Decoder(union)
        try:
            request = self._decoder.decode(payload)
        except UNREADABLE as error:
            raise self._unreadable(payload, role, error) from None
        entry = self._entries[type(request)]
        if role not in entry.roles:
            raise _not_for(role, str(type(request).__struct_config__.tag))
        return entry.handle, request

    def _unreadable(self, payload: msgspec.Raw, role: Role, error: Exception) -> Exception:
        try:
            name = msgspec.msgpack.decode(payload, type=_Named).name
        except UNREADABLE:
            return ProtocolViolation("malformed request: it is no array that begins with a name")
        known = {kind.__struct_config__.tag: entry for kind, entry in self._entries.items()}
        if name in known:
            if role not in known[name].roles:
                return _not_for(role, name)
            return ProtocolViolation(f"malformed request {name!r}: {error}")
        return FeatureNotSupported(f"request {name[:_NAME_LETTERS]!r} is unknown here")


class _Named(msgspec.Struct, array_like=True):
    name: str


_NAME_LETTERS: Final = 100


def _not_for(role: Role, name: str) -> InsufficientPrivilege:
    return InsufficientPrivilege(f"request {name!r} is not for connections of role {role!r}")
