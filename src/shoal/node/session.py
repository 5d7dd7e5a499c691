"""A client's session, from its first ReadyForQuery to its last message.

Here: Session: what each message does, the answers in their order, and waiting for what takes a while.
Not here: frames and payloads (pgwire/), logging in (login.py), the socket (pg_server.py), the commands that
are no queries (commands.py), transaction blocks (block.py).

The hot path is synchronous: a chunk arrives, pump() takes its frames one by one, each handler appends the
bytes of its answers, and all are written at once. A point read needs nothing else. What has to wait (a read
on a reader thread, a write, a schema change) makes the session busy: the frames stay where they are until
the answer is there, then pump() goes on. There is no task and no future per message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from shoal.errors import (
    DuplicateCursor,
    DuplicateStatement,
    Fault,
    FeatureNotSupported,
    InternalError,
    ObjectNotInPrerequisiteState,
    OutcomeUnknown,
    ProtocolViolation,
    QueryCanceled,
    RetryableError,
    ShoalError,
    UndefinedPortal,
    UndefinedStatement,
)
from shoal.node.block import Block
from shoal.node.commands import Answer, Commands
from shoal.node.execute import ManyWork, ProgramWork, Skipped, Written, dml_on_global, session_facts
from shoal.node.portals import Portal
from shoal.node.settings import SessionSettings
from shoal.node.statements import LONG_TEXT, ManyRows, Prepared
from shoal.pgwire.codec import Frames
from shoal.pgwire.messages import (
    BIND_COMPLETE,
    CLOSE_COMPLETE,
    EMPTY_QUERY_RESPONSE,
    PARSE_COMPLETE,
    PORTAL_SUSPENDED,
    READY_FOR_QUERY,
    Bind,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    ErrorResponse,
    Execute,
    Flush,
    FunctionCall,
    NoticeResponse,
    ParameterStatus,
    Parse,
    Query,
    Sync,
    Terminate,
    command_complete,
    parameter_count_violated,
)
from shoal.pgwire.phases import EXTENDED, IDLE, SKIPPING, STEPS, Phase, frontend_type
from shoal.sql import ast
from shoal.sql.parser import Parsed
from shoal.sql.plan import Const, Param
from shoal.storage.readers import Batch, ReadLimits
from shoal.storage.writer import Outcome
from shoal.types.values import Stored

if TYPE_CHECKING:
    from shoal.node.instance import Node

_log: Final = logging.getLogger(__name__)

# What one turn of a reader thread brings: enough to be worth the turn, little enough to hold.
_BATCH_BYTES: Final = 256 * 1024

_SYNC: Final = Sync.kind
_NO_FACTS: Final[Mapping[Any, Any]] = {}


# A client that pipelines writes need not wait for each: so many may be under way. They are one chain: after
# one that fails, the rest is not run.
_PENDING_MAX: Final = 512
_CHAINED: Final = frozenset((Bind.kind, Describe.kind, Execute.kind, Flush.kind))


@dataclass(slots=True)
class _PendingWrite:
    portal: Portal
    work: ProgramWork
    outcome: Outcome[Written]
    behind: list[bytes]  # answers to messages after it, which may be sent once it has succeeded
    max_rows: int


class Wire(Protocol):
    """The session's side of its socket."""

    def write(self, data: bytes) -> None: ...
    def is_full(self) -> bool:
        """The client doesn't read as fast as we write: on_drained() of the session will be called."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Session:
    """All methods run on the event loop."""

    def __init__(
        self, node: Node, wire: Wire, frames: Frames, user: str, user_id: int, settings: SessionSettings
    ) -> None:
        self.node = node
        self.user = user
        self.user_id = user_id
        self.settings = settings
        self.block = Block()
        self.statements: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}
        self._wire = wire
        self._frames = frames
        self._commands = Commands(self)
        self._base: list[bytes] = []  # answers that can be sent
        self._out = self._base  # where the next answer goes: behind that of the last pending write
        self._pending: deque[_PendingWrite] = deque()
        self._held: tuple[int, bytes] | None = None
        self._phase: Phase = IDLE
        self._busy = False
        self._closed = False
        self._script: deque[Parsed] = deque()  # what is left of a simple query
        self._script_text = ""
        self._simple = False  # a simple query runs: its end is ReadyForQuery
        self._wrote_before = False  # a statement since the last ReadyForQuery has written
        self._reading: Portal | None = None
        self._max_rows = 0
        self._work: ProgramWork | ManyWork | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._alone = False
        self._ahead: Prepared | None = None  # of the script's first statement
        self._task: asyncio.Task[None] | None = None
        self._resume_on_drain: Callable[[], None] | None = None
        self._metrics = node.metrics
        self._handlers: dict[int, Callable[[bytes], None]] = {
            Query.kind: self._on_query,
            Parse.kind: self._on_parse,
            Bind.kind: self._on_bind,
            Describe.kind: self._on_describe,
            Execute.kind: self._on_execute,
            Close.kind: self._on_close,
            Flush.kind: self._on_flush,
            Sync.kind: self._on_sync,
            Terminate.kind: self._on_terminate,
            FunctionCall.kind: self._on_function_call,
            CopyData.kind: self._on_copy,
            CopyDone.kind: self._on_copy,
            CopyFail.kind: self._on_copy,
        }

    # --- the loop over frames --------------------------------------------------------------------

    def pump(self) -> None:
        """Takes the frames that have arrived, as far as it can without waiting."""
        if self._must_wait():
            return
        try:
            for kind, payload in self._frames:
                if self._pending and kind not in _CHAINED:
                    # Its answer may depend on what the writes before it did.
                    self._hold(kind, payload)
                    return
                self._take(kind, payload)
                if self._must_wait():
                    break
        except ShoalError as error:  # of the frames themselves: nobody knows where the next one begins
            self._out.append(ErrorResponse.of(error, fatal=True).encode())
            self._flush()
            self._end()
            return
        self._flush()

    def _take(self, kind: int, payload: bytes) -> None:
        following = STEPS[self._phase][kind]
        if following is None:
            frontend_type(self._phase, kind)  # says what is wrong
            raise ProtocolViolation(f"message of type {chr(kind)!r} out of turn")
        was, self._phase = self._phase, following
        if was is SKIPPING and following is SKIPPING:
            return
        try:
            self._handlers[kind](payload)
        except ShoalError as error:
            self.fail(error)
        except Exception as error:
            _log.exception("a bug met by a client's message")
            self.fail(InternalError(f"internal error: {error!r}"))

    def _hold(self, kind: int, payload: bytes) -> None:
        """Keeps a message until the writes before it are answered."""
        self._held = (kind, payload)
        self._busy = True
        self._flush()

    def _must_wait(self) -> bool:
        return self._busy or self._closed

    def _flush(self) -> None:
        out = self._base
        if out:
            self._wire.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def send(self, data: bytes) -> None:
        """Appends to the answer; it leaves when the session has nothing more to do, or waits."""
        self._out.append(data)

    def notice(self, notice: NoticeResponse | None) -> None:
        if notice is not None:
            self._out.append(notice.encode())

    def report(self, name: str) -> None:
        """Tells the client a setting that it follows."""
        self._out.append(ParameterStatus(name, self.settings[name]).encode())

    def fail(self, error: ShoalError) -> None:
        """The statement at hand failed. The session goes on."""
        self._metrics.errors += 1
        self.block.fail()
        if self._wrote_before and error.detail is None and self.block.status == "I":
            # PostgreSQL would have undone them: they were one transaction there.
            error.detail = "The statements before this one were applied, and stand."
        self._out.append(ErrorResponse.of(error).encode())
        if self._simple:
            self._script.clear()
            self._end_simple()
        elif self._phase is EXTENDED:
            self._phase = SKIPPING

    # --- waiting ---------------------------------------------------------------------------------

    def _wait(self) -> None:
        self._busy = True
        self._flush()

    def _go_on(self) -> None:
        """What the session waited for is there, and answered."""
        self._busy = False
        self._work = None
        self._reading = None
        assert not self._pending
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            return
        if self._simple:
            try:
                self._next_of_script()
            except ShoalError as error:
                self.fail(error)
            except Exception as error:
                _log.exception("a bug met by a client's query")
                self.fail(InternalError(f"internal error: {error!r}"))
        held, self._held = self._held, None
        if held is not None:
            try:
                self._take(*held)
            except ShoalError as error:
                self._out.append(ErrorResponse.of(error, fatal=True).encode())
                self._flush()
                self._end()
                return
        self.pump()
        if not self._busy:
            self._wire.resume()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """For what takes several steps and is rare: schema changes, DML on global tables."""
        self._wait()
        self._task = self.node.loop.create_task(work)
        self._task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = QueryCanceled("canceling statement") if task.cancelled() else task.exception()
        if isinstance(error, Fault):
            error = OutcomeUnknown(f"the outcome is unknown: {error}")
        if isinstance(error, ShoalError):
            if isinstance(error, OutcomeUnknown):
                self.wrote()
            self.fail(error)
        elif error is not None:
            _log.error("a bug met by a client's statement", exc_info=error)
            self.fail(InternalError(f"internal error: {error!r}"))
        self._go_on()

    def cancel(self) -> None:
        """CancelRequest. What can't be stopped any more goes its way, and is answered as it went."""
        if self._reading is not None and self._reading.cursor is not None:
            self._reading.cursor.cancel()
        elif self._work is not None:
            self._work.cancel()
        for pending in self._pending:
            pending.work.cancel()

    def on_drained(self) -> None:
        """The client has read what was buffered."""
        go_on, self._resume_on_drain = self._resume_on_drain, None
        if go_on is not None:
            go_on()

    def close(self) -> None:
        """The connection is gone, or goes now."""
        self._closed = True
        self._resume_on_drain = None
        if self._reading is not None:
            self._reading.close()
        self._close_portals()
        self.drop_statements()

    def _end(self) -> None:
        self.close()
        self._wire.close()

    @property
    def is_read_only(self) -> bool:
        return self.block.is_read_only if self.block.status != "I" else self.settings.read_only

    @property
    def is_busy(self) -> bool:
        return self._busy

    # --- simple protocol -------------------------------------------------------------------------

    def _on_query(self, payload: bytes) -> None:
        text = Query.decode(payload).text
        self._simple = True
        self._wrote_before = False
        self._drop_portal("")
        self._drop_statement("")
        statements = self.node.statements
        known = statements.simple(text, self.settings.zone, self.user)
        if known is not None:
            prepared, literals = known
            self._start_simple(prepared, literals)
        elif len(text) > LONG_TEXT:
            self.run_task(self._query_later(text))
        else:
            self._start_script(text, statements.script(text))
            self._next_of_script()

    def _start_script(self, text: str, script: Sequence[Parsed]) -> None:
        self._script = deque(script)
        self._script_text = text
        self._alone = len(script) == 1
        if not script:
            self.send(EMPTY_QUERY_RESPONSE)

    async def _query_later(self, text: str) -> None:
        """Parsing a long text takes longer than others should wait: a thread does it."""
        statements, zone, user = self.node.statements, self.settings.zone, self.user
        run = self.node.loop.run_in_executor
        many = await run(None, statements.many_rows, text, zone, user)
        if many is not None:
            await self._insert_many(many)
            return
        script = await run(None, statements.script, text)
        self._start_script(text, script)
        if self._alone:
            self._ahead = await run(None, statements.prepare_simple, script[0], text, True, zone, user)

    async def _insert_many(self, many: ManyRows) -> None:
        node = self.node
        self.block.enter(writes="INSERT", session_read_only=self.settings.read_only)
        self._metrics.statements += 1
        while not (current := many.is_current(node.catalog.schema)):
            if current is None:
                raise RetryableError("the table has changed while the statement was read")
            await node.log.next_change()
        self._work = work = ManyWork(many, node.guard, self.settings.statement_timeout_ms)
        written = await node.write(work)
        self.wrote()
        self.send(command_complete(f"INSERT 0 {written.count}"))

    def _next_of_script(self) -> None:
        """Runs on until something has to be waited for, or the script ends."""
        while self._script and not self._busy:
            parsed = self._script.popleft()
            prepared, self._ahead = self._ahead, None
            if prepared is None:
                prepared = self.node.statements.prepare_simple(
                    parsed, self._script_text, self._alone, self.settings.zone, self.user
                )
            self._start_simple(prepared, None, in_script=True)
        if not self._busy and self._simple and not self._script:
            self._end_simple()

    def _start_simple(
        self, prepared: Prepared, literals: Sequence[str] | None, in_script: bool = False
    ) -> None:
        if prepared.parameter_types:
            count = len(prepared.parameter_types)
            raise ProtocolViolation(
                f'bind message supplies 0 parameters, but prepared statement "" requires {count}'
            )
        portal = Portal("", prepared, (), literals, (), prepared.shape(()))
        self._execute(portal, 0, describe=True)
        if not in_script and not self._busy:
            self._end_simple()

    def _end_simple(self) -> None:
        self._simple = False
        self._wrote_before = False
        self.send(READY_FOR_QUERY[self.block.status])

    # --- extended protocol -----------------------------------------------------------------------

    def _on_parse(self, payload: bytes) -> None:
        parse = Parse.decode(payload)
        name = parse.statement
        if name:
            if name in self.statements:
                raise DuplicateStatement(f'prepared statement "{name}" already exists')
        else:
            self._drop_statement("")
        if len(parse.text) > LONG_TEXT:
            self.run_task(self._parse_later(parse))
        else:
            self._parsed(name, self._prepare(parse))

    def _prepare(self, parse: Parse) -> Prepared:
        return self.node.statements.prepare(parse.text, parse.parameter_types, self.settings.zone, self.user)

    async def _parse_later(self, parse: Parse) -> None:
        self._parsed(parse.statement, await self.node.loop.run_in_executor(None, self._prepare, parse))

    def _parsed(self, name: str, prepared: Prepared) -> None:
        if self.block.status == "E" and not _ends_block(prepared):
            self.block.enter(writes=None, session_read_only=False)
        self.node.limits.open_statement()
        self.statements[name] = prepared
        self._out.append(PARSE_COMPLETE)

    def _on_bind(self, payload: bytes) -> None:
        bind = Bind.decode(payload)
        prepared = self.statements.get(bind.statement)
        if prepared is None:
            raise UndefinedStatement(_no_statement(bind.statement))
        current = self.node.statements.current(prepared, self.user)
        if current is not prepared:
            self.statements[bind.statement] = prepared = current
        raw = bind.parameters
        if len(raw) != len(prepared.parameter_oids):
            raise parameter_count_violated(bind, len(prepared.parameter_oids))
        decoders = prepared.decoders(bind.parameter_formats)
        values: Sequence[Stored]
        if len(raw) == 1:
            values = (None if raw[0] is None else decoders[0](raw[0]),)
        else:
            values = tuple(
                [
                    None if value is None else decode(value)
                    for decode, value in zip(decoders, raw, strict=True)
                ]
            )
        name = bind.portal
        existing = self.portals.get(name)
        if existing is not None:
            if name:
                raise DuplicateCursor(f'cursor "{name}" already exists')
            existing.close()
        else:
            self.node.limits.open_portal()
        formats = bind.result_formats
        self.portals[name] = Portal(name, prepared, values, None, formats, prepared.shape(formats))
        self._out.append(BIND_COMPLETE)

    def _on_describe(self, payload: bytes) -> None:
        describe = Describe.decode(payload)
        if describe.target == "portal":
            self._out.append(self._portal(describe.name).shape.description)
            return
        prepared = self.statements.get(describe.name)
        if prepared is None:
            raise UndefinedStatement(_no_statement(describe.name))
        self._out.append(prepared.parameter_description)
        self._out.append(prepared.shape(()).description)

    def _on_execute(self, payload: bytes) -> None:
        execute = Execute.decode(payload)
        portal = self._portal(execute.portal)
        if self._pending and not self._can_chain(portal):
            self._hold(Execute.kind, payload)
            return
        self._execute(portal, max(execute.max_rows, 0))

    def _on_close(self, payload: bytes) -> None:
        close = Close.decode(payload)
        if close.target == "portal":
            self._drop_portal(close.name)
        else:
            self._drop_statement(close.name)
        self._out.append(CLOSE_COMPLETE)

    def _on_flush(self, payload: bytes) -> None:
        Flush.decode(payload)

    def _on_sync(self, payload: bytes) -> None:
        if payload:
            Sync.decode(payload)
        if self.portals and self.block.status != "T":
            self._close_portals()
        self._wrote_before = False
        self._out.append(READY_FOR_QUERY[self.block.status])

    def _on_terminate(self, payload: bytes) -> None:
        self._flush()
        self._end()

    def _on_function_call(self, payload: bytes) -> None:
        self._simple = True  # it is answered like a simple query: an error, then ReadyForQuery
        FunctionCall.decode(payload)
        raise FeatureNotSupported("the function call protocol is not supported: use SELECT")

    def _on_copy(self, payload: bytes) -> None:
        """Sent before the client heard that its COPY was refused. Nobody waits for an answer."""

    # --- names -----------------------------------------------------------------------------------

    def _portal(self, name: str) -> Portal:
        portal = self.portals.get(name)
        if portal is None:
            raise UndefinedPortal(f'portal "{name}" does not exist' if name else "there is no unnamed portal")
        return portal

    def _drop_portal(self, name: str) -> None:
        portal = self.portals.pop(name, None)
        if portal is not None:
            self.node.limits.portals -= 1
            portal.close()

    def _close_portals(self) -> None:
        self.node.limits.portals -= len(self.portals)
        for portal in self.portals.values():
            portal.close()
        self.portals.clear()

    close_portals = _close_portals

    def _drop_statement(self, name: str) -> None:
        if self.statements.pop(name, None) is not None:
            self.node.limits.statements -= 1

    def drop_statement(self, name: str) -> None:
        """DEALLOCATE."""
        if name not in self.statements:
            raise UndefinedStatement(_no_statement(name))
        self._drop_statement(name)

    def drop_statements(self) -> None:
        self.node.limits.statements -= len(self.statements)
        self.statements.clear()

    # --- executing -------------------------------------------------------------------------------

    def wrote(self) -> None:
        """A statement has changed something, or may have."""
        self._wrote_before = True
        self.block.wrote = True

    def _execute(self, portal: Portal, max_rows: int, describe: bool = False) -> None:
        prepared = portal.prepared
        if portal.done or portal.cursor is not None or portal.rows is not None:
            self._continue(portal, max_rows)
            return
        self._metrics.statements += 1
        program = prepared.program
        if program is None:
            self._command(portal, max_rows, describe)
            return
        block = self.block
        if block.status != "I" or (program.writes is not None and self.settings.read_only):
            block.enter(
                writes=prepared.tag if program.writes is not None else None,
                session_read_only=self.settings.read_only,
            )
        if describe and prepared.types:
            self._out.append(portal.shape.description)
        if program.writes is not None:
            self._write(portal, max_rows)
            return
        values = self._values(portal)
        if prepared.is_point_read:
            self._metrics.point_reads += 1
            rows = self.node.point_reader.rows(prepared.sql, values)
            portal.done = True
            if len(rows) == 1:
                self._metrics.rows += 1
                self._out.append(portal.shape.encode_row(rows[0]))
                self._out.append(_SELECT_ONE)
            else:
                self._out.append(portal.shape.encode_rows(rows))
                self._out.append(command_complete(f"SELECT {len(rows)}"))
            return
        portal.cursor = self.node.readers.open(prepared.sql, values, self._limits(portal))
        self._read(portal, max_rows)

    def _values(self, portal: Portal) -> Sequence[Stored]:
        """SQLite's parameters."""
        prepared = portal.prepared
        assert prepared.fill is not None
        facts = _NO_FACTS
        if prepared.facts_needed:
            facts = session_facts(self.settings.zone, self.user, self.node.facts)
        return prepared.fill(portal.values, portal.literals, facts)

    def _limits(self, portal: Portal) -> ReadLimits:
        """The nearest that was said: OPTION, then the session, then ALTER SYSTEM. Not said: no limit."""
        program = portal.prepared.program
        assert program is not None
        options, settings, cluster = program.options, self.settings, self.node.cluster_settings
        opcodes = _option(options.vdbe_opcode_max, portal.values)
        if opcodes is None:
            opcodes = settings.opcode_max if settings.opcode_max is not None else cluster.sql_vdbe_opcode_max
        rows = _option(options.motion_row_max, portal.values)
        if rows is None:
            rows = settings.row_max if settings.row_max is not None else cluster.sql_motion_row_max
        return ReadLimits(opcodes=opcodes, rows=rows)

    def _continue(self, portal: Portal, max_rows: int) -> None:
        """Execute on a portal that has been executed before."""
        if portal.rows is not None:
            self._send_rows(portal, max_rows)
        elif portal.cursor is not None:
            self._read(portal, max_rows)
        elif portal.prepared.types and portal.prepared.tag == "SELECT":
            self._out.append(command_complete("SELECT 0"))
        else:
            raise ObjectNotInPrerequisiteState(f'portal "{portal.name}" cannot be run')

    # --- reads on a reader thread ----------------------------------------------------------------

    def _read(self, portal: Portal, max_rows: int) -> None:
        assert portal.cursor is not None
        portal.count = 0
        self._reading = portal
        self._max_rows = max_rows
        timeout_ms = self.settings.statement_timeout_ms
        if timeout_ms:
            error = QueryCanceled("canceling statement due to statement timeout")
            self._timer = self.node.loop.call_later(timeout_ms / 1000, portal.cursor.cancel, error)
        self._wait()
        self._fetch()

    def _fetch(self) -> None:
        portal = self._reading
        assert portal is not None and portal.cursor is not None
        left = self._max_rows - portal.count if self._max_rows else 0
        portal.cursor.fetch(_BATCH_BYTES, left, portal.shape.encode_rows, self._on_batch)

    def _on_batch(self, batch: Batch) -> None:
        portal = self._reading
        assert portal is not None  # a closed cursor calls nobody
        portal.count += batch.row_count
        self._metrics.rows += batch.row_count
        if batch.data:
            self._wire.write(batch.data)
        if batch.error is not None:
            self._end_read(portal)
            self.fail(batch.error)
            self._go_on()
        elif batch.finished:
            self._end_read(portal)
            self._out.append(command_complete(f"SELECT {portal.count}"))
            self._go_on()
        elif self._max_rows and portal.count >= self._max_rows:
            self._out.append(PORTAL_SUSPENDED)
            self._go_on()
        elif self._wire.is_full():
            self._resume_on_drain = self._fetch
        else:
            self._fetch()

    def _end_read(self, portal: Portal) -> None:
        portal.close()
        portal.done = True

    # --- writes ----------------------------------------------------------------------------------

    def _write(self, portal: Portal, max_rows: int) -> None:
        program = portal.prepared.program
        assert program is not None and program.writes is not None
        table = self.node.catalog.schema.tables_by_id.get(program.writes.id)
        if table is None or table.version != program.writes.version or not table.operable:
            # A schema change is under way: wait for its end, then run against what it leaves.
            self._max_rows = max_rows
            self.run_task(self._write_later(portal))
            return
        if not table.is_sharded:
            self._max_rows = max_rows
            self.node.check_global_write(table, self.user_id)
            self.run_task(self._write_global(portal))
            return
        # Behind writes that aren't answered yet, it runs only if they all succeed.
        previous = self._pending[-1].outcome if self._pending else None
        work = ProgramWork(
            program, self._values(portal), self.node.guard, self.settings.statement_timeout_ms, previous
        )
        outcome = self.node.writer.submit(work, self._on_written)
        portal.done = True
        self._out = []
        self._pending.append(_PendingWrite(portal, work, outcome, self._out, max_rows))
        if self._simple or len(self._pending) >= _PENDING_MAX:
            self._wait()

    def _can_chain(self, portal: Portal) -> bool:
        """May it be submitted while writes before it are not answered?"""
        program = portal.prepared.program
        if program is None or program.writes is None or portal.done or portal.rows is not None:
            return False
        table = self.node.catalog.schema.tables_by_id.get(program.writes.id)
        return (
            table is not None
            and table.is_sharded
            and table.operable
            and table.version == program.writes.version
        )

    def _on_written(self, outcome: Outcome[Written]) -> None:
        """The first of the pending writes has ended: they end in the order in which they were submitted."""
        pending = self._pending.popleft()
        pending.work.previous = None  # so that a long chain isn't kept
        behind, self._out = self._out, self._base
        error = outcome.error
        if isinstance(error, Skipped):
            pass  # the client hears of the one that failed; of the rest it knows
        elif error is not None:
            if isinstance(error, Fault):
                error = OutcomeUnknown(f"the write may have happened: {error}")
            if isinstance(error, OutcomeUnknown):
                self.wrote()
            self.fail(error)
        else:
            self._max_rows = pending.max_rows
            self._written(pending.portal, outcome.result())
            self._base += pending.behind
        if self._pending:
            self._out = behind
            self._flush()
        else:
            self._go_on()

    def _written(self, portal: Portal, written: Written) -> None:
        portal.count = written.count
        self.wrote()
        if written.rows is not None:
            portal.done = False
            portal.rows = written.rows
            self._send_rows(portal, self._max_rows)
        else:
            portal.done = True
            self._out.append(command_complete(_dml_tag(portal.prepared.tag, written.count)))

    async def _write_global(self, portal: Portal) -> None:
        program = portal.prepared.program
        assert program is not None
        written = await dml_on_global(self.node.log, program, self._values(portal), self.user_id)
        self._written(portal, written)

    async def _write_later(self, portal: Portal) -> None:
        node = self.node
        while True:
            portal.prepared = prepared = node.statements.current(portal.prepared, self.user)
            program = prepared.program
            assert program is not None and program.writes is not None
            table = node.catalog.schema.tables_by_id[program.writes.id]
            if table.operable:
                break
            await node.log.next_change()
        if not table.is_sharded:
            node.check_global_write(table, self.user_id)
            await self._write_global(portal)
            return
        self._work = ProgramWork(
            program, self._values(portal), node.guard, self.settings.statement_timeout_ms
        )
        self._written(portal, await node.write(self._work))

    # --- answers that are there as a whole -------------------------------------------------------

    def _command(self, portal: Portal, max_rows: int, describe: bool) -> None:
        statement = portal.prepared.statement
        if statement is None:
            self.send(EMPTY_QUERY_RESPONSE)
            return
        if not isinstance(statement, ast.Commit | ast.Rollback):
            writes = _command_name(statement) if isinstance(statement, (*ast.DDL, ast.AlterSystem)) else None
            self.block.enter(writes=writes, session_read_only=self.settings.read_only)
        answer = self._commands.run(portal, statement)
        if isinstance(answer, Answer):
            self._answer(portal, answer, max_rows, describe)
        else:
            self.run_task(self._answer_later(portal, answer, max_rows, describe))

    async def _answer_later(
        self, portal: Portal, work: Coroutine[Any, Any, Answer], max_rows: int, describe: bool
    ) -> None:
        self._answer(portal, await work, max_rows, describe)

    def _answer(self, portal: Portal, answer: Answer, max_rows: int, describe: bool) -> None:
        if answer.rows is None:
            portal.done = True
            self._out.append(command_complete(answer.tag))
            return
        if describe:
            self._out.append(portal.shape.description)
        portal.rows = answer.rows
        self._send_rows(portal, max_rows)

    def _send_rows(self, portal: Portal, max_rows: int) -> None:
        rows = portal.rows
        assert rows is not None
        end = min(portal.at + max_rows, len(rows)) if max_rows else len(rows)
        part = rows[portal.at : end]
        portal.at = end
        self._metrics.rows += len(part)
        self._out.append(portal.shape.encode_rows(part))
        if end < len(rows):
            self._out.append(PORTAL_SUSPENDED)
            return
        portal.rows = None
        portal.done = True
        tag = portal.prepared.tag
        count = portal.count if tag in _DML_TAGS else len(rows)
        self._out.append(command_complete(_dml_tag(tag, count)))


