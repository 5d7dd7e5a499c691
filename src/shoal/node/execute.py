"""Running programs where they belong: on the event loop, a reader thread, the writer, the catalog's thread.

Here: ProgramWork for the writer, dml_on_global() for the catalog, the facts that only an execution knows.
Not here: what comes before and after on the wire (executing.py), the threads (storage/, catalog_log.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from shoal.catalog.entries import Dml
from shoal.catalog.schema import Schema
from shoal.errors import QueryCanceled, RetryableError, ShoalError
from shoal.node.about import Fact
from shoal.node.catalog_log import CatalogLog, Decision
from shoal.node.statements import ManyRows, Prepared, refuse_unless_allowed
from shoal.sql.plan import SessionFact
from shoal.sql.program import Facts, Program
from shoal.storage.catalog_db import CatalogDb, DryRun
from shoal.storage.limits import NO_LIMITS, Limits, opcodes_between_looks, too_many_opcodes, too_many_rows
from shoal.storage.writer import Outcome, Writer, WriteSession, WriteWork
from shoal.types.datetimes import midnight, with_precision
from shoal.types.values import Stored
from shoal.types.zones import Zone

T = TypeVar("T")

Rows = list[tuple[Stored, ...]]

_SLICE_ROWS: Final = 1000


class Guard:
    """What shoal_guard() asks inside a running statement: whether it may go on. One per connection that
    writes; the works of that connection take turns with it."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.check is not None:
            self.check()


@dataclass(frozen=True, slots=True)
class Written:
    """What a DML statement did."""

    count: int
    rows: Rows | None  # of RETURNING


def canceled_by_user() -> QueryCanceled:
    return QueryCanceled("canceling statement due to user request")


def canceled_by_timeout() -> QueryCanceled:
    return QueryCanceled("canceling statement due to statement timeout")


class CountsSteps(Protocol):
    """A connection of SQLite: apsw's own, or what has one."""

    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int = ...) -> None: ...


class Control:
    """Stops a statement that writes: when its client cancels it, when it has taken too long or has cost too much."""

    __slots__ = ("_canceled", "_deadline", "_guard", "_steps", "limits")

    def __init__(self, guard: Guard, timeout_ms: int, limits: Limits = NO_LIMITS) -> None:
        self.limits = limits
        self._steps = 0  # of SQLite, in this statement
        self._guard = guard
        self._canceled: ShoalError | None = None
        self._deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms else None

    def cancel(self, error: ShoalError) -> None:
        """From the loop, at any time: the statement stops at its next row, if it is still to run at all."""
        self._canceled = error

    def check(self) -> None:
        if self._canceled is not None:
            raise self._canceled
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise canceled_by_timeout()
        if self._steps > self.limits.opcodes > 0:
            raise too_many_opcodes(self.limits.opcodes)

    def watch(self, connection: CountsSteps, run: Callable[[], T]) -> T:
        """Runs a statement that asks the guard itself, row by row. Its steps are counted, which never interrupts it."""
        self._guard.check = self.check
        opcodes = self.limits.opcodes
        try:
            if not opcodes:
                return run()
            every, self._steps = opcodes_between_looks(opcodes), 0

            def count() -> bool:
                self._steps += every
                return False

            connection.set_progress_handler(count, every)
            try:
                answer = run()
            finally:
                connection.set_progress_handler(None)
            self.check()
            return answer
        finally:
            self._guard.check = None

    def refuse_too_many(self, tag: str, count: int, rows: Rows | None) -> None:
        """Rows that travel: those of the answer, and those that an INSERT brings."""
        most = self.limits.rows
        travelling = len(rows) if rows is not None else count if tag == "INSERT" else 0
        if travelling > most > 0:
            raise too_many_rows(most, travelling)


class Skipped(ShoalError):
    """Not run, since the one before it in the pipeline failed. No client ever sees this."""


class ProgramWork:
    """One DML statement on sharded data."""

    __slots__ = ("_bindings", "_program", "control", "one_statement", "previous")

    def __init__(
        self,
        program: Program,
        bindings: Sequence[Stored],
        control: Control,
        previous: Outcome[Written] | None = None,
    ) -> None:
        self.previous = previous  # of the same client's pipeline: if it failed, this one must not run
        self.control = control
        self.one_statement = control.limits is NO_LIMITS  # what it has cost is known when it has written
        self._program = program
        self._bindings = bindings

    def run(self, session: WriteSession) -> Written:
        previous = self.previous
        if previous is not None and previous.error is not None:
            raise Skipped("a statement before it in the pipeline failed")
        program, bindings, control = self._program, self._bindings, self.control
        control.check()
        if program.names:
            rows = control.watch(session.connection, lambda: session.returning(program.sql, bindings))
            written = Written(len(rows), rows)
        elif program.guarded or not self.one_statement:
            count = control.watch(session.connection, lambda: session.execute(program.sql, bindings))
            written = Written(count, None)
        else:
            return Written(session.execute(program.sql, bindings), None)
        control.refuse_too_many(program.tag, written.count, written.rows)
        return written


