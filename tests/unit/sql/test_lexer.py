"""Tokens: their kinds, values, places and slots; characters and lengths that are refused."""

from __future__ import annotations

import pytest

from shoal.errors import InvalidCharacter, SqlSyntaxError
from shoal.sql.lexer import LOOKAHEAD, PARAMETER_MAX, TokenKind, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind.name, token.key or token.value) for token in tokenize(text)[:-LOOKAHEAD]]


def test_kinds() -> None:
    assert kinds("""SELECT "A""b", 'x''y',1,2.,.3,4e5,$6<>::a1""") == [
        ("WORD", "select"),
        ("QUOTED", 'A"b'),
        ("SYMBOL", ","),
        ("STRING", "x'y"),
        ("SYMBOL", ","),
        ("INTEGER", "1"),
        ("SYMBOL", ","),
        ("DECIMAL", "2."),
        ("SYMBOL", ","),
        ("DECIMAL", ".3"),
        ("SYMBOL", ","),
        ("DOUBLE", "4e5"),
        ("SYMBOL", ","),
        ("PARAMETER", "$6"),
        ("SYMBOL", "<>"),
        ("SYMBOL", "::"),
        ("WORD", "a1"),
    ]


def test_places_and_numbers() -> None:
    text = " a  'b' /* c */ 12 $7\n"
    tokens = tokenize(text)
    assert [text[token.at : token.end] for token in tokens[:-LOOKAHEAD]] == ["a", "'b'", "12", "$7"]
    assert [token.number for token in tokens[:-LOOKAHEAD]] == [-1, 0, 1, 7]
    assert {token.kind for token in tokens[-LOOKAHEAD:]} == {TokenKind.END}
    assert tokens[-1].at == len(text.rstrip())


def test_question_marks_are_numbered() -> None:
    assert [token.number for token in tokenize("? ? ?")[:-LOOKAHEAD]] == [1, 2, 3]
    with pytest.raises(SqlSyntaxError, match=f"more than {PARAMETER_MAX} parameters"):
        tokenize("?," * (PARAMETER_MAX + 1))


@pytest.mark.parametrize(
    ("text", "position"),
    [("a\0b", 2), ("ж 'a\0'", 5), ("ab\ud800", 3), ("'\udfff'", 2), ("e'\\0'", 1), ("e'\\xff'", 1)],
)
def test_what_is_no_text(text: str, position: int) -> None:
    with pytest.raises(InvalidCharacter) as caught:
        tokenize(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"e''", ""),
        (r"E'\b\f\n\r\t\q\\\''''", "\b\f\n\r\tq\\''"),
        (r"e'\101\x42\x4a\7'", "ABJ\a"),
        (r"e'\u0416\U00000416\xd0\x96'", "ЖЖЖ"),
        (r"e'\ud83d\ude00\U0001F600'", "😀😀"),
        ("e'a\nb'", "a\nb"),
        ("$$a'\\n$$", "a'\\n"),
        ("$a1$ $$ $b$ $a1$", " $$ $b$ "),
    ],
)
def test_other_strings(text: str, value: str) -> None:
    (token, *_) = tokenize(text)
    assert (token.kind, token.value, token.at, token.end) == (TokenKind.STRING, value, 0, len(text))


@pytest.mark.parametrize(
    "text", [r"e'\u12'", r"e'\U0011'", r"e'\ud800'", r"e'\ude00\ud83d'", r"e'\UFFFFFFFF'"]
)
def test_wrong_unicode_escapes(text: str) -> None:
    with pytest.raises(SqlSyntaxError, match="invalid Unicode escape") as caught:
        tokenize(text)
    assert caught.value.position == 3


def test_comments_nest_to_any_depth() -> None:
    assert kinds("/*" * 20_000 + "x" + "*/" * 20_000 + "a -- b") == [("WORD", "a")]
    with pytest.raises(SqlSyntaxError, match="unterminated /\\* comment"):
        tokenize("a /*" + "/* */" * 1000)


def test_white_space() -> None:
    assert kinds("\ta\r\n\f\v\u00a0b\u2003c") == [("WORD", "a"), ("WORD", "b"), ("WORD", "c")]
