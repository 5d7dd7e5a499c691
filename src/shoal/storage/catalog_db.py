"""catalog.db: the cluster's log, how far it is applied, and what it added up to.

Here: CatalogDb, SQLite's raft.store.LogStore. One save is one transaction: new entries, the hard state, and what
the committed entries change in system and global tables become durable together or not at all. So each
entry is applied exactly once, whenever the power fails.
Not here: the rows of the log (raft_log.py) and of tables (catalog_rows.py), what an entry does (catalog/apply.py),
snapshots (catalog_snapshot.py, snapshot_files.py), agreement between instances (raft/), the thread that this
runs on (node/catalog_log.py).

A DML statement on a global table runs twice: first dry, in a transaction that is rolled back, to learn
which rows it would change; then those rows, not the statement, are the entry. So every instance writes
the same rows, whatever the statement looked at.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

import apsw
import msgspec

from shoal.catalog import entries
from shoal.catalog.apply import Applied, Catalog, apply, catalog_of_rows
from shoal.catalog.entries import Nop, Record, RowChange
from shoal.catalog.schema import Table, TableId
from shoal.catalog.system import SYSTEM_TABLES, Row
from shoal.errors import DataCorrupted, Fault, ShoalError
from shoal.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Index,
    MembershipChange,
    SnapshotMark,
    Term,
    decode_change,
)
from shoal.raft.store import Save
from shoal.raft.store import Stored as StoredState
from shoal.storage import tables
from shoal.storage.catalog_rows import CatalogRows
from shoal.storage.catalog_snapshot import replace_state, state_frames
from shoal.storage.raft_log import MemberIdentity, RaftLog, applied_mark
from shoal.storage.snapshot_files import CHUNK_BYTES, SnapshotFiles
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog, open_catalog_reader
from shoal.storage.translate import is_sync_failure, translate
from shoal.types.values import Stored

_logger: Final = logging.getLogger(__name__)

_CHECKPOINT_PAGES: Final = 1000  # in the write-ahead log: it is copied back within a few milliseconds

_PHYSICAL: Final = re.compile(r"t(\d+)_\d+")

# What may go better next time. Anything else that keeps an entry from being applied will do so again, and only here.
_PASSING: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.NoMemError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.InterruptError,
)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a DML statement on a global table would change, and what it would answer."""

    changes: tuple[RowChange, ...]
    rows: list[Row]  # of RETURNING
    count: int


class AppliedEntry(msgspec.Struct, frozen=True):
    """Neither a record nor a change: a new leader's first entry."""

    index: Index
    term: Term
    record: Record | None
    change: MembershipChange | None
    applied: Applied


@dataclass(frozen=True, slots=True)
class Installed:
    """What a snapshot has made of the catalog: `changes` lead the rows of the system tables from one to the other.
    Global tables may have any other rows now."""

    index: Index
    before: Catalog
    after: Catalog
    changes: tuple[RowChange, ...]