_SELECT_ONE: Final = command_complete("SELECT 1")
_DML_TAGS: Final = frozenset(("INSERT", "UPDATE", "DELETE"))


def _dml_tag(tag: str, count: int) -> str:
    return f"INSERT 0 {count}" if tag == "INSERT" else tag if tag == "SHOW" else f"{tag} {count}"


def _no_statement(name: str) -> str:
    return f'prepared statement "{name}" does not exist' if name else "there is no unnamed prepared statement"


def _ends_block(prepared: Prepared) -> bool:
    return isinstance(prepared.statement, ast.Commit | ast.Rollback)


def _option(option: object, parameters: Sequence[Stored]) -> int | None:
    """The value of an OPTION: a constant or a parameter."""
    if isinstance(option, Param):
        value = parameters[option.number - 1]
        return value if isinstance(value, int) else None
    if isinstance(option, Const):
        return option.value if isinstance(option.value, int) else None
    return None


_COMMAND_NAMES: Final[Mapping[type, str]] = {
    ast.CreateTable: "CREATE TABLE",
    ast.AlterTable: "ALTER TABLE",
    ast.DropTable: "DROP TABLE",
    ast.Truncate: "TRUNCATE TABLE",
    ast.CreateIndex: "CREATE INDEX",
    ast.DropIndex: "DROP INDEX",
    ast.RenameIndex: "RENAME INDEX",
    ast.AlterSystem: "ALTER SYSTEM",
}


def _command_name(statement: object) -> str:
    return _COMMAND_NAMES[type(statement)]
