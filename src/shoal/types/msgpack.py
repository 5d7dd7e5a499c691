"""MessagePack with Tarantool's extensions, in and out of the storage form.

Here: rows as MessagePack arrays, single values, and hash_part(), the bytes of a value that its bucket hangs on.
Not here: typed arrays' own packed form (arrays.py), the hash (topology/buckets.py).

| type | MessagePack |
|---|---|
| INT | the shortest integer |
| DOUBLE | float64, always |
| TEXT | str |
| BOOLEAN | true, false |
| DECIMAL | extension 1: scale as an integer, then packed decimal digits, the last nibble is the sign (C +, D -) |
| UUID | extension 2: 16 bytes |
| DATETIME | extension 4: seconds (int64), then, if any is not 0, nanoseconds (int32), offset and zone (int16), little endian |
| JSON, ANY | what the document is: map, array, str, integer, float64, and extension 1 for numbers that no double shows |
| T[] | array |

What is written is canonical: DECIMAL has no zeros at its end and a scale ≥ 0, DATETIME is in UTC. Read is what
Tarantool may write: any scale, any offset (an instant it is).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from shoal.errors import InvalidBinaryRepresentation, InvalidCharacter, NumericOutOfRange, ShoalError
from shoal.types import arrays, datetimes, decimals, json
from shoal.types.sqltype import Kind, SqlType
from shoal.types.text import INT_MAX, INT_MIN, uuid_text
from shoal.types.values import Stored

__all__ = ["hash_function", "hash_part", "row_decoder", "row_encoder", "value_decoder", "value_encoder"]

DECIMAL_EXTENSION: Final = 1
UUID_EXTENSION: Final = 2
DATETIME_EXTENSION: Final = 4

# What MessagePack itself can hold, as msgspec gives and takes it.
Packable: TypeAlias = Any

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_Ext: Final = msgspec.msgpack.Ext


def _malformed(why: str) -> InvalidBinaryRepresentation:
    return InvalidBinaryRepresentation(f"malformed MessagePack: {why}")


# Out


def row_encoder(types: Sequence[SqlType]) -> Callable[[Sequence[Stored]], bytes]:
    """Encodes a row of these types as a MessagePack array. NULLs are nil."""
    packers = [_packer(t) for t in types]
    converted = [(index, packer) for index, packer in enumerate(packers) if packer is not None]
    if not converted:
        return _encode

    def encode(row: Sequence[Stored]) -> bytes:
        values: list[Packable] = list(row)
        for index, packer in converted:
            if values[index] is not None:
                values[index] = packer(values[index])
        return _encode(values)

    return encode


def value_encoder(t: SqlType) -> Callable[[Stored], bytes]:
    """Encodes one value of the type, NULL too."""
    packer = _packer(t)
    if packer is None:
        return _encode
    return lambda stored: _encode(None if stored is None else packer(stored))


def _packer(t: SqlType) -> Callable[[Any], Packable] | None:
    """What makes the storage form packable; None: it is already."""
    if t.is_array and t.kind is not Kind.ANY:
        element = _packer(t.element)
        if element is None:
            return arrays.unpack
        return lambda stored: [None if item is None else element(item) for item in arrays.unpack(stored)]
    return _PACKERS[t.kind]


def _pack_decimal(stored: bytes) -> Packable:
    return _Ext(DECIMAL_EXTENSION, _decimal_payload(stored))


def _decimal_payload(stored: bytes) -> bytes:
    negative, digits, exponent = decimals.parts(stored)
    scale = len(digits) - 1 - exponent
    if scale < 0:
        digits += "0" * -scale
        scale = 0
    packed = digits + ("d" if negative else "c")
    # At most 38 digits on either side: the scale is always one byte.
    return bytes((scale,)) + bytes.fromhex(packed if len(packed) % 2 == 0 else "0" + packed)


def _pack_uuid(stored: bytes) -> Packable:
    return _Ext(UUID_EXTENSION, stored)


def _pack_datetime(stored: int) -> Packable:
    return _Ext(DATETIME_EXTENSION, _datetime_payload(stored))


_SECONDS: Final = struct.Struct("<q")
_MOMENT: Final = struct.Struct("<qihh")  # seconds, nanoseconds, offset in minutes, number of the zone


def _datetime_payload(stored: int) -> bytes:
    seconds, us = divmod(stored, datetimes.SECOND_US)
    return _MOMENT.pack(seconds, us * 1000, 0, 0) if us else _SECONDS.pack(seconds)


def _pack_json(stored: str) -> Packable:
    return _pack_tree(json.parse(stored))


def _pack_tree(tree: json.JsonTree) -> Packable:
    if isinstance(tree, json.JsonNumber):
        return _pack_number(tree)
    if isinstance(tree, list):
        return [_pack_tree(item) for item in tree]
    if isinstance(tree, dict):
        return {key: _pack_tree(item) for key, item in tree.items()}
    return tree


def _pack_number(token: str) -> Packable:
    if "." in token or "e" in token:
        double = float(token)
        if repr(double) == token:
            return double
    else:
        whole = int(token)
        if INT_MIN <= whole < 2**64:
            return whole
    return _pack_decimal(decimals.from_text(token))


_PACKERS: Final[Mapping[Kind, Callable[[Any], Packable] | None]] = {
    Kind.INT: None,
    Kind.DOUBLE: None,
    Kind.TEXT: None,
    Kind.BOOLEAN: bool,
    Kind.DECIMAL: _pack_decimal,
    Kind.UUID: _pack_uuid,
    Kind.DATETIME: _pack_datetime,
    Kind.JSON: _pack_json,
    Kind.ANY: _pack_json,
    Kind.UNKNOWN: None,
}


# In


def row_decoder(types: Sequence[SqlType]) -> Callable[[bytes], tuple[Stored, ...]]:
    """Decodes what row_encoder() of the same types, or Tarantool, has written; anything else is 22P03."""
    unpackers = [_unpacker(t) for t in types]

    def decode(data: bytes) -> tuple[Stored, ...]:
        values = _decoded(data)
        if not isinstance(values, list) or len(values) != len(unpackers):
            raise _malformed(f"expected an array of {len(unpackers)} values")
        return tuple(
            [
                None if value is None else unpack(value)
                for unpack, value in zip(unpackers, values, strict=True)
            ]
        )

    return decode


def value_decoder(t: SqlType) -> Callable[[bytes], Stored]:
    unpack = _unpacker(t)

    def decode(data: bytes) -> Stored:
        value = _decoded(data)
        return None if value is None else unpack(value)

    return decode


def _decoded(data: bytes) -> Packable:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise _malformed(str(error)) from None


def _unpacker(t: SqlType) -> Callable[[Packable], Stored]:
    if t.is_array and t.kind is not Kind.ANY:
        element = _unpacker(t.element)

        def unpack(value: Packable) -> bytes:
            if not isinstance(value, list):
                raise _mismatch(t, value)
            return arrays.pack([None if item is None else element(item) for item in value])

        return unpack
    return _UNPACKERS[t.kind]


def _mismatch(t: SqlType | str, value: Packable) -> ShoalError:
    shown = f"extension {value.code}" if isinstance(value, _Ext) else type(value).__name__
    name = t if isinstance(t, str) else t.error_name
    return _malformed(f"{shown} is no value of type {name}")


def _unpack_int(value: Packable) -> int:
    if type(value) is not int:
        raise _mismatch("int", value)
    if value > INT_MAX:
        raise NumericOutOfRange(f"{value} is out of range for type int")
    return value


def _unpack_double(value: Packable) -> float:
    if type(value) is int:
        value = float(value)
    if type(value) is not float or value != value:
        raise _mismatch("double", value)
    return value + 0.0  # -0.0 + 0.0 is 0.0


def _unpack_text(value: Packable) -> str:
    if type(value) is not str:
        raise _mismatch("text", value)
    if "\0" in value:
        raise InvalidCharacter("a text can't hold a NUL character")
    return value


def _unpack_boolean(value: Packable) -> int:
    if type(value) is not bool:
        raise _mismatch("bool", value)
    return 1 if value else 0


def _unpack_decimal(value: Packable) -> bytes:
    if type(value) is int:
        return decimals.from_int(value)
    if not isinstance(value, _Ext) or value.code != DECIMAL_EXTENSION:
        raise _mismatch("numeric", value)
    return _decimal_of_payload(bytes(value.data))


def _decimal_of_payload(payload: bytes) -> bytes:
    scale, length = _leading_int(payload)
    nibbles = payload[length:].hex()
    if not nibbles or not nibbles[:-1].isdigit() or nibbles[-1] not in "abcdef":
        raise _malformed("extension 1 is no decimal")
    digits = nibbles[:-1]
    return decimals.from_parts(nibbles[-1] in "bd", digits, len(digits) - 1 - scale)


_INT_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}


def _leading_int(payload: bytes) -> tuple[int, int]:
    """The MessagePack integer at the beginning, and how many bytes it takes."""
    first = payload[0] if payload else 0xC1
    if first < 0x80:
        return first, 1
    if first >= 0xE0:
        return first - 0x100, 1
    width = _INT_WIDTHS.get(first)
    if width is None or len(payload) <= width:
        raise _malformed("extension 1 has no scale")
    return int.from_bytes(payload[1 : 1 + width], "big", signed=first >= 0xD0), 1 + width


def _unpack_uuid(value: Packable) -> bytes:
    if not isinstance(value, _Ext) or value.code != UUID_EXTENSION:
        raise _mismatch("uuid", value)
    data = bytes(value.data)
    if len(data) != 16:
        raise _malformed(f"extension 2 has {len(data)} bytes")
    return data


def _unpack_datetime(value: Packable) -> int:
    if not isinstance(value, _Ext) or value.code != DATETIME_EXTENSION:
        raise _mismatch("datetime", value)
    data = bytes(value.data)
    if len(data) == 8:
        return datetimes.checked(_SECONDS.unpack(data)[0] * datetimes.SECOND_US)
    if len(data) != 16:
        raise _malformed(f"extension 4 has {len(data)} bytes")
    seconds, nanoseconds, _, _ = _MOMENT.unpack(data)
    if not 0 <= nanoseconds < 1_000_000_000:
        raise _malformed(f"extension 4 has {nanoseconds} nanoseconds")
    return datetimes.checked(seconds * datetimes.SECOND_US + (nanoseconds + 500) // 1000)


def _unpack_json(value: Packable) -> str:
    try:
        return json.write(_unpack_tree(value))
    except RecursionError:
        raise _malformed("nested too deeply") from None


def _unpack_tree(value: Packable) -> json.JsonTree:
    if value is None or isinstance(value, bool | str):
        return cast(json.JsonTree, value)
    if isinstance(value, int):
        return json.JsonNumber(value)
    if isinstance(value, float):
        if value - value != 0.0:
            raise _mismatch("json", value)
        return json.JsonNumber(repr(value + 0.0))
    if isinstance(value, list):
        return [_unpack_tree(item) for item in value]
    if isinstance(value, dict):
        return {_key(key): _unpack_tree(item) for key, item in value.items()}
    if isinstance(value, _Ext):
        match value.code:
            case 1:
                return json.decimal_number(_unpack_decimal(value))
            case 2:
                return uuid_text(_unpack_uuid(value))
            case 4:
                return datetimes.to_iso(_unpack_datetime(value))
            case _:
                pass
    raise _mismatch("json", value)


def _key(key: Packable) -> str:
    # Lua's tables have integers as keys; a JSON object has their texts.
    if isinstance(key, str):
        return key
    if type(key) is int:
        return str(key)
    raise _mismatch("json", key)


_UNPACKERS: Final[Mapping[Kind, Callable[[Packable], Stored]]] = {
    Kind.INT: _unpack_int,
    Kind.DOUBLE: _unpack_double,
    Kind.TEXT: _unpack_text,
    Kind.BOOLEAN: _unpack_boolean,
    Kind.DECIMAL: _unpack_decimal,
    Kind.UUID: _unpack_uuid,
    Kind.DATETIME: _unpack_datetime,
    Kind.JSON: _unpack_json,
    Kind.ANY: _unpack_json,
    Kind.UNKNOWN: _unpack_text,
}


# Hashed


def hash_part(t: SqlType, stored: Stored) -> bytes:
    """The bytes by which a key's value takes part in the hash: its MessagePack, but a text without the header."""
    return hash_function(t)(stored)


def hash_function(t: SqlType) -> Callable[[Stored], bytes]:
    """hash_part() of one type. A value counts as its column's type: 1, 1.0 and '1' in a DECIMAL are one key."""
    assert t.is_scalar, t  # the catalog admits no other key
    if t.kind is Kind.TEXT:
        return lambda stored: b"\xc0" if stored is None else cast(str, stored).encode()
    return value_encoder(t)
