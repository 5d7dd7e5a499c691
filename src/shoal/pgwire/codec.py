"""Frames: a stream of bytes, cut into the messages that it carries.

Here: Frames, fed with chunks as the network cuts them, giving (type byte, payload) pairs; how long a frame
may be; encode_all().
Not here: what payloads say (messages), which frame may follow which (phases.py).

A frame that breaks the rules leaves nobody knowing where the next one begins, so the ProtocolViolation raised
here is the end of the connection (FATAL), unlike one raised for a payload.

The hot path: one chunk holds the whole request of a prepared point select, and one chunk answers it.

    >>> from shoal.pgwire import messages as m, rows
    >>> request = encode_all(m.Bind("", "by_id", (1,), (bytes(7) + b"\\x07",), (0,)),
    ...                      m.Describe("portal", ""), m.Execute("", 0), m.Sync())
    >>> description = m.row_description((m.Column("name", 25),), (0,))  # made once for these formats,
    >>> encode_row = rows.row_encoder((None,))                          # and so is this
    >>> frames = Frames()
    >>> frames.open_session()
    >>> frames.feed(request)
    >>> answers = []
    >>> for kind, payload in frames:  # a server looks the kind up in a table of its methods
    ...     if kind == m.Bind.kind:
    ...         bind = m.Bind.decode(payload)
    ...         answers.append(m.BIND_COMPLETE)
    ...     elif kind == m.Describe.kind:
    ...         assert m.Describe.decode(payload).target == "portal"
    ...         answers.append(description)
    ...     elif kind == m.Execute.kind:
    ...         assert m.Execute.decode(payload).max_rows == 0
    ...         answers += (encode_row(("seven",)), m.command_complete("SELECT 1"))
    ...     elif kind == m.Sync.kind:
    ...         answers.append(m.READY_FOR_QUERY["I"])
    >>> bind.parameters
    (b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07',)
    >>> len(b"".join(answers))  # one write for all of them
    71
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from shoal.errors import ProtocolViolation
from shoal.pgwire.messages import (
    BACKEND_DECODERS,
    FRONTEND_DECODERS,
    GSSENC_REQUEST_CODE,
    SSL_REQUEST_CODE,
    Bind,
    CopyData,
    Message,
    Parse,
    PasswordMessage,
    Query,
    Terminate,
    violated,
)

Frame: TypeAlias = tuple[int, bytes]  # type byte, payload

# What a stranger may make us hold, and what is enough for every message that carries no statement or data.
SMALL_FRAME_BYTES_MAX: Final = 10_000
# What a statement with its parameters may take, unless the instance is configured otherwise.
FRAME_BYTES_MAX: Final = 256 * 1024 * 1024

_LARGE: Final = (Query, Parse, Bind, CopyData)

_BEFORE_ENCRYPTION: Final = (SSL_REQUEST_CODE, GSSENC_REQUEST_CODE)

_HEADER: Final = struct.Struct(">BI").unpack_from
_UINT32: Final = struct.Struct(">I").unpack_from
_HEADER_BYTES: Final = 5
# A frame's length counts itself, but not the type byte.
_LENGTH_BYTES: Final = 4

# By type byte: the greatest length that a frame may state; 0 for a type that must not come.
_Bounds: TypeAlias = tuple[int, ...]


def _bounds(of_types: Mapping[int, int]) -> _Bounds:
    return tuple(of_types.get(kind, 0) for kind in range(256))


_NOTHING: Final = _bounds({})
_AUTHENTICATION: Final = _bounds(
    dict.fromkeys((PasswordMessage.kind, Terminate.kind), SMALL_FRAME_BYTES_MAX),
)


@functools.cache
def _session(frame_bytes_max: int) -> _Bounds:
    return _bounds(
        dict.fromkeys(FRONTEND_DECODERS, SMALL_FRAME_BYTES_MAX)
        | dict.fromkeys((message.kind for message in _LARGE), frame_bytes_max)
    )


class Frames:
    """One direction of one connection. Feed it what arrives, and take frames while there are whole ones.

    A connection opens with untyped packets, which startup() gives; open_authentication() and
    open_session() say when typed frames begin, and which may come.

    Frames are taken one at a time: stop iterating when a statement must wait, feed on, and iterate anew.
    Each frame costs one slice of the chunk that it came in.
    """

    __slots__ = ("_at", "_bounds", "_data", "_frame_bytes_max", "_needed", "_partial")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._bounds: _Bounds = _NOTHING
        self._data = b""
        self._at = 0  # where the next frame begins in _data
        # A frame longer than what has arrived is gathered apart, since gluing chunk to chunk would copy
        # the whole again for each. While it is, _data is empty.
        self._partial = bytearray()
        self._needed = 0  # bytes that make _partial whole

    def open_authentication(self) -> None:
        """From now on frames are typed, and a stranger may send what belongs to logging in."""
        self._bounds = _AUTHENTICATION

    def open_session(self) -> None:
        """From now on all messages of a session may come."""
        self._bounds = _session(self._frame_bytes_max)

    @property
    def held_bytes(self) -> int:
        """What has arrived and was not taken."""
        return len(self._data) - self._at + len(self._partial)

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        if self._partial:
            self._partial += chunk
            if len(self._partial) >= self._needed:
                self._data = bytes(self._partial)
                self._at = 0
                self._partial = bytearray()
        elif self._at == len(self._data):
            self._data = bytes(chunk)  # of bytes no copy; of a memoryview the one that frees its buffer
            self._at = 0
        else:
            self._data = self._data[self._at :] + chunk
            self._at = 0

    def __iter__(self) -> Iterator[Frame]:
        """The frames that are whole, in turn. Each counts as taken when it has been given."""
        while True:
            # Read anew after each yield: meanwhile more may have been fed, or the session opened.
            data = self._data
            at = self._at
            if len(data) - at < _HEADER_BYTES:
                if at == len(data):
                    self._data = b""  # a large chunk need not wait for the next one to be let go
                    self._at = 0
                return
            kind, length = _HEADER(data, at)
            if length > self._bounds[kind] or length < _LENGTH_BYTES:
                raise self._refused(kind, length)
            end = at + 1 + length
            if end > len(data):
                self._gather(end)
                return
            self._at = end
            yield kind, data[at + _HEADER_BYTES : end]

    def take_exactly(self, frames: bytes) -> bool:
        """Takes the next frames in one go if they are, byte for byte, these. A client's request often ends
        with the same few messages, and comparing their bytes costs less than cutting them apart."""
        if self._data.startswith(frames, self._at):
            self._at += len(frames)
            return True
        return False

    def startup(self) -> bytes | None:
        """The untyped packet that opens a connection, for decode_startup(), or None until it is whole."""
        data, at = self._data, self._at
        if len(data) - at < _LENGTH_BYTES:
            return None
        (length,) = _UINT32(data, at)
        # The shortest is a length and a code. A peer that speaks something else, such as HTTP, fails here.
        if not 2 * _LENGTH_BYTES <= length <= SMALL_FRAME_BYTES_MAX:
            raise violated(f"startup packet of {length} bytes")
        end = at + length
        if end > len(data):
            return None
        payload = data[at + _LENGTH_BYTES : end]
        (code,) = _UINT32(payload)
        if code in _BEFORE_ENCRYPTION and end != len(data):
            # Nobody honest goes on before hearing the answer. Bytes smuggled in here in the clear would
            # pass for the first ones of the encrypted stream.
            raise violated("data in the clear after a request for encryption")
        self._at = end
        return payload

    def _gather(self, end: int) -> None:
        self._partial += memoryview(self._data)[self._at :]
        self._needed = end - self._at
        self._data = b""
        self._at = 0

    def _refused(self, kind: int, length: int) -> ProtocolViolation:
        what = f"message of type {chr(kind)!r}"
        if not self._bounds[kind]:
            return violated(f"{what} is unknown or out of place")
        return violated(f"{what} with length {length}, the least is 4, the most is {self._bounds[kind]}")


class BackendFrames(Frames):
    """The other direction: what a server sends. For clients of ours, and for tests."""

    __slots__ = ()

    def __init__(self, frame_bytes_max: int = 0x3FFFFFFF) -> None:
        super().__init__(frame_bytes_max)
        self._bounds = _bounds(dict.fromkeys(BACKEND_DECODERS, frame_bytes_max))


def encode_all(*messages: Message) -> bytes:
    return b"".join([message.encode() for message in messages])
