"""PostgreSQL's binary format, in and out of the storage form.

Here: binary_decoder() by the OID that the client declared, since the OID alone says how wide a number is;
binary_encoder() by our type, whose OID is the one that the row description shows.
Not here: the text format (text.py); reading frames off the wire (pgwire/).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from shoal.errors import FeatureNotSupported, InvalidBinaryRepresentation, InvalidCharacter
from shoal.types import arrays, datetimes, decimals, json
from shoal.types.sqltype import Kind, SqlType, array_of, type_of_oid
from shoal.types.values import BinaryDecoder, Encoder, Stored

__all__ = ["binary_decoder", "binary_encoder"]

_EPOCH_2000_US: Final = datetimes.from_calendar(2000, 1, 1)  # PostgreSQL counts from here
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

_unpack_int2: Final = struct.Struct(">h").unpack
_unpack_int4: Final = struct.Struct(">i").unpack
_unpack_int8: Final = struct.Struct(">q").unpack
_unpack_uint4: Final = struct.Struct(">I").unpack
_unpack_float4: Final = struct.Struct(">f").unpack
_unpack_float8: Final = struct.Struct(">d").unpack
_pack_int8: Final = struct.Struct(">q").pack


def _malformed(type_name: str, why: str = "") -> InvalidBinaryRepresentation:
    return InvalidBinaryRepresentation(
        f"incorrect binary data format for type {type_name}", detail=why or None
    )


# In


def binary_decoder(oid: int, t: SqlType | None = None) -> BinaryDecoder:
    """Reads a value that the client sent as this OID. t matters for an array of maps alone: it travels as one
    JSON document under json's OID, so the OID doesn't tell the two apart."""
    if t is not None and t.is_array and t.kind is Kind.JSON and oid == t.oid:
        return _json_array
    decode = _DECODERS.get(oid)
    if decode is None:
        raise FeatureNotSupported(f"parameters of the type with OID {oid} are not supported")
    return decode


def _number_decoder(unpack: Callable[[bytes], tuple[Any, ...]], type_name: str) -> BinaryDecoder:
    def decode(data: bytes) -> int:
        try:
            return cast(int, unpack(data)[0])
        except struct.error:
            raise _malformed(type_name, f"{len(data)} bytes") from None

    return decode


def _double_decoder(unpack: Callable[[bytes], tuple[Any, ...]], type_name: str) -> BinaryDecoder:
    def decode(data: bytes) -> float:
        try:
            value = cast(float, unpack(data)[0])
        except struct.error:
            raise _malformed(type_name, f"{len(data)} bytes") from None
        if value != value:
            raise _malformed(type_name, "NaN is no value of type double")
        return value + 0.0  # -0.0 + 0.0 is 0.0

    return decode


def _text(data: bytes) -> str:
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidCharacter(f'invalid byte sequence for encoding "UTF8" at byte {error.start}') from None
    if "\0" in text:
        raise InvalidCharacter("a text can't hold a NUL character")
    return text


def _boolean(data: bytes) -> int:
    if len(data) != 1:
        raise _malformed("bool", f"{len(data)} bytes")
    return 1 if data[0] else 0


def _uuid(data: bytes) -> bytes:
    if len(data) != 16:
        raise _malformed("uuid", f"{len(data)} bytes")
    return bytes(data)


def _timestamp(data: bytes) -> int:
    if len(data) != 8:
        raise _malformed("datetime", f"{len(data)} bytes")
    since_2000: int = _unpack_int8(data)[0]
    if since_2000 in (_INT64_MIN, _INT64_MAX):
        raise _malformed("datetime", "infinity is no value of type datetime")
    return datetimes.checked(since_2000 + _EPOCH_2000_US)


def _date(data: bytes) -> int:
    if len(data) != 4:
        raise _malformed("datetime", f"{len(data)} bytes")
    return datetimes.checked(_unpack_int4(data)[0] * datetimes.DAY_US + _EPOCH_2000_US)


_POSITIVE: Final = 0x0000
_NEGATIVE: Final = 0x4000
_NUMERIC_HEADER: Final = struct.Struct(">hhHH")  # count of digits, weight of the first, sign, display scale


def _numeric(data: bytes) -> bytes:
    """PostgreSQL's digits are of base 10000; the first one counts 10000^weight."""
    if len(data) < 8:
        raise _malformed("numeric", f"{len(data)} bytes")
    count, weight, sign, _ = _NUMERIC_HEADER.unpack_from(data)
    if sign not in (_POSITIVE, _NEGATIVE):
        raise _malformed("numeric", "NaN and infinity are no values of type numeric")
    if count < 0 or len(data) != 8 + 2 * count:
        raise _malformed("numeric", f"{count} digits in {len(data)} bytes")
    digits = struct.unpack_from(f">{count}h", data, 8)
    if any(not 0 <= digit <= 9999 for digit in digits):
        raise _malformed("numeric", "a digit is not between 0 and 9999")
    return decimals.from_parts(
        sign == _NEGATIVE, "".join([f"{digit:04}" for digit in digits]), weight * 4 + 3
    )


