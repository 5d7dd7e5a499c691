"""Aggregates that SQLite has not: exact sums and averages.

Here: AGGREGATES, and OF_AGGREGATES: the functions that put together what SQLite has added.
Not here: when which is used (sql/local/aggregates.py).

Each aggregate is a factory of a state and two functions, as apsw wants them. Sums are exact however large
they grow on the way; only the answer must be a DECIMAL.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

import msgspec

from shoal.types import decimals

# Wide enough for 38 digits on either side of the point and more rows than there will ever be.
_EXACT: Final = decimal.Context(prec=120, traps=[decimal.InvalidOperation])
_parse_json: Final = msgspec.json.Decoder().decode

Aggregate: TypeAlias = tuple[Any, Callable[..., None], Callable[[Any], Any]]


class _Sum:
    """What one group has come to."""

    __slots__ = ("count", "of_decimals", "of_ints")

    def __init__(self) -> None:
        self.count = 0
        self.of_ints = 0
        self.of_decimals = Decimal(0)


def _add_int(total: _Sum, value: int | None) -> None:
    if value is not None:
        total.count += 1
        total.of_ints += value


def _add_decimal(total: _Sum, value: bytes | None) -> None:
    if value is not None:
        total.count += 1
        total.of_decimals = _EXACT.add(total.of_decimals, decimals.from_stored(value))


def _sum_of_ints(total: _Sum) -> bytes | None:
    return decimals.from_int(total.of_ints) if total.count else None


def _avg_of_ints(total: _Sum) -> bytes | None:
    return _average(Decimal(total.of_ints), total.count) if total.count else None


def _sum_of_decimals(total: _Sum) -> bytes | None:
    return decimals.to_stored(total.of_decimals) if total.count else None


def _avg_of_decimals(total: _Sum) -> bytes | None:
    return _average(total.of_decimals, total.count) if total.count else None


def _total_of_decimals(total: _Sum) -> float:
    return float(total.of_decimals)


def _average(total: Decimal, count: int) -> bytes:
    return decimals.to_stored(_EXACT.divide(total, Decimal(count)))


def _factory(step: Callable[..., None], final: Callable[[Any], Any]) -> Callable[[], Aggregate]:
    return lambda: (_Sum(), step, final)


AGGREGATES: Final[Mapping[str, Callable[[], Aggregate]]] = {
    "shoal_sum_int": _factory(_add_int, _sum_of_ints),
    "shoal_avg_int": _factory(_add_int, _avg_of_ints),
    "shoal_sum_decimal": _factory(_add_decimal, _sum_of_decimals),
    "shoal_avg_decimal": _factory(_add_decimal, _avg_of_decimals),
    "shoal_total_decimal": _factory(_add_decimal, _total_of_decimals),
}


# --- putting together what SQLite has added -------------------------------------------------------


def _sum_of_halves(high: int | None, low: int | None) -> bytes | None:
    """The sum of integers, of the sums of their high and their low 32 bits."""
    if high is None or low is None:
        return None
    return decimals.from_int((high << 32) + low)


def _avg_of_halves(high: int | None, low: int | None, count: int) -> bytes | None:
    if high is None or low is None:
        return None
    return _average(Decimal((high << 32) + low), count)


def _join(texts: str, separator: str) -> str | None:
    """The texts of a JSON array, NULLs left out: GROUP_CONCAT(DISTINCT …)."""
    present = [text for text in _parse_json(texts) if text is not None]
    return separator.join(present) if present else None


OF_AGGREGATES: Final[Mapping[str, tuple[tuple[int, Callable[..., Any]], ...]]] = {
    "shoal_sum_of_halves": ((2, _sum_of_halves),),
    "shoal_avg_of_halves": ((3, _avg_of_halves),),
    "shoal_join": ((2, _join),),
}
