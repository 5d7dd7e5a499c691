"""What a server says: every backend message and its layout, in both directions.

Here: the values, their encoding (the server's way) and decoding (the client's way, and the tests'); the
answers that are always the same bytes, as constants; an error of ours as ErrorResponse.
Not here: rows in bulk (../rows.py has an encoder per row shape; DataRow is for those who look at one row),
which parameters are reported after login (../settings.py).
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Literal, Self, TypeAlias

import msgspec

from shoal.errors import FeatureNotSupported, ShoalError
from shoal.pgwire.messages.fields import (
    TEXT_FORMAT,
    Bare,
    Fields,
    Message,
    frame,
    int16,
    int32,
    string,
    uint16,
    uint16s,
    uint32,
    uint32s,
    value,
    violated,
)
from shoal.pgwire.messages.frontend import CopyData, CopyDone

# Encryption: one byte without a frame, before anything else


class EncryptionAccepted(Message, frozen=True, gc=False):
    """Yes to SSLRequest; the TLS handshake follows."""

    def encode(self) -> bytes:
        return b"S"


class EncryptionRefused(Message, frozen=True, gc=False):
    """No to SSLRequest or GSSENCRequest; the client goes on in the clear, or leaves."""

    def encode(self) -> bytes:
        return b"N"


# Authentication: messages that share the type byte R, told apart by the number behind it


class _Authentication(Message, frozen=True, gc=False):
    kind: ClassVar[int] = ord("R")
    code: ClassVar[int]

    def payload(self) -> bytes:
        return int32(self.code) + self.details()

    def details(self) -> bytes:
        return b""


class AuthenticationOk(_Authentication, frozen=True, gc=False):
    code: ClassVar[int] = 0


class AuthenticationCleartextPassword(_Authentication, frozen=True, gc=False):
    code: ClassVar[int] = 3


class AuthenticationMD5Password(_Authentication, frozen=True, gc=False):
    code: ClassVar[int] = 5
    salt: bytes  # 4 bytes, new for every attempt

    def details(self) -> bytes:
        assert len(self.salt) == 4
        return self.salt


class AuthenticationSASL(_Authentication, frozen=True, gc=False):
    """Lists the mechanisms that the server would take, the best first."""

    code: ClassVar[int] = 10
    mechanisms: tuple[str, ...]

    def details(self) -> bytes:
        return b"".join(map(string, self.mechanisms)) + b"\0"


class AuthenticationSASLContinue(_Authentication, frozen=True, gc=False):
    code: ClassVar[int] = 11
    challenge: bytes

    def details(self) -> bytes:
        return self.challenge


class AuthenticationSASLFinal(_Authentication, frozen=True, gc=False):
    """The server's proof that it knows the password too."""

    code: ClassVar[int] = 12
    outcome: bytes

    def details(self) -> bytes:
        return self.outcome


Authentication: TypeAlias = (
    AuthenticationOk
    | AuthenticationCleartextPassword
    | AuthenticationMD5Password
    | AuthenticationSASL
    | AuthenticationSASLContinue
    | AuthenticationSASLFinal
)


def decode_authentication(payload: bytes) -> Authentication:
    fields = Fields(payload)
    code = fields.int32()
    message: Authentication
    if code == AuthenticationOk.code:
        message = AuthenticationOk()
    elif code == AuthenticationCleartextPassword.code:
        message = AuthenticationCleartextPassword()
    elif code == AuthenticationMD5Password.code:
        message = AuthenticationMD5Password(fields.take(4))
    elif code == AuthenticationSASL.code:
        mechanisms = []
        while mechanism := fields.string():
            mechanisms.append(mechanism)
        message = AuthenticationSASL(tuple(mechanisms))
    elif code == AuthenticationSASLContinue.code:
        message = AuthenticationSASLContinue(fields.rest())
    elif code == AuthenticationSASLFinal.code:
        message = AuthenticationSASLFinal(fields.rest())
    else:
        raise FeatureNotSupported(f"authentication method {code} is not supported")
    fields.end()
    return message


