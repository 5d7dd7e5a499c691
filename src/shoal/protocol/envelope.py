"""Envelopes: what every frame after the handshake is.

Here: Request, Answer, Failure, OneWay and their bytes; errors as they travel; Ping, the request that proves a
connection.
Not here: who may ask what, and who answers (node/rpc/).

    Request  [0, request_id, deadline_ms_left, payload]
    Answer   [1, request_id, payload]
    Failure  [2, request_id, sqlstate, message, detail, hint, extra]
    OneWay   [3, payload]

Who dialled asks, who was dialled answers, in any order. A payload of a request or an answer is an array that
begins with its name; the payload of a OneWay is bytes. Elements behind those that a reader knows are ignored,
so that a later version may add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import msgspec

from shoal import errors
from shoal.errors import ProgramLimitExceeded, ProtocolViolation, ShoalError
from shoal.protocol.frames import FRAME_BYTES_MAX, HEADER_BYTES, write_header

REQUEST: Final = 0
ANSWER: Final = 1
FAILURE: Final = 2
ONE_WAY: Final = 3

DEADLINE_MS_MAX: Final = 2**32 - 1  # 49 days

_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Sqlstate: TypeAlias = Annotated[str, msgspec.Meta(pattern="^[0-9A-Z]{5}$")]

Extra: TypeAlias = Mapping[str, str | int]


class Request(msgspec.Struct, frozen=True, array_like=True, tag=REQUEST):
    request_id: _Id  # the dialer's, not used for another request of this connection
    deadline_ms_left: Annotated[int, msgspec.Meta(ge=0, le=DEADLINE_MS_MAX)]  # nobody waits longer
    payload: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=ANSWER):
    request_id: _Id
    payload: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, array_like=True, tag=FAILURE):
    request_id: _Id
    sqlstate: _Sqlstate
    message: str
    detail: str | None = None
    hint: str | None = None
    extra: dict[str, str | int] = {}


class OneWay(msgspec.Struct, frozen=True, array_like=True, tag=ONE_WAY):
    payload: bytes


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    echo: bytes = b""


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    echo: bytes = b""


class ForeignError(ShoalError):
    """Has a SQLSTATE that this version has no class for. The instance's attribute has it."""


UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)

_encode_into: Final = msgspec.msgpack.Encoder().encode_into
_from_dialer: Final[msgspec.msgpack.Decoder[Request | OneWay]] = msgspec.msgpack.Decoder(Request | OneWay)
_from_listener: Final[msgspec.msgpack.Decoder[Answer | Failure]] = msgspec.msgpack.Decoder(Answer | Failure)


def append_frame(out: bytearray, envelope: tuple[object, ...]) -> None:
    """Adds the frame of an envelope, or leaves `out` as it was and raises."""
    at = len(out)
    out += bytes(HEADER_BYTES)
    try:
        _encode_into(envelope, out, at + HEADER_BYTES)
        length = len(out) - at - HEADER_BYTES
        if length > FRAME_BYTES_MAX:
            raise ProgramLimitExceeded(f"message of {length} bytes, the most is {FRAME_BYTES_MAX}")
    except BaseException:
        del out[at:]
        raise
    write_header(out, at, length)


def failure(request_id: int, error: ShoalError) -> tuple[object, ...]:
    """The envelope of an error. Its position is left out: it counts in a text that the asker may not have."""
    return (FAILURE, request_id, error.sqlstate, error.message, error.detail, error.hint, dict(error.extra))


def read_from_dialer(payload: bytes) -> Request | OneWay:
    try:
        return _from_dialer.decode(payload)
    except UNREADABLE as error:
        raise ProtocolViolation(f"malformed envelope: {error}") from None


def read_from_listener(payload: bytes) -> Answer | Failure:
    try:
        return _from_listener.decode(payload)
    except UNREADABLE as error:
        raise ProtocolViolation(f"malformed envelope: {error}") from None


def error_of(failed: Failure) -> ShoalError:
    """The error as it was raised on the other side, in the first class of errors.py that has its SQLSTATE."""
    kind = _CLASSES.get(failed.sqlstate, ForeignError)
    # Not by the class's own __init__: some have a text of their own, and this one has been written already.
    error = kind.__new__(kind)
    ShoalError.__init__(error, failed.message, detail=failed.detail, hint=failed.hint)
    error.extra = failed.extra
    if kind is ForeignError:
        vars(error)["sqlstate"] = failed.sqlstate
    return error


def _classes() -> dict[str, type[ShoalError]]:
    found: dict[str, type[ShoalError]] = {}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, ShoalError) and "sqlstate" in vars(kind):
            if kind is not ShoalError:
                found.setdefault(kind.sqlstate, kind)
    return found


_CLASSES: Final = _classes()
