"""The log that the instances have agreed on, and whether every answer agrees with it.

Here: Log, which watches every apply of every instance while it happens; Replay, the states that the log adds up to; check(),
which holds each statement against them.
Not here: whether files are what the catalog says (files.py).

What a client may be told:

| answer | the log has |
|---|---|
| ok | its entry once, which does to the state before it what the statement says; a schema change's commit, too |
| ok, nothing to do | nothing, and in a state since the statement began there was nothing to do |
| an error | nothing, and in a state since the statement began it was right; or the abort that says so |
| nobody knows | its entry once or not at all |

`since the statement began`: all that had been acknowledged to anybody by then is in that state. What is looked up
before anything is decided (names, when a statement is bound) may be as old as the instance's own state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from shoal.catalog.acl import acl_rows
from shoal.catalog.apply import Catalog, apply, catalog_of_rows
from shoal.catalog.apply import check as check_change
from shoal.catalog.entries import (
    Acl as AclEntry,
)
from shoal.catalog.entries import (
    AclChange,
    CreateIndex,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Record,
    SchemaChange,
    decode_record,
    encode_record,
)
from shoal.catalog.entries import (
    Dml as DmlEntry,
)
from shoal.catalog.members import instance_of_row
from shoal.catalog.rights import ADMIN_ID, Privilege, refuse_schema_change
from shoal.catalog.schema import Table
from shoal.catalog.system import PICO_DB_CONFIG, PICO_INSTANCE, SYSTEM_TABLES
from shoal.errors import ObjectInUse, ShoalError
from shoal.node.raft_loop import Saved
from shoal.sql.bind.acl import bind_acl
from shoal.sql.bind.schema_changes import bind_schema_change
from shoal.sql.parser import parse_one
from shoal.storage.catalog_db import CatalogDb
from shoal.topology.cluster import Variant
from tests.simulation.workload import Acl, Ddl, Dml, Duplicate, Insert, Op, Read, Rows, Setting, ShardedInsert

if TYPE_CHECKING:
    from tests.simulation.clients import Statement

# Nothing has happened, for reasons that no state of the catalog shows.
_NOT_NOW: Final = frozenset({"40001", "57P01", "57P03", "57014", "25006"})


class Disagreement(AssertionError):
    """Something that must never be."""


@dataclass(frozen=True, slots=True)
class Logged:
    index: int
    term: int
    record: Record | None
    data: bytes


class Log:
    """What has been applied, by anybody."""

    def __init__(self) -> None:
        self.entries: dict[int, Logged] = {}
        self.by_origin: dict[tuple[int, int], int] = {}
        self.last = 0
        self.acknowledged = 0
        self.installed = 0  # snapshots

    def watch(self, db: CatalogDb, value: object) -> None:
        if not self.entries:
            self._take_founding(db)
        if not isinstance(value, Saved):
            return
        if value.installed is not None:
            self.installed += 1
        for entry in value.applied:
            if entry.record is not None:
                data = encode_record(entry.record)
            else:
                data = repr(entry.change).encode()
            known = self.entries.get(entry.index)
            if known is not None:
                if (known.term, known.data) != (entry.term, data):
                    raise Disagreement(
                        f"entry {entry.index}: {known} was applied, and now {entry.term} {data!r}"
                    )
                continue
            self.entries[entry.index] = Logged(entry.index, entry.term, entry.record, data)
            self.last = max(self.last, entry.index)
            if entry.record is not None and entry.record.origin != (0, 0):
                origin = tuple(entry.record.origin)
                if origin in self.by_origin:
                    raise Disagreement(
                        f"{entry.record} is in the log twice, as {self.by_origin[origin]} and {entry.index}"
                    )
                self.by_origin[origin] = entry.index

    def _take_founding(self, db: CatalogDb) -> None:
        """What the cluster begins with was never applied as entries are."""
        found = db.read('SELECT "index", term, kind, data FROM _raft_log WHERE "index" <= 2 AND kind = 0')
        for index, term, _, data in found:
            record = decode_record(data)
            self.entries[index] = Logged(index, term, record, encode_record(record))

    def of(self, statement: Statement) -> list[int]:
        """The entries that come from it."""
        return [self.by_origin[origin] for origin in statement.origins if origin in self.by_origin]

    def on_answer(self, statement: Statement) -> None:
        if statement.succeeded:
            self.acknowledged = max([self.acknowledged, *self.of(statement)])


# --- replaying it --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Table:
    """The rows of one generation of a table, through time: of each key, since which index it is what."""

    versions: dict[int, list[tuple[int, tuple[int, int] | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def at(self, index: int) -> Rows:
        found: dict[int, tuple[int, int]] = {}
        for key, versions in self.versions.items():
            row = next((row for since, row in reversed(versions) if since <= index), None)
            if row is not None:
                found[key] = row
        return found


class Replay:
    """The state after each entry."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.catalogs: list[Catalog] = [catalog_of_rows({table.id: () for table in SYSTEM_TABLES})]
        self._tables: dict[tuple[int, int], _Table] = defaultdict(_Table)
        self._states: list[tuple[int, str, bool]] = []  # of instances: since when they are Online, or aren't
        self.ends: dict[int, tuple[int, DdlAbort | None]] = {}  # by version: where, and how
        for index in range(1, log.last + 1):
            logged = log.entries.get(index)
            catalog = self.catalogs[-1]
            if logged is not None and logged.record is not None:
                entry = logged.record.entry
                if isinstance(entry, DdlCommit | DdlAbort):
                    if entry.version not in catalog.pending:
                        raise Disagreement(f"entry {index} ends a change that isn't pending: {entry}")
                    self.ends[entry.version] = index, entry if isinstance(entry, DdlAbort) else None
                if isinstance(entry, DmlEntry):
                    self._take_rows(catalog, index, entry)
                catalog = apply(catalog, entry, index, logged.term).catalog
            elif logged is None and index > 2:
                raise Disagreement(f"nobody has applied entry {index}, and somebody entry {log.last}")
            self.catalogs.append(catalog)

    def online_at(self, index: int) -> set[str]:
        """Names of instances."""
        last = {name: online for since, name, online in self._states if since <= index}
        return {name for name, online in last.items() if online}

    def _take_rows(self, catalog: Catalog, index: int, entry: DmlEntry) -> None:
        for change in entry.changes:
            if change.table_id == PICO_INSTANCE.id:
                online = change.row is not None and _is_online(change.row)
                self._states.append((index, change.key[0], online))
            table = catalog.schema.tables_by_id.get(change.table_id)  # type: ignore[call-overload]
            if table is None:
                raise Disagreement(f"entry {index} writes into a table that there isn't: {entry}")
            if not table.system:
                if not table.operable:
                    raise Disagreement(f"entry {index} writes into {table.name}, which is being changed")
                row = None if change.row is None else (change.row[1], change.row[2])
                versions = self._tables[table.id, table.generation].versions
                versions[change.key[0]].append((index, row))

    def table(self, name: str, index: int) -> Table | None:
        return self.catalogs[index].schema.tables.get(name)

    def may(self, statement: Statement, privilege: Privilege, table: Table, index: int) -> bool:
        return self.catalogs[index].rights.allows(statement.user_id, privilege, table)

    def rows(self, table: Table, index: int) -> Rows:
        return self._tables[table.id, table.generation].at(index)


