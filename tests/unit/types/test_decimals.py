"""DECIMAL: its bytes, its arithmetic, its text."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given

from shoal.errors import DivisionByZero, InvalidTextRepresentation, NumericOutOfRange
from shoal.types import decimals
from tests.unit.types.strategies import doubles, ints, stored_decimals

WIDE = Context(prec=200)  # Decimal's own context would round to 28 digits
of = decimals.from_text
shown = decimals.to_text


@pytest.mark.parametrize(
    "text, stored",
    [
        ("0", "80"),
        ("1", "8180000b"),
        ("12.5", "8180010d33"),
        ("100", "8180020b"),
        ("0.5", "817fff33"),
        ("-1", "7f7ffff4ff"),
        ("-1.5", "7f7fffefff"),
        ("99", "81800164"),
        ("0.01", "817ffe0b"),
    ],
)
def test_the_bytes(text: str, stored: str) -> None:
    assert of(text).hex() == stored
    assert shown(bytes.fromhex(stored)) == text


@pytest.mark.parametrize(
    "same", [["1", "1.0", "01.00", "+1", "1e0", "10e-1", " 1 ", "1."], ["0", "-0", "0.000"]]
)
def test_equal_numbers_are_equal_bytes(same: list[str]) -> None:
    assert len({of(text) for text in same}) == 1


@pytest.mark.parametrize(
    "text", ["", " ", ".", "-", "e5", "1e", "--1", "1_000", "٣", "NaN", "inf", "0x10", "1,5", "1 2"]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type numeric"):
        of(text)


@pytest.mark.parametrize("text", ["1e38", "-1e38", "9" * 39, "1e999999999", "9" * 38 + ".5"])
def test_what_is_too_large(text: str) -> None:
    with pytest.raises(NumericOutOfRange, match="at most 38 digits before the point"):
        of(text)


def test_input_is_rounded_once() -> None:
    assert shown(of("0." + "3" * 50)) == "0." + "3" * 38
    assert shown(of("1." + "9" * 40)) == "2"
    assert shown(of("5e-39")) == shown(of("1e-38"))  # a tie goes away from zero
    assert of("4.9999e-39") == decimals.ZERO
    # Rounded to 38 digits first, and then to 38 places, this one would become …2.
    assert shown(of("0.1" + "0" * 36 + "1499999")) == "0.1" + "0" * 36 + "1"


@given(stored_decimals)
def test_parts_and_decimal_read_back(stored: bytes) -> None:
    assert decimals.from_parts(*decimals.parts(stored)) == stored
    assert decimals.to_stored(decimals.from_stored(stored)) == stored
    assert of(shown(stored)) == stored
    assert "E" not in shown(stored).upper()


@given(stored_decimals, stored_decimals)
def test_bytes_sort_as_numbers(a: bytes, b: bytes) -> None:
    left, right = decimals.from_stored(a), decimals.from_stored(b)
    assert (a < b, a == b) == (left < right, left == right)
    assert decimals.compare(a, b) == (left > right) - (left < right)


@given(ints)
def test_integers_read_back(value: int) -> None:
    assert decimals.to_int(decimals.from_int(value)) == value
    assert decimals.from_int(value) == of(str(value))


@given(doubles)
def test_doubles_read_back(value: float) -> None:
    if value - value != 0.0 or abs(value) >= 1e38:
        with pytest.raises(NumericOutOfRange):
            decimals.from_float(value)
    elif abs(value) > 1e-20:
        assert decimals.to_float(decimals.from_float(value)) == value


def expected(exact: Fraction) -> Decimal | None:
    """The number rounded once to 38 digits and 38 places, ties away from zero; None: it doesn't fit."""
    if exact == 0:
        return Decimal(0)
    magnitude = abs(exact)
    exponent = len(str(magnitude.numerator)) - len(str(magnitude.denominator)) - 1
    while Fraction(10) ** (exponent + 1) <= magnitude:
        exponent += 1
    places = min(37 - exponent, 38)
    scaled = magnitude * Fraction(10) ** places
    rounded = (scaled.numerator * 2 + scaled.denominator) // (scaled.denominator * 2)
    value = Fraction(rounded) / Fraction(10) ** places
    if value >= 10**38:
        return None
    return Decimal(-rounded if exact < 0 else rounded).scaleb(-places, WIDE)


