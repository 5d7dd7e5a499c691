"""What a master knows of another member, and how much it sends it at a time.

Here: Follower and its three states.
Not here: what is sent when (master.py).

| state | the master | leaves it when |
|---|---|---|
| UNMATCHED | doesn't know where the logs meet; announces its history | the member says where |
| APPENDING | sends ahead, up to a window, without waiting for answers | the member isn't matched any more, or what it lacks is gone |
| SNAPSHOT | has offered a snapshot, and sends nothing until it is installed | the member's log reaches the master's |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from shoal.shard.messages import LogEntry
from shoal.shard.positions import Lsn

UNKNOWN: Final = Lsn(-1)  # not even that nothing differs
FIRST: Final = Lsn(1)
NEVER: Final = -(1 << 62)


class State(Enum):
    UNMATCHED = "unmatched"
    APPENDING = "appending"
    SNAPSHOT = "snapshot"


def size_of(entry: LogEntry) -> int:
    return len(entry.payload) + 32


@dataclass(slots=True)
class Follower:
    heard_us: int  # when it last answered, or when it became one
    state: State = State.UNMATCHED
    match: Lsn = UNKNOWN  # its log is known to be the master's up to here; within a mastership it never falls
    next: Lsn = FIRST  # that isn't sent yet; > match
    moved_us: int = 0  # when `match` rose, or was all there is, the last time
    rewound_us: int = 0  # when `next` was brought back: of what was sent before, no gap is news
    probing: bool = False  # since then nothing has arrived in order: one message at a time
    number: int | None = None  # of its latest answer
    announced_us: int = NEVER
    reading: bool = False  # entries are being read from the store for it
    offered: Lsn | None = None  # the mark of the snapshot that it was offered
    asked_us: int = 0  # when it last asked for a part of that
    _inflight: deque[tuple[Lsn, int]] = field(default_factory=deque)
    _inflight_bytes: int = 0

    def has_room(self, window_bytes: int) -> bool:
        return self._inflight_bytes < (1 if self.probing else window_bytes)

    def sent(self, entries: Sequence[LogEntry]) -> None:
        # Optimistic: assume that they arrive. A gap brings `next` back.
        for entry in entries:
            size = size_of(entry)
            self._inflight.append((entry.lsn, size))
            self._inflight_bytes += size
        self.next = Lsn(entries[-1].lsn + 1)

    def matched(self, lsn: Lsn, now_us: int) -> None:
        """Its log is the master's up to there."""
        if self.state is not State.APPENDING:
            self.state = State.APPENDING
            self.offered = None
            self.rewind(max(lsn, self.match), now_us)
        if lsn > self.match:
            self.match = lsn
            self.moved_us = now_us
            self.probing = False
        self.next = max(self.next, Lsn(self.match + 1))
        while self._inflight and self._inflight[0][0] <= self.match:
            self._inflight_bytes -= self._inflight.popleft()[1]

    def rewind(self, matched: Lsn, now_us: int) -> None:
        """What was sent behind this didn't arrive, or not in order."""
        self.probing = True
        self.next = Lsn(max(matched, self.match) + 1)
        self.rewound_us = now_us
        self._inflight.clear()
        self._inflight_bytes = 0

    def unmatched(self) -> None:
        self.state = State.UNMATCHED
        self.announced_us = NEVER

    def offer(self, mark: Lsn, now_us: int) -> None:
        self.state = State.SNAPSHOT
        self.offered = mark
        self.asked_us = now_us
