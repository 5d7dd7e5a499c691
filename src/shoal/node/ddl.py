"""Carrying out a schema change: prepare, change the tables of sharded data, commit or abort.

Here: SchemaChanges, the steps and their order, finishing what a crash interrupted, dropping what no catalog
names any more.
Not here: what a change does to the catalog (catalog/apply.py), to SQLite (storage/tables.py).

The order makes a crash harmless at every point. DdlPrepare is durable before anything happens to data.db;
the change of data.db can be repeated; only DdlCommit makes it visible. At start a prepared change is gone on
with. The old physical table of a DROP or TRUNCATE goes after DdlCommit, when no statement can name it.

With one instance the governor's part (adr/003) is this module's: it is the only master there is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from shoal.catalog.apply import Catalog, Pending, after, check, conflicts
from shoal.catalog.entries import DdlAbort, DdlCommit, DdlPrepare, Entry, SchemaChange
from shoal.catalog.schema import Table
from shoal.errors import ObjectInUse, OutcomeUnknown, ShoalError
from shoal.node.catalog_log import CatalogLog
from shoal.node.execute import write
from shoal.storage import tables
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.dropping import Dropping, put_aside, put_aside_tables
from shoal.storage.writer import Writer, WriteSession

_log: Final = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.5

# What a statement asks of a catalog; None: nothing, since IF [NOT] EXISTS was said. Raises what is wrong with it.
BindChange = Callable[[Catalog], SchemaChange | None]


@dataclass(frozen=True, slots=True)
class _Migrate:
    """Brings the physical table from one form to the other. Safe to repeat."""

    before: Table | None
    after: Table | None

    one_statement = False

    def run(self, session: WriteSession) -> None:
        before, changed = self.before, self.after
        if before is not None and changed is not None:
            tables.refuse_missing_values(session.connection, before, changed, schema=before.file)
        tables.migrate(session.connection, before, changed, schema=(changed or before).file)  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class _Revert:
    """Takes back what a _Migrate has done, of a change that is to be aborted. Safe to repeat."""

    before: Table | None
    after: Table

    one_statement = False

    def run(self, session: WriteSession) -> None:
        tables.revert(session.connection, self.before, self.after, schema=self.after.file)


@dataclass(frozen=True, slots=True)
class _PutAside:
    """Takes a physical table that no catalog names out of the way, to be cleared little by little."""

    file: str
    physical: str

    one_statement = False

    def run(self, session: WriteSession) -> str | None:
        return put_aside(session.connection, self.physical, schema=self.file)


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Its turn comes when all writes that were submitted before it are done."""

    one_statement = True

    def run(self, session: WriteSession) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _PutAllAside:
    """The same of all tables but the known ones. What a stopped instance had put aside is in the answer, too."""

    known: frozenset[tuple[str, str]]  # file, physical name

    one_statement = False

    def run(self, session: WriteSession) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for file in ("main", "unlogged"):
            for name in tables.physical_tables(session.connection, schema=file):
                if (file, name) not in self.known:
                    put_aside(session.connection, name, schema=file)
            found += [(file, name) for name in put_aside_tables(session.connection, schema=file)]
        return found


