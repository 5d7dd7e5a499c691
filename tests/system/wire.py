"""A client that says exactly what a test wants it to say, whole or in part, and reads or doesn't.

Not here: messages and frames (shoal/pgwire/).
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from types import TracebackType

from shoal.pgwire import BackendFrames, encode_all, messages
from tests.cluster import Instance

STARTUP = messages.StartupMessage(3, 0, (("user", "admin"), ("database", "shoal")))


class Wire:
    """One socket. Messages come back as (type, payload)."""

    def __init__(self, instance: Instance, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(60)
        self.socket.connect((instance.host, instance.port))
        self._frames = BackendFrames()

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def log_in(self) -> Wire:
        self.say(STARTUP)
        self.read_until_ready()
        return self

    def say(self, *said: messages.Message) -> None:
        self.socket.sendall(encode_all(*said))

    def read(self) -> Iterator[tuple[str, bytes]]:
        """What comes, until the server closes the connection."""
        while True:
            for kind, payload in self._frames:
                yield chr(kind), payload
            data = self.socket.recv(65536)
            if not data:
                return
            self._frames.feed(data)

    def read_until_ready(self) -> list[tuple[str, bytes]]:
        found = []
        for kind, payload in self.read():
            found.append((kind, payload))
            if kind == "Z":
                return found
        raise AssertionError(f"the connection ended after {found}")

    def read_all(self) -> list[tuple[str, bytes]]:
        """Until the end of the connection, whichever way it ends."""
        found = []
        with contextlib.suppress(ConnectionError):
            for message in self.read():
                found.append(message)
        return found

    def reset(self) -> None:
        """Ends the connection without a word: the server gets ECONNRESET."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def error_fields(payload: bytes) -> dict[str, str]:
    """Of an ErrorResponse: by their letters, C is the SQLSTATE and M the message."""
    parts = payload.split(b"\0")
    return {chr(part[0]): part[1:].decode() for part in parts if part}
