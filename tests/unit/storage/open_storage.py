"""A writer and readers on a directory, for tests that need the real thing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

from shoal.catalog.schema import Schema
from shoal.errors import Fault
from shoal.storage.limits import NO_LIMITS, Limits
from shoal.storage.log import LogBound
from shoal.storage.readers import Batch, Encode, ReadCursor, ReaderPool
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog
from shoal.storage.writer import Bindings, Outcome, Writer, WriteSession


def call(function: Callable[[], None]) -> None:
    """A `post` that needs no loop: outcomes are told on the thread that has them."""
    function()


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement; how many rows it changed."""

    sql: str
    bindings: Bindings = ()
    one_statement: bool = True

    def run(self, session: WriteSession) -> int:
        return session.execute(self.sql, self.bindings)


@dataclass(frozen=True, slots=True)
class Script:
    """Several statements, all or nothing."""

    steps: tuple[str, ...]
    one_statement: bool = False

    def run(self, session: WriteSession) -> int:
        return sum(session.execute(step) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Do:
    """Whatever a function does."""

    function: Callable[[WriteSession], object]
    one_statement: bool = False

    def run(self, session: WriteSession) -> object:
        return self.function(session)


@dataclass
class Storage:
    files: SqliteFiles
    writer: Writer
    faults: list[Fault]
    settings: Settings
    outcomes: Queue[Outcome[int]] = field(default_factory=Queue)

    def execute(self, sql: str, *bindings: object) -> int:
        return self.writer.run(Sql(sql, bindings))  # type: ignore[arg-type]

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return self.writer.run(Do(lambda session: session.rows(sql)))  # type: ignore[return-value]

    def together(self, works: list[Sql | Script | Do]) -> list[Outcome[object]]:
        """Submits works so that they make one group, and waits for all of them."""
        told: Queue[Outcome[object]] = Queue()
        started, go = threading.Event(), threading.Event()

        def hold(_session: WriteSession) -> None:
            started.set()
            go.wait(30)

        self.writer.submit(Do(hold), told.put)
        started.wait(30)
        for work in works:
            self.writer.submit(work, told.put)
        go.set()
        outcomes = [told.get(timeout=30) for _ in range(len(works) + 1)]
        by_work = {id(outcome.work): outcome for outcome in outcomes}
        return [by_work[id(work)] for work in works]


@contextmanager
def storage(
    directory: Path,
    *,
    settings: Settings | None = None,
    naming: Callable[[], Schema] | None = None,
    log_bound: LogBound | None = None,
) -> Iterator[Storage]:
    files, settings = SqliteFiles(directory), settings or Settings()
    catalog = open_catalog(files, settings)
    faults: list[Fault] = []
    try:
        writer = Writer(
            files, settings, post=call, on_fault=faults.append, naming=naming, log_bound=log_bound
        )
        writer.start()
        try:
            yield Storage(files, writer, faults, settings)
        finally:
            writer.stop()
    finally:
        close(catalog)


@contextmanager
def reader_pool(storage: Storage, **options: int) -> Iterator[ReaderPool]:
    pool = ReaderPool(storage.files, storage.settings, post=call, **options)
    try:
        yield pool
    finally:
        pool.stop()


def fetch(
    cursor: ReadCursor, *, max_bytes: int = 1 << 20, max_rows: int = 0, encode: Encode | None = None
) -> Batch:
    batches: Queue[Batch] = Queue()
    cursor.fetch(max_bytes, max_rows, encode, batches.put)
    return batches.get(timeout=30)


def fetch_all(
    pool: ReaderPool, sql: str, bindings: Bindings = (), limits: Limits = NO_LIMITS
) -> list[tuple[object, ...]]:
    cursor, rows = pool.open(sql, bindings, limits), []
    while True:
        batch = fetch(cursor)
        if batch.error is not None:
            raise batch.error
        rows.extend(batch.rows)
        if batch.finished:
            return rows
