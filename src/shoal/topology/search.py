"""Looking for a cluster: how instances that start together agree on who begins it.

Here: Search, what one of them knows and does: whom to ask, what to answer, and the result.
Not here: asking (node/discovery.py).

Everybody asks everybody it has heard of, and tells whom it has heard of. Who has got an answer of each of them, and heard
of nobody else meanwhile, knows the whole group, if the lists of peers that they were started with are connected:
then the one with the smallest address of those that may vote begins the cluster, and the others join it. Somebody
who is in a cluster already ends the search of all who ask.

Two can't both begin one: each would have had an answer of the other, so both know the same group, and in it there is one
smallest address.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seeker:
    uuid: str
    address: str
    can_vote: bool


@dataclass(slots=True)
class Search:
    me: Seeker
    known: set[str]  # addresses, as the lists of peers and the others name them
    answered: dict[str, Seeker] = field(default_factory=dict)  # by the address under which it was asked
    decided: bool = False  # nobody else is asked any more, and nobody may come between

    def __post_init__(self) -> None:
        self.known.add(self.me.address)
        self.answered[self.me.address] = self.me

    def to_ask(self) -> list[str]:
        """Those that haven't answered yet."""
        return sorted(address for address in self.known if address not in self.answered)

    def hear(self, address: str, who: Seeker, known: Iterable[str]) -> None:
        """An answer; or a question, from its own address."""
        self.known.update(known)
        self.known.add(who.address)
        self.answered[address] = who

    def asked_by(self, who: Seeker, known: Iterable[str]) -> None:
        """It is one more to ask: that it can reach us doesn't say that we can reach it."""
        self.known.update(known)
        self.known.add(who.address)

    @property
    def is_complete(self) -> bool:
        return not self.to_ask()

    def first(self) -> Seeker | None:
        """Who is to begin the cluster, once all have answered; None: none of them may vote."""
        seekers = {who.uuid: who for who in self.answered.values()}
        return min(
            (who for who in seekers.values() if who.can_vote),
            key=lambda who: (who.address, who.uuid),
            default=None,
        )

    def decide(self) -> bool:
        """Is it us?"""
        first = self.first() if self.is_complete else None
        self.decided = first is not None and first.uuid == self.me.uuid
        return self.decided
