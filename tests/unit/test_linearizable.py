"""The checker of histories finds what is wrong, and only that."""

from __future__ import annotations

import itertools
import math
import random
import time

import pytest

from tests.linearizable import Model, Operation, S, TooMuch, explanation, register, set_of_numbers

INFINITE = math.inf


def op(what: str, *given: int, at: tuple[float, float], answer: object) -> Operation:
    return Operation(what, given, answer, *at)


def is_register(*history: Operation) -> bool:
    return explanation(history, register, 0) is not None


def test_one_after_another() -> None:
    assert is_register(
        op("write", 1, at=(0, 1), answer=True),
        op("read", at=(2, 3), answer=1),
        op("swap", 1, 2, at=(4, 5), answer=True),
        op("swap", 1, 3, at=(6, 7), answer=False),
        op("read", at=(8, 9), answer=2),
    )


def test_a_stale_read() -> None:
    write = op("write", 1, at=(0, 1), answer=True)
    assert not is_register(write, op("read", at=(2, 3), answer=0))
    assert is_register(write, op("read", at=(0.5, 3), answer=0))


def test_two_reads_that_disagree_about_the_order() -> None:
    writes = (op("write", 1, at=(0, 10), answer=True), op("write", 2, at=(0, 10), answer=True))
    assert is_register(*writes, op("read", at=(1, 2), answer=1), op("read", at=(3, 4), answer=2))
    assert not is_register(
        *writes,
        op("read", at=(1, 2), answer=1),
        op("read", at=(3, 4), answer=2),
        op("read", at=(5, 6), answer=1),
    )


def test_a_lost_update() -> None:
    """Both have swapped the same value."""
    assert not is_register(op("swap", 0, 1, at=(0, 2), answer=True), op("swap", 0, 2, at=(1, 3), answer=True))


def test_what_is_unknown_may_have_happened_at_any_time_or_never() -> None:
    unknown = op("write", 7, at=(0, INFINITE), answer=None)
    assert is_register(unknown, op("read", at=(5, 6), answer=7))
    assert is_register(unknown, op("read", at=(5, 6), answer=0))
    assert is_register(unknown, op("read", at=(5, 6), answer=0), op("read", at=(7, 8), answer=7))
    assert not is_register(unknown, op("read", at=(5, 6), answer=7), op("read", at=(7, 8), answer=0))
    # A swap that failed tells of it, too.
    assert is_register(unknown, op("swap", 0, 1, at=(5, 6), answer=False))


def test_what_was_not_called_yet_has_not_happened() -> None:
    assert not is_register(op("read", at=(0, 1), answer=7), op("write", 7, at=(2, INFINITE), answer=None))


def test_sets() -> None:
    def right(*history: Operation) -> bool:
        return explanation(history, set_of_numbers, frozenset()) is not None

    adds = (op("add", 1, at=(0, 2), answer=True), op("add", 2, at=(1, 3), answer=True))
    assert right(*adds, op("read", at=(1, 2), answer=frozenset({2})))
    assert right(*adds, op("read", at=(4, 5), answer=frozenset({1, 2})))
    assert not right(*adds, op("read", at=(4, 5), answer=frozenset({2})))
    assert not right(*adds, op("read", at=(4, 5), answer=frozenset({1, 2, 3})))
    assert not right(*adds, op("add", 1, at=(4, 5), answer=True))
    assert right(*adds, op("remove", 1, at=(4, 5), answer=True), op("add", 1, at=(6, 7), answer=True))
    # Two readers that saw the adds in two orders.
    assert not right(
        op("add", 1, at=(0, 9), answer=True),
        op("add", 2, at=(0, 9), answer=True),
        op("read", at=(1, 2), answer=frozenset({1})),
        op("read", at=(3, 4), answer=frozenset({2})),
    )


def make(chance: random.Random, count: int, clients: int) -> list[Operation]:
    """A history of a register that really was one: each operation happens at a moment between its ends."""
    history, value = [], 0
    clock = [0.0] * clients
    moments = []
    for number in range(count):
        client = chance.randrange(clients)
        called = clock[client] + chance.random()
        happened = called + chance.random()
        answered = happened + chance.random()
        clock[client] = answered
        moments.append((happened, number, called, answered, chance.choice(("write", "swap", "read", "lost"))))
    for _, number, called, answered, what in sorted(moments):
        if what == "write":
            history.append(op("write", number, at=(called, answered), answer=True))
            value = number
        elif what == "swap":
            before = chance.choice((value, number - 1))
            history.append(op("swap", before, number, at=(called, answered), answer=before == value))
            value = number if before == value else value
        elif what == "read" or chance.random() < 0.8:
            history.append(op("read", at=(called, answered), answer=value))
        else:
            history.append(op("write", number, at=(called, INFINITE), answer=None))
            value = number if chance.random() < 0.5 else value
    return history


@pytest.mark.parametrize("seed", range(6))
def test_long_histories_and_one_lie_in_them(seed: int) -> None:
    chance = random.Random(seed)
    history = make(chance, 300, 8)
    begun = time.perf_counter()
    assert explanation(history, register, 0) is not None
    assert time.perf_counter() - begun < 30
    reads = [each for each in history if each.what == "read"]
    lie = chance.choice(reads)
    history[history.index(lie)] = op("read", at=(lie.called, lie.answered), answer=-1)
    assert explanation(history, register, 0) is None


def by_trying_all(history: list[Operation], model: Model[S], first: S) -> bool:
    known = [each for each in history if each.answer is not None]
    unknown = [each for each in history if each.answer is None]
    for count in range(len(unknown) + 1):
        for some in itertools.combinations(unknown, count):
            for order in itertools.permutations((*known, *some)):
                if any(a.answered < b.called for b, a in itertools.combinations(order, 2)):
                    continue
                state = first
                for each in order:
                    state, right = model(state, each)
                    if not right:
                        break
                else:
                    return True
    return False


@pytest.mark.parametrize("seed", range(300))
def test_short_histories_as_by_trying_all_orders(seed: int) -> None:
    chance = random.Random(seed)
    history, sets = [], seed % 2 == 1
    for _ in range(chance.randint(3, 6)):
        called = chance.uniform(0, 3)
        unknown = chance.random() < 0.4
        answered = INFINITE if unknown else called + chance.uniform(0, 2)
        what = chance.choice(("add", "remove", "read") if sets else ("write", "swap", "read"))
        given = [] if what == "read" else [chance.randint(0, 2) for _ in range(2 if what == "swap" else 1)]
        answer: object = chance.random() < 0.5
        if what == "read":
            answer = (
                frozenset(chance.sample(range(3), chance.randint(0, 3))) if sets else chance.randint(0, 2)
            )
        history.append(op(what, *given, at=(called, answered), answer=None if unknown else answer))
    if sets:
        found = explanation(history, set_of_numbers, frozenset()) is not None
        assert found == by_trying_all(history, set_of_numbers, frozenset())
    else:
        assert is_register(*history) == by_trying_all(history, register, 0)


def test_the_search_has_a_bound() -> None:
    history = [op("write", n, at=(0, 1), answer=True) for n in range(20)]
    with pytest.raises(TooMuch):
        explanation([*history, op("read", at=(2, 3), answer=99)], register, 0, steps_max=1000)
