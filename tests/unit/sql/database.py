"""A database in one process, from the statement's text to its rows: what result scripts run on.

Here: Database.
Not here: sessions, the log, threads (node/ has those).

Like an instance it has three files and two connections that write: the catalog's, on which global tables are
`main`, and the data writer's, which has the catalog attached. A statement that can run as another text of
its template does: its literals are taken from the text, as the simple protocol takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import apsw

from shoal.catalog.apply import after
from shoal.catalog.schema import DEFAULT_TIER, Schema, Table, Tier, schema_of
from shoal.catalog.system import SYSTEM_TABLES
from shoal.errors import QueryCanceled, ShoalError
from shoal.sql import ast
from shoal.sql.bind import BindSettings, bind
from shoal.sql.bind.ddl import bind_ddl
from shoal.sql.explain import explain
from shoal.sql.local import compile_program
from shoal.sql.normalise import normalise
from shoal.sql.parser import parse
from shoal.sql.plan import SessionFact
from shoal.sql.program import Program, bindings
from shoal.storage.functions import register, register_guard
from shoal.storage.tables import conform, create_table
from shoal.storage.translate import translate
from shoal.types.datetimes import midnight, with_precision
from shoal.types.sqltype import SqlType
from shoal.types.text import text_decoder, text_encoder
from shoal.types.values import Stored
from shoal.types.zones import UTC, Zone, zone_of_name

NOW = 1_700_000_000_123_456


class Database:
    def __init__(self, directory: Path) -> None:
        self.schema: Schema = schema_of(1, SYSTEM_TABLES, [Tier(DEFAULT_TIER)])
        self.zone: Zone = UTC
        self.guard_calls = 0
        self.guard_limit: int | None = None
        self.last: Program | None = None
        self.catalog = self._open(directory / "catalog.db")
        self.data = self._open(directory / "data.db")
        self.data.execute("ATTACH ? AS unlogged", (str(directory / "unlogged.db"),))
        self.data.execute("ATTACH ? AS catalog", (str(directory / "catalog.db"),))
        for table in SYSTEM_TABLES:
            create_table(self.catalog, table, schema="main")

    def _open(self, path: Path) -> apsw.Connection:
        connection = apsw.Connection(str(path))
        connection.pragma("case_sensitive_like", 1)
        connection.pragma("journal_mode", "wal")
        register(connection)
        register_guard(connection, self._guard)
        return connection

    def close(self) -> None:
        self.data.close(True)
        self.catalog.close(True)

    def _guard(self) -> None:
        self.guard_calls += 1
        if self.guard_limit is not None and self.guard_calls > self.guard_limit:
            raise QueryCanceled("canceling statement due to user request")

    # --- statements ---

    def script(self, text: str) -> str:
        """A block of a script: maybe lines of settings, then statements. What they answer, or the error."""
        params: list[str | None] = []
        self.guard_limit = None
        while True:
            first, _, rest = text.partition("\n")
            word, _, value = first.partition(" ")
            if word == "params":
                params = [None if p.strip() == "NULL" else p.strip() for p in value.split("|")]
            elif word == "zone":
                self.zone = zone_of_name(value)
            elif word == "limit":
                self.guard_limit = int(value)
            else:
                break
            text = rest
        self.guard_calls = 0
        try:
            answers = [self.execute(statement, text, params) for statement in parse(text)]
        except ShoalError as error:
            answers = [_refusal(error)]
        return "\n".join(answers)

    def execute(self, statement: ast.Statement, text: str, params: Sequence[str | None] = ()) -> str:
        if isinstance(statement, ast.DDL):
            self._change_schema(statement)
            return "ok"
        settings = BindSettings(zone=self.zone)
        if isinstance(statement, ast.Explain):
            return self._explain(statement, settings, params)
        assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete), statement
        program, rows, changes = self.answer(statement, text, params)
        if not program.returns_rows:
            return f"{program.tag} {changes}"
        return _shown(program.names, program.types, rows, self.zone)

    def answer(
        self,
        statement: ast.Query | ast.Insert | ast.Update | ast.Delete,
        text: str,
        params: Sequence[str | None] = (),
    ) -> tuple[Program, list[tuple[Stored, ...]], int]:
        """The program, its rows in storage form, and how many rows it changed."""
        bound = bind(statement, self.schema, (), BindSettings(zone=self.zone))
        self.last = program = compile_program(bound, self.schema)
        values = self._parameters(program.parameters, params)
        literals = normalise(text) if program.templatable else None
        filled = bindings(program)(values, literals.literals if literals else None, self.facts())
        connection = self.data
        if program.writes is not None and not program.writes.is_sharded:
            connection = self.catalog
        rows = self._run(connection, program, filled)
        return program, rows, connection.changes()

    def rows(self, text: str, *params: Stored) -> list[tuple[Stored, ...]]:
        """The rows of a query, in storage form."""
        (statement,) = parse(text)
        assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete)
        bound = bind(statement, self.schema, (), BindSettings(zone=self.zone))
        self.last = program = compile_program(bound, self.schema)
        return self._run(self.data, program, bindings(program)(params, None, self.facts()))

    def run(self, program: Program, values: Sequence[Stored]) -> list[tuple[Stored, ...]]:
        return self._run(self.data, program, values)

    def _run(
        self, connection: apsw.Connection, program: Program, values: Sequence[Stored]
    ) -> list[tuple[Stored, ...]]:
        try:
            rows = connection.execute(program.sql, values).fetchall()
        except apsw.Error as error:
            raise translate(error, lambda id: self.schema.tables_by_id.get(id)) from error  # type: ignore[call-overload]
        if program.returns_rows:
            for row in rows:
                check_row(program.types, row)
        return rows

    def _parameters(self, types: Sequence[SqlType], params: Sequence[str | None]) -> list[Stored]:
        return [
            None if param is None else text_decoder(t, self.zone)(param)
            for t, param in zip(types, params, strict=True)
        ]

    def _explain(self, statement: ast.Explain, settings: BindSettings, params: Sequence[str | None]) -> str:
        bound = bind(statement.statement, self.schema, (), settings)
        program = compile_program(bound, self.schema)
        values = self._parameters(program.parameters, params) if params else None
        return "\n".join(
            explain(
                bound,
                program,
                self.schema,
                statement.facets,
                values,
                facts=self.facts(),
                query_plan=self._query_plan,
                fmt=statement.fmt,
            )
        )

    def _query_plan(self, sql: str) -> list[str]:
        return [str(row[3]) for row in self.data.execute(f"EXPLAIN QUERY PLAN {sql}", None, can_cache=False)]

    def facts(self) -> Mapping[SessionFact, Callable[[int | None], Stored]]:
        def now(precision: int | None) -> Stored:
            return NOW if precision is None else with_precision(NOW, precision)

        return {
            SessionFact.NOW: now,
            SessionFact.LOCAL_NOW: now,
            SessionFact.TODAY: lambda _: midnight(NOW, self.zone),
            SessionFact.ZONE: lambda _: self.zone.name,
            SessionFact.USER: lambda _: "admin",
            SessionFact.DATABASE: lambda _: "shoal",
            SessionFact.VERSION: lambda _: "Shoal",
            SessionFact.BACKEND_PID: lambda _: 1,
        }

    def _change_schema(self, statement: ast.Statement) -> None:
        assert isinstance(statement, ast.DDL)
        next_id = max((*self.schema.tables_by_id, 1024)) + 1
        for change in bind_ddl(statement, self.schema, owner=1, next_table_id=next_id):
            version = self.schema.version + 1
            table = after(self.schema, change, version)
            assert table is not None, "scripts drop nothing"
            connection = self.data if table.is_sharded else self.catalog
            conform(connection, table, schema=None if table.is_sharded else "main")
            self.schema = self.schema.with_table(table, version)

    def table(self, name: str) -> Table:
        return self.schema.tables[name]


def check_row(types: Sequence[SqlType], row: Sequence[Stored]) -> None:
    """Encoders don't look at what they are given: each value must be of its type's storage form."""
    wanted = {"INTEGER": int, "REAL": float, "TEXT": str, "BLOB": bytes}
    for t, value in zip(types, row, strict=True):
        assert value is None or t.is_unknown or type(value) is wanted[t.sqlite_type], (t, value)
        if isinstance(value, float):
            assert value == value and str(value) != "-0.0", value


def _shown(
    names: Sequence[str], types: Sequence[SqlType], rows: Sequence[Sequence[Stored]], zone: Zone
) -> str:
    encoders = [text_encoder(t, zone) for t in types]
    lines = [" | ".join(f"{name} {t.error_name}" for name, t in zip(names, types, strict=True))]
    for row in rows:
        shown = ["NULL" if v is None else encode(v).decode() for encode, v in zip(encoders, row, strict=True)]
        lines.append(" | ".join(shown))
    return "\n".join(lines) if rows else f"{lines[0]}\n(no rows)"


def _refusal(error: ShoalError) -> str:
    return f"ERROR {error.sqlstate} {error.message}"
