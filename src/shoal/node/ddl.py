"""Carrying out a schema change: prepare, change the tables of sharded data, commit or abort.

Here: SchemaChanges: a client's part (prepare, and wait for the end), the leader's (have it done, commit or abort), and that
of an instance that holds rows (change its tables, take that back, drop what no catalog names any more).
Not here: what a change does to the catalog (catalog/apply.py), to SQLite (storage/tables.py).

The order makes a crash harmless at every point. DdlPrepare is in the log before anything happens to data.db; the change
of data.db can be repeated; only DdlCommit makes it visible. Whoever leads goes on with what is prepared: so neither
the client's instance nor the leader is needed to the end. The old physical table of a DROP or TRUNCATE goes after
DdlCommit, when no statement can name it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from shoal.catalog.apply import Catalog, Pending, after, check
from shoal.catalog.entries import DdlAbort, DdlCommit, DdlPrepare, SchemaChange
from shoal.catalog.schema import Schema, Table
from shoal.errors import (
    CannotConnectNow,
    Fault,
    InternalError,
    ObjectInUse,
    OutcomeUnknown,
    RetryableError,
    ShoalError,
)
from shoal.node.catalog_log import DEADLINE_SECONDS, CatalogLog, Change, Decision
from shoal.node.execute import Turn, write
from shoal.node.raft_loop import RaftLoop
from shoal.node.rpc import Caller, Rpc
from shoal.protocol.cluster import ApplySchemaChange, Done, RevertSchemaChange
from shoal.protocol.envelope import Failure, error_of
from shoal.storage import tables
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.dropping import Dropping, put_aside, put_aside_tables
from shoal.storage.writer import Writer, WriteSession

_log: Final = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.5
_CALL_SECONDS: Final = 30.0
_ENDED_MAX: Final = 1000

# What the leader's question meets on its way: it is asked again.
_ON_THE_WAY: Final = (RetryableError, OutcomeUnknown, CannotConnectNow)

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


def _unheard(task: asyncio.Task[bool]) -> None:
    """Nobody waits any more for how a change ends. Its answer is for nobody, a bug is for the log."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ShoalError):
        _log.error("a schema change whose client has left failed", exc_info=error)


