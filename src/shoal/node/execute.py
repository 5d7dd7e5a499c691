"""Running programs where they belong: on the event loop, a reader thread, the writer, the catalog's thread.

Here: ProgramWork for the writer, dml_on_global() for the catalog, the facts that only an execution knows.
Not here: what comes before and after on the wire (session.py), the threads (storage/, catalog_log.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.catalog.entries import Dml, Entry
from shoal.errors import QueryCanceled, ShoalError
from shoal.node.catalog_log import CatalogLog
from shoal.node.statements import ManyRows
from shoal.sql.plan import SessionFact
from shoal.sql.program import Program
from shoal.storage.catalog_db import CatalogDb, DryRun
from shoal.storage.writer import Outcome, WriteSession
from shoal.types.datetimes import midnight, with_precision
from shoal.types.values import Stored
from shoal.types.zones import Zone

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


class _Control:
    """Stops a statement on the writer: when its client cancels it, or when it has taken too long."""

    __slots__ = ("_cancelled", "_deadline", "guard")

    def __init__(self, guard: Guard, timeout_ms: int) -> None:
        self.guard = guard
        self._cancelled = False
        self._deadline = time.monotonic() + timeout_ms / 1000 if timeout_ms else None

    def cancel(self) -> None:
        """From the loop, at any time: the statement stops at its next row, if it is still to run at all."""
        self._cancelled = True

    def check(self) -> None:
        if self._cancelled:
            raise QueryCanceled("canceling statement due to user request")
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise QueryCanceled("canceling statement due to statement timeout")


class Skipped(ShoalError):
    """Not run, since the one before it in the pipeline failed. No client ever sees this."""


class ProgramWork:
    """One DML statement on sharded data."""

    __slots__ = ("_bindings", "_control", "_program", "previous")

    one_statement = True

    def __init__(
        self,
        program: Program,
        bindings: Sequence[Stored],
        guard: Guard,
        timeout_ms: int,
        previous: Outcome[Written] | None = None,
    ) -> None:
        self.previous = previous  # of the same client's pipeline: if it failed, this one must not run
        self._program = program
        self._bindings = bindings
        self._control = _Control(guard, timeout_ms)

    def cancel(self) -> None:
        self._control.cancel()

    def run(self, session: WriteSession) -> Written:
        program = self._program
        previous = self.previous
        if previous is not None and previous.error is not None:
            raise Skipped("a statement before it in the pipeline failed")
        control = self._control
        control.check()
        if program.guarded:
            control.guard.check = control.check
        try:
            if program.names:
                rows = session.returning(program.sql, self._bindings)
                return Written(len(rows), rows)
            return Written(session.execute(program.sql, self._bindings), None)
        finally:
            if program.guarded:
                control.guard.check = None


class ManyWork:
    """Many rows of one INSERT, as a few programs that run once for each row. All of them, or none."""

    __slots__ = ("_control", "_many")

    one_statement = False

    def __init__(self, many: ManyRows, guard: Guard, timeout_ms: int) -> None:
        self._many = many
        self._control = _Control(guard, timeout_ms)

    def cancel(self) -> None:
        self._control.cancel()

    def run(self, session: WriteSession) -> Written:
        count = 0
        for sql, rows in self._many.groups:
            for start in range(0, len(rows), _SLICE_ROWS):
                self._control.check()
                count += session.executemany(sql, rows[start : start + _SLICE_ROWS])
        return Written(count, None)


async def dml_on_global(
    log: CatalogLog, program: Program, bindings: Sequence[Stored], user_id: int
) -> Written:
    """One DML statement on a global table: the rows that it would change become an entry of the log."""
    found: list[DryRun] = []

    def decide(db: CatalogDb) -> Entry | None:
        dry = db.dry_run(program.sql, bindings)
        found.append(dry)
        return Dml(dry.changes, user_id) if dry.changes else None

    await log.propose_after(decide)
    (dry,) = found
    return Written(dry.count, dry.rows if program.names else None)


def session_facts(
    zone: Zone, constant: Mapping[SessionFact, Stored]
) -> Mapping[SessionFact, Callable[[int | None], Stored]]:
    """What a statement may ask about its session. The clock is read once, here."""
    now = time.time_ns() // 1000

    def instant(precision: int | None) -> Stored:
        return now if precision is None else with_precision(now, precision)

    facts: dict[SessionFact, Callable[[int | None], Stored]] = {
        fact: _always(value) for fact, value in constant.items()
    }
    facts[SessionFact.NOW] = instant
    facts[SessionFact.LOCAL_NOW] = instant
    facts[SessionFact.TODAY] = lambda _precision: midnight(now, zone)
    facts[SessionFact.ZONE] = lambda _precision: zone.name
    return facts


def _always(value: Stored) -> Callable[[int | None], Stored]:
    return lambda _precision: value
