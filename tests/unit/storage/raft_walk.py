"""A Raft store walks at random while its disk fails, and must be where it promised to be.

Here: Reference, the state machine without a disk; Model, all that the store has promised; and a walk of saves,
truncations, compactions, snapshots and installations through a few lives, each of which ends in a power cut or a
process that dies.
Not here: how many walks there are (test_power_cuts.py, tests/slow/test_power_cuts.py), the disk (faulty_vfs.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from shoal.catalog import entries
from shoal.catalog.apply import Catalog, apply
from shoal.catalog.entries import (
    AddColumns,
    ColumnSpec,
    CreateIndex,
    CreateTable,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Dml,
    DropIndex,
    DropTable,
    Nop,
    PartSpec,
    RenameTable,
    RowChange,
    SchemaChange,
    TruncateTable,
    decode_record,
)
from shoal.catalog.schema import Schema, Table
from shoal.catalog.system import PICO_PROPERTY, SYSTEM_TABLES, Row
from shoal.errors import Fault, ShoalError
from shoal.raft.messages import (
    ChangeKind,
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    SnapshotMark,
    Term,
    decode_change,
    encode_change,
)
from shoal.raft.store import Save, Stored
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.catalog_snapshot import Frame, _packed, global_tables
from shoal.storage.checksum import check_file
from shoal.storage.directory import InstanceDirectory
from shoal.storage.snapshot_files import SnapshotFiles
from shoal.storage.sqlite import Settings, SqliteFiles
from tests.unit.storage.catalog_dump import dump, normal
from tests.unit.storage.faulty_vfs import Disk, faulty_vfs_with_checksums

CHUNK_BYTES = 900

Rows = Mapping[tuple[object, ...], Row]

_encode = msgspec.msgpack.Encoder().encode


# --- the state machine without a disk --------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    catalog: Catalog
    tables: Mapping[str, Rows]  # by physical name: of the system's and of global tables
    membership: Membership

    def after(self, entry: Entry) -> Reference:
        if entry.kind is EntryKind.MEMBERSHIP:
            return replace(self, membership=_changed(self.membership, decode_change(entry.data)))
        if not entry.data:
            return self
        asked = decode_record(entry.data).entry
        applied = apply(self.catalog, asked, entry.index, entry.term)
        tables = {name: dict(rows) for name, rows in self.tables.items()}
        for change in applied.changes:
            rows = tables[self.catalog.schema.tables_by_id[change.table_id].physical]  # type: ignore[index]
            rows.pop(change.key, None)
            if change.row is not None:
                rows[change.key] = change.row
        if applied.global_table is not None:
            after = applied.global_table
            before = self.catalog.schema.tables_by_id.get(after.id)
            old = tables.get(after.physical, {})
            missing = (None,) * (len(after.columns) - len(before.columns)) if before is not None else ()
            tables[after.physical] = {key: (*row, *missing) for key, row in old.items()}
        kept = {t.physical for t in (*SYSTEM_TABLES, *global_tables(applied.catalog))}
        return replace(
            self,
            catalog=applied.catalog,
            tables={name: rows for name, rows in tables.items() if name in kept},
        )

    def dump(self) -> object:
        rows = {name: _sorted(rows) for name, rows in self.tables.items()}
        indexes = [
            f"CREATE {'UNIQUE ' * index.unique}INDEX {table.physical_index(index)} ON {table.physical}"
            f" ({', '.join(f'c{part.column}' + ' DESC' * part.descending for part in index.parts)})"
            for table in (*SYSTEM_TABLES, *global_tables(self.catalog))
            for index in table.indexes
        ]
        return self.catalog, rows, sorted(indexes)

    def frames(self, mark: SnapshotMark) -> Iterator[Frame]:
        yield 0, _encode(mark)
        tables = [*sorted(SYSTEM_TABLES, key=lambda table: table.id), *global_tables(self.catalog)]
        for table in tables:
            yield from _packed(table.id, _sorted(self.tables[table.physical]))


def _sorted(rows: Rows) -> list[Row]:
    return [row for _, row in sorted(rows.items())]  # type: ignore[type-var]


def _changed(membership: Membership, change: MembershipChange) -> Membership:
    voters = set(membership.voters) - {change.member}
    learners = set(membership.learners) - {change.member}
    if change.kind is not ChangeKind.REMOVE:
        (voters if change.kind is ChangeKind.ADD_VOTER else learners).add(change.member)
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))


EMPTY = Reference(
    Catalog(Schema(0, {table.name: table for table in SYSTEM_TABLES}, {})),
    {table.physical: {} for table in SYSTEM_TABLES},
    Membership(),
)


def some_entry(rng: random.Random, state: Reference, index: Index, term: Term) -> Entry:
    """One that can be applied to this state."""
    if rng.random() < 0.08:
        change = MembershipChange(rng.choice(tuple(ChangeKind)), RaftId(rng.randint(1, 5)))
        return Entry(index, term, EntryKind.MEMBERSHIP, encode_change(change))
    if rng.random() < 0.05:
        return Entry(index, term, EntryKind.NORMAL, b"")
    return normal(index, _some_record(rng, state), term)


def _some_record(rng: random.Random, state: Reference) -> entries.Entry:
    catalog = state.catalog
    blocked = {pending.table_id for pending in catalog.pending.values()}
    users = [table for table in global_tables(catalog) if table.id not in blocked]
    kind = rng.random()
    if kind < 0.15 and catalog.pending:
        version = rng.choice(sorted(catalog.pending))
        return DdlCommit(version) if rng.random() < 0.8 else DdlAbort(version, "XX000", "told to")
    if kind < 0.3 and len(catalog.pending) < 2:
        return DdlPrepare(_some_change(rng, catalog, users), 1)
    if kind < 0.4 or not users:
        key = f"key {rng.randint(1, 9)}"
        row = (key, f'"{rng.random()}"') if rng.random() < 0.8 else None
        return Dml((RowChange(PICO_PROPERTY.id, (key,), row),), 1)
    if kind < 0.45:
        return Nop()
    table = rng.choice(users)
    changes = []
    for _ in range(rng.choice((1, 1, 2, 10))):
        key_value = rng.randint(1, 40)
        changes.append(RowChange(table.id, (key_value,), _some_row(rng, table, key_value)))
    return Dml(tuple(changes), 1)


def _some_row(rng: random.Random, table: Table, key: int) -> Row | None:
    if rng.random() < 0.25:
        return None
    more = [rng.choice((None, rng.randint(-9, 9))) for _ in table.columns[2:]]
    return (key, "x" * rng.choice((1, 20, 200, 3000)) + str(rng.random()), *more)


def _some_change(rng: random.Random, catalog: Catalog, users: list[Table]) -> SchemaChange:
    new_id = catalog.next_table_id
    if len(users) < 2 or rng.random() < 0.1:
        columns = (ColumnSpec("id", "int", False), ColumnSpec("name", "text", False))
        return CreateTable(
            new_id, f"t{new_id}", columns, (PartSpec("id"),), None, True, None, "memtx", False, 1
        )
    table = rng.choice(users)
    number = rng.randrange(10**9)
    choices: list[SchemaChange] = [
        DropTable(table.id),
        TruncateTable(table.id),
        RenameTable(table.id, f"t{number}"),
        CreateIndex(
            table.id, f"i{number}", rng.random() < 0.5, (PartSpec("name"), PartSpec("id", rng.random() < 0.5))
        ),
    ]
    if len(table.columns) < 5:
        choices.append(AddColumns(table.id, (ColumnSpec(f"c{number}", "int", True),)))
    if table.indexes:
        choices.append(DropIndex(table.id, rng.choice(table.indexes).name))
    return rng.choice(choices)


# --- what the store has promised -------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    stored: Stored
    states: Mapping[tuple[int, int], Reference]  # by (index, term), of the log's entries and of the mark

    @property
    def last(self) -> tuple[Index, Term]:
        stored = self.stored
        return (
            (stored.entries[-1].index, stored.entries[-1].term)
            if stored.entries
            else (
                stored.mark.index,
                stored.mark.term,
            )
        )

    def at(self, index: int) -> Reference:
        stored = self.stored
        position = index - stored.mark.index - 1
        return self.states[index, stored.entries[position].term if position >= 0 else stored.mark.term]


BEGINNING = Model(
    Stored(HardState(), SnapshotMark(Index(0), Term(0), Membership()), (), Index(0), Membership()),
    {(0, 0): EMPTY},
)


@dataclass(frozen=True)
class Step:
    """What the store is told, and what holds when it has said yes."""

    what: Save | Index | tuple[SnapshotMark, HardState, Reference] | None  # None makes a snapshot
    after: Model


def some_step(rng: random.Random, model: Model) -> Step:
    stored = model.stored
    kind = rng.random()
    if kind < 0.1 and stored.applied > stored.mark.index:
        return _compaction(rng, model)
    if kind < 0.15 and stored.applied:
        return Step(None, model)
    if kind < 0.2:
        return _installation(rng, model)
    return _save(rng, model)


def _save(rng: random.Random, model: Model) -> Step:
    stored, states = model.stored, dict(model.states)
    term, log, new = Term(max(1, stored.hard_state.term)), stored.entries, []
    if rng.random() < 0.8:
        last, last_term = model.last
        if rng.random() < 0.2:
            term = Term(term + 1)
            last = Index(rng.randint(stored.applied, last))
            log = log[: last - stored.mark.index]
            last_term = log[-1].term if log else stored.mark.term
        state = states[last, last_term]
        for _ in range(rng.choice((1, 1, 2, 8))):
            last = Index(last + 1)
            new.append(some_entry(rng, state, last, term))
            state = states[last, term] = state.after(new[-1])
        log += tuple(new)
    committed: tuple[Entry, ...] = ()
    membership = None
    if rng.random() < 0.7:
        start = stored.applied - stored.mark.index
        committed = log[start : start + rng.choice((1, 2, 5, 100))]
        if any(entry.kind is EntryKind.MEMBERSHIP for entry in committed):
            membership = states[committed[-1].index, committed[-1].term].membership
    applied = committed[-1].index if committed else stored.applied
    hard_state = HardState(term, RaftId(rng.randint(0, 3)), Index(max(applied, stored.hard_state.commit)))
    if term == stored.hard_state.term and rng.random() < 0.3:
        hard_state = stored.hard_state
    after = Stored(hard_state, stored.mark, log, applied, membership or stored.membership)
    save = Save(None if hard_state == stored.hard_state else hard_state, tuple(new), committed, membership)
    return Step(save, Model(after, states))


def _compaction(rng: random.Random, model: Model) -> Step:
    stored = model.stored
    index = Index(rng.randint(stored.mark.index + 1, stored.applied))
    position = index - stored.mark.index
    mark = SnapshotMark(index, stored.entries[position - 1].term, model.at(index).membership)
    return Step(index, Model(replace(stored, mark=mark, entries=stored.entries[position:]), model.states))


def _installation(rng: random.Random, model: Model) -> Step:
    """The leader's log went another way behind what is applied here, and further."""
    stored = model.stored
    term, index = Term(stored.hard_state.term + 1), stored.applied
    state = model.at(index)
    for _ in range(rng.choice((1, 5, 40))):
        index = Index(index + 1)
        state = state.after(some_entry(rng, state, index, term))
    mark = SnapshotMark(index, term, state.membership)
    hard_state = HardState(term, RaftId(0), index)
    after = Stored(hard_state, mark, (), index, state.membership)
    return Step((mark, hard_state, state), Model(after, {(index, term): state}))


