"""JSON values, stored as compact text.

Here: the canonical text of a document, its tree, paths into it.
Not here: JSON's casts from and to other types (casts.py), its MessagePack form (msgpack.py).

Canonical means: no blanks, a repeated key keeps its last value, keys stay in the order in which they came,
strings escape only what they must, and a number has one spelling. Numbers are exact: one that a double shows
(0.1, 1e300) is spelled as the double, any other is a decimal of up to 38 digits; what is neither is refused,
since every other form of the document, MessagePack first, would silently hold another number.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from decimal import Decimal
from json.encoder import encode_basestring as _quoted
from typing import Final, NoReturn, TypeAlias, Union

from shoal.errors import InvalidTextRepresentation, NumericOutOfRange, StatementTooComplex
from shoal.types import decimals

__all__ = [
    "JsonNumber",
    "JsonTree",
    "canonical",
    "decimal_number",
    "element_texts",
    "extract",
    "number_text",
    "parse",
    "write",
]

DEPTH_MAX: Final = 500


class JsonNumber(str):
    """A number's canonical spelling, told apart from a string's text."""

    __slots__ = ()


JsonTree: TypeAlias = Union[None, bool, JsonNumber, str, "list[JsonTree]", "dict[str, JsonTree]"]  # noqa: RUF036


def parse(text: str) -> JsonTree:
    """The document's tree: numbers as JsonNumber, each spelled canonically."""
    try:
        tree: JsonTree = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidTextRepresentation(
            "invalid input syntax for type json", detail=f"{error.msg} at character {error.pos + 1}."
        ) from None
    except RecursionError:
        raise _too_deep() from None
    return tree


def canonical(text: str) -> str:
    """The stored form of a JSON text."""
    return write(parse(text))


def write(tree: JsonTree) -> str:
    parts: list[str] = []
    _write(tree, parts, 0)
    return "".join(parts)


def _write(tree: JsonTree, parts: list[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise _too_deep()
    if tree is None:
        parts.append("null")
    elif isinstance(tree, JsonNumber):
        parts.append(tree)
    elif isinstance(tree, str):
        parts.append(_string(tree))
    elif isinstance(tree, bool):
        parts.append("true" if tree else "false")
    elif isinstance(tree, list):
        separator = "["
        for item in tree:
            parts.append(separator)
            _write(item, parts, depth + 1)
            separator = ","
        parts.append("]" if tree else "[]")
    else:
        separator = "{"
        for key, item in tree.items():
            parts.append(separator)
            parts.append(_string(key))
            parts.append(":")
            _write(item, parts, depth + 1)
            separator = ","
        parts.append("}" if tree else "{}")


def _string(text: str) -> str:
    # A NUL could never come out again as TEXT, half a surrogate pair not even as UTF-8.
    if "\0" in text:
        raise InvalidTextRepresentation("invalid input syntax for type json", detail="\\u0000 is no text.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidTextRepresentation(
                "invalid input syntax for type json", detail="A Unicode surrogate must not stand alone."
            ) from None
    return _quoted(text)


def _too_deep() -> StatementTooComplex:
    return StatementTooComplex(f"JSON is nested too deeply, the most is {DEPTH_MAX}")


def number_text(token: str) -> JsonNumber:
    """The one spelling of a JSON number."""
    if "." not in token and "e" not in token and "E" not in token:
        if len(token.lstrip("-")) > 38:
            raise _out_of_range(token)
        return JsonNumber("0" if token == "-0" else token)
    double = float(token)
    try:
        exact = Decimal(token)
        if double - double == 0.0 and Decimal(repr(double)) == exact:
            return JsonNumber(repr(double + 0.0))
        stored = decimals.to_stored(exact)
    except (decimal.InvalidOperation, NumericOutOfRange):
        raise _out_of_range(token) from None
    if decimals.from_stored(stored) != exact:
        raise _out_of_range(token)
    return JsonNumber(decimals.to_text(stored))


def decimal_number(stored: bytes) -> JsonNumber:
    """The same for a DECIMAL: spelled as a double if a double shows exactly that number."""
    text = decimals.to_text(stored)
    return number_text(text) if "." in text else JsonNumber(text)


def _out_of_range(token: str) -> NumericOutOfRange:
    shown = token if len(token) <= 80 else token[:80] + "…"
    return NumericOutOfRange(f"number {shown} is out of range for type json: neither a double nor 38 digits")


def _no_constant(token: str) -> NoReturn:
    raise InvalidTextRepresentation(
        "invalid input syntax for type json", detail=f"{token} is no JSON number."
    )


_DECODER: Final = json.JSONDecoder(
    parse_float=number_text, parse_int=number_text, parse_constant=_no_constant, strict=True
)


def extract(stored: str, path: Sequence[str | int]) -> str | None:
    """The value at the path, as ANY; None when there is none, or when it is null.

    A step into an object is a key, a step into an array a position from 1, as number or as text.
    """
    tree = parse(stored)
    for step in path:
        if isinstance(tree, dict):
            tree = tree.get(str(step))
        elif isinstance(tree, list):
            position = _position(step)
            tree = tree[position - 1] if 1 <= position <= len(tree) else None
        else:
            return None
    return None if tree is None else write(tree)


def _position(step: str | int) -> int:
    """0, which no item has, for what is no position."""
    if isinstance(step, int):
        return step
    return int(step) if step.isascii() and step.isdigit() and len(step) < 19 else 0


def element_texts(stored: str) -> list[str | None]:
    """The elements of a JSON array, each as ANY, null as None. What is no array is 22P02."""
    tree = parse(stored)
    if not isinstance(tree, list):
        raise InvalidTextRepresentation("the JSON value is no array")
    return [None if item is None else write(item) for item in tree]
