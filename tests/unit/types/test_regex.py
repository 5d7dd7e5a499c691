"""Our regular expressions against Python's, which mean the same where both know a pattern; and their speed."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import InvalidEscape, InvalidRegularExpression
from shoal.types.patterns import ilike, similar, substring_regex, substring_similar
from shoal.types.regex import Regex, compile_regex

ATOMS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "(a)", "(?:b|ab)", "(a|)", "\\d", "\\w", "x", "^", "$", "\\b"]
)
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"])


@st.composite
def patterns(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.tuples(ATOMS, COUNTS), min_size=1, max_size=5))
    text = ""
    for atom, count in pieces:
        text += atom + ("" if atom in ("^", "$", "\\b") else count)
        if draw(st.integers(0, 7)) == 0:
            text += "|"
    return text


@given(pattern=patterns(), text=st.text("abx1 ", max_size=8))
@settings(max_examples=1500, deadline=None)
def test_they_agree_with_python(pattern: str, text: str) -> None:
    ours, theirs = Regex(pattern), re.compile(pattern, re.DOTALL | re.ASCII)
    assert ours.fullmatch(text) == (theirs.fullmatch(text) is not None)
    found, expected = ours.search(text), theirs.search(text)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0:2] == expected.span()


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("o.b", "foobar", "oob"),
        ("o(.)b", "foobar", "o"),
        ("(a|ab)(c|bcd)", "abcd", "a"),
        ("[[:alpha:]]+", "12äb3", "äb"),
        ("[]x]+", "a]x", "]x"),
        ("[a-]+", "b-a", "-a"),
        ("(?i)ABC", "xaBc", "aBc"),
        ("(?U:a+)", "aaa", "a"),
        ("\\.\\*", "a.*", ".*"),
        ("x{2,}", "xaxxxa", "xxx"),
        ("(x)?y", "y", None),
        ("z", "foobar", None),
    ],
)
def test_what_a_substring_finds(pattern: str, text: str, found: str | None) -> None:
    assert substring_regex(text, pattern) == found


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[z-a]",
        "[[:nope:]]",
        "*",
        "a{2,1}",
        "a{99999999}",
        "\\q",
        "(?=a)",
        "a\\",
        "{1}",
        "^*",
    ],
)
def test_what_is_no_pattern_says_so(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="Invalid pattern"):
        compile_regex(pattern)


@pytest.mark.parametrize("pattern", ["(" * 60 + ")" * 60, "a" + "*" * 60, "((a{99}){99}){99}"])
def test_what_is_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        compile_regex(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|aa)+$b", "(a|a)*b", ".*.*.*.*b", "(.*)(.*)(.*)x"])
def test_no_pattern_takes_more_than_linear_time(pattern: str, timing_scale: float) -> None:
    started = time.process_time()
    assert substring_regex("a" * 1000, pattern) is None
    assert not compile_regex(pattern).fullmatch("a" * 5000)
    assert time.process_time() - started < 5 * timing_scale


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "matches"),
    [
        ("%", "\\", "", True),
        ("a_c", "\\", "aBBC", False),
        ("a_c", "\\", "AbC", True),
        ("%A_C", "\\", "xxabcabC", True),
        ("a%ba", "\\", "aba", True),
        ("ab%ba", "\\", "aba", False),
        ("a\\%", "\\", "A%", True),
        ("a\\%", "", "A\\xyz", True),
        ("a#__", "#", "a_b", True),
        ("%b%", "\\", "a\nB\nc", True),
        ("Ä%", "\\", "äpfel", True),
    ],
)
def test_ilike(pattern: str, escape: str, text: str, matches: bool) -> None:
    assert ilike(pattern, escape)(text) is matches


@given(pattern=st.text("aAb%_", max_size=8), text=st.text("aAb", max_size=8))
@settings(max_examples=500, deadline=None)
def test_ilike_is_the_obvious_regular_expression(pattern: str, text: str) -> None:
    obvious = pattern.replace("%", ".*").replace("_", ".")
    assert ilike(pattern, "\\")(text) is (re.fullmatch(obvious, text, re.IGNORECASE) is not None)


def test_ilike_takes_linear_time(timing_scale: float) -> None:
    started = time.process_time()
    assert not ilike("%" + "a%" * 30 + "b", "\\")("a" * 100_000)
    assert time.process_time() - started < 2 * timing_scale


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("(b|c)%", "abc", False),
        ("%(b|d)%", "abc", True),
        ("a.c", "abc", False),
        ("a^$", "a^$", True),
        ("[a-c]{2}", "ab", True),
        ("[\\d]", "7", True),
        ("\\_", "_", True),
        ("a|b", "b", True),
        ("a|bc", "ac", False),
    ],
)
def test_similar_to(pattern: str, text: str, matches: bool) -> None:
    assert similar(pattern, "\\")(text) is matches


@pytest.mark.parametrize(
    ("text", "pattern", "found"),
    [
        ("foobar", '%#"o_b#"%', "oob"),
        ("abcdefg", 'a#"%#"g', "bcdef"),
        ("abcdefg", '#"a|b#"%', "a"),
        ("aXbXc", '%#"X%#"', "XbXc"),
        ("abc", "a_c", "abc"),
        ("abc", '#"x#"%', None),
    ],
)
def test_substring_similar(text: str, pattern: str, found: str | None) -> None:
    assert substring_similar(text, pattern, "#") == found


def test_patterns_that_end_in_their_escape_character() -> None:
    with pytest.raises(InvalidEscape):
        ilike("a\\", "\\")
    with pytest.raises(InvalidEscape):
        similar("a\\", "\\")
    with pytest.raises(InvalidEscape):
        substring_similar("abc", "a", "##")
