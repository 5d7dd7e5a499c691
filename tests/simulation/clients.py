"""Clients without sockets: each has a session on some instance, sends one statement at a time, and remembers what it heard.

Here: Statement, SimClient, and which entries of the log come from which statement.
Not here: what they send (workload.py), whether it was true (history.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from shoal.catalog.rights import User
from shoal.node.instance import Node
from shoal.node.session import Session
from shoal.node.settings import SessionSettings
from shoal.pgwire import messages as m
from shoal.pgwire.codec import BackendFrames, Frames, encode_all
from tests.simulation.cluster import SimCluster
from tests.simulation.history import Log
from tests.simulation.instance import SimInstance
from tests.simulation.loop import Handle
from tests.simulation.workload import Op

_NOW: Final[ContextVar[Statement | None]] = ContextVar("the statement at work", default=None)


@dataclass(eq=False)
class Statement:
    op: Op
    instance: str
    client: int
    user_id: int
    begun: float
    low: int  # the last entry that had been acknowledged to anybody
    low_here: int  # the last entry that the instance had applied
    origins: list[tuple[int, int]] = field(default_factory=list)  # of the entries that it has proposed
    ended: float = 0.0
    high: int = 0  # the last entry that anybody had applied
    applied: dict[str, int] = field(
        default_factory=dict
    )  # then, by those that ran; by their names in the catalog
    outcome: str = ""  # ok, error, lost
    tag: str = ""
    warned: bool = False  # that not every instance has it
    sqlstate: str = ""
    message: str = ""
    rows: list[tuple[bytes | None, ...]] = field(default_factory=list)

    @property
    def is_unknown(self) -> bool:
        return self.outcome == "lost" or self.sqlstate == "40003"

    @property
    def succeeded(self) -> bool:
        """57S01: it did, and not everywhere."""
        return self.outcome == "ok" or self.sqlstate == "57S01"

    @property
    def count(self) -> int:
        """Of the rows that it says to have changed."""
        return int(self.tag.split()[-1])

    def __str__(self) -> str:
        said = f"{self.sqlstate} {self.message}" if self.outcome == "error" else f"{self.outcome} {self.tag}"
        return (
            f"[{self.begun:.4f}–{self.ended:.4f}] client {self.client} on {self.instance} as user {self.user_id}: {self.op.sql}\n    → {said}"
            f" (entries {self.low}/{self.low_here}–{self.high})"
        )


def follow_origins(instance: SimInstance, node: Node) -> None:
    """From now on each statement knows which entries it has proposed."""
    log = node.log
    bring = log._bring

    async def traced(*args: Any) -> int | None:
        statement = _NOW.get()
        if statement is not None:
            statement.origins.append((log._process, log._counter + 1))
        return await bring(*args)

    log._bring = traced  # type: ignore[method-assign]


class SimClient:
    """A session's other end."""

    def __init__(self, cluster: SimCluster, log: Log, number: int, rng: Random) -> None:
        self.number = number
        self.statement: Statement | None = None  # that waits for its answer
        self.instance: SimInstance | None = None  # while it is connected
        self.said: list[Statement] = []  # all that have ended
        self._cluster = cluster
        self._log = log
        self._rng = rng
        self._wire: Wire | None = None
        self._then: Callable[[], None] = lambda: None

    # --- the connection --------------------------------------------------------------------------

    def connect(self, instance: SimInstance, user: str = "admin") -> bool:
        """False: it lets nobody in now. Who may not log in comes as admin."""
        node = instance.node
        if node is None or not instance.is_online or node.stopping.is_set():
            return False
        rights = node.catalog.rights
        found = rights.by_name.get(user)
        if found is None or not rights.may_log_in(found.id):
            found = rights.by_name["admin"]
        self.instance, self._wire = instance, Wire(self, node, found)
        return True

    def disconnect(self) -> None:
        """Whatever is under way: the client hears no more of it."""
        wire, instance = self._wire, self.instance
        self._wire = self.instance = None
        if wire is not None and instance is not None and instance.loop is not None:
            self._cluster.scheduler.soon(Handle(instance.loop, 0.0, wire.session.close, (), None))
        self._ended("lost")

    def instance_died(self, instance: SimInstance) -> None:
        if self.instance is instance:
            self._wire = self.instance = None
            self._ended("lost")

    # --- one statement ---------------------------------------------------------------------------

    def ask(self, op: Op, then: Callable[[], None] = lambda: None) -> Statement:
        """`then` is called when it has ended, one way or another."""
        instance, wire = self.instance, self._wire
        assert self.statement is None and instance is not None and wire is not None
        assert instance.node is not None and instance.loop is not None
        now = self._cluster.scheduler.now
        statement = Statement(
            op,
            instance.name,
            self.number,
            wire.user_id,
            now,
            self._log.acknowledged,
            instance.node.log.applied,
        )
        self.statement = statement
        self._then = then

        context = copy_context()
        context.run(_NOW.set, statement)
        self._cluster.scheduler.soon(Handle(instance.loop, 0.0, wire.send, (m.Query(op.sql),), context))
        return statement

    def cancel(self) -> None:
        wire, instance = self._wire, self.instance
        if wire is not None and instance is not None and instance.loop is not None:
            self._cluster.scheduler.soon(Handle(instance.loop, 0.0, wire.session.cancel, (), None))

    def _ended(self, outcome: str) -> None:
        statement, self.statement = self.statement, None
        if statement is None:
            return
        statement.outcome = outcome
        statement.ended = self._cluster.scheduler.now
        statement.high = self._log.last
        for instance in self._cluster.running:
            if instance.node is not None and instance.node.cluster.instance is not None:
                statement.applied[instance.node.cluster.instance.name] = instance.node.log.applied
        self.said.append(statement)
        self._cluster.scheduler.note(str(statement))
        self._log.on_answer(statement)
        then, self._then = self._then, lambda: None
        self._cluster.scheduler.call_later(0.0, then)

    def heard(self, wire: Wire, message: m.Message) -> None:
        statement = self.statement
        if statement is None or wire is not self._wire:
            return
        match message:
            case m.ErrorResponse():
                statement.sqlstate, statement.message = message.sqlstate, message.message
            case m.NoticeResponse():
                statement.warned = statement.warned or message.sqlstate == "01000"
            case m.CommandComplete():
                statement.tag = message.tag
            case m.DataRow():
                statement.rows.append(message.values)
            case m.ReadyForQuery():
                self._ended("error" if statement.sqlstate else "ok")

    def closed(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = self.instance = None
            self._ended("error" if self.statement is not None and self.statement.sqlstate else "lost")


class Wire:
    """One connection of a client: the session's side of it, and what it has said."""

    def __init__(self, client: SimClient, node: Node, user: User) -> None:
        self._client = client
        self._frames = Frames()
        self._frames.open_session()
        self._answers = BackendFrames()
        settings = SessionSettings(user.name, {})
        self.user_id = user.id
        self.session = Session(node, self, self._frames, user, settings, "shoal", client.number)

    def send(self, message: m.Message) -> None:
        self._frames.feed(encode_all(message))
        self.session.pump()

    def write(self, data: bytes) -> None:
        self._answers.feed(data)
        for kind, payload in self._answers:
            self._client.heard(self, m.BACKEND_DECODERS[kind](payload))

    def is_full(self) -> bool:
        return False

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self._client.closed(self)
