"""Many deadlines, one timer.

Here: Deadlines. Most of what has a deadline is done long before it, so a timer for each would be set in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Calls `expire(now)` when the earliest deadline is due; that returns the earliest of those that remain."""

    __slots__ = ("_at", "_expire", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[float], float | None]) -> None:
        self._loop = loop
        self._expire = expire
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0  # when the timer is due

    def add(self, deadline: float) -> None:
        if self._timer is None or deadline < self._at:
            self._set(deadline)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, deadline: float) -> None:
        self.cancel()
        self._at = deadline
        self._timer = self._loop.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        # Timers may be early by what the clock's resolution leaves out.
        earliest = self._expire(max(self._loop.time(), self._at))
        if earliest is not None:
            self.add(earliest)