def _json(data: bytes) -> str:
    return json.canonical(_text(data))


def _jsonb(data: bytes) -> str:
    if data[:1] != b"\1":
        raise _malformed("jsonb", f"version {data[0] if data else 'missing'}")
    return json.canonical(_text(data[1:]))


def _json_array(data: bytes) -> bytes:
    return arrays.pack(json.element_texts(_text(data)))


_ARRAY_HEADER: Final = struct.Struct(">iiI")  # dimensions, has NULLs, OID of the elements
_DIMENSION: Final = struct.Struct(">ii")  # length, first index


def _array_decoder(element_oid: int, type_name: str) -> BinaryDecoder:
    element = _DECODERS[element_oid]

    def decode(data: bytes) -> bytes:
        try:
            return arrays.pack(_array_elements(data, element_oid, element))
        except struct.error:
            raise _malformed(type_name, f"it ends after {len(data)} bytes") from None
        except ValueError as error:
            raise _malformed(type_name, str(error)) from None

    return decode


def _array_elements(data: bytes, element_oid: int, element: BinaryDecoder) -> list[Stored]:
    dimensions, _, oid = _ARRAY_HEADER.unpack_from(data)
    if oid != element_oid:
        raise ValueError(f"the elements have OID {oid} instead of {element_oid}")
    if dimensions == 0 and len(data) == 12:
        return []
    if dimensions > 1:
        raise FeatureNotSupported("nested arrays are not supported")
    if dimensions != 1:
        raise ValueError(f"{dimensions} dimensions")
    count, first = _DIMENSION.unpack_from(data, 12)
    if first not in (0, 1):
        raise FeatureNotSupported(f"arrays begin at 1: one that begins at {first} is not supported")
    # Each element takes four bytes at least: a count beyond that is a lie, told to make us allocate.
    if not 0 <= count <= (len(data) - 20) // 4:
        raise ValueError(f"{count} elements in {len(data)} bytes")
    found: list[Stored] = []
    position = 20
    for _ in range(count):
        length: int = _unpack_int4(data[position : position + 4])[0]
        position += 4
        if length == -1:
            found.append(None)
            continue
        if length < 0 or position + length > len(data):
            raise ValueError(f"an element of {length} bytes")
        found.append(element(data[position : position + length]))
        position += length
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes are left over")
    return found


_DECODERS: Final[dict[int, BinaryDecoder]] = {
    16: _boolean,
    20: _number_decoder(_unpack_int8, "int8"),
    21: _number_decoder(_unpack_int2, "int2"),
    23: _number_decoder(_unpack_int4, "int4"),
    26: _number_decoder(_unpack_uint4, "oid"),
    700: _double_decoder(_unpack_float4, "float4"),
    701: _double_decoder(_unpack_float8, "float8"),
    1700: _numeric,
    25: _text,
    1043: _text,
    1042: _text,
    19: _text,
    705: _text,
    2950: _uuid,
    1184: _timestamp,
    1114: _timestamp,
    1082: _date,
    114: _json,
    3802: _jsonb,
}

