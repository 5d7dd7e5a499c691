"""Frames: a stream of bytes, cut into the payloads that it carries.

Here: Frames, fed with chunks as the network cuts them; how long a frame may be; frame().
Not here: what payloads say (handshake.py, envelope.py).

A frame is the length of its payload (four bytes, big-endian) and the payload. A length out of bounds leaves
nobody knowing where the next frame begins, so the ProtocolViolation is the end of the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from shoal.errors import ProtocolViolation

# What a stranger may make us hold: a hello with the longest names fits.
STRANGER_FRAME_BYTES_MAX: Final = 4 * 1024
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

HEADER_BYTES: Final = 4
_HEADER: Final = struct.Struct(">I")
_read_header: Final = _HEADER.unpack_from
write_header: Final = _HEADER.pack_into  # (buffer, offset, length)


class Frames:
    """One direction of one connection. Feed it what arrives, and take payloads while there are whole ones.

    Payloads are taken one at a time: stop iterating when somebody must wait, and iterate anew later.
    """

    __slots__ = ("_at", "_data", "_most", "_needed", "_partial")

    def __init__(self, frame_bytes_max: int = STRANGER_FRAME_BYTES_MAX) -> None:
        self._most = frame_bytes_max
        self._data = b""
        self._at = 0  # where the next frame begins in _data
        # A frame longer than what has arrived is gathered apart, since gluing chunk to chunk would copy
        # the whole again for each. While it is, _data is empty.
        self._partial = bytearray()
        self._needed = 0  # bytes that make _partial whole

    def trust(self) -> None:
        """The other side has proved who it is: long frames may come."""
        self._most = FRAME_BYTES_MAX

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
            self._data = bytes(chunk)
            self._at = 0
        else:
            self._data = self._data[self._at :] + chunk
            self._at = 0

    def __iter__(self) -> Iterator[bytes]:
        """The payloads that are whole, in turn. Each counts as taken when it has been given."""
        while True:
            # Read anew after each yield: meanwhile more may have been fed, or the bound raised.
            data = self._data
            at = self._at
            start = at + HEADER_BYTES
            if start > len(data):
                if at == len(data):
                    self._data = b""  # a large chunk need not wait for the next one to be let go
                    self._at = 0
                return
            (length,) = _read_header(data, at)
            if not 0 < length <= self._most:
                raise ProtocolViolation(f"frame of {length} bytes: the least is 1, the most is {self._most}")
            end = start + length
            if end > len(data):
                self._partial += memoryview(data)[at:]
                self._needed = end - at
                self._data = b""
                self._at = 0
                return
            self._at = end
            yield data[start:end]


def frame(payload: bytes) -> bytes:
    return _HEADER.pack(len(payload)) + payload
