"""What a client says: every frontend message and its layout, in both directions.

Here: the values, their decoding (the server's way, tuned where every statement passes) and encoding (the
client's way, and the tests'); DECODERS, by type byte; spread_formats().
Not here: cutting the stream into frames (../codec.py), which message may follow which (../phases.py), what the
startup parameters mean (../startup.py).

Whatever the bytes are, decoding answers with a message, ProtocolViolation (08P01) or, for text that is not
UTF-8, InvalidCharacter (22021), and leaves the stream in step.
"""

from __future__ import annotations

import itertools
import struct
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Literal, Self, TypeAlias

from shoal.errors import ShoalError
from shoal.pgwire.messages.fields import (
    BINARY_FORMAT,
    TEXT_FORMAT,
    Bare,
    Fields,
    Message,
    int16,
    int32,
    not_utf8,
    string,
    text_of,
    uint16,
    uint16s,
    uint32,
    uint32s,
    value,
    violated,
)

# The first message of a connection has no type byte, but a number that says which of four it is.
CANCEL_REQUEST_CODE: Final = 80877102
SSL_REQUEST_CODE: Final = 80877103
GSSENC_REQUEST_CODE: Final = 80877104

StartupParameter: TypeAlias = tuple[str, str]

# What Describe and Close speak of.
Target = Literal["statement", "portal"]
_TARGETS: Final[Mapping[bytes, Target]] = {b"S": "statement", b"P": "portal"}
_TARGET_BYTES: Final[Mapping[Target, bytes]] = {target: byte for byte, target in _TARGETS.items()}


# The first message of a connection


class StartupMessage(Message, frozen=True, gc=False):
    """Asks for a session: who, where, and with which settings."""

    major: int
    minor: int
    parameters: tuple[StartupParameter, ...]  # as sent, repetitions included

    def encode(self) -> bytes:
        pairs = b"".join(string(name) + string(text) for name, text in self.parameters)
        return _untyped(uint32(self.major << 16 | self.minor) + pairs + b"\0")


class SSLRequest(Message, frozen=True, gc=False):
    """Asks for TLS. The answer is one bare byte, S or N."""

    def encode(self) -> bytes:
        return _untyped(uint32(SSL_REQUEST_CODE))


class GSSENCRequest(Message, frozen=True, gc=False):
    """Asks for GSSAPI encryption. We have none, and clients go on when they hear N."""

    def encode(self) -> bytes:
        return _untyped(uint32(GSSENC_REQUEST_CODE))


class CancelRequest(Message, frozen=True, gc=False):
    """Asks, on a connection of its own, to stop what another connection is doing. Never answered."""

    process_id: int
    secret_key: int  # from the other connection's BackendKeyData

    def encode(self) -> bytes:
        return _untyped(uint32(CANCEL_REQUEST_CODE) + uint32(self.process_id) + uint32(self.secret_key))


def decode_startup(payload: bytes) -> StartupMessage | SSLRequest | GSSENCRequest | CancelRequest:
    """The untyped packet that opens a connection (Frames.startup() cuts it out)."""
    fields = Fields(payload)
    code = fields.uint32()
    if code == SSL_REQUEST_CODE:
        fields.end()
        return SSLRequest()
    if code == GSSENC_REQUEST_CODE:
        fields.end()
        return GSSENCRequest()
    if code == CANCEL_REQUEST_CODE:
        request = CancelRequest(process_id=fields.uint32(), secret_key=fields.uint32())
        fields.end()
        return request
    major, minor = code >> 16, code & 0xFFFF
    if major != 3:
        # Who speaks another version lays its packet out differently; the version is all we may read.
        return StartupMessage(major=major, minor=minor, parameters=())
    parameters: list[StartupParameter] = []
    while name := fields.string():
        parameters.append((name, fields.string()))
    fields.end()
    return StartupMessage(major=major, minor=minor, parameters=tuple(parameters))


def _untyped(payload: bytes) -> bytes:
    return uint32(len(payload) + 4) + payload


