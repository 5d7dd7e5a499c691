"""Whether the files of all instances hold the same, and what their catalog says.

Here: same_catalogs(), own_tables(), rows_of().
Not here: whether the catalog is what the clients were told (history.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from shoal.catalog.apply import Catalog, catalog_of_rows
from shoal.catalog.schema import Table
from shoal.catalog.system import SYSTEM_TABLES
from shoal.node.instance import Node
from shoal.storage.catalog_snapshot import global_tables
from shoal.storage.tables import column_names, physical_columns, physical_tables
from tests.simulation.history import Disagreement

Dump = dict[str, Any]


def same_catalogs(directories: Iterable[Path]) -> None:
    dumps = {directory.name: _dump(directory / "catalog.db") for directory in directories}
    (first, wanted), *others = dumps.items()
    for name, found in others:
        for key in sorted({*wanted, *found}):
            if wanted.get(key) != found.get(key):
                raise Disagreement(
                    f"{key} of {first} and {name} differ:\n  {wanted.get(key)}\n  {found.get(key)}"
                )


def _dump(path: Path) -> Dump:
    connection = open_file(path)
    try:
        with connection:
            rows = {table.physical: rows_of(connection, table) for table in SYSTEM_TABLES}
            catalog = catalog_of_rows({table.id: rows[table.physical] for table in SYSTEM_TABLES})
            for table in global_tables(catalog):
                rows[table.physical] = rows_of(connection, table)
                _check_table(connection, table, path)
            names = set(physical_tables(connection, schema="main"))
            if names != set(rows):
                raise Disagreement(f"{path} has other tables than its catalog says: {names ^ set(rows)}")
            return {**rows, "catalog": catalog}
    finally:
        connection.close()


def open_file(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5_000)
    return connection


def rows_of(connection: apsw.Connection, table: Table) -> list[tuple[Any, ...]]:
    columns = ", ".join(column.physical for column in table.columns)
    key = ", ".join(table.by_number[part.column].physical for part in table.primary_key)
    return connection.execute(f"SELECT {columns} FROM {table.physical} ORDER BY {key}").fetchall()


def _check_table(connection: apsw.Connection, table: Table, path: Path) -> None:
    columns = column_names(connection, table.physical, schema="main")
    if columns != [column.physical for column in physical_columns(table)]:
        raise Disagreement(f"{path}: {table.name} has the columns {columns}, which its catalog doesn't say")
    found = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?"
        " AND name NOT GLOB 'sqlite_autoindex*' ORDER BY name",
        (table.physical,),
    ).fetchall()
    indexes = sorted(name for (name,) in found)
    if indexes != sorted(table.physical_index(index) for index in table.indexes):
        raise Disagreement(f"{path}: {table.name} has the indexes {indexes}, which its catalog doesn't say")


def own_tables(node: Node, directory: Path) -> None:
    """The sharded tables of an instance: all of a master's, and nothing besides."""
    catalog: Catalog = node.catalog
    sharded = [table for table in catalog.schema.tables.values() if table.is_sharded]
    mine = [table for table in sharded if node.cluster.is_master(table.distribution.tier)]  # type: ignore[union-attr]
    for file, path in (("main", directory / "data.db"), ("unlogged", directory / "unlogged.db")):
        connection = open_file(path)
        try:
            with connection:
                names = set(physical_tables(connection, schema="main"))
                known = {table.physical: table for table in sharded if table.file == file}
                if names - set(known):
                    raise Disagreement(f"{path} has tables that no catalog names: {names - set(known)}")
                wanted = {table.physical for table in mine if table.file == file}
                if wanted - names:
                    raise Disagreement(f"{path} lacks tables of its catalog: {wanted - names}")
                for name in sorted(wanted):
                    _check_table(connection, known[name], path)
                left = connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'gone_*'"
                ).fetchall()
                if left:
                    raise Disagreement(f"{path} still has what was put aside: {left}")
        finally:
            connection.close()
