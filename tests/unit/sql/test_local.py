"""Programs: the text that SQLite gets, where it may run, and where its values come from.

An answer's first line is the route, `guarded` and `template` where they hold; then the text, then the binds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.sql import ast, plan
from shoal.sql.bind import BindSettings, bind
from shoal.sql.functions import AGGREGATES, COMPARABLE, FUNCTIONS, OPERATORS, Overload
from shoal.sql.local import compile_program
from shoal.sql.parser import parse
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
    bound = plan.Bound(query, plan.Options(), types, tuple(t.oid for t in types), (), frozenset(), False)
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