def take(db: CatalogDb, step: Step, directory: Path) -> None:
    """`directory` is where another member keeps its snapshot."""
    match step.what:
        case None:
            stored = step.after.stored
            mark = db.make_snapshot()
            assert (mark.index, mark.membership) == (stored.applied, stored.membership)
            leader = SnapshotFiles(directory, CHUNK_BYTES)
            leader.write(mark, step.after.at(mark.index).frames(mark))
            for offset in range(10_000):
                chunk = db.read_chunk(mark, offset)
                assert chunk is not None
                assert chunk == leader.read_chunk(mark, offset)
                if chunk[1]:
                    return
        case Save() as save:
            applied = db.save(save)
            assert [done.index for done in applied] == [entry.index for entry in save.committed]
        case (mark, hard_state, state):
            leader = SnapshotFiles(directory, CHUNK_BYTES)
            leader.write(mark, state.frames(mark))
            offset, last = 0, False
            while not last:
                chunk = leader.read_chunk(mark, offset)
                assert chunk is not None
                data, last = chunk
                db.keep_chunk(mark, offset, data)
                offset += 1
            before = db.catalog
            installed = db.install(mark, hard_state)
            assert (installed.before, installed.after) == (before, state.catalog)
        case index:
            db.compact(index)


def check(db: CatalogDb, promised: list[Model]) -> Model:
    """One of these, and all of it."""
    stored = db.load()
    found = [model for model in promised if model.stored == stored]
    assert found, f"found {stored}, promised {' or '.join(str(model.stored) for model in promised)}"
    assert dump(db) == found[0].at(stored.applied).dump(), "the rows are not those of the applied entries"
    assert (db.log_count, db.log_bytes) == (
        len(stored.entries),
        sum(len(entry.data) for entry in stored.entries),
    )
    return found[0]


