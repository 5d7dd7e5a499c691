"""All that a catalog.db holds, to be compared.

Here: dump(), and what goes with entries of tests.
"""

from __future__ import annotations

from typing import cast

from shoal.catalog import entries
from shoal.catalog.entries import Record, encode_record
from shoal.catalog.system import SYSTEM_TABLES
from shoal.raft.messages import Entry, EntryKind, Index, Term
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.catalog_snapshot import global_tables

Dump = tuple[object, dict[str, list[tuple[object, ...]]], list[str]]


def dump(db: CatalogDb) -> Dump:
    """The catalog, the rows of all tables, the secondary indexes as SQL."""
    tables = [*SYSTEM_TABLES, *global_tables(db.catalog)]
    rows = {table.physical: cast("list[tuple[object, ...]]", db.rows(table)) for table in tables}
    found = cast(
        "list[tuple[str, str]]", db.read("SELECT tbl_name, sql FROM sqlite_schema WHERE type = 'index'")
    )
    return db.catalog, rows, sorted(sql for table, sql in found if sql is not None and table in rows)


def normal(index: int, entry: entries.Entry, term: int = 1) -> Entry:
    data = encode_record(Record(1_700_000_000_000_000 + index, (7, index), entry))
    return Entry(Index(index), Term(term), EntryKind.NORMAL, data)
