"""Physical tables and indexes: what a table of the catalog is in SQLite.

Here: creating, changing and dropping them, each time idempotent by the physical name.
Not here: when a schema change happens (whoever calls), clearing a large table bit by bit (dropping.py).

`t<id>_<generation>` is STRICT, its columns are `c<number>`, and sharded tables begin with `bucket_id`. A key of
one INT column is SQLite's rowid; every other key clusters the table by itself (WITHOUT ROWID). Renaming is
the catalog's business only. What is added to a table stands behind what was there: rows in the log keep
their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import apsw

from shoal.catalog.schema import BUCKET_COLUMN, Column, Index, KeyPart, Table
from shoal.errors import DataCorrupted, NotNullViolation
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


def conform(connection: apsw.Connection, table: Table, *, schema: str | None = None) -> None:
    """Makes the physical table what the catalog says: new, or out of any other form of the same generation.

    What a change that was aborted has left goes, its columns too: nobody could write into them. Of another
    generation nothing is touched: it is wanted until a change is certain.
    """
    where = schema or table.file
    if not table_exists(connection, table.physical, schema=where):
        create_table(connection, table, schema=where)
        return
    wanted = {
        table.physical_index(index): (index.unique, _key(table, index.parts)) for index in table.indexes
    }
    for name, definition in _indexes(connection, table.physical, schema=where):
        if wanted.get(name) != definition:
            drop_index(connection, name, schema=where)
    types = {column.physical: column.type.sqlite_type for column in physical_columns(table)}
    there = set()
    for name, sqlite_type in _columns(connection, table.physical, schema=where):
        if types.get(name) == sqlite_type:
            there.add(name)
        else:
            _drop_column(connection, table, name, schema=where)
    for column in physical_columns(table):
        if column.physical not in there:
            add_column(connection, table, column, schema=where)
    for index in table.indexes:
        create_index(connection, table, index, schema=where)


def _drop_column(connection: apsw.Connection, table: Table, name: str, *, schema: str) -> None:
    physical = f"{schema}.{table.physical}"
    if connection.execute(f"SELECT 1 FROM {physical} WHERE {name} IS NOT NULL LIMIT 1").get is not None:
        raise DataCorrupted(f"{table.physical} has values in {name}, a column that the catalog doesn't know")
    connection.execute(f"ALTER TABLE {physical} DROP COLUMN {name}")


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
    return [name for name, _ in _columns(connection, physical, schema=schema)]


def _columns(connection: apsw.Connection, physical: str, *, schema: str) -> list[tuple[str, str]]:
    """Names and SQLite's types."""
    rows = connection.execute("SELECT name, type FROM pragma_table_info(?, ?)", (physical, schema)).fetchall()
    return cast("list[tuple[str, str]]", rows)


def _indexes(
    connection: apsw.Connection, physical: str, *, schema: str
) -> Iterator[tuple[str, tuple[bool, str]]]:
    """Names and definitions; without SQLite's own, of primary keys."""
    rows = connection.execute(
        "SELECT name, \"unique\" FROM pragma_index_list(?, ?) WHERE origin = 'c'", (physical, schema)
    ).fetchall()
    for name, unique in cast("list[tuple[str, int]]", rows):
        parts = connection.execute(
            "SELECT name || iif(\"desc\", ' DESC', '') FROM pragma_index_xinfo(?, ?) WHERE \"key\" ORDER BY seqno",
            (name, schema),
        ).fetchall()
        yield name, (bool(unique), ", ".join(cast(str, part) for (part,) in parts))


def _key(table: Table, parts: tuple[KeyPart, ...]) -> str:
    return ", ".join(
        f"{table.by_number[part.column].physical}{' DESC' if part.descending else ''}" for part in parts
    )
