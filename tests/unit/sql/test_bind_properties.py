"""The binder on statements by chance: only answers come out, and a plan holds for every text that may share it."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass, replace

import pytest

from shoal.catalog.schema import Schema
from shoal.errors import ShoalError, StatementTooComplex
from shoal.sql import ast, plan
from shoal.sql.bind import bind
from shoal.sql.bind.expressions import Expressions
from shoal.sql.bind.structure import same
from shoal.sql.parser import parse_one, parse_script
from shoal.sql.values import literal_value
from shoal.types.sqltype import SqlType
from tests.unit.sql.random_statements import Chance as AnyChance
from tests.unit.sql.test_bind import empty_schema, with_tables
from tests.unit.sql.typed_statements import SCHEMA, Chance, Draft

OIDS = (0, 0, 20, 23, 25, 701, 1700, 16, 2950, 1184, 1007, 114)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return with_tables(empty_schema(), SCHEMA)


def attempt(text: str, schema: Schema, oids: tuple[int, ...] = ()) -> plan.Bound | ShoalError:
    """What a client would get. Everything else that is raised fails the test."""
    try:
        statement = parse_one(text)
        assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete), text
        return bind(statement, schema, oids)
    except ShoalError as error:
        assert error.message
        assert error.position is None or 1 <= error.position <= len(text) + 1, (text, error.position)
        return error


def test_only_answers_come_out(schema: Schema) -> None:
    chance = Chance(1)
    bound = 0
    for _ in range(1500):
        text = chance.draft().text()
        oids = tuple(chance.rng.choice(OIDS) for _ in range(chance.rng.randrange(4)))
        result = attempt(text, schema, oids)
        if isinstance(result, plan.Bound):
            bound += 1
            check_plan(result, oids)
    assert bound > 400, bound


def check_plan(bound: plan.Bound, oids: tuple[int, ...]) -> None:
    assert len(bound.parameters) == len(bound.parameter_oids) >= len(oids)
    for given, shown in zip(oids, bound.parameter_oids, strict=False):
        assert given in (0, shown)
    for t in (*bound.parameters, *bound.types):
        assert not t.is_unknown
    for node in nodes(bound.root):
        if isinstance(node, plan.Param):
            assert node.type == bound.parameters[node.number - 1]
        elif isinstance(node, plan.Op) and node.op in ("+", "-", "*", "/", "=", "<"):
            assert node.args[0].type.same_values(node.args[1].type), node
        elif isinstance(node, plan.Query):
            assert len(node.names) == len(node.types)


def nodes(root: object) -> list[object]:
    found: list[object] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif is_dataclass(node) and type(node).__module__ == plan.__name__:
            found.append(node)
            pending.extend(getattr(node, field.name) for field in fields(node))
    return found


def test_what_parses_is_answered(schema: Schema) -> None:
    """Statements that rarely mean anything."""
    chance = AnyChance(2)
    for _ in range(1500):
        text = chance.query() if chance.rng.random() < 0.7 else f"select {chance.expression()} from t"
        attempt(text, schema)


def test_a_hint_says_what_binding_comes_to(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Expressions.bind
    checked = 0

    def checking(self: Expressions, node: ast.Expr, desired: SqlType | None = None) -> plan.Expr:
        nonlocal checked
        hint = self.hint(node).type
        bound = original(self, node, desired)
        if desired is None and not hint.is_unknown:
            assert bound.type.same_values(hint), (node, hint, bound)
            checked += 1
        return bound

    monkeypatch.setattr(Expressions, "bind", checking)
    chance = Chance(3)
    for _ in range(500):
        attempt(chance.draft().text(), schema)
    assert checked > 300


# --- plans that several texts share --------------------------------------------------------------


def filled(bound: plan.Bound, draft: Draft) -> plan.Bound | ShoalError:
    """The plan with the literals of another text, as an execution fills them in."""
    failed: list[ShoalError] = []

    def fill(node: object) -> object:
        if isinstance(node, plan.Const) and node.source is not None:
            source = node.source
            try:
                text = draft.literals[source.slot].text
                return replace(node, value=literal_value(source.kind, text, source.negative, node.type))
            except ShoalError as error:
                failed.append(error)
                return node
        if isinstance(node, tuple):
            return tuple(fill(item) for item in node)
        if is_dataclass(node) and not isinstance(node, type) and type(node).__module__ == plan.__name__:
            return replace(node, **{field.name: fill(getattr(node, field.name)) for field in fields(node)})
        return node

    result = replace(bound, root=fill(bound.root), options=fill(bound.options))  # type: ignore[arg-type]
    return failed[0] if failed else result


def test_a_shared_plan_is_the_plan_of_each_text(schema: Schema) -> None:
    chance = Chance(4)
    rng = random.Random(5)
    shared = refused = 0
    for _ in range(1500):
        draft = chance.draft()
        first = attempt(draft.text(), schema)
        if isinstance(first, ShoalError) or not parse_script(draft.text())[0].literals_in_tree:
            continue
        open_slots = [slot for slot in range(len(draft.literals)) if slot not in first.pinned]
        for slot in rng.sample(open_slots, min(3, len(open_slots))):
            other = draft.with_other(chance, slot)
            own, ours = attempt(other.text(), schema), filled(first, other)
            if isinstance(own, ShoalError) or isinstance(ours, ShoalError):
                assert isinstance(own, ShoalError), (draft.text(), other.text(), ours)
                assert isinstance(ours, ShoalError), (draft.text(), other.text(), own)
                assert (own.sqlstate, own.message) == (ours.sqlstate, ours.message), other.text()
                refused += 1
            else:
                assert same(own.root, ours.root), (draft.text(), other.text())
                shared += 1
    assert shared > 300, shared
    assert refused > 20, refused


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM t WHERE " + " AND ".join(["a = 1"] * 3000),
        "SELECT 1 FROM t WHERE " + " OR ".join(["a = 1"] * 60),
        "SELECT " + " + ".join(["a"] * 150) + " FROM t",
        "SELECT " + " || ".join(["b"] * 150) + " FROM t",
        "SELECT " + "abs(" * 90 + "a" + ")" * 90 + " FROM t",
        " UNION ALL ".join(["SELECT 1"] * 190),
        "SELECT 1 FROM t WHERE a IN (" + ", ".join(map(str, range(5000))) + ")",
        "INSERT INTO t (a) VALUES " + ", ".join(f"(${n})" for n in range(1, 7501)),
        "SELECT 1 FROM t AS t0 " + " ".join(f"JOIN t AS t{i} ON t{i}.a = t{i - 1}.a" for i in range(1, 60)),
    ],
    ids=lambda text: text[:40],
)
def test_long_statements(text: str, schema: Schema) -> None:
    result = attempt(text, schema)
    assert isinstance(result, plan.Bound), result


@pytest.mark.parametrize("count", [50, 120, 190, 250, 1000])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("-(", ")"),
        ("NOT (", ")"),
        ("coalesce(", ")"),
        ("(SELECT ", ")"),
        ("CASE WHEN f THEN ", " END"),
        ("1 + (", ")"),
    ],
)
def test_deep_statements_are_answered(opening: str, closing: str, count: int, schema: Schema) -> None:
    result = attempt(f"SELECT {opening * count}a{closing * count} FROM t", schema)
    assert isinstance(result, plan.Bound | StatementTooComplex) or count < 200