class ManyWork:
    """Many rows of one INSERT, as a few programs that run once for each row. All of them, or none."""

    __slots__ = ("_many", "control")

    one_statement = False

    def __init__(self, many: ManyRows, control: Control) -> None:
        self.control = control
        self._many = many

    def run(self, session: WriteSession) -> Written:
        return self.control.watch(session.connection, lambda: self._run(session))

    def _run(self, session: WriteSession) -> Written:
        self.control.refuse_too_many("INSERT", sum(len(rows) for _, rows in self._many.groups), None)
        count = 0
        for sql, rows in self._many.groups:
            for start in range(0, len(rows), _SLICE_ROWS):
                self.control.check()
                count += session.executemany(sql, rows[start : start + _SLICE_ROWS])
        return Written(count, None)


class SchemaChanged(RetryableError):
    """The statement was compiled against a schema that the log has left behind. Nothing has happened."""


async def dml_on_global(
    log: CatalogLog, prepared: Prepared, bindings: Sequence[Stored], control: Control
) -> Written:
    """One DML statement on a global table: the rows that it would change become an entry of the log.

    The entry rests on the rows that were read, and on the rights: were they taken away before it joins the log, it is
    decided anew.
    """
    program, user_id = prepared.program, prepared.user_id
    assert program is not None
    found: list[DryRun] = []
    reads = program.reads

    def decide(db: CatalogDb) -> Decision | None:
        control.check()
        rights = db.catalog.rights
        _refuse_changed_tables(program, db.catalog.schema)
        refuse_unless_allowed(prepared, rights)
        dry = control.watch(db, lambda: db.dry_run(program.sql, bindings))
        control.refuse_too_many(program.tag, dry.count, dry.rows if program.names else None)
        found.append(dry)
        if not dry.changes:
            return None
        return Decision(
            Dml(dry.changes, user_id), (*reads.ranges(bindings, dry.count), *rights.basis(user_id))
        )

    await log.propose_after(decide)
    dry = found[-1]
    return Written(dry.count, dry.rows if program.names else None)


def _refuse_changed_tables(program: Program, schema: Schema) -> None:
    for table in program.tables:
        now = schema.tables_by_id.get(table.id)
        if now is None or now.version != table.version:
            raise SchemaChanged(f"table {table.name} has changed")
    assert program.writes is not None
    if not schema.tables_by_id[program.writes.id].operable:
        raise SchemaChanged(f"table {program.writes.name} is being changed")


class Turn:
    """Does nothing: its turn comes when all writes that were submitted before it are done."""

    one_statement = True

    def run(self, session: WriteSession) -> None:
        pass


async def write(writer: Writer, work: WriteWork[T]) -> T:
    """For what is rare: sessions submit their works themselves, without a future."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(outcome: Outcome[T]) -> None:
        if future.done():
            return
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result())

    writer.submit(work, done)
    return await future


def session_facts(about: Mapping[SessionFact, Fact], user: str, database: str, pid: int) -> Facts:
    """What the statements of a session may ask, but for the time. Of the instance they hear what is true when they ask."""
    own: dict[SessionFact, Fact] = {
        SessionFact.USER: lambda: user,
        SessionFact.DATABASE: lambda: database,
        SessionFact.BACKEND_PID: lambda: pid,
    }
    return {fact: partial(_at_any_precision, ask) for fact, ask in (*about.items(), *own.items())}


def _at_any_precision(ask: Fact, precision: int | None) -> Stored:
    return ask()


def statement_facts(zone: Zone, of_session: Facts) -> Facts:
    """The same with the time: the clock is read once, here."""
    now = time.time_ns() // 1000

    def instant(precision: int | None) -> Stored:
        return now if precision is None else with_precision(now, precision)

    return {
        **of_session,
        SessionFact.NOW: instant,
        SessionFact.LOCAL_NOW: instant,
        SessionFact.TODAY: lambda _precision: midnight(now, zone),
        SessionFact.ZONE: lambda _precision: zone.name,
    }
