"""What the leader knows of another member, and how much it sends it at a time.

Here: Progress and its three states; Inflight, the window of appends that aren't answered.
Not here: what is sent when (node.py).

| state | the leader | leaves it when |
|---|---|---|
| PROBE | doesn't know where the logs meet; one append at a time | an append is accepted |
| REPLICATE | sends ahead, up to a window, without waiting for answers | an append is rejected, or the member is unreachable |
| SNAPSHOT | has offered a snapshot, and sends nothing until it is installed | the member's log reaches the leader's |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shoal.raft.messages import Index

_NOTHING: Final = Index(0)


class State(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflight:
    """Appends that were sent and not answered: the last index of each, and its bytes."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._sent: deque[tuple[Index, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        return len(self._sent) >= self._max_messages or self._bytes >= self._max_bytes

    def add(self, last: Index, size_bytes: int) -> None:
        self._sent.append((last, size_bytes))
        self._bytes += size_bytes

    def answered(self, up_to: Index) -> None:
        while self._sent and self._sent[0][0] <= up_to:
            self._bytes -= self._sent.popleft()[1]

    def clear(self) -> None:
        self._sent.clear()
        self._bytes = 0


@dataclass(slots=True)
class Progress:
    inflight: Inflight
    next: Index  # the first that is not sent yet; always > match
    match: Index = _NOTHING  # up to here its log is known to be the leader's
    state: State = State.PROBE
    recently_active: bool = False  # heard of since the last check of the quorum
    waits: bool = False  # PROBE: one was sent; REPLICATE: the window was found full. An answer ends it
    snapshot: Index = _NOTHING  # SNAPSHOT: the one that was offered
    quiet_beats: int = (
        0  # SNAPSHOT: heartbeats (those in time, not for reads) since it last asked for a part of it
    )
    round: int = 0  # the last round of heartbeats that it has answered

    @property
    def is_paused(self) -> bool:
        match self.state:
            case State.PROBE | State.REPLICATE:
                return self.waits
            case State.SNAPSHOT:
                return True

    def become_probe(self) -> None:
        # A snapshot that was offered may have arrived, and only its answer got lost.
        after = max(self.match, self.snapshot) if self.state is State.SNAPSHOT else self.match
        self._reset(State.PROBE)
        self.next = Index(after + 1)

    def become_replicate(self) -> None:
        self._reset(State.REPLICATE)
        self.next = Index(self.match + 1)

    def become_snapshot(self, index: Index) -> None:
        self._reset(State.SNAPSHOT)
        self.snapshot = index
        self.next = Index(index + 1)

    def _reset(self, state: State) -> None:
        self.state = state
        self.waits = False
        self.snapshot = _NOTHING
        self.quiet_beats = 0
        self.inflight.clear()

    def sent(self, entries: int, size_bytes: int) -> None:
        """An append has left, with so many entries from `next` on."""
        if self.state is State.REPLICATE:
            if entries:
                # Optimistic: assume that it arrives, so that the next one need not wait for its answer. A rejection
                # brings `next` back.
                self.next = Index(self.next + entries)
                self.inflight.add(Index(self.next - 1), size_bytes)
            self.waits = self.inflight.is_full
        elif entries:
            self.waits = True

    def matched(self, index: Index) -> bool:
        """Its log is the leader's up to here. Was that news?"""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, Index(index + 1))
        self.waits = False
        return True

    def rejected(self, index: Index, could_match: Index) -> bool:
        """It has no match at `index`, and at most at `could_match`. Was that news, or an answer that came late?"""
        if self.state is State.REPLICATE:
            if index <= self.match:
                return False
            self.next = Index(self.match + 1)
            return True
        if self.state is State.SNAPSHOT or index != self.next - 1:
            return False
        self.next = max(min(index, Index(could_match + 1)), Index(self.match + 1))
        self.waits = False
        return True
