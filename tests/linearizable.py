"""Is a history linearizable? Did each operation happen as a whole at one moment between its call and its answer?

Here: Operation, the models of a register and of a set, and explanation(), the search for an order.
Not here: making histories (system/chaos.py).

The search is that of Wing and Gong: take one of the operations that may come next, see whether its answer is right, go on;
else take that back and try another. What has been tried, which operations are done and what they led to, is
remembered, so nothing is tried twice. Keys are independent of each other, so each is searched by itself.

An operation whose outcome is unknown may have happened at any time after its call, or never: it has no answer that
could be wrong, and no end. So it is taken only where the next one needs it: who would be right without it can come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

S = TypeVar("S")

STEPS_MAX: Final = 3_000_000


@dataclass(frozen=True, slots=True)
class Operation:
    what: str
    given: tuple[int, ...]
    answer: object  # None: unknown
    called: float
    answered: float = math.inf

    def __str__(self) -> str:
        given = ", ".join(map(str, self.given))
        ended = "" if math.isinf(self.answered) else f"{self.answered:.6f}"
        return (
            f"{self.called:.6f}–{ended} {self.what}({given}) → {'?' if self.answer is None else self.answer}"
        )


# The state after an operation, and whether its answer is right.
Model: TypeAlias = Callable[[S, Operation], tuple[S, bool]]


def register(value: int, operation: Operation) -> tuple[int, bool]:
    """write(v), swap(from, to) → was it there?, read() → v."""
    answer = operation.answer
    match operation.what:
        case "write":
            return operation.given[0], True
        case "swap":
            before, after = operation.given
            there = value == before
            return (after if there else value), answer in (None, there)
        case "read":
            return value, answer in (None, value)
    raise AssertionError(operation)


def set_of_numbers(members: frozenset[int], operation: Operation) -> tuple[frozenset[int], bool]:
    """add(e) → was it new?, remove(e) → was it there?, read() → all of them."""
    answer = operation.answer
    match operation.what:
        case "add":
            (element,) = operation.given
            return members | {element}, answer in (None, element not in members)
        case "remove":
            (element,) = operation.given
            return members - {element}, answer in (None, element in members)
        case "read":
            return members, answer in (None, members)
    raise AssertionError(operation)


class TooMuch(AssertionError):
    """The search was given up: the history must be shorter."""


def explanation(
    history: Sequence[Operation], model: Model[S], first: S, *, steps_max: int = STEPS_MAX
) -> list[Operation] | None:
    """An order in which all of it happened one after another; None: there is none."""
    operations = sorted(history, key=lambda operation: operation.called)
    count = len(operations)
    known = sum(1 << at for at in range(count) if not math.isinf(operations[at].answered))
    tried: set[object] = set()
    done, state = 0, first
    chosen: list[tuple[int, int, S]] = []  # an operation; what was done before it, and what it led from
    alternatives: list[list[int]] = []
    steps = 0
    following = _candidates(operations, done)
    while True:
        if done & known == known:
            return [operations[each] for each, _, _ in chosen]
        steps += 1
        if steps > steps_max:
            raise TooMuch(f"{count} operations, {count - known.bit_count()} of them unknown")
        while following:
            at = following.pop()
            then, right = model(state, operations[at])
            if not right or (chosen and not _may_follow(model, operations, known, chosen[-1], at, then)):
                continue
            is_unknown = not known >> at & 1
            if is_unknown and then == state:
                continue
            # Who comes after an unknown one must need it; so that one is part of what was tried.
            key = (done | 1 << at, then, (at, state) if is_unknown else None)
            if key not in tried:
                tried.add(key)
                chosen.append((at, done, state))
                alternatives.append(following)
                done, state = done | 1 << at, then
                following = _candidates(operations, done)
                break
        else:
            if not chosen:
                return None
            _, done, state = chosen.pop()
            following = alternatives.pop()


def _candidates(operations: Sequence[Operation], done: int) -> list[int]:
    """What may come next, the likeliest last: called before any other of the rest was answered."""
    bound = math.inf
    found: list[int] = []
    for at in range((~done & done + 1).bit_length() - 1, len(operations)):
        if done >> at & 1:
            continue
        operation = operations[at]
        if operation.called > bound:
            break
        bound = min(bound, operation.answered)
        found.append(at)
    found.sort(key=lambda at: -operations[at].answered)
    return found


def _may_follow(
    model: Model[S],
    operations: Sequence[Operation],
    known: int,
    last: tuple[int, int, S],
    at: int,
    then: S,
) -> bool:
    """If the last one is unknown, is it needed?"""
    unknown, _, before = last
    if known >> unknown & 1:
        return True
    without, right = model(before, operations[at])
    if known >> at & 1:
        return not right
    # Two of them: only if the first makes a difference, and in one order if there is none between the orders.
    if without == then:
        return False
    other_way, _ = model(without, operations[unknown])
    return other_way != then or unknown < at