def _is_online(row: tuple[object, ...]) -> bool:
    return instance_of_row(row).current.variant is Variant.ONLINE  # type: ignore[arg-type]


# --- holding answers against it ------------------------------------------------------------------


def check(log: Log, statements: list[Statement]) -> Replay:
    """Raises Disagreement."""
    replay = Replay(log)
    for statement in statements:
        try:
            _check(replay, statement)
        except Disagreement as error:
            raise Disagreement(f"{error}\n    {statement}") from None
    left = replay.catalogs[-1].pending
    if left:
        raise Disagreement(f"still pending: {left}")
    return replay


def _check(replay: Replay, statement: Statement) -> None:
    entries = replay.log.of(statement)
    if len(entries) > 1:
        raise Disagreement(f"it is in the log as entries {entries}")
    entry = entries[0] if entries else None
    if entry is not None and entry <= statement.low:
        raise Disagreement(f"its entry {entry} is before what was acknowledged when it began")
    op = statement.op
    match op:
        case Dml():
            _check_dml(replay, statement, op, entry)
        case Ddl():
            _check_ddl(replay, statement, op, entry)
        case Acl():
            _check_acl(replay, statement, op, entry)
        case Read():
            _check_read(replay, statement, op)
        case Setting():
            _check_setting(replay, statement, op, entry)
        case ShardedInsert():
            if entry is not None:
                raise Disagreement("a write into a sharded table is in the log")
            if statement.outcome == "error" and not statement.is_unknown:
                _check_lookup(replay, statement, op, also=frozenset({"23505", "0A000"}))
        case _:
            pass


