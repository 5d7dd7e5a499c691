"""The links between the members: late, lost, doubled, out of order, cut.

Here: Network, and the shapes of partitions.
Not here: when something is cut (cluster.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from shoal.raft.messages import Append, Envelope, RaftId, decode, encode
from shoal.sim.knobs import ENTRIES_US_MAX, REPLAY_TICKS, TICK_US, Knobs

Link: TypeAlias = tuple[RaftId, RaftId]
Shape: TypeAlias = Callable[[Sequence[RaftId]], set[Link]]


class Network:
    def __init__(
        self,
        knobs: Knobs,
        rng: Random,
        deliver_in: Callable[[int, Envelope], None],
        lost: Callable[[Envelope], None],
    ) -> None:
        self._rng = rng
        self._deliver_in = deliver_in
        self._lost = lost
        self._knobs = knobs
        self._usual_us = knobs.delay_us
        self._entry_us = knobs.entry_us
        self._loss = knobs.loss
        self._duplication = knobs.duplication
        self._replay = 0.0 if knobs.in_order else knobs.replay
        self._tail = knobs.tail
        self.cut: set[Link] = set()
        self.clogged: dict[Link, int] = {}  # µs that it takes longer
        self.now_us = 0  # told by the cluster
        self._last_arrival: dict[Link, int] = {}

    def send(self, envelope: Envelope) -> None:
        rng = self._rng
        if self.cut and (envelope.sender, envelope.receiver) in self.cut:
            self._lost(envelope)
            return
        if self._loss and rng.random() < self._loss:
            self._lost(envelope)
            return
        if self._knobs.over_the_wire:
            envelope = decode(encode(envelope))
        self._deliver_in(self._delay_us(envelope), envelope)
        while self._duplication and rng.random() < self._duplication:
            self._deliver_in(self._delay_us(envelope), envelope)
        if self._replay and rng.random() < self._replay:
            self._deliver_in(int(rng.random() * REPLAY_TICKS * TICK_US), envelope)

    def _delay_us(self, envelope: Envelope) -> int:
        rng = self._rng
        delay = int(self._usual_us * (0.5 + rng.random()))
        if self._tail and rng.random() < self._tail:
            delay += int(rng.random() ** 2 * self._knobs.tail_us)
        if self._entry_us and isinstance(envelope.message, Append):
            delay += min(self._entry_us * len(envelope.message.entries), ENTRIES_US_MAX)
        if self.clogged:
            delay += self.clogged.get((envelope.sender, envelope.receiver), 0)
        if self._knobs.in_order:
            link = (envelope.sender, envelope.receiver)
            arrival = max(self.now_us + delay, self._last_arrival.get(link, 0) + 1)
            self._last_arrival[link] = arrival
            delay = arrival - self.now_us
        return delay

    def heal_links(self) -> None:
        self.cut = set()
        self.clogged = {}

    def heal(self) -> None:
        """For good: from now on it is a good network."""
        self.heal_links()
        self._usual_us = min(self._usual_us, 5_000)
        self._entry_us = 0
        self._loss = self._duplication = self._tail = self._replay = 0.0


# --- shapes of partitions: the links that they cut, for members in any order ---------------------


def halves(members: Sequence[RaftId]) -> set[Link]:
    middle = len(members) // 2
    return between(members[:middle], members[middle:])


def one_alone(members: Sequence[RaftId]) -> set[Link]:
    return between(members[:1], members[1:])


def ring(members: Sequence[RaftId]) -> set[Link]:
    """Everyone reaches its two neighbours only."""
    n = len(members)
    return {
        (members[i], members[j])
        for i in range(n)
        for j in range(n)
        if i != j and (i - j) % n not in (1, n - 1)
    }


def bridge(members: Sequence[RaftId]) -> set[Link]:
    """Two halves, and one member that reaches both."""
    middle = len(members) // 2
    return between(members[:middle], members[middle + 1 :])


def deaf(members: Sequence[RaftId]) -> set[Link]:
    """One hears nobody, and is heard by all."""
    return {(other, members[0]) for other in members[1:]}


def mute(members: Sequence[RaftId]) -> set[Link]:
    return {(members[0], other) for other in members[1:]}


def one_link(members: Sequence[RaftId]) -> set[Link]:
    return between(members[:1], members[1:2])


def one_way(members: Sequence[RaftId]) -> set[Link]:
    return {(first, second) for first in members[:1] for second in members[1:2]}


SHAPES: Final[tuple[Shape, ...]] = (halves, one_alone, ring, bridge, deaf, mute, one_link, one_way)


def between(left: Sequence[RaftId], right: Sequence[RaftId]) -> set[Link]:
    return {link for a in left for b in right for link in ((a, b), (b, a))}
