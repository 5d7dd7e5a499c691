"""PostgreSQL's text format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import (
    FeatureNotSupported,
    InvalidCharacter,
    InvalidTextRepresentation,
    NumericOutOfRange,
    ShoalError,
)
from shoal.types import (
    ANY,
    ARRAY,
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UNSIGNED,
    UUID,
    Kind,
    SqlType,
    array_of,
    arrays,
    datetimes,
    decimals,
    text,
)
from tests.unit.types.strategies import ALL_TYPES, STORED, doubles

MONEY = SqlType(Kind.DECIMAL, precision=6, scale=2)


def read(t: SqlType, spelled: str) -> object:
    return text.text_decoder(t)(spelled)


def write(t: SqlType, stored: object) -> str:
    return text.text_encoder(t)(stored).decode()  # type: ignore[arg-type]


@pytest.mark.parametrize("t", ALL_TYPES, ids=str)
def test_values_read_back(t: SqlType) -> None:
    zone = datetimes.zone_of_name("Asia/Kolkata")
    encode, decode = text.text_encoder(t, zone), text.text_decoder(t)

    @settings(max_examples=80)
    @given(STORED[t])
    def check(stored: object) -> None:
        assert decode(encode(stored).decode()) == stored  # type: ignore[arg-type]

    check()


@pytest.mark.parametrize(
    "value, shown",
    [
        (0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (1e20, "1e+20"),
        (1e15, "1e+15"),
        (-1e15, "-1e+15"),
        (1e14, "100000000000000"),
        (-1e14, "-100000000000000"),
        (999999999999999.0, "999999999999999"),
        (1234567890123456.0, "1.234567890123456e+15"),
        (100000000000000.5, "100000000000000.5"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_doubles_look_as_in_psql(value: float, shown: str) -> None:
    assert write(DOUBLE, value) == shown


@given(doubles)
def test_doubles_keep_every_bit(value: float) -> None:
    assert float(text.double_text(value)) == value


def test_doubles_in() -> None:
    for spelled in ("inf", "Infinity", "+INF", "iNfInItY"):
        assert read(DOUBLE, spelled) == float("inf")
    assert read(DOUBLE, "-inf") == float("-inf")
    assert str(read(DOUBLE, "-0.0")) == "0.0"
    assert read(DOUBLE, " .5 ") == 0.5 and read(DOUBLE, "5.") == 5.0 and read(DOUBLE, "1E5") == 100000.0
    assert str(read(DOUBLE, "-0e-9999")) == "0.0"
    for spelled in ("", "nan", "NaN", "1_0", "0x1p3", "1e", "e1", ".", "١", "infinit", "1 2"):
        with pytest.raises(InvalidTextRepresentation, match="type double"):
            read(DOUBLE, spelled)
    for spelled in ("1e400", "-1e400", "1e-400"):
        with pytest.raises(NumericOutOfRange, match="out of range for type double"):
            read(DOUBLE, spelled)


def test_ints_in() -> None:
    for spelled, value in [
        ("0", 0), ("-0", 0), ("+5", 5), (" 7 ", 7), ("00000000000000000000000000007", 7),
        ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("0" * 5000 + "1", 1),
    ]:  # fmt: skip
        assert read(INT, spelled) == value
    for spelled in ("", "-", "1.0", "1e3", "0x10", "1_000", "²", "٣", "1 2", "true", "--1"):
        with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type int"):
            read(INT, spelled)
    for spelled in ("9223372036854775808", "-9223372036854775809", "9" * 5000):
        with pytest.raises(NumericOutOfRange, match="out of range for type int"):
            read(INT, spelled)


def test_unsigned_refuses_negatives() -> None:
    assert read(UNSIGNED, "0") == 0
    with pytest.raises(NumericOutOfRange, match='"-1" is out of range for type unsigned'):
        read(UNSIGNED, "-1")


def test_booleans_in() -> None:
    for spelled in ("t", "tr", "tru", "true", "TRUE", "y", "ye", "yes", "on", "1", " t "):
        assert read(BOOLEAN, spelled) == 1, spelled
    for spelled in ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0", "OFF"):
        assert read(BOOLEAN, spelled) == 0, spelled
    for spelled in ("", "o", "2", "truee", "foo", "10"):
        with pytest.raises(InvalidTextRepresentation, match="type bool"):
            read(BOOLEAN, spelled)


def test_uuids_in() -> None:
    stored = bytes.fromhex("6f2ba4c40a4c4d7986ae43d4f84b70e1")
    for spelled in (
        "6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1",
        "6F2BA4C4-0A4C-4D79-86AE-43D4F84B70E1",
        "{6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1}",
        "6f2ba4c40a4c4d7986ae43d4f84b70e1",
        " 6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1 ",
        "6f2b-a4c4-0a4c-4d79-86ae-43d4-f84b-70e1",
    ):
        assert read(UUID, spelled) == stored, spelled
    assert write(UUID, stored) == "6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1"
    for spelled in ("", "6f2ba4c4", "{6f2ba4c40a4c4d7986ae43d4f84b70e1", "6f2ba4c40a4c4d7986ae43d4f84b70e1}", "g" * 32,
                    "6f2ba4c4 0a4c-4d79-86ae-43d4f84b70e1", "6f2ba4c40a4c4d7986ae43d4f84b70e"):  # fmt: skip
        with pytest.raises(InvalidTextRepresentation, match="type uuid"):
            read(UUID, spelled)


def test_text_has_no_nul() -> None:
    with pytest.raises(InvalidCharacter):
        read(TEXT, "a\0b")


def test_decimals() -> None:
    assert write(DECIMAL, read(DECIMAL, "1.50")) == "1.5"
    assert write(MONEY, read(MONEY, "1.5")) == "1.50"
    assert write(MONEY, read(MONEY, "1.555")) == "1.56"
    assert write(array_of(MONEY), read(array_of(MONEY), "{1,2.345}")) == "{1.00,2.35}"
    with pytest.raises(NumericOutOfRange, match="numeric field overflow"):
        read(MONEY, "10000")


def test_datetimes_show_the_session_s_zone() -> None:
    moscow = datetimes.zone_of_name("Europe/Moscow")
    stored = text.text_decoder(DATETIME, moscow)("2026-01-13 10:00")
    assert text.text_encoder(DATETIME, moscow)(stored) == b"2026-01-13 10:00:00+03"
    assert write(DATETIME, stored) == "2026-01-13 07:00:00+00"
    assert text.cast_text(DATETIME, moscow)(stored) == "2026-01-13T10:00:00+0300"


@pytest.mark.parametrize(
    "spelled, elements, shown",
    [
        ("{}", [], "{}"),
        (" { } ", [], "{}"),
        ("{a,b}", ["a", "b"], "{a,b}"),
        ("{ a , b c }", ["a", "b c"], '{a,"b c"}'),
        ("{null,NULL,nulls}", [None, None, "nulls"], "{NULL,NULL,nulls}"),
        ('{"null",""}', ["null", ""], '{"null",""}'),
        (r'{"a\"b",c\,d,"e\\f"}', ['a"b', "c,d", "e\\f"], r'{"a\"b","c,d","e\\f"}'),
        ('{"{}"}', ["{}"], '{"{}"}'),
        ("{a\\ }", ["a "], '{"a "}'),
        ("{'x'}", ["'x'"], "{'x'}"),
        ('{"a\nb"}', ["a\nb"], '{"a\nb"}'),
    ],
)
def test_arrays(spelled: str, elements: list[str | None], shown: str) -> None:
    stored = read(array_of(TEXT), spelled)
    assert isinstance(stored, bytes) and arrays.unpack(stored) == elements
    assert write(array_of(TEXT), stored) == shown


@pytest.mark.parametrize(
    "spelled", ["", "a", "{", "}", "{a", "a}", "{a}b", "{a,}", "{,a}", '{"a}', '{"a"b}', "{a\\", "{a}}"]
)
def test_malformed_arrays(spelled: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match=r"malformed array literal of type text\[\]"):
        read(array_of(TEXT), spelled)


@pytest.mark.parametrize("spelled", ["{{1}}", "{1,{2}}", "[0:1]={1,2}"])
def test_arrays_have_one_dimension(spelled: str) -> None:
    with pytest.raises(FeatureNotSupported):
        read(array_of(INT), spelled)


def test_an_array_names_the_element_that_is_wrong() -> None:
    with pytest.raises(InvalidTextRepresentation, match='type int: "x"'):
        read(array_of(INT), "{1,x}")


def test_arrays_of_maps_and_of_anything_are_json() -> None:
    maps = read(array_of(JSON), '[{"a": 1}, null]')
    assert maps == read(array_of(JSON), '{"{\\"a\\":1}",NULL}')
    assert write(array_of(JSON), maps) == '[{"a":1},null]'
    assert write(ARRAY, read(ARRAY, ' ["Online", 1]')) == '["Online",1]'
    with pytest.raises(InvalidTextRepresentation):
        read(ARRAY, '{"a":1}')


def test_json_is_canonical() -> None:
    assert write(JSON, read(JSON, ' { "b" : 1.50, "a" : [ ] } ')) == '{"b":1.5,"a":[]}'


def test_casts_to_text() -> None:
    for t, stored, shown in [
        (INT, -5, "-5"),
        (DOUBLE, 1.1, "1.1"),
        (DECIMAL, decimals.from_text("1.50"), "1.5"),
        (MONEY, decimals.from_text("1.5"), "1.50"),
        (TEXT, "x", "x"),
        (BOOLEAN, 1, "TRUE"),
        (BOOLEAN, 0, "FALSE"),
        (DATETIME, datetimes.from_calendar(2003, 7, 8, 16, 13), "2003-07-08T16:13:00Z"),
        (JSON, '"x"', '"x"'),
        (ANY, '"x"', "x"),
        (ANY, "true", "TRUE"),
        (ANY, '{"a":1}', '{"a":1}'),
        (array_of(BOOLEAN), arrays.pack([1, None]), "{t,NULL}"),
    ]:
        assert text.cast_text(t)(stored) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize("t", [*ALL_TYPES, UNSIGNED, MONEY, ANY, ARRAY], ids=lambda t: t.sql_name)
def test_any_text_is_a_value_or_an_error(t: SqlType) -> None:
    decode, encode = text.text_decoder(t), text.text_encoder(t)

    @settings(max_examples=80)
    @given(st.text(max_size=30) | st.text('0123456789+-.eE:TZ{}[]",\\ nulftx', max_size=30))
    def check(spelled: str) -> None:
        try:
            stored = decode(spelled)
        except ShoalError:
            return
        assert decode(encode(stored).decode()) == stored

    check()


@pytest.mark.parametrize("t", [INT, DOUBLE, DECIMAL, DATETIME, UUID, BOOLEAN, JSON, array_of(TEXT)], ids=str)
@pytest.mark.parametrize("part", ["1", "1.", " ", "Tue ", "\\", "{", "[", '"', "a", "1,", "-", "2026-01-13 "])
def test_long_texts_take_no_longer_than_they_are(t: SqlType, part: str) -> None:
    # Quadratic matching would take hours here.
    for spelled in (
        part * 100_000 + "x",
        "Tue" + part * 100_000 + "x",
        "2026-01-13 10:00:00.1" + part * 100_000 + "!",
    ):
        with pytest.raises(ShoalError):
            read(t, spelled)