def _states(replay: Replay, statement: Statement, *, here: bool = False) -> Iterator[int]:
    """Each state that it may have been decided on. `here`: that its instance may have looked something up in."""
    first = statement.low_here if here else statement.low
    yield from range(max(2, first), min(statement.high, replay.log.last) + 1)


def _is_unique(table: Table) -> bool:
    u = table.columns[2].number
    return any(index.unique and [part.column for part in index.parts] == [u] for index in table.indexes)


def _check_dml(replay: Replay, statement: Statement, op: Dml, entry: int | None) -> None:
    if entry is not None:
        logged = replay.log.entries[entry].record
        assert logged is not None and isinstance(logged.entry, DmlEntry), logged
        table = replay.table(op.table, entry - 1)
        if table is None:
            raise Disagreement(f"entry {entry}: there was no table {op.table} then")
        made = {
            change.key[0]: None if change.row is None else (change.row[1], change.row[2])
            for change in logged.entry.changes
        }
        if any(change.table_id != table.id for change in logged.entry.changes):
            raise Disagreement(f"entry {entry} writes into another table than {op.table}: {logged.entry}")
        if not replay.may(statement, Privilege.WRITE, table, entry - 1):
            raise Disagreement(f"entry {entry}: the user had no right to it then")
        rows = replay.rows(table, entry - 1)
        try:
            wanted = dict(op.after(rows, _is_unique(table)))
        except Duplicate:
            raise Disagreement(f"entry {entry} makes a duplicate in {rows}") from None
        if made != wanted:
            raise Disagreement(f"entry {entry} makes {made} of {rows}, it should be {wanted}")
        if statement.outcome == "ok" and statement.count != len(wanted):
            raise Disagreement(f"it says {statement.count} rows, and it were {len(wanted)}")
    if statement.is_unknown:
        return
    if statement.outcome == "ok":
        if entry is None and statement.count:
            raise Disagreement("it was acknowledged, and isn't in the log")
        if entry is None and not any(_effect(replay, op, index) == 0 for index in _states(replay, statement)):
            raise Disagreement("it did nothing, and in every state since it began there was something to do")
        return
    if entry is not None:
        raise Disagreement(f"it has failed, and is in the log as entry {entry}")
    if statement.sqlstate == "23505":
        if not any(_effect(replay, op, index) is None for index in _states(replay, statement)):
            raise Disagreement("it wasn't a duplicate in any state since it began")
        return
    _check_lookup(replay, statement, op)


def _effect(replay: Replay, op: Dml, index: int) -> int | None:
    """How many rows it would change in that state; None: a duplicate, -1: it can't run there."""
    table = replay.table(op.table, index)
    if table is None or not table.operable:
        return -1
    try:
        return len(op.after(replay.rows(table, index), _is_unique(table)))
    except Duplicate:
        return None


