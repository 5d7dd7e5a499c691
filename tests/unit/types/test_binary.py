"""PostgreSQL's binary format."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import (
    DatetimeOverflow,
    FeatureNotSupported,
    InvalidBinaryRepresentation,
    InvalidCharacter,
    ShoalError,
)
from shoal.types import (
    BOOLEAN,
    DATETIME,
    DECIMAL,
    INT,
    JSON,
    TEXT,
    Kind,
    SqlType,
    array_of,
    arrays,
    datetimes,
    decimals,
    type_of_oid,
)
from shoal.types.binary import binary_decoder, binary_encoder
from tests.unit.types.strategies import ALL_TYPES, STORED

SCALAR_OIDS = [16, 20, 21, 23, 700, 701, 1700, 25, 1043, 1042, 19, 705, 2950, 1184, 1114, 1082, 114, 3802]
ARRAY_OIDS = [
    1000,
    1016,
    1005,
    1007,
    1021,
    1022,
    1231,
    1009,
    1015,
    1014,
    1003,
    2951,
    1185,
    1115,
    1182,
    199,
    3807,
]


@pytest.mark.parametrize("t", ALL_TYPES, ids=str)
def test_values_read_back(t: SqlType) -> None:
    encode, decode = binary_encoder(t), binary_decoder(t.oid, t)

    @settings(max_examples=80)
    @given(STORED[t])
    def check(stored: object) -> None:
        assert decode(encode(stored)) == stored  # type: ignore[arg-type]

    check()


@pytest.mark.parametrize(
    "text, data",
    [
        ("0", "0000 0000 0000 0000"),
        ("1", "0001 0000 0000 0000 0001"),
        ("-1", "0001 0000 4000 0000 0001"),
        ("10000", "0001 0001 0000 0000 0001"),
        ("12345.678", "0003 0001 0000 0003 0001 0929 1a7c"),
        ("0.0001", "0001 ffff 0000 0004 0001"),
        ("0.5", "0001 ffff 0000 0001 1388"),
        ("-123456789.01", "0004 0002 4000 0002 0001 0929 1a85 0064"),
    ],
)
def test_numerics(text: str, data: str) -> None:
    stored = decimals.from_text(text)
    assert binary_encoder(DECIMAL)(stored) == bytes.fromhex(data)
    assert binary_decoder(1700)(bytes.fromhex(data)) == stored


def test_a_scale_is_shown_in_binary_too() -> None:
    money = SqlType(Kind.DECIMAL, precision=6, scale=2)
    assert binary_encoder(money)(decimals.from_text("1.5")) == bytes.fromhex("0002 0000 0000 0002 0001 1388")
    assert binary_encoder(money)(decimals.ZERO) == bytes.fromhex("0000 0000 0000 0002")


@pytest.mark.parametrize(
    "data",
    [
        "", "0001", "0000 0000 c000 0000", "0000 0000 d000 0000", "0000 0000 f000 0000", "0001 0000 0000 0000",
        "0001 0000 0000 0000 2710", "0001 0000 0000 0000 ffff", "ffff 0000 0000 0000", "0000 0000 0000 0000 00",
    ],
)  # fmt: skip
def test_malformed_numerics(data: str) -> None:
    with pytest.raises(InvalidBinaryRepresentation, match="type numeric"):
        binary_decoder(1700)(bytes.fromhex(data))


def test_integers_are_read_by_their_own_width() -> None:
    assert binary_decoder(21)(struct.pack(">h", -2)) == -2
    assert binary_decoder(23)(struct.pack(">i", -2)) == -2
    assert binary_decoder(20)(struct.pack(">q", -(2**63))) == -(2**63)
    for oid in (20, 21, 23, 16, 700, 701, 2950, 1184, 1114, 1082):
        with pytest.raises(InvalidBinaryRepresentation, match="incorrect binary data format for type"):
            binary_decoder(oid)(b"abc")


def test_doubles() -> None:
    assert binary_decoder(700)(struct.pack(">f", 1.5)) == 1.5
    assert str(binary_decoder(701)(struct.pack(">d", -0.0))) == "0.0"
    assert binary_decoder(701)(struct.pack(">d", float("inf"))) == float("inf")
    for oid, layout in ((700, ">f"), (701, ">d")):
        with pytest.raises(InvalidBinaryRepresentation, match="float"):
            binary_decoder(oid)(struct.pack(layout, float("nan")))


def test_datetimes() -> None:
    assert binary_encoder(DATETIME)(datetimes.from_calendar(2000, 1, 1)) == bytes(8)
    assert binary_decoder(1184)(struct.pack(">q", -1)) == datetimes.from_calendar(
        1999, 12, 31, 23, 59, 59, 999_999
    )
    assert binary_decoder(1114)(bytes(8)) == datetimes.from_calendar(2000, 1, 1)
    assert binary_decoder(1082)(struct.pack(">i", 31)) == datetimes.from_calendar(2000, 2, 1)
    for since_2000 in (2**63 - 1, -(2**63)):
        with pytest.raises(InvalidBinaryRepresentation, match="datetime"):
            binary_decoder(1184)(struct.pack(">q", since_2000))
    with pytest.raises(DatetimeOverflow):
        binary_decoder(1184)(struct.pack(">q", 2**62))
    with pytest.raises(DatetimeOverflow):
        binary_decoder(1082)(struct.pack(">i", 2**31 - 1))


def test_texts() -> None:
    for oid in (25, 1043, 1042, 19, 705):
        assert binary_decoder(oid)("é".encode()) == "é"
        with pytest.raises(InvalidCharacter, match="UTF8"):
            binary_decoder(oid)(b"a\xff")
        with pytest.raises(InvalidCharacter, match="NUL"):
            binary_decoder(oid)(b"a\0")


def test_json() -> None:
    assert binary_decoder(114)(b'{"a": 1}') == '{"a":1}'
    assert binary_decoder(3802)(b'\1{"a": 1}') == '{"a":1}'
    for data in (b"", b'\2{"a": 1}', b"{}"):
        with pytest.raises(InvalidBinaryRepresentation, match="jsonb"):
            binary_decoder(3802)(data)
    assert binary_encoder(JSON)('{"a":1}') == b'{"a":1}'


def array(element_oid: int, *elements: bytes | None, first: int = 1, dimensions: int = 1) -> bytes:
    data = struct.pack(">iiI", dimensions, None in elements, element_oid)
    data += struct.pack(">ii", len(elements), first) * dimensions
    for element in elements:
        data += struct.pack(">i", -1) if element is None else struct.pack(">i", len(element)) + element
    return data


def test_arrays() -> None:
    stored = arrays.pack([1, None, -1])
    eight = array(20, struct.pack(">q", 1), None, struct.pack(">q", -1))
    assert binary_encoder(array_of(INT))(stored) == eight
    assert binary_decoder(1016)(eight) == stored
    assert binary_decoder(1007)(array(23, struct.pack(">i", 1), None, struct.pack(">i", -1))) == stored
    assert binary_decoder(1009)(array(25, b"", b"NULL", None)) == arrays.pack(["", "NULL", None])
    assert binary_decoder(199)(array(114, b'{"a": 1}')) == arrays.pack(['{"a":1}'])
    assert binary_encoder(array_of(TEXT))(arrays.pack([])) == struct.pack(">iiI", 0, 0, 25)
    assert binary_decoder(1009)(struct.pack(">iiI", 0, 0, 25)) == arrays.pack([])
    assert binary_encoder(array_of(JSON))(arrays.pack(['{"a":1}', None])) == b'[{"a":1},null]'
    assert binary_decoder(114, array_of(JSON))(b'[{"a": 1}, null]') == arrays.pack(['{"a":1}', None])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        array(23, struct.pack(">i", 1)),
        array(20, b"abc"),
        array(20, struct.pack(">q", 1))[:-1],
        array(20, struct.pack(">q", 1)) + b"x",
        struct.pack(">iiIii", 1, 0, 20, 2**31 - 1, 1),
        struct.pack(">iiIii", 1, 0, 20, -1, 1),
        struct.pack(">iiIiii", 1, 0, 20, 1, 1, -2),
        struct.pack(">iiI", -1, 0, 20),
    ],
)
def test_malformed_arrays(data: bytes) -> None:
    with pytest.raises(InvalidBinaryRepresentation, match="incorrect binary data format for type int"):
        binary_decoder(1016)(data)


def test_arrays_have_one_dimension_that_begins_at_1() -> None:
    for data in (array(20, dimensions=2), array(20, struct.pack(">q", 1), first=5)):
        with pytest.raises(FeatureNotSupported):
            binary_decoder(1016)(data)


def test_every_oid_that_a_parameter_may_have() -> None:
    for oid in SCALAR_OIDS + ARRAY_OIDS:
        assert type_of_oid(oid) is not None
        assert binary_decoder(oid) is not None
    for oid in (0, 17, 1083, 1186):
        with pytest.raises(FeatureNotSupported, match=f"OID {oid} "):
            binary_decoder(oid)


@pytest.mark.parametrize("oid", SCALAR_OIDS + ARRAY_OIDS)
def test_any_bytes_are_a_value_or_an_error(oid: int) -> None:
    decode, t = binary_decoder(oid), type_of_oid(oid)
    assert t is not None
    encode = binary_encoder(t)

    @settings(max_examples=60)
    @given(
        st.binary(max_size=40)
        | st.binary(max_size=24).map(lambda rest: struct.pack(">iiI", 1, 0, oid) + rest)
    )
    def check(data: bytes) -> None:
        try:
            stored = decode(data)
        except ShoalError:
            return
        assert binary_decoder(t.oid, t)(encode(stored)) == stored

    check()


def test_booleans() -> None:
    assert binary_decoder(16)(b"\1") == 1 and binary_decoder(16)(b"\0") == 0
    assert binary_encoder(BOOLEAN)(1) == b"\1" and binary_encoder(BOOLEAN)(0) == b"\0"
