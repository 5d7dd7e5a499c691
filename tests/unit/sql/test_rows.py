"""Long INSERTs taken apart: the rows found are the rows that the parser finds, or nothing is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.normalise import normalise
from shoal.sql.parser import parse_one
from shoal.sql.rows import rows_of
from tests.unit.sql.canonical import canonical


def rows_as_parsed(text: str) -> Counter[str]:
    statement = parse_one(text)
    assert isinstance(statement, ast.Insert)
    values = statement.source.body
    assert isinstance(values, ast.Values)
    one_row = [replace(statement.source, body=replace(values, rows=(row,))) for row in values.rows]
    return Counter(canonical(replace(statement, source=source)) for source in one_row)


def rows_as_found(text: str) -> Counter[str] | None:
    found = rows_of(text)
    if found is None:
        return None
    rows: Counter[str] = Counter()
    for example, literals in found.shapes.items():
        normalised = normalise(example)
        assert normalised is not None
        # The shape's own text is its first row; another row is the same template with other literals.
        assert normalised.literals == literals[0]
        for row in literals:
            rows[canonical(parse_one(_filled(normalised.template, row)))] += 1
    return rows


def _filled(template: str, literals: tuple[str, ...]) -> str:
    left = iter(literals)
    return "".join(
        "'" + next(left).replace("'", "''") + "'" if c == "\x04" else next(left) if c in "\x01\x02\x03" else c
        for c in template
    )


@pytest.mark.parametrize(
    "text",
    [
        "insert into t values (1, 'a'), (2, 'b')",
        "INSERT INTO t (a, b) VALUES (1,'a'),(2,NULL),(-3,'it''s'),\n ( 4 , 'b' ) ;",
        'insert into "T x" values (1.5, 1e5, true), (2.5, 3, false)',
        "insert into t values (1 + 2, array[1, 2]), (3 + 4, array[5, 6])",
        "insert into t values ('a)'), ('(b'), (',')",
        "insert into t values ('2026-01-01'::datetime), ('2026-01-02'::datetime)",
    ],
)
def test_the_same_rows(text: str) -> None:
    assert rows_as_found(text) == rows_as_parsed(text)


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "insert into t select 1",
        "insert into t values",
        "insert into t values ()x",
        "insert into t values (1), (2) on conflict do nothing",
        "insert into t values (1), (2) returning *",
        "insert into t values (1), (2) option (sql_motion_row_max = 1)",
        "insert into t values (1), (2),",
        "insert into t values (1), (2); select 1",
        "insert into t values (1) (2)",
        "insert into t values (length('a')), (2)",
        "insert into t values (1), -- two\n (2)",
        "with x as (values (1)) insert into t values (1), (2)",
        "insert into t values (12345678901234567890), (1)",
        "insert into t values (" + "), (".join("1" + " + 1" * n for n in range(80)) + ")",
    ],
)
def test_what_is_left_to_the_parser(text: str) -> None:
    assert rows_of(text) is None


VALUES = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["null", "true", "NULL", "1.50", "-0.5", "2e3", "- 7", "'x' || 'y'", "default", "$1"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(
        lambda text: "'" + text.replace("'", "''") + "'"
    ),
)


@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=12),
    st.sampled_from(["insert into t values ", 'INSERT INTO public.t(a,"b c") VALUES']),
    st.sampled_from([",", ", ", " ,\n"]),
    st.sampled_from(["", ";", " ; "]),
)
def test_any_rows(rows: list[list[str]], head: str, comma: str, end: str) -> None:
    text = head + comma.join(f"({comma.join(row)})" for row in rows) + end
    found = rows_as_found(text)
    try:
        parsed = rows_as_parsed(text)
    except ShoalError:
        return
    if found is not None:
        assert found == parsed
