"""MessagePack with Tarantool's extensions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import InvalidBinaryRepresentation, NumericOutOfRange, ShoalError
from shoal.types import (
    ANY,
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UUID,
    SqlType,
    array_of,
    arrays,
    datetimes,
    decimals,
)
from shoal.types.msgpack import hash_part, row_decoder, row_encoder, value_decoder, value_encoder
from tests.unit.types.strategies import ALL_TYPES, STORED


@pytest.mark.parametrize("t", ALL_TYPES, ids=str)
def test_values_read_back(t: SqlType) -> None:
    encode, decode = value_encoder(t), value_decoder(t)

    @settings(max_examples=80)
    @given(st.none() | STORED[t])
    def check(stored: object) -> None:
        if stored == "null":
            return  # JSON's null is nil, which is NULL
        assert decode(encode(stored)) == stored  # type: ignore[arg-type]

    check()


def test_rows_read_back() -> None:
    types = (INT, TEXT, DECIMAL, BOOLEAN, DATETIME, array_of(INT))
    row = (1, "x", decimals.from_text("1.5"), 1, 0, arrays.pack([1, None]))
    for values in (row, (None,) * 6):
        assert row_decoder(types)(row_encoder(types)(values)) == values
    assert row_encoder((INT, TEXT))((1, "x")) == bytes.fromhex("9201a178")
    with pytest.raises(InvalidBinaryRepresentation, match="array of 2 values"):
        row_decoder((INT, INT))(b"\x91\x01")


@pytest.mark.parametrize(
    "text, data",
    [
        ("0", "d501000c"),
        ("1", "d501001c"),
        ("1.0", "d501001c"),
        ("-1", "d501001d"),
        ("12.34", "d6010201234c"),
        ("-12.345", "d6010312345d"),
        ("1.5", "c7030101015c"),
        ("-1.5", "c7030101015d"),
        ("100", "c7030100100c"),
        ("1e-36", "d501241c"),
        ("3.1415926535897932384626433832", "d8011c31415926535897932384626433832c"),
    ],
)
def test_decimals(text: str, data: str) -> None:
    stored = decimals.from_text(text)
    assert value_encoder(DECIMAL)(stored).hex() == data
    assert value_decoder(DECIMAL)(bytes.fromhex(data)) == stored


@pytest.mark.parametrize(
    "data, text",
    [
        ("c7030101010c", "1"),  # 1.0
        ("d501fe1c", "100"),  # 1E+2
        ("c70301d0fe1c", "100"),  # the same, its scale in two bytes
        ("c70401cd00021c", "0.01"),
        ("c7030124010c", "0." + "0" * 34 + "10"),
        ("d501001b", "-1"),
        ("d501001f", "1"),
        ("05", "5"),
    ],
)
def test_decimals_that_others_write(data: str, text: str) -> None:
    assert value_decoder(DECIMAL)(bytes.fromhex(data)) == decimals.from_text(text)


@pytest.mark.parametrize(
    "data",
    [
        "d40100",
        "d501001a00",
        "d50100aa",
        "d5010011",
        "c70001",
        "d501c11c",
        "c70201cd00",
        "d6020201234c",
        "c0c0",
        "a131",
    ],
)
def test_malformed_decimals(data: str) -> None:
    with pytest.raises(InvalidBinaryRepresentation):
        value_decoder(DECIMAL)(bytes.fromhex(data))


@pytest.mark.parametrize(
    "text, data",
    [
        ("1993-05-19", "d7048078f92b00000000"),
        ("2023-11-11 05:03:19.35421", "d804170b4f6500000000d0d01c1500000000"),
        ("1969-12-31 23:59:59.5", "d804ffffffffffffffff0065cd1d00000000"),
    ],
)
def test_datetimes(text: str, data: str) -> None:
    stored = datetimes.from_text(text)
    assert value_encoder(DATETIME)(stored).hex() == data
    assert value_decoder(DATETIME)(bytes.fromhex(data)) == stored


def test_a_datetime_s_offset_is_for_show() -> None:
    with_offset = bytes.fromhex("d804170b4f6500000000d0d01c154cff0000")
    assert value_decoder(DATETIME)(with_offset) == datetimes.from_text("2023-11-11 02:03:19.35421-03")


def test_uuids() -> None:
    stored = bytes(range(16))
    assert value_encoder(UUID)(stored) == b"\xd8\x02" + stored


def test_json() -> None:
    for text, data in [
        ('{"a":[1,"x",true,null]}', "81a16194 01a178c3c0"),
        ("1.5", "cb3ff8000000000000"),
        ("1.0", "cb3ff0000000000000"),
        ("18446744073709551615", "cfffffffffffffffff"),
        ("18446744073709551616", "c70c0100018446744073709551616c"),
        ("0.1234567890123456789", "c70b01131234567890123456789c"),
    ]:
        assert value_encoder(JSON)(text) == bytes.fromhex(data), text
    # Lua's tables may have integers as keys, and values of every type.
    assert value_decoder(ANY)(bytes.fromhex("8101d501001c")) == '{"1":1}'
    assert value_decoder(ANY)(b"\xd8\x02" + bytes(16)) == '"00000000-0000-0000-0000-000000000000"'
    assert value_decoder(ANY)(bytes.fromhex("d7048078f92b00000000")) == '"1993-05-19T00:00:00Z"'
    for data in ("cb7ff0000000000000", "c40161", "d40501", "81c001", "8191 01 01"):
        with pytest.raises(InvalidBinaryRepresentation):
            value_decoder(ANY)(bytes.fromhex(data))


def test_other_types_are_refused() -> None:
    for t, data in [
        (INT, "c3"), (INT, "cb3ff0000000000000"), (INT, "a131"), (DOUBLE, "a131"), (DOUBLE, "cb7ff8000000000000"),
        (TEXT, "01"), (TEXT, "c40161"), (BOOLEAN, "01"), (UUID, "d40200"), (UUID, "a0"), (DATETIME, "01"),
        (DATETIME, "d40400"), (array_of(INT), "01"), (array_of(INT), "91a0"), (INT, ""), (INT, "0101"), (INT, "c1"),
        (TEXT, "a2c328"),
    ]:  # fmt: skip
        with pytest.raises(InvalidBinaryRepresentation, match="malformed MessagePack"):
            value_decoder(t)(bytes.fromhex(data))
    with pytest.raises(NumericOutOfRange):
        value_decoder(INT)(bytes.fromhex("cf8000000000000000"))
    assert value_decoder(DOUBLE)(b"\x05") == 5.0


def test_deep_nesting_is_an_error() -> None:
    for t in (ANY, INT, array_of(INT)):
        with pytest.raises(ShoalError):
            value_decoder(t)(b"\x91" * 100_000 + b"\x01")


@pytest.mark.parametrize("t", [*ALL_TYPES, ANY], ids=str)
def test_any_bytes_are_a_value_or_an_error(t: SqlType) -> None:
    decode, encode = value_decoder(t), value_encoder(t)
    moments = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)).map(
        lambda parts: b"\xd8\x04" + struct.pack("<qihh", *parts, 0, 0)
    )

    @settings(max_examples=80)
    @given(
        st.binary(max_size=24)
        | st.binary(min_size=4, max_size=4).map(lambda rest: b"\xd6\x01" + rest)
        | moments
    )
    def check(data: bytes) -> None:
        try:
            stored = decode(data)
        except ShoalError:
            return
        assert decode(encode(stored)) == stored

    check()


@pytest.mark.parametrize(
    "t, stored, data",
    [
        (INT, 0, "00"),
        (INT, 127, "7f"),
        (INT, 128, "cc80"),
        (INT, 65536, "ce00010000"),
        (INT, -1, "ff"),
        (INT, -33, "d0df"),
        (INT, -(2**63), "d38000000000000000"),
        (INT, None, "c0"),
        (TEXT, None, "c0"),
        (TEXT, "", ""),
        (TEXT, "лол", "d0bbd0bed0bb"),
        (BOOLEAN, 1, "c3"),
        (BOOLEAN, 0, "c2"),
        (DOUBLE, 1.0, "cb3ff0000000000000"),
    ],
)
def test_what_is_hashed(t: SqlType, stored: object, data: str) -> None:
    assert hash_part(t, stored).hex() == data  # type: ignore[arg-type]
