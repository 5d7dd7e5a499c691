"""The writer: one thread that owns every write of data.db and unlogged.db.

Here: Writer, the group commit, and what a work may do (WriteSession).
Not here: what the works are (whoever submits them), the log's form (log.py), when the write-ahead log is
copied back (checkpoint.py).

All works that wait at a moment run in one transaction, one after another, and share its fsync: that is where
the throughput comes from. Each is all or nothing in itself. A work of one SQL statement needs nothing for
it, since SQLite undoes a failed statement; a work of several steps gets a savepoint.

Outcomes, errors too, are told only after COMMIT has returned: an error can rest on a row that another
statement of the group wrote (a duplicate key), and that row must not vanish afterwards. They are told in one
callback per group, on the thread that `post` leads to.

**A work is never interrupted**: SQLite answers an interrupt of DML by rolling the whole transaction back,
everybody's statements with it. Limits act by functions that raise inside the statement, which fail only it.
Where SQLite rolls back by itself (no space, I/O error, no memory), the statement that met it gets the error
and the others run once more: nobody has been told anything yet.

A failed fsync is a Fault: what the disk holds is unknown, and a second fsync may claim success (the kernel
forgets the pages that it could not write). So nothing is retried, and the instance stops.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar, cast

import apsw

from shoal.errors import AdminShutdown, DiskFull, Fault, InternalError, OutcomeUnknown, ShoalError
from shoal.storage.checkpoint import Checkpointer
from shoal.storage.log import Capture, LogBound, LogWriter, Lsn
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_writer
from shoal.storage.translate import Naming, is_sync_failure, translate
from shoal.types.values import Stored

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Bindings = Sequence[Stored]

# A group is closed when it is this large or this old, so that those in it don't wait for a bulk load.
_GROUP_WORKS: Final = 512
_GROUP_SECONDS: Final = 0.020


class WriteSession:
    """What a work may do on the writer thread, inside the group's transaction. Valid during run() only."""

    __slots__ = ("_capture", "_cursor", "_execute", "_executemany", "_savepoints", "connection", "wrote")

    def __init__(self, connection: apsw.Connection, capture: Capture) -> None:
        self.connection = connection
        self.wrote = False  # whether a statement of this work succeeded
        self._cursor = connection.cursor()
        self._execute = self._cursor.execute
        self._executemany = self._cursor.executemany
        self._capture = capture
        self._savepoints = 0

    def execute(self, sql: str, bindings: Bindings = ()) -> int:
        """One statement without a result; how many rows it changed."""
        self._execute(sql, bindings)
        self.wrote = True
        return self.connection.changes()

    def executemany(self, sql: str, rows: Sequence[Bindings]) -> int:
        """One statement for each row of bindings; how many rows they changed. Not for one_statement works."""
        before = self.connection.total_changes()
        self.wrote = True
        self._executemany(sql, rows)
        return self.connection.total_changes() - before

    def returning(self, sql: str, bindings: Bindings = ()) -> list[tuple[Stored, ...]]:
        """One statement with RETURNING; its rows."""
        rows = self._execute(sql, bindings).fetchall()
        self.wrote = True
        return cast(list[tuple[Stored, ...]], rows)

    def rows(self, sql: str, bindings: Bindings = ()) -> list[tuple[Stored, ...]]:
        """One SELECT; it sees what the group's earlier works wrote."""
        return cast(list[tuple[Stored, ...]], self._execute(sql, bindings).fetchall())

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What is done inside happens as a whole, or not at all when an exception leaves it."""
        self._savepoints += 1
        name = f"s{self._savepoints}"
        self._execute(f"SAVEPOINT {name}")
        self._capture.push()
        try:
            yield
        except BaseException:
            self._capture.discard()
            # SQLite may have rolled back everything by itself; then there is no savepoint to go back to.
            if self.connection.in_transaction:
                self._execute(f"ROLLBACK TO {name}")
                self._execute(f"RELEASE {name}")
            raise
        else:
            self._capture.pop()
            self._execute(f"RELEASE {name}")
        finally:
            self._savepoints -= 1


class WriteWork(Protocol[T_co]):
    """Something to do in a transaction, whole or not at all. It may be run twice: run() keeps no state."""

    @property
    def one_statement(self) -> bool:
        """Whether run() executes at most one SQL statement that writes, as its last step that can fail."""
        ...

    def run(self, session: WriteSession) -> T_co: ...


class Outcome(Generic[T]):
    """How a work ended. Told after the commit."""

    __slots__ = ("done", "error", "value", "work")

    def __init__(self, work: WriteWork[T], done: Callable[[Outcome[T]], None]) -> None:
        self.work = work
        self.done = done
        self.value: T | None = None
        self.error: ShoalError | Fault | None = None

    def result(self) -> T:
        """The value of run(), or its error raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


Post = Callable[[Callable[[], None]], None]


