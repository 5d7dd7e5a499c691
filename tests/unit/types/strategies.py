"""Values of every type in their storage form, edges included, for property tests.

Here: STORED, type → strategy; ALL_TYPES, what the parametrised tests walk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from shoal.types import (
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UUID,
    SqlType,
    Stored,
    array_of,
    arrays,
    datetimes,
    decimals,
    json,
)

INT_EDGES: Final = [
    edge + near
    for bits in (0, 5, 7, 8, 15, 16, 31, 32, 53, 63)
    for edge in (2**bits, -(2**bits))
    for near in (-1, 0, 1)
    if -(2**63) <= edge + near < 2**63
]
ints = st.sampled_from(INT_EDGES) | st.integers(-(2**63), 2**63 - 1)

DOUBLE_EDGES: Final = [
    0.0, 1.0, -1.0, 0.1, 1e15, 1e16, -1e15, 123456789012345.0, 1234567890123456.0, 1e20, 1e-5, 5e-324,
    2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308, float("inf"), float("-inf"),
    2.0**53, 2.0**63,
]  # fmt: skip
doubles = (
    st.sampled_from(DOUBLE_EDGES) | st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float)
).map(lambda value: value + 0.0)  # the storage form has no -0.0

DECIMAL_EDGES: Final = [
    "0", "1", "-1", "0.1", "-0.1", "10", "100", "9", "9.9", "99", "-9.9", "1.5", "-1.5", "-1", "0.01", "1e-38",
    "-1e-38", "1e37", "9" * 38, "-" + "9" * 38, "0." + "9" * 38, "1." + "0" * 36 + "1", "12345678901234567890.5",
    "10000", "9999.9999", "0.0001", "100000000",
]  # fmt: skip


@st.composite
def _decimals(draw: st.DrawFn) -> bytes:
    digits = draw(st.text("0123456789", min_size=1, max_size=38))
    point = draw(st.integers(0, min(len(digits), 38)))
    zeros = draw(st.integers(0, 38 - len(digits))) if point == len(digits) else 0
    sign = draw(st.sampled_from(["", "-"]))
    return decimals.from_text(f"{sign}{digits[:point] or '0'}{'0' * zeros}.{digits[point:] or '0'}")


stored_decimals = st.sampled_from(DECIMAL_EDGES).map(decimals.from_text) | _decimals()

texts = st.sampled_from(
    ["", "null", "NULL", "a,b", '"', "\\", "{}", " ", "é", "𐍈", "\uffff", "a\nb"]
) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)

instants = st.sampled_from(
    [
        datetimes.MIN, datetimes.MAX, 0, -1, 1, datetimes.from_calendar(1, 1, 1),
        datetimes.from_calendar(0, 12, 31, 23, 59, 59, 999_999), datetimes.from_calendar(2000, 2, 29),
        datetimes.from_calendar(-1, 2, 28), datetimes.from_calendar(-400, 2, 29),
    ]
) | st.integers(datetimes.MIN, datetimes.MAX)  # fmt: skip

json_texts = st.recursive(
    st.none()
    | st.booleans()
    | ints.map(lambda value: json.JsonNumber(value))
    | doubles.filter(lambda value: value - value == 0.0).map(lambda value: json.JsonNumber(repr(value)))
    | stored_decimals.map(json.decimal_number)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
).map(json.write)

SCALARS: Final[Mapping[SqlType, SearchStrategy[Stored]]] = {
    INT: ints,
    DOUBLE: doubles,
    DECIMAL: stored_decimals,
    TEXT: texts,
    BOOLEAN: st.integers(0, 1),
    UUID: st.binary(min_size=16, max_size=16),
    DATETIME: instants,
    JSON: json_texts,
}

# A JSON null in an array is the array's NULL.
_ELEMENTS: Final = {**SCALARS, JSON: json_texts.filter(lambda text: text != "null")}

STORED: Final[Mapping[SqlType, SearchStrategy[Stored]]] = {
    **SCALARS,
    **{array_of(t): st.lists(st.none() | _ELEMENTS[t], max_size=5).map(arrays.pack) for t in SCALARS},
}

ALL_TYPES: Final = tuple(STORED)
SORTABLE: Final = tuple(t for t in SCALARS if t.is_scalar)
