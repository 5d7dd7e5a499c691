"""Programs: the text that SQLite gets, where it may run, and where its values come from.

An answer's first line is the route, `guarded` and `template` where they hold; then the text, then the binds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.bind import BindSettings, bind
from shoal.sql.local import compile_program
from shoal.sql.parser import parse
from shoal.sql.program import Bind, ConstBind, LiteralBind, ParamBind, Program, SessionBind
from shoal.storage.functions import FUNCTIONS
from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
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
