"""psycopg 3: every type, both ways, as text and as binary."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from tests.cluster import Instance
from tests.interop.every_type import CASES, Case

MakeTable = Callable[[str], str]

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_case
@pytest.mark.parametrize("placeholder", ["%t", "%b"], ids=["text-in", "binary-in"])
def test_values_go_in_and_come_out(
    instance: Instance, table: MakeTable, case: Case, placeholder: str
) -> None:
    name = table(f"id INT PRIMARY KEY, v {case.sql_type}")
    with instance.connect() as conn:
        for i, value in enumerate((*case.values, None)):
            conn.execute(f"INSERT INTO {name} VALUES (%s, {placeholder})", (i, value))
        for binary in (False, True):
            cursor = conn.cursor(binary=binary)
            rows = cursor.execute(f"SELECT v FROM {name} ORDER BY id".encode()).fetchall()
            assert [row[0] for row in rows] == [*case.values, None]
            assert cursor.description is not None
            assert cursor.description[0].type_code == case.oid
            assert {type(row[0]) for row in rows} == {type(value) for value in (*case.values, None)}


@by_case
def test_values_are_found_by_a_parameter(instance: Instance, table: MakeTable, case: Case) -> None:
    if case.sql_type.endswith("[]"):
        pytest.skip("arrays have no order and no =")
    name = table(f"id INT PRIMARY KEY, v {case.sql_type}")
    with instance.connect() as conn:
        for i, value in enumerate(case.values):
            conn.execute(f"INSERT INTO {name} VALUES (%s, %s)", (i, value))
        for i, value in enumerate(case.values):
            for placeholder in ("%t", "%b"):
                found = conn.execute(f"SELECT id FROM {name} WHERE v = {placeholder}", (value,)).fetchall()
                assert found == [(i,)], value


@by_case
def test_parameters_come_back_as_they_went(instance: Instance, case: Case) -> None:
    """SELECT $1 with a type said by a cast: no table in between."""
    with instance.connect() as conn:
        for binary in (False, True):
            for value in case.values:
                sql = f"SELECT %s::{case.sql_type}"
                row = conn.cursor(binary=binary).execute(sql, (value,)).fetchone()
                assert row == (value,)


def test_nulls_and_empty_strings_differ(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT, ts TEXT[]")
    with instance.connect() as conn:
        conn.execute(f"INSERT INTO {name} VALUES (1, %s, %s), (2, %s, %s)", (None, None, "", []))
        assert conn.execute(f"SELECT t, ts FROM {name} ORDER BY id".encode()).fetchall() == [
            (None, None),
            ("", []),
        ]
        assert conn.execute(f"SELECT id FROM {name} WHERE t IS NULL".encode()).fetchall() == [(1,)]


def test_small_integers_and_big_ones(instance: Instance) -> None:
    """psycopg says int2, int4, int8 or numeric, by the size of the number."""
    with instance.connect() as conn:
        for value in (1, 40_000, 2**40):
            assert conn.execute("SELECT %s + 1", (value,)).fetchone() == (value + 1,)
        assert conn.execute("SELECT %s + 1", (2**70,)).fetchone() == (Decimal(2**70 + 1),)


def test_decimals_keep_38_digits(instance: Instance) -> None:
    with instance.connect() as conn:
        most = Decimal("9" * 38)
        assert conn.execute("SELECT %s::decimal", (most,)).fetchone() == (most,)
        with pytest.raises(psycopg.errors.NumericValueOutOfRange):
            conn.execute("SELECT %s::decimal", (Decimal("9" * 39),))
        for strange in ("NaN", "Infinity"):
            with pytest.raises(psycopg.DataError):
                conn.execute("SELECT %s::decimal", (Decimal(strange),))


def test_doubles_are_never_nan(instance: Instance) -> None:
    with instance.connect() as conn:
        for placeholder in ("%t", "%b"):
            with pytest.raises(psycopg.DataError):
                conn.execute(f"SELECT {placeholder}::double", (float("nan"),))
        row = conn.execute("SELECT %s::double", (-0.0,)).fetchone()
        assert str(row) == "(0.0,)"


def test_datetimes_are_instants(instance: Instance, table: MakeTable) -> None:
    """Whatever offset they come with, they are shown in the session's zone."""
    name = table("id INT PRIMARY KEY, at DATETIME")
    instant = datetime(2024, 7, 1, 10, 30, tzinfo=UTC)
    with instance.connect() as conn:
        conn.execute(
            f"INSERT INTO {name} VALUES (1, '2024-07-01 12:30:00+02'), (2, %s), (3, %s)",
            (instant, datetime(2024, 7, 1, 10, 30)),  # noqa: DTZ001
        )
        assert conn.execute(f"SELECT count(*) FROM {name} WHERE at = %s", (instant,)).fetchone() == (3,)
        conn.execute("SET TIME ZONE 'Asia/Kathmandu'")
        for binary in (False, True):
            row = (
                conn.cursor(binary=binary).execute(f"SELECT at FROM {name} WHERE id = 1".encode()).fetchone()
            )
            assert row is not None
            assert row[0] == instant
            assert row[0].isoformat() == "2024-07-01T16:15:00+05:45"
        raw = conn.pgconn.exec_(f"SELECT at FROM {name} WHERE id = 1".encode())
        assert raw.get_value(0, 0) == b"2024-07-01 16:15:00+05:45"
        assert conn.execute("SELECT %s::datetime", (date(2024, 7, 1),)).fetchone() is not None


