"""The physical tables of this instance, as far as it is a master: they follow its catalog.

Here: OwnTables: bringing them to a change that is pending, when the leader asks; to what is committed, or back, when the
log says so; to what the catalog shows at start, after a snapshot and when this instance becomes a master. Dropping what no
catalog names any more.
Not here: what is to be done to SQLite's tables (storage/table_versions.py), who decides how a change ends
(governor/rules/schema_changes.py).

**The applied catalog decides, not whoever asks**: a request for a change that isn't pending here does nothing. So one
from a leader that was deposed meanwhile is early or superfluous, and never wrong.

A table is *behind* while it isn't what the catalog shows: while an aborted change is taken back, or after a snapshot. Writes
wait until it is. Usually none is: a change is applied here before it is committed anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import apsw

from shoal.catalog.apply import Pending, after
from shoal.catalog.entries import DdlAbort, DdlCommit
from shoal.catalog.schema import Schema, Sharded, Table, TableId, TierName
from shoal.errors import AdminShutdown, DiskFull, Fault, IoError, RetryableError, ShoalError
from shoal.node.catalog_log import CatalogLog, Change
from shoal.node.execute import Turn, write
from shoal.node.rpc import Caller, Rpc
from shoal.protocol.cluster import ApplySchemaChange, Done
from shoal.storage import table_versions, tables
from shoal.storage.dropping import Dropping, put_aside, put_aside_tables
from shoal.storage.writer import Writer, WriteSession

_log: Final = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.5  # after the disk has refused something that it may take later


@dataclass(frozen=True, slots=True)
class _Work:
    """Something to do with the writer's connection, whole or not at all. Safe to repeat."""

    do: Callable[[apsw.Connection], Any]

    one_statement = False

    def run(self, session: WriteSession) -> Any:
        return self.do(session.connection)


