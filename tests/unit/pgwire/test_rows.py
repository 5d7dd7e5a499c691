"""The generated encoders write what DataRow writes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.pgwire import row_encoder, rows_encoder
from shoal.pgwire.messages import DataRow
from shoal.types import Encoder, Stored
from tests.unit.pgwire.test_messages import calm

Case = tuple[Callable[..., bytes] | None, st.SearchStrategy[Stored]]

CASES: tuple[Case, ...] = (
    (None, st.text(max_size=400)),
    (b"%d".__mod__, st.integers(-(2**63), 2**63 - 1)),
    (struct.Struct(">q").pack, st.integers(-(2**63), 2**63 - 1)),
    (lambda stored: b"\\x" + stored.hex().encode(), st.binary(max_size=20)),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Encoder | None], list[tuple[Stored, ...]]]:
    columns = draw(st.lists(st.sampled_from(CASES), max_size=12))
    row = st.tuples(*(st.none() | values for _, values in columns))
    return [encoder for encoder, _ in columns], draw(st.lists(row, max_size=5))


@given(tables())
@calm
def test_rows_are_data_rows(table: tuple[list[Encoder | None], list[tuple[Stored, ...]]]) -> None:
    encoders, rows = table
    expected = [
        DataRow(
            tuple(
                None if stored is None else (encoder or str.encode)(stored)  # type: ignore[arg-type]
                for encoder, stored in zip(encoders, row, strict=True)
            )
        ).encode()
        for row in rows
    ]
    encode_row = row_encoder(encoders)
    assert [encode_row(row) for row in rows] == expected
    assert rows_encoder(encoders)(rows) == b"".join(expected)


@pytest.mark.parametrize("column_count", [0, 1, 6, 7, 1664])
def test_any_width(column_count: int) -> None:
    row: tuple[Stored, ...] = tuple(str(number) for number in range(column_count))
    expected = DataRow(tuple(str(number).encode() for number in range(column_count))).encode()
    encoders = (None,) * column_count
    assert row_encoder(encoders)(row) == expected
    assert rows_encoder(encoders)(iter([row, row])) == expected * 2


def test_encoders_of_one_width_do_not_share_columns() -> None:
    numbers = row_encoder((b"%d".__mod__,))
    texts = row_encoder((None,))
    assert numbers((7,)) == texts(("7",))


def test_a_row_of_the_wrong_width_is_our_bug() -> None:
    with pytest.raises(ValueError):
        row_encoder((None, None))(("a",))
