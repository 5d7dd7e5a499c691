"""A client that does as it is told, right or wrong: bytes on a socket.

Here: RawClient.
Not here: the messages (shoal.pgwire has them, for both directions).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

from shoal.pgwire import BackendFrames, encode_all
from shoal.pgwire.messages import BACKEND_DECODERS, ErrorResponse, Message, ReadyForQuery, StartupMessage
from tests.cluster import ADMIN, Instance

M = TypeVar("M", bound=Message)

PATIENCE_SECONDS = 60.0


class RawClient:
    def __init__(self, instance: Instance) -> None:
        self.socket = socket.create_connection((instance.host, instance.port), timeout=PATIENCE_SECONDS)
        self._frames = BackendFrames()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, *messages: Message) -> None:
        self.send(encode_all(*messages))

    def log_in(self, **parameters: str) -> None:
        said = {"user": ADMIN, "database": "shoal", **parameters}
        self.say(StartupMessage(3, 0, tuple(said.items())))
        self.until(ReadyForQuery)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """What the server sends, until it closes."""
        while True:
            yield from self._frames
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return
            if not data:
                return
            self._frames.feed(data)

    def until(self, wanted: type[M]) -> M:
        """Reads on to the next message of this type."""
        for kind, payload in self.frames():
            if kind == wanted.kind:
                message = BACKEND_DECODERS[kind](payload)
                assert isinstance(message, wanted)
                return message
            if kind == ErrorResponse.kind:
                raise AssertionError(f"an error instead of {wanted.__name__}: {payload!r}")
        raise AssertionError(f"closed before {wanted.__name__} came")

    def error_then_end(self) -> ErrorResponse | None:
        """The error that the server says before it closes; None: it closes without a word."""
        last: ErrorResponse | None = None
        for kind, payload in self.frames():
            if kind == ErrorResponse.kind:
                last = ErrorResponse.decode(payload)
        return last

    def vanish(self) -> None:
        """Goes without a word: the server's kernel hears a reset, no orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
