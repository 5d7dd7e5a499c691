"""Which overload is meant, and which type several values have in common.

Here: Hint, what is known of an operand before it is bound; choose() and unify(), which decide by hints.
Not here: making the operands what was decided (constants.py, expressions.py).

What converts by itself: INT to DOUBLE and DECIMAL, DOUBLE to DECIMAL, of any expression. A literal of a
decimal number is a DOUBLE just as gladly; a string literal, NULL, and a parameter that nothing has typed
yet are of whatever type is wanted. Nothing else.

The choice is the one with the fewest conversions, where making the result what is wanted outside counts,
too. Among equals it is one that gives what is wanted, then the first one of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.sql.functions import NUMBERS, Overload
from shoal.types import casts
from shoal.types.sqltype import TEXT, UNKNOWN, Kind, SqlType, array_of

UNWANTED: Final = 4  # conversions that a result is worth which can't be made what is wanted


@dataclass(frozen=True, slots=True)
class Hint:
    """What an expression will be, as far as that is known before anybody says what is wanted."""

    type: SqlType  # UNKNOWN: anything
    decimal_literal: bool = False
    elements: tuple[Hint, ...] | None = None  # of ARRAY[…]


FREE: Final = Hint(UNKNOWN)


def plain(t: SqlType) -> SqlType:
    """Without what only narrows a column: precision, scale, UNSIGNED."""
    if t.precision is None and not t.unsigned:
        return t
    return SqlType(t.kind, t.is_array)


def shown(t: SqlType) -> str:
    """As errors name it: what is of no type becomes text."""
    if t.is_unknown:
        return array_of(TEXT).error_name if t.is_array else TEXT.error_name
    return t.error_name


def listed(types: Iterable[SqlType]) -> str:
    """`int, text and bool`."""
    names = [shown(t) for t in types]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def implicit(source: SqlType, target: SqlType) -> bool:
    """Does the language convert by itself?"""
    return source.same_values(target) or casts.implicit(plain(source), plain(target))


def conversions(hint: Hint, wanted: SqlType) -> int | None:
    """How many an operand needs (0 or 1) to be of that type; None: it can't be."""
    given = hint.type
    if given.same_values(wanted) or (given.kind is Kind.UNKNOWN and (not given.is_array or wanted.is_array)):
        return 0
    if hint.decimal_literal and wanted.is_double:
        return 0
    if hint.elements is not None and wanted.is_array and wanted.kind is not Kind.ANY:
        element = wanted.element
        costs = [conversions(item, element) for item in hint.elements]
        return None if None in costs else 1
    return 1 if implicit(given, wanted) else None


def choose(
    overloads: Sequence[Overload], hints: Sequence[Hint], desired: SqlType | None = None
) -> Overload | None:
    """The overload that operands of these hints mean; None: there is none."""
    best: Overload | None = None
    best_cost = 0
    for overload in overloads:
        wanted = argument_types(overload, len(hints))
        if wanted is None:
            continue
        cost = 0
        for hint, t in zip(hints, wanted, strict=True):
            needed = conversions(hint, t)
            if needed is None:
                break
            cost += needed
        else:
            cost = 2 * (cost + _result_cost(overload.result, desired))
            if desired is not None and not overload.result.same_values(desired):
                cost += 1  # decides between equals only
            if best is None or cost < best_cost:
                best, best_cost = overload, cost
    return best


def argument_types(overload: Overload, count: int) -> tuple[SqlType, ...] | None:
    """Of a call with that many arguments; None: the overload doesn't take so many."""
    args = overload.args
    if not overload.variadic:
        return args if len(args) == count else None
    if count < len(args) - 1:
        return None
    return (*args[:-1], *(args[-1],) * (count - len(args) + 1))


def _result_cost(result: SqlType, desired: SqlType | None) -> int:
    if desired is None or result.same_values(desired):
        return 0
    return 1 if implicit(result, desired) else UNWANTED


def unify(hints: Sequence[Hint], desired: SqlType | None = None) -> SqlType | None:
    """The one type that values of these hints can all be of; None: there is none.

    Where nothing is known it is the desired one, and TEXT where nothing is desired.
    """
    known = [hint.type for hint in hints if not hint.type.is_unknown]
    if not known:
        fallback = TEXT if desired is None else plain(desired)
        if any(hint.type.is_array for hint in hints) and not fallback.is_array:
            return array_of(TEXT)
        return fallback
    first = known[0]
    if all(t == first for t in known) and not any(hint.elements for hint in hints):
        # DECIMAL(10, 2) stays that, as long as nothing else takes part.
        loose = len(known) != len(hints)
        if desired is None or first.same_values(desired) or not first.is_numeric:
            return plain(first) if loose else first
    candidates = [array_of(t) for t in NUMBERS] if first.is_array else list(NUMBERS)
    if not any(first.same_values(t) for t in candidates):
        candidates = [plain(t) for t in known]
    one = [Overload((t,) * len(hints), t) for t in candidates]
    chosen = choose(one, hints, desired)
    return None if chosen is None else chosen.result


__all__ = [
    "FREE",
    "Hint",
    "argument_types",
    "choose",
    "conversions",
    "implicit",
    "listed",
    "plain",
    "shown",
    "unify",
]
