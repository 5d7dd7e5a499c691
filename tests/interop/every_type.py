"""Every SQL type with its edge values, as Python's drivers give and take them.

Here: CASES, one per type, and per array type.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    sql_type: str
    oid: int
    values: tuple[Any, ...]


_KATHMANDU = timezone(timedelta(hours=5, minutes=45))

INTS: Final = (0, 1, -1, 32767, -32769, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES: Final = (
    0.0,
    1.5,
    -1.5,
    0.1,
    1e-300,
    1.7976931348623157e308,
    5e-324,
    2.0**53,
    float("inf"),
    float("-inf"),
)
DECIMALS: Final = (
    Decimal("0"),
    Decimal("1.5"),
    Decimal("-1.5"),
    Decimal("100"),
    Decimal("12345678901234567890123456789012345678"),
    Decimal("-0.00000000000000000000000000000000000001"),
    Decimal("1234567890123456789.0123456789012345678"),
    Decimal("1E+30"),
)
TEXTS: Final = (
    "",
    "plain",
    "it's",
    'quo"ted',
    "back\\slash",
    "жираф 🦒",
    "{a,b}",
    "NULL",
    " blanks ",
    "line\nend\ttab",
    "x" * 5000,
)
UUIDS: Final = (
    uuid.UUID(int=0),
    uuid.UUID(int=2**128 - 1),
    uuid.UUID("6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1"),
)
DATETIMES: Final = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2000, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2023, 11, 11, 2, 3, 19, 354210, tzinfo=timezone(timedelta(hours=-3))),
    datetime(2024, 2, 29, 12, 0, tzinfo=_KATHMANDU),
    datetime(1582, 10, 4, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)


def _arrays(elements: Sequence[Any]) -> tuple[Any, ...]:
    return ([], list(elements), [None], [elements[0], None, elements[-1]])


CASES: Final = (
    Case("int", "INT", 20, INTS),
    Case("double", "DOUBLE", 701, DOUBLES),
    Case("decimal", "DECIMAL", 1700, DECIMALS),
    Case("text", "TEXT", 25, TEXTS),
    Case("boolean", "BOOLEAN", 16, (True, False)),
    Case("uuid", "UUID", 2950, UUIDS),
    Case("datetime", "DATETIME", 1184, DATETIMES),
    Case("ints", "INT[]", 1016, _arrays(INTS)),
    Case("doubles", "DOUBLE[]", 1022, _arrays(DOUBLES)),
    Case("decimals", "DECIMAL[]", 1231, _arrays(DECIMALS)),
    Case("texts", "TEXT[]", 1009, _arrays(TEXTS)),
    Case("booleans", "BOOLEAN[]", 1000, _arrays((True, False))),
    Case("uuids", "UUID[]", 2951, _arrays(UUIDS)),
    Case("datetimes", "DATETIME[]", 1185, _arrays(DATETIMES)),
)