class Counts(Protocol):
    """What the writer counts, for whoever watches."""

    group_commits: int
    grouped_statements: int


class _RolledBack(Exception):
    """SQLite undid the whole transaction while this work ran."""

    def __init__(self, guilty: Outcome[object], error: ShoalError) -> None:
        super().__init__()
        self.guilty = guilty
        self.error = error


class Writer:
    """Takes works from any thread, runs them on its own. Made with the files opened, started by start()."""

    clock = staticmethod(perf_counter)

    def __init__(
        self,
        files: SqliteFiles,
        settings: Settings,
        *,
        post: Post,
        on_fault: Callable[[Fault], None],
        naming: Naming | None = None,
        log_bound: LogBound | None = None,
        counts: Counts | None = None,
    ) -> None:
        self.config_version = 0  # goes into every log entry; only the writer thread's works may set it
        self._files = str(files.data)
        self._post = post
        self._counts = counts
        self._on_fault = on_fault
        self._naming = naming
        self._queue: SimpleQueue[Outcome[object] | None] = SimpleQueue()
        self._connection = open_writer(files, settings)
        try:
            self._log = LogWriter(self._connection, log_bound or LogBound())
            self._checkpointer = Checkpointer(self._connection, files, settings)
        except apsw.Error as error:
            close(self._connection)
            raise translate(error, naming, files=self._files) from error
        self._capture = Capture()
        self._connection.preupdate_hook(self._capture)
        self._session = WriteSession(self._connection, self._capture)
        self._execute = self._connection.cursor().execute
        self._fault: Fault | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="shoal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: WriteWork[T], done: Callable[[Outcome[T]], None]) -> Outcome[T]:
        """Queues a work. `done` is called where `post` leads to, after the commit of its group; works end in
        the order in which they were submitted. What is returned tells nothing before that, but to later
        works: on the writer's thread its error is there as soon as it is known."""
        if self._stopping:
            raise AdminShutdown("the instance is stopping")
        outcome = Outcome(work, done)
        self._queue.put(cast(Outcome[object], outcome))
        return outcome

    def run(self, work: WriteWork[T], timeout_seconds: float | None = None) -> T:
        """Submits a work and waits for it: for threads that may block, and before the loop runs."""
        finished = threading.Event()
        outcome: Outcome[T] = _Direct(work, lambda _outcome: finished.set())
        if self._stopping:
            raise AdminShutdown("the instance is stopping")
        self._queue.put(cast(Outcome[object], outcome))
        if not finished.wait(timeout_seconds):
            raise OutcomeUnknown("the write did not finish in time; it may still happen")
        return outcome.result()

    def stop(self) -> None:
        """Finishes what was submitted, then closes the files. Blocks; the last outcomes are posted before."""
        self._stopping = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._checkpointer.stop()
        self._connection.preupdate_hook(None)
        close(self._connection)

    @property
    def last_lsn(self) -> Lsn:
        return self._log.last_lsn

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def fault(self) -> Fault | None:
        return self._fault

    # --- all below runs on the writer thread

    def _run(self) -> None:
        queue = self._queue
        while (first := queue.get()) is not None:
            self._take_turn(first)

    def _take_turn(self, first: Outcome[object]) -> None:
        if self._fault is None:
            group = self._group(first)
        else:
            group = [first]
            first.error = self._fault
        self._deliver(group)
        if self._fault is None:
            self._checkpoint()

    def _deliver(self, group: list[Outcome[object]]) -> None:
        posted = []
        for outcome in group:
            if isinstance(outcome, _Direct):
                outcome.done(outcome)
            else:
                posted.append(outcome)
        if posted:
            self._tell(_Delivery(posted))

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            self._post(call)
        except RuntimeError:
            _log.warning("nobody listens any more: the event loop is closed")

    def _group(self, first: Outcome[object]) -> list[Outcome[object]]:
        """One commit. Afterwards every outcome of the group is final."""
        group: list[Outcome[object]] = []
        try:
            try:
                self._transaction(self._arriving(first, group))
            except _RolledBack as rolled_back:
                self._again(group, rolled_back)
        except Fault as fault:
            self._stop_with(fault, group)
        except Exception as error:
            # A bug of ours, or SQLite in a state that we did not foresee. Nothing of the group was kept.
            _log.exception("the writer failed on a group of %d works", len(group))
            self._forget_transaction()
            self._fail(group, self._explain(error))
        return group

    def _arriving(self, first: Outcome[object], group: list[Outcome[object]]) -> Iterator[Outcome[object]]:
        """`first`, then whatever else waits by the time its turn comes, while the group is small and young."""
        queue = self._queue
        group.append(first)
        yield first
        deadline = self.clock() + _GROUP_SECONDS
        while not queue.empty():
            outcome = queue.get_nowait()
            if outcome is None:
                self._queue.put(None)  # stop() comes after all that was submitted
                return
            group.append(outcome)
            yield outcome
            if len(group) >= _GROUP_WORKS or self.clock() >= deadline:
                return

    def _again(self, group: list[Outcome[object]], rolled_back: _RolledBack) -> None:
        """The guilty one keeps its error. If the others meet a rollback too, the trouble is everybody's."""
        self._forget_transaction()
        rest = [outcome for outcome in group if outcome is not rolled_back.guilty]
        for outcome in rest:
            outcome.value = outcome.error = None
        try:
            self._transaction(iter(rest))
        except _RolledBack as again:
            self._forget_transaction()
            self._fail(rest, again.error)

    def _transaction(self, outcomes: Iterator[Outcome[object]]) -> None:
        """Runs and commits. Leaves by _RolledBack, or by Fault, or with every outcome final."""
        connection, capture, session = self._connection, self._capture, self._session
        ran: list[Outcome[object]] = []
        self._execute("BEGIN")
        for outcome in outcomes:
            ran.append(outcome)
            work = outcome.work
            capture.push()
            session.wrote = False
            try:
                if work.one_statement:
                    outcome.value = work.run(session)
                else:
                    with session.savepoint():
                        outcome.value = work.run(session)
            except Exception as error:
                capture.discard()
                explained = outcome.error = self._explain(error)
                if isinstance(explained, Fault):
                    raise explained from error
                if not connection.in_transaction:
                    raise _RolledBack(outcome, explained) from error
                if session.wrote and work.one_statement:
                    # It wrote and failed after that, without a savepoint to go back to.
                    raise AssertionError(f"{work} is more than one statement") from error
            else:
                capture.pop()
        self._commit(ran)

    def _commit(self, ran: list[Outcome[object]]) -> None:
        """After this, all of it is durable or none of it is there, and every outcome says which."""
        try:
            payloads = self._capture.take()
            if payloads:
                self._log.append(payloads, self.config_version)
        except apsw.Error as error:
            self._forget_transaction()
            self._fail(ran, translate(error, self._naming, files=self._files))
            return
        try:
            self._execute("COMMIT")
        except apsw.Error as error:
            if is_sync_failure(error):
                raise Fault(f"fsync failed on {self._files}: what the disk holds is unknown") from error
            self._forget_transaction()
            self._fail(ran, self._uncommitted(error))
        else:
            self._log.commit()
            if self._counts is not None:
                self._counts.group_commits += 1
                self._counts.grouped_statements += len(ran)

    def _uncommitted(self, error: apsw.Error) -> ShoalError:
        translated = translate(error, self._naming, files=self._files)
        if isinstance(translated, DiskFull):
            return translated  # the commit record did not fit: surely nothing happened
        if isinstance(error, apsw.IOError):
            # The record may have reached the disk in part or in whole before the error.
            return OutcomeUnknown(f"the commit failed, the write may have happened: {translated.message}")
        return translated

    def _explain(self, error: Exception) -> ShoalError | Fault:
        if isinstance(error, ShoalError | Fault):
            return error
        if isinstance(error, apsw.Error):
            if is_sync_failure(error):
                return Fault(f"fsync failed on {self._files}: what the disk holds is unknown")
            return translate(error, self._naming, files=self._files)
        _log.error("a work failed by a bug", exc_info=error)
        return InternalError(f"internal error: {error}")

    def _forget_transaction(self) -> None:
        """Back to no transaction, whether SQLite has rolled back already or not."""
        self._capture.clear()
        self._log.rollback()
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def _fail(self, outcomes: list[Outcome[object]], error: ShoalError | Fault) -> None:
        for outcome in outcomes:
            if outcome.error is None:
                outcome.error = error

    def _stop_with(self, fault: Fault, group: list[Outcome[object]]) -> None:
        """The group was being committed, or ran beside what failed: nobody can say whether it happened."""
        _log.critical("the writer stops: %s", fault)
        self._fault = fault
        self._capture.clear()
        for outcome in group:
            outcome.error = OutcomeUnknown(f"the write may have happened: {fault}")
        self._tell(lambda: self._on_fault(fault))

    def _checkpoint(self) -> None:
        try:
            self._checkpointer.after_commit()
        except apsw.Error as error:
            if is_sync_failure(error):
                self._stop_with(Fault(f"fsync failed on {self._files}: what the disk holds is unknown"), [])
            else:
                # The write-ahead log keeps growing until one works; nothing is lost meanwhile.
                _log.warning("checkpoint: %s", translate(error, files=self._files))


class _Direct(Outcome[T]):
    """Told on the writer thread itself, to wake the thread that waits in run()."""

    __slots__ = ()


class _Delivery:
    """The outcomes of one group, called where `post` leads to."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: list[Outcome[object]]) -> None:
        self._outcomes = outcomes

    def __call__(self) -> None:
        for outcome in self._outcomes:
            try:
                outcome.done(outcome)
            except Exception:
                _log.exception(
                    "telling the outcome of a write failed"
                )  # the others must still hear of theirs
