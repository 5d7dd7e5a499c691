"""Physical tables and indexes: what a table of the catalog is in SQLite.

Here: creating, changing and dropping them, each time idempotent by the physical name.
Not here: when a schema change happens (whoever calls), clearing a large table bit by bit (dropping.py).

`t<id>_<generation>` is STRICT, its columns are `c<number>`, and sharded tables begin with `bucket_id`. A key of
one INT column is SQLite's rowid; every other key clusters the table by itself (WITHOUT ROWID). Renaming is
the catalog's business only. What is added to a table stands behind what was there: rows in the log keep
their meaning.
"""

from __future__ import annotations

from typing import cast

import apsw

from shoal.catalog.schema import BUCKET_COLUMN, Column, Index, KeyPart, Table
from shoal.errors import NotNullViolation
from shoal.storage.translate import duplicate_in_new_index


def physical_columns(table: Table) -> tuple[Column, ...]:
    """In the order in which SQLite holds them; rows of the replication log have this order too."""
    columns = tuple(sorted(table.columns, key=lambda column: column.number))
    return (BUCKET_COLUMN, *columns) if table.is_sharded else columns


def create_table(connection: apsw.Connection, table: Table, *, schema: str | None = None) -> None:
    """The table and its indexes, where they aren't there already. `schema` is the attached file's name."""
    where = schema or table.file
    rowid = table.rowid_column
    lines = []
    for column in physical_columns(table):
        nullable = "" if column.nullable else " NOT NULL"
        key = " PRIMARY KEY" if rowid is not None and column.number == rowid.number else ""
        lines.append(f"{column.physical} {column.type.sqlite_type}{nullable}{key}")
    if rowid is None:
        lines.append(f"PRIMARY KEY ({_key(table, table.physical_key)})")
    options = "STRICT" if rowid is not None else "STRICT, WITHOUT ROWID"
    connection.execute(f"CREATE TABLE IF NOT EXISTS {where}.{table.physical} ({', '.join(lines)}) {options}")
    for index in table.indexes:
        create_index(connection, table, index, schema=where)


def create_index(
    connection: apsw.Connection, table: Table, index: Index, *, schema: str | None = None
) -> None:
    """UniqueViolation when the rows don't allow a unique one; then nothing of it is left."""
    unique = "UNIQUE " if index.unique else ""
    name = f"{schema or table.file}.{table.physical_index(index)}"
    try:
        connection.execute(
            f"CREATE {unique}INDEX IF NOT EXISTS {name} ON {table.physical} ({_key(table, index.parts)})"
        )
    except apsw.ConstraintError as error:
        raise duplicate_in_new_index(table, index.name) from error


def drop_index(connection: apsw.Connection, physical_index: str, *, schema: str) -> None:
    connection.execute(f"DROP INDEX IF EXISTS {schema}.{physical_index}")


def add_column(
    connection: apsw.Connection, table: Table, column: Column, *, schema: str | None = None
) -> None:
    """NULL in the rows that exist; so a NOT NULL column needs an empty table."""
    where = schema or table.file
    if column.physical in column_names(connection, table.physical, schema=where):
        return
    nullable = "" if column.nullable else " NOT NULL"
    try:
        connection.execute(
            f"ALTER TABLE {where}.{table.physical}"
            f" ADD COLUMN {column.physical} {column.type.sqlite_type}{nullable}"
        )
    except apsw.SQLError as error:
        if column.nullable:
            raise
        raise NotNullViolation(
            f'column "{column.name}" of table "{table.name}" contains null values'
        ) from error


def drop_table(connection: apsw.Connection, physical: str, *, schema: str) -> None:
    """At once, with its indexes: about 0.3 s per GB. dropping.py does it without keeping others waiting."""
    connection.execute(f"DROP TABLE IF EXISTS {schema}.{physical}")


def migrate(
    connection: apsw.Connection, before: Table | None, after: Table | None, *, schema: str | None = None
) -> None:
    """Makes what `after` needs, and drops the indexes that only `before` had.

    The physical table of `before` stays, even when `after` has another: it is wanted until the change is
    certain.
    """
    if after is None:
        return
    where = schema or after.file
    if before is None or before.physical != after.physical:
        create_table(connection, after, schema=where)
        return
    numbers = set(before.by_number)
    for column in sorted(after.columns, key=lambda column: column.number):
        if column.number not in numbers:
            add_column(connection, after, column, schema=where)
    kept = {after.physical_index(index) for index in after.indexes}
    for index in before.indexes:
        if before.physical_index(index) not in kept:
            drop_index(connection, before.physical_index(index), schema=where)
    for index in after.indexes:
        create_index(connection, after, index, schema=where)


def revert(connection: apsw.Connection, before: Table | None, after: Table, *, schema: str) -> None:
    """Takes back what migrate() did, or did in part: nothing that only `after` has is left."""
    if before is None or before.physical != after.physical:
        drop_table(connection, after.physical, schema=schema)
        return
    kept = {before.physical_index(index) for index in before.indexes}
    for index in after.indexes:
        if after.physical_index(index) not in kept:
            drop_index(connection, after.physical_index(index), schema=schema)
    numbers = set(before.by_number)
    existing = set(column_names(connection, after.physical, schema=schema))
    for column in after.columns:
        if column.number not in numbers and column.physical in existing:
            connection.execute(f"ALTER TABLE {schema}.{after.physical} DROP COLUMN {column.physical}")
    for index in before.indexes:  # of a DROP INDEX that went no further
        create_index(connection, before, index, schema=schema)


def refuse_missing_values(connection: apsw.Connection, before: Table, after: Table, *, schema: str) -> None:
    """A NOT NULL column has no value for the rows that exist, so it needs an empty table."""
    added = [c for c in after.columns if c.number not in before.by_number and not c.nullable]
    if not added:
        return
    if connection.execute(f"SELECT 1 FROM {schema}.{before.physical} LIMIT 1").get is not None:
        # Counted as Picodata's format does, where bucket_id is a field like any other.
        position = after.columns.index(added[0]) + 1 + before.is_sharded
        raise NotNullViolation(
            f"Tuple field {position} ({added[0].name}) required by space format is missing",
            detail=f"Table {before.name} has rows, and column {added[0].name} is NOT NULL without a default.",
        )


def table_exists(connection: apsw.Connection, physical: str, *, schema: str) -> bool:
    found = connection.execute(
        f"SELECT 1 FROM {schema}.sqlite_schema WHERE type = 'table' AND name = ?", (physical,)
    ).get
    return found is not None


def physical_tables(connection: apsw.Connection, *, schema: str) -> list[str]:
    """All `t<id>_<generation>` of a file: what a starting instance compares with its catalog."""
    rows = connection.execute(
        f"SELECT name FROM {schema}.sqlite_schema WHERE type = 'table' AND name GLOB 't[0-9]*_[0-9]*'"
        " ORDER BY name"
    ).fetchall()
    return [cast(str, row[0]) for row in rows]


def column_names(connection: apsw.Connection, physical: str, *, schema: str) -> list[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?, ?)", (physical, schema)).fetchall()
    return [cast(str, row[0]) for row in rows]


def _key(table: Table, parts: tuple[KeyPart, ...]) -> str:
    return ", ".join(
        f"{table.by_number[part.column].physical}{' DESC' if part.descending else ''}" for part in parts
    )