class NegotiateProtocolVersion(Message, frozen=True, gc=False):
    """Answers a client that asked for a newer minor version, or for protocol options we don't have."""

    kind: ClassVar[int] = ord("v")
    minor: int  # the newest that we speak
    unknown_options: tuple[str, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        # The version is written as 3.minor, as in the startup message.
        minor = fields.uint32() & 0xFFFF
        message = cls(minor=minor, unknown_options=tuple([fields.string() for _ in range(fields.uint32())]))
        fields.end()
        return message

    def payload(self) -> bytes:
        return b"".join(
            (
                uint32(3 << 16 | self.minor),
                uint32(len(self.unknown_options)),
                *map(string, self.unknown_options),
            )
        )


# The session


class BackendKeyData(Message, frozen=True, gc=False):
    """What a CancelRequest must name to stop this session's statement."""

    kind: ClassVar[int] = ord("K")
    process_id: int
    secret_key: int

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(process_id=fields.uint32(), secret_key=fields.uint32())
        fields.end()
        return message

    def payload(self) -> bytes:
        return uint32(self.process_id) + uint32(self.secret_key)


class ParameterStatus(Message, frozen=True, gc=False):
    """A setting that clients follow, after login and whenever it changes."""

    kind: ClassVar[int] = ord("S")
    name: str
    setting: str

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(name=fields.string(), setting=fields.string())
        fields.end()
        return message

    def payload(self) -> bytes:
        return string(self.name) + string(self.setting)


TransactionStatus: TypeAlias = Literal["I", "T", "E"]  # idle, in a transaction, in a failed one
_STATUSES: Final[Mapping[bytes, TransactionStatus]] = {b"I": "I", b"T": "T", b"E": "E"}


class ReadyForQuery(Message, frozen=True, gc=False):
    kind: ClassVar[int] = ord("Z")
    status: TransactionStatus

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        status = _STATUSES.get(payload)
        if status is None:
            raise violated(f"transaction status {payload!r}")
        return cls(status)

    def payload(self) -> bytes:
        return self.status.encode()


# Errors and notices


class _Report(Message, frozen=True, gc=False, repr_omit_defaults=True):
    """The fields that errors and notices share. Unknown ones are skipped, as the protocol wishes."""

    severity: str  # ERROR, FATAL (the connection ends), NOTICE, WARNING, …
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    position: int | None = None  # 1-based, in characters of the statement's text
    routine: str | None = None  # where PostgreSQL raises it: some drivers know an error by this alone

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        texts: dict[str, str] = {}
        while letter := fields.byte():
            texts[chr(letter)] = fields.string()
        fields.end()
        if not texts.keys() >= {"S", "C", "M"}:
            raise violated("a report needs a severity, a code and a message")
        position = texts.get("P")
        if position is not None and not (position.isascii() and position.isdigit()):
            raise violated(f"position {position!r}")
        return cls(
            severity=texts["S"],
            sqlstate=texts["C"],
            message=texts["M"],
            detail=texts.get("D"),
            hint=texts.get("H"),
            position=None if position is None else int(position),
            routine=texts.get("R"),
        )

    def payload(self) -> bytes:
        # S may be translated by servers that do, V never: drivers prefer it. Ours are the same.
        pieces = [
            b"S" + string(self.severity),
            b"V" + string(self.severity),
            b"C" + string(self.sqlstate),
            b"M" + _quoted(self.message),
        ]
        if self.detail is not None:
            pieces.append(b"D" + _quoted(self.detail))
        if self.hint is not None:
            pieces.append(b"H" + _quoted(self.hint))
        if self.position is not None:
            pieces.append(b"P%d\0" % self.position)
        if self.routine is not None:
            pieces.append(b"R" + string(self.routine))
        pieces.append(b"\0")
        return b"".join(pieces)


def _quoted(text: str) -> bytes:
    """Text that may quote what a client sent: what can't be on the wire is shown by its escape."""
    return text.encode(errors="backslashreplace").replace(b"\0", b"\\x00") + b"\0"


class ErrorResponse(_Report, frozen=True, gc=False):
    kind: ClassVar[int] = ord("E")

    @classmethod
    def of(cls, error: ShoalError, *, fatal: bool = False) -> Self:
        """The answer to a client whose message failed; fatal says that the connection ends with it."""
        return cls(
            severity="FATAL" if fatal else "ERROR",
            sqlstate=error.sqlstate,
            message=error.message,
            detail=error.detail,
            hint=error.hint,
            position=error.position,
            routine=error.routine,
        )


class NoticeResponse(_Report, frozen=True, gc=False):
    kind: ClassVar[int] = ord("N")


# Statements


class ParseComplete(Bare, frozen=True, gc=False):
    kind: ClassVar[int] = ord("1")


class BindComplete(Bare, frozen=True, gc=False):
    kind: ClassVar[int] = ord("2")


class CloseComplete(Bare, frozen=True, gc=False):
    kind: ClassVar[int] = ord("3")


class NoData(Bare, frozen=True, gc=False):
    """Answers Describe of what gives no rows."""

    kind: ClassVar[int] = ord("n")


class EmptyQueryResponse(Bare, frozen=True, gc=False):
    """Stands where CommandComplete would, for a text without a statement."""

    kind: ClassVar[int] = ord("I")


class PortalSuspended(Bare, frozen=True, gc=False):
    """Stands where CommandComplete would: Execute's limit was reached."""

    kind: ClassVar[int] = ord("s")


class ParameterDescription(Message, frozen=True, gc=False):
    kind: ClassVar[int] = ord("t")
    parameter_types: tuple[int, ...]  # OIDs

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(fields.uint32s(fields.uint16()))
        fields.end()
        return message

    def payload(self) -> bytes:
        return uint16(len(self.parameter_types)) + uint32s(self.parameter_types)


class Column(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """A column of a result, as RowDescription tells it."""

    name: str
    type_oid: int
    type_size: int = -1  # bytes, or -1: it varies
    type_modifier: int = -1
    table_oid: int = 0  # 0: not simply a column of a table
    column_number: int = 0
    format: int = TEXT_FORMAT

    def payload(self) -> bytes:
        return b"".join((self.head(), int16(self.format)))

    def head(self) -> bytes:
        """All but the format, which every Bind chooses anew."""
        return b"".join(
            (
                string(self.name),
                uint32(self.table_oid),
                int16(self.column_number),
                uint32(self.type_oid),
                int16(self.type_size),
                int32(self.type_modifier),
            )
        )


class RowDescription(Message, frozen=True, gc=False):
    kind: ClassVar[int] = ord("T")
    columns: tuple[Column, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        columns = []
        for _ in range(fields.uint16()):
            name = fields.string()
            table_oid, column_number = fields.uint32(), fields.int16()
            columns.append(
                Column(
                    name=name,
                    table_oid=table_oid,
                    column_number=column_number,
                    type_oid=fields.uint32(),
                    type_size=fields.int16(),
                    type_modifier=fields.int32(),
                    format=fields.uint16(),
                )
            )
        fields.end()
        return cls(tuple(columns))

    def payload(self) -> bytes:
        return b"".join((uint16(len(self.columns)), *[column.payload() for column in self.columns]))


class DataRow(Message, frozen=True, gc=False):
    """One row. rows.py makes the same bytes from storage forms, much faster."""

    kind: ClassVar[int] = ord("D")
    values: tuple[bytes | None, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(tuple([fields.value() for _ in range(fields.uint16())]))
        fields.end()
        return message

    def payload(self) -> bytes:
        return b"".join((uint16(len(self.values)), *map(value, self.values)))


class CommandComplete(Message, frozen=True, gc=False):
    kind: ClassVar[int] = ord("C")
    tag: str  # "SELECT 5", "INSERT 0 1", "CREATE TABLE"

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(fields.string())
        fields.end()
        return message

    def payload(self) -> bytes:
        return string(self.tag)


# Copying


class _CopyResponse(Message, frozen=True, gc=False):
    format: int  # of the stream as a whole
    column_formats: tuple[int, ...]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        fields = Fields(payload)
        message = cls(format=fields.byte(), column_formats=fields.uint16s(fields.uint16()))
        fields.end()
        return message

    def payload(self) -> bytes:
        return bytes((self.format,)) + uint16(len(self.column_formats)) + uint16s(self.column_formats)


class CopyInResponse(_CopyResponse, frozen=True, gc=False):
    """Asks the client for the stream."""

    kind: ClassVar[int] = ord("G")


class CopyOutResponse(_CopyResponse, frozen=True, gc=False):
    """Announces the stream."""

    kind: ClassVar[int] = ord("H")


BackendMessage: TypeAlias = (
    Authentication
    | NegotiateProtocolVersion
    | BackendKeyData
    | ParameterStatus
    | ReadyForQuery
    | ErrorResponse
    | NoticeResponse
    | ParseComplete
    | BindComplete
    | CloseComplete
    | NoData
    | EmptyQueryResponse
    | PortalSuspended
    | ParameterDescription
    | RowDescription
    | DataRow
    | CommandComplete
    | CopyInResponse
    | CopyOutResponse
    | CopyData
    | CopyDone
)

# All that have a type byte.
MESSAGES: Final[tuple[type[BackendMessage], ...]] = typing.get_args(BackendMessage)

# By type byte; a number behind it tells those apart that share R.
DECODERS: Final[Mapping[int, Callable[[bytes], BackendMessage]]] = {
    message.kind: decode_authentication if issubclass(message, _Authentication) else message.decode
    for message in MESSAGES
}


# Answers whose bytes never change: the server appends these, and creates no message at all.
PARSE_COMPLETE: Final = ParseComplete().encode()
BIND_COMPLETE: Final = BindComplete().encode()
CLOSE_COMPLETE: Final = CloseComplete().encode()
NO_DATA: Final = NoData().encode()
EMPTY_QUERY_RESPONSE: Final = EmptyQueryResponse().encode()
PORTAL_SUSPENDED: Final = PortalSuspended().encode()
READY_FOR_QUERY: Final[Mapping[TransactionStatus, bytes]] = {
    status: ReadyForQuery(status).encode() for status in _STATUSES.values()
}


@functools.lru_cache(maxsize=1024)
def command_complete(tag: str) -> bytes:
    """CommandComplete's bytes; the same few tags ("SELECT 1") come again and again."""
    return CommandComplete(tag).encode()


def row_description(columns: Sequence[Column], formats: Sequence[int]) -> bytes:
    """RowDescription's bytes for a portal that chose its formats: make it once per statement and formats."""
    pieces = [uint16(len(columns))]
    for column, chosen in zip(columns, formats, strict=True):
        pieces += (column.head(), int16(chosen))
    return frame(RowDescription.kind, b"".join(pieces))
