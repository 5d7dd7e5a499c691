"""The cluster's log while a cluster is one instance: entries are appended, applied and made known.

Here: CatalogLog, a thread that owns catalog.db, and the catalog as the event loop sees it.
Not here: what entries do (catalog/apply.py), carrying a schema change out (node/ddl.py). Agreement with
other instances isn't here yet: raft/ will stand where append() is called.

Whatever waits for an entry gets its answer after the loop has the catalog that follows from it: so who is
told that a table was created can use it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

from shoal.catalog.apply import Applied, Catalog
from shoal.catalog.entries import Entry
from shoal.errors import Fault, InternalError, ShoalError
from shoal.storage.catalog_db import CatalogDb

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

Job = Callable[[], None]


class CatalogLog:
    """All methods are for the event loop; the database belongs to the thread."""

    def __init__(self, db: CatalogDb, loop: asyncio.AbstractEventLoop, fail: Callable[[Fault], None]) -> None:
        self._db = db
        self._loop = loop
        self._fail = fail
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="catalog", daemon=True)
        self.catalog: Catalog = db.catalog
        self.last_index: int = db.last_index
        self._changed: list[Callable[[Applied], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._thread.start()

    def on_change(self, changed: Callable[[Applied], None]) -> None:
        """Calls it on the loop after each entry, before whoever proposed the entry is answered."""
        self._changed.append(changed)

    async def propose(self, entry: Entry) -> int:
        """Appends and applies. Returns the entry's index."""

        def append() -> tuple[int, Applied]:
            return self._db.append(entry, time.time_ns() // 1000)

        index, _ = await self._on_thread(append, self._publish)
        return index

    async def propose_after(self, decide: Callable[[CatalogDb], Entry | None]) -> int | None:
        """Decides on the thread, with the state that the entry will follow; None proposes nothing.

        So nothing can come between what the decision read and its entry.
        """

        def decide_and_append() -> tuple[int, Applied] | None:
            try:
                entry = decide(self._db)
            except (ShoalError, Fault):
                raise
            except Exception as error:
                _log.error("a bug met before an entry was made", exc_info=error)
                raise InternalError(f"internal error: {error!r}") from error
            return None if entry is None else self._db.append(entry, time.time_ns() // 1000)

        def publish(made: tuple[int, Applied] | None) -> None:
            if made is not None:
                self._publish(made)

        done = await self._on_thread(decide_and_append, publish)
        return None if done is None else done[0]

    async def next_change(self) -> None:
        """Returns when another entry has been applied."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        await future

    async def tidy(self) -> None:
        """Drops physical tables that no catalog names: of global tables that were dropped or truncated."""
        await self._on_thread(self._db.drop_unnamed, lambda _: None)

    async def close(self) -> None:
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _publish(self, made: tuple[int, Applied]) -> None:
        index, applied = made
        self.last_index = index
        self.catalog = applied.catalog
        for changed in self._changed:
            changed(applied)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _on_thread(self, job: Callable[[], T], publish: Callable[[T], object]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            # In one callback: what is published and what is answered can't be seen apart.
            if error is None:
                publish(result)  # type: ignore[arg-type]
            elif isinstance(error, Fault):
                self._fail(error)
            if not future.done():
                if error is None:
                    future.set_result(result)  # type: ignore[arg-type]
                else:
                    future.set_exception(error)

        def run() -> None:
            try:
                result = job()
            except (ShoalError, Fault) as error:
                self._loop.call_soon_threadsafe(deliver, None, error)
            except Exception as error:
                # A bug in an apply leaves this replica unlike the others: stop rather than go on.
                fault = Fault(f"applying to the catalog failed: {error!r}")
                fault.__cause__ = error
                self._loop.call_soon_threadsafe(deliver, None, fault)
            else:
                self._loop.call_soon_threadsafe(deliver, result, None)

        self._jobs.put(run)
        # The entry goes its way even if nobody waits for it any more: a cancelled client undoes nothing.
        return await asyncio.shield(future)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._db.close()
