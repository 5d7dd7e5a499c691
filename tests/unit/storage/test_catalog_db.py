"""catalog.db as a Raft store: it conforms, and its snapshots carry whatever a catalog can be."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shoal.catalog import entries
from shoal.catalog.apply import Catalog
from shoal.catalog.entries import (
    Acl,
    ColumnSpec,
    CreateIndex,
    CreateRole,
    CreateTable,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Dml,
    DropTable,
    Grant,
    Granted,
    PartSpec,
    Record,
    RenameUser,
    RowChange,
    SchemaChange,
    encode_record,
)
from shoal.catalog.rights import Held, User, grant_change, user_change
from shoal.catalog.system import PICO_PROPERTY, PICO_TABLE, PICO_USER
from shoal.errors import DataCorrupted, Fault, IoError, ObjectNotInPrerequisiteState, ShoalError
from shoal.raft.messages import Entry, EntryKind, HardState, Index, RaftId, SnapshotMark, Term
from shoal.raft.store import Save
from shoal.storage.catalog_db import CatalogDb, Installed
from shoal.storage.checksum import PAGE_BYTES
from shoal.storage.raft_log import MemberIdentity
from shoal.storage.sqlite import Settings, SqliteFiles
from tests.unit.raft.store_conformance import Make, StoreConformance
from tests.unit.storage.catalog_dump import dump, normal
from tests.unit.storage.log_of_one import append

CHUNK_BYTES = 1000


@dataclass
class CatalogMachine:
    directory: Path
    store: CatalogDb = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir()
        self.store = CatalogDb(SqliteFiles(self.directory), Settings(), chunk_bytes=CHUNK_BYTES)

    def data(self, number: int) -> bytes:
        row = (f"key {number % 50}", f'"{number:0100}"')
        put = Dml((RowChange(PICO_PROPERTY.id, row[:1], row),), 1)
        return encode_record(Record(number, (1, number), put))

    def state(self) -> object:
        return dump(self.store)

    def crash(self) -> None:
        # What a killed process leaves: closing would copy the log back.
        self.lives += 1
        left = self.directory.with_name(f"{self.directory.name}-{self.lives}")
        shutil.copytree(self.directory, left)
        self.store.close()
        self.store = CatalogDb(SqliteFiles(left), Settings(), chunk_bytes=CHUNK_BYTES)
        self.directory = left


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[CatalogMachine] = []

    def one() -> CatalogMachine:
        made.append(CatalogMachine(tmp_path / f"machine {len(made)}"))
        return made[-1]

    yield one
    for machine in made:
        machine.store.close()


class TestConformance(StoreConformance):
    @pytest.fixture
    def make(self, make: Make) -> Make:
        return make


# --- a cluster's life, in entries ------------------------------------------------------------------


class Life:
    """Appends entries to several stores at once."""

    def __init__(self, *stores: CatalogDb) -> None:
        self.stores = stores
        self.index = stores[0].last_index

    def append(self, entry: entries.Entry) -> int:
        self.index = Index(self.index + 1)
        made = normal(self.index, entry)
        for store in self.stores:
            store.save(Save(HardState(Term(1), RaftId(1), self.index), (made,), (made,)))
        return self.index

    def change(self, change: SchemaChange) -> int:
        version = self.append(DdlPrepare(change, 1))
        self.append(DdlCommit(version))
        return version

    def create(self, table_id: int, name: str, *, sharded: bool = False) -> None:
        self.change(create_table(table_id, name, sharded=sharded))

    def put(self, table_id: int, *rows: tuple[object, ...]) -> None:
        self.append(Dml(tuple(RowChange(table_id, row[:1], row) for row in rows), 1))

    def delete(self, table_id: int, *keys: object) -> None:
        self.append(Dml(tuple(RowChange(table_id, (key,), None) for key in keys), 1))


def create_table(table_id: int, name: str, *, sharded: bool = False) -> CreateTable:
    columns = (
        ColumnSpec("id", "int", False),
        ColumnSpec("name", "text", False),
        ColumnSpec("weight", "double", True),
    )
    return CreateTable(
        table_id, name, columns, (PartSpec("id"),), ("id",) if sharded else None, True,
        "default" if sharded else None, "memtx", False, 1,
    )  # fmt: skip


def index(table_id: int, name: str, *columns: str, unique: bool = False) -> CreateIndex:
    return CreateIndex(table_id, name, unique, tuple(PartSpec(column) for column in columns))


def fetch(source: CatalogDb, target: CatalogDb) -> SnapshotMark:
    mark = source.make_snapshot()
    offset, last = 0, False
    while not last:
        chunk = source.read_chunk(mark, offset)
        assert chunk is not None
        data, last = chunk
        target.keep_chunk(mark, offset, data)
        offset += 1
    return mark


def install(source: CatalogDb, target: CatalogDb) -> Installed:
    mark = fetch(source, target)
    installed = target.install(mark, HardState(mark.term, RaftId(0), mark.index))
    assert dump(target) == dump(source)
    assert target.catalog == source.catalog == installed.after
    assert target.read("PRAGMA integrity_check") == [("ok",)]
    return installed


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[CatalogDb, CatalogDb]]:
    with ExitStack() as stack:
        stores = []
        for name in ("source", "target"):
            (tmp_path / name).mkdir()
            db = CatalogDb(SqliteFiles(tmp_path / name), Settings(), chunk_bytes=CHUNK_BYTES)
            stack.callback(db.close)
            stores.append(db)
        yield stores[0], stores[1]


# --- snapshots -------------------------------------------------------------------------------------


def test_a_member_that_slept_through_many_changes(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    both, source_only = Life(source, target), Life(source)
    both.create(1025, "stays")
    both.create(1026, "dropped")
    both.create(1027, "truncated")
    both.create(1028, "recreated")
    both.create(1029, "widened")
    both.create(1030, "equal")
    both.change(index(1025, "by name", "name", unique=True))
    both.change(index(1030, "equal by name", "name"))
    for table_id in range(1025, 1031):
        both.put(table_id, *((n, f"name {n}", n / 3) for n in range(300)))
    both.append(Dml((RowChange(PICO_USER.id, (7,), (7, "ann", 0, None, 1, "user")),), 1))

    source_only.index = both.index
    alone = source_only
    alone.change(DropTable(1026))
    alone.change(entries.TruncateTable(1027))
    alone.put(1027, (1, "one", None))
    alone.change(DropTable(1028))
    alone.create(1031, "recreated")
    alone.put(1031, (1, "one", 0.5))
    alone.change(entries.AddColumns(1029, (ColumnSpec("made", "datetime", True),)))
    alone.put(1029, (3, "with a date", 1.5, 123456789))
    # A unique name moves from one row to another, in a table and among the tables.
    alone.delete(1025, 0, 1)
    alone.put(1025, (0, "name 1", None), (1, "name 0", None))
    alone.change(entries.RenameTable(1025, "stayed"))
    alone.create(1032, "stays")
    # The number of a dropped index is that of the next one.
    alone.change(entries.DropIndex(1030, "equal by name"))
    alone.change(index(1030, "equal by weight", "weight", "id"))
    alone.change(create_table(1033, "sharded", sharded=True))
    renamed = user_change(User(7, "anna", 0, "md5", "a secret", 1, is_role=False))
    alone.append(Acl(RenameUser(7, "ann", "anna"), (renamed,), 1))
    read = Held("read", "table", 1025)
    granted = Granted(7, "anna", *read, "stayed")
    alone.append(Acl(Grant(granted), (grant_change(7, read, 1),), 1))
    aborted = alone.append(DdlPrepare(DropTable(1032), 1))
    alone.append(DdlAbort(aborted, "XX000", "told to"))
    pending = [
        alone.append(DdlPrepare(index(1031, "later", "name"), 1)),
        alone.append(DdlPrepare(create_table(1034, "unborn"), 1)),
    ]

    before = target.catalog
    filled: list[str] = []
    target._connection.set_exec_trace(  # which tables it writes anew
        lambda _cursor, sql, _bindings: filled.append(sql) or True  # type: ignore[func-returns-value]
    )
    installed = install(source, target)
    target._connection.set_exec_trace(None)
    assert installed.before is before
    assert sorted(installed.after.pending) == pending
    created = {sql.split("main.")[1].split()[0] for sql in filled if sql.startswith("CREATE TABLE")}
    by_id = installed.after.schema.tables_by_id
    assert created == {by_id[i].physical for i in (1025, 1027, 1029, 1031, 1032)}  # type: ignore[index]
    target.drop_unnamed()
    found = target.read("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 't1[0-9]*'")
    physical = {str(name) for (name,) in found}
    assert physical == {by_id[i].physical for i in (1025, 1027, 1029, 1030, 1031, 1032)}  # type: ignore[index]
    # Both go on alike.
    both.index = alone.index
    both.append(DdlCommit(pending[0]))
    both.append(DdlCommit(pending[1]))
    both.put(1034, (1, "born", None))
    assert dump(target) == dump(source)


def test_listeners_are_told_what_changed(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    both = Life(source, target)
    for key in ("changed", "deleted", "equal"):
        both.append(Dml((RowChange(PICO_PROPERTY.id, (key,), (key, "1")),), 1))
    before = {row[0]: row for row in target.rows(PICO_PROPERTY)}
    alone = Life(source)
    alone.append(Dml((RowChange(PICO_PROPERTY.id, ("deleted",), None),), 1))
    alone.append(Dml((RowChange(PICO_PROPERTY.id, ("changed",), ("changed", "1.0")),), 1))
    alone.append(Dml((RowChange(PICO_PROPERTY.id, ("new",), ("new", None)),), 1))
    alone.create(1025, "t")
    installed = install(source, target)
    told = {
        (change.key[0], change.row) for change in installed.changes if change.table_id == PICO_PROPERTY.id
    }
    assert told == {
        ("deleted", None),
        ("changed", ("changed", "1.0")),
        ("new", ("new", None)),
        ("next_schema_version", ("next_schema_version", str(source.catalog.schema.version + 1))),
        ("next_table_id", ("next_table_id", "1026")),
        ("global_schema_version", ("global_schema_version", str(source.catalog.schema.version))),
    }
    assert any(change.table_id == PICO_TABLE.id for change in installed.changes)
    for change in installed.changes:
        if change.table_id == PICO_PROPERTY.id:
            before.pop(change.key[0], None)
            if change.row is not None:
                before[change.key[0]] = change.row
    assert sorted(before.values()) == sorted(target.rows(PICO_PROPERTY))  # type: ignore[type-var]


def test_an_equal_state_changes_nothing_but_the_log(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    both = Life(source, target)
    both.create(1025, "t")
    both.put(1025, (1, "one", None))
    source_only = Life(source)
    source_only.index = both.index
    source_only.append(entries.Nop())
    installed = install(source, target)
    assert installed.changes == ()
    assert installed.after == installed.before
    assert target.load().entries == ()


def test_values_of_every_kind_and_size_arrive_as_they_were(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    life = Life(source)
    types = ("int", "text", "double", "decimal", "boolean", "uuid", "datetime", "json")
    columns = tuple(ColumnSpec(f"a {name}", name, name != "int") for name in types)
    life.change(
        CreateTable(1025, "t", columns, (PartSpec("a int", True),), None, True, None, "memtx", False, 1)
    )
    uuid = bytes(range(16))
    rows: list[tuple[object, ...]] = [
        (-(2**63), "", -0.0, b"\x00\xff", 0, uuid, -1, "{}"),
        (2**63 - 1, "a\x00b 🐟", 1e308, b"", 1, uuid, 2**50, "[1]"),
        (0, None, None, None, None, None, None, None),
        (1, "long " * 100_000, float("inf"), b"x" * 3000, 1, uuid, 0, "null"),  # many chunks
    ]
    rows += [(n, "x" * (n % 700), n * 1.0, b"y" * (n % 33), 0, uuid, n, "1") for n in range(10, 400)]
    life.put(1025, *rows)
    install(source, target)
    table = target.catalog.schema.tables["t"]
    assert sorted(target.rows(table)) == sorted(rows)  # type: ignore[type-var]
    assert repr(target.rows(table)) == repr(source.rows(table))


def test_damage_is_refused_and_changes_nothing(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    both = Life(source, target)
    both.create(1025, "t")
    alone = Life(source)
    alone.put(1025, *((n, "x" * 50, None) for n in range(100)))
    mark = source.make_snapshot()
    first = source.read_chunk(mark, 0)
    assert first is not None
    before, stored = dump(target), target.load()
    for position in range(0, len(first[0]), 7):
        damaged = bytearray(first[0])
        damaged[position] ^= 1
        with pytest.raises(DataCorrupted, match="chunk 0 of a snapshot arrived damaged"):
            target.keep_chunk(mark, 0, bytes(damaged))
    with pytest.raises(DataCorrupted):
        target.keep_chunk(mark, 0, b"")
    # On the disk, after it arrived.
    mark = fetch(source, target)
    received = next(target._files.directory.glob("*-received"))
    sound = received.read_bytes()
    for position in range(0, len(sound), 397):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        received.write_bytes(damaged)
        with pytest.raises(DataCorrupted, match="of the received snapshot is damaged"):
            target.install(mark, HardState(Term(9), RaftId(9), mark.index))
    received.write_bytes(sound[:-1])
    with pytest.raises(DataCorrupted):
        target.install(mark, HardState(Term(9), RaftId(9), mark.index))
    received.unlink()
    with pytest.raises(IoError):
        target.install(mark, HardState(Term(9), RaftId(9), mark.index))
    assert (dump(target), target.load()) == (before, stored)
    install(source, target)


def test_what_is_kept_damaged_is_made_anew(pair: tuple[CatalogDb, CatalogDb]) -> None:
    source, target = pair
    life = Life(source)
    life.create(1025, "t")
    life.put(1025, *((n, "x" * 50, None) for n in range(100)))
    mark = source.make_snapshot()
    (kept,) = source._files.directory.glob("raft-snapshot-*")
    data = bytearray(kept.read_bytes())
    data[CHUNK_BYTES + 100] ^= 1
    kept.write_bytes(data)
    assert source.read_chunk(mark, 0) is not None
    assert source.read_chunk(mark, 1) is None
    assert source.read_chunk(mark, 0) is None
    install(source, target)


def test_leftovers_are_deleted_at_the_start(pair: tuple[CatalogDb, CatalogDb], tmp_path: Path) -> None:
    source, target = pair
    Life(source).create(1025, "t")
    mark = fetch(source, target)
    for db in pair:
        assert list(db._files.directory.glob("raft-snapshot-*"))
        files = db._files
        db.close()
        again = CatalogDb(files, Settings())
        assert not list(files.directory.glob("raft-snapshot-*"))
        assert again.read_chunk(mark, 0) is None
        with pytest.raises(ObjectNotInPrerequisiteState):
            again.install(mark, HardState())
        again.close()


def test_a_snapshot_is_of_one_moment_while_the_writer_goes_on(pair: tuple[CatalogDb, CatalogDb]) -> None:
    """Two rows that are always equal, and made on another thread."""
    source, target = pair
    life = Life(source)
    life.create(1025, "t")
    life.create(1026, "u")
    life.put(1025, *((n, "filler " * 100, None) for n in range(10, 400)))
    marks: list[SnapshotMark] = []
    errors: list[BaseException] = []
    stop = threading.Event()

    def make() -> None:
        try:
            while not stop.is_set():
                mark = source.make_snapshot()
                offset, last = 0, False
                while not last:
                    chunk = source.read_chunk(mark, offset)
                    assert chunk is not None
                    data, last = chunk
                    target.keep_chunk(mark, offset, data)
                    offset += 1
                if mark.index > target.applied:
                    target.install(mark, HardState(mark.term, RaftId(0), mark.index))
                    marks.append(mark)
                    tables = target.catalog.schema.tables
                    first, second = (target.rows(tables[name]) for name in ("t", "u"))
                    said = [row for row in first if row[0] == 1]
                    assert said == second
                    # The entry that wrote them is the last one, or the table was created just before.
                    assert not said or said[0][1] == f"entry {mark.index}"
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        while len(marks) < 5 and not errors:
            row = (1, f"entry {life.index + 1}", None)
            life.append(Dml((RowChange(1025, (1,), row), RowChange(1026, (1,), row)), 1))
    finally:
        stop.set()
        thread.join()
    assert not errors, errors
    assert len({mark.index for mark in marks}) >= 5


def test_no_more_than_a_few_chunks_are_in_memory(tmp_path: Path) -> None:
    """Frames are streamed: the largest file a chunk's size apart from the last, whatever the table's size."""
    db = CatalogDb(SqliteFiles(tmp_path), Settings(), chunk_bytes=10_000)
    life = Life(db)
    life.create(1025, "t")
    for start in range(0, 2000, 500):
        life.put(1025, *((n, "x" * 400, None) for n in range(start, start + 500)))
    mark = db.make_snapshot()
    sizes, last = [], False
    while not last:
        chunk = db.read_chunk(mark, len(sizes))
        assert chunk is not None
        sizes.append(len(chunk[0]))
        last = chunk[1]
    assert set(sizes[:-1]) == {10_000}
    assert len(sizes) > 80
    assert sizes[-1] <= 10_000
    assert db.read_chunk(mark, len(sizes)) is None
    db.close()


# --- the log ---------------------------------------------------------------------------------------


def test_the_identity_is_kept(tmp_path: Path) -> None:
    db = CatalogDb(SqliteFiles(tmp_path), Settings())
    assert db.identity() is None
    identity = MemberIdentity(RaftId(3), "an instance", "a cluster", "its name")
    db.save_identity(identity)
    assert db.identity() == identity
    db.close()
    again = CatalogDb(SqliteFiles(tmp_path), Settings())
    assert again.identity() == identity
    assert again.load().hard_state == HardState()
    again.close()


def test_the_size_of_the_log_is_known(pair: tuple[CatalogDb, CatalogDb]) -> None:
    db, other = pair
    assert (db.log_count, db.log_bytes) == (0, 0)
    made = tuple(normal(n, entries.Nop()) for n in range(1, 11))
    size = len(made[0].data)
    db.save(Save(entries=made, committed=made[:6]))
    assert (db.log_count, db.log_bytes) == (10, 10 * size)
    db.save(Save(entries=(Entry(Index(8), Term(2), EntryKind.NORMAL, b""),)))
    assert (db.log_count, db.log_bytes) == (8, 7 * size)
    db.compact(Index(5))
    assert (db.log_count, db.log_bytes) == (3, 2 * size)
    with pytest.raises(Fault):
        bad = (Entry(Index(9), Term(2), EntryKind.NORMAL, b"\xc1"),)
        db.save(Save(entries=bad, committed=(made[6], Entry(Index(8), Term(2), EntryKind.NORMAL, b""), *bad)))
    assert (db.log_count, db.log_bytes) == (3, 2 * size)
    Life(other).create(1025, "t")
    for _ in range(10):
        append(other, entries.Nop())
    install(other, db)
    assert (db.log_count, db.log_bytes) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        DdlCommit(99),
        Dml((RowChange(4711, (1,), (1,)),), 1),
        Dml((RowChange(1025, (3,), (3, "name 1", None)),), 1),  # a duplicate in the unique index
        Dml((RowChange(1025, (3,), (3, None, None)),), 1),
        Acl(CreateRole(99, "x"), (RowChange(PICO_USER.id, (99,), (99, None, 0, None, 1, "role")),), 1),
    ],
    ids=["no such change", "no such table", "duplicate", "null", "a user without a name"],
)
def test_an_entry_that_cannot_be_applied_is_a_fault(
    pair: tuple[CatalogDb, CatalogDb], wrong: entries.Entry
) -> None:
    db, _ = pair
    life = Life(db)
    life.create(1025, "t")
    life.change(index(1025, "i", "name", unique=True))
    life.put(1025, (1, "name 1", None))
    before, stored = dump(db), db.load()
    first = life.index + 1
    made = (
        normal(first, Dml((RowChange(1025, (2,), (2, "name 2", None)),), 1)),
        normal(first + 1, wrong),
    )
    with pytest.raises(Fault, match=f"entry {first + 1} of term 1 cannot be applied"):
        db.save(Save(HardState(Term(2), RaftId(2), Index(first + 1)), made, made))
    assert (dump(db), db.load()) == (before, stored)
    # Nothing of it is left: the good half can still be saved.
    db.save(Save(entries=made[:1], committed=made[:1]))
    assert db.applied == first


def test_a_damaged_page_is_a_fault(tmp_path: Path) -> None:
    files = SqliteFiles(tmp_path)
    db = CatalogDb(files, Settings())
    life = Life(db)
    life.create(1025, "t")
    life.put(1025, *((n, "x" * 500, None) for n in range(300)))
    name = db.catalog.schema.tables["t"].physical
    [(page,)] = db.read(
        "SELECT min(pageno) FROM dbstat WHERE name = ? AND pagetype = 'leaf' AND ncell > 2", (name,)
    )
    assert isinstance(page, int)
    db.close()
    with files.catalog.open("r+b") as file:
        file.seek(page * PAGE_BYTES - 1000)
        file.write(b"y")
    db = CatalogDb(files, Settings())
    one = normal(db.last_index + 1, Dml(tuple(RowChange(1025, (n,), None) for n in range(300)), 1))
    with pytest.raises(Fault, match=rf"page {page} of .*catalog\.db is damaged"):
        db.save(Save(entries=(one,), committed=(one,)))
    db.close()


def test_what_was_applied_is_told(pair: tuple[CatalogDb, CatalogDb]) -> None:
    db, _ = pair
    put = Dml((RowChange(PICO_PROPERTY.id, ("a",), ("a", "1")),), 1)
    made = (Entry(Index(1), Term(1), EntryKind.NORMAL, b""), normal(2, put), normal(3, put))
    first, second = db.save(Save(entries=made, committed=made[:2]))
    assert (first.index, first.record, first.change) == (1, None, None)
    assert second.record == Record(1_700_000_000_000_002, (7, 2), put)
    assert second.applied.changes == put.changes
    assert isinstance(second.applied.catalog, Catalog)
    assert db.save(Save()) == ()


def test_errors_say_where(tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match=r"catalog\.db"):
        CatalogDb(SqliteFiles(tmp_path / "missing"), Settings())
