"""Casts: which there are, what they do, and which happen silently."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from shoal.errors import InvalidParameterValue, InvalidTextRepresentation, NumericOutOfRange, ShoalError
from shoal.types import (
    ANY,
    ARRAY,
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UNKNOWN,
    UNSIGNED,
    UUID,
    Kind,
    SqlType,
    Stored,
    array_of,
    arrays,
    datetimes,
    decimals,
)
from shoal.types.casts import cast, common_type, implicit, implicit_literal
from tests.unit.types.strategies import ALL_TYPES, STORED

MONEY = SqlType(Kind.DECIMAL, precision=4, scale=1)
SCALARS = (INT, DOUBLE, DECIMAL, TEXT, BOOLEAN, UUID, DATETIME, JSON, ANY)


def run(source: SqlType, target: SqlType, stored: Stored) -> Stored:
    convert = cast(source, target)
    assert convert is not None, (source, target)
    return convert(stored)


def number(text: str) -> bytes:
    return decimals.from_text(text)


def test_which_casts_there_are() -> None:
    there_are = {f"{source} {target}" for source in SCALARS for target in SCALARS if cast(source, target)}
    refused = {f"{source} {target}" for source in SCALARS for target in SCALARS} - there_are
    assert sorted(refused) == sorted(
        "int uuid, int datetime, int map, double bool, double uuid, double datetime, double map, decimal bool,"
        " decimal uuid, decimal datetime, decimal map, bool double, bool decimal, bool uuid, bool datetime, bool map,"
        " uuid int, uuid double, uuid decimal, uuid bool, uuid datetime, uuid map, datetime int, datetime double,"
        " datetime decimal, datetime bool, datetime uuid, datetime map".replace(", ", ",").split(",")
    )


@pytest.mark.parametrize(
    "source, target, stored, result",
    [
        (DECIMAL, INT, number("2.5"), 2),
        (DECIMAL, INT, number("-1.5"), -1),
        (DOUBLE, INT, -1.9, -1),
        (DOUBLE, INT, -(2.0**63), -(2**63)),
        (INT, DOUBLE, 5, 5.0),
        (INT, DECIMAL, -120, number("-120")),
        (DOUBLE, DECIMAL, 0.1, number("0.1")),
        (DECIMAL, DOUBLE, number("0.1"), 0.1),
        (DECIMAL, MONEY, number("1.25"), number("1.3")),
        (INT, MONEY, 999, number("999")),
        (INT, UNSIGNED, 5, 5),
        (INT, BOOLEAN, -7, 1),
        (BOOLEAN, INT, 1, 1),
        (INT, TEXT, -5, "-5"),
        (DOUBLE, TEXT, 1.1, "1.1"),
        (DECIMAL, TEXT, number("1.50"), "1.5"),
        (BOOLEAN, TEXT, 1, "TRUE"),
        (UUID, TEXT, bytes(16), "00000000-0000-0000-0000-000000000000"),
        (DATETIME, TEXT, 0, "1970-01-01T00:00:00Z"),
        (TEXT, INT, " 5 ", 5),
        (TEXT, BOOLEAN, "Yes", 1),
        (TEXT, DOUBLE, "inf", float("inf")),
        (TEXT, DECIMAL, "1.50", number("1.5")),
        (TEXT, MONEY, "1.25", number("1.3")),
        (TEXT, UUID, "0" * 32, bytes(16)),
        (TEXT, DATETIME, "1970-01-01", 0),
        (TEXT, JSON, '{"a": 1}', '{"a":1}'),
        (TEXT, ANY, "x", '"x"'),
        (TEXT, array_of(INT), "{1,2}", arrays.pack([1, 2])),
        (UNKNOWN, INT, None, None),
    ],
)
def test_what_they_do(source: SqlType, target: SqlType, stored: Stored, result: Stored) -> None:
    found = run(source, target, stored)
    assert found == result and type(found) is type(result)


@pytest.mark.parametrize(
    "source, target, stored",
    [
        (DOUBLE, INT, 2.0**63),
        (DOUBLE, INT, float("inf")),
        (DOUBLE, INT, -1e300),
        (DECIMAL, INT, number("9223372036854775808")),
        (DOUBLE, DECIMAL, 1e40),
        (DOUBLE, DECIMAL, float("-inf")),
        (INT, UNSIGNED, -1),
        (TEXT, UNSIGNED, "-1"),
        (DECIMAL, UNSIGNED, number("-1")),
        (INT, MONEY, 1000),
        (TEXT, INT, "9223372036854775808"),
        (array_of(INT), array_of(UNSIGNED), arrays.pack([1, -1])),
    ],
)
def test_out_of_range(source: SqlType, target: SqlType, stored: Stored) -> None:
    with pytest.raises(NumericOutOfRange):
        run(source, target, stored)


@pytest.mark.parametrize(
    "target, text", [(INT, "1.5"), (INT, "x"), (BOOLEAN, "maybe"), (UUID, "x"), (DATETIME, "x"), (JSON, "x")]
)
def test_texts_that_are_no_such_value(target: SqlType, text: str) -> None:
    with pytest.raises(InvalidTextRepresentation):
        run(TEXT, target, text)


def test_arrays_are_cast_element_by_element() -> None:
    assert run(array_of(INT), array_of(TEXT), arrays.pack([1, None])) == arrays.pack(["1", None])
    assert run(array_of(DECIMAL), array_of(INT), arrays.pack([number("2.5")])) == arrays.pack([2])
    assert run(array_of(INT), TEXT, arrays.pack([1, None])) == "{1,NULL}"
    assert run(array_of(BOOLEAN), array_of(TEXT), arrays.pack([1])) == arrays.pack(["TRUE"])
    assert cast(INT, array_of(INT)) is None
    assert cast(array_of(INT), INT) is None
    assert cast(array_of(INT), array_of(UUID)) is None


def test_anything_is_cast_as_the_value_inside() -> None:
    for stored, target, result in [
        ("5", INT, 5),
        ("2.5", INT, 2),
        ("5", DOUBLE, 5.0),
        ("1e+300", DOUBLE, 1e300),
        ("1.5", DECIMAL, number("1.5")),
        ("5", TEXT, "5"),
        ('"5"', INT, 5),
        ('"x"', TEXT, "x"),
        ("true", BOOLEAN, 1),
        ("true", TEXT, "TRUE"),
        ("null", INT, None),
        ("null", TEXT, None),
        ('"1970-01-01"', DATETIME, 0),
        ('{"a":1}', TEXT, '{"a":1}'),
        ('{"a":1}', JSON, '{"a":1}'),
        ('["a",null]', array_of(TEXT), arrays.pack(["a", None])),
        ('["a"]', ARRAY, '["a"]'),
    ]:
        assert run(ANY, target, stored) == result, (stored, target)
    assert run(ARRAY, array_of(INT), '[1,"2",null]') == arrays.pack([1, 2, None])
    assert run(JSON, TEXT, '"x"') == '"x"'  # a document, not what is in it
    for stored, target in [('{"a":1}', INT), ("[1]", INT), ("true", UUID), ("5", UUID)]:
        with pytest.raises(InvalidParameterValue, match="cannot cast a JSON"):
            run(ANY, target, stored)
    with pytest.raises(InvalidTextRepresentation):
        run(ANY, ARRAY, "{}")


def test_anything_of_a_value() -> None:
    cases: list[tuple[SqlType, Stored, str]] = [
        (INT, 5, "5"),
        (DOUBLE, 1.0, "1.0"),
        (DECIMAL, number("1.50"), "1.5"),
        (DECIMAL, number("100"), "100"),
        (BOOLEAN, 0, "false"),
        (UUID, bytes(16), '"00000000-0000-0000-0000-000000000000"'),
        (DATETIME, 0, '"1970-01-01T00:00:00Z"'),
        (array_of(TEXT), arrays.pack(["a", None]), '["a",null]'),
    ]
    for source, stored, result in cases:
        assert run(source, ARRAY if source.is_array else ANY, stored) == result
    with pytest.raises(NumericOutOfRange):
        run(DOUBLE, ANY, float("inf"))


def test_datetimes_are_in_the_session_s_zone() -> None:
    zone = datetimes.zone_of_name("+03")
    read, write = cast(TEXT, DATETIME, zone), cast(DATETIME, TEXT, zone)
    assert read is not None and write is not None
    assert read("1970-01-01 03:00") == 0
    assert write(0) == "1970-01-01T03:00:00+0300"


@pytest.mark.parametrize("t", [t for t in ALL_TYPES if t is not JSON], ids=str)
def test_text_and_back(t: SqlType) -> None:
    there, back = cast(t, TEXT), cast(TEXT, t)
    assert there is not None and back is not None

    @settings(max_examples=40)
    @given(STORED[t])
    def check(stored: Stored) -> None:
        assert back(there(stored)) == stored

    check()


def test_every_cast_gives_a_value_or_an_error() -> None:
    for source in ALL_TYPES:
        for target in (*ALL_TYPES, UNSIGNED, MONEY, ANY, ARRAY):
            convert = cast(source, target)
            if convert is None:
                continue

            @settings(max_examples=8)
            @given(STORED[source])
            def check(stored: Stored) -> None:
                try:
                    convert(stored)  # noqa: B023  called before the loop goes on
                except ShoalError:
                    pass

            check()


def test_silent_casts() -> None:
    silent = {f"{a} {b}" for a in SCALARS for b in SCALARS if a != b and implicit(a, b)}
    assert silent == {"int double", "int decimal", "double decimal"}
    assert implicit_literal(DECIMAL, DOUBLE) and not implicit(DECIMAL, DOUBLE)
    assert not implicit_literal(DECIMAL, INT) and not implicit_literal(INT, TEXT)
    assert implicit(UNKNOWN, UUID) and implicit(UNSIGNED, INT) and implicit(MONEY, DECIMAL)
    assert not implicit(array_of(INT), array_of(DECIMAL)) and not implicit(INT, array_of(DECIMAL))


def test_common_types() -> None:
    assert common_type(INT, INT) == INT
    assert common_type(INT, DOUBLE) == DOUBLE
    assert common_type(DECIMAL, INT) == DECIMAL
    assert common_type(DOUBLE, DECIMAL) == DECIMAL
    assert common_type(MONEY, MONEY) == MONEY
    assert common_type(MONEY, DECIMAL) == DECIMAL
    assert common_type(UNSIGNED, INT) == INT
    assert common_type(UNSIGNED, DECIMAL) == DECIMAL
    assert common_type(UNKNOWN, UUID) == UUID == common_type(UUID, UNKNOWN)
    assert common_type(TEXT, INT) is None
    assert common_type(BOOLEAN, INT) is None
    assert common_type(array_of(INT), array_of(INT)) == array_of(INT)
    assert common_type(array_of(INT), INT) is None
