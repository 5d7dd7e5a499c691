"""The threads of an instance as events: what each would do happens on the one thread there is, some time later.

Here: CatalogTurns, WriterTurns, ReaderTurns, which take the places of CatalogThread, Writer and ReaderPool; outside_of().
Not here: what they do, which is all inherited.

A job runs at one moment, and who waits for it hears of it at a later one: between the two the process may die.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from shoal.node.aside import Aside
from shoal.node.catalog_thread import CatalogThread
from shoal.node.outside import Outside
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.readers import ReaderPool, _Fetch
from shoal.storage.writer import Outcome, Writer, WriteWork
from tests.simulation.loop import EPOCH, InstanceLoop, Scheduler


class Turns:
    """A thread: one job after another, each some time after the one before."""

    def __init__(self, loop: InstanceLoop) -> None:
        self._loop = loop
        self._jobs: deque[Callable[[], None]] = deque()
        self._busy = False

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if not self._busy:
            self._busy = True
            self._next()

    def _next(self) -> None:
        self._loop.on_thread(self._loop.machine.thread_delay(), self._run)

    def _run(self) -> None:
        self._jobs.popleft()()
        if self._jobs:
            self._next()
        else:
            self._busy = False


class AsideTurns(Aside):
    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._loop.run_in_executor(None, partial(function, *args, **kwargs))


class CatalogTurns(CatalogThread):
    """`watch` is told of everything that a job has returned, before anything else may happen."""

    def __init__(
        self, db: CatalogDb, loop: asyncio.AbstractEventLoop, watch: Callable[[CatalogDb, object], None]
    ) -> None:
        self._watch = watch
        super().__init__(db, loop)

    def _start(self) -> None:
        self._turns = Turns(cast(InstanceLoop, self._loop))

    def post(self, job: Callable[[CatalogDb], Any], done: Callable[[Any], None]) -> None:
        def watched(db: CatalogDb) -> Any:
            value = job(db)
            self._watch(db, value)
            return value

        super().post(watched, done)

    def _put(self, job: Callable[[], None]) -> None:
        self._turns.put(job)

    def abandon(self) -> None:
        self.db.close()

    async def close(self) -> None:
        closed = self._loop.create_future()

        def close() -> None:
            self.db.close()
            self._loop.call_soon_threadsafe(closed.set_result, None)

        self._turns.put(close)
        await closed


class WriterTurns(Writer):
    def __init__(self, loop: InstanceLoop, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.clock = lambda: 0.0
        self._turns = Turns(loop)

    def start(self) -> None:
        pass

    def submit(self, work: WriteWork[Any], done: Callable[[Outcome[Any]], None]) -> Outcome[Any]:
        outcome = super().submit(work, done)
        self._turns.put(self._turn)
        return outcome

    def _turn(self) -> None:
        if not self._queue.empty():  # else a group before has taken it along
            first = self._queue.get_nowait()
            assert first is not None
            self._take_turn(first)

    def abandon(self) -> None:
        """What waits was never begun."""
        if not self._stopping:
            super().stop()

    def stop(self) -> None:
        while not self._queue.empty():
            self._turn()
        super().stop()


class ReaderTurns(ReaderPool):
    def __init__(self, loop: InstanceLoop, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop = loop

    def abandon(self) -> None:
        if not self._stopping:
            super().stop()

    def _submit(self, job: _Fetch) -> None:
        self._loop.on_thread(self._loop.machine.thread_delay(), lambda: self._do(job))


def outside_of(
    loop: InstanceLoop,
    scheduler: Scheduler,
    chance: Random,
    skew: float,
    watch: Callable[[CatalogDb, object], None],
    opened: list[Any],
) -> Outside:
    """`opened` is told what has files open. `skew`: how far the wall clock is off, in seconds."""

    def keep(made: Any) -> Any:
        opened.append(made)
        return made

    return Outside(
        now=lambda: int((EPOCH + scheduler.now + skew) * 1e6),
        chance=chance,
        aside=AsideTurns,
        catalog_thread=lambda db, its: keep(CatalogTurns(db, its, watch)),
        writer=lambda *args, **options: keep(WriterTurns(loop, *args, **options)),
        readers=lambda *args, **options: keep(ReaderTurns(loop, *args, **options)),
    )
