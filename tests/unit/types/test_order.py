"""SQLite itself compares, sorts and finds the storage forms as their values are ordered."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.types import BOOLEAN, DATETIME, DECIMAL, DOUBLE, INT, TEXT, UUID, SqlType, Stored, decimals
from tests.unit.types.strategies import SCALARS, SORTABLE

# What a value means, as something that Python orders as SQL does.
MEANING: dict[SqlType, Any] = {
    INT: int,
    DOUBLE: float,
    DECIMAL: decimals.from_stored,
    TEXT: str,  # by code points, which is the order of UTF-8 bytes
    BOOLEAN: bool,
    UUID: lambda stored: uuid.UUID(bytes=stored),
    DATETIME: int,
}


@pytest.fixture(scope="module")
def database() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    yield connection
    connection.close()


@pytest.mark.parametrize("t", SORTABLE, ids=str)
def test_sqlite_sorts(database: apsw.Connection, t: SqlType) -> None:
    @settings(max_examples=60)
    @given(st.lists(SCALARS[t], max_size=12))
    def check(values: list[Stored]) -> None:
        database.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (c {t.sqlite_type} NOT NULL) STRICT")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
        ordered = [row[0] for row in database.execute("SELECT c FROM t ORDER BY c")]
        assert ordered == sorted(values, key=MEANING[t])
        assert [type(value) for value in ordered] == [type(value) for value in sorted(values, key=MEANING[t])]

    check()


@pytest.mark.parametrize("t", SORTABLE, ids=str)
def test_sqlite_compares(database: apsw.Connection, t: SqlType) -> None:
    @settings(max_examples=60)
    @given(SCALARS[t], SCALARS[t])
    def check(a: Stored, b: Stored) -> None:
        found = database.execute("SELECT ? < ?, ? = ?", (a, b, a, b)).fetchone()
        left, right = MEANING[t](a), MEANING[t](b)
        assert found == (left < right, left == right)

    check()
