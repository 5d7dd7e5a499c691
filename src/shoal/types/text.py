"""PostgreSQL's text format, in and out of the storage form.

Here: text_decoder(), text_encoder() for the wire; cast_text(), which is how SQL itself turns values into TEXT.
Not here: the binary format (binary.py); which casts exist (casts.py).

A function for a type is asked for once and called per value: so the frequent ones are C functions, or
closures with nothing left to decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from shoal.errors import (
    FeatureNotSupported,
    InvalidCharacter,
    InvalidTextRepresentation,
    NumericOutOfRange,
    ShoalError,
)
from shoal.types import arrays, datetimes, decimals, json
from shoal.types.datetimes import UTC, Zone
from shoal.types.sqltype import Kind, SqlType
from shoal.types.values import Encoder, Stored, TextDecoder

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "cast_text",
    "double_text",
    "text_decoder",
    "text_encoder",
    "uuid_text",
]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1

_BLANKS: Final = " \t\n\r\f\v"  # what PostgreSQL skips; str.strip() alone would skip more


def _malformed(type_name: str, text: str) -> InvalidTextRepresentation:
    return InvalidTextRepresentation(f'invalid input syntax for type {type_name}: "{_shown(text)}"')


def _shown(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


# In


def text_decoder(t: SqlType, zone: Zone = UTC) -> TextDecoder:
    """Reads a value of the type; a datetime without its own time zone is in the given one."""
    if t.is_array:
        return _array_decoder(t, zone)
    if t.kind is Kind.DATETIME:
        return lambda text: datetimes.from_text(text, zone)
    if t.kind is Kind.INT and t.unsigned:
        return _unsigned
    if t.kind is Kind.DECIMAL and t.precision is not None:
        precision, scale = t.precision, t.scale or 0
        return lambda text: decimals.fit(decimals.from_text(text), precision, scale)
    return _DECODERS[t.kind]


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


def _int(text: str) -> int:
    if len(text) < 19 and text.isascii() and text.isdigit():
        return int(text)
    trimmed = text.strip(_BLANKS)
    if _INTEGER.fullmatch(trimmed) is None:
        raise _malformed("int", text)
    # Python refuses to read thousands of digits, and most of them may be zeros.
    sign, digits = trimmed[0] == "-", trimmed.lstrip("+-").lstrip("0") or "0"
    value = int(digits) if len(digits) <= 19 else INT_MAX + 2
    if sign:
        value = -value
    if not INT_MIN <= value <= INT_MAX:
        raise NumericOutOfRange(f'value "{_shown(text)}" is out of range for type int')
    return value


def _unsigned(text: str) -> int:
    value = _int(text)
    if value < 0:
        raise NumericOutOfRange(f'value "{_shown(text)}" is out of range for type unsigned')
    return value


_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)"
)


def _double(text: str) -> float:
    trimmed = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(trimmed) is None:
        raise _malformed("double", text)
    value = float(trimmed)
    infinite = value - value != 0.0 and trimmed[-1] not in "fFyY"
    if infinite or (value == 0.0 and re.search("[1-9]", re.split("[eE]", trimmed)[0])):
        raise NumericOutOfRange(f'"{_shown(text)}" is out of range for type double')
    return value + 0.0  # -0.0 + 0.0 is 0.0


def _text(text: str) -> str:
    if "\0" in text:
        raise InvalidCharacter("a text can't hold a NUL character")
    return text


def _boolean_spellings() -> dict[str, int]:
    spellings = {"1": 1, "0": 0, "on": 1, "of": 0, "off": 0}  # "o" alone would be either
    for word, value in (("true", 1), ("yes", 1), ("false", 0), ("no", 0)):
        for length in range(1, len(word) + 1):
            spellings[word[:length]] = value
    return spellings


_BOOLEANS: Final[Mapping[str, int]] = _boolean_spellings()


def _boolean(text: str) -> int:
    value = _BOOLEANS.get(text)
    if value is None:
        value = _BOOLEANS.get(text.strip(_BLANKS).lower())
        if value is None:
            raise _malformed("bool", text)
    return value


_UUID: Final = re.compile(r"(\{)?(?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}(?(1)\})")


def _uuid(text: str) -> bytes:
    """With or without hyphens, after any group of four, and braces: as PostgreSQL reads it."""
    if _UUID.fullmatch(text) is None:
        trimmed = text.strip(_BLANKS)
        if _UUID.fullmatch(trimmed) is None:
            raise _malformed("uuid", text)
        text = trimmed
    return bytes.fromhex(text.strip("{}").replace("-", ""))


_DECODERS: Final[Mapping[Kind, TextDecoder]] = {
    Kind.INT: _int,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: decimals.from_text,
    Kind.TEXT: _text,
    Kind.BOOLEAN: _boolean,
    Kind.UUID: _uuid,
    Kind.JSON: json.canonical,
    Kind.ANY: json.canonical,
    Kind.UNKNOWN: _text,
}


# One element of {…} and what follows it. Backslashes quote in both forms; an unquoted element keeps the blanks
# inside it, not those around it.
_ELEMENT: Final = re.compile(
    r"""
    [ \t\n\r\f\v]*
    (?: " ( [^"\\]* (?: \\. [^"\\]* )* ) " [ \t\n\r\f\v]*
      | ( [^{},"\\]* (?: \\. [^{},"\\]* )* ) )
    ( [,}{] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def _array_decoder(t: SqlType, zone: Zone) -> TextDecoder:
    if t.kind is Kind.ANY:
        return _json_array
    element = text_decoder(t.element, zone)

    def decode(text: str) -> bytes:
        if t.kind is Kind.JSON and text.lstrip(_BLANKS).startswith("["):
            return arrays.pack(json.element_texts(text))
        return arrays.pack([None if item is None else element(item) for item in _elements(text, t)])

    return decode


def _json_array(text: str) -> str:
    tree = json.parse(text)
    if not isinstance(tree, list):
        raise InvalidTextRepresentation("the JSON value is no array")
    return json.write(tree)


def _elements(text: str, t: SqlType) -> list[str | None]:
    """The texts of {…}'s elements; None is an unquoted NULL."""
    trimmed = text.strip(_BLANKS)
    if trimmed.startswith("[") and "={" in trimmed:
        raise FeatureNotSupported("arrays begin at 1: an array literal with bounds is not supported")
    if not trimmed.startswith("{"):
        raise _malformed_array(text, t, 'an array literal begins with "{"')
    found: list[str | None] = []
    if trimmed[1:].strip(_BLANKS) == "}":
        return found
    position, end = 1, ","
    while end == ",":
        match = _ELEMENT.match(trimmed, position)
        if match is None:
            raise _malformed_array(text, t, f"there is no element at character {position + 1}")
        quoted, bare, end = match.groups()
        if quoted is not None:
            found.append(_ESCAPED.sub(r"\1", quoted))
        elif end == "{" and not bare:
            raise FeatureNotSupported("nested arrays are not supported")
        else:
            found.append(_bare_element(bare, text, t))
        position = match.end()
    if end == "{" or position != len(trimmed):
        raise _malformed_array(text, t, f'character {position} ends it, or a "," is missing')
    return found


def _bare_element(spelled: str, text: str, t: SqlType) -> str | None:
    trimmed = spelled.rstrip(_BLANKS)
    backslashes = len(trimmed) - len(trimmed.rstrip("\\"))
    if backslashes % 2:
        trimmed = spelled[: len(trimmed) + 1]  # the last blank was quoted
    if not trimmed:
        raise _malformed_array(text, t, "an element is missing")
    if trimmed.upper() == "NULL":
        return None
    return _ESCAPED.sub(r"\1", trimmed)


def _malformed_array(text: str, t: SqlType, why: str) -> ShoalError:
    return InvalidTextRepresentation(
        f'malformed array literal of type {t.error_name}: "{_shown(text)}"', detail=why
    )


# Out


def text_encoder(t: SqlType, zone: Zone = UTC) -> Encoder:
    """Writes a stored value of the type, never None; datetimes are shown in the zone."""
    if t.is_array:
        return _array_encoder(t, zone)
    if t.kind is Kind.DATETIME:
        return _typed(lambda stored: datetimes.to_text(stored, zone).encode())
    if t.kind is Kind.DECIMAL:
        scale = t.scale
        return _typed(lambda stored: decimals.to_text(stored, scale).encode())
    return _ENCODERS[t.kind]


def _typed(encode: Callable[[Any], bytes]) -> Encoder:
    # The caller pairs the encoder of a type with stored values of that type: nothing checks it per value.
    return cast(Encoder, encode)


def double_text(value: float) -> str:
    """The shortest text that reads back as the same double, spelled as PostgreSQL does: 1, 0.1, 1e+20."""
    text = repr(value)
    if "e" in text or "n" in text:
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(text, text)
    if -1e15 < value < 1e15:
        return text[:-2] if text.endswith(".0") else text
    # Python writes sixteen digits before the point where PostgreSQL stops at fifteen.
    digits = text.lstrip("-").replace(".", "").rstrip("0")
    shown = f"{digits[0]}.{digits[1:]}e+15" if len(digits) > 1 else f"{digits}e+15"
    return "-" + shown if value < 0 else shown


def uuid_text(stored: bytes) -> str:
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_ENCODERS: Final[Mapping[Kind, Encoder]] = {
    Kind.INT: _typed(b"%d".__mod__),
    Kind.DOUBLE: _typed(lambda stored: double_text(stored).encode()),
    Kind.TEXT: _typed(str.encode),
    Kind.BOOLEAN: _typed((b"f", b"t").__getitem__),
    Kind.UUID: _typed(lambda stored: uuid_text(stored).encode()),
    Kind.JSON: _typed(str.encode),
    Kind.ANY: _typed(str.encode),
    Kind.UNKNOWN: _typed(str.encode),
}

_NEEDS_QUOTES: Final = re.compile(rb'[{},"\\ \t\n\r\f\v]|\A[nN][uU][lL][lL]\Z|\A\Z')
_TO_ESCAPE: Final = re.compile(rb'(["\\])')


def _array_encoder(t: SqlType, zone: Zone) -> Encoder:
    if t.kind is Kind.ANY:
        return _typed(str.encode)
    element = text_encoder(t.element, zone)
    if t.kind is Kind.JSON:
        # An array of maps travels as one JSON document: see SqlType's OIDs.
        return _typed(
            lambda stored: (
                b"[%b]"
                % b",".join(b"null" if item is None else element(item) for item in arrays.unpack(stored))
            )
        )

    def encode(stored: bytes) -> bytes:
        shown = []
        for item in arrays.unpack(stored):
            if item is None:
                shown.append(b"NULL")
                continue
            text = element(item)
            if _NEEDS_QUOTES.search(text):
                text = b'"%b"' % _TO_ESCAPE.sub(rb"\\\1", text)
            shown.append(text)
        return b"{%b}" % b",".join(shown)

    return _typed(encode)


# Casts to TEXT


def cast_text(t: SqlType, zone: Zone = UTC) -> Callable[[Stored], str]:
    """What CAST(value AS TEXT) and || show: TRUE and FALSE, datetimes as ISO 8601, the rest as the wire does.

    ANY shows the value inside, a JSON string without its quotes; JSON shows the document.
    """
    if t.kind is Kind.ANY and not t.is_array:
        return cast(Callable[[Stored], str], _any_text)
    if not t.is_array:
        match t.kind:
            case Kind.TEXT | Kind.JSON | Kind.UNKNOWN:
                return cast(Callable[[Stored], str], str)
            case Kind.INT:
                return cast(Callable[[Stored], str], int.__repr__)
            case Kind.DOUBLE:
                return cast(Callable[[Stored], str], double_text)
            case Kind.BOOLEAN:
                return cast(Callable[[Stored], str], ("FALSE", "TRUE").__getitem__)
            case Kind.UUID:
                return cast(Callable[[Stored], str], uuid_text)
            case Kind.DATETIME:
                return cast(Callable[[Stored], str], lambda stored: datetimes.to_iso(stored, zone))
            case _:
                pass
    encode = text_encoder(t, zone)
    return lambda stored: encode(stored).decode()


def _any_text(stored: str) -> str:
    tree = json.parse(stored)
    if isinstance(tree, bool):
        return "TRUE" if tree else "FALSE"
    return tree if isinstance(tree, str) else json.write(tree)
