"""Rows of system and global tables in catalog.db, by their keys.

Here: CatalogRows: put, delete and read, with texts that are made once per table.
Not here: which rows to write (catalog/apply.py, catalog_snapshot.py), physical tables (tables.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import apsw

from shoal.catalog.entries import RowChange
from shoal.catalog.schema import Schema, Table, TableId
from shoal.catalog.system import Row


@dataclass(frozen=True, slots=True)
class Texts:
    """The statements of one table, as one version of the catalog has it."""

    table: Table
    put: str
    delete: str
    find: str
    scan: str  # in the order of the primary key
    key_positions: tuple[int, ...]  # of the key's columns in a row

    def key(self, row: Row) -> Row:
        return tuple(row[at] for at in self.key_positions)


def texts_of(table: Table) -> Texts:
    name, columns = table.physical, [column.physical for column in table.columns]
    key = [table.by_number[part.column].physical for part in table.primary_key]
    every, marks = ", ".join(columns), ", ".join("?" * len(columns))
    equal = " AND ".join(f"{column} = ?" for column in key)
    order = ", ".join(
        f"{table.by_number[part.column].physical}{' DESC' if part.descending else ''}"
        for part in table.primary_key
    )
    others = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
    return Texts(
        table,
        # Not INSERT OR REPLACE: a clash in another unique index must not delete its row.
        put=f"INSERT INTO {name} ({every}) VALUES ({marks})"
        f" ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {others}' if others else 'NOTHING'}",
        delete=f"DELETE FROM {name} WHERE {equal}",
        find=f"SELECT {every} FROM {name} WHERE {equal}",
        scan=f"SELECT {every} FROM {name} ORDER BY {order}",
        key_positions=tuple(columns.index(column) for column in key),
    )


class CatalogRows:
    """On the one connection that writes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._execute = connection.execute
        self._texts: dict[TableId, Texts] = {}

    def texts(self, table: Table) -> Texts:
        found = self._texts.get(table.id)
        if found is None or found.table is not table:
            found = self._texts[table.id] = texts_of(table)
        return found

    def apply(self, schema: Schema, changes: Iterable[RowChange]) -> None:
        by_id, texts, execute = schema.tables_by_id, self._texts, self._execute
        for change in changes:
            table = by_id[TableId(change.table_id)]
            found = texts.get(table.id)
            if found is None or found.table is not table:
                found = self.texts(table)
            if change.row is None:
                execute(found.delete, change.key)
            else:
                execute(found.put, change.row)

    def find(self, table: Table, key: Row) -> Row | None:
        return cast("Row | None", self._execute(self.texts(table).find, key).fetchone())

    def scan(self, table: Table) -> Iterator[Row]:
        return cast("Iterator[Row]", self._execute(self.texts(table).scan))
