"""Whether catalog.db and the physical tables agree, read from the files of an instance."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

from shoal.catalog.apply import Catalog, catalog_of_rows
from shoal.catalog.schema import Table
from shoal.catalog.system import SYSTEM_TABLES
from shoal.storage.tables import column_names, physical_columns, physical_tables


def read_catalog(directory: Path) -> Catalog:
    connection = _open(directory / "catalog.db")
    try:
        with connection:
            return catalog_of_rows(
                {
                    table.id: connection.execute(
                        f"SELECT {', '.join(c.physical for c in table.columns)} FROM {table.physical}"
                    ).fetchall()
                    for table in SYSTEM_TABLES
                }
            )
    finally:
        connection.close()


def user_tables(directory: Path) -> dict[str, Table]:
    return {name: t for name, t in read_catalog(directory).schema.tables.items() if not t.system}


def check_catalog_against_tables(directory: Path) -> None:
    """Nothing is pending; and the physical tables, their columns and their indexes are what it says."""
    catalog = read_catalog(directory)
    assert not catalog.pending, f"still pending: {catalog.pending}"
    tables = catalog.schema.tables.values()
    for path, known in (
        (directory / "data.db", [table for table in tables if table.file == "main"]),
        (directory / "catalog.db", [table for table in tables if table.file == "catalog"]),
        (directory / "unlogged.db", [table for table in tables if table.file == "unlogged"]),
    ):
        assert all(table.operable for table in known)
        connection = _open(path)
        try:
            with connection:
                names = physical_tables(connection, schema="main")
                assert sorted(names) == sorted(table.physical for table in known), path
                for table in known:
                    columns = column_names(connection, table.physical, schema="main")
                    assert columns == [column.physical for column in physical_columns(table)], table.name
                    indexes = connection.execute(
                        "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?"
                        " AND name NOT GLOB 'sqlite_autoindex*' ORDER BY name",
                        (table.physical,),
                    ).fetchall()
                    assert [name for (name,) in indexes] == sorted(
                        table.physical_index(index) for index in table.indexes
                    ), table.name
        finally:
            connection.close()


def wait_until_they_agree(directory: Path, seconds: float) -> None:
    """A started instance goes on with what was prepared, and clears what was dropped, beside its work."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check_catalog_against_tables(directory)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def names_in_data_db(directory: Path) -> list[str]:
    """The physical tables of users, their columns as table.column, and their indexes."""
    connection = _open(directory / "data.db")
    try:
        with connection:
            found: list[str] = []
            for table in physical_tables(connection, schema="main"):
                found.append(table)
                found += [f"{table}.{column}" for column in column_names(connection, table, schema="main")]
            indexes = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'index' AND name GLOB 't[0-9]*'"
            ).fetchall()
            return found + [name for (name,) in indexes]
    finally:
        connection.close()


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    return connection
