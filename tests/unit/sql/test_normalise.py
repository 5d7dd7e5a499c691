"""normalise() and the lexer agree on what a literal is, and one template means one tree."""

from __future__ import annotations

import random

import pytest

from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.lexer import tokenize
from shoal.sql.normalise import DECIMAL, DOUBLE, INTEGER, STRING, Normalised, normalise
from shoal.sql.parser import parse, parse_script
from shoal.sql.parser.cursor import NUMBERS
from tests.unit.sql.random_statements import Chance
from tests.unit.sql.test_parser import attempt, mutated, random_text, shape, statements_of_scripts

OTHERS = {
    INTEGER: ("0", "7", "999999999999999999"),
    DECIMAL: ("1.25", "3.", ".5"),
    DOUBLE: ("1e5", ".5E-3"),
    STRING: ("''", "'x'", "'it''s 1'"),
}


def generated(seed: int, count: int) -> list[str]:
    chance = Chance(seed)
    return [chance.statement() for _ in range(count)]


def literals_of_tokens(text: str) -> tuple[str, ...]:
    return tuple(
        token.value for token in tokenize(text) if token.kind in NUMBERS or token.kind.name == "STRING"
    )


def with_other_literals(rng: random.Random, normalised: Normalised) -> str:
    return "".join(rng.choice(OTHERS[c]) if c in OTHERS else c for c in normalised.template)


def masked(node: object) -> object:
    """The shape of a tree, its literals' texts aside."""
    if isinstance(node, tuple) and node and node[0] == "Literal":
        return (*node[:2], "", *node[3:])
    return tuple(masked(item) for item in node) if isinstance(node, tuple) else node


def structural(text: str) -> bool:
    """Whether a literal of the text is no Literal in its tree: a type's length, a setting's value."""
    return not all(parsed.literals_in_tree for parsed in parse_script(text))


@pytest.mark.parametrize(
    ("text", "template", "literals"),
    [
        ("select 1", "select \x01", ("1",)),
        ("SELECT -1, +2.50,3.e-1 , .5", "SELECT -\x01, +\x02,\x03 , \x02", ("1", "2.50", "3.e-1", ".5")),
        (
            "select 'it''s', '', '''', 'a' 'b'",
            "select \x04, \x04, \x04, \x04 \x04",
            ("it's", "", "'", "a", "b"),
        ),
        ('select t1.c2, a$1, "1 \'2\' 3", """" from t3', None, ()),
        ("select $1, $23, ?", "select $1, $23, ?", ()),
        ("select a1+1, b-1,c*1e5/2", "select a1+\x01, b-\x01,c*\x03/\x01", ("1", "1", "1e5", "2")),
        ("select 999999999999999999", "select \x01", ("999999999999999999",)),
        (
            "select '--', '/*', '$$', '\"', '\\'",
            "select \x04, \x04, \x04, \x04, \x04",
            ("--", "/*", "$$", '"', "\\"),
        ),
        ("select 😀1, ж2, _3, \u00e91", None, ()),
        ("begin", "begin", ()),
        ("", "", ()),
    ],
)
def test_templates(text: str, template: str | None, literals: tuple[str, ...]) -> None:
    assert normalise(text) == (text if template is None else template, literals)


@pytest.mark.parametrize(
    "text",
    [
        "select 1 -- comment",
        "select /* comment */ 1",
        "select e'x'",
        "select E'\\''",
        "select N'x'",
        "select b'1'",
        "select x'1'",
        "select U&'x'",
        'select U&"x"',
        "select $$x$$",
        "select $tag$x$tag$",
        "select a like'x'",  # E'…' can't be told from a word's end without reading the word
        "select 'open",
        'select "open',
        "select 'a''",
        "select 1000000000000000000",
        "select " + "1" * 19 + ", 2",
        "select 1." + "1" * 40,
        "select \x01",
        "select '\x00'",
        "select '\ud800'",
        "select 1 " + " " * 300_000,
    ],
)
def test_no_template_without_certainty(text: str) -> None:
    assert normalise(text) is None


def check(text: str) -> bool:
    """Whether the text has a template; if so it has to be right."""
    normalised = normalise(text)
    if normalised is None:
        return False
    assert normalised.literals == literals_of_tokens(text), text
    for parsed in parse_script(text):
        for node in ast.walk(parsed.statement):
            if isinstance(node, ast.Literal):
                assert normalised.literals[node.slot] == node.text, text
    return True


def test_slots_agree_on_the_scripts() -> None:
    assert sum(check(text) for text in statements_of_scripts()) > 100


def test_slots_agree_on_random_statements() -> None:
    texts = generated(seed=1, count=1500)
    assert all(check(text) for text in texts)


def test_texts_of_one_template_have_one_tree() -> None:
    rng = random.Random(2)
    for text in (*statements_of_scripts(), *generated(seed=2, count=700)):
        normalised = normalise(text)
        if normalised is None or structural(text):
            continue
        other = with_other_literals(rng, normalised)
        again = normalise(other)
        assert again is not None, other
        assert again.template == normalised.template, other
        assert masked(shape(parse(other))) == masked(shape(parse(text))), other


def test_whatever_has_a_template_and_parses_agrees() -> None:
    """Texts that are nearly right: what parses nevertheless must have the slots that its template says."""
    rng = random.Random(3)
    good = statements_of_scripts()
    parsed = 0
    for _ in range(3000):
        text = mutated(rng, rng.choice(good)) if rng.random() < 0.8 else random_text(rng)
        if not isinstance(attempt(text), ShoalError):
            parsed += check(text)
    assert parsed > 200


def test_a_template_is_never_that_of_a_text_that_fails() -> None:
    """The template of a text that doesn't parse must not find the plan of one that does."""
    rng = random.Random(4)
    templates: dict[str, str] = {}
    failing: dict[str, str] = {}
    good = [*statements_of_scripts(), *generated(seed=4, count=300)]
    for _ in range(4000):
        text = mutated(rng, rng.choice(good))
        normalised = normalise(text)
        if normalised is None:
            continue
        if not isinstance(attempt(text), ShoalError):
            if not structural(text):
                templates[normalised.template] = text
        else:
            failing[normalised.template] = text
    for text in good:
        if (normalised := normalise(text)) is not None and not structural(text):
            templates[normalised.template] = text
    both = templates.keys() & failing.keys()
    assert not both, [(templates[template], failing[template]) for template in both]