# Authentication: three messages share the type byte p, the phase says which one it is


class PasswordMessage(Message, frozen=True, gc=False):
    """Answers AuthenticationCleartextPassword or AuthenticationMD5Password."""

    kind: ClassVar[int] = ord("p")
    password: bytes

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(fields.raw_string())
        fields.end()
        return message

    def payload(self) -> bytes:
        return self.password + b"\0"

    def __repr__(self) -> str:
        return "PasswordMessage(password=…)"  # messages get logged, passwords must not


class SASLInitialResponse(Message, frozen=True, gc=False):
    """Picks a mechanism of AuthenticationSASL, and says the mechanism's first words."""

    kind: ClassVar[int] = ord("p")
    mechanism: str
    response: bytes | None

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(mechanism=fields.string(), response=fields.value())
        fields.end()
        return message

    def payload(self) -> bytes:
        return string(self.mechanism) + value(self.response)


class SASLResponse(Message, frozen=True, gc=False):
    """Answers AuthenticationSASLContinue."""

    kind: ClassVar[int] = ord("p")
    response: bytes

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(payload)

    def payload(self) -> bytes:
        return self.response


# Statements


class Query(Message, frozen=True, gc=False):
    """The simple protocol: statements as text, run at once, answered in text."""

    kind: ClassVar[int] = ord("Q")
    text: str

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        text = payload[:-1]
        if payload[-1:] != b"\0" or b"\0" in text:
            raise violated("query text does not end where its message ends")
        return cls(text_of(text))

    def payload(self) -> bytes:
        return string(self.text)


class Parse(Message, frozen=True, gc=False):
    """Makes a prepared statement of a text."""

    kind: ClassVar[int] = ord("P")
    statement: str  # "" is the unnamed statement; every unnamed Parse replaces it
    text: str
    parameter_types: tuple[int, ...]  # OIDs; 0 leaves a type to be inferred, and so do missing ones

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        try:
            statement, text, types = payload.split(b"\0", 2)
            (count,) = _uint16_at(types)
            if len(types) != 2 + 4 * count:
                raise violated(f"parse message has {len(types) - 2} bytes for {count} parameter types")
            return cls(
                statement.decode(),
                text.decode(),
                struct.unpack_from(f">{count}I", types, 2) if count else (),
            )
        except UnicodeDecodeError as error:
            raise not_utf8(error) from None
        except (ValueError, struct.error):
            raise violated("parse message is malformed") from None

    def payload(self) -> bytes:
        return (
            string(self.statement)
            + string(self.text)
            + uint16(len(self.parameter_types))
            + uint32s(self.parameter_types)
        )


