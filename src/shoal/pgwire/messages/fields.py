"""The fields that PostgreSQL messages are made of, read with suspicion and written with care.

Here: Fields, which reads a payload from left to right and checks every step; Message, the base of all
messages; the few functions that write fields and frames; violated(), the error for what a peer broke.
Not here: the layouts (frontend.py, backend.py), cutting a stream into frames (../codec.py).

A payload whose frame was whole but whose fields are wrong is an ordinary error: the stream is still in
step, so the connection may go on. A wrong frame is not (../codec.py), since nobody knows where the next begins.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final, Self

import msgspec

from shoal.errors import InvalidCharacter, ProtocolViolation

_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">BI")

# Formats of values on the wire.
TEXT_FORMAT: Final = 0
BINARY_FORMAT: Final = 1


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of the protocol: a frozen value, whole or absent.

    msgspec's structs rather than dataclasses, because messages are the hot path: creating one costs 0.1 µs
    where a frozen dataclass costs 1 µs. No message refers to another one that refers back, so the garbage
    collector need not look at them (gc=False).
    """

    kind: ClassVar[int]  # the type byte that opens the frame

    def payload(self) -> bytes:
        """What follows the frame's type and length."""
        return b""

    def encode(self) -> bytes:
        """The whole frame."""
        return frame(self.kind, self.payload())


class Bare(Message, frozen=True, gc=False):
    """A message that says all by its type."""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        if payload:
            raise violated(f"{cls.__name__} has no fields, but {len(payload)} bytes came")
        return cls()


class Fields:
    """Reads the fields of one payload from left to right; the last call is end()."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def byte(self) -> int:
        return self.take(1)[0]

    def int16(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def uint16(self) -> int:
        return int(_UINT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def uint32(self) -> int:
        return int(_UINT32.unpack(self.take(4))[0])

    def uint16s(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}H", self.take(2 * count))

    def uint32s(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}I", self.take(4 * count))

    def raw_string(self) -> bytes:
        """Bytes up to a NUL, without it."""
        try:
            end = self._payload.index(0, self._at)
        except ValueError:
            raise violated("string without an end") from None
        raw = self._payload[self._at : end]
        self._at = end + 1
        return raw

    def string(self) -> str:
        return text_of(self.raw_string())

    def value(self) -> bytes | None:
        """A length and as many bytes; the length -1 is NULL."""
        length = self.int32()
        if length == -1:
            return None
        if length < 0:
            raise violated(f"value of {length} bytes")
        return self.take(length)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._payload):
            raise violated(f"message ends {end - len(self._payload)} bytes too early")
        taken = self._payload[self._at : end]
        self._at = end
        return taken

    def rest(self) -> bytes:
        taken = self._payload[self._at :]
        self._at = len(self._payload)
        return taken

    def at_end(self) -> bool:
        return self._at == len(self._payload)

    def end(self) -> None:
        if not self.at_end():
            raise violated(f"{len(self._payload) - self._at} bytes after the end of the message")


def violated(text: str) -> ProtocolViolation:
    """The error for a peer that broke the protocol. Clients of Picodata look for its prefix."""
    return ProtocolViolation(f"protocol violation: {text}")


def text_of(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None


def not_utf8(error: UnicodeDecodeError) -> InvalidCharacter:
    wrong = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.start + 4])
    return InvalidCharacter(f'invalid byte sequence for encoding "UTF8": {wrong}')


def frame(kind: int, payload: bytes) -> bytes:
    return _HEADER.pack(kind, len(payload) + 4) + payload


def int16(value: int) -> bytes:
    return _INT16.pack(value)


def uint16(value: int) -> bytes:
    return _UINT16.pack(value)


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def uint32(value: int) -> bytes:
    return _UINT32.pack(value)


def uint16s(values: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(values)}H", *values)


def uint32s(values: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def string(text: str) -> bytes:
    raw = text.encode()
    # Ours to keep: a NUL inside would end the field early and shift everything behind it.
    assert 0 not in raw, text
    return raw + b"\0"


def value(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _INT32.pack(len(value)) + value
