"""Reading: a pool of threads for what may take long, and a connection for point reads on the loop.

Here: ReaderPool, ReadCursor (one SELECT, read in batches), PointReader.
Not here: which statement is a point read (the plan proves it), the form of rows on the wire (the caller's
`encode`), statement timeouts (the loop calls cancel() with the error to answer).

A cursor does nothing by itself: each fetch() is one job for the pool, which reads one batch and posts it. Who
doesn't ask for the next batch has stopped the query; that is the backpressure. Between batches the cursor
keeps its connection, and with it its snapshot.

A batch is small, so many queries share few threads; and jobs wait for a thread with no connection in
hand, so suspended cursors (portals that were read in part) hold connections, but never threads. Their number is
bounded: the one too many is refused, and small queries never wait behind them. Only a query that stays long in
one step of SQLite (a sort, an aggregate) keeps a thread; when all threads are in such steps, more are
started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final, cast

import apsw

from shoal.errors import (
    AdminShutdown,
    InternalError,
    QueryCanceled,
    ShoalError,
    TooManyConnections,
)
from shoal.storage.limits import (
    NO_LIMITS,
    Limits,
    opcodes_between_looks,
    too_many_opcodes,
    too_many_rows,
)
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_reader
from shoal.storage.translate import Naming, translate
from shoal.types.values import Stored

_log: Final = logging.getLogger(__name__)

Row = tuple[Stored, ...]
Bindings = Sequence[Stored]
Post = Callable[[Callable[[], None]], None]
Encode = Callable[[list[Row]], bytes]

# Rows that are fetched between two looks at how large the batch is, at most. The encoder holds the GIL for
# one such piece, so it is also what the loop may have to wait for.
_PIECE_ROWS: Final = 256
_FIRST_PIECE_ROWS: Final = 16

# There may be a hundred connections, each with a cache of its own, which every commit of the writer empties.
_CACHE_SHARES: Final = 8
_CACHE_BYTES_MIN: Final = 4 << 20

# Between two looks whether the statement is still wanted: some 20 ms of work, in which a look costs nothing.
_OPCODES_UNWATCHED_MAX: Final = 1_000_000

_THREADS_BUSY_SECONDS: Final = 0.010  # a job that waits longer has met long steps only: one more thread
_THREAD_IDLE_SECONDS: Final = 5.0


class Batch:
    """What one fetch() brought. After an error or the end, the cursor has given its connection back."""

    __slots__ = ("data", "error", "finished", "row_count", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []  # without `encode`
        self.data = b""  # with `encode`: what it made of the rows
        self.row_count = 0
        self.finished = False  # no rows come after these
        self.error: ShoalError | None = None


class _Phase(Enum):
    IDLE = auto()  # may be asked for a batch
    BUSY = auto()  # a job is queued or runs
    CLOSED = auto()


class _Connection:
    """A connection of the pool, and the budget of the statement that runs on it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.sqlite = connection
        self.cursor = connection.cursor()
        self._unwanted = False  # the statement at hand
        self._checks_left = 0
        self._limit = 0
        self.budget(0)

    def budget(self, opcodes: int) -> None:
        self._limit = opcodes
        every = _OPCODES_UNWATCHED_MAX
        if opcodes:
            # SQLite counts on from the statement's last execution, so the first look may come early by one.
            every = min(every, opcodes_between_looks(opcodes))
            self._checks_left = -(-opcodes // every) + 1
        self.sqlite.set_progress_handler(self._check, every)

    def interrupt(self) -> None:
        """From any thread. SQLite forgets an interrupt that comes before the first step, and planning a large
        join takes a while: so the statement also looks by itself, now and then."""
        self._unwanted = True
        self.sqlite.interrupt()

    def _check(self) -> bool:
        """Whether SQLite is to interrupt itself."""
        if self._limit:
            self._checks_left -= 1
            if self._checks_left <= 0:
                raise too_many_opcodes(self._limit)
        return self._unwanted

    def end_statement(self) -> None:
        """Lets go of the snapshot. The statement's own error has been told already."""
        with suppress(apsw.Error):
            self.cursor.close(True)
        self.cursor = self.sqlite.cursor()
        self._unwanted = False
        if self._limit:
            self.budget(0)


class ReadCursor:
    """One SELECT and its snapshot. Used by one thread (the loop's); batches come by `post`."""

    def __init__(self, pool: ReaderPool, sql: str, bindings: Bindings, limits: Limits) -> None:
        self._pool = pool
        self._sql = sql
        self._bindings = bindings
        self._limits = limits
        self._row_count = 0
        # Guards all below: cancel() must never interrupt a connection that serves another cursor by now.
        self._lock = threading.Lock()
        self._phase = _Phase.IDLE
        self._closing = False
        self._canceled: ShoalError | None = None
        self._connection: _Connection | None = None

    def fetch(
        self,
        max_bytes: int,
        max_rows: int,
        encode: Encode | None,
        done: Callable[[Batch], None],
        *,
        last: bool = False,
    ) -> None:
        """Asks for the next batch: at least one row where there is one, then until one of the bounds is
        reached (max_rows exactly, 0 is no bound; max_bytes is passed by a piece at most).

        `last`: nobody will ask for what is behind max_rows, so the connection is given back at once."""
        with self._lock:
            assert self._phase is _Phase.IDLE, self._phase
            self._phase = _Phase.BUSY
        self._pool._submit(_Fetch(self, max_bytes, max_rows, encode, done, last))

    def cancel(self, error: ShoalError | None = None) -> None:
        """From any thread, at any time: the batch in progress, or the next one, ends with this error."""
        with self._lock:
            if self._phase is _Phase.CLOSED or self._canceled is not None:
                return
            self._canceled = error or QueryCanceled("canceling statement due to user request")
            if self._connection is not None:
                self._connection.interrupt()

    def close(self) -> None:
        """Gives the snapshot back. A batch in progress is abandoned: its `done` is not called."""
        with self._lock:
            if self._phase is _Phase.CLOSED:
                return
            self._closing = True
            if self._phase is _Phase.BUSY:
                if self._connection is not None:
                    self._connection.interrupt()
                return  # the thread that reads closes it
            self._phase = _Phase.CLOSED
            connection, self._connection = self._connection, None
        if connection is not None:
            self._pool._give_back(connection, suspended=True)

    @property
    def closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    # --- below runs on a thread of the pool

    def _read(self, job: _Fetch) -> Batch | None:
        """None: closed meanwhile, nobody waits for it."""
        batch = Batch()
        first = self._connection is None
        try:
            connection = self._begin()
            if first:
                connection.budget(self._limits.opcodes)
                connection.cursor.execute(self._sql, self._bindings)
            self._fill(batch, connection.cursor, job)
        except ShoalError as error:
            batch.error = error
        except apsw.Error as error:
            batch.error = self._canceled or translate(error, self._pool._naming, files=self._pool._files)
        except Exception as error:
            _log.exception("reading failed by a bug")
            batch.error = InternalError(f"internal error: {error}")
        return self._end(batch, first, job)

    def _begin(self) -> _Connection:
        connection = self._connection or self._pool._take()
        with self._lock:
            self._connection = connection
            if self._pool._stopping:
                raise AdminShutdown("the instance is stopping")
            if self._canceled is not None:
                raise self._canceled
            if self._closing:
                raise QueryCanceled("closed")
        return connection

    def _fill(self, batch: Batch, cursor: apsw.Cursor, job: _Fetch) -> None:
        encode, parts, size = job.encode, [], 0
        piece_rows = _FIRST_PIECE_ROWS
        while True:
            wanted = min(piece_rows, job.max_rows - batch.row_count) if job.max_rows else piece_rows
            piece = cast("list[Row]", list(islice(cursor, wanted)))
            batch.row_count += len(piece)
            if self._limits.rows and self._row_count + batch.row_count > self._limits.rows:
                raise too_many_rows(self._limits.rows, self._row_count + batch.row_count)
            if piece:
                if encode is not None:
                    part = encode(piece)
                    parts.append(part)
                    size += len(part)
                else:
                    batch.rows.extend(piece)
                    size += _rough_size(piece)
            if len(piece) < wanted:
                batch.finished = True
                break
            if size >= job.max_bytes or batch.row_count == job.max_rows:
                break
            # So that wide rows don't pass the bound by much, and narrow ones cost few rounds.
            fitting = (job.max_bytes - size) * batch.row_count // max(size, 1) + 1
            piece_rows = max(1, min(_PIECE_ROWS, piece_rows * 4, fitting))
        self._row_count += batch.row_count
        batch.data = parts[0] if len(parts) == 1 else b"".join(parts)

    def _end(self, batch: Batch, first: bool, job: _Fetch) -> Batch | None:
        enough = job.last and job.max_rows == batch.row_count > 0
        over = batch.finished or batch.error is not None or enough
        if not over and first and not self._pool._suspend():
            batch.error = TooManyConnections(
                f"too many queries are read in part (the limit is {self._pool.suspended_max})",
                hint="read them to the end, or close their portals",
            )
            over = True
        with self._lock:
            closing = self._closing
            if not (over or closing):
                self._phase = _Phase.IDLE
                return batch
            self._phase = _Phase.CLOSED
            connection, self._connection = self._connection, None
        if connection is not None:
            # The first batch of a query takes no place among the suspended, unless it was given one above.
            self._pool._give_back(connection, suspended=not first or not over)
        if batch.error is not None:
            batch.rows, batch.data, batch.row_count = [], b"", 0
        return None if closing else batch


def _rough_size(rows: list[Row]) -> int:
    """Bytes of a piece as its first row is large: rows of a result are alike more often than not."""
    return len(rows) * sum(len(v) if isinstance(v, str | bytes) else 8 for v in rows[0])


@dataclass(frozen=True, slots=True)
class _Fetch:
    cursor: ReadCursor
    max_bytes: int
    max_rows: int
    encode: Encode | None
    done: Callable[[Batch], None]
    last: bool


class ReaderPool:
    """Threads and connections for reading. Its connections are opened when they are first needed."""

    def __init__(
        self,
        files: SqliteFiles,
        settings: Settings,
        *,
        post: Post,
        naming: Naming | None = None,
        threads: int = 2,
        threads_max: int = 16,
        suspended_max: int = 64,
    ) -> None:
        self.suspended_max = suspended_max
        self._sqlite_files = files
        self._settings = settings
        self._post = post
        self._naming = naming
        self._files = str(files.directory)
        self._threads = threads
        self._threads_max = threads_max
        self._jobs: SimpleQueue[_Fetch | None] = SimpleQueue()
        self._lock = threading.Lock()  # guards all below
        self._free: list[_Connection] = []
        self._opened: list[_Connection] = []
        self._suspended = 0
        self._workers: set[threading.Thread] = set()
        self._idle = 0
        self._started = 0  # jobs that a thread has begun
        self._watching = False
        self._stopping = False

    def open(self, sql: str, bindings: Bindings = (), limits: Limits = NO_LIMITS) -> ReadCursor:
        """A cursor on one SELECT. Nothing runs before its first fetch()."""
        return ReadCursor(self, sql, bindings, limits)

    def stop(self) -> None:
        """Cancels what runs, and closes the connections. Blocks until the threads are gone."""
        with self._lock:
            self._stopping = True
            workers = list(self._workers)
            for _ in workers:
                self._jobs.put(None)
        for worker in workers:
            while worker.is_alive():
                # Again and again: a statement that was about to begin would not notice once.
                with self._lock:
                    for connection in self._opened:
                        connection.sqlite.interrupt()
                worker.join(0.02)
        for connection in self._opened:
            close(connection.sqlite)
        self._opened.clear()
        self._free.clear()

    @property
    def suspended(self) -> int:
        """How many cursors hold a snapshot between two batches."""
        return self._suspended

    # --- connections

    def _take(self) -> _Connection:
        with self._lock:
            if self._free:
                return self._free.pop()
        # There are at most as many as suspended cursors and threads.
        cache = max(_CACHE_BYTES_MIN, self._settings.reader_cache_bytes // _CACHE_SHARES)
        connection = _Connection(open_reader(self._sqlite_files, self._settings, cache_bytes=cache))
        with self._lock:
            self._opened.append(connection)
        return connection

    def _suspend(self) -> bool:
        with self._lock:
            if self._suspended >= self.suspended_max:
                return False
            self._suspended += 1
            return True

    def _give_back(self, connection: _Connection, *, suspended: bool) -> None:
        connection.end_statement()
        with self._lock:
            self._free.append(connection)
            self._suspended -= suspended

    # --- threads

    def _submit(self, job: _Fetch) -> None:
        with self._lock:
            if self._stopping:
                raise AdminShutdown("the instance is stopping")
            self._jobs.put(job)
            if self._jobs.qsize() > self._idle:
                if len(self._workers) < self._threads:
                    self._start_worker()
                elif len(self._workers) < self._threads_max and not self._watching:
                    self._watching = True
                    threading.Thread(target=self._watch, name="shoal-reader-watch", daemon=True).start()

    def _start_worker(self) -> None:
        worker = threading.Thread(target=self._work, name="shoal-reader", daemon=True)
        self._workers.add(worker)
        worker.start()

    def _watch(self) -> None:
        """Starts one more thread whenever no job could begin for a while, though some wait."""
        while True:
            with self._lock:
                before = self._started
            threading.Event().wait(_THREADS_BUSY_SECONDS)
            with self._lock:
                if self._stopping or self._jobs.empty() or len(self._workers) >= self._threads_max:
                    self._watching = False
                    return
                if self._started == before:
                    self._start_worker()

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                self._idle += 1
            try:
                job = self._jobs.get(timeout=_THREAD_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    self._idle -= 1
                    # The few that are always there stay; a job may have come just now.
                    if len(self._workers) > self._threads and self._jobs.empty():
                        self._workers.discard(me)
                        return
                continue
            with self._lock:
                self._idle -= 1
                self._started += 1
            if job is None:
                return
            self._do(job)

    def _do(self, job: _Fetch) -> None:
        batch = job.cursor._read(job)
        if batch is not None:
            try:
                self._post(_Delivery(job.done, batch))
            except RuntimeError:
                _log.warning("nobody listens any more: the event loop is closed")


class _Delivery:
    __slots__ = ("_batch", "_done")

    def __init__(self, done: Callable[[Batch], None], batch: Batch) -> None:
        self._done = done
        self._batch = batch

    def __call__(self) -> None:
        self._done(self._batch)


class PointReader:
    """Reads by full key, right on the calling thread: for the loop. Nothing else may run here."""

    def __init__(
        self,
        files: SqliteFiles,
        settings: Settings,
        *,
        naming: Naming | None = None,
        cache_bytes: int = 128 << 20,
    ) -> None:
        self._connection = open_reader(files, settings, cache_bytes=cache_bytes)
        self._execute = self._connection.cursor().execute
        self._naming = naming
        self._files = str(files.directory)

    def rows(self, sql: str, bindings: Bindings) -> list[Row]:
        """All rows of a SELECT; each call sees what is committed by then."""
        try:
            return cast("list[Row]", self._execute(sql, bindings).fetchall())
        except apsw.Error as error:
            raise translate(error, self._naming, files=self._files) from error

    def close(self) -> None:
        close(self._connection)