# OID of an array → OID of its elements, for every array type that a parameter may have.
ELEMENT_OIDS: Final[Mapping[int, int]] = {
    1000: 16,
    1016: 20,
    1005: 21,
    1007: 23,
    1028: 26,
    1021: 700,
    1022: 701,
    1231: 1700,
    1009: 25,
    1015: 1043,
    1014: 1042,
    1003: 19,
    2951: 2950,
    1185: 1184,
    1115: 1114,
    1182: 1082,
    199: 114,
    3807: 3802,
}


def _add_array_decoders() -> None:
    for oid, element_oid in ELEMENT_OIDS.items():
        t, element = type_of_oid(oid), type_of_oid(element_oid)
        assert t is not None and element is not None and t == array_of(element), oid
        _DECODERS[oid] = _array_decoder(element_oid, t.error_name)


_add_array_decoders()


# Out


def binary_encoder(t: SqlType) -> Encoder:
    """Writes a stored value of the type, never None, in the format of t.oid."""
    if t.is_array:
        return _array_encoder(t)
    if t.kind is Kind.DECIMAL and t.scale is not None:
        scale = t.scale
        return _typed(lambda stored: _numeric_bytes(stored, scale))
    return _ENCODERS[t.kind]


def _typed(encode: Callable[[Any], bytes]) -> Encoder:
    # The caller pairs the encoder of a type with stored values of that type: nothing checks it per value.
    return cast(Encoder, encode)


def _numeric_bytes(stored: bytes, scale: int = 0) -> bytes:
    negative, digits, exponent = decimals.parts(stored)
    display_scale = max(scale, len(digits) - 1 - exponent)
    if stored == decimals.ZERO:
        return _NUMERIC_HEADER.pack(0, 0, _POSITIVE, display_scale)
    weight, place = divmod(exponent, 4)
    aligned = "0" * (3 - place) + digits
    aligned += "0" * (-len(aligned) % 4)
    groups = [int(aligned[start : start + 4]) for start in range(0, len(aligned), 4)]
    header = _NUMERIC_HEADER.pack(
        len(groups), weight, _NEGATIVE if negative else _POSITIVE, max(display_scale, 0)
    )
    return header + struct.pack(f">{len(groups)}h", *groups)


def _array_encoder(t: SqlType) -> Encoder:
    if t.kind is Kind.ANY:
        return _typed(str.encode)
    element = binary_encoder(t.element)
    if t.kind is Kind.JSON:
        return _typed(
            lambda stored: (
                b"[%b]"
                % b",".join(b"null" if item is None else element(item) for item in arrays.unpack(stored))
            )
        )
    element_oid = t.element.oid

    def encode(stored: bytes) -> bytes:
        elements = arrays.unpack(stored)
        if not elements:
            return _ARRAY_HEADER.pack(0, 0, element_oid)
        pieces = [_ARRAY_HEADER.pack(1, None in elements, element_oid), _DIMENSION.pack(len(elements), 1)]
        for item in elements:
            if item is None:
                pieces.append(b"\xff\xff\xff\xff")
            else:
                data = element(item)
                pieces.append(len(data).to_bytes(4, "big"))
                pieces.append(data)
        return b"".join(pieces)

    return _typed(encode)


_ENCODERS: Final[Mapping[Kind, Encoder]] = {
    Kind.INT: _typed(_pack_int8),
    Kind.DOUBLE: _typed(struct.Struct(">d").pack),
    Kind.DECIMAL: _typed(_numeric_bytes),
    Kind.TEXT: _typed(str.encode),
    Kind.BOOLEAN: _typed((b"\0", b"\1").__getitem__),
    Kind.UUID: _typed(bytes),
    Kind.DATETIME: _typed(lambda stored: _pack_int8(stored - _EPOCH_2000_US)),
    Kind.JSON: _typed(str.encode),
    Kind.ANY: _typed(str.encode),
    Kind.UNKNOWN: _typed(str.encode),
}
