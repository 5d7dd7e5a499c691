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
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol

from shoal.catalog.rights import User
from shoal.errors import (
    DataCorrupted,
    DataError,
    DuplicateCursor,
    DuplicateStatement,
    Fault,
    FeatureNotSupported,
    InFailedTransaction,
    InsufficientPrivilege,
    InternalError,
    OutcomeUnknown,
    ProtocolViolation,
    ShoalError,
    UndefinedPortal,
    UndefinedStatement,
)
from shoal.node.block import Block
from shoal.node.execute import session_facts
from shoal.node.executing import Executing
from shoal.node.portals import Portal
from shoal.node.settings import SessionSettings
from shoal.node.statements import LONG_TEXT, Prepared, ResultShape
from shoal.pgwire.codec import Frames, encode_all
from shoal.pgwire.messages import (
    BIND_COMPLETE,
    CLOSE_COMPLETE,
    EMPTY_QUERY_RESPONSE,
    PARSE_COMPLETE,
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
    parameter_count_violated,
)
from shoal.pgwire.phases import EXTENDED, IDLE, SKIPPING, STEPS, Phase, frontend_type
from shoal.sql import ast
from shoal.sql.parser import Parsed
from shoal.types.values import Stored

if TYPE_CHECKING:
    from shoal.node.instance import Node

_log: Final = logging.getLogger(__name__)

P = ParamSpec("P")

# How a request for a point read ends, with the unnamed portal.
_SYNC: Final = encode_all(Sync())
_EXECUTE_SYNC: Final = encode_all(Execute("", 0), Sync())
_DESCRIBE_EXECUTE_SYNC: Final = encode_all(Describe("portal", ""), Execute("", 0), Sync())

# Answers are sent when so many have gathered, to see whether the client reads them.
_GATHERED_MAX: Final = 32

# Answers that wait for those of pending writes before they are sent.
_ANSWERS_HELD_MAX: Final = 1000
# What may come while writes before it are not answered.
_CHAINED: Final = frozenset((Bind.kind, Describe.kind, Execute.kind, Flush.kind))


