"""Which version of each sharded table the files of an instance hold, recorded beside the tables.

Here: the records, and the two ways by which a table comes to a version: apply_change() and follow().
Not here: making physical tables (tables.py), when a change happens (node/own_tables.py).

The record is written in the transaction that changes the table, so doing something twice does it once, and an instance that
was away finds out what it lacks by comparing numbers. UNLOGGED tables have theirs in their own file: both are gone after a
restart.
"""

from __future__ import annotations

from typing import Final, cast

import apsw

from shoal.catalog.schema import Table
from shoal.storage import tables

FILES: Final = ("main", "unlogged")


def open_records(connection: apsw.Connection) -> dict[int, int]:
    """Versions by the tables' ids."""
    found: dict[int, int] = {}
    for file in FILES:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {file}._table_version"
            " (table_id INTEGER PRIMARY KEY, version INTEGER NOT NULL) STRICT"
        )
        rows = connection.execute(f"SELECT table_id, version FROM {file}._table_version").fetchall()
        found |= cast("list[tuple[int, int]]", rows)
    return found


def forget(connection: apsw.Connection, table_id: int, *, file: str) -> None:
    connection.execute(f"DELETE FROM {file}._table_version WHERE table_id = ?", (table_id,))


def apply_change(connection: apsw.Connection, before: Table | None, after: Table) -> None:
    """A change that isn't certain yet: `before` is what the catalog shows, and its generation stays."""
    found = _recorded(connection, after)
    if found == after.version:
        return
    if before is not None:
        if found != before.version:
            tables.conform(connection, before)
        tables.refuse_missing_values(connection, before, after, schema=before.file)
    tables.conform(connection, after)
    _record(connection, after)


def follow(connection: apsw.Connection, table: Table) -> None:
    """What the catalog shows and is certain: whether the way there leads through changes that were missed, or back from
    one that was aborted."""
    if _recorded(connection, table) != table.version:
        tables.conform(connection, table)
        _record(connection, table)


def _recorded(connection: apsw.Connection, table: Table) -> int | None:
    found = connection.execute(
        f"SELECT version FROM {table.file}._table_version WHERE table_id = ?", (table.id,)
    ).get
    return cast("int | None", found)


def _record(connection: apsw.Connection, table: Table) -> None:
    connection.execute(
        f"INSERT OR REPLACE INTO {table.file}._table_version VALUES (?, ?)", (table.id, table.version)
    )
