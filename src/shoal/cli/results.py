"""The rows of an answer as a table, as JSON or as CSV.

Here: Format and one writer for each. JSON and CSV are written row by row, however many there are.
Not here: where the rows come from (admin.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Sequence[str | None]

# PostgreSQL's OIDs of the types that JSON has itself. A decimal's digits are a JSON number as they stand.
_BOOLEAN = 16
_NUMBERS = frozenset((20, 21, 23, 700, 701, 1700))
_JSON = frozenset((114, 3802))


class Format(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type_oid: int


def write_rows(columns: Sequence[Column], rows: Iterable[Row], format: Format) -> None:
    match format:
        case Format.TABLE:
            _write_table(columns, rows)
        case Format.JSON:
            _write_json(columns, rows)
        case Format.CSV:
            sys.stdout.write(",".join(_as_csv(column.name) for column in columns) + "\n")
            sys.stdout.writelines(",".join(map(_as_csv, row)) + "\n" for row in rows)


def write_status(status: str, format: Format) -> None:
    """What a statement without rows answers: its command tag. CSV has no place for it."""
    match format:
        case Format.TABLE:
            sys.stdout.write(status + "\n")
        case Format.JSON:
            sys.stdout.write(json.dumps({"status": status}) + "\n")
        case Format.CSV:
            pass


def _write_table(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    table = Table(box=box.ASCII2 if not sys.stdout.isatty() else box.ROUNDED, show_edge=True)
    for column in columns:
        right = column.type_oid in _NUMBERS
        table.add_column(Text(column.name), justify="right" if right else "left", overflow="fold")
    count = 0
    for row in rows:
        table.add_row(*(Text("NULL", style="dim") if value is None else Text(value) for value in row))
        count += 1
    console = Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 100_000)
    if columns:
        console.print(table)
    console.print(f"({count} row{'' if count == 1 else 's'})")


def _write_json(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """One array of objects on a line of its own, a line per row."""
    names = [json.dumps(column.name, ensure_ascii=False) for column in columns]
    types = [column.type_oid for column in columns]
    before = "["
    for row in rows:
        fields = (
            f"{name}: {_as_json(value, type_oid)}"
            for name, value, type_oid in zip(names, row, types, strict=True)
        )
        sys.stdout.write(f"{before}{{{', '.join(fields)}}}")
        before = ",\n "
    sys.stdout.write("[]\n" if before == "[" else "]\n")


def _as_json(value: str | None, type_oid: int) -> str:
    if value is None:
        return "null"
    if type_oid == _BOOLEAN:
        return "true" if value == "t" else "false"
    if type_oid in _JSON:
        return value
    if type_oid in _NUMBERS and value[-1:].isdigit():  # NaN and Infinity are no JSON numbers
        return value
    return json.dumps(value, ensure_ascii=False)


def _as_csv(value: str | None) -> str:
    """As COPY … CSV writes it: NULL is an empty field, an empty text is quoted."""
    if value is None:
        return ""
    if value == "" or any(mark in value for mark in '",\r\n'):
        return '"' + value.replace('"', '""') + '"'
    return value
