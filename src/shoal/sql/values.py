"""What a literal's text means as a value of a type.

Here: natural_type(), the type that a literal has by itself, and literal_value(), its value as another.
Not here: which type a literal gets (bind/), casts of values (types/casts.py).

Both are pure, and used twice: when a statement is bound, and when another text of the same template runs
on the plan of the first. So a literal means the same, and fails the same, on either way.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import CannotCoerce, InvalidTextRepresentation, NumericOutOfRange
from shoal.sql.ast import LiteralKind
from shoal.types import casts, decimals
from shoal.types.datetimes import UTC, Zone
from shoal.types.sqltype import DECIMAL, DOUBLE, INT, TEXT, SqlType
from shoal.types.text import INT_MAX, INT_MIN, text_decoder
from shoal.types.values import Stored

_INT_DIGITS_MAX: Final = 19
_SHOWN_MAX: Final = 80


def fits_int(text: str, negative: bool) -> bool:
    """Does an integer literal fit into INT? Python refuses to read thousands of digits, so we count first."""
    digits = text.lstrip("0") or "0"
    if len(digits) != _INT_DIGITS_MAX:
        return len(digits) < _INT_DIGITS_MAX
    return -int(digits) >= INT_MIN if negative else int(digits) <= INT_MAX


def natural_type(kind: LiteralKind, text: str, negative: bool) -> SqlType:
    """Of a literal that nothing else is wanted of. An integer beyond INT is a DECIMAL."""
    match kind:
        case LiteralKind.INTEGER:
            return INT if fits_int(text, negative) else DECIMAL
        case LiteralKind.DECIMAL:
            return DECIMAL
        case LiteralKind.DOUBLE:
            return DOUBLE
        case LiteralKind.STRING:
            return TEXT


def literal_value(kind: LiteralKind, text: str, negative: bool, wanted: SqlType, zone: Zone = UTC) -> Stored:
    """The literal as a value of that type, in its storage form.

    A string is read as the type's text. A number is itself, cast where another type is wanted; but as a
    DOUBLE or DECIMAL it is read digit by digit, without a detour that would lose some.
    """
    if kind is LiteralKind.STRING:
        return _string_value(text, wanted, zone)
    spelled = f"-{text}" if negative else text
    if wanted == INT and kind is LiteralKind.INTEGER:
        if not fits_int(text, negative):
            raise NumericOutOfRange("value doesn't fit into integer range")
        return int(spelled)
    if wanted.is_double:
        return text_decoder(DOUBLE)(spelled)
    if wanted.is_decimal:
        return _cast(decimals.from_text(spelled), DECIMAL, wanted, zone)
    natural = natural_type(kind, text, negative)
    if wanted.is_int and natural is DECIMAL and kind is LiteralKind.INTEGER:
        raise NumericOutOfRange("value doesn't fit into integer range")
    value: Stored
    if natural is INT:
        value = int(spelled)
    elif natural is DECIMAL:
        value = decimals.from_text(spelled)
    else:
        value = text_decoder(DOUBLE)(spelled)
    return _cast(value, natural, wanted, zone)


def _string_value(text: str, wanted: SqlType, zone: Zone) -> Stored:
    try:
        return text_decoder(wanted, zone)(text)
    except InvalidTextRepresentation as error:
        shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
        raise InvalidTextRepresentation(
            f"failed to parse '{shown}' as a value of type {wanted.error_name}, "
            "consider using explicit type casts",
            detail=error.message,
        ) from error


def _cast(value: Stored, source: SqlType, wanted: SqlType, zone: Zone) -> Stored:
    if source == wanted:
        return value
    convert = casts.cast(source, wanted, zone)
    if convert is None:
        raise CannotCoerce(f"Failed to cast {source.error_name} to {wanted.error_name}")
    return convert(value)
