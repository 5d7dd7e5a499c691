"""The two databases, and what one statement did in each.

Here: Answer; Ours, in this process; Theirs, a PostgreSQL server.
Not here: starting the server (bench/postgres.py), comparing (compare.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

import psycopg
from psycopg.adapt import Loader

from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.parser import parse
from shoal.types import decimals
from shoal.types.sqltype import Kind, SqlType
from shoal.types.values import Stored
from tests.unit.sql.database import Database

Value: TypeAlias = "int | float | bool | str | Decimal | UUID | None"
Row: TypeAlias = "tuple[Value, ...]"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    rows: list[Row] | None = None
    kinds: tuple[str, ...] = ()
    changed: int = 0
    sqlstate: str | None = None  # of an error
    message: str = ""


# --- Shoal ---------------------------------------------------------------------------------------

_KINDS: Final = {
    Kind.INT: "int",
    Kind.DOUBLE: "double",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "text",
    Kind.BOOLEAN: "bool",
    Kind.UUID: "uuid",
    Kind.DATETIME: "datetime",
}


def _value(t: SqlType) -> Callable[[Stored], Value]:
    convert: Callable[..., Value]
    match t.kind:
        case Kind.DECIMAL:
            convert = decimals.from_stored
        case Kind.BOOLEAN:
            convert = bool
        case Kind.UUID:
            convert = lambda stored: UUID(bytes=stored)  # noqa: E731
        case _:
            return lambda stored: stored  # type: ignore[return-value]
    return lambda stored: None if stored is None else convert(stored)


class Ours:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.database = Database(directory)

    def close(self) -> None:
        self.database.close()

    def run(self, text: str) -> Answer:
        try:
            (statement,) = parse(text)
            if isinstance(statement, ast.DDL):
                self.database.execute(statement, text)
                return Answer()
            assert isinstance(statement, ast.Query | ast.Insert | ast.Update | ast.Delete)
            program, rows, changed = self.database.answer(statement, text)
        except ShoalError as error:
            return Answer(sqlstate=error.sqlstate, message=error.message)
        except AssertionError as error:
            return Answer(sqlstate="a bug", message=str(error))
        if program.tag == "SELECT":
            changed = len(rows)
        if not program.returns_rows:
            return Answer(changed=changed)
        columns = [_value(t) for t in program.types]
        return Answer(
            [tuple(convert(v) for convert, v in zip(columns, row, strict=True)) for row in rows],
            tuple(_KINDS[t.kind] for t in program.types),
            changed,
        )


# --- PostgreSQL ----------------------------------------------------------------------------------

_THEIR_KINDS: Final = {
    16: "bool",
    20: "int",
    21: "int",
    23: "int",
    25: "text",
    701: "double",
    1184: "datetime",
    1700: "decimal",
    2950: "uuid",
}


class _Microseconds(Loader):
    """A timestamptz as the number that Shoal stores. Years B.C. and beyond 9999 aren't made here."""

    def load(self, data: psycopg.abc.Buffer) -> int:
        text = bytes(data).decode()
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


class Theirs:
    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.adapters.register_loader("timestamptz", _Microseconds)
        self.run("SET timezone = 'UTC'")
        self.run("SET synchronous_commit = off")
        self.run("SET statement_timeout = '20s'")
        self.run("SET jit = off")

    def close(self) -> None:
        self.connection.close()

    def run(self, text: str) -> Answer:
        try:
            cursor = self.connection.execute(text.encode(), prepare=False)
        except psycopg.Error as error:
            return Answer(sqlstate=error.sqlstate or "?????", message=str(error))
        if cursor.description is None:
            return Answer(changed=cursor.rowcount)
        kinds = tuple(_THEIR_KINDS.get(column.type_code, "?") for column in cursor.description)
        return Answer(cursor.fetchall(), kinds, cursor.rowcount)
