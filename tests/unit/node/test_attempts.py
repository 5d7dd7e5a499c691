"""Counting wrong passwords: of one instance, and what others tell."""

from __future__ import annotations

import random

from shoal.node.attempts import Attempts
from shoal.protocol.cluster import News


def test_a_right_one_ends_the_row() -> None:
    attempts = Attempts()
    assert [attempts.failed(7) for _ in range(3)] == [1, 2, 3]
    attempts.succeeded(7)
    assert attempts[7] == 0
    assert attempts.failed(7) == 1
    assert attempts[8] == 0


def test_only_what_is_news_is_told() -> None:
    attempts = Attempts()
    attempts.succeeded(7)  # most logins are that
    assert not attempts.has_news
    attempts.failed(7)
    attempts.failed(7)
    assert attempts.take_news() == (News(7, False, 2),)
    assert not attempts.has_news
    assert attempts[7] == 2
    attempts.failed(7)
    attempts.succeeded(7)
    attempts.failed(7)
    attempts.failed(8)
    assert attempts.take_news() == (News(7, True, 1), News(8, False, 1))


def test_what_is_heard_is_added_and_not_told_again() -> None:
    attempts = Attempts()
    attempts.heard([News(7, False, 3)])
    assert attempts.failed(7) == 4
    assert attempts.take_news() == (News(7, False, 1),)
    attempts.heard([News(7, True, 1)])
    assert attempts[7] == 1
    attempts.heard([News(7, True, 0)])
    assert attempts[7] == 0
    assert attempts.users == ()


def test_what_is_forgotten_is_not_told() -> None:
    attempts = Attempts()
    attempts.failed(7)
    attempts.forget(7)
    assert (attempts[7], attempts.has_news) == (0, False)


def test_all_agree_when_all_has_been_told() -> None:
    """Failures alone: their number doesn't depend on who hears of them when."""
    rng = random.Random(5)
    for _ in range(50):
        each = [Attempts() for _ in range(4)]
        total = rng.randrange(30)
        for _ in range(total):
            rng.choice(each).failed(7)
            if rng.random() < 0.3:
                teller = rng.choice(each)
                news = teller.take_news()
                for other in each:
                    if other is not teller:
                        other.heard(news)
        for teller in each:
            news = teller.take_news()
            for other in each:
                if other is not teller:
                    other.heard(news)
        assert {attempts[7] for attempts in each} == {total}
