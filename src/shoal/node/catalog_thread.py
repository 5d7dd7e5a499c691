"""The thread that owns the writing connection of catalog.db.

Here: CatalogThread: jobs go in, their results come back to the event loop.
Not here: which jobs (raft_loop.py saves and applies, catalog_log.py decides), the database (storage/catalog_db.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from shoal.errors import Fault, InternalError, ShoalError
from shoal.storage.catalog_db import CatalogDb

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)


class Result(Generic[T]):
    """What became of a job: a value, or what it raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None, error: ShoalError | Fault | None) -> None:
        self._value = value
        self._error = error

    @property
    def error(self) -> ShoalError | Fault | None:
        return self._error

    def get(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class CatalogThread:
    """Methods are for the event loop. Jobs run one after another, in the order in which they came."""

    def __init__(self, db: CatalogDb, loop: asyncio.AbstractEventLoop) -> None:
        self.db: Final = db
        self._loop = loop
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="catalog", daemon=True)
        self._thread.start()

    def post(self, job: Callable[[CatalogDb], T], done: Callable[[Result[T]], None]) -> None:
        """Calls `done` on the loop, with what the job returned or raised. A bug in the job is a Fault."""

        def run() -> None:
            result: Result[T]
            try:
                result = Result(job(self.db), None)
            except (ShoalError, Fault) as error:
                result = Result(None, error)
            except Exception as error:
                fault = Fault(f"work on the catalog failed: {error!r}")
                fault.__cause__ = error
                result = Result(None, fault)
            self._loop.call_soon_threadsafe(done, result)

        self._put(run)

    def _put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    async def run(self, job: Callable[[CatalogDb], T]) -> T:
        """For jobs that ask and leave nothing behind, so a bug in one is no Fault but an answer, and the log has it.

        The job is done whoever waits for it: a cancelled client undoes nothing.
        """

        def answered(db: CatalogDb) -> T:
            try:
                return job(db)
            except (ShoalError, Fault):
                raise
            except Exception as error:
                _log.error("a question to the catalog failed by a bug", exc_info=error)
                raise InternalError(f"internal error: {error!r}") from error

        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: Result[T]) -> None:
            if future.done():
                return
            if result.error is not None:
                future.set_exception(result.error)
            else:
                future.set_result(result.get())

        self.post(answered, done)
        return await future

    async def close(self) -> None:
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self.db.close()
