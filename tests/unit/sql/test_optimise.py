"""The optimiser's rules: what they find out must hold for every row."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from shoal.catalog.schema import BUCKET_ID, Table
from shoal.sql import ast, plan
from shoal.sql.bind import BindSettings, bind
from shoal.sql.local import compile_program
from shoal.sql.optimise import optimise
from shoal.sql.optimise.buckets import infer_buckets
from shoal.sql.parser import parse
from shoal.sql.program import Route
from shoal.types.values import Stored
from tests.unit.sql.database import Database

TABLES = """
CREATE TABLE one (id INT PRIMARY KEY, a INT, d DECIMAL);
CREATE TABLE two (x TEXT, y INT, z INT, PRIMARY KEY (x, y));
CREATE TABLE other (id INT PRIMARY KEY, a INT NOT NULL) DISTRIBUTED BY (a);
CREATE TABLE first (id INT, a INT, PRIMARY KEY (bucket_id, id)) DISTRIBUTED BY (id);
CREATE UNIQUE INDEX one_u ON one (id, a)
"""
COLUMNS = {"one": ("id", "a"), "two": ("y", "z"), "other": ("id", "a"), "first": ("id", "a")}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database(tmp_path_factory.mktemp("optimise"))
    assert "ERROR" not in database.script(TABLES)
    for n in range(8):
        answer = database.script(
            f"INSERT INTO one VALUES ({n}, {n % 3}, {n}.5); INSERT INTO other VALUES ({n}, {n % 3});"
            f"INSERT INTO two VALUES ('k{n % 2}', {n}, {n % 3}); INSERT INTO first VALUES ({n}, {n % 3})"
        )
        assert "ERROR" not in answer
    yield database
    database.close()


def _condition(rng: random.Random, names: dict[str, str], depth: int = 2) -> str:
    """Over the tables by alias: alias → table."""
    if depth and rng.random() < 0.5:
        left, right = (_condition(rng, names, depth - 1) for _ in range(2))
        return f"({left} {rng.choice(('AND', 'OR'))} {right})"
    alias = rng.choice(sorted(names))
    column = f"{alias}.{rng.choice(COLUMNS[names[alias]])}"
    match rng.randrange(7):
        case 0 | 1:
            return f"{column} = {rng.randrange(4)}"
        case 2:
            return f"{rng.randrange(4)}.0 = {column}"
        case 3:
            return f"{column} IN ({', '.join(str(rng.randrange(5)) for _ in range(3))})"
        case 4:
            if names[alias] == "two":
                return f"({alias}.x, {alias}.y) = ('k{rng.randrange(2)}', {rng.randrange(4)})"
            return f"{column} {rng.choice(('<', '<=', '>=', '>', '<>'))} {rng.choice(('1.5', '2e0', '3'))}"
        case 5:
            return f"{alias}.bucket_id = {rng.choice((1934, 1410, 84))}"
        case _:
            second = rng.choice(sorted(names))
            return f"{column} = {second}.{rng.choice(COLUMNS[names[second]])}"


def _bound(database: Database, text: str) -> plan.Bound:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query)
    return bind(statement, database.schema, (), BindSettings())


@pytest.mark.parametrize("seed", range(4))
def test_no_row_lies_outside_of_the_buckets_that_were_inferred(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    narrowed = 0
    for _ in range(250):
        names = {"p": rng.choice(sorted(COLUMNS)), "q": rng.choice(sorted(COLUMNS))}
        join = rng.choice(("JOIN", "LEFT JOIN"))
        text = (
            f"SELECT p.bucket_id, q.bucket_id FROM {names['p']} AS p {join} {names['q']} AS q"
            f" ON {_condition(rng, names)} WHERE {_condition(rng, names)}"
        )
        bound = optimise(_bound(database, text), database.schema)
        buckets = infer_buckets(bound, database.schema).evaluate((), {})
        if buckets is None:
            continue
        narrowed += 1
        seen = {bucket for row in database.rows(text) for bucket in row if bucket is not None}
        assert seen <= buckets, text
    assert narrowed > 10


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_change_no_answer(database: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        names = {"p": rng.choice(sorted(COLUMNS))}
        text = f"SELECT p.* FROM {names['p']} AS p WHERE {_condition(rng, names, 3)}"
        with_rules = sorted(database.rows(text), key=repr)
        with monkeypatch.context() as without:
            without.setattr("shoal.sql.optimise.RULES", ())
            assert sorted(database.rows(text), key=repr) == with_rules, text


@pytest.mark.parametrize("seed", range(4))
def test_a_point_read_finds_one_row_at_most(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    points = 0
    for _ in range(250):
        names = {"p": rng.choice(sorted(COLUMNS))}
        text = f"SELECT p.* FROM {names['p']} AS p WHERE {_condition(rng, names, 2)}"
        if compile_program(_bound(database, text), database.schema).route is Route.POINT_READ:
            points += 1
            assert len(database.rows(text)) <= 1, text
    assert points > 3


def keys_of(table: Table) -> list[int]:
    return [part.column for part in table.physical_key]


def test_the_bucket_is_a_part_of_keys_that_do_not_hold_the_sharding_key(database: Database) -> None:
    assert keys_of(database.table("other"))[-1] == BUCKET_ID
    assert keys_of(database.table("first"))[0] == BUCKET_ID
    for text in ("SELECT a FROM first WHERE id = 3", "SELECT a FROM other WHERE id = 4 AND a = 1"):
        assert compile_program(_bound(database, text), database.schema).route is Route.POINT_READ
        rows: list[tuple[Stored, ...]] = database.rows(text)
        assert len(rows) == 1
    assert (
        compile_program(_bound(database, "SELECT a FROM other WHERE id = 4"), database.schema).route
        is Route.READ
    )