def _check_lookup(replay: Replay, statement: Statement, op: Op, also: frozenset[str] = frozenset()) -> None:
    """An error from before anything was decided."""
    if statement.sqlstate in _NOT_NOW or statement.sqlstate in also:
        return
    if statement.sqlstate == "23502" and isinstance(op, Insert | ShardedInsert):
        if not any(
            (table := replay.table(op.table, index)) is not None
            and any(not column.nullable for column in table.columns[3:])
            for index in _states(replay, statement, here=True)
        ):
            raise Disagreement(f"{op.table} never had another column that must be given")
        return
    if statement.sqlstate == "42501":
        if statement.user_id == ADMIN_ID:
            raise Disagreement("admin may do everything")
        if all(
            (table := replay.table(op.table, index)) is not None
            and replay.may(statement, Privilege.READ, table, index)
            and replay.may(statement, Privilege.WRITE, table, index)
            for index in _states(replay, statement, here=True)
        ):
            raise Disagreement("the user had the rights all the time")
        return
    if statement.sqlstate == "42P01":
        if all(replay.table(op.table, index) is not None for index in _states(replay, statement, here=True)):
            raise Disagreement(f"there was a table {op.table} all the time")
        return
    raise Disagreement("nobody expects this error")


def _check_read(replay: Replay, statement: Statement, op: Read) -> None:
    if statement.outcome != "ok":
        if statement.outcome == "error" and not statement.is_unknown:
            _check_lookup(replay, statement, op)
        return
    got = {int(k or b"0"): (int(n or b"0"), int(u or b"0")) for k, n, u in statement.rows}
    for index in _states(replay, statement, here=True):
        table = replay.table(op.table, index)
        if table is None or not replay.may(statement, Privilege.READ, table, index):
            continue
        # The rows are read after the rights.
        if any(
            (later := replay.table(op.table, at)) is not None and replay.rows(later, at) == got
            for at in range(index, min(statement.high, replay.log.last) + 1)
        ):
            return
    raise Disagreement(f"the table never was {got} meanwhile, for a user who may read it")


def _check_setting(replay: Replay, statement: Statement, op: Setting, entry: int | None) -> None:
    if statement.is_unknown:
        return
    if statement.outcome == "error":
        if entry is not None:
            raise Disagreement(f"it has failed, and is in the log as entry {entry}")
        if statement.sqlstate not in _NOT_NOW and (statement.sqlstate, statement.user_id) == (
            "42501",
            ADMIN_ID,
        ):
            raise Disagreement("nobody expects this error")
        return
    if entry is None:
        raise Disagreement("it was acknowledged, and isn't in the log")
    logged = replay.log.entries[entry].record
    assert logged is not None and isinstance(logged.entry, DmlEntry)
    (change,) = logged.entry.changes
    if change.table_id != PICO_DB_CONFIG.id or change.row is None or change.row[2] != str(op.value):
        raise Disagreement(f"entry {entry} says something else: {logged}")


# --- schema changes ------------------------------------------------------------------------------


def asked_of(op: Op, catalog: Catalog, user_id: int) -> SchemaChange | str | None:
    """What it asks of that catalog; None: nothing. A text: the SQLSTATE of what is wrong with it."""
    statement = parse_one(op.sql)
    rights, schema = catalog.rights, catalog.schema
    permit = partial(rights.refuse, user_id)
    try:
        change = bind_schema_change(statement, schema, user_id, catalog.next_table_id, permit=permit)  # type: ignore[arg-type]
        if change is None:
            return None
        refuse_schema_change(rights, schema, change, user_id)
        check_change(catalog, change)
    except ShoalError as error:
        return "pending" if isinstance(error, ObjectInUse) else error.sqlstate
    return change


