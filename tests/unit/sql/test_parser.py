"""The parser: scripts of texts and what they mean, bounds, and that nothing but an answer comes out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shoal.errors import ProgramLimitExceeded, ShoalError, SqlSyntaxError, StatementTooComplex
from shoal.sql import ast
from shoal.sql.parser import parameter_count, parse, parse_one, parse_script
from tests.scripts_runner import parse_script as parse_blocks
from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.canonical import canonical
from tests.unit.sql.random_statements import Chance

SCRIPTS = script_paths("sql/parse")


def answer(text: str) -> str:
    """Each statement as canonical() writes it, or the error under the text, with its place."""
    try:
        return "\n".join(canonical(statement) for statement in parse(text)) or "(nothing)"
    except ShoalError as error:
        return refusal(text, error)


def refusal(text: str, error: ShoalError) -> str:
    lines = []
    if error.position is not None:
        start = text.rfind("\n", 0, error.position - 1) + 1
        line = text[start:].split("\n", 1)[0]
        lines += [line, " " * (error.position - 1 - start) + "^"]
    lines.append(f"{error.sqlstate} {error.message}")
    lines += [f"{label}: {said}" for label, said in (("detail", error.detail), ("hint", error.hint)) if said]
    return "\n".join(lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts(path: Path, rewrite: bool) -> None:
    run_script(path, answer, rewrite)


def statements_of_scripts() -> list[str]:
    """Every text of the scripts that parses."""
    texts = [block.text for path in SCRIPTS for block in parse_blocks(path.read_text(encoding="utf-8"))[0]]
    return [text for text in texts if not isinstance(attempt(text), ShoalError)]


def attempt(text: str) -> tuple[ast.Statement, ...] | ShoalError:
    """What a client would get. Everything else that is raised fails the test."""
    try:
        return parse(text)
    except ShoalError as refused:
        error = refused
    assert error.message
    assert error.position is None or 1 <= error.position <= len(text) + 1, (text, error.position)
    return error


def shape(node: object) -> object:
    """A tree without places and slots."""
    if isinstance(node, tuple):
        return tuple(shape(item) for item in node)
    if hasattr(node, "__dataclass_fields__"):
        slots = [field for field in node.__dataclass_fields__ if field not in ("at", "body_at", "slot")]
        return (type(node).__name__, *(shape(getattr(node, slot)) for slot in slots))
    return node


def test_brackets_say_what_the_tree_says() -> None:
    for text in statements_of_scripts():
        for statement in parse(text):
            if "over (…)" in canonical(statement):
                continue  # what stands in it isn't kept
            again = parse(canonical(statement))
            assert len(again) == 1, text
            assert shape(again[0]) == shape(statement), text
            assert canonical(again[0]) == canonical(statement), text


def test_random_statements_survive_their_canonical_form() -> None:
    chance = Chance(seed=1)
    for _ in range(600):
        text = chance.statement()
        (statement,) = parse(text)
        (again,) = parse(canonical(statement))
        assert shape(again) == shape(statement), text


def test_literals_have_the_slots_of_their_order() -> None:
    for text in statements_of_scripts():
        places = {node.slot: node.at for node in ast.walk(parse(text)) if isinstance(node, ast.Literal)}
        assert [places[slot] for slot in sorted(places)] == sorted(places.values()), text
        if all(parsed.literals_in_tree for parsed in parse_script(text)):
            assert sorted(places) == list(range(len(places))), text


def test_some_literals_are_not_in_the_tree() -> None:
    text = """select 1, 'x', -2.5, current_timestamp(3), a[1] limit 5 option (timeout = 3);
        select cast(a as decimal(10, 2)); select 1::varchar(5); select $1; set x = 1; values (1)"""
    assert [parsed.literals_in_tree for parsed in parse_script(text)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


def test_places_are_where_things_are() -> None:
    for text in statements_of_scripts():
        for node in ast.walk(parse(text)):
            at = getattr(node, "at", None)
            if at is None:
                continue
            there = text[at:].lower()
            assert there, (text, node)
            match node:
                case ast.Name():
                    assert there.startswith(
                        (node.text.lower()[:1], '"', "time", "transaction", "names", "reset", "show")
                    ), (text, node)
                case ast.ColumnRef() | ast.TableRef():
                    assert there[0] not in "$'()[].,;= 0123456789", (text, node)
                case ast.Binary():
                    assert there.startswith((node.op, "!=")), (text, node)
                case ast.Literal():
                    assert there[0] in "'-+.0123456789e$", (text, node)
                case ast.Cast():
                    assert there.startswith(("::", "cast")), (text, node)
                case ast.Between() | ast.InList() | ast.Like() | ast.InQuery():
                    assert there.startswith(
                        ("not", "between", "in", "like", "ilike", "similar", "=", "<>")
                    ), text


def test_spans_of_several_statements() -> None:
    text = " select 1 ;; /* x; */ insert into t values (';') -- end\n; commit"
    assert [text[parsed.start : parsed.end] for parsed in parse_script(text)] == [
        "select 1",
        "insert into t values (';')",
        "commit",
    ]


def test_one_statement() -> None:
    assert isinstance(parse_one("select 1;"), ast.Query)
    assert parse_one(" ; -- nothing") is None
    with pytest.raises(SqlSyntaxError, match="cannot insert multiple commands into a prepared statement"):
        parse_one("select 1; select 2")


def test_parameters_are_counted_with_gaps() -> None:
    assert [parameter_count(statement) for statement in parse("select 1; select $2, $5; select ($3)")] == [
        0,
        5,
        3,
    ]
    assert [parameter_count(statement) for statement in parse("select ?, f(?)")] == [2]
    assert parameter_count(parse("select $65535")[0]) == 65535


def test_the_longest_texts_and_names() -> None:
    name = "ж" * 32_500
    (query,) = parse(f'select {name}, "{name}"')
    assert isinstance(query, ast.Query)
    for text in (f"select {name}ж", f'select "{name}ж"', f"select t.{name}ж"):
        with pytest.raises(ShoalError, match="a name of 65002 bytes, the most is 65000"):
            parse(text)
    with pytest.raises(ProgramLimitExceeded):
        parse("select 1" + " " * 20_000_000)


@pytest.mark.parametrize(
    "text",
    [
        "select " + "(" * 100_000,
        "select " + "(" * 5000 + "1" + ")" * 5000,
        "select " + "not " * 100_000 + "true",
        "select " + "- " * 100_000 + "a",
        "select " + "case when " * 50_000,
        "select " + "case 1 when 1 then " * 5000 + "1" + " end" * 5000,
        "select " + "f(" * 50_000,
        "select " + "(select " * 50_000,
        "select * from " + "(" * 50_000,
        "select * from " + "(select * from " * 50_000,
        "select " + "array[" + "a[" * 50_000,
        "select " + "exists (values (" * 50_000,
        "select " + "a in (" * 50_000,
        "select a" + " + 1" * 10_000,
        "select a" + "::int" * 10_000,
        "select a" + "[1]" * 10_000,
        "select a" + " is null" * 10_000,
        "select a" + " = b" * 10_000,
        "select a" + " between 1 and 2" * 10_000,
        "select " + "a = 1 or b = 2 and (" * 10_000,
        "select 1" + " union select 1" * 10_000,
        "select 1" + " intersect select 1" * 10_000,
        "(" * 50_000 + "select 1" + ")" * 50_000,
        "select * from a" + " join b on true" * 10_000,
        "select * from a" + " join b" * 10_000,
        "select * from a" + ", b" * 10_000,
        "with a as (" * 50_000,
        "select " + "substring(" * 50_000,
        "select " + "trim(" * 50_000,
        "select " + "position(" * 50_000,
        "select " + "cast(" * 50_000,
        "select " + "row(" * 50_000,
        "select 1 = any (" * 50_000,
        "explain " + "(" * 50_000 + "select 1",
        "select a" + " like b" * 10_000,
        "select a" + " not in (1)" * 10_000,
        "select " + "a between (" * 10_000,
        "insert into t values " + "(" * 10_000,
    ],
    ids=lambda text: text[:40],
)
def test_nesting_bombs_are_refused(text: str) -> None:
    with pytest.raises(StatementTooComplex, match="levels deep"):
        parse(text)


def test_what_is_long_but_not_deep() -> None:
    (query,) = parse("select " + " or ".join(f"a = {number} and b = {number}" for number in range(5000)))
    assert ast.depth(query) < 30
    assert canonical(query).count(" or ") == 4999
    assert canonical(query).replace("(", "").replace(")", "").startswith("select a = 0 and b = 0 or a = 1")
    assert len(parse(";".join(["select 1"] * 5000))) == 5000
    (insert,) = parse("insert into t values " + ",".join(["(1, 'x')"] * 20_000))
    assert ast.depth(insert) < 10
    assert parse("/*" * 50_000 + "*/" * 50_000) == ()
    (query,) = parse("select " + "(" * 150 + "1" + ")" * 150)
    assert canonical(query) == "select 1"


# --- random texts ---

WORDS = """select from where group by having order limit offset union all except intersect with as values insert
    into update set delete create table index on drop alter rename add column primary key not null default
    and or in like ilike similar to escape between is distinct true false unknown case when then else end
    cast exists array substring trim position for both leading row any some join left right cross inner outer
    full natural using indexed option wait applied locally globally distributed tier unlogged if begin commit
    rollback start transaction read only write isolation level set show reset time zone local session
    deallocate discard close unlisten explain logical fmt fetch first next rows returning conflict do nothing
    replace fail count sum coalesce current_timestamp current_user filter over asc desc nulls last unique
    public pg_catalog system user password md5 truncate int text double precision varchar timestamp t a b c
    "Q" "a""b" 'x' 'it''s' '' E'\\n' $$d$$ 1 2 1.5 .5 3. 1e5 27e-1 $1 $2 ? ( ) ( ) , , . ; [ ] :: : = <> != < <= > >= + - *
    / % || => ^ @ # ~ ! ++ -- /* */ ' " $ ж 😀 \x01 \\""".split(" ")  # noqa: SIM905


def random_text(rng: random.Random) -> str:
    return rng.choice((" ", " ", "", "\n")).join(rng.choice(WORDS).strip() for _ in range(rng.randint(1, 25)))


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.randint(0, 6))
        text = (
            text[:start]
            + rng.choice(("", "", rng.choice(WORDS), text[end : end + 10], chr(rng.randint(0, 300))))
            + text[end:]
        )
    return text


def throw(seed: int, count: int) -> None:
    rng = random.Random(seed)
    good = statements_of_scripts()
    for _ in range(count):
        attempt(random_text(rng))
        attempt(mutated(rng, rng.choice(good)))
        attempt(mutated(rng, rng.choice(good) + " " + rng.choice(good)))


def test_random_texts_get_an_answer() -> None:
    throw(seed=1, count=1700)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_random_texts_get_an_answer(seed: int) -> None:
    throw(seed, count=7000)