def test_json_comes_out_as_python(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, j JSON")
    document = {"name": "жираф", "legs": 4, "tags": ["tall", None, True], "size": {"m": 5.5}}
    with instance.connect() as conn:
        conn.execute(
            f"INSERT INTO {name} VALUES (1, %s), (2, %s), (3, NULL)", (Json(document), Jsonb(document))
        )
        for binary in (False, True):
            rows = conn.cursor(binary=binary).execute(f"SELECT j FROM {name} ORDER BY id".encode()).fetchall()
            assert rows == [(document,), (document,), (None,)]
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            conn.execute(f"INSERT INTO {name} VALUES (4, %s)", ("{not json",))


def test_json_of_system_tables(instance: Instance) -> None:
    with instance.connect() as conn:
        for binary in (False, True):
            row = conn.cursor(binary=binary).execute("SELECT current_state FROM _pico_instance").fetchone()
            assert row is not None
            assert row[0][0] == "Online"


def test_every_system_table_can_be_read(instance: Instance) -> None:
    with instance.connect() as conn:
        names = [row[0] for row in conn.execute("SELECT name FROM _pico_table WHERE name LIKE '\\_pico%'")]
        assert "_pico_table" in names
        for name in names:
            for binary in (False, True):
                conn.cursor(binary=binary).execute(f"SELECT * FROM {name}".encode()).fetchall()


@pytest.mark.parametrize("value", [b"bytes", date.max - date.min], ids=["bytea", "interval"])
def test_types_that_are_not_there_are_refused(instance: Instance, value: Any) -> None:
    with instance.connect() as conn:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            conn.execute("SELECT %s", (value,))
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_text_with_a_nul_is_refused(instance: Instance) -> None:
    with instance.connect() as conn:
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            conn.execute("SELECT %b", ("a\0b",))
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_parameters_as_text_that_are_no_values(instance: Instance) -> None:
    cases = [
        ("int", "x"),
        ("double", "1.5.1"),
        ("decimal", "1e"),
        ("boolean", "maybe"),
        ("uuid", "123"),
        ("datetime", "2024-13-01"),
        ("int[]", "{1,x}"),
        ("int[]", "1,2"),
    ]
    with instance.connect() as conn:
        for sql_type, text in cases:
            with pytest.raises(psycopg.errors.InvalidTextRepresentation):
                conn.execute(f"SELECT %s::{sql_type}", (text,))
        assert conn.execute("SELECT %s::uuid", (uuid.UUID(int=7),)).fetchone() == (uuid.UUID(int=7),)
