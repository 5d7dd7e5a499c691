"""The SQL functions: what register() puts on a connection, called as generated text calls them."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import (
    CardinalityViolation,
    DivisionByZero,
    InvalidEscape,
    InvalidRowCountInLimit,
    InvalidRowCountInOffset,
    NotNullViolation,
    NumericOutOfRange,
    QueryCanceled,
    ShoalError,
    SubstringError,
)
from shoal.storage.aggregate_functions import AGGREGATES
from shoal.storage.functions import FUNCTIONS, register, register_guard
from shoal.topology.buckets import bucket_of_key
from shoal.types import decimals
from shoal.types.sqltype import DECIMAL, INT, TEXT

SRC = Path(__file__).parents[3] / "src" / "shoal"
INTS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module")
def connection() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    register(connection)
    return connection


Ask = Callable[..., object]


@pytest.fixture(scope="module")
def ask(connection: apsw.Connection) -> Ask:
    def ask(sql: str, *values: apsw.SQLiteValue) -> object:
        ((answer,),) = connection.execute(f"SELECT {sql}", values).fetchall()
        return answer

    return ask


def test_all_that_the_generator_calls_is_registered() -> None:
    known = {*FUNCTIONS, *AGGREGATES, "shoal_guard", "shoal_gen_random_uuid"}
    whole_names = {
        name
        for path in (SRC / "sql" / "local").rglob("*.py")
        for name in re.findall(r"shoal_[a-z_]+[a-z](?=\()", path.read_text(encoding="utf-8"))
    }
    assert len(whole_names) > 15
    assert whole_names <= known


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("shoal_int_overflow()", NumericOutOfRange),
        ("shoal_not_a_number()", NumericOutOfRange),
        ("shoal_division_by_zero(1)", DivisionByZero),
        ("shoal_several_rows()", CardinalityViolation),
        ("shoal_row_met_twice()", CardinalityViolation),
        ("shoal_negative_limit()", InvalidRowCountInLimit),
        ("shoal_negative_offset()", InvalidRowCountInOffset),
        ("shoal_negative_length()", SubstringError),
        ("shoal_null_key('id', 't')", NotNullViolation),
        ("shoal_unsigned(-1)", NumericOutOfRange),
        ("shoal_int(1e19)", NumericOutOfRange),
        ("shoal_escape('ab')", InvalidEscape),
        ("shoal_double_mul(9e999, 0.0)", NumericOutOfRange),
    ],
)
def test_errors_come_through_as_they_are(ask: Ask, call: str, error: type[ShoalError]) -> None:
    with pytest.raises(error):
        ask(call)


def test_null_is_divided_by_zero_without_complaint(ask: Ask) -> None:
    assert ask("shoal_division_by_zero(NULL)") is None
    assert ask("shoal_int_div(NULL, 0)") is None


def test_what_stands_in_a_branch_that_is_not_taken_raises_nothing(ask: Ask) -> None:
    assert ask("CASE WHEN ?1 THEN 5 ELSE shoal_int_overflow() END", 1) == 5
    assert ask("coalesce(?1, shoal_null_key('id', 't'))", 7) == 7
    assert ask("iif(?1 < 0, shoal_unsigned(-1), ?1)", 7) == 7


@given(a=INTS, b=INTS.filter(bool))
@settings(max_examples=200, deadline=None)
def test_division_truncates_and_the_remainder_fits(ask: Ask, a: int, b: int) -> None:
    quotient, rest = ask("shoal_int_div(?, ?)", a, b), ask("shoal_int_mod(?, ?)", a, b)
    if a == -(2**63) and b == -1:
        assert quotient == 2.0**63  # as SQLite's own: the text around looks for a float
        return
    assert isinstance(quotient, int) and isinstance(rest, int)
    assert quotient * b + rest == a
    assert abs(rest) < abs(b) and (rest == 0 or (rest < 0) == (a < 0))


@given(values=st.lists(st.one_of(st.none(), INTS), max_size=30))
@settings(max_examples=100, deadline=None)
def test_sums_of_integers_are_exact(connection: apsw.Connection, values: list[int | None]) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS temp.numbers (v INTEGER); DELETE FROM temp.numbers")
    connection.executemany("INSERT INTO temp.numbers VALUES (?)", [(value,) for value in values])
    ((halves, average, exact, exact_average, distinct),) = connection.execute(
        "SELECT shoal_sum_of_halves(sum(v >> 32), sum(v & 4294967295)),"
        " shoal_avg_of_halves(sum(v >> 32), sum(v & 4294967295), count(v)),"
        " shoal_sum_int(v), shoal_avg_int(v), shoal_sum_int(DISTINCT v) FROM temp.numbers"
    ).fetchall()
    present = [value for value in values if value is not None]
    if not present:
        assert (halves, average, exact, exact_average, distinct) == (None,) * 5
        return
    assert halves == exact == decimals.from_int(sum(present))
    assert distinct == decimals.from_int(sum(set(present)))
    assert average == exact_average
    assert abs(decimals.from_stored(average) * len(present) - sum(present)) < Decimal("1e-15")


def test_sums_of_decimals_are_exact_beyond_38_digits_on_the_way(connection: apsw.Connection) -> None:
    most = decimals.from_text("9" * 38)
    rows = [(most,), (most,), (decimals.neg(most),), (None,), (decimals.from_text("0." + "0" * 37 + "1"),)]
    connection.execute("CREATE TABLE temp.decimals (v BLOB)")
    connection.executemany("INSERT INTO temp.decimals VALUES (?)", rows)
    query = "SELECT shoal_sum_decimal(v), shoal_avg_decimal(v), shoal_total_decimal(v) FROM temp.decimals"
    ((total, average, as_double),) = connection.execute(query).fetchall()
    assert total == most  # rounded to 38 digits at the end, once
    assert average == decimals.from_text("24999999999999999999999999999999999999.75")
    assert as_double == 1e38
    with pytest.raises(NumericOutOfRange):
        connection.execute("SELECT shoal_sum_decimal(v) FROM temp.decimals WHERE v > x'80'").fetchall()


@given(
    parts=st.lists(
        st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", codec="utf-8"))), max_size=6
    )
)
@settings(max_examples=100, deadline=None)
def test_distinct_texts_are_joined_in_the_order_in_which_they_came(
    connection: apsw.Connection, parts: list[str | None]
) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS temp.parts (v TEXT); DELETE FROM temp.parts")
    connection.executemany("INSERT INTO temp.parts VALUES (?)", [(part,) for part in parts])
    query = "SELECT shoal_join(json_group_array(DISTINCT v), '; ') FROM temp.parts"
    ((joined,),) = connection.execute(query).fetchall()
    present = [part for part in dict.fromkeys(parts) if part is not None]
    assert joined == ("; ".join(present) if present else None)


def test_buckets_are_those_of_the_topology(ask: Ask) -> None:
    ten = decimals.from_int(10)
    assert ask("shoal_bucket('3000 int', 1)") == 1934
    assert ask("shoal_bucket('3000 text int', '2', 1)") == 2997
    assert ask("shoal_bucket('3000 decimal', ?)", ten) == bucket_of_key([DECIMAL], [ten], 3000)
    assert ask("shoal_bucket('10 decimal:10:2', ?)", ten) == bucket_of_key([DECIMAL], [ten], 10)
    assert ask("shoal_bucket('3000 int text', NULL, 'x')") == bucket_of_key([INT, TEXT], [None, "x"], 3000)


def test_elements_of_an_array_as_rows(ask: Ask) -> None:
    rows = "(SELECT group_concat(value) FROM json_each(shoal_elements(shoal_array(1, NULL, 3))))"
    assert ask(rows) == "1,3"
    assert ask("2 IN (SELECT value FROM json_each(shoal_elements(shoal_array(1, NULL))))") is None
    assert ask("2 IN (SELECT value FROM json_each(shoal_elements(NULL)))") is None
    assert ask("NULL IN (SELECT value FROM json_each(shoal_elements(shoal_array())))") == 0
    assert ask("x'0a' IN (SELECT unhex(value) FROM json_each(shoal_elements(shoal_array(x'0a'))))") == 1
    assert ask("shoal_in_array(9e999, shoal_array(1.5, 9e999))") == 1
    assert ask("shoal_in_array(1.0, shoal_array(NULL))") is None


def test_the_guard_is_asked_at_every_row_and_stops_only_its_statement() -> None:
    connection = apsw.Connection(":memory:")
    register(connection)
    calls = 0

    def guard() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise QueryCanceled("canceling statement due to user request")

    register_guard(connection, guard)
    connection.execute(
        "BEGIN; CREATE TABLE t (a INTEGER PRIMARY KEY) STRICT; INSERT INTO t VALUES (1), (2), (3), (4)"
    )
    with pytest.raises(QueryCanceled):
        connection.execute("DELETE FROM t WHERE shoal_guard()")
    assert connection.in_transaction
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(4,)]
    connection.execute("DELETE FROM t WHERE shoal_guard()")
    assert calls == 7
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
