"""The binder: scripts of statements and the plans that they mean, or the errors.

A script begins with the tables that its statements are about. A statement may be preceded by a line
`oids 23 0 25`: the parameter types that the client sent; or `zone Asia/Tokyo`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.catalog.apply import after
from shoal.catalog.schema import DEFAULT_TIER, Schema, Tier, schema_of
from shoal.catalog.system import SYSTEM_TABLES
from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.bind import BindSettings, bind
from shoal.sql.bind.ddl import bind_ddl
from shoal.sql.parser import parse
from shoal.types.datetimes import UTC, zone_of_name
from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.plan_text import bound_text

SCRIPTS = script_paths("sql/bind")
SESSION_VARIABLES = {"server_version": "15.0", "timezone": "UTC"}


def with_tables(schema: Schema, text: str) -> Schema:
    """The schema after some DDL."""
    for statement in parse(text):
        assert isinstance(statement, ast.DDL), statement
        next_id = max((*schema.tables_by_id, 1024)) + 1
        for change in bind_ddl(statement, schema, owner=1, next_table_id=next_id):
            version = schema.version + 1
            table = after(schema, change, version)
            assert table is not None, "scripts only add tables"
            schema = schema.with_table(table, version)
    return schema


def empty_schema() -> Schema:
    return schema_of(1, SYSTEM_TABLES, [Tier(DEFAULT_TIER)])


def binder() -> Callable[[str], str]:
    schema = empty_schema()

    def execute(text: str) -> str:
        nonlocal schema
        oids: tuple[int, ...] = ()
        zone = UTC
        while True:
            first, _, rest = text.partition("\n")
            if first.startswith("oids "):
                oids, text = tuple(int(oid) for oid in first.split()[1:]), rest
            elif first.startswith("zone "):
                zone, text = zone_of_name(first.split()[1]), rest
            else:
                break
        try:
            statements = parse(text)
            if all(isinstance(statement, ast.DDL) for statement in statements):
                schema = with_tables(schema, text)
                return "ok"
            settings = BindSettings(zone=zone, variables=SESSION_VARIABLES)
            plans = []
            for statement in statements:
                assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete)
                plans.append(bound_text(bind(statement, schema, oids, settings)))
            return "\n".join(plans)
        except ShoalError as error:
            return refusal(text, error)

    return execute


def refusal(text: str, error: ShoalError) -> str:
    """The error, and the text from its place on."""
    place = ""
    if error.position is not None:
        place = f" @ {text[error.position - 1 :].splitlines()[0][:20]}"
    return f"{error.sqlstate} {error.message}{place}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts(path: Path, rewrite: bool) -> None:
    run_script(path, binder(), rewrite)
