"""What can be cast to what: on request, and silently.

Here: cast(), the functions behind CAST(e AS t) and e::t; implicit(), implicit_literal() and common_type(), which
say what happens without asking.
Not here: who asks (sql/); the texts themselves (text.py).

Silently, only numbers change their type: INT becomes DOUBLE or DECIMAL, DOUBLE becomes DECIMAL. DECIMAL becomes
DOUBLE for literals alone: those were DECIMAL by their spelling, nobody chose it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from shoal.errors import InvalidParameterValue, NumericOutOfRange
from shoal.types import arrays, datetimes, decimals, json
from shoal.types.sqltype import ANY, DECIMAL, DOUBLE, INT, Kind, SqlType, array_of
from shoal.types.text import INT_MAX, INT_MIN, cast_text, double_text, text_decoder, uuid_text
from shoal.types.values import Cast, Stored
from shoal.types.zones import UTC, Zone

__all__ = ["cast", "common_type", "implicit", "implicit_literal"]


def cast(source: SqlType, target: SqlType, zone: Zone = UTC) -> Cast | None:
    """The function that casts a value, never NULL; None: there is no such cast. Its answer may be NULL (JSON's null).

    Datetimes are read from text, and written as text, in the zone.
    """
    if source.is_unknown:
        return _same  # no value but NULL is of unknown type
    if target.is_unknown:
        return None
    if target.kind is Kind.TEXT and not target.is_array:
        return _to_text(source, zone)
    if source.kind is Kind.TEXT and not source.is_array and target.kind is not Kind.ANY:
        return _typed(text_decoder(target, zone))
    if source.is_json:
        return _from_json(source, target, zone)
    if target.kind is Kind.ANY:
        return _to_any(source, target)
    if source.is_array and target.is_array:
        return _between_arrays(source, target, zone)
    if source.is_array or target.is_array:
        return None
    found = _SCALAR.get((source.kind, target.kind))
    return None if found is None else _narrowed(found, target)


def _typed(convert: Callable[[Any], Any]) -> Cast:
    # The caller pairs the cast of a type with stored values of that type: nothing checks it per value.
    return typing.cast(Cast, convert)


def _same(stored: Stored) -> Stored:
    return stored


def _to_text(source: SqlType, zone: Zone) -> Cast:
    if source.kind is not Kind.ANY or source.is_array:
        return _typed(cast_text(source, zone))
    show = cast_text(source, zone)
    return lambda stored: None if stored == "null" else show(stored)


# Numbers and booleans


def _int_of_double(value: float) -> int:
    # 2^63 is a double, 2^63 - 1 is none: so the bound is the former, excluded.
    if not -(2.0**63) <= value < 2.0**63:
        raise NumericOutOfRange(f"value {double_text(value)} is out of range for type int")
    return int(value)


def _int_of_decimal(stored: bytes) -> int:
    return _checked_int(decimals.to_int(stored))


def _checked_int(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise NumericOutOfRange(f"value {value} is out of range for type int")
    return value


# An int is true unless it is 0. Doubles and decimals have no truth.
_SCALAR: Final[Mapping[tuple[Kind, Kind], Callable[[Any], Any]]] = {
    (Kind.INT, Kind.INT): _same,
    (Kind.INT, Kind.DOUBLE): float,
    (Kind.INT, Kind.DECIMAL): decimals.from_int,
    (Kind.INT, Kind.BOOLEAN): lambda value: 1 if value else 0,
    (Kind.DOUBLE, Kind.DOUBLE): _same,
    (Kind.DOUBLE, Kind.INT): _int_of_double,
    (Kind.DOUBLE, Kind.DECIMAL): decimals.from_float,
    (Kind.DECIMAL, Kind.DECIMAL): _same,
    (Kind.DECIMAL, Kind.INT): _int_of_decimal,
    (Kind.DECIMAL, Kind.DOUBLE): decimals.to_float,
    (Kind.BOOLEAN, Kind.BOOLEAN): _same,
    (Kind.BOOLEAN, Kind.INT): _same,
    (Kind.UUID, Kind.UUID): _same,
    (Kind.DATETIME, Kind.DATETIME): _same,
}


def _narrowed(convert: Callable[[Any], Any], target: SqlType) -> Cast:
    """Adds what the target's own limits ask for: UNSIGNED, DECIMAL(p, s)."""
    if target.unsigned:
        return lambda stored: _not_negative(convert(stored))
    if target.precision is not None:
        precision, scale = target.precision, target.scale or 0
        return lambda stored: decimals.fit(convert(stored), precision, scale)
    return _typed(convert)


def _not_negative(value: int) -> int:
    if value < 0:
        raise NumericOutOfRange(f"value {value} is out of range for type unsigned")
    return value


# Arrays: element by element


def _between_arrays(source: SqlType, target: SqlType, zone: Zone) -> Cast | None:
    element = cast(source.element, target.element, zone)
    if element is None or element is _same:
        return element
    return _each(element, arrays.unpack)


def _each(element: Cast, elements: Callable[[Any], list[Any]]) -> Cast:
    return lambda stored: arrays.pack([None if item is None else element(item) for item in elements(stored)])


# JSON and ANY: the value inside


def _from_json(source: SqlType, target: SqlType, zone: Zone) -> Cast | None:
    if target.is_array:
        if target.kind is Kind.ANY:
            return _same if source.is_array else _typed(_checked_json_array)
        element = _from_json(ANY, target.element, zone)
        return None if element is None else _each(element, json.element_texts)
    if target.is_json:
        return _same
    if source.is_array:
        return None
    return _typed(_inside(target, zone))


def _checked_json_array(stored: str) -> str:
    json.element_texts(stored)
    return stored


def _inside(target: SqlType, zone: Zone) -> Callable[[str], Stored]:
    """Casts the scalar that a document is, as a value of its own type would be."""
    of_text = text_decoder(target, zone)
    of_number = cast(DECIMAL, target)
    of_boolean = cast(SqlType(Kind.BOOLEAN), target)

    def convert(stored: str) -> Stored:
        tree = json.parse(stored)
        if tree is None:
            return None
        if isinstance(tree, bool):
            what = "boolean"
            if of_boolean is not None:
                return of_boolean(1 if tree else 0)
        elif isinstance(tree, json.JsonNumber):
            what = "number"
            if target.kind is Kind.DOUBLE:
                return float(tree) + 0.0
            if of_number is not None:
                return of_number(decimals.from_text(tree))
        elif isinstance(tree, str):
            return of_text(tree)
        else:
            what = "array" if isinstance(tree, list) else "object"
        raise InvalidParameterValue(f"cannot cast a JSON {what} to type {target.error_name}")

    return convert


def _to_any(source: SqlType, target: SqlType) -> Cast | None:
    if source.is_array:
        spell = _SPELLED[source.kind]
        return _typed(
            lambda stored: (
                "["
                + ",".join("null" if item is None else spell(item) for item in arrays.unpack(stored))
                + "]"
            )
        )
    return None if target.is_array else _typed(_SPELLED[source.kind])


def _spelled_double(value: float) -> str:
    if value - value != 0.0:
        raise NumericOutOfRange(f"{double_text(value)} is out of range for type json")
    return repr(value)


_SPELLED: Final[Mapping[Kind, Callable[[Any], str]]] = {
    Kind.INT: str,
    Kind.DOUBLE: _spelled_double,
    Kind.DECIMAL: json.decimal_number,
    Kind.TEXT: json.write,
    Kind.BOOLEAN: ("false", "true").__getitem__,
    Kind.UUID: lambda stored: f'"{uuid_text(stored)}"',
    Kind.DATETIME: lambda stored: f'"{datetimes.to_iso(stored)}"',
    Kind.JSON: str,
}


# Without being asked

_IMPLICIT: Final = frozenset({(Kind.INT, Kind.DOUBLE), (Kind.INT, Kind.DECIMAL), (Kind.DOUBLE, Kind.DECIMAL)})


def implicit(source: SqlType, target: SqlType) -> bool:
    """May any expression of the one type stand where the other is wanted? The same values may, of course."""
    if source.is_unknown or source.same_values(target):
        return True
    return not source.is_array and not target.is_array and (source.kind, target.kind) in _IMPLICIT


def implicit_literal(source: SqlType, target: SqlType) -> bool:
    """The same for a literal. A string literal is read as whatever is wanted, which is not a cast."""
    return implicit(source, target) or (source.is_decimal and target.is_double)


def common_type(a: SqlType, b: SqlType) -> SqlType | None:
    """The least type that both become silently: of CASE, COALESCE, IN, BETWEEN, VALUES, UNION. None: there is none."""
    if a == b or b.is_unknown:
        return a
    if a.is_unknown:
        return b
    if a.same_values(b):
        return array_of(SqlType(a.kind)) if a.is_array else SqlType(a.kind)  # without either one's limits
    for wanted in (INT, DOUBLE, DECIMAL):
        if implicit(a, wanted) and implicit(b, wanted):
            return wanted
    return None
