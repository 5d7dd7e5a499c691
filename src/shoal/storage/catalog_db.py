"""catalog.db: the cluster's log, how far it is applied, and what it added up to.

Here: CatalogDb. Appending an entry and applying it is one transaction: the entry, the rows of system and
global tables that it changes, and the applied index become durable together or not at all.
Not here: what an entry does (catalog/apply.py), agreement between instances (raft/), the thread that
this runs on (node/catalog_log.py).

A DML statement on a global table runs twice: first dry, in a transaction that is rolled back, to learn
which rows it would change; then those rows, not the statement, are the entry. So every instance writes
the same rows, whatever the statement looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

import apsw

from shoal.catalog.apply import Applied, Catalog, apply, catalog_of_rows
from shoal.catalog.entries import ChangeAuth, Entry, RowChange, encode
from shoal.catalog.schema import Table, TableId
from shoal.catalog.system import PICO_USER, SYSTEM_TABLES, Row, json_text
from shoal.errors import Fault, ShoalError
from shoal.storage import tables
from shoal.storage.translate import translate
from shoal.types.values import Stored

_LOG: Final = """
CREATE TABLE IF NOT EXISTS _raft_log (
    "index" INTEGER PRIMARY KEY, term INTEGER NOT NULL, time INTEGER NOT NULL, entry BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS _raft_state (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
"""

_PHYSICAL: Final = re.compile(r"t(\d+)_\d+")


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a DML statement on a global table would change, and what it would answer."""

    changes: tuple[RowChange, ...]
    rows: list[Row]  # of RETURNING
    count: int


class CatalogDb:
    """The one connection that writes catalog.db. Not for several threads at once."""

    def __init__(self, connection: apsw.Connection, term: int = 1) -> None:
        self._connection = connection
        self._term = term
        self._captured: list[RowChange] = []
        try:
            self.catalog = self._load()
            self.last_index = self._state("applied")
        except apsw.Error as error:
            raise translate(error, files="catalog.db") from error

    # --- start -----------------------------------------------------------------------------------

    def _load(self) -> Catalog:
        connection = self._connection
        with connection:
            connection.execute(_LOG)
            for table in SYSTEM_TABLES:
                tables.create_table(connection, table, schema="main")
        return catalog_of_rows({table.id: self.rows(table) for table in SYSTEM_TABLES})

    def rows(self, table: Table) -> list[Row]:
        columns = ", ".join(column.physical for column in table.columns)
        return self.read(f"SELECT {columns} FROM {table.physical}")

    def _state(self, key: str) -> int:
        found = self._connection.execute("SELECT value FROM _raft_state WHERE key = ?", (key,)).get
        return cast(int, found) if found is not None else 0

    # --- append and apply ------------------------------------------------------------------------

    def append(self, entry: Entry, time: int) -> tuple[int, Applied]:
        """Appends, applies, commits. What is raised has changed nothing, unless it is a Fault."""
        connection = self._connection
        index = self.last_index + 1
        applied = apply(self.catalog, entry, index, self._term)
        if isinstance(entry, ChangeAuth):
            applied = replace(applied, changes=(self._changed_auth(entry),))
        with self._transaction():
            connection.execute(
                "INSERT INTO _raft_log VALUES (?, ?, ?, ?)", (index, self._term, time, encode(entry))
            )
            self._write(applied)
            connection.execute("INSERT OR REPLACE INTO _raft_state VALUES ('applied', ?)", (index,))
        self.catalog, self.last_index = applied.catalog, index
        return index, applied

    @contextmanager
    def _transaction(self, *, keep: bool = True) -> Iterator[None]:
        """All of it or nothing; with keep=False nothing in any case."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                if keep:
                    self._commit()
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise self._translated(error) from error

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.IOError as error:
            # Of a failed fsync nobody knows what the disk holds, and of a failed write in the middle of a commit
            # neither. This replica would go on without an entry that a restart may find.
            raise Fault(
                f"the commit of an entry failed on catalog.db: {self._translated(error).message}"
            ) from error

    def _translated(self, error: apsw.Error) -> ShoalError:
        return translate(error, self._naming, files="catalog.db")

    def _naming(self, table_id: int) -> Table | None:
        return self.catalog.schema.tables_by_id.get(TableId(table_id))

    def _write(self, applied: Applied) -> None:
        schema = self.catalog.schema
        for change in applied.changes:
            self._put(schema.tables_by_id[TableId(change.table_id)], change)
        if applied.global_table is not None:
            # The old physical table stays: statements that were planned before may still have their turn.
            before, after = applied.global_table
            tables.migrate(self._connection, before, after, schema="main")

    def drop_unnamed(self) -> None:
        """Physical tables that the catalog doesn't know any more."""
        known = {table.physical for table in self.catalog.schema.tables.values()}
        with self._transaction():
            for physical in tables.physical_tables(self._connection, schema="main"):
                if physical not in known:
                    tables.drop_table(self._connection, physical, schema="main")

    def _put(self, table: Table, change: RowChange) -> None:
        key = " AND ".join(f"{table.by_number[part.column].physical} = ?" for part in table.primary_key)
        self._connection.execute(f"DELETE FROM {table.physical} WHERE {key}", change.key)
        if change.row is not None:
            # Not INSERT OR REPLACE: a clash in another unique index must not delete its row.
            marks = ", ".join("?" * len(change.row))
            columns = ", ".join(column.physical for column in table.columns)
            self._connection.execute(f"INSERT INTO {table.physical} ({columns}) VALUES ({marks})", change.row)

    def _changed_auth(self, entry: ChangeAuth) -> RowChange:
        for row in self.rows(PICO_USER):
            if row[0] == entry.user_id:
                auth = json_text([entry.method, entry.secret])
                return RowChange(PICO_USER.id, (entry.user_id,), (*row[:3], auth, *row[4:]))
        raise Fault(f"user {entry.user_id} has no row in _pico_user")

    # --- DML on global tables --------------------------------------------------------------------

    def dry_run(
        self, sql: str, bindings: Sequence[Stored], read: Callable[[apsw.Cursor], list[Row]] = list
    ) -> DryRun:
        """Runs it, notes which rows it changes, and takes everything back."""
        connection = self._connection
        self._captured = []
        connection.preupdate_hook(self._capture, id="dry run")
        try:
            with self._transaction(keep=False):
                rows = read(connection.execute(sql, bindings))
                count = connection.changes()
        finally:
            connection.preupdate_hook(None, id="dry run")
        return DryRun(tuple(self._captured), rows, count)

    def _capture(self, update: apsw.PreUpdate) -> None:
        found = _PHYSICAL.fullmatch(update.table_name)
        assert found is not None, update.table_name
        table = self.catalog.schema.tables_by_id[TableId(int(found[1]))]
        old = cast("tuple[Stored, ...] | None", update.old)
        new = cast("tuple[Stored, ...] | None", update.new)
        positions = [table.columns.index(table.by_number[part.column]) for part in table.primary_key]
        old_key = tuple(old[at] for at in positions) if old is not None else None
        new_key = tuple(new[at] for at in positions) if new is not None else None
        if old_key is not None and old_key != new_key:
            self._captured.append(RowChange(table.id, old_key, None))
        if new_key is not None:
            self._captured.append(RowChange(table.id, new_key, new))

    def check_migration(self, before: Table | None, after: Table) -> None:
        """Raises what would make the change of a global table fail: its apply must not find out."""
        with self._transaction(keep=False):
            if before is not None:
                tables.refuse_missing_values(self._connection, before, after, schema="main")
            tables.migrate(self._connection, before, after, schema="main")

    def read(self, sql: str, bindings: Sequence[Stored] = ()) -> list[Row]:
        try:
            return cast("list[Row]", self._connection.execute(sql, bindings).fetchall())
        except apsw.Error as error:
            raise self._translated(error) from error

    def close(self) -> None:
        self._connection.close()
