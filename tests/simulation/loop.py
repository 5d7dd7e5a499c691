"""Computed time: one queue of events for all instances, and the event loop that each of them sees.

Here: Scheduler, Handle, InstanceLoop.
Not here: what travels between instances (network.py), what threads would do (threads.py).

An instance's loop is a facade of the one scheduler: so all that a run of an instance has scheduled can be
frozen, or dropped, as if its process were stopped or killed. Time passes only between events.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import sys
import traceback
import weakref
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.network import Machine, Network

EPOCH = 1_700_000_000.0  # what wall clocks say at the beginning, more or less


class Handle:
    """Something to be called, on a loop or (loop None) by the world."""

    __slots__ = ("args", "callback", "context", "loop", "off", "time")

    def __init__(
        self,
        loop: InstanceLoop | None,
        time: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self.loop = loop
        self.time = time
        self.callback = callback
        self.args = args
        self.context = context
        self.off = False

    def cancel(self) -> None:
        self.off = True
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        return self.off

    def when(self) -> float:
        return self.time


def _nothing() -> None:
    pass


class Scheduler:
    """What comes next. `trace` is the same for the same seed, and differs when anything did."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.problems: list[str] = []  # what nobody caught: each is a bug
        self.before: Callable[[Handle], None] | None = None  # called with every event that is about to happen
        # The context of a new task, where it isn't that of whoever makes it.
        self.context_of: Callable[[InstanceLoop, Any], Context | None] = lambda loop, coroutine: None
        self._ready: deque[Handle] = deque()
        self._later: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._trace = hashlib.blake2b(digest_size=8)

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def note(self, text: str | bytes) -> None:
        """Makes it a part of the trace."""
        self._trace.update(text.encode() if isinstance(text, str) else text)

    # --- scheduling ------------------------------------------------------------------------------

    def soon(self, handle: Handle) -> None:
        self._ready.append(handle)

    def at(self, handle: Handle) -> None:
        self._count += 1
        heapq.heappush(self._later, (handle.time, self._count, handle))

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Of the world outside the instances."""
        handle = Handle(None, self.now + seconds, callback, args, None)
        self.at(handle)
        return handle

    # --- running ---------------------------------------------------------------------------------

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        """Until so much time has passed, or `done()`; which of them, is the answer."""
        hooks = sys.get_asyncgen_hooks()
        # A killed process finishes nothing.
        sys.set_asyncgen_hooks(finalizer=lambda generator: None)
        try:
            return self._run_until(self.now + seconds, done)
        finally:
            sys.set_asyncgen_hooks(*hooks)

    def _run_until(self, end: float, done: Callable[[], bool] | None) -> bool:
        ready, later = self._ready, self._later
        while not self.problems:
            if done is not None and done():
                return True
            if ready:
                handle = ready.popleft()
            elif later and later[0][0] <= end:
                self.now, _, handle = heapq.heappop(later)
            else:
                self.now = end
                return done is None
            self._run(handle)
        return False

    def _run(self, handle: Handle) -> None:
        if handle.off:
            return
        loop = handle.loop
        if loop is not None:
            if loop.dead:
                return
            if loop.frozen is not None:
                loop.frozen.append(handle)
                return
        if self.before is not None:
            self.before(handle)
            if handle.off or (loop is not None and loop.dead):
                return
            if loop is not None and loop.frozen is not None:
                loop.frozen.append(handle)
                return
        self.steps += 1
        callback = handle.callback
        name = getattr(callback, "__qualname__", None) or type(callback).__name__
        where = loop.name if loop is not None else ""
        self._trace.update(f"{self.now:.6f} {where} {name}\n".encode())
        if loop is None:
            callback(*handle.args)
            return
        events._set_running_loop(loop)
        try:
            if handle.context is None:
                callback(*handle.args)
            else:
                handle.context.run(callback, *handle.args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": f"exception in {name}", "exception": error})
        finally:
            events._set_running_loop(None)


class InstanceLoop(asyncio.AbstractEventLoop):
    """The loop of one run of an instance's process. What it offers is what node/ uses."""

    def __init__(self, scheduler: Scheduler, network: Network, machine: Machine, name: str) -> None:
        self.scheduler = scheduler
        self.network = network
        self.machine = machine
        self.name = name
        self.dead = False
        self.frozen: list[Handle] | None = None  # what is to be done when the process goes on
        self._tasks: list[weakref.ref[asyncio.Task[Any]]] = []
        self._tasks_kept = 64

    # --- time and calls --------------------------------------------------------------------------

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(self, 0.0, callback, args, context if context is not None else copy_context())
        if not self.dead:
            self.scheduler.soon(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.scheduler.now + max(0.0, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(self, when, callback, args, context if context is not None else copy_context())
        if not self.dead:
            self.scheduler.at(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        context = context or self.scheduler.context_of(self, coro)
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if len(self._tasks) >= self._tasks_kept:
            self._tasks = [kept for kept in self._tasks if (found := kept()) is not None and not found.done()]
            self._tasks_kept = max(64, 2 * len(self._tasks))
        self._tasks.append(weakref.ref(task))
        return task

    def on_thread(self, seconds: float, job: Callable[[], object]) -> None:
        """As another thread of this process would do it, so much later."""
        if not self.dead:
            self.scheduler.at(
                Handle(self, self.scheduler.now + seconds, self._without_loop, (job,), Context())
            )

    @staticmethod
    def _without_loop(job: Callable[[], object]) -> None:
        events._set_running_loop(None)
        job()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def deliver(value: Any, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        def job() -> None:
            try:
                value = func(*args)
            except Exception as error:
                self.call_soon(deliver, None, error)
            else:
                self.call_soon(deliver, value, None)

        self.on_thread(self.machine.thread_delay(), job)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        error = context.get("exception")
        said = f"{context.get('message')}: {error!r}" if error is not None else str(context.get("message"))
        self.scheduler.problems.append(f"{self.name}: {said}")
        if isinstance(error, BaseException):
            self.scheduler.problems[-1] += _trail(error)

    # --- sockets ---------------------------------------------------------------------------------

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:  # type: ignore[override]
        return self.network.listen(self, protocol_factory, options["sock"])

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return await self.network.connect(self, protocol_factory, f"{host}:{port}")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:  # type: ignore[override]
        return [(0, 0, 0, "", (host, port))]

    # --- the end ---------------------------------------------------------------------------------

    def freeze(self) -> None:
        if self.frozen is None:
            self.frozen = []

    def thaw(self) -> None:
        frozen, self.frozen = self.frozen, None
        for handle in frozen or ():
            self.scheduler.soon(handle)

    def kill(self) -> None:
        """Nothing of it happens any more. Coroutines are closed, so that nobody misses them; what they do then is lost."""
        self.dead = True
        self.frozen = None
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            for kept in self._tasks:
                task = kept()
                if task is None or task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                tasks._enter_task(self, task)
                for _ in range(50):
                    try:
                        coroutine.close()
                    except Exception:  # its finally waits for something, or meets what is gone
                        continue
                    break
                tasks._leave_task(self, task)
        finally:
            events._set_running_loop(running)
        self._tasks.clear()


def _trail(error: BaseException) -> str:
    return "\n" + "".join(traceback.format_exception(error))