class Bind(Message, frozen=True, gc=False):
    """Gives a prepared statement its parameters, and opens a portal on the result."""

    kind: ClassVar[int] = ord("B")
    portal: str  # "" is the unnamed portal; every unnamed Bind replaces it
    statement: str
    parameter_formats: tuple[int, ...]  # none: all text; one: it holds for all; else one for each
    parameters: tuple[bytes | None, ...]  # None is NULL, b"" is an empty string
    result_formats: tuple[int, ...]  # the same rule; how many columns there are, the statement knows

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        try:
            portal, statement, rest = payload.split(b"\0", 2)
            (count,) = _uint16_at(rest)
            at = 2 + 2 * count
            if (parameter_formats := _FORMATS.get(rest[2:at])) is None:
                parameter_formats = _unusual_formats(rest, 2, count)
            (count,) = _uint16_at(rest, at)
            at += 2
            if len(parameter_formats) > 1 and len(parameter_formats) != count:
                raise violated(f"got {len(parameter_formats)} format codes for {count} items")
            if count == 1:  # the point statement, without the loop's list
                (length,) = _int32_at(rest, at)
                at += 4
                parameters: tuple[bytes | None, ...]
                if length >= 0:
                    parameters = (rest[at : at + length],)
                    at += length
                elif length == -1:
                    parameters = _ONE_NULL
                else:
                    raise violated(f"parameter of {length} bytes")
            else:
                values: list[bytes | None] = []
                for _ in range(count):
                    (length,) = _int32_at(rest, at)
                    at += 4
                    if length >= 0:
                        values.append(rest[at : at + length])
                        at += length
                    elif length == -1:
                        values.append(None)
                    else:
                        raise violated(f"parameter of {length} bytes")
                parameters = tuple(values)
            # A length that points past the end cuts its parameter short, and then there is no count here.
            (count,) = _uint16_at(rest, at)
            at += 2
            if len(rest) != at + 2 * count:
                raise violated(f"bind message has {len(rest) - at} bytes for {count} result formats")
            if (result_formats := _FORMATS.get(rest[at:])) is None:
                result_formats = _unusual_formats(rest, at, count)
            return cls(portal.decode(), statement.decode(), parameter_formats, parameters, result_formats)
        except UnicodeDecodeError as error:
            raise not_utf8(error) from None
        except (ValueError, struct.error):
            raise violated("bind message is malformed") from None

    def payload(self) -> bytes:
        return b"".join(
            (
                string(self.portal),
                string(self.statement),
                uint16(len(self.parameter_formats)),
                uint16s(self.parameter_formats),
                uint16(len(self.parameters)),
                *map(value, self.parameters),
                uint16(len(self.result_formats)),
                uint16s(self.result_formats),
            )
        )


class Describe(Message, frozen=True, gc=False):
    """Asks what a statement takes and gives, or what a portal gives."""

    kind: ClassVar[int] = ord("D")
    target: Target
    name: str

    @classmethod
    def decode(cls, payload: bytes) -> Describe:
        if payload == b"P\0":
            return _DESCRIBE_UNNAMED_PORTAL  # frozen, so one serves all
        return cls(*_target_and_name(payload))

    def payload(self) -> bytes:
        return _TARGET_BYTES[self.target] + string(self.name)


class Execute(Message, frozen=True, gc=False):
    """Runs a portal, or goes on with a suspended one."""

    kind: ClassVar[int] = ord("E")
    portal: str
    max_rows: int  # 0 or less: all

    @classmethod
    def decode(cls, payload: bytes) -> Execute:
        if payload == b"\0\0\0\0\0":
            return _EXECUTE_UNNAMED_PORTAL  # frozen, so one serves all
        fields = Fields(payload)
        message = cls(portal=fields.string(), max_rows=fields.int32())
        fields.end()
        return message

    def payload(self) -> bytes:
        return string(self.portal) + int32(self.max_rows)


class Close(Message, frozen=True, gc=False):
    """Forgets a statement with its portals, or a portal. Closing what isn't there is no error."""

    kind: ClassVar[int] = ord("C")
    target: Target
    name: str

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(*_target_and_name(payload))

    def payload(self) -> bytes:
        return _TARGET_BYTES[self.target] + string(self.name)


class FunctionCall(Message, frozen=True, gc=False):
    """Calls a function by OID, as clients did before there were prepared statements."""

    kind: ClassVar[int] = ord("F")
    function_oid: int
    argument_formats: tuple[int, ...]
    arguments: tuple[bytes | None, ...]
    result_format: int

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(
            function_oid=fields.uint32(),
            argument_formats=fields.uint16s(fields.uint16()),
            arguments=tuple([fields.value() for _ in range(fields.uint16())]),
            result_format=fields.int16(),
        )
        fields.end()
        return message

    def payload(self) -> bytes:
        return b"".join(
            (
                uint32(self.function_oid),
                uint16(len(self.argument_formats)),
                uint16s(self.argument_formats),
                uint16(len(self.arguments)),
                *map(value, self.arguments),
                int16(self.result_format),
            )
        )


# Messages without fields


class Flush(Bare, frozen=True, gc=False):
    """Asks for the answers so far."""

    kind: ClassVar[int] = ord("H")


class Sync(Bare, frozen=True, gc=False):
    """Ends a row of extended messages; after an error, the place where the peers meet again."""

    kind: ClassVar[int] = ord("S")


