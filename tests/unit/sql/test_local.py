"""Programs: the text that SQLite gets, where it may run, and where its values come from.

An answer's first line is the route, `guarded` and `template` where they hold; then the text, then the binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.sql import ast, plan
from shoal.sql.bind import BindSettings, bind
from shoal.sql.functions import AGGREGATES, COMPARABLE, FUNCTIONS, OPERATORS, Overload
from shoal.sql.local import compile_program
from shoal.sql.normalise import normalise
from shoal.sql.parser import parse, parse_script
from shoal.sql.program import (
    Bind,
    ConstBind,
    LiteralBind,
    ParamBind,
    Program,
    SessionBind,
    bindings,
)
from shoal.types import arrays, casts, decimals
from shoal.types.sqltype import ANY, ARRAY, BOOLEAN, Kind, SqlType, array_of
from shoal.types.values import Stored
from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
    yield database
    database.close()


@pytest.fixture(scope="module")
def one_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """For tests that change nothing."""
    database = Database(tmp_path_factory.mktemp("one"))
    yield database
    database.close()


def program(database: Database, text: str) -> Program:
    (statement,) = parse(text)
    assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete)
    return compile_program(bind(statement, database.schema, (), BindSettings()), database.schema)


@pytest.mark.parametrize("path", script_paths("sql/local"), ids=lambda path: path.stem)
def test_scripts(path: Path, database: Database, rewrite: bool) -> None:
    def execute(text: str) -> str:
        if text.startswith("CREATE"):
            return database.script(text)
        try:
            compiled = program(database, text)
        except ShoalError as error:
            return f"ERROR {error.sqlstate} {error.message}"
        # It must compile, and bind exactly these.
        connection = database.catalog if _is_global(compiled) else database.data
        connection.execute(f"EXPLAIN {compiled.sql}", (None,) * len(compiled.binds), can_cache=False)
        return _shown(compiled)

    run_script(path, execute, rewrite)


def _is_global(compiled: Program) -> bool:
    return compiled.writes is not None and not compiled.writes.is_sharded


def _shown(compiled: Program) -> str:
    words = [compiled.route.value]
    words += ["guarded"] * compiled.guarded + ["template"] * compiled.templatable
    lines = [", ".join(words), compiled.sql]
    if compiled.binds:
        lines.append(" ".join(f"?{n + 1}={_bind(bind)}" for n, bind in enumerate(compiled.binds)))
    return "\n".join(lines)


def _bind(bind: Bind) -> str:
    match bind:
        case ParamBind(number):
            return f"${number}"
        case LiteralBind(source, type, _):
            return f"#{source.slot}:{type}"
        case ConstBind(value):
            return repr(value)
        case SessionBind(fact, precision):
            return fact.value + ("" if precision is None else f"({precision})")


# --- all that can be called is there -------------------------------------------------------------

# A value of each type that most functions take.
VALUES: dict[Kind, Stored] = {
    Kind.INT: 1,
    Kind.DOUBLE: 1.0,
    Kind.DECIMAL: decimals.ONE,
    Kind.TEXT: "1",
    Kind.BOOLEAN: 1,
    Kind.UUID: bytes(16),
    Kind.DATETIME: 0,
    Kind.JSON: "1",
    Kind.ANY: "1",
}
SCALARS = [SqlType(kind) for kind in VALUES]


def value(t: SqlType) -> Stored:
    if t.is_array:
        return "[1]" if t.kind is Kind.ANY else arrays.pack([VALUES[t.kind]])
    return VALUES[t.kind]


def answers(database: Database, expr: plan.Expr, types: tuple[SqlType, ...], *params: Stored) -> Stored:
    """The expression, over parameters of those types."""
    grouped = isinstance(expr, plan.Aggregate)
    block = plan.Block((plan.Output("x", expr),), None, None, (), grouped, None, False)
    query = plan.Query((), block, (), None, None, ("x",), (expr.type,))
    bound = plan.Bound(query, plan.Options(), types, tuple(t.oid for t in types), (), (), frozenset(), False)
    compiled = compile_program(bound, database.schema)
    filled = bindings(compiled)(params, None, database.facts())
    ((answer,),) = database.run(compiled, filled)
    return answer


def parameters(types: tuple[SqlType, ...]) -> tuple[plan.Expr, ...]:
    return tuple(plan.Param(n + 1, t) for n, t in enumerate(types))


OVERLOADS = [
    *((name, overload) for name, function in FUNCTIONS.items() for overload in function.overloads),
    *(("nullif", Overload((t, t), t)) for t in COMPARABLE),
    *((name, Overload((t,) * 3, t)) for name in ("coalesce", "greatest", "least") for t in COMPARABLE),
    *((name, Overload((t,) * 2, t)) for name in ("greatest", "least") for t in COMPARABLE),
]


@pytest.mark.parametrize(
    ("name", "overload"), OVERLOADS, ids=lambda x: x if isinstance(x, str) else "-".join(map(str, x.args))
)
def test_every_function_answers(one_database: Database, name: str, overload: Overload) -> None:
    call = plan.Call(name, parameters(overload.args), overload.result)
    answers(one_database, call, overload.args, *(None for _ in overload.args))
    try:
        answers(one_database, call, overload.args, *map(value, overload.args))
    except ShoalError as error:
        assert error.sqlstate not in ("XX000", "42883"), error


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_answers(one_database: Database, name: str) -> None:
    for overload in OPERATORS[name]:
        args = parameters(overload.args)
        if name == "||":
            args = tuple(a if a.type.is_text else plan.Cast(a, overload.result, implicit=True) for a in args)
        answers(one_database, plan.Op(name, args, overload.result), overload.args, *map(value, overload.args))


@pytest.mark.parametrize("distinct", [False, True])
def test_every_aggregate_answers(one_database: Database, distinct: bool) -> None:
    for name, overloads in AGGREGATES.items():
        for overload in overloads or (Overload((t,), SqlType(Kind.INT)) for t in COMPARABLE):
            condition = plan.Const(1, BOOLEAN)
            call = plan.Aggregate(name, parameters(overload.args), distinct, None, condition, overload.result)
            one = answers(one_database, call, overload.args, *map(value, overload.args))
            if name in ("sum", "avg", "min", "max", "total"):
                wanted = (
                    value(overload.result) if name in ("sum", "avg", "total") else value(overload.args[0])
                )
                assert one == wanted, (name, overload)
            none = answers(one_database, call, overload.args, *(None for _ in overload.args))
            assert none == {"count": 0, "total": 0.0}.get(name), (name, overload)


@pytest.mark.parametrize("source", [*SCALARS, *map(array_of, SCALARS[:8]), ARRAY], ids=str)
def test_every_cast_answers_as_python_does(one_database: Database, source: SqlType) -> None:
    narrow = [SqlType(Kind.DECIMAL, precision=5, scale=1), SqlType(Kind.INT, unsigned=True)]
    for target in [*SCALARS, *narrow, *map(array_of, SCALARS[:8]), ANY]:
        convert = casts.cast(source, target)
        if convert is None:
            continue
        cast = plan.Cast(plan.Param(1, source), target)
        assert answers(one_database, cast, (source,), None) is None
        try:
            expected = convert(value(source))
        except ShoalError as error:
            with pytest.raises(type(error)):
                answers(one_database, cast, (source,), value(source))
        else:
            assert answers(one_database, cast, (source,), value(source)) == expected, (source, target)


# --- one plan for all texts of a template ----------------------------------------------------------

# Two texts each, whose literals differ.
TEMPLATES = [
    ("SELECT 1 + 2, 'a' || 5, 2.50, 1e0, -7", "SELECT 3 + 9, 'bc' || 77, 0.1, 25e-1, -8"),
    ("SELECT d + 1, d < 2.5, d = '3.0' FROM t", "SELECT d + 7, d < 0.5, d = '1.50' FROM t"),
    ("SELECT x * 2, x > 1.5, x + 1 FROM t", "SELECT x * 5, x > 0.25, x + 99 FROM t"),
    ("SELECT id FROM t WHERE id = 1 OR s LIKE 'a%'", "SELECT id FROM t WHERE id = 2 OR s LIKE '%b'"),
    ("SELECT id FROM t WHERE id = 1.0", "SELECT id FROM t WHERE id = 2.0"),
    ("SELECT id FROM t WHERE id < 1.5", "SELECT id FROM t WHERE id < 2.5"),
    ("SELECT id FROM t WHERE id IN (1.0, 3.0)", "SELECT id FROM t WHERE id IN (2.0, 9.0)"),
    ("SELECT id FROM t WHERE w > '2024-01-01'", "SELECT id FROM t WHERE w > '2023-01-01 05:00+03'"),
    ("SELECT id, 6 / 2 FROM t ORDER BY id LIMIT 1", "SELECT id, 6 / 5 FROM t ORDER BY id LIMIT 2"),
    ("SELECT s FROM t ORDER BY 1", "SELECT s FROM t ORDER BY 2"),
    ("SELECT id % 2, count(*) FROM t GROUP BY id % 2", "SELECT id % 3, count(*) FROM t GROUP BY id % 3"),
    ("SELECT s LIKE 'a#%' ESCAPE '#' FROM t", "SELECT s LIKE 'a!%' ESCAPE '!' FROM t"),
    ("SELECT group_concat(s, ',') FROM t", "SELECT group_concat(s, '; ') FROM t"),
    ("SELECT id FROM t OPTION (sql_motion_row_max = 5)", "SELECT id FROM t OPTION (sql_motion_row_max = 6)"),
    ("SELECT 1.25::decimal(5, 1)", "SELECT 1.25::decimal(5, 2)"),
    ("SELECT '1'::int + 1, 'x' = 'x'", "SELECT '20'::int + 2, 'x' = 'y'"),
    ("SELECT 5 / 1", "SELECT 5 / 0"),
    ("SELECT round(d, 1), substr(s, 1, 1) FROM t", "SELECT round(d, 0), substr(s, 2, 5) FROM t"),
    ("SELECT 9223372036854775807 - 1", "SELECT 1 - 1"),
    ("SELECT u FROM t WHERE u = '00000000-0000-0000-0000-000000000001'", "SELECT u FROM t WHERE u = 'x'"),
]


@pytest.mark.parametrize(("first", "second"), TEMPLATES, ids=[first for first, _ in TEMPLATES])
def test_one_plan_serves_all_texts_of_its_template(database: Database, first: str, second: str) -> None:
    made = database.script(
        "CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL, x DOUBLE, s TEXT, w DATETIME, u UUID);"
        "INSERT INTO t VALUES (1, 1.5, 1.5, 'abc', '2024-06-01', '00000000-0000-0000-0000-000000000001');"
        "INSERT INTO t VALUES (2, 3, 0.5, 'b', '2023-06-01', NULL), (3, -1, 2e0, 'a%', NULL, NULL)"
    )
    assert "ERROR" not in made
    normalised = [normalise(text) for text in (first, second)]
    (parsed,) = parse_script(first)
    compiled = program(database, first)
    if not compiled.templatable or not parsed.literals_in_tree or None in normalised:
        return  # not shared: then there is nothing to go wrong
    one, other = normalised
    assert one is not None and other is not None
    if one.template != other.template:
        return

    def outcome(run: Callable[[], list[tuple[Stored, ...]]]) -> object:
        try:
            return run()
        except ShoalError as error:
            return error.sqlstate

    shared = outcome(lambda: database.run(compiled, bindings(compiled)((), other.literals, database.facts())))
    assert shared == outcome(lambda: database.rows(second))


def test_most_statements_share_their_plans(database: Database) -> None:
    database.script("CREATE TABLE t (id INT PRIMARY KEY, d DECIMAL, x DOUBLE, s TEXT, w DATETIME, u UUID)")
    assert sum(program(database, first).templatable for first, _ in TEMPLATES) >= 12
