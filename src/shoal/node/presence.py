"""Being Online: an instance asks for it when it has started, and again whenever the cluster has given it up.

Here: Presence; Patience, how long it waits before it asks again.
Not here: who is given up (governor/rules/offline.py), what the request changes (governor/admission.py).

Whoever was frozen, or cut off, finds out by the log: its own row says Offline. It catches up with the log first, and with
what that asks of its tables; then it asks. One that is given up again and again asks ever less often, so that it
doesn't keep the others busy; and many that come back at the same time don't ask at the same moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from shoal.errors import ShoalError
from shoal.topology.cluster import Instance, Variant

_log: Final = logging.getLogger(__name__)

_AT_FIRST_SECONDS: Final = 0.1
_AT_MOST_SECONDS: Final = 60.0
_STEADY_SECONDS: Final = 30.0  # Online for so long: what was before is forgotten
_CATCH_UP_SECONDS: Final = 10.0


class Patience:
    """Twice as long after each time, and never the same for two who begin together."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance  # from 0 to 1
        self._times = 0
        self._online_since: float | None = None

    def online(self, now: float) -> None:
        self._online_since = now

    def seconds(self, now: float) -> float:
        """Before it asks once more."""
        if self._online_since is not None and now - self._online_since >= _STEADY_SECONDS:
            self._times = 0
        self._online_since = None
        most = min(_AT_FIRST_SECONDS * 2.0 ** min(self._times, 30), _AT_MOST_SECONDS)
        self._times += 1
        return most * (0.5 + self._chance() / 2)


class Presence:
    """Lives on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        instance: Callable[[], Instance | None],
        catch_up: Callable[[float], Awaitable[None]],
        ask: Callable[[str], Awaitable[None]],
        chance: Callable[[], float],
        scale: float,
    ) -> None:
        """`instance()` is our own row, `ask(reason)` a request to the leader."""
        self._loop = loop
        self._instance = instance
        self._catch_up = catch_up
        self._ask = ask
        self._scale = scale
        self._patience = Patience(chance)
        self._news = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None

    def on_topology(self) -> None:
        """Our row may have changed."""
        self._news.set()

    async def begin(self, seconds: float) -> None:
        """Returns when the cluster counts this instance as Online, and it has applied that. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while (instance := self._instance()) is None:  # the entry that we joined by has not come yet
                await self._change()
            reason = "wakeup" if instance.current.incarnation else "join"
            while not await self._has_come_online(seconds, reason):
                await self._pause()
        self._staying = self._loop.create_task(self._stay())

    async def stop(self) -> None:
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.wait((self._staying,))

    async def _has_come_online(self, seconds: float, reason: str) -> bool:
        """False: it was given up again before it was there."""
        await self._catch_up(seconds)
        before = self._row().target.incarnation
        await self._ask(reason)
        while True:
            instance = self._row()
            if instance.is_online and instance.current.incarnation > before:
                self._patience.online(self._loop.time())
                return True
            if instance.target.variant is Variant.OFFLINE and instance.target.incarnation > before:
                return False
            await self._change()

    async def _stay(self) -> None:
        while True:
            while self._row().target.variant is not Variant.OFFLINE:
                await self._change()
            _log.warning("this instance was made Offline: %s", self._row().reason)
            while self._row().target.variant is Variant.OFFLINE:
                await self._pause()
                try:
                    async with asyncio.timeout(2 * _CATCH_UP_SECONDS * self._scale):
                        if await self._has_come_online(_CATCH_UP_SECONDS * self._scale, "return"):
                            _log.info("this instance is Online again")
                except (ShoalError, TimeoutError) as error:
                    _log.info("not Online yet: %s", str(error) or "not in time")

    async def _pause(self) -> None:
        await asyncio.sleep(self._patience.seconds(self._loop.time()) * self._scale)

    async def _change(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _row(self) -> Instance:
        instance = self._instance()
        assert instance is not None
        return instance