class Terminate(Bare, frozen=True, gc=False):
    """Goodbye."""

    kind: ClassVar[int] = ord("X")


# Copying: client and server say CopyData and CopyDone alike


class CopyData(Message, frozen=True, gc=False):
    """Some bytes of the stream, cut anywhere."""

    kind: ClassVar[int] = ord("d")
    data: bytes

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        return cls(payload)

    def payload(self) -> bytes:
        return self.data


class CopyDone(Bare, frozen=True, gc=False):
    """The stream is complete."""

    kind: ClassVar[int] = ord("c")


class CopyFail(Message, frozen=True, gc=False):
    """The client gives the stream up; the server answers with an error."""

    kind: ClassVar[int] = ord("f")
    reason: str

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(fields.string())
        fields.end()
        return message

    def payload(self) -> bytes:
        return string(self.reason)


# The messages that every point statement sends in these very bytes.
_DESCRIBE_UNNAMED_PORTAL: Final = Describe("portal", "")
_EXECUTE_UNNAMED_PORTAL: Final = Execute("", 0)

FrontendMessage: TypeAlias = (
    PasswordMessage
    | SASLInitialResponse
    | SASLResponse
    | Query
    | Parse
    | Bind
    | Describe
    | Execute
    | Close
    | Flush
    | Sync
    | Terminate
    | CopyData
    | CopyDone
    | CopyFail
    | FunctionCall
)

# All that have a type byte.
MESSAGES: Final[tuple[type[FrontendMessage], ...]] = typing.get_args(FrontendMessage)

# By type byte, without the three that share p.
DECODERS: Final[Mapping[int, Callable[[bytes], FrontendMessage]]] = {
    message.kind: message.decode for message in MESSAGES if message.kind != PasswordMessage.kind
}


# Formats

# The layouts call counts and format codes Int16; servers read the counts as unsigned, and drivers send up
# to 65,535 parameters.
_uint16_at: Final = struct.Struct(">H").unpack_from
_int32_at: Final = struct.Struct(">i").unpack_from

_ONE_NULL: Final[tuple[bytes | None, ...]] = (None,)

# One lookup in place of reading and checking up to four format codes.
_FORMATS: Final[Mapping[bytes, tuple[int, ...]]] = {
    struct.pack(f">{count}H", *codes): codes
    for count in range(5)
    for codes in itertools.product((TEXT_FORMAT, BINARY_FORMAT), repeat=count)
}


def _unusual_formats(payload: bytes, at: int, count: int) -> tuple[int, ...]:
    """Many, or wrong ones."""
    codes: tuple[int, ...] = struct.unpack_from(f">{count}H", payload, at)
    for code in codes:
        if code not in (TEXT_FORMAT, BINARY_FORMAT):
            raise violated(f"format code {code} is neither 0 (text) nor 1 (binary)")
    return codes


def spread_formats(formats: Sequence[int], count: int) -> tuple[int, ...]:
    """One format for each of `count` items, from Bind's short forms."""
    if len(formats) == count:
        return tuple(formats)
    if not formats:
        return (TEXT_FORMAT,) * count
    if len(formats) == 1:
        return (formats[0],) * count
    raise violated(f"got {len(formats)} format codes for {count} items")


def _target_and_name(payload: bytes) -> tuple[Target, str]:
    name = payload[1:-1]
    target = _TARGETS.get(payload[:1])
    if target is None:
        raise violated(f"neither a statement (S) nor a portal (P): {payload[:1]!r}")
    if len(payload) < 2 or payload[-1] != 0 or b"\0" in name:
        raise violated("name does not end where its message ends")
    return target, text_of(name)


def parameter_count_violated(bind: Bind, required: int) -> ShoalError:
    """The error for a Bind whose parameters don't fit the statement."""
    return violated(
        f"bind message supplies {len(bind.parameters)} parameters, "
        f'but prepared statement "{bind.statement}" requires {required}'
    )