class Wire(Protocol):
    """The session's side of its socket."""

    def write(self, data: bytes) -> None: ...
    def is_full(self) -> bool:
        """The client doesn't read as fast as we write: on_drained() of the session will be called. Until then
        no more of its messages are taken."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Session:
    """All methods run on the event loop."""

    def __init__(
        self,
        node: Node,
        wire: Wire,
        frames: Frames,
        user: User,
        settings: SessionSettings,
        database: str,
        pid: int,
    ) -> None:
        self.node = node
        self.user_id = user.id
        self.user_name = user.name
        self.settings = settings
        self.facts = session_facts(node.facts, user.name, database, pid)
        self.block = Block()
        self.statements: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}
        self._wire = wire
        self._frames = frames
        self.base: list[bytes] = []  # answers that can be sent
        self.out = self.base  # where the next answer goes: behind that of the last pending write
        self._held: Callable[[], None] | None = None  # what comes behind the answers that are waited for
        self._phase: Phase = IDLE
        self._busy = False
        self._closed = False
        self._script: deque[Parsed] = deque()  # what is left of a simple query
        self._script_text = ""
        self.is_simple = False  # a simple query runs: its end is ReadyForQuery
        self._wrote_before = False  # a statement since the last ReadyForQuery has written
        self._alone = False
        self._ahead: Prepared | None = None  # of the script's first statement
        self._task: asyncio.Task[None] | None = None
        self._last_word: ShoalError | None = None  # it ends when what is under way has been answered
        self._metrics = node.metrics
        self._executing = Executing(self, wire)
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
        if self._must_wait() or self._wire.is_full():
            return
        executing, handlers, base = self._executing, self._handlers, self.base
        while True:
            handling = False
            try:
                for kind, payload in self._frames:
                    if executing.pending and kind not in _CHAINED:
                        # Its answer may depend on what the writes before it did.
                        self._hold(partial(self._take, kind, payload))
                        return
                    was = self._phase
                    following = STEPS[was][kind]
                    if following is None:
                        raise _out_of_turn(was, kind)
                    self._phase = following
                    if was is SKIPPING and following is SKIPPING:
                        continue
                    handling = True
                    handlers[kind](payload)
                    handling = False
                    if self._must_wait():
                        break
                    if len(base) >= _GATHERED_MAX:
                        self.flush()
                        if self._wire.is_full():
                            break
            except ShoalError as error:
                if not handling:  # of the frames themselves: nobody knows where the next one begins
                    if executing.pending:
                        self._hold(partial(self._end_with, error))
                    else:
                        self._end_with(error)
                    return
                self.fail(error)
            except Exception as error:
                self._fail_by_bug(error)
            else:
                break
        self.flush()

    def _take(self, kind: int, payload: bytes) -> None:
        """A message that had to wait for the writes before it."""
        was = self._phase
        following = STEPS[was][kind]
        if following is None:
            self._end_with(_out_of_turn(was, kind))
            return
        self._phase = following
        if was is not SKIPPING or following is not SKIPPING:
            self._guarded(self._handlers[kind], payload)

    def _guarded(self, step: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """What it raises is answered."""
        try:
            step(*args, **kwargs)
        except ShoalError as error:
            self.fail(error)
        except Exception as error:
            self._fail_by_bug(error)

    def _fail_by_bug(self, error: BaseException) -> None:
        _log.error("a bug met by a client's message", exc_info=error)
        self.fail(InternalError(f"internal error: {error!r}"))

    def _end_with(self, error: ShoalError) -> None:
        """An error after which the connection can't go on."""
        self.out.append(ErrorResponse.of(error, fatal=True).encode())
        self.flush()
        self._end()

    def _hold(self, step: Callable[[], None]) -> None:
        """To be done when what is waited for is answered."""
        self._held = step
        self._busy = True
        self.flush()

    def _must_wait(self) -> bool:
        return self._busy or self._closed

    def flush(self) -> None:
        out = self.base
        # While writes are pending their answers are near: one write for all of them.
        if out and not self._closed and (not self._executing.pending or len(out) > _ANSWERS_HELD_MAX):
            self._wire.write(out[0] if len(out) == 1 else b"".join(out))
            out.clear()

    def send(self, data: bytes) -> None:
        """Appends to the answer; it leaves when the session has nothing more to do, or waits."""
        self.out.append(data)

    def notice(self, notice: NoticeResponse | None) -> None:
        if notice is not None:
            self.out.append(notice.encode())

    def report(self, name: str) -> None:
        """Tells the client that a setting which it follows has changed."""
        if name == "TimeZone":
            # How a statement reads and writes points in time is part of it.
            self.statements = {known: prepared.outdated() for known, prepared in self.statements.items()}
        self.out.append(ParameterStatus(name, self.settings[name]).encode())

    def fail(self, error: ShoalError) -> None:
        """The statement at hand failed. The session goes on."""
        self._metrics.errors += 1
        if isinstance(error, InsufficientPrivilege):
            self.node.audit.denied(self.user_name, error)
        elif isinstance(error, DataCorrupted):
            self.node.audit.damaged(error)
        self.block.fail()
        # PostgreSQL would have undone them: they were one transaction there. An error behind a pending write is
        # told only if that succeeds.
        wrote = self._wrote_before or self.out is not self.base
        if wrote and error.detail is None and self.block.status == "I":
            error.detail = "The statements before this one were applied, and stand."
        self.out.append(ErrorResponse.of(error).encode())
        if self.is_simple:
            self._script.clear()
            self._end_simple()
        elif self._phase is EXTENDED:
            self._phase = SKIPPING

    # --- waiting ---------------------------------------------------------------------------------

    def wait(self) -> None:
        self._busy = True
        self.flush()

    def go_on(self) -> None:
        """What the session waited for is there, and answered."""
        self._busy = False
        self._executing.ended()
        if self._closed:
            return
        if self._last_word is not None:
            self._end_with(self._last_word)
            return
        if self.is_simple:
            self._guarded(self._next_of_script)
        held, self._held = self._held, None
        if held is not None:
            held()
        self.pump()
        if not self._busy:
            self._wire.resume()

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """For what takes several steps and is rare: schema changes, DML on global tables."""
        self.wait()
        self._executing.start_timer()
        self._task = task = self.node.loop.create_task(work)
        self.node.tasks.add(task)
        task.add_done_callback(self._task_done)
        task.add_done_callback(self.node.tasks.discard)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = self._executing.stopped() if task.cancelled() else task.exception()
        if isinstance(error, Fault):
            error = OutcomeUnknown(f"the outcome is unknown: {error}")
        if isinstance(error, ShoalError):
            if isinstance(error, OutcomeUnknown):
                self.wrote()
            self.fail(error)
        elif error is not None:
            self._fail_by_bug(error)
        self.go_on()

    def cancel(self) -> None:
        """CancelRequest. What can't be stopped any more goes its way, and is answered as it went."""
        self._executing.cancel()

    def terminate(self, error: ShoalError) -> None:
        """The session ends, with this as its last word: at once, or when what is under way has been stopped."""
        if self._closed or self._last_word is not None:
            return
        if self._busy or self._executing.pending:
            self._last_word = error
            self._executing.cancel(error)
        else:
            self._end_with(error)

    def on_drained(self) -> None:
        """The client has read what was buffered."""
        self._executing.on_drained()
        self.pump()
        if not self._busy:
            self._wire.resume()

    def close(self) -> None:
        """The connection is gone, or goes now."""
        self._closed = True
        self._executing.close()
        self.close_portals()
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
        # First of all: a payload that can't be read is answered like any other query, ReadyForQuery at its end.
        self.is_simple = True
        self._wrote_before = False
        text = Query.decode(payload).text
        self._drop_portal("")
        self._drop_statement("")
        statements = self.node.statements
        known = statements.simple(text, self.settings, self.user_id)
        if known is not None:
            prepared, literals = known
            try:
                self._start_simple(prepared, literals)
            except DataError as error:
                if error.position is None:
                    statements.refuse_literals(text, self.settings, self.user_id)
                raise
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
        statements, settings, aside = self.node.statements, self.settings, self.node.aside
        with self._executing.stoppable():
            many = await aside.run(statements.many_rows, text, settings, self.user_id)
        if many is not None and await self._executing.insert_many(many):
            return
        with self._executing.stoppable():
            script = await aside.run(statements.script, text)
            alone = len(script) == 1
            ahead = (
                await aside.run(statements.prepare_simple, script[0], text, True, settings, self.user_id)
                if alone
                else None
            )
        self._start_script(text, script)
        self._ahead = ahead

    def _next_of_script(self) -> None:
        """Runs on until something has to be waited for, or the script ends."""
        while self._script and not self._busy:
            parsed = self._script.popleft()
            prepared, self._ahead = self._ahead, None
            if prepared is None:
                prepared = self.node.statements.prepare_simple(
                    parsed, self._script_text, self._alone, self.settings, self.user_id
                )
            self._start_simple(prepared, None, in_script=True)
            if len(self.base) >= _GATHERED_MAX and not self._busy:
                self.flush()
                if self._wire.is_full():
                    self._executing.wait_until_drained(self.go_on)
        if not self._busy and self.is_simple and not self._script:
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
        self._executing.execute(portal, 0, describe=True)
        if not in_script and not self._busy:
            self._end_simple()

    def _end_simple(self) -> None:
        self.is_simple = False
        self._wrote_before = False
        self._script_text = ""
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
        return self.node.statements.prepare(parse.text, parse.parameter_types, self.settings, self.user_id)

    async def _parse_later(self, parse: Parse) -> None:
        with self._executing.stoppable():
            prepared = await self.node.aside.run(self._prepare, parse)
        self._parsed(parse.statement, prepared)

    def _parsed(self, name: str, prepared: Prepared) -> None:
        if self._closed:
            return
        if self.block.status == "E" and not _ends_block(prepared):
            raise InFailedTransaction
        self.node.limits.open_statement()
        self.statements[name] = prepared
        self.out.append(PARSE_COMPLETE)

    def _on_bind(self, payload: bytes) -> None:
        bind = Bind.decode(payload)
        prepared = self.statements.get(bind.statement)
        if prepared is None:
            raise UndefinedStatement(_no_statement(bind.statement))
        if self.block.status == "E" and not _ends_block(prepared):
            raise InFailedTransaction
        if prepared.catalog is not self.node.log.catalog:
            self.statements[bind.statement] = prepared = self.node.statements.current(prepared, self.settings)
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
        name, formats = bind.portal, bind.result_formats
        shape = prepared.shape(formats)  # before any other message is taken: it may fail
        if not name and not self._executing.pending:
            described = self._frames.take_exactly(_DESCRIBE_EXECUTE_SYNC)
            if described or self._frames.take_exactly(_EXECUTE_SYNC):
                self._execute_at_once(prepared, values, formats, shape, described)
                return
        existing = self.portals.get(name)
        if existing is not None:
            if name:
                raise DuplicateCursor(f'cursor "{name}" already exists')
            existing.close()
        else:
            self.node.limits.open_portal()
        self.portals[name] = Portal(name, prepared, values, None, formats, shape)
        self.out.append(BIND_COMPLETE)

    def _execute_at_once(
        self,
        prepared: Prepared,
        values: Sequence[Stored],
        formats: tuple[int, ...],
        shape: ResultShape,
        described: bool,
    ) -> None:
        """Bind, Describe, Execute and Sync in one step: what most clients send for most of their statements."""
        self._drop_portal("")
        self.out.append(BIND_COMPLETE)
        if described:
            self.out.append(shape.description)
        try:
            if prepared.is_point_read:
                self._metrics.statements += 1
                self.out.append(self._executing.point_read(prepared, values, None, shape))
            else:
                # The portal is gone by the Sync, so it needs no name.
                self._executing.execute(Portal("", prepared, values, None, formats, shape), 0)
        except ShoalError as error:
            self.fail(error)
        except Exception as error:
            self._fail_by_bug(error)
        self._sync_behind()

    def _sync_behind(self) -> None:
        """The Sync that was taken together with what came before it."""
        if self._busy or self._executing.pending:
            self._hold(partial(self._take, Sync.kind, b""))
        else:
            self._phase = IDLE
            self._on_sync(b"")

    def _on_describe(self, payload: bytes) -> None:
        describe = Describe.decode(payload)
        if describe.target == "portal":
            self.out.append(self._portal(describe.name).shape.description)
            return
        prepared = self.statements.get(describe.name)
        if prepared is None:
            raise UndefinedStatement(_no_statement(describe.name))
        self.out.append(prepared.parameter_description)
        self.out.append(prepared.shape(()).description)

    def _on_execute(self, payload: bytes) -> None:
        execute = Execute.decode(payload)
        portal = self._portal(execute.portal)
        if self._executing.pending and not self._executing.can_chain(portal):
            self._hold(partial(self._take, Execute.kind, payload))
            return
        max_rows = max(execute.max_rows, 0)
        # What asks for one row of whatever there may be: the Sync right behind drops what is left.
        if not max_rows or self.block.status != "I" or not self._frames.take_exactly(_SYNC):
            self._executing.execute(portal, max_rows)
            return
        self._guarded(self._executing.execute, portal, max_rows, last=True)
        self._sync_behind()

    def _on_close(self, payload: bytes) -> None:
        close = Close.decode(payload)
        if close.target == "portal":
            self._drop_portal(close.name)
        else:
            self._drop_statement(close.name)
        self.out.append(CLOSE_COMPLETE)

    def _on_flush(self, payload: bytes) -> None:
        Flush.decode(payload)

    def _on_sync(self, payload: bytes) -> None:
        if payload:
            Sync.decode(payload)
        if self.portals and self.block.status != "T":
            self.close_portals()
        self._wrote_before = False
        self.out.append(READY_FOR_QUERY[self.block.status])

    def _on_terminate(self, payload: bytes) -> None:
        self.flush()
        self._end()

    def _on_function_call(self, payload: bytes) -> None:
        self.is_simple = True  # it is answered like a simple query: an error, then ReadyForQuery
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

    def close_portals(self) -> None:
        self.node.limits.portals -= len(self.portals)
        for portal in self.portals.values():
            portal.close()
        self.portals.clear()

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

    def wrote(self) -> None:
        """A statement has changed something, or may have."""
        self._wrote_before = True
        self.block.note_write()


def _out_of_turn(phase: Phase, kind: int) -> ShoalError:
    try:
        frontend_type(phase, kind)
    except ShoalError as error:
        return error
    return ProtocolViolation(f"message of type {chr(kind)!r} out of turn")


def _no_statement(name: str) -> str:
    return f'prepared statement "{name}" does not exist' if name else "there is no unnamed prepared statement"


def _ends_block(prepared: Prepared) -> bool:
    return isinstance(prepared.statement, ast.Commit | ast.Rollback | ast.RollbackTo)