class SchemaChanges:
    def __init__(self, log: CatalogLog, writer: Writer, loop: asyncio.AbstractEventLoop) -> None:
        self._log = log
        self._writer = writer
        self._loop = loop
        self._under_way: set[asyncio.Task[None]] = set()
        self._unprepared: set[asyncio.Task[Any] | None] = set()  # they wait for another change of the table

    async def carry_out(self, bind: BindChange, user_id: int) -> bool:
        """Returns when it is committed, False if there was nothing to do; raises why it was refused or aborted.

        Once prepared it comes to an end, whoever waits for it: a client that loses its patience stops nothing,
        and hears OutcomeUnknown. Before that, being cancelled is the end of it.
        """
        task = self._loop.create_task(self._carry_out(bind, user_id))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task in self._unprepared:
                task.cancel()
            if task in self._unprepared or task.cancelled():
                raise
            raise OutcomeUnknown(
                "canceling statement", detail="The schema change goes on, and will be committed or aborted."
            ) from None

    async def _carry_out(self, bind: BindChange, user_id: int) -> bool:
        def prepare(db: CatalogDb) -> Entry | None:
            # Bound here once more: only the catalog that the entry follows tells which table a name means by
            # now, and which id a new table gets.
            change = bind(db.catalog)
            if change is None:
                return None
            check(db.catalog, change)
            return DdlPrepare(change, user_id)

        while (change := bind(self._log.catalog)) is not None:
            if conflicts(self._log.catalog, change):
                await self._next_change()
                continue
            try:
                version = await self._log.propose_after(prepare)
            except ObjectInUse:
                continue  # another was quicker: look again, with the catalog as it is by now
            if version is None:
                break
            pending = self._log.catalog.pending[version]
            try:
                await self._finish(pending)
            except ShoalError as error:
                self._later(self._abort_at_last(pending, error))
                raise
            return True
        return False

    async def _next_change(self) -> None:
        task = asyncio.current_task()
        self._unprepared.add(task)
        try:
            await self._log.next_change()
        finally:
            self._unprepared.discard(task)

    async def recover(self) -> None:
        """At start: ends what was prepared, and drops tables that nothing names."""
        await self._make_unlogged()
        for version in sorted(self._log.catalog.pending):
            pending = self._log.catalog.pending[version]
            _log.info("going on with a schema change: %s", pending.change)
            try:
                await self._finish(pending)
            except ShoalError as error:
                await self._abort(pending, error)
                _log.warning("the schema change was aborted: %s", error.message)
        known = {(table.file, table.physical) for table in self._log.catalog.schema.tables.values()}
        for file, name in await write(self._writer, _PutAllAside(frozenset(known))):
            Dropping(self._writer, name, schema=file).start()
        await self._log.tidy()

    async def _make_unlogged(self) -> None:
        """Their file was deleted at start: empty ones take their place."""
        for table in self._log.catalog.schema.tables.values():
            if table.unlogged:
                await write(self._writer, _Migrate(None, table))

    async def _finish(self, pending: Pending) -> None:
        """What is raised leaves it pending: it must be aborted."""
        schema = self._log.catalog.schema
        before = schema.tables_by_id.get(pending.table_id)
        becomes = after(schema, pending.change, pending.version)
        table = becomes or before
        assert table is not None, pending
        if becomes is not None and table.is_sharded:
            await write(self._writer, _Migrate(before, becomes))
        elif becomes is not None:
            await self._check_global(before, becomes)
        await self._log.propose(DdlCommit(pending.version))
        if before is not None and (becomes is None or becomes.physical != before.physical):
            self._later(self._drop(before))

    async def _abort(self, pending: Pending, why: ShoalError) -> None:
        """Takes back what was done of it, which may be all but its DdlCommit. Safe to repeat."""
        schema = self._log.catalog.schema
        before = schema.tables_by_id.get(pending.table_id)
        becomes = after(schema, pending.change, pending.version)
        if becomes is not None and becomes.is_sharded:
            await write(self._writer, _Revert(before, becomes))
        await self._log.propose(DdlAbort(pending.version, why.sqlstate, why.message))

    async def _abort_at_last(self, pending: Pending, why: ShoalError) -> None:
        """The client is told why at once. On a full disk taking back fails, too: the table stays blocked until
        there is space again, and no longer."""
        while True:
            try:
                await self._abort(pending, why)
                return
            except ShoalError as error:
                _log.warning("aborting a schema change failed, and is tried again: %s", error.message)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _check_global(self, before: Table | None, becomes: Table) -> None:
        """What its apply must not find out too late: an apply can't fail."""

        def decide(db: CatalogDb) -> None:
            db.check_migration(before, becomes)

        await self._log.propose_after(decide)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """For what nobody waits for."""
        task = self._loop.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _drop(self, table: Table) -> None:
        try:
            # Behind all writes that were submitted while a statement could still name it.
            if not table.is_sharded:
                await write(self._writer, _Nothing())
                await self._log.tidy()
                return
            name = await write(self._writer, _PutAside(table.file, table.physical))
            if name is not None:
                Dropping(self._writer, name, schema=table.file).start()
        except ShoalError as error:
            # It stays as garbage until the next start, which drops what nothing names.
            _log.warning("dropping %s failed: %s", table.physical, error.message)
