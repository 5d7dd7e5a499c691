"""Runs tests/scripts/node: what clients send, and what a session answers, on a node inside this process.

Each script has a node of its own. The messages of a block go out as one chunk, what comes back is shown
one message per line. Messages, with "" for what has no name:

    Query SELECT 1; SELECT 2
    Parse NAME [OID …] TEXT         the list of types may be left out
    Bind PORTAL NAME VALUE … -> FORMAT …      NULL, text, or 0x… for binary; formats are text or binary
    Describe portal|statement NAME, Execute PORTAL MAX_ROWS, Close portal|statement NAME
    Flush, Sync, Terminate, FunctionCall, CopyData TEXT, CopyDone, CopyFail TEXT
    Raw 0x…                         bytes

and what happens around them, in its place among the messages:

    !client NAME                    whose messages follow; a new name is a new session
    !connect NAME SETTING=VALUE …   a session with settings from its startup message
    !hold writer|catalog            writes, entries of the log wait from now on
    !release
    !cancel                         a CancelRequest
    !full, !drain                   the client stops and begins to read
    !disconnect
    !restart                        of the node; all clients are gone
    !open                           statements and portals that count, and cursors that are read in part
    !until TEXT                     waits until a message with this text has come
    !until_pending                  waits until a schema change is prepared
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.pgwire import messages as m
from tests.scripts_runner import run_script, script_paths
from tests.unit.node.in_process import Client, InProcess, in_process

_TYPES = {
    16: "bool",
    20: "int8",
    25: "text",
    114: "json",
    701: "float8",
    1184: "timestamptz",
    1700: "numeric",
    2950: "uuid",
}
_FORMATS = {"text": m.TEXT_FORMAT, "binary": m.BINARY_FORMAT}


# --- the notation --------------------------------------------------------------------------------


def read_message(line: str) -> bytes:
    kind, _, rest = line.partition(" ")
    match kind:
        case "Query":
            return m.Query(rest).encode()
        case "Parse":
            name, _, rest = rest.partition(" ")
            types: tuple[int, ...] = ()
            if rest.startswith("["):
                listed, _, rest = rest[1:].partition("] ")
                types = tuple(int(oid) for oid in listed.split())
            return m.Parse(_name(name), rest, types).encode()
        case "Bind":
            words, _, results = rest.partition("->")
            portal, statement, *values = shlex.split(words)
            formats = tuple(int(value.startswith("0x")) for value in values)
            results_in = tuple(_FORMATS[word] for word in results.split())
            return m.Bind(portal, statement, formats, tuple(map(_value, values)), results_in).encode()
        case "Describe" | "Close":
            target, name = rest.split()
            message = m.Describe if kind == "Describe" else m.Close
            return message(target, _name(name)).encode()  # type: ignore[arg-type]
        case "Execute":
            portal, most = rest.split()
            return m.Execute(_name(portal), int(most)).encode()
        case "FunctionCall":
            return m.FunctionCall(1, (), (), 0).encode()
        case "CopyData":
            return m.CopyData(rest.encode()).encode()
        case "CopyFail":
            return m.CopyFail(rest).encode()
        case "Raw":
            return bytes.fromhex(rest.removeprefix("0x"))
        case "Flush" | "Sync" | "Terminate" | "CopyDone":
            bare: m.Message = getattr(m, kind)()
            return bare.encode()
    raise AssertionError(f"no such message: {line}")


def _name(word: str) -> str:
    return "" if word == '""' else word


def _value(word: str) -> bytes | None:
    if word == "NULL":
        return None
    return bytes.fromhex(word[2:]) if word.startswith("0x") else word.encode()


def show(message: m.Message) -> str:
    match message:
        case m.RowDescription():
            return "RowDescription " + ", ".join(_column(column) for column in message.columns)
        case m.ParameterDescription():
            return " ".join(
                ["ParameterDescription", *(_TYPES.get(o, str(o)) for o in message.parameter_types)]
            )
        case m.DataRow():
            return "DataRow " + " | ".join(map(_shown, message.values))
        case m.CommandComplete():
            return f"CommandComplete {message.tag}"
        case m.ReadyForQuery():
            return f"ReadyForQuery {message.status}"
        case m.ParameterStatus():
            return f"ParameterStatus {message.name} = {message.setting!r}"
        case m.ErrorResponse() | m.NoticeResponse():
            said = f"{message.severity} {message.sqlstate} {message.message}"
            at = f" @{message.position}" if message.position is not None else ""
            more = [f"\n  {what}: {text}" for what in ("detail", "hint") if (text := getattr(message, what))]
            return said + at + "".join(more)
    return type(message).__name__


def _column(column: m.Column) -> str:
    binary = " binary" * column.format
    return f"{column.name} {_TYPES.get(column.type_oid, column.type_oid)}{binary}"


def _shown(value: bytes | None) -> str:
    if value is None:
        return "NULL"
    if len(value) > 100:
        return f"({len(value)} bytes)"
    text = value.decode("utf-8", "replace")
    return text if text.isprintable() else "0x" + value.hex()


# --- running -------------------------------------------------------------------------------------


class Scene:
    """The node of a script, and who is connected to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._start()

    def _start(self) -> None:
        self.inside: InProcess = self._stack.enter_context(in_process(self._directory))
        self._clients: dict[str, Client] = {}
        self._now = self._connect("1")
        self._unsent = b""
        self._output: list[str] = []
        self._mark = 0  # where the answers to the last messages begin

    def close(self) -> None:
        self._stack.close()

    def execute(self, text: str) -> str:
        self._output = []
        self._mark = 0
        for line in text.split("\n"):
            if line.startswith("!"):
                self._send()
                self._settle()
                word, _, rest = line[1:].partition(" ")
                commands[word](self, rest)
            else:
                self._unsent += read_message(line)
        self._send()
        self._settle()
        return "\n".join(self._output)

    def _send(self) -> None:
        if self._unsent:
            self._now.send_bytes(self._unsent)
            self._unsent = b""
            self._mark = len(self._output)

    def _settle(self) -> None:
        for client in self._clients.values():
            if not client.closed:
                client.settle()
        self._show()

    def _show(self) -> None:
        """Whose answers they are is said when there are several clients."""
        for name, client in self._clients.items():
            prefix = f"{name}: " if len(self._clients) > 1 else ""
            self._output += [prefix + show(answer) for answer in client.answers()]
            if client.closed and client is self._now and not client.told_closed:
                client.told_closed = True
                self._output.append(prefix + "(closed)")

    # --- commands ---

    def _connect(self, name: str, **settings: str) -> Client:
        client = self._clients[name] = self.inside.client(**settings)
        return client

    def client(self, name: str) -> None:
        self._now = self._clients.get(name) or self._connect(name)

    def connect(self, rest: str) -> None:
        name, *settings = shlex.split(rest)
        self._now = self._connect(name, **dict(setting.split("=", 1) for setting in settings))

    def hold(self, what: str) -> None:
        {"writer": self.inside.hold_writer, "catalog": self.inside.hold_catalog}[what]()

    def release(self, _: str) -> None:
        self.inside.release()

    def cancel(self, _: str) -> None:
        self._now.session.cancel()

    def full(self, _: str) -> None:
        self._now.full = True

    def drain(self, _: str) -> None:
        self._now.drain()

    def disconnect(self, _: str) -> None:
        self._now.disconnect()

    def restart(self, _: str) -> None:
        self._stack.close()
        self._start()

    def open(self, _: str) -> None:
        limits = self.inside.node.limits
        self._output.append(
            f"statements {limits.statements}, portals {limits.portals},"
            f" read in part {self.inside.node.readers.suspended}"
        )

    def until(self, text: str) -> None:
        def come() -> bool:
            self._show()
            return any(text in line for line in self._output[self._mark :])

        self.inside.until(come, text)

    def until_pending(self, _: str) -> None:
        self.inside.until(lambda: self.inside.node.catalog.pending, "a schema change")


commands: dict[str, Callable[[Scene, str], None]] = {
    name: getattr(Scene, name)
    for name in (
        "cancel",
        "client",
        "connect",
        "disconnect",
        "drain",
        "full",
        "hold",
        "open",
        "release",
        "restart",
        "until",
        "until_pending",
    )
}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "i")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("path", script_paths("node"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool, scene: Scene) -> None:
    run_script(path, scene.execute, rewrite)
