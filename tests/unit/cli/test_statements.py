"""Where statements end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.statements import split_statements


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("  \n", [], ""),
        (";;", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT 1; SELECT\n2 ; SELECT 3", ["SELECT 1", "SELECT\n2"], "SELECT 3"),
        ("SELECT 'a;b''c;';", ["SELECT 'a;b''c;'"], ""),
        ('SELECT ";" FROM "a"";";', ['SELECT ";" FROM "a"";"'], ""),
        ("SELECT 1 -- ; no\n, 2;", ["SELECT 1 -- ; no\n, 2"], ""),
        ("/* ; /* ; */ ; */ SELECT 1;", ["/* ; /* ; */ ; */ SELECT 1"], ""),
        ("DO $$ a; b; $$; x", ["DO $$ a; b; $$"], "x"),
        ("DO $a$ $$; $b$; $a$;", ["DO $a$ $$; $b$; $a$"], ""),
        ("SELECT $1; SELECT $2", ["SELECT $1"], "SELECT $2"),
        ("SELECT a$b$c; SELECT 2", ["SELECT a$b$c"], "SELECT 2"),
        ("SELECT 'a; b", [], "SELECT 'a; b"),
        ('SELECT 1; SELECT "a; b', ["SELECT 1"], 'SELECT "a; b'),
        ("SELECT /* a; ", [], "SELECT /* a;"),
        ("SELECT 1; -- the end", ["SELECT 1"], ""),
        ("-- only a comment\n;SELECT 1;", ["SELECT 1"], ""),
    ],
)
def test_splitting(text: str, statements: list[str], rest: str) -> None:
    assert split_statements(text) == (statements, rest)


@given(st.text(alphabet="a1 ;'\"$-/*\n\\", max_size=60))
def test_any_text_is_split_into_what_stands_in_it(text: str) -> None:
    statements, rest = split_statements(text)
    at = 0
    for part in (*statements, rest):
        at = text.index(part, at) + len(part)
    for statement in statements:
        assert split_statements(statement + "\n;") == ([statement], "")