class CatalogDb:
    """Has the one connection that writes catalog.db. Not for several threads at once, but for make_snapshot() and
    read_chunk(): any thread may call them."""

    def __init__(self, files: SqliteFiles, settings: Settings, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._files, self._settings = files, settings
        self._connection = open_catalog(files, settings)
        self._captured: list[RowChange] = []
        self._wal_pages = 0
        self._checkpoint_pages = min(_CHECKPOINT_PAGES, settings.checkpoint_pages)
        self._next_checkpoint = self._checkpoint_pages
        try:
            # SQLite's own checkpoints happen inside COMMIT, whose error must mean that of the commit.
            self._connection.set_wal_hook(self._on_commit)
            self._log = RaftLog(self._connection)
            self._rows = CatalogRows(self._connection)
            self._snapshots = SnapshotFiles(files.directory, chunk_bytes)
            self.catalog = self._load()
        except apsw.Error as error:
            close(self._connection)
            raise translate(error, files="catalog.db") from error
        except BaseException:
            close(self._connection)
            raise

    # --- start -----------------------------------------------------------------------------------

    def _load(self) -> Catalog:
        connection = self._connection
        with connection:
            for table in SYSTEM_TABLES:
                tables.create_table(connection, table, schema="main")
        return catalog_of_rows({table.id: self.rows(table) for table in SYSTEM_TABLES})

    def load(self) -> StoredState:
        try:
            return self._log.load()
        except apsw.Error as error:
            raise self._translated(error) from error

    def identity(self) -> MemberIdentity | None:
        """None in a new directory."""
        return self._log.identity()

    def save_identity(self, identity: MemberIdentity) -> None:
        with self._transaction():
            self._log.put_identity(identity)

    def next_generation(self) -> int:
        """Never the same twice in this directory."""
        with self._transaction():
            return self._log.next_generation()

    def begin(self, identity: MemberIdentity, save: Save) -> None:
        """The first save of a cluster, and whose directory this is from now on, at once."""
        self._save(save, identity)

    def rows(self, table: Table) -> list[Row]:
        try:
            return list(self._rows.scan(table))
        except apsw.Error as error:
            raise self._translated(error) from error

    # --- the log ---------------------------------------------------------------------------------

    @property
    def applied(self) -> Index:
        return self._log.applied

    @property
    def applied_term(self) -> Term:
        return self._log.applied_term

    @property
    def last_index(self) -> Index:
        return self._log.last_index

    @property
    def log_count(self) -> int:
        return self._log.count

    @property
    def log_bytes(self) -> int:
        return self._log.bytes

    def save(self, save: Save) -> tuple[AppliedEntry, ...]:
        """What is raised has changed nothing and may be tried again, unless it is a Fault."""
        return self._save(save, None)

    def _save(self, save: Save, identity: MemberIdentity | None) -> tuple[AppliedEntry, ...]:
        log = self._log
        applied: tuple[AppliedEntry, ...] = ()
        try:
            with self._transaction():
                if save.hard_state is not None:
                    log.put_hard_state(save.hard_state)
                if save.entries:
                    log.append(save.entries)
                if save.committed:
                    applied = self._apply(save.committed)
                    log.put_applied(save.committed[-1])
                if save.membership is not None:
                    log.put_membership(save.membership)
                if identity is not None:
                    log.put_identity(identity)
        except DataCorrupted as error:
            raise Fault(error.message) from error
        if applied:
            self.catalog = applied[-1].applied.catalog
        return applied

    def _apply(self, committed: Sequence[Entry]) -> tuple[AppliedEntry, ...]:
        assert committed[0].index == self.applied + 1, (self.applied, committed[0])
        done: list[AppliedEntry] = []
        catalog = self.catalog
        for entry in committed:
            try:
                made = self._apply_one(catalog, entry)
            except _PASSING:
                raise
            except Exception as error:
                # The others have applied it, or will: this replica is not like them any more.
                said = self._translated(error).message if isinstance(error, apsw.Error) else repr(error)
                raise Fault(f"entry {entry.index} of term {entry.term} cannot be applied: {said}") from error
            done.append(made)
            catalog = made.applied.catalog
        return tuple(done)

    def _apply_one(self, catalog: Catalog, entry: Entry) -> AppliedEntry:
        index, term = entry.index, entry.term
        if entry.kind is EntryKind.MEMBERSHIP:
            return AppliedEntry(index, term, None, decode_change(entry.data), Applied(catalog, ()))
        record = entries.decode_record(entry.data) if entry.data else None
        asked = record.entry if record is not None else Nop()
        applied = apply(catalog, asked, index, term)
        self._rows.apply(catalog.schema, applied.changes)
        if applied.global_table is not None:
            # The old physical table stays: statements that were planned before may still have their turn.
            tables.conform(self._connection, applied.global_table, schema="main")
        return AppliedEntry(index, term, record, None, applied)

    def compact(self, index: Index) -> None:
        """Forgets the entries up to this one."""
        if index == self._log.mark.index:
            return
        with self._transaction():
            self._log.compact(index)

    # --- snapshots -------------------------------------------------------------------------------

    def make_snapshot(self, chunk_bytes: int | None = None) -> SnapshotMark:
        """Keeps the state as of `applied`, as this moment's read transaction sees it; the writer goes on meanwhile."""
        if chunk_bytes is not None:
            self._snapshots.chunk_bytes = chunk_bytes
        connection = open_catalog_reader(self._files, self._settings)
        try:
            connection.execute("BEGIN")
            mark = applied_mark(connection)
            self._snapshots.write(mark, state_frames(connection, mark))
        except apsw.Error as error:
            raise translate(error, files="catalog.db") from error
        finally:
            close(connection)
        return mark

    def limit_chunks(self, chunk_bytes: int) -> None:
        """Of the next snapshots."""
        self._snapshots.chunk_bytes = chunk_bytes

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        return self._snapshots.read_chunk(mark, offset)

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        self._snapshots.keep_chunk(mark, offset, data)

    def install(self, mark: SnapshotMark, hard_state: HardState) -> Installed:
        """What was kept takes the place of everything. Physical tables that the catalog names no more stay until
        drop_unnamed(): statements that were planned before may still have their turn."""
        assert mark.index >= self.applied, (mark, self.applied)
        before = self.catalog
        with self._transaction():
            after, changes = replace_state(
                self._connection, before, mark, lambda: self._snapshots.received(mark)
            )
            self._log.start_after(mark)
            self._log.put_hard_state(hard_state)
        self.catalog = after
        self._snapshots.forget_received()
        return Installed(mark.index, before, after, changes)

    # --- transactions ----------------------------------------------------------------------------

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
                    self._log.keep()
            except BaseException:
                self._log.forget()
                raise
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except apsw.Error as error:
            raise self._translated(error) from error
        if self._wal_pages >= self._next_checkpoint:
            self._checkpoint()

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.IOError as error:
            # Of a failed fsync nobody knows what the disk holds, and of a failed write in the middle of a commit
            # neither. This replica would go on without an entry that a restart may find.
            raise Fault(f"a commit failed on catalog.db: {self._translated(error).message}") from error

    def _on_commit(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        if pages < self._wal_pages:
            self._next_checkpoint = self._checkpoint_pages  # the log has started anew
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Of what is committed. Where it can't be done the log grows, and it is tried again later."""
        self._next_checkpoint = self._wal_pages + self._checkpoint_pages
        try:
            self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            said = self._translated(error).message
            if is_sync_failure(error):
                raise Fault(f"a checkpoint failed on catalog.db: {said}") from error
            _logger.warning("a checkpoint of catalog.db failed, and will be tried again: %s", said)

    def _translated(self, error: apsw.Error) -> ShoalError:
        return translate(error, self._naming, files="catalog.db")

    def _naming(self, table_id: int) -> Table | None:
        return self.catalog.schema.tables_by_id.get(TableId(table_id))

    def drop_unnamed(self) -> None:
        """Physical tables that the catalog doesn't know any more."""
        known = {table.physical for table in self.catalog.schema.tables.values()}
        with self._transaction():
            for physical in tables.physical_tables(self._connection, schema="main"):
                if physical not in known:
                    tables.drop_table(self._connection, physical, schema="main")

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

    def set_progress_handler(self, callable: Callable[[], bool] | None, nsteps: int = 100) -> None:
        """For whoever counts the steps of a dry run."""
        self._connection.set_progress_handler(callable, nsteps)

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
            tables.conform(self._connection, after, schema="main")

    def read(self, sql: str, bindings: Sequence[Stored] = ()) -> list[Row]:
        try:
            return cast("list[Row]", self._connection.execute(sql, bindings).fetchall())
        except apsw.Error as error:
            raise self._translated(error) from error

    def close(self) -> None:
        close(self._connection)
