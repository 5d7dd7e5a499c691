"""Executing a portal: where its program runs, waiting for it, and the answer's bytes.

Here: Executing, one per session: point reads at once, reads in batches from a reader thread, writes through
the writer, commands, and the chain of writes that a client pipelines.
Not here: messages and phases (session.py), what runs on the other threads (execute.py, storage/).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shoal.catalog.schema import Table
from shoal.errors import (
    AdminShutdown,
    Fault,
    InFailedTransaction,
    ObjectNotInPrerequisiteState,
    OutcomeUnknown,
    QueryCanceled,
    RetryableError,
    ShoalError,
)
from shoal.node.commands import Answer, Commands
from shoal.node.execute import (
    Control,
    ManyWork,
    ProgramWork,
    SchemaChanged,
    Skipped,
    Written,
    canceled_by_timeout,
    canceled_by_user,
    dml_on_global,
    statement_facts,
    write,
)
from shoal.node.portals import Portal
from shoal.node.statements import ManyRows, Prepared, ResultShape, refuse_unless_allowed
from shoal.pgwire.messages import EMPTY_QUERY_RESPONSE, PORTAL_SUSPENDED, command_complete
from shoal.sql import ast
from shoal.sql.plan import Const, Options, Param
from shoal.storage.limits import NO_LIMITS, Limits
from shoal.storage.readers import Batch
from shoal.storage.writer import Outcome
from shoal.types.values import Stored

if TYPE_CHECKING:
    from shoal.node.session import Session, Wire

# What one turn of a reader thread brings: enough to be worth the turn, little enough to hold.
_BATCH_BYTES: Final = 256 * 1024
# A client that pipelines writes need not wait for each: so many may be under way. They are one chain: after
# one that fails, the rest is not run.
_PENDING_MAX: Final = 512

# So long a write waits for a schema change of its table.
_OPERABLE_SECONDS: Final = 30.0

_NO_FACTS: Final[Mapping[Any, Any]] = {}


@dataclass(slots=True)
class _PendingWrite:
    portal: Portal
    work: ProgramWork
    outcome: Outcome[Written]
    behind: list[bytes]  # answers to messages after it, which may be sent once it has succeeded
    max_rows: int


class Executing:
    def __init__(self, session: Session, wire: Wire) -> None:
        self._session = session
        self._node = session.node
        self._wire = wire
        self._metrics = session.node.metrics
        self._commands = Commands(session, self)
        self.pending: deque[_PendingWrite] = deque()
        self._reading: Portal | None = None
        self._max_rows = 0
        self._last = False
        self._work: Control | None = None  # of a write that a task waits for
        self._stoppable: asyncio.Task[object] | None = None
        self._stopped_by: ShoalError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resume_on_drain: Callable[[], None] | None = None

    def ended(self) -> None:
        """What the session waited for has been answered."""
        assert not self.pending
        self._work = None
        self._reading = None
        self._stopped_by = None
        self._stop_timer()

    def cancel(self, error: ShoalError | None = None) -> None:
        """CancelRequest. What can't be stopped any more goes its way, and is answered as it went."""
        error = error or canceled_by_user()
        if self._reading is not None and self._reading.cursor is not None:
            self._reading.cursor.cancel(error)
        elif self._work is not None:
            self._work.cancel(error)
        if self._stoppable is not None and self._stopped_by is None:
            self._stopped_by = error
            self._stoppable.cancel()
        for pending in self.pending:
            pending.work.control.cancel(error)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """What the session's task waits for meanwhile can be left alone, at any moment."""
        self._stoppable = asyncio.current_task()
        try:
            yield
        finally:
            self._stoppable = None

    @property
    def stopped_by(self) -> str | None:
        """What stopped the statement, in words, if something did."""
        return None if self._stopped_by is None else self._stopped_by.message

    def stopped(self) -> ShoalError:
        """Why the session's task was stopped."""
        return self._stopped_by or AdminShutdown("terminating connection due to administrator command")

    def start_timer(self) -> None:
        """statement_timeout, of what isn't over at once."""
        timeout_ms = self._session.settings.statement_timeout_ms
        if timeout_ms:
            self._timer = self._node.loop.call_later(timeout_ms / 1000, self.cancel, canceled_by_timeout())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wait_until_drained(self, go_on: Callable[[], None]) -> None:
        """Until the client has read what is there for it."""
        self._session.wait()
        self._resume_on_drain = go_on

    def on_drained(self) -> None:
        """The client has read what was buffered."""
        go_on, self._resume_on_drain = self._resume_on_drain, None
        if go_on is not None:
            go_on()

    def close(self) -> None:
        self._resume_on_drain = None
        self._stop_timer()
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def execute(self, portal: Portal, max_rows: int, describe: bool = False, last: bool = False) -> None:
        """last: the portal is gone after it, whatever max_rows leaves."""
        self._last = last
        session = self._session
        prepared = portal.prepared
        if portal.done or portal.cursor is not None or portal.rows is not None:
            if session.block.status == "E":
                raise InFailedTransaction
            if prepared.catalog is not self._node.log.catalog:
                # It reads on as it began, but not for who may not any more.
                refuse_unless_allowed(prepared, self._node.log.catalog.rights)
            self._continue(portal, max_rows)
            return
        self._metrics.statements += 1
        if prepared.catalog is not self._node.log.catalog:
            # Something has changed since Bind.
            portal.prepared = prepared = self._node.statements.current(prepared, session.settings)
        program = prepared.program
        if program is None:
            self._command(portal, max_rows, describe)
            return
        block = session.block
        if block.status != "I" or (program.writes is not None and session.settings.read_only):
            block.enter(
                writes=prepared.tag if program.writes is not None else None,
                session_read_only=session.settings.read_only,
            )
        if describe and prepared.types:
            session.out.append(portal.shape.description)
        if program.writes is not None:
            self._write(portal, max_rows)
            return
        if prepared.is_point_read:
            portal.done = True
            session.out.append(self.point_read(prepared, portal.values, portal.literals, portal.shape))
            return
        values = self._values(portal)
        portal.cursor = self._node.readers.open(
            prepared.sql, values, self._limits(program.options, portal.values)
        )
        self._read(portal, max_rows)

    def point_read(
        self,
        prepared: Prepared,
        parameters: Sequence[Stored],
        literals: Sequence[str] | None,
        shape: ResultShape,
    ) -> bytes:
        """DataRow and CommandComplete, at once."""
        metrics = self._metrics
        metrics.point_reads += 1
        rows = self._node.point_reader.rows(prepared.sql, self._fill(prepared, parameters, literals))
        if len(rows) == 1:
            metrics.rows += 1
            return shape.encode_row(rows[0]) + _SELECT_ONE
        metrics.rows += len(rows)
        return shape.encode_rows(rows) + command_complete(f"SELECT {len(rows)}")

    def _values(self, portal: Portal) -> Sequence[Stored]:
        return self._fill(portal.prepared, portal.values, portal.literals)

    def _fill(
        self, prepared: Prepared, parameters: Sequence[Stored], literals: Sequence[str] | None
    ) -> Sequence[Stored]:
        """SQLite's parameters."""
        fill = prepared.fill
        assert fill is not None
        if not prepared.facts_needed:
            return fill(parameters, literals, _NO_FACTS)
        session = self._session
        facts = statement_facts(session.settings.zone, session.facts)
        return fill(parameters, literals, facts)

    def _limits(self, options: Options, parameters: Sequence[Stored]) -> Limits:
        """The nearest that was said: OPTION, then the session, then ALTER SYSTEM. Not said: no limit."""
        settings, cluster = self._session.settings, self._node.cluster_settings
        opcodes = _option(options.vdbe_opcode_max, parameters)
        if opcodes is None:
            opcodes = settings.opcode_max if settings.opcode_max is not None else cluster.sql_vdbe_opcode_max
        rows = _option(options.motion_row_max, parameters)
        if rows is None:
            rows = settings.row_max if settings.row_max is not None else cluster.sql_motion_row_max
        return Limits(opcodes=opcodes, rows=rows) if opcodes or rows else NO_LIMITS

    def _continue(self, portal: Portal, max_rows: int) -> None:
        """Execute on a portal that has been executed before."""
        session = self._session
        if portal.rows is not None:
            self._send_rows(portal, max_rows)
        elif portal.cursor is not None:
            self._read(portal, max_rows)
        elif portal.prepared.types and portal.prepared.tag == "SELECT":
            session.out.append(command_complete("SELECT 0"))
        else:
            raise ObjectNotInPrerequisiteState(f'portal "{portal.name}" cannot be run')

    # --- reads on a reader thread ----------------------------------------------------------------

    def _read(self, portal: Portal, max_rows: int) -> None:
        session = self._session
        assert portal.cursor is not None
        portal.count = 0
        self._reading = portal
        self._max_rows = max_rows
        self.start_timer()
        session.wait()
        self._fetch()

    def _fetch(self) -> None:
        portal = self._reading
        assert portal is not None and portal.cursor is not None
        left = self._max_rows - portal.count if self._max_rows else 0
        try:
            portal.cursor.fetch(_BATCH_BYTES, left, portal.shape.encode_rows, self._on_batch, last=self._last)
        except ShoalError as error:  # the instance stops
            self._node.loop.call_soon(self._read_failed, portal, error)

    def _on_batch(self, batch: Batch) -> None:
        session = self._session
        portal = self._reading
        if portal is None:
            return  # closed since the batch was on its way
        if batch.error is None and portal.prepared.catalog is not self._node.log.catalog:
            # A right that went while it read, or waited for its thread: what comes from now on is not for this user.
            try:
                refuse_unless_allowed(portal.prepared, self._node.log.catalog.rights)
            except ShoalError as error:
                self._read_failed(portal, error)
                return
        portal.count += batch.row_count
        portal.at += batch.row_count
        self._metrics.rows += batch.row_count
        if batch.data:
            self._wire.write(batch.data)
        if batch.error is not None:
            self._read_failed(portal, batch.error)
        elif batch.finished:
            self._end_read(portal)
            session.out.append(command_complete(f"SELECT {portal.count}"))
            session.go_on()
        elif self._max_rows and portal.count >= self._max_rows:
            session.out.append(PORTAL_SUSPENDED)
            session.go_on()
        elif self._wire.is_full():
            self._resume_on_drain = self._fetch
        else:
            self._fetch()

    def _read_failed(self, portal: Portal, error: ShoalError) -> None:
        if portal is not self._reading:
            return  # closed meanwhile
        self._end_read(portal)
        try:
            if (
                portal.at == 0
                and not isinstance(error, QueryCanceled | AdminShutdown)
                and self._read_again(portal)
            ):
                return
        except ShoalError as newer:
            error = newer
        self._session.fail(error)
        self._session.go_on()

    def _read_again(self, portal: Portal) -> bool:
        """A schema change that came between the statement and its thread may have taken its table away."""
        statements = self._node.statements
        if statements.knows_its_tables(portal.prepared):
            return False
        portal.prepared = current = statements.current(portal.prepared, self._session.settings)
        portal.done = False
        assert current.program is not None
        limits = self._limits(current.program.options, portal.values)
        portal.cursor = self._node.readers.open(current.sql, self._values(portal), limits)
        self._fetch()
        return True

    def _end_read(self, portal: Portal) -> None:
        portal.close()
        portal.done = True

    # --- writes ----------------------------------------------------------------------------------

    def _write(self, portal: Portal, max_rows: int) -> None:
        session = self._session
        program = portal.prepared.program
        assert program is not None and program.writes is not None
        table = self._node.catalog.schema.tables_by_id.get(program.writes.id)
        if (
            table is None
            or table.version != program.writes.version
            or not (table.operable and table.is_sharded)
            or table.id in self._node.own_tables.behind
        ):
            self._max_rows = max_rows
            session.run_task(self._write_later(portal))
            return
        # Behind writes that aren't answered yet, it runs only if they all succeed.
        previous = self.pending[-1].outcome if self.pending else None
        control = Control(
            self._node.guard,
            session.settings.statement_timeout_ms,
            self._limits(program.options, portal.values),
        )
        work = ProgramWork(program, self._values(portal), control, previous)
        outcome = self._node.writer.submit(work, self._on_written)
        portal.done = True
        behind: list[bytes] = []
        session.out = behind
        self.pending.append(_PendingWrite(portal, work, outcome, behind, max_rows))
        if session.is_simple or len(self.pending) >= _PENDING_MAX:
            session.wait()

    def can_chain(self, portal: Portal) -> bool:
        """May it be submitted while writes before it are not answered?"""
        program = portal.prepared.program
        if program is None or program.writes is None or portal.done or portal.rows is not None:
            return False
        table = self._node.catalog.schema.tables_by_id.get(program.writes.id)
        return (
            table is not None
            and table.is_sharded
            and table.operable
            and table.version == program.writes.version
            and table.id not in self._node.own_tables.behind
        )

    def _on_written(self, outcome: Outcome[Written]) -> None:
        """The first of the pending writes has ended: they end in the order in which they were submitted."""
        session = self._session
        pending = self.pending.popleft()
        pending.work.previous = None  # so that a long chain isn't kept
        behind, session.out = session.out, session.base
        error = outcome.error
        if isinstance(error, Skipped):
            pass  # the client hears of the one that failed; of the rest it knows
        elif error is not None:
            if isinstance(error, Fault):
                error = OutcomeUnknown(f"the write may have happened: {error}")
            if isinstance(error, OutcomeUnknown):
                session.wrote()
            session.fail(error)
        else:
            self._max_rows = pending.max_rows
            self._written(pending.portal, outcome.result())
            session.base += pending.behind
        if self.pending:
            session.out = behind
            session.flush()
        else:
            session.go_on()

    def _written(self, portal: Portal, written: Written) -> None:
        session = self._session
        portal.count = written.count
        if written.count:
            session.wrote()
        if written.rows is not None:
            portal.done = False
            portal.rows = written.rows
            self._send_rows(portal, self._max_rows)
        else:
            portal.done = True
            session.out.append(command_complete(_dml_tag(portal.prepared.tag, written.count)))

    async def _write_later(self, portal: Portal) -> None:
        """To a global table; or to a table that is being changed: against what the change leaves of it."""
        session, node = self._session, self._node
        while True:
            portal.prepared = prepared = node.statements.current(portal.prepared, session.settings)
            program = prepared.program
            assert program is not None and program.writes is not None
            table = node.catalog.schema.tables_by_id[program.writes.id]
            if await self._has_waited_for(table):
                continue
            values, timeout_ms = self._values(portal), session.settings.statement_timeout_ms
            limits = self._limits(program.options, portal.values)
            if table.is_sharded:
                self._work = control = Control(node.guard, timeout_ms, limits)
                written = await write(node.writer, ProgramWork(program, values, control))
            else:
                node.check_global_write(table)
                self._work = control = Control(node.catalog_guard, timeout_ms, limits)
                try:
                    with self.stoppable():
                        written = await dml_on_global(node.log, prepared, values, control)
                except SchemaChanged:
                    continue
                except OutcomeUnknown as error:
                    error.message = self.stopped_by or error.message
                    raise
            self._written(portal, written)
            return

    async def _has_waited_for(self, table: Table) -> bool:
        """False: it may be written to. While a schema change of it is under way it is waited for, but not for ever: a change
        may wait for an instance that is away."""
        node = self._node
        catalog, behind = node.log.catalog, node.own_tables.behind

        def is_blocked() -> bool:
            nonlocal catalog
            catalog = node.log.catalog
            now = catalog.schema.tables_by_id.get(table.id)
            return now is not None and (not now.operable or table.id in behind)

        if not is_blocked():
            return False
        try:
            with self.stoppable():
                async with asyncio.timeout(_OPERABLE_SECONDS * node.config.timing_scale):
                    while is_blocked():
                        if table.id in behind:
                            await node.own_tables.until_up_to_date(table.id)
                        else:
                            await node.log.next_change()
        except TimeoutError:
            pending = next((each for each in catalog.pending.values() if each.table_id == table.id), None)
            raise RetryableError(
                f"table {table.name} is being changed",
                detail=None if pending is None else node.schema_changes.told(pending),
            ) from None
        return True

    # --- answers that are there as a whole -------------------------------------------------------

    def _command(self, portal: Portal, max_rows: int, describe: bool) -> None:
        session = self._session
        statement = portal.prepared.statement
        if statement is None:
            session.send(EMPTY_QUERY_RESPONSE)
            return
        if not isinstance(statement, ast.Commit | ast.Rollback | ast.RollbackTo):
            session.block.enter(
                writes=_WRITING_COMMANDS.get(type(statement)), session_read_only=session.settings.read_only
            )
        answer = self._commands.run(portal, statement)
        if isinstance(answer, Answer):
            self._answer(portal, answer, max_rows, describe)
        else:
            session.run_task(self._answer_later(portal, answer, max_rows, describe))

    async def _answer_later(
        self, portal: Portal, work: Coroutine[Any, Any, Answer], max_rows: int, describe: bool
    ) -> None:
        self._answer(portal, await work, max_rows, describe)

    def _answer(self, portal: Portal, answer: Answer, max_rows: int, describe: bool) -> None:
        session = self._session
        if answer.rows is None:
            portal.done = True
            session.out.append(command_complete(answer.tag))
            return
        if describe:
            session.out.append(portal.shape.description)
        portal.rows = answer.rows
        self._send_rows(portal, max_rows)

    def _send_rows(self, portal: Portal, max_rows: int) -> None:
        session = self._session
        rows = portal.rows
        assert rows is not None
        end = min(portal.at + max_rows, len(rows)) if max_rows else len(rows)
        part = rows[portal.at : end]
        portal.at = end
        self._metrics.rows += len(part)
        session.out.append(portal.shape.encode_rows(part))
        if end < len(rows):
            session.out.append(PORTAL_SUSPENDED)
            return
        portal.rows = None
        portal.done = True
        tag = portal.prepared.tag
        count = portal.count if tag in _DML_TAGS else len(rows)
        session.out.append(command_complete(_dml_tag(tag, count)))

    # --- long INSERTs ----------------------------------------------------------------------------

    async def insert_many(self, many: ManyRows) -> bool:
        """False: a schema change has made it another statement, and nothing has happened."""
        session, node = self._session, self._node
        session.block.enter(writes="INSERT", session_read_only=session.settings.read_only)
        while True:
            if many.is_current(node.catalog.schema) is None:
                return False
            if not await self._has_waited_for(many.table):
                break
        for privilege, table in many.needs:
            node.log.catalog.rights.refuse(session.user_id, privilege, table)
        self._metrics.statements += 1
        limits = self._limits(_NO_OPTIONS, ())
        self._work = control = Control(node.guard, session.settings.statement_timeout_ms, limits)
        written = await write(node.writer, ManyWork(many, control))
        session.wrote()
        session.send(command_complete(f"INSERT 0 {written.count}"))
        return True