def _check_ddl(replay: Replay, statement: Statement, op: Ddl, entry: int | None) -> None:
    if entry is None:
        if statement.is_unknown:
            return
        if statement.succeeded:
            if all(
                asked_of(op, replay.catalogs[index], statement.user_id) is not None
                for index in _states(replay, statement)
            ):
                raise Disagreement(
                    "it did nothing, and in every state since it began there was something to do"
                )
            return
        if statement.sqlstate in _NOT_NOW:
            return
        if all(
            asked_of(op, replay.catalogs[index], statement.user_id) != statement.sqlstate
            for index in _states(replay, statement)
        ):
            raise Disagreement("nothing was wrong with it in any state since it began")
        return
    logged = replay.log.entries[entry].record
    assert logged is not None and isinstance(logged.entry, DdlPrepare), logged
    wanted = asked_of(op, replay.catalogs[entry - 1], statement.user_id)
    if wanted != logged.entry.change:
        raise Disagreement(f"entry {entry} prepares {logged.entry.change}, it should be {wanted}")
    if entry not in replay.ends:
        raise Disagreement(f"entry {entry} was prepared, and neither committed nor aborted")
    end, aborted = replay.ends[entry]
    if aborted is not None and not _may_be_aborted(logged.entry.change, aborted):
        raise Disagreement(f"entry {end} aborts it without a reason: {aborted}")
    if statement.is_unknown:
        return
    if statement.succeeded:
        if aborted is not None:
            raise Disagreement(f"it was acknowledged, and aborted by entry {end}: {aborted}")
        if end > statement.high:
            raise Disagreement(f"it was acknowledged before entry {end}, which commits it")
        _check_everywhere(replay, statement, end)
        return
    if aborted is None:
        raise Disagreement(f"it has failed, and was committed by entry {end}")
    if (aborted.sqlstate, aborted.cause) != (statement.sqlstate, statement.message):
        raise Disagreement(f"it was aborted for another reason: {aborted}")
    if end > statement.high:
        raise Disagreement(f"its failure was told before entry {end}, which aborts it")


def _check_everywhere(replay: Replay, statement: Statement, entry: int) -> None:
    """Who hears `ok` may rely on it at every instance that was Online when it happened."""
    if statement.outcome != "ok" or statement.warned:
        return
    for name in sorted(replay.online_at(entry)):
        if statement.applied.get(name, entry) < entry:
            raise Disagreement(f"{name} was Online, and hasn't applied entry {entry} when it is acknowledged")


def _may_be_aborted(change: SchemaChange, aborted: DdlAbort) -> bool:
    if aborted.sqlstate == "23505":
        return isinstance(change, CreateIndex) and change.unique
    return aborted.sqlstate == "23502"  # a NOT NULL column, and the table isn't empty


# --- rights --------------------------------------------------------------------------------------


def _rights_asked(op: Op, catalog: Catalog, user_id: int) -> AclChange | str | None:
    """As asked_of()."""
    try:
        change = bind_acl(parse_one(op.sql), catalog)  # type: ignore[arg-type]
        rows = () if change is None else acl_rows(catalog, change, user_id, "a secret")
    except ShoalError as error:
        return error.sqlstate
    return change if rows else None


def _check_acl(replay: Replay, statement: Statement, op: Acl, entry: int | None) -> None:
    user_id = statement.user_id
    if entry is not None:
        logged = replay.log.entries[entry].record
        assert logged is not None and isinstance(logged.entry, AclEntry), logged
        wanted = _rights_asked(op, replay.catalogs[entry - 1], user_id)
        if wanted != logged.entry.change:
            raise Disagreement(f"entry {entry} says {logged.entry.change}, it should be {wanted}")
    if statement.is_unknown:
        return
    if statement.succeeded:
        if entry is None and all(
            _rights_asked(op, replay.catalogs[index], user_id) is not None
            for index in _states(replay, statement)
        ):
            raise Disagreement("it did nothing, and in every state since it began there was something to do")
        if entry is not None:
            _check_everywhere(replay, statement, entry)
        return
    if entry is not None:
        raise Disagreement(f"it has failed, and is in the log as entry {entry}")
    if statement.sqlstate not in _NOT_NOW and all(
        _rights_asked(op, replay.catalogs[index], user_id) != statement.sqlstate
        for index in _states(replay, statement)
    ):
        raise Disagreement("nothing was wrong with it in any state since it began")
