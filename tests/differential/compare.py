"""Are two answers the same, as far as they have to be?

Here: difference(), which says what isn't.
Not here: running statements (sides.py).

Accepted differences, which docs/sql.md tells users:
- the last digits of DECIMAL quotients and averages: we give up to 38 digits, PostgreSQL at least 16;
- which of several errors a statement fails with, and whether it fails at all when rows that a condition
  drops would: neither database promises an order of evaluation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

from tests.differential.sides import Answer, Row, Value

_RELATIVE = 1e-11

# What a statement's values can do wrong, in whatever order they are looked at.
_DATA_CLASSES = frozenset({"21", "22", "23"})
_CONSTRAINTS = frozenset({"21", "23"})


def difference(
    ours: Answer, theirs: Answer, *, may_fail: bool, sorted_by: Sequence[int], exact: Sequence[bool]
) -> str | None:
    if ours.sqlstate is not None or theirs.sqlstate is not None:
        return _errors(ours, theirs, may_fail)
    if ours.changed != theirs.changed:
        return f"{ours.changed} rows against {theirs.changed}"
    if ours.rows is None or theirs.rows is None:
        return None if ours.rows is theirs.rows else "rows against none"
    if ours.kinds != theirs.kinds:
        return f"types {ours.kinds} against {theirs.kinds}"
    if len(ours.rows) != len(theirs.rows):
        return f"{len(ours.rows)} rows against {len(theirs.rows)}"
    if sorted_by and len(sorted_by) < len(exact):
        keys = [tuple(row[i] for i in sorted_by) for row in ours.rows]
        other = [tuple(row[i] for i in sorted_by) for row in theirs.rows]
        if keys != other:
            return f"sorted otherwise: {_first(keys, other)}"
    if sorted_by and len(sorted_by) == len(exact):
        mine, yours = ours.rows, theirs.rows
    else:
        mine, yours = _in_order(ours.rows, exact), _in_order(theirs.rows, exact)
    for a, b in zip(mine, yours, strict=True):
        if not all(_equal(x, y, certain) for x, y, certain in zip(a, b, exact, strict=True)):
            return f"{a} against {b}"
    return None


def _errors(ours: Answer, theirs: Answer, may_fail: bool) -> str | None:
    if ours.sqlstate is None or theirs.sqlstate is None:
        state = ours.sqlstate or theirs.sqlstate or ""
        if may_fail and state[:2] in _DATA_CLASSES:
            return None
        return f"{_shown(ours)} against {_shown(theirs)}"
    if ours.sqlstate == theirs.sqlstate:
        return None
    classes = {ours.sqlstate[:2], theirs.sqlstate[:2]}
    if classes <= _CONSTRAINTS or (may_fail and classes <= _DATA_CLASSES):
        return None
    return f"{_shown(ours)} against {_shown(theirs)}"


def _shown(answer: Answer) -> str:
    if answer.sqlstate is None:
        return f"{answer.changed} rows"
    return f"{answer.sqlstate} {answer.message}"


def _first(a: Sequence[Row], b: Sequence[Row]) -> str:
    return next(f"{x} against {y}" for x, y in zip(a, b, strict=True) if x != y)


def _in_order(rows: Sequence[Row], exact: Sequence[bool]) -> list[Row]:
    """By what is certain first: then values that differ in their last digits meet each other."""

    def key(row: Row) -> tuple[tuple[bool, str], ...] | tuple[tuple[bool, float], ...]:
        certain = [_certain(value) for value, is_exact in zip(row, exact, strict=True) if is_exact]
        others = [_rough(value) for value, is_exact in zip(row, exact, strict=True) if not is_exact]
        return (*certain, *others)  # type: ignore[return-value]

    return sorted(rows, key=key)


def _certain(value: Value) -> tuple[bool, str]:
    if isinstance(value, Decimal):
        return (False, f"{value.normalize() + 0:f}")
    if isinstance(value, float):
        return (False, repr(value + 0.0))
    return (value is None, str(value))


def _rough(value: Value) -> tuple[bool, float]:
    return (value is None, 0.0 if value is None else float(value))  # type: ignore[arg-type]


def _equal(a: Value, b: Value, exact: bool) -> bool:
    if a is None or b is None:
        return a is b
    if exact or not isinstance(a, Decimal | float):
        return a == b
    return math.isclose(a, b, rel_tol=_RELATIVE, abs_tol=_RELATIVE)  # type: ignore[arg-type]


def tally(found: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in found.most_common())