@given(stored_decimals, stored_decimals)
def test_arithmetic_is_exact_to_38_digits(a: bytes, b: bytes) -> None:
    left, right = Fraction(decimals.from_stored(a)), Fraction(decimals.from_stored(b))
    operations = [
        (decimals.add, left + right),
        (decimals.sub, left - right),
        (decimals.mul, left * right),
    ]
    if right:
        operations.append((decimals.div, left / right))
    for operation, exact in operations:
        wanted = expected(exact)
        if wanted is None:
            with pytest.raises(NumericOutOfRange):
                operation(a, b)
        else:
            assert decimals.from_stored(operation(a, b)) == wanted


def test_division() -> None:
    third = decimals.div(decimals.div(of("1"), of("2")), of("3"))
    assert shown(third) == "0.16666666666666666666666666666666666667"
    assert shown(decimals.div(of("10"), of("4"))) == "2.5"
    with pytest.raises(DivisionByZero, match="division by zero"):
        decimals.div(of("1"), of("0.0"))


@given(stored_decimals)
def test_signs(a: bytes) -> None:
    value = decimals.from_stored(a)
    assert decimals.from_stored(decimals.neg(a)) == value.copy_negate()
    assert decimals.neg(decimals.neg(a)) == a
    assert decimals.from_stored(decimals.abs(a)) == value.copy_abs()


@pytest.mark.parametrize(
    "text, rounded, truncated, up, down",
    [
        ("2.5", "3", "2", "3", "2"),
        ("-2.5", "-3", "-2", "-2", "-3"),
        ("2.4", "2", "2", "3", "2"),
        ("-0.4", "0", "0", "0", "-1"),
        ("0.00001", "0", "0", "1", "0"),
        ("9.5", "10", "9", "10", "9"),
        ("0", "0", "0", "0", "0"),
        ("100", "100", "100", "100", "100"),
    ],
)
def test_rounding(text: str, rounded: str, truncated: str, up: str, down: str) -> None:
    a = of(text)
    results = (decimals.round(a), decimals.trunc(a), decimals.ceil(a), decimals.floor(a))
    assert tuple(shown(result) for result in results) == (rounded, truncated, up, down)


def test_rounding_to_places() -> None:
    assert shown(decimals.round(of("1.255"), 2)) == "1.26"
    assert shown(decimals.round(of("-1.255"), 2)) == "-1.26"
    assert shown(decimals.round(of("155"), -1)) == "160"
    assert shown(decimals.round(of("155"), -3)) == "0"
    assert shown(decimals.round(of("555"), -3)) == "1000"
    assert shown(decimals.round(of("1.5"), 1000)) == "1.5"
    assert shown(decimals.trunc(of("-1.999"), 2)) == "-1.99"
    with pytest.raises(NumericOutOfRange):
        decimals.round(of("9" * 38), -1)


@given(stored_decimals)
def test_rounding_is_decimal_s(a: bytes) -> None:
    value = decimals.from_stored(a)
    if abs(value) < Decimal(10) ** 25:
        for places in (0, 1, 5):
            wanted = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, WIDE)
            assert decimals.from_stored(decimals.round(a, places)) == wanted


def test_a_column_s_precision() -> None:
    assert shown(decimals.fit(of("1.255"), 4, 2), 2) == "1.26"
    assert shown(decimals.fit(of("-99.994"), 4, 2), 2) == "-99.99"
    assert shown(decimals.fit(of("5"), 4, 2), 2) == "5.00"
    assert shown(decimals.fit(of("0.994"), 2, 2), 2) == "0.99"
    for text, precision, scale in [("99.995", 4, 2), ("100", 4, 2), ("0.995", 2, 2), ("-1", 2, 2)]:
        with pytest.raises(NumericOutOfRange, match="numeric field overflow"):
            decimals.fit(of(text), precision, scale)


def test_text_with_a_scale() -> None:
    assert shown(of("1.5"), 2) == "1.50"
    assert shown(of("0"), 3) == "0.000"
    assert shown(of("1.55"), 1) == "1.55"  # showing never rounds


def test_to_int_truncates() -> None:
    assert [decimals.to_int(of(text)) for text in ("2.5", "-1.5", "0.9", "-0.9", "1e20")] == [
        2,
        -1,
        0,
        0,
        10**20,
    ]