_NO_OPTIONS: Final = Options()
_SELECT_ONE: Final = command_complete("SELECT 1")
_DML_TAGS: Final = frozenset(("INSERT", "UPDATE", "DELETE"))


def _dml_tag(tag: str, count: int) -> str:
    return f"INSERT 0 {count}" if tag == "INSERT" else tag if tag == "SHOW" else f"{tag} {count}"


def _option(option: object, parameters: Sequence[Stored]) -> int | None:
    """The value of an OPTION: a constant or a parameter."""
    if isinstance(option, Param):
        value = parameters[option.number - 1]
        return value if isinstance(value, int) else None
    if isinstance(option, Const):
        return option.value if isinstance(option.value, int) else None
    return None


# As an error in a read-only transaction names them.
_WRITING_COMMANDS: Final[Mapping[type, str]] = {
    ast.CreateTable: "CREATE TABLE",
    ast.AlterTable: "ALTER TABLE",
    ast.DropTable: "DROP TABLE",
    ast.Truncate: "TRUNCATE TABLE",
    ast.CreateIndex: "CREATE INDEX",
    ast.DropIndex: "DROP INDEX",
    ast.RenameIndex: "RENAME INDEX",
    ast.CreateProcedure: "CREATE PROCEDURE",
    ast.RenameProcedure: "ALTER PROCEDURE",
    ast.DropProcedure: "DROP PROCEDURE",
    ast.AlterSystem: "ALTER SYSTEM",
    ast.ExpelInstance: "ALTER SYSTEM",
    ast.AbortSchemaChange: "ALTER SYSTEM",
    ast.CreateUser: "CREATE ROLE",
    ast.AlterUserPassword: "ALTER ROLE",
    ast.AlterUserLogin: "ALTER ROLE",
    ast.RenameUser: "ALTER ROLE",
    ast.DropUser: "DROP ROLE",
    ast.CreateRole: "CREATE ROLE",
    ast.DropRole: "DROP ROLE",
    ast.Grant: "GRANT",
    ast.Revoke: "REVOKE",
}
