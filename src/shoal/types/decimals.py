"""DECIMAL: exact numbers of up to 38 digits, in bytes that sort as the numbers do.

Here: the storage form of a decimal, its arithmetic, its text.
Not here: PostgreSQL's binary form (binary.py), MessagePack's (msgpack.py).

The storage form, so that memcmp is comparison and equal numbers are equal bytes:

    zero       80
    positive   81  exponent+8000 (2 bytes, big endian)  digit pairs, each pair + 1
    negative   7F  the complement of what the positive one has after its sign, then FF

The exponent is that of the first digit; pairs start at the first digit, the last one is filled up with a 0,
and there are no zero pairs at the end. So 12.5 is 81 8001 0D 33. The closing FF puts -1.5 below -1: where
one number's pairs are the beginning of the other's, the longer one is further from zero.

Limits are Tarantool's: 38 significant digits, 38 digits before the point, 38 after it. A result with more is
rounded, ties away from zero; one that doesn't fit before the point is an error, never infinity.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from shoal.errors import DivisionByZero, InvalidTextRepresentation, NumericOutOfRange
from shoal.types.sqltype import DECIMAL_DIGITS_MAX

__all__ = [
    "ONE",
    "ZERO",
    "abs",
    "add",
    "ceil",
    "compare",
    "div",
    "fit",
    "floor",
    "from_float",
    "from_int",
    "from_parts",
    "from_stored",
    "from_text",
    "mul",
    "neg",
    "parts",
    "round",
    "sub",
    "to_float",
    "to_int",
    "to_stored",
    "to_text",
    "trunc",
]

_DIGITS: Final = DECIMAL_DIGITS_MAX
_BIAS: Final = 0x8000
_NEGATIVE: Final = 0x7F
ZERO: Final = b"\x80"

# Rounds a result once, to 38 digits or to 38 places after the point, whichever comes first: with the least
# exponent at -1, numbers near zero are what IEEE calls subnormal, with the last digit at 10^-38.
_CONTEXT: Final = decimal.Context(
    prec=_DIGITS,
    rounding=decimal.ROUND_HALF_UP,
    Emin=-1,
    Emax=_DIGITS - 1,
    capitals=1,
    clamp=0,
    flags=[],
    traps=[decimal.Overflow, decimal.InvalidOperation, decimal.DivisionByZero],
)


def _pair_tables() -> tuple[bytes, bytes, bytes]:
    positive, negative, inverse = bytearray(256), bytearray(256), bytearray(256)
    for pair in range(100):
        packed = pair // 10 << 4 | pair % 10
        positive[packed] = pair + 1
        negative[packed] = 255 - (pair + 1)
        # The two images don't meet (1…100 and 155…254), so one table reads both.
        inverse[pair + 1] = inverse[255 - (pair + 1)] = packed
    return bytes(positive), bytes(negative), bytes(inverse)


# Between packed decimal digits (two per byte, what bytes.fromhex makes of digits) and stored pairs.
_POSITIVE_PAIRS, _NEGATIVE_PAIRS, _PACKED = _pair_tables()


def _assemble(negative: bool, digits: str, exponent: int) -> bytes:
    """From digits without zeros at either end, and the exponent of the first one."""
    packed = bytes.fromhex(digits if len(digits) % 2 == 0 else digits + "0")
    if negative:
        return (
            b"\x7f"
            + (0xFFFF - (exponent + _BIAS)).to_bytes(2, "big")
            + packed.translate(_NEGATIVE_PAIRS)
            + b"\xff"
        )
    return b"\x81" + (exponent + _BIAS).to_bytes(2, "big") + packed.translate(_POSITIVE_PAIRS)


def parts(stored: bytes) -> tuple[bool, str, int]:
    """Is it negative, its digits without zeros at either end, the exponent of the first: -120 is (True, "12", 2).

    Zero is (False, "0", 0).
    """
    if stored[0] == _NEGATIVE:
        exponent = 0xFFFF - (stored[1] << 8 | stored[2]) - _BIAS
        return True, stored[3:-1].translate(_PACKED).hex().rstrip("0"), exponent
    if len(stored) == 1:
        return False, "0", 0
    return False, stored[3:].translate(_PACKED).hex().rstrip("0"), (stored[1] << 8 | stored[2]) - _BIAS


def from_parts(negative: bool, digits: str, exponent: int) -> bytes:
    """The inverse of parts(), for digits of any length with zeros anywhere: rounds to what DECIMAL holds."""
    significant = digits.lstrip("0")
    exponent -= len(digits) - len(significant)
    significant = significant.rstrip("0")
    if not significant:
        return ZERO
    if exponent >= _DIGITS:
        raise _overflow()
    last_place = exponent - len(significant) + 1
    if len(significant) > _DIGITS or last_place < -_DIGITS:
        return to_stored(_rounded(f"{'-' if negative else ''}{significant}E{last_place}"))
    return _assemble(negative, significant, exponent)


def _rounded(spelled: str) -> Decimal:
    try:
        return _CONTEXT.create_decimal(spelled)
    except decimal.Overflow:
        raise _overflow() from None


def _overflow() -> NumericOutOfRange:
    return NumericOutOfRange(f"value out of range: a decimal has at most {_DIGITS} digits before the point")


def to_stored(value: Decimal) -> bytes:
    """The storage form of a Decimal; rounds what has too many digits, refuses NaN and infinity."""
    mantissa, _, exponent = value.__format__("E").partition("E")
    if not exponent:
        raise NumericOutOfRange(f"{value} is out of range for type numeric")
    negative = mantissa[0] == "-"
    digits = (mantissa[1:] if negative else mantissa).replace(".", "")
    return from_parts(negative, digits, int(exponent))


def from_stored(stored: bytes) -> Decimal:
    negative, digits, exponent = parts(stored)
    return Decimal(f"{'-' if negative else ''}{digits}E{exponent - len(digits) + 1}")


def from_int(value: int) -> bytes:
    if value == 0:
        return ZERO
    if value < 0:
        digits = (-value).__str__()
        negative = True
    else:
        digits = value.__str__()
        negative = False
    exponent = len(digits) - 1
    if exponent >= _DIGITS:
        raise _overflow()
    return _assemble(negative, digits.rstrip("0"), exponent)


def from_float(value: float) -> bytes:
    """The decimal that the double shows: 0.1 becomes 0.1, not the 55 digits that it is in binary."""
    if value - value != 0.0:
        raise NumericOutOfRange(f"{value} is out of range for type numeric")
    return to_stored(Decimal(repr(value)))


_NUMBER: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?")


def from_text(text: str) -> bytes:
    """Reads 1, -1.50, .5, 3., 1e-7, with blanks around; what is no such number is 22P02."""
    found = _NUMBER.fullmatch(text.strip(" \t\n\r\f\v"))
    if found is None:
        raise _not_numeric(text)
    sign, whole, fraction, power = found.groups("")
    digits = whole + fraction
    if not digits:
        raise _not_numeric(text)
    return from_parts(sign == "-", digits, len(whole) - 1 + (int(power) if power else 0))


def _not_numeric(text: str) -> InvalidTextRepresentation:
    shown = text if len(text) <= 80 else text[:80] + "…"
    return InvalidTextRepresentation(f'invalid input syntax for type numeric: "{shown}"')


def to_text(stored: bytes, scale: int | None = None) -> str:
    """Never with an exponent. With a scale, exactly that many digits after the point: 1.5 as 1.50."""
    negative, digits, exponent = parts(stored)
    if exponent < 0:
        whole, fraction = "0", "0" * (-exponent - 1) + digits
    elif len(digits) <= exponent + 1:
        whole, fraction = digits + "0" * (exponent + 1 - len(digits)), ""
    else:
        whole, fraction = digits[: exponent + 1], digits[exponent + 1 :]
    if scale is not None and len(fraction) < scale:
        fraction += "0" * (scale - len(fraction))
    shown = f"{whole}.{fraction}" if fraction else whole
    return "-" + shown if negative else shown


def to_int(stored: bytes) -> int:
    """Truncates toward zero: 2.5 → 2, -1.5 → -1. The caller checks the range of its integers."""
    negative, digits, exponent = parts(stored)
    if exponent < 0:
        return 0
    kept = digits[: exponent + 1]
    value = int(kept + "0" * (exponent + 1 - len(kept)))
    return -value if negative else value


def to_float(stored: bytes) -> float:
    """The nearest double."""
    negative, digits, exponent = parts(stored)
    value = float(f"{digits}E{exponent - len(digits) + 1}")
    return -value if negative else value


ONE: Final = from_int(1)


# Arithmetic


def add(a: bytes, b: bytes) -> bytes:
    try:
        return to_stored(_CONTEXT.add(from_stored(a), from_stored(b)))
    except decimal.Overflow:
        raise _overflow() from None


def sub(a: bytes, b: bytes) -> bytes:
    try:
        return to_stored(_CONTEXT.subtract(from_stored(a), from_stored(b)))
    except decimal.Overflow:
        raise _overflow() from None


def mul(a: bytes, b: bytes) -> bytes:
    try:
        return to_stored(_CONTEXT.multiply(from_stored(a), from_stored(b)))
    except decimal.Overflow:
        raise _overflow() from None


def div(a: bytes, b: bytes) -> bytes:
    """To 38 digits: 1/2/3 is 0.16666666666666666666666666666666666667."""
    if b == ZERO:
        raise DivisionByZero
    try:
        return to_stored(_CONTEXT.divide(from_stored(a), from_stored(b)))
    except decimal.Overflow:
        raise _overflow() from None


_COMPLEMENT: Final = bytes(range(255, -1, -1))


def neg(a: bytes) -> bytes:
    if a == ZERO:
        return a
    if a[0] == _NEGATIVE:
        return b"\x81" + a[1:-1].translate(_COMPLEMENT)
    return b"\x7f" + a[1:].translate(_COMPLEMENT) + b"\xff"


def abs(a: bytes) -> bytes:
    return neg(a) if a[0] == _NEGATIVE else a


def compare(a: bytes, b: bytes) -> int:
    """-1, 0 or 1."""
    return (a > b) - (a < b)


def _cut(a: bytes, scale: int, away: Callable[[bool, str], bool]) -> bytes:
    """Drops what lies behind the place 10^-scale; away(negative, first dropped digit) moves it one unit from zero."""
    negative, digits, exponent = parts(a)
    kept_count = exponent + 1 + scale
    if kept_count >= len(digits):
        return a
    kept = digits[:kept_count] if kept_count > 0 else "0"
    if away(negative, digits[kept_count] if kept_count >= 0 else "0"):
        kept = str(int(kept) + 1)
    return from_parts(negative, kept, len(kept) - 1 - scale)


def round(a: bytes, scale: int = 0) -> bytes:
    """Ties away from zero: 2.5 → 3, -2.5 → -3; a negative scale rounds to tens, hundreds, …"""
    return _cut(a, scale, lambda negative, digit: digit >= "5")


def trunc(a: bytes, scale: int = 0) -> bytes:
    return _cut(a, scale, lambda negative, digit: False)


def ceil(a: bytes) -> bytes:
    # parts() has no zeros at the end, so what is dropped is never zero.
    return a if a == ZERO else _cut(a, 0, lambda negative, digit: not negative)


def floor(a: bytes) -> bytes:
    return a if a == ZERO else _cut(a, 0, lambda negative, digit: negative)


def fit(a: bytes, precision: int, scale: int) -> bytes:
    """A value of DECIMAL(precision, scale): rounded to the scale, refused when its integer digits are too many."""
    rounded = round(a, scale)
    if rounded != ZERO and parts(rounded)[2] >= precision - scale:
        raise NumericOutOfRange(
            "numeric field overflow",
            detail=f"A field with precision {precision}, scale {scale} must round to an absolute value "
            f"less than {'1' if precision == scale else f'10^{precision - scale}'}.",
        )
    return rounded
