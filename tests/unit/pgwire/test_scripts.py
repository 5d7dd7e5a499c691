"""Runs tests/scripts/pgwire: messages as bytes, conversations as phases.

Commands, one per line:

    encode MESSAGE            its frame
    frontend BYTES            what a server reads from a frame (without a type byte: startup BYTES)
    backend BYTES             what a client reads from a frame
    client MESSAGE            it goes through encode(), Frames and decode(), and steps the phase
    server MESSAGE            the same, other direction
    bytes BYTES               the client sends these
    reset                     a new connection
    parameters NAME=TEXT …    what a startup message with these parameters asks for
    diagram                   the phases

Bytes are shown as text in quotes and numbers (decimal) for all that isn't printable: `'Q' 0 0 0 6 'x' 0`.
The four bytes of a frame's length are shown as `len=6`; in commands `len` finds out: `'Q' len 'x' 0`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.pgwire import NEXT, Frames, Phase, diagram, frontend_type, messages, negotiate, read_startup, step
from shoal.pgwire.codec import BackendFrames
from shoal.pgwire.messages import (
    BACKEND_DECODERS,
    EncryptionAccepted,
    EncryptionRefused,
    Message,
    StartupMessage,
    decode_startup,
)
from tests.scripts_runner import run_script, script_paths

PRINTABLE = re.compile(rb"[ -&(-~]+|.", re.DOTALL)


def show_bytes(raw: bytes) -> str:
    return " ".join(
        f"'{run.decode()}'" if 32 <= run[0] < 127 and run != b"'" else str(run[0])
        for run in PRINTABLE.findall(raw)
    )


def show_frame(raw: bytes) -> str:
    """The same, with the length as one number."""
    typed = not (len(raw) >= 4 and int.from_bytes(raw[:4]) == len(raw))
    if typed and len(raw) < 5:
        return show_bytes(raw)  # no frame at all
    length = int.from_bytes(raw[typed : 4 + typed])
    assert length == len(raw) - typed
    return " ".join(filter(None, (show_bytes(raw[:typed]), f"len={length}", show_bytes(raw[4 + typed :]))))


def read_bytes(text: str) -> bytes:
    head, stated, rest = text.partition("len")
    if stated:
        payload = read_bytes(rest)
        return read_bytes(head) + (len(payload) + 4).to_bytes(4) + payload
    return b"".join(
        bytes((int(number),)) if number else quoted.encode()
        for number, quoted in re.findall(r"(\d+)|'([^']*)'", text)
    )


def show_error(error: ShoalError) -> str:
    return f"{error.sqlstate} {error.message}"


def read_message(text: str) -> Message:
    message = eval(text, {name: getattr(messages, name) for name in messages.__all__})
    assert isinstance(message, Message), text
    return message


class Conversation:
    """Client and server of one connection, in one place."""

    def __init__(self) -> None:
        self.reset("")

    def reset(self, _: str) -> str:
        self.phase = Phase.STARTUP
        self.from_client = Frames(frame_bytes_max=100_000)
        self.from_server = BackendFrames()
        return ""

    def client(self, text: str) -> str:
        return self._to_server(read_message(text).encode())

    def raw(self, text: str) -> str:
        return self._to_server(read_bytes(text))

    def server(self, text: str) -> str:
        message = read_message(text)
        if not isinstance(message, EncryptionAccepted | EncryptionRefused):
            self.from_server.feed(message.encode())
            ((kind, payload),) = self.from_server
            message = BACKEND_DECODERS[kind](payload)
        if (self.phase, type(message)) not in NEXT:
            return f"< {message!r}"  # most messages of a server lead nowhere else
        self._step(type(message))
        return self._show("<", message)

    def _to_server(self, raw: bytes) -> str:
        lines = []
        try:
            self.from_client.feed(raw)
            while self.phase in (Phase.STARTUP, Phase.STARTUP_ENCRYPTED) and (
                packet := self.from_client.startup()
            ):
                lines.append(self._take(decode_startup(packet)))
            if self.phase in (Phase.STARTUP, Phase.STARTUP_ENCRYPTED):
                return "\n".join(lines)
            for kind, payload in self.from_client:
                expected = frontend_type(self.phase, kind)
                if self.phase is Phase.SKIPPING and step(self.phase, expected) is Phase.SKIPPING:
                    lines.append(f"skipped {expected.__name__}")
                    continue
                lines.append(self._take(expected.decode(payload)))
        except ShoalError as error:
            lines.append(show_error(error))
        return "\n".join(lines)

    def _take(self, message: Message) -> str:
        self._step(type(message))
        return self._show(">", message)

    def _step(self, message: type[Message]) -> None:
        self.phase = step(self.phase, message)
        if self.phase is Phase.AUTHENTICATING:
            self.from_client.open_authentication()
        elif self.phase is Phase.IDLE:
            self.from_client.open_session()

    def _show(self, arrow: str, message: Message) -> str:
        return f"{arrow} {message!r}  {self.phase.name}"


def encode(text: str) -> str:
    return show_frame(read_message(text).encode())


def frontend(text: str) -> str:
    frames = Frames()
    frames.open_session()
    frames.feed(read_bytes(text))
    ((kind, payload),) = frames
    return repr(frontend_type(Phase.IDLE, kind).decode(payload))


def startup(text: str) -> str:
    frames = Frames()
    frames.feed(read_bytes(text))
    packet = frames.startup()
    return repr(decode_startup(packet)) if packet is not None else "not whole yet"


def backend(text: str) -> str:
    frames = BackendFrames()
    frames.feed(read_bytes(text))
    ((kind, payload),) = frames
    return repr(BACKEND_DECODERS[kind](payload))


def parameters(text: str) -> str:
    pairs = tuple((name, value) for name, _, value in (word.partition("=") for word in shlex.split(text)))
    minor = 0
    if pairs and pairs[0][0] == "protocol":
        minor = int(pairs[0][1].removeprefix("3."))
        pairs = pairs[1:]
    message = StartupMessage(3, minor, pairs)
    asked = read_startup(message)
    lines = [f"user {asked.user}, database {asked.database}, application {asked.application_name!r}"]
    lines += [f"{name} = {setting!r}" for name, setting in asked.settings.items()]
    if (answer := negotiate(message)) is not None:
        lines.append(repr(answer))
    return "\n".join(lines)


@pytest.mark.parametrize("path", script_paths("pgwire"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    conversation = Conversation()
    commands: dict[str, Callable[[str], str]] = {
        "encode": encode,
        "frontend": frontend,
        "startup": startup,
        "backend": backend,
        "client": conversation.client,
        "server": conversation.server,
        "bytes": conversation.raw,
        "reset": conversation.reset,
        "parameters": parameters,
        "diagram": lambda _: diagram(),
    }

    def execute(text: str) -> str:
        lines = []
        for line in text.split("\n"):
            command, _, argument = line.partition(" ")
            try:
                lines.append(commands[command](argument))
            except ShoalError as error:
                lines.append(show_error(error))
        return "\n".join(filter(None, lines))

    run_script(path, execute, rewrite)
