"""The links between members, and to the catalog: late, lost, doubled, out of order, cut.

Here: Network, and the shapes of partitions.
Not here: when something is cut (cluster.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from shoal.shard.positions import MemberId
from shoal.sim.shard.knobs import MS, Knobs

Link: TypeAlias = tuple[MemberId, MemberId]
Shape: TypeAlias = Callable[[Sequence[MemberId]], set[Link]]


class Network:
    """Carries anything: what arrives is called then, with its argument."""

    def __init__(self, knobs: Knobs, rng: Random, call_in: Callable[[int, Callable[[], None]], None]) -> None:
        self._rng = rng
        self._call_in = call_in
        self._knobs = knobs
        self.cut: set[Link]
        self.clogged: dict[Link, int]  # µs that it takes longer
        self.now_us = 0  # told by the cluster
        self._last_arrival: dict[Link, int] = {}
        self.be_good()

    def be_good(self) -> None:
        """As networks are on most days."""
        self._usual_us = min(self._knobs.delay_us, 2 * MS)
        self._loss = self._duplication = self._tail = 0.0
        self._in_order = True
        self.heal_links()

    def be_bad(self) -> None:
        knobs = self._knobs
        self._usual_us = knobs.delay_us
        self._loss, self._duplication, self._tail = knobs.loss, knobs.duplication, knobs.tail
        self._in_order = knobs.in_order

    def send(self, sender: MemberId, receiver: MemberId, arrives: Callable[[], None]) -> None:
        rng, link = self._rng, (sender, receiver)
        if self.cut and link in self.cut:
            return
        if self._loss and rng.random() < self._loss:
            return
        self._call_in(self._delay_us(link), arrives)
        while self._duplication and rng.random() < self._duplication:
            self._call_in(self._delay_us(link), arrives)

    def _delay_us(self, link: Link) -> int:
        rng = self._rng
        delay = int(self._usual_us * (0.5 + rng.random()))
        if self._tail and rng.random() < self._tail:
            delay += int(rng.random() ** 2 * self._knobs.tail_us)
        if self.clogged:
            delay += self.clogged.get(link, 0)
        if self._in_order:
            arrival = max(self.now_us + delay, self._last_arrival.get(link, 0) + 1)
            self._last_arrival[link] = arrival
            delay = arrival - self.now_us
        return delay

    def heal_links(self) -> None:
        self.cut = set()
        self.clogged = {}


# --- shapes of partitions: the links that they cut, for members in any order ---------------------


def halves(members: Sequence[MemberId]) -> set[Link]:
    middle = len(members) // 2
    return _between(members[:middle], members[middle:])


def one_alone(members: Sequence[MemberId]) -> set[Link]:
    return _between(members[:1], members[1:])


def deaf(members: Sequence[MemberId]) -> set[Link]:
    """One hears nobody, and is heard by all."""
    return {(other, members[0]) for other in members[1:]}


def mute(members: Sequence[MemberId]) -> set[Link]:
    return {(members[0], other) for other in members[1:]}


def one_link(members: Sequence[MemberId]) -> set[Link]:
    return _between(members[:1], members[1:2])


def one_way(members: Sequence[MemberId]) -> set[Link]:
    return {(first, second) for first in members[:1] for second in members[1:2]}


SHAPES: Final[tuple[Shape, ...]] = (halves, one_alone, deaf, mute, one_link, one_way)


def _between(left: Sequence[MemberId], right: Sequence[MemberId]) -> set[Link]:
    return {link for a in left for b in right for link in ((a, b), (b, a))}
