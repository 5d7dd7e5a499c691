"""bucket_id: known values of adr/000's rule, and equal keys in equal buckets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.topology import bucket_function, bucket_of, bucket_of_key
from shoal.types import BOOLEAN, DATETIME, DECIMAL, DOUBLE, INT, TEXT, UUID, SqlType, Stored
from shoal.types.casts import cast
from shoal.types.text import text_decoder

# Values as text, their types, the bucket of 3000. All up to ('kek', 1) were seen in Picodata, and so was DECIMAL 1.
KNOWN: list[tuple[tuple[SqlType, ...], tuple[str | None, ...], int]] = [
    ((INT,), ("0",), 84),
    ((INT,), ("1",), 1934),
    ((INT,), ("2",), 1410),
    ((INT,), ("3",), 1958),
    ((INT,), ("4",), 2752),
    ((INT,), ("5",), 219),
    ((INT,), ("8",), 2564),
    ((INT,), ("10",), 626),
    ((INT,), ("15",), 1403),
    ((INT,), ("42",), 2426),
    ((INT,), ("43",), 214),
    ((INT,), ("400",), 590),
    ((INT,), ("-9223372036854775808",), 413),
    ((TEXT, INT), ("1", "1"), 898),
    ((TEXT, INT), ("2", "1"), 2997),
    ((TEXT, INT), ("2", "2"), 2356),
    ((TEXT, INT), ("4", "3"), 2520),
    ((TEXT, INT), ("lol", "5"), 442),
    ((TEXT, INT), ("lol", "42"), 739),
    ((TEXT, INT), ("kek", "42"), 2873),
    ((TEXT, INT), ("kek", "1"), 2036),
    ((DECIMAL,), ("1",), 2135),
    ((INT,), ("127",), 2362),
    ((INT,), ("128",), 1089),
    ((INT,), ("256",), 1052),
    ((INT,), ("65535",), 1488),
    ((INT,), ("4294967295",), 2889),
    ((INT,), ("4294967296",), 2356),
    ((INT,), ("9223372036854775807",), 246),
    ((INT,), ("-1",), 2286),
    ((INT,), ("-32",), 1881),
    ((INT,), ("-33",), 1728),
    ((INT,), ("-128",), 1124),
    ((INT,), ("-129",), 344),
    ((INT,), ("-2147483649",), 2667),
    ((TEXT,), ("",), 563),
    ((TEXT,), ("abc",), 1903),
    ((TEXT,), ("кириллица",), 1617),
    ((BOOLEAN,), ("true",), 2131),
    ((BOOLEAN,), ("false",), 757),
    ((INT,), (None,), 1638),
    ((TEXT,), (None,), 1638),
    ((DOUBLE,), ("1.0",), 2099),
    ((DOUBLE,), ("0.1",), 2673),
    ((DOUBLE,), ("-2.5",), 2279),
    ((DOUBLE,), ("0",), 1781),
    ((DECIMAL,), ("1.5",), 1753),
    ((DECIMAL,), ("-1.5",), 2415),
    ((DECIMAL,), ("12.34",), 249),
    ((DECIMAL,), ("3.1415926535897932384626433832",), 1360),
    ((UUID,), ("6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1",), 1905),
    ((DATETIME,), ("1993-05-19",), 745),
    ((DATETIME,), ("2023-11-11T05:03:19.35421Z",), 141),
]


def stored_key(types: tuple[SqlType, ...], texts: tuple[str | None, ...]) -> tuple[Stored, ...]:
    return tuple(
        None if text is None else text_decoder(t)(text) for t, text in zip(types, texts, strict=True)
    )


@pytest.mark.parametrize(
    "types, texts, bucket", KNOWN, ids=lambda value: str(value) if type(value) is int else None
)
def test_known_buckets(types: tuple[SqlType, ...], texts: tuple[str | None, ...], bucket: int) -> None:
    key = stored_key(types, texts)
    assert bucket_of_key(types, key, 3000) == bucket
    assert bucket_function(types, 3000)(*key) == bucket


def test_the_hash_itself() -> None:
    # Known to Tarantool's own tests.
    assert mmh3.hash(b"1234", 13, False) == 1859914009
    assert mmh3.hash(b"\x01", 13, False) == 1457374933
    assert mmh3.hash(b"\x01\x02", 13, False) == 605624609
    assert bucket_of([b"12", b"34"], 3000) == 1859914009 % 3000 + 1


@pytest.mark.parametrize(
    "t, spellings",
    [
        (DECIMAL, ["1", "1.0", "1.000", "01", "10e-1"]),
        (DECIMAL, ["100", "1e2", "100.00"]),
        (DECIMAL, ["0", "-0.0", "0.000"]),
        (DOUBLE, ["0", "-0.0", "0e5"]),
        (DOUBLE, ["1", "1.0", "1e0"]),
        (
            DATETIME,
            ["2023-11-11 02:03:19-03", "2023-11-11T05:03:19Z", "2023-11-11 05:03:19", "20231111T080319+0300"],
        ),
        (BOOLEAN, ["true", "T", "yes", "1"]),
        (UUID, ["6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1", "6F2BA4C40A4C4D7986AE43D4F84B70E1"]),
        (INT, ["1", "+1", "001"]),
    ],
)
def test_equal_keys_have_one_bucket(t: SqlType, spellings: list[str]) -> None:
    assert len({bucket_of_key((t,), stored_key((t,), (text,)), 3000) for text in spellings}) == 1


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_key_counts_as_its_column_s_type(value: int) -> None:
    to_decimal, via_text = cast(INT, DECIMAL), cast(TEXT, DECIMAL)
    assert to_decimal is not None and via_text is not None
    bucket = bucket_function((DECIMAL,), 3000)
    assert bucket(to_decimal(value)) == bucket(via_text(f"{value}.00"))


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1, max_size=3), st.integers(1, 2**31))
def test_buckets_are_counted_from_1(key: list[int | None], bucket_count: int) -> None:
    bucket = bucket_of_key((INT,) * len(key), key, bucket_count)
    assert 1 <= bucket <= bucket_count


def test_a_key_has_as_many_values_as_columns() -> None:
    with pytest.raises(ValueError):
        bucket_of_key((INT, INT), (1,), 3000)


VECTORS = Path(__file__).parents[4] / "shared" / "vectors" / "bucket_id.json"


@pytest.mark.skipif(not VECTORS.exists(), reason="the shared vectors are not here")
def test_the_shared_vectors() -> None:
    vectors: dict[str, Any] = json.loads(VECTORS.read_text())
    for vector in vectors["observed"]:
        types, key = zip(*(typed(value) for value in vector["values"]), strict=True)
        assert bucket_of_key(types, key, vectors["bucket_count"]) == vector["bucket_id"], vector
    for vector in vectors["derived"]:
        assert mmh3.hash(bytes.fromhex(vector["bytes"]), 13, False) == vector["hash"]
        assert bucket_of([bytes.fromhex(vector["bytes"])], vectors["bucket_count"]) == vector["bucket_id"], (
            vector
        )


def typed(value: Any) -> tuple[SqlType, Stored]:
    if isinstance(value, dict):
        return DECIMAL, text_decoder(DECIMAL)(value["decimal"])
    return (INT, value) if isinstance(value, int) else (TEXT, value)
