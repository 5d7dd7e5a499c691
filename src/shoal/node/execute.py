"""Running programs where they belong: on the event loop, a reader thread, the writer, the catalog's thread.

Here: ProgramWork for the writer, dml_on_global() for the catalog, the facts that only an execution knows.
Not here: what comes before and after on the wire (session.py), the threads (storage/, catalog_log.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shoal.catalog.entries import Dml, Entry
from shoal.errors import QueryCanceled
from shoal.node.catalog_log import CatalogLog
from shoal.sql.plan import SessionFact
from shoal.sql.program import Program
from shoal.storage.catalog_db import CatalogDb, DryRun
from shoal.storage.writer import WriteSession
from shoal.types.datetimes import midnight, with_precision
from shoal.types.values import Stored
from shoal.types.zones import Zone

Rows = list[tuple[Stored, ...]]


class Guard:
    """What shoal_guard() asks inside a running statement: whether it may go on. One per connection that
    writes; the works of that connection take turns with it."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Callable[[], None] | None = None

    def __call__(self) -> int:
        """1, which is true in a WHERE."""
        if self.check is not None:
            self.check()
        return 1


@dataclass(frozen=True, slots=True)
class Written:
    """What a DML statement did."""

    count: int
    rows: Rows | None  # of RETURNING


class ProgramWork:
    """One DML statement on sharded data."""

    __slots__ = ("_bindings", "_cancelled", "_deadline", "_guard", "_program")

    one_statement = True

    def __init__(self, program: Program, bindings: Sequence[Stored], guard: Guard, timeout_ms: int) -> None:
        self._program = program
        self._bindings = bindings
        self._guard = guard
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

    def run(self, session: WriteSession) -> Written:
        program = self._program
        self.check()
        if program.guarded:
            self._guard.check = self.check
        try:
            if program.names:
                rows = session.returning(program.sql, self._bindings)
                return Written(len(rows), rows)
            return Written(session.execute(program.sql, self._bindings), None)
        finally:
            if program.guarded:
                self._guard.check = None


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
    zone: Zone, user: str, constant: Mapping[SessionFact, Stored]
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
    facts[SessionFact.USER] = lambda _precision: user
    return facts


def _always(value: Stored) -> Callable[[int | None], Stored]:
    return lambda _precision: value