class SchemaChanges:
    def __init__(
        self,
        log: CatalogLog,
        writer: Writer,
        raft: RaftLoop,
        rpc: Rpc,
        loop: asyncio.AbstractEventLoop,
        *,
        self_id: int,
        owners: Callable[[Table], list[int]],
        address: Callable[[int], str | None],
    ) -> None:
        self._log = log
        self._writer = writer
        self._raft = raft
        self._rpc = rpc
        self._loop = loop
        self._self_id = self_id
        self._owners = owners  # raft ids of the instances that hold a sharded table's rows
        self._address = address
        self._under_way: set[asyncio.Task[None]] = set()
        self._unprepared: set[asyncio.Task[Any] | None] = set()  # nothing of theirs is in the log yet
        self._driven: dict[int, asyncio.Task[None]] = {}  # by version, on the leader
        self._ended: dict[int, DdlAbort | None] = {}  # the last of them; None: committed
        self._stopped = False
        log.on_change(self._on_change)
        raft.on_role(self._drive)
        rpc.handle(ApplySchemaChange, self._on_apply)
        rpc.handle(RevertSchemaChange, self._on_revert)

    async def stop(self) -> None:
        self._stopped = True
        tasks = [*self._driven.values(), *self._under_way]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- a client's part -------------------------------------------------------------------------

    async def carry_out(self, bind: BindChange, user_id: int) -> bool:
        """Returns when it is committed, False if there was nothing to do; raises why it was refused or aborted.

        Once prepared it comes to an end, whoever waits for it: a client that loses its patience stops nothing,
        and hears OutcomeUnknown. Before that, being cancelled is the end of it.
        """
        task = self._loop.create_task(self._carry_out(bind, user_id))
        self._unprepared.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task in self._unprepared:
                task.cancel()
                await asyncio.wait([task])
                if task.cancelled():
                    raise
            task.add_done_callback(_unheard)
            raise OutcomeUnknown(
                "canceling statement", detail="The schema change goes on, and will be committed or aborted."
            ) from None
        finally:
            self._unprepared.discard(task)

    async def _carry_out(self, bind: BindChange, user_id: int) -> bool:
        def prepare(db: CatalogDb) -> Decision | None:
            # Bound here once more: only the catalog that the entry follows tells which table a name means by
            # now, and which id a new table gets.
            change = bind(db.catalog)
            if change is None:
                return None
            check(db.catalog, change)
            return Decision(DdlPrepare(change, user_id))

        while True:
            try:
                version = await self._log.propose_after(prepare)
            except ObjectInUse:
                await self._log.next_change()  # of the same table: look again when it has ended
                continue
            if version is None:
                return False
            self._unprepared.discard(asyncio.current_task())
            await self._until_ended(version)
            return True

    async def _until_ended(self, version: int) -> None:
        while version not in self._ended:
            if version not in self._log.catalog.pending:
                raise OutcomeUnknown(
                    "the schema change has ended, and may be committed or aborted: this instance has caught up with"
                    " the cluster without seeing it"
                )
            await self._log.next_change()
        aborted = self._ended[version]
        if aborted is not None:
            raise error_of(Failure(0, aborted.sqlstate, aborted.cause, aborted.detail))

    # --- what the log tells ----------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if change.by_snapshot:
            self._drop_what_went(change.before.schema, change.after.schema)
        elif change.record is not None:
            entry = change.record.entry
            if isinstance(entry, DdlCommit | DdlAbort):
                self._ended[entry.version] = entry if isinstance(entry, DdlAbort) else None
                if len(self._ended) > _ENDED_MAX:
                    del self._ended[next(iter(self._ended))]
            if isinstance(entry, DdlCommit):
                table_id = change.before.pending[entry.version].table_id
                self._drop_if_replaced(change.before.schema.tables_by_id.get(table_id), change.after.schema)
        self._drive()

    def _drop_what_went(self, before: Schema, after: Schema) -> None:
        for table in before.tables.values():
            self._drop_if_replaced(table, after)

    def _drop_if_replaced(self, before: Table | None, schema: Schema) -> None:
        if before is None:
            return
        now = schema.tables_by_id.get(before.id)
        if now is None or now.physical != before.physical:
            self._later(self._drop(before))

    # --- the leader's part -----------------------------------------------------------------------

    def _drive(self) -> None:
        """Goes on with all that is prepared."""
        if not self._raft.is_leader or self._stopped:
            return
        for version, pending in self._log.catalog.pending.items():
            if version not in self._driven:
                self._driven[version] = self._loop.create_task(self._bring_to_end(pending))

    async def _bring_to_end(self, pending: Pending) -> None:
        version = pending.version
        try:
            aborting: ShoalError | None = None
            while self._raft.is_leader and version in self._log.catalog.pending:
                try:
                    if aborting is None:
                        await self._commit(pending)
                    else:
                        await self._abort(pending, aborting)
                except _ON_THE_WAY as error:
                    _log.info("schema change %s: not now: %s", version, error.message)
                    await self._pause()
                except ShoalError as error:
                    if aborting is None:
                        aborting = error
                        continue
                    # On a full disk taking back fails, too: the table stays blocked until there is space again,
                    # and no longer.
                    _log.warning(
                        "aborting schema change %s failed, and is tried again: %s", version, error.message
                    )
                    await self._pause()
                except Fault:
                    await self._pause()  # the instance stops, and this with it
                except Exception as error:
                    _log.error("schema change %s failed by a bug", version, exc_info=error)
                    if aborting is None:
                        aborting = InternalError(f"internal error: {error!r}")
                    else:
                        await self._pause()
        finally:
            del self._driven[version]
            self._loop.call_soon(self._drive)

    async def _pause(self) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)

    async def _commit(self, pending: Pending) -> None:
        """What is raised leaves it pending: it must be aborted, or tried again."""
        before, becomes = self._forms(pending)
        if becomes is not None:
            if becomes.is_sharded:
                await self._everywhere(becomes, ApplySchemaChange(pending.version), self._apply)
            else:
                await self._check_global(before, becomes)
        await self._propose_end(pending, DdlCommit(pending.version))

    async def _abort(self, pending: Pending, why: ShoalError) -> None:
        """Takes back what was done of it, which may be all but its DdlCommit."""
        _, becomes = self._forms(pending)
        if becomes is not None and becomes.is_sharded:
            await self._everywhere(becomes, RevertSchemaChange(pending.version), self._revert)
        await self._propose_end(pending, DdlAbort(pending.version, why.sqlstate, why.message, why.detail))

    async def _propose_end(self, pending: Pending, end: DdlCommit | DdlAbort) -> None:
        def decide(db: CatalogDb) -> Decision | None:
            return Decision(end) if pending.version in db.catalog.pending else None

        await self._log.propose_after(decide, seconds=DEADLINE_SECONDS)

    async def _everywhere(
        self,
        table: Table,
        request: ApplySchemaChange | RevertSchemaChange,
        here: Callable[[int], Awaitable[None]],
    ) -> None:
        """On every instance that holds rows of the table. Raises what one of them has raised."""
        for owner in self._owners(table):
            if owner == self._self_id:
                await here(request.version)
                continue
            address = self._address(owner)
            if address is None:
                raise RetryableError(f"nobody knows where the instance with raft id {owner} is")
            await self._rpc.call(address, request, Done, _CALL_SECONDS)

    async def _check_global(self, before: Table | None, becomes: Table) -> None:
        """What its apply must not find out too late: an apply can't fail."""
        await self._log.on_thread(lambda db: db.check_migration(before, becomes))

    # --- the part of who holds rows --------------------------------------------------------------

    async def _on_apply(self, caller: Caller, request: ApplySchemaChange, deadline: float) -> Done:
        await self._caught_up(request.version, deadline)
        await self._apply(request.version)
        return Done(self._log.applied)

    async def _on_revert(self, caller: Caller, request: RevertSchemaChange, deadline: float) -> Done:
        await self._caught_up(request.version, deadline)
        await self._revert(request.version)
        return Done(self._log.applied)

    async def _caught_up(self, version: int, deadline: float) -> None:
        try:
            await self._log.wait_applied(version, deadline)
        except TimeoutError:
            raise RetryableError(f"entry {version} has not arrived here yet") from None

    async def _apply(self, version: int) -> None:
        """A request can only be early or superfluous: what counts is what the catalog shows as pending."""
        pending = self._log.catalog.pending.get(version)
        if pending is not None:
            await write(self._writer, _Migrate(*self._forms(pending)))

    async def _revert(self, version: int) -> None:
        pending = self._log.catalog.pending.get(version)
        if pending is not None:
            before, becomes = self._forms(pending)
            assert becomes is not None, pending
            await write(self._writer, _Revert(before, becomes))

    def _forms(self, pending: Pending) -> tuple[Table | None, Table | None]:
        """The table as it was, and as it becomes."""
        schema = self._log.catalog.schema
        return schema.tables_by_id.get(pending.table_id), after(schema, pending.change, pending.version)

    async def recover(self) -> None:
        """At start, before anybody may use the tables: drops those that nothing names."""
        catalog = self._log.catalog
        for table in catalog.schema.tables.values():
            if table.unlogged:
                # Their file was deleted at start: empty ones take their place.
                await write(self._writer, _Migrate(None, table))
        known = {(table.file, table.physical) for table in catalog.schema.tables.values()}
        for pending in catalog.pending.values():
            becomes = self._forms(pending)[1]
            if becomes is not None:
                known.add((becomes.file, becomes.physical))
        for file, name in await write(self._writer, _PutAllAside(frozenset(known))):
            Dropping(self._writer, name, schema=file).start()
        await self._log.tidy()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """For what nobody waits for."""
        task = self._loop.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _drop(self, table: Table) -> None:
        try:
            # Behind all writes that were submitted while a statement could still name it.
            if not table.is_sharded:
                await write(self._writer, Turn())
                await self._log.tidy()
                return
            name = await write(self._writer, _PutAside(table.file, table.physical))
            if name is not None:
                Dropping(self._writer, name, schema=table.file).start()
        except ShoalError as error:
            # It stays as garbage until the next start, which drops what nothing names.
            _log.warning("dropping %s failed: %s", table.physical, error.message)
