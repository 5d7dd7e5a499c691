"""Wrong passwords, counted for the whole cluster: in memory, without a word in the log.

Here: Attempts, the count of one instance, which hears of the others'.
Not here: when it is told, and what follows from a count (accounts.py), News (protocol/cluster.py).

A count is of failures one after another: a right password ends it. Each instance counts what it has met and adds what the others
tell. News that come late or get lost make a count a little wrong, which is the price for not asking anybody while a client
waits: an attacker who tries everywhere at the same instant gets one instance's share of guesses at each of them, not more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from shoal.protocol.cluster import News

UserId: TypeAlias = int


class Attempts:
    def __init__(self) -> None:
        self._counts: dict[UserId, int] = {}  # none is 0
        self._news: dict[UserId, News] = {}

    def __getitem__(self, user_id: UserId) -> int:
        return self._counts.get(user_id, 0)

    @property
    def users(self) -> tuple[UserId, ...]:
        return tuple(self._counts)

    def failed(self, user_id: UserId) -> int:
        """Returns how many they are."""
        count = self._counts[user_id] = self[user_id] + 1
        told = self._news.get(user_id, News(user_id, False, 0))
        self._news[user_id] = News(user_id, told.succeeded, told.failures + 1)
        return count

    def succeeded(self, user_id: UserId) -> None:
        # Of a user without failures there is nothing to tell: most logins are that.
        if self._counts.pop(user_id, 0):
            self._news[user_id] = News(user_id, True, 0)

    def heard(self, news: Iterable[News]) -> None:
        for of_user in news:
            before = 0 if of_user.succeeded else self[of_user.user_id]
            self._counts.pop(of_user.user_id, None)
            if before + of_user.failures > 0:
                self._counts[of_user.user_id] = before + of_user.failures

    def forget(self, user_id: UserId) -> None:
        """Its password, or whether it may log in, is another now. All instances see that by themselves."""
        self._counts.pop(user_id, None)
        self._news.pop(user_id, None)

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def take_news(self) -> tuple[News, ...]:
        news = tuple(self._news.values())
        self._news.clear()
        return news