# --- lives -----------------------------------------------------------------------------------------


class Walk:
    """One member's lives on one disk after the other."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.directory = directory / f"walk {seed}"
        self.promised = [BEGINNING]
        self.kept = 0  # steps that were said to be done
        self.cuts = 0
        self._lives = 0
        self._leader = self.directory / "leader"
        self._leader.mkdir(parents=True)

    def run(self) -> None:
        rng = self.rng
        disk = self._disk()
        lives = rng.randint(1, 4)
        for life in range(lives):
            self._live(disk)
            if life == lives - 1 or disk.dead or rng.random() < 0.7:
                disk = self._lose_power(disk)
        disk.close()
        # In the end on a sound disk.
        with InstanceDirectory.claim(disk.directory) as instance:
            instance.prepare_files(Settings())
            db = CatalogDb(instance.files, Settings(), chunk_bytes=CHUNK_BYTES)
            try:
                model = check(db, self.promised)
                assert db.read("PRAGMA integrity_check") == [("ok",)]
                assert not list(disk.directory.glob("raft-snapshot-*"))
                for _ in range(5):
                    step = some_step(rng, model)
                    take(db, step, self._leader)
                    model = check(db, [step.after])
            finally:
                db.close()
            check_file(instance.files.catalog)

    def _live(self, disk: Disk) -> None:
        """Until the power fails, the process must die, or it was long enough."""
        rng = self.rng
        pages = rng.choice((4, 30, 200, 1000))
        settings = Settings(vfs=faulty_vfs_with_checksums(), checkpoint_pages=pages)
        files = SqliteFiles(disk.directory)
        with InstanceDirectory.claim(disk.directory) as instance:
            instance.prepare_files(settings)
            if rng.random() < 0.2:
                self._fail_at_start(disk, files, settings)
            disk.cut_at, disk.dead = None, False
            db = CatalogDb(files, settings, chunk_bytes=CHUNK_BYTES)
            try:
                self.promised = [check(db, self.promised)]
                disk.cut_at = disk.operations + rng.choice((rng.randrange(1, 100), rng.randrange(1, 1000)))
                disk.write_errors = rng.choice((0, 0, 0, 0.02))
                disk.full_errors = rng.choice((0, 0, 0, 0.02))
                self._walk(db, disk)
            finally:
                # Wherever it got to: closing must not be what saves the rows.
                alive, disk.dead = not disk.dead, True
                db.close()
                disk.dead = not alive
                disk.write_errors = disk.full_errors = 0

    def _walk(self, db: CatalogDb, disk: Disk) -> None:
        for _ in range(120):
            (model,) = self.promised
            step = some_step(self.rng, model)
            try:
                take(db, step, self._leader)
            except Fault:
                assert disk.dead or disk.write_errors, "a fault without a reason"
                self.promised = [model, step.after]
                return
            except ShoalError:
                # Nothing has changed, and it goes on if it can.
                assert disk.dead or disk.write_errors or disk.full_errors, "an error without a reason"
                if disk.dead:
                    return
                check(db, self.promised)
            else:
                self.promised = [step.after]
                self.kept += 1

    def _fail_at_start(self, disk: Disk, files: SqliteFiles, settings: Settings) -> None:
        disk.cut_at = disk.operations + self.rng.randrange(1, 40)
        db = None
        try:
            db = CatalogDb(files, settings)
        except (ShoalError, Fault):
            assert disk.dead
        finally:
            disk.dead = True
            if db is not None:
                db.close()

    def _lose_power(self, disk: Disk) -> Disk:
        self.cuts += 1
        disk.dead = True
        new = self._disk()
        disk.survivors(new.directory)
        disk.close()
        new.adopt()
        return new

    def _disk(self) -> Disk:
        self._lives += 1
        directory = self.directory / f"disk {self._lives}"
        directory.mkdir()
        (directory / "instance.lock").touch()
        return Disk(directory, self.rng)