class OwnTables:
    """All methods are for the event loop."""

    def __init__(
        self,
        log: CatalogLog,
        writer: Writer,
        rpc: Rpc,
        loop: asyncio.AbstractEventLoop,
        *,
        is_master: Callable[[TierName], bool],
        fail: Callable[[Fault], None],
    ) -> None:
        self._log = log
        self._writer = writer
        self._loop = loop
        self._is_master = is_master
        self._fail = fail
        self._versions: dict[int, int] = {}  # by table: what is recorded beside them
        self._applying: dict[
            tuple[TableId, int], asyncio.Task[None]
        ] = {}  # by the change's table and version
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self.behind: dict[TableId, asyncio.Task[None]] = {}  # each is being brought up to date
        self._unread: set[TableId] = set()  # of these: changes were missed, so even reading fails
        log.on_change(self._on_change)
        rpc.handle(ApplySchemaChange, self._on_apply)

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._applying.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def refuse_unread(self, table: Table) -> None:
        """For a statement that is bound to the table as it is now."""
        if table.id in self._unread:
            raise _behind(table)

    async def until_up_to_date(self, table_id: TableId) -> None:
        while (task := self.behind.get(table_id)) is not None:
            await asyncio.wait((task,))

    # --- at start --------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Before anybody may use the tables: drops those that nothing names, and makes the others what they are to be."""
        catalog = self._log.catalog
        known = {(table.file, table.physical) for table in catalog.schema.tables.values()}
        for pending in catalog.pending.values():
            becomes = self._forms(pending)[1]
            if becomes is not None:
                known.add((becomes.file, becomes.physical))
        ids = {table.id for table in catalog.schema.tables.values()} | {
            p.table_id for p in catalog.pending.values()
        }

        def open_all(connection: apsw.Connection) -> tuple[dict[int, int], list[tuple[str, str]]]:
            versions = table_versions.open_records(connection)
            found: list[tuple[str, str]] = []
            for file in table_versions.FILES:
                for name in tables.physical_tables(connection, schema=file):
                    if (file, name) not in known:
                        put_aside(connection, name, schema=file)
                # What a stopped instance had put aside is among them, too.
                found += [(file, name) for name in put_aside_tables(connection, schema=file)]
                for table_id in versions.keys() - ids:
                    table_versions.forget(connection, table_id, file=file)
            return versions, found

        self._versions, aside = await write(self._writer, _Work(open_all))
        for file, name in aside:
            Dropping(self._writer, name, schema=file).start()
        self.follow_all()
        await self.until_none_is_behind()
        await self._log.tidy()

    async def until_none_is_behind(self) -> None:
        while self.behind:
            await asyncio.wait(self.behind.values())

    def follow_all(self) -> None:
        """At start, after a snapshot, or when this instance has become a master: whatever was missed."""
        catalog = self._log.catalog
        applied = {pending.table_id: pending.version for pending in catalog.pending.values()}
        for table in catalog.schema.tables.values():
            # Of a change that is pending the leader may know that it was applied here: that stays so.
            if table.is_sharded and applied.get(table.id, -1) != self._versions.get(table.id):
                self._follow(table)
        self._unread = set(self.behind)

    # --- what the log tells ----------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if change.by_snapshot:
            for table in change.before.schema.tables.values():
                self._drop_if_replaced(table, change.after.schema)
            for pending in change.before.pending.values():
                if pending.version not in change.after.pending:
                    self._drop_if_aborted(pending, change.before.schema, change.after.schema)
            self.follow_all()
        elif change.record is not None:
            entry = change.record.entry
            if not isinstance(entry, DdlCommit | DdlAbort):
                return
            pending = change.before.pending[entry.version]
            schema = change.after.schema
            if isinstance(entry, DdlAbort):
                self._drop_if_aborted(pending, change.before.schema, schema)
            else:
                self._drop_if_replaced(change.before.schema.tables_by_id.get(pending.table_id), schema)
            now = schema.tables_by_id.get(pending.table_id)
            if now is not None and now.is_sharded and self._follow(now) and isinstance(entry, DdlCommit):
                self._unread.add(now.id)

    def _drop_if_replaced(self, before: Table | None, schema: Schema) -> None:
        if before is None:
            return
        now = schema.tables_by_id.get(before.id)
        if now is None or now.physical != before.physical:
            self._later(self._drop(before, forget=now is None))

    def _drop_if_aborted(self, pending: Pending, before: Schema, schema: Schema) -> None:
        """The new generation that an aborted change has made. One that was committed is what the schema shows."""
        becomes = after(before, pending.change, pending.version)
        if becomes is not None and becomes.is_sharded:
            self._drop_if_replaced(becomes, schema)

    # --- following -------------------------------------------------------------------------------

    def _follow(self, table: Table) -> bool:
        """Is it behind?"""
        assert isinstance(table.distribution, Sharded), table
        being_changed = any(table_id == table.id for table_id, _ in self._applying)
        if self._versions.get(table.id) == table.version and not being_changed:
            return False
        if table.id not in self.behind and self._is_master(table.distribution.tier):
            self.behind[table.id] = self._later(self._bring(table.id))
        return table.id in self.behind

    async def _bring(self, table_id: TableId) -> None:
        try:
            while (table := self._log.catalog.schema.tables_by_id.get(table_id)) is not None:
                if await self._brought(table):
                    self._versions[table_id] = table.version
                    now = self._log.catalog.schema.tables_by_id.get(table_id)
                    if now is None or now.version == table.version:
                        return
                else:
                    await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            del self.behind[table_id]
            self._unread.discard(table_id)

    async def _brought(self, table: Table) -> bool:
        try:
            await write(self._writer, _Work(lambda connection: table_versions.follow(connection, table)))
        except (DiskFull, IoError, AdminShutdown) as error:
            _log.warning(
                "bringing table %s up to date failed, and is tried again: %s", table.name, error.message
            )
            return False
        except ShoalError as error:
            self._fail(Fault(f"table {table.name} cannot become what the catalog shows: {error.message}"))
            return False
        return True

    # --- what the leader asks --------------------------------------------------------------------

    async def _on_apply(self, caller: Caller, request: ApplySchemaChange, deadline: float) -> Done:
        try:
            await self._log.wait_applied(request.version, deadline)
        except TimeoutError:
            raise RetryableError(f"entry {request.version} has not arrived here yet") from None
        await self.apply(request.version)
        return Done(self._log.applied)

    async def apply(self, version: int) -> None:
        """Returns when the change is durable here, or isn't pending any more. Raises why it can't be done."""
        pending = self._log.catalog.pending.get(version)
        if pending is None:
            return
        key = (pending.table_id, version)
        task = self._applying.get(key)
        if task is None:
            task = self._applying[key] = self._loop.create_task(self._apply(pending))
            task.add_done_callback(lambda task: self._applied(key, task))
        # Whoever asked may have given up: it goes on, and the next one to ask hears how it ended.
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise AdminShutdown("the instance is stopping") from None
            raise

    def _applied(self, key: tuple[TableId, int], task: asyncio.Task[None]) -> None:
        del self._applying[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more

    async def _apply(self, pending: Pending) -> None:
        before, becomes = self._forms(pending)
        if becomes is None or not isinstance(becomes.distribution, Sharded):
            return  # DROP takes effect when it is certain; global tables change by the log itself
        if not self._is_master(becomes.distribution.tier):
            raise RetryableError("this instance is no master of the table's tier")
        if self._versions.get(becomes.id) == becomes.version:
            return
        if becomes.id in self.behind:
            raise _behind(becomes)
        await write(
            self._writer, _Work(lambda connection: table_versions.apply_change(connection, before, becomes))
        )
        self._versions[becomes.id] = becomes.version

    def _forms(self, pending: Pending) -> tuple[Table | None, Table | None]:
        """The table as it was, and as it becomes."""
        schema = self._log.catalog.schema
        return schema.tables_by_id.get(pending.table_id), after(schema, pending.change, pending.version)

    # --- dropping --------------------------------------------------------------------------------

    async def _drop(self, table: Table, *, forget: bool) -> None:
        def put_away(connection: apsw.Connection) -> str | None:
            if forget:
                table_versions.forget(connection, table.id, file=table.file)
            return put_aside(connection, table.physical, schema=table.file)

        try:
            # Behind all writes that were submitted while a statement could still name it.
            if not table.is_sharded:
                await write(self._writer, Turn())
                await self._log.tidy()
                return
            name = await write(self._writer, _Work(put_away))
            if forget:
                self._versions.pop(table.id, None)
            if name is not None:
                Dropping(self._writer, name, schema=table.file).start()
        except ShoalError as error:
            # It stays as garbage until the next start, which drops what nothing names.
            _log.warning("dropping %s failed: %s", table.physical, error.message)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """For what nobody waits for."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _behind(table: Table) -> RetryableError:
    return RetryableError(
        f"table {table.name} is being brought up to date on this instance",
        detail="Nothing has happened. The statement can be sent again.",
    )
