"""Work that would keep everybody waiting, such as parsing a long text: on threads of its own.

Here: Aside, two threads and what waits for them.
Not here: the threads of storage (storage/), what is parsed (statements.py).

asyncio has such threads, too, but it stops only when they have finished, and a text of megabytes takes
longer than whoever stops an instance should wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_THREADS: Final = 2


class Aside:
    """Threads that end with the process, whatever they are doing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._threads = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Who is cancelled while it waits leaves the work to its thread, and its result to nobody."""
        future: asyncio.Future[T] = self._loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def job() -> None:
            if future.cancelled():
                return
            result, error = None, None
            try:
                result = function(*args, **kwargs)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(deliver, result, error)

        if self._threads < _THREADS:
            self._threads += 1
            threading.Thread(target=self._run, name="shoal-aside", daemon=True).start()
        self._jobs.put(job)
        return await future

    def _run(self) -> None:
        while True:
            self._jobs.get()()
