"""What the leader hears of the others, and for how long it has not.

Here: Hearing, the evidence that the governor's rule judges by (governor/rules/offline.py).
Not here: the judgement, what is heard (raft_loop.py, rpc/).

Silence is counted in beats of our own loop, one after another. A loop that is held up, or a process that gets no CPU or
stands still, beats less often: what it could not hear in that time it doesn't blame on anybody. So on a busy machine
the timeouts grow by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shoal.governor.rules.offline import evidence
from shoal.governor.state import Heard
from shoal.raft.node import Node
from shoal.raft.progress import Progress, State

_BEAT_SECONDS: Final = 0.1


@dataclass(slots=True)
class _Of:
    """One of the others. In beats."""

    silent: int = 0
    stalled: int = 0
    match: int = 0
    gone: bool = False


class Hearing:
    """Lives on the event loop."""

    def __init__(
        self,
        core: Node,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds: Callable[[], float],
        should_be_online: Callable[[int], bool],
        lost: Callable[[], None],
        scale: float,
    ) -> None:
        """`lost()` is called when somebody who should be Online doesn't seem to be, and on every beat until it is judged."""
        self._core = core
        self._loop = loop
        self._seconds = seconds
        self._should_be_online = should_be_online
        self._lost = lost
        self._beat_seconds = _BEAT_SECONDS * scale
        self._of: dict[int, _Of] = {}
        self._timer: asyncio.TimerHandle | None = None

    def on_role(self) -> None:
        """To be called when this instance begins to lead, or ends. Nobody else listens."""
        if not self._core.is_leader:
            self.stop()
        elif self._timer is None:
            # Who didn't lead until now hasn't listened.
            self._of = {raft_id: _Of(gone=of.gone) for raft_id, of in self._of.items()}
            self._timer = self._loop.call_later(self._beat_seconds, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def heard(self, raft_id: int) -> None:
        """A sign of life."""
        of = self._of.get(raft_id)
        if of is not None:
            of.silent = 0
            of.gone = False

    def began_anew(self, raft_id: int) -> None:
        """It has started again, or is Online again: what was before doesn't count."""
        self._of.pop(raft_id, None)

    def refused(self, raft_id: int) -> None:
        """Nobody listens at its address."""
        self._of.setdefault(raft_id, _Of()).gone = True
        if self._core.is_leader:
            self._lost()

    def of_all(self) -> Mapping[int, Heard]:
        """Nobody leads: nobody is judged."""
        if not self._core.is_leader:
            return {}
        beat = self._beat_seconds
        return {
            raft_id: Heard(of.silent * beat, of.gone, of.stalled * beat) for raft_id, of in self._of.items()
        }

    def _beat(self) -> None:
        # The next one is counted from now on, however late this one is.
        self._timer = self._loop.call_later(self._beat_seconds, self._beat)
        core = self._core
        for raft_id in [raft_id for raft_id in self._of if raft_id not in core.progress]:
            del self._of[raft_id]
        for raft_id, progress in core.progress.items():
            if raft_id != core.id:
                of = self._of.setdefault(raft_id, _Of())
                of.silent += 1
                self._follow(of, progress)
        seconds = self._seconds()
        if any(
            evidence(heard, seconds) is not None and self._should_be_online(raft_id)
            for raft_id, heard in self.of_all().items()
        ):
            self._lost()

    def _follow(self, of: _Of, progress: Progress) -> None:
        """How far it is: what is saved is applied in the same transaction."""
        log = self._core.log
        has_all = progress.match >= log.applied
        needs_snapshot = progress.state is State.SNAPSHOT or progress.match < log.mark.index
        if has_all or needs_snapshot or progress.match > of.match:
            of.stalled = 0
        else:
            of.stalled += 1
        of.match = progress.match
