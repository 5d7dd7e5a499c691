"""What a log entry does to the catalog: rows in, rows out, and the schema and rights that follow.

Here: Catalog, the state; check(), which refuses a schema change before it is proposed; apply(), which
must never refuse.
Not here: what procedures become (procedures.py), entries and their bytes (entries.py), the rows' shape (system.py), making it durable
(storage/catalog_db.py), changing the physical tables of sharded data (node/ddl.py drives that).

Invariant: apply() depends on nothing but the state and the entry, so every instance that has applied the
same log has the same catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec

from shoal.catalog import procedures
from shoal.catalog.entries import (
    Acl,
    AddColumns,
    ColumnSpec,
    CreateIndex,
    CreateProcedure,
    CreateRole,
    CreateTable,
    CreateUser,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Dml,
    DropIndex,
    DropProcedure,
    DropTable,
    Entry,
    Nop,
    PartSpec,
    ProcedureChange,
    RenameColumn,
    RenameIndex,
    RenameProcedure,
    RenameTable,
    RowChange,
    SchemaChange,
    TruncateTable,
    change_from_json,
    change_to_json,
    object_of,
)
from shoal.catalog.rights import FIRST_USER_ID, ObjectType, Rights, revoke_change, rights_of_rows
from shoal.catalog.schema import (
    BUCKET_ID,
    BUCKET_ID_NAME,
    FIRST_USER_TABLE_ID,
    Column,
    Global,
    Index,
    IndexId,
    KeyPart,
    Schema,
    Sharded,
    Table,
    TableId,
    TierName,
)
from shoal.catalog.system import (
    PICO_ENDED_SCHEMA_CHANGE,
    PICO_INDEX,
    PICO_PENDING_SCHEMA_CHANGE,
    PICO_PRIVILEGE,
    PICO_PROPERTY,
    PICO_ROUTINE,
    PICO_TABLE,
    PICO_TIER,
    PICO_USER,
    SYSTEM_TABLES,
    Row,
    index_rows,
    json_text,
    sql_type,
    table_row,
    tables_of_rows,
    tier_of_row,
    type_of,
)
from shoal.errors import (
    DuplicateColumn,
    DuplicateFunction,
    DuplicateObject,
    DuplicateTable,
    ObjectInUse,
    ProgramLimitExceeded,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
)

COLUMNS_MAX = 1900  # SQLite's own limit is 2,000, and an upsert names every column twice
INDEXES_MAX = 128
TABLES_MAX = 65_000
PROCEDURES_MAX = 65_000
ENDED_MAX = 256  # whoever waits for the end of a change looks for it among so many


@dataclass(frozen=True, slots=True)
class Pending:
    """A schema change that is prepared and neither committed nor aborted."""

    version: int  # the index of its DdlPrepare
    term: int
    table_id: TableId
    claimed_names: tuple[str, ...]  # of tables and indexes
    change: SchemaChange
    user_id: int  # who has asked for it


@dataclass(frozen=True, slots=True)
class Ended:
    """A schema change that is over. `aborted` says why; None: it is committed."""

    version: int
    term: int  # of its DdlPrepare, as in Pending: index and term are those of one entry only
    table_id: TableId
    aborted: DdlAbort | None
    index: int  # of the entry that ended it


@dataclass(frozen=True)
class Catalog:
    """The schema, the changes under way, and who may do what. `schema.version` is that of the last change committed,
    of rights, too.

    Rows of other tables come and go without another Catalog: whoever sees the same object knows that neither tables
    nor rights have changed.
    """

    schema: Schema
    pending: Mapping[int, Pending] = field(default_factory=dict)  # by version
    ended: Mapping[int, Ended] = field(
        default_factory=dict
    )  # by version, in the order they ended; the latest
    next_table_id: int = FIRST_USER_TABLE_ID  # never used twice, dropped or aborted
    rights: Rights = field(default_factory=Rights)
    next_user_id: int = FIRST_USER_ID  # roles have ids of these, too; never used twice

    def was_prepared(self, index: int, term: int) -> bool:
        """Is the entry of that index and term the DdlPrepare of a change that is pending, or has ended lately?"""
        known = self.pending.get(index) or self.ended.get(index)
        return known is not None and known.term == term


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply asks of its store: rows to write, and a table whose physical form changes.

    `global_table` is one whose physical change belongs to the apply itself: it is on every instance.
    """

    catalog: Catalog
    changes: tuple[RowChange, ...]
    global_table: Table | None = None


# --- checks, before the proposal -----------------------------------------------------------------


def check(catalog: Catalog, change: SchemaChange) -> None:
    """Raises what is wrong with the change. On the leader, at the state that the proposal follows."""
    schema, table_id = catalog.schema, _table_of(change)
    if conflicts(catalog, change):
        what = "procedure" if isinstance(change, ProcedureChange) else "table"
        raise ObjectInUse(f"another schema change of this {what} is under way")
    if isinstance(change, ProcedureChange):
        _check_procedure(schema, change)
        return
    if not isinstance(change, CreateTable) and table_id not in schema.tables_by_id:
        raise UndefinedTable(f"table with id {table_id} does not exist")
    match change:
        case CreateTable():
            if change.name in schema.tables:
                raise DuplicateTable(f"table {change.name} already exists")
            _refuse_taken_key(schema, change.name)
            if len(schema.tables) >= TABLES_MAX:
                raise ProgramLimitExceeded(f"a cluster has at most {TABLES_MAX} tables")
            if len(change.columns) > COLUMNS_MAX:
                raise ProgramLimitExceeded(f"a table has at most {COLUMNS_MAX} columns")
        case RenameTable():
            if change.new_name in schema.tables:
                raise DuplicateTable(f"table {change.new_name} already exists")
            _refuse_taken_key(schema, change.new_name)
        case AddColumns():
            table = schema.tables_by_id[table_id]
            for added in change.columns:
                if added.name in table.by_name:
                    raise DuplicateColumn(f"column {added.name} already exists")
            if len(table.columns) + len(change.columns) > COLUMNS_MAX:
                raise ProgramLimitExceeded(f"a table has at most {COLUMNS_MAX} columns")
        case RenameColumn():
            table = schema.tables_by_id[table_id]
            if change.column not in table.by_name:
                raise UndefinedColumn(f"column {change.column} does not exist")
            if change.new_name in table.by_name:
                raise DuplicateColumn(f"column {change.new_name} already exists")
        case CreateIndex():
            if _index_exists(schema, change.name):
                raise DuplicateObject(f"index {change.name} already exists")
            if len(schema.tables_by_id[table_id].indexes) >= INDEXES_MAX:
                raise ProgramLimitExceeded(f"a table has at most {INDEXES_MAX} indexes")
        case RenameIndex():
            if change.name not in schema.indexes:
                raise UndefinedObject(f"index {change.name} does not exist")
            if _index_exists(schema, change.new_name):
                raise DuplicateObject(f"index {change.new_name} already exists")
        case DropIndex():
            if change.name not in schema.indexes:
                raise UndefinedObject(f"index {change.name} does not exist")
        case DropTable() | TruncateTable():
            pass


def _check_procedure(schema: Schema, change: ProcedureChange) -> None:
    name = None if isinstance(change, DropProcedure) else new_name_of(change)
    if name is not None and name in schema.procedures:
        raise DuplicateFunction(f"procedure {name} already exists")
    if not isinstance(change, CreateProcedure) and change.procedure_id not in schema.procedures_by_id:
        raise UndefinedFunction(f"procedure with id {change.procedure_id} does not exist")
    if isinstance(change, CreateProcedure) and len(schema.procedures) >= PROCEDURES_MAX:
        raise ProgramLimitExceeded(f"a cluster has at most {PROCEDURES_MAX} procedures")


def new_name_of(change: CreateProcedure | RenameProcedure) -> str:
    return change.name if isinstance(change, CreateProcedure) else change.new_name


def conflicts(catalog: Catalog, change: SchemaChange) -> bool:
    """Does it have to wait for a change that is under way, of its table or of a name that it takes?"""
    table_id, names = _table_of(change), set(claimed_names(change))
    return any(
        pending.table_id == table_id or not names.isdisjoint(pending.claimed_names)
        for pending in catalog.pending.values()
    )


def _index_exists(schema: Schema, name: str) -> bool:
    """Index names are unique in the cluster, those of primary keys too."""
    return name in schema.indexes or (name.endswith("_pkey") and name.removesuffix("_pkey") in schema.tables)


def _refuse_taken_key(schema: Schema, table_name: str) -> None:
    """Its primary key is an index, too, and has a name of its own."""
    name = f"{table_name}_pkey"
    if name in schema.indexes:
        raise DuplicateObject(f"index {name} already exists")


def _table_of(change: SchemaChange) -> TableId:
    """Or the procedure: they have their ids from the same count."""
    return TableId(object_of(change))


def claimed_names(change: SchemaChange) -> tuple[str, ...]:
    """The names that no other change may take while this one is pending."""
    match change:
        case CreateTable():
            return (f"table:{change.name}", f"index:{change.name}_pkey")
        case RenameTable():
            return (f"table:{change.new_name}", f"index:{change.new_name}_pkey")
        case CreateIndex():
            return (f"index:{change.name}",)
        case RenameIndex():
            return (f"index:{change.new_name}",)
        case CreateProcedure() | RenameProcedure():
            return (f"procedure:{new_name_of(change)}",)
        case _:
            return ()


# --- what a table becomes ------------------------------------------------------------------------


def after(schema: Schema, change: SchemaChange, version: int) -> Table | None:
    """The table as the committed change leaves it; None: there is none, it is dropped, or the change is of a procedure."""
    if isinstance(change, CreateTable):
        return _created(change, version)
    if isinstance(change, ProcedureChange):
        return None
    table = replace(schema.tables_by_id[_table_of(change)], operable=True)
    match change:
        case DropTable():
            return None
        case TruncateTable():
            return replace(table, version=version, generation=version)
        case RenameTable():
            return replace(table, version=version, name=change.new_name)
        case AddColumns():
            return _widened(table, change.columns, version)
        case RenameColumn():
            columns = tuple(
                replace(column, name=change.new_name) if column.name == change.column else column
                for column in table.columns
            )
            return replace(table, version=version, columns=columns)
        case CreateIndex():
            next_id = max((index.id for index in table.indexes), default=0) + 1
            index = Index(
                IndexId(next_id), change.name, change.unique, "tree", _parts(table, change.parts), version
            )
            return replace(table, version=version, indexes=(*table.indexes, index))
        case DropIndex():
            kept = tuple(index for index in table.indexes if index.name != change.name)
            return replace(table, version=version, indexes=kept)
        case RenameIndex():
            renamed = tuple(
                replace(index, name=change.new_name, version=version) if index.name == change.name else index
                for index in table.indexes
            )
            return replace(table, version=version, indexes=renamed)


def _created(change: CreateTable, version: int) -> Table:
    columns = tuple(
        Column(number, spec.name, type_of(spec.type), spec.nullable)
        for number, spec in enumerate(change.columns)
    )
    numbers = {column.name: column.number for column in columns}
    if change.sharding_key is None:
        distribution: Global | Sharded = Global()
    else:
        assert change.tier is not None, change
        numbers[BUCKET_ID_NAME] = BUCKET_ID
        key = tuple(numbers[name] for name in change.sharding_key)
        distribution = Sharded(key, TierName(change.tier), change.implicit)
    return Table(
        id=TableId(change.table_id),
        name=change.name,
        columns=columns,
        primary_key=tuple(KeyPart(numbers[part.column], part.descending) for part in change.primary_key),
        distribution=distribution,
        version=version,
        generation=version,
        engine=change.engine,
        owner=change.owner,
        unlogged=change.unlogged,
    )


def _widened(table: Table, specs: Iterable[ColumnSpec], version: int) -> Table:
    """Columns that may be NULL are added in place. One that may not is possible only while the table is
    empty (node/ddl.py sees to that), and then SQLite is better given a new table."""
    number = max(column.number for column in table.columns) + 1
    added = tuple(Column(number + i, s.name, type_of(s.type), s.nullable) for i, s in enumerate(specs))
    generation = table.generation if all(column.nullable for column in added) else version
    return replace(table, version=version, generation=generation, columns=(*table.columns, *added))


def _parts(table: Table, specs: Iterable[PartSpec]) -> tuple[KeyPart, ...]:
    return tuple(KeyPart(table.by_name[spec.column].number, spec.descending) for spec in specs)


def column_spec(column: Column) -> ColumnSpec:
    return ColumnSpec(column.name, sql_type(column.type), column.nullable)


# --- apply ---------------------------------------------------------------------------------------


def apply(catalog: Catalog, entry: Entry, index: int, term: int) -> Applied:
    match entry:
        case Nop():
            return Applied(catalog, ())
        case Dml():
            return Applied(_with_rights(_with_tiers(catalog, entry.changes), entry.changes), entry.changes)
        case Acl():
            return _changed_rights(catalog, entry, index)
        case DdlPrepare():
            return _prepare(catalog, entry, index, term)
        case DdlCommit():
            return _commit(catalog, catalog.pending[entry.version], index)
        case DdlAbort():
            return _abort(catalog, catalog.pending[entry.version], entry, index)


def _with_tiers(catalog: Catalog, changes: Iterable[RowChange]) -> Catalog:
    tiers = dict(catalog.schema.tiers)
    for change in changes:
        if change.table_id == PICO_TIER.id:
            name = TierName(change.key[0])
            tiers.pop(name, None)
            if change.row is not None:
                tiers[name] = tier_of_row(change.row)
    if tiers == catalog.schema.tiers:
        return catalog
    return replace(catalog, schema=replace(catalog.schema, tiers=tiers))


def _with_rights(catalog: Catalog, changes: Iterable[RowChange]) -> Catalog:
    rights = catalog.rights.changed(changes)
    return catalog if rights is catalog.rights else replace(catalog, rights=rights)


def _changed_rights(catalog: Catalog, entry: Acl, index: int) -> Applied:
    changes = [_stamped(change, index) for change in entry.rows]
    changes.append(_property("global_schema_version", index))
    changes.append(_property("next_schema_version", index + 1))
    if isinstance(entry.change, CreateUser | CreateRole):
        catalog = replace(catalog, next_user_id=entry.change.user_id + 1)
    rights = catalog.rights.changed(changes)
    schema = replace(catalog.schema, version=index)
    return Applied(replace(catalog, schema=schema, rights=rights), tuple(changes))


def _stamped(change: RowChange, version: int) -> RowChange:
    """With the version of the entry that it came by."""
    row = change.row
    if row is None:
        return change
    if change.table_id == PICO_USER.id:
        return RowChange(change.table_id, change.key, (*row[:2], version, *row[3:]))
    if change.table_id == PICO_PRIVILEGE.id:
        return RowChange(change.table_id, change.key, (*row[:5], version))
    return change


def _prepare(catalog: Catalog, entry: DdlPrepare, index: int, term: int) -> Applied:
    change = entry.change
    pending = Pending(index, term, _table_of(change), claimed_names(change), change, entry.user_id)
    row: Row = (
        pending.table_id,
        json_text(list(pending.claimed_names)),
        index,
        change_to_json(change),
        None,
        term,
        index,
        entry.user_id,
    )
    changes = [RowChange(PICO_PENDING_SCHEMA_CHANGE.id, (pending.table_id,), row)]
    schema, next_table_id = catalog.schema, catalog.next_table_id
    if isinstance(change, ProcedureChange):
        schema, blocked_row = _blocked_procedure(schema, change, index)
        changes.append(blocked_row)
    else:
        if isinstance(change, CreateTable):
            # Listed as not operable, but no statement can name it before it is committed.
            blocked = replace(_created(change, index), operable=False)
        else:
            blocked = replace(schema.tables_by_id[pending.table_id], operable=False)
            schema = schema.with_table(blocked, schema.version)
        changes.append(RowChange(PICO_TABLE.id, (blocked.id,), table_row(blocked)))
    if isinstance(change, CreateTable | CreateProcedure):
        next_table_id = max(next_table_id, pending.table_id + 1)
        changes.append(_property("next_table_id", next_table_id))
    changes.append(_property("next_schema_version", index + 1))
    left = {**catalog.pending, index: pending}
    changes += _oldest(left)
    prepared = replace(catalog, schema=schema, pending=left, next_table_id=next_table_id)
    return Applied(prepared, tuple(changes))


def _blocked_procedure(schema: Schema, change: ProcedureChange, version: int) -> tuple[Schema, RowChange]:
    if isinstance(change, CreateProcedure):
        procedure = procedures.becomes(schema, change, version)
        assert procedure is not None
        return schema, procedures.procedure_change(replace(procedure, operable=False))
    blocked = replace(schema.procedures_by_id[change.procedure_id], operable=False)
    return schema.with_procedure(blocked, schema.version), procedures.procedure_change(blocked)


def _commit(catalog: Catalog, pending: Pending, index: int) -> Applied:
    schema = catalog.schema
    if isinstance(pending.change, ProcedureChange):
        return _commit_procedure(catalog, pending, pending.change, index)
    before = schema.tables_by_id.get(pending.table_id)
    committed = after(schema, pending.change, pending.version)
    # Changes of different tables may end in either order; the schema's version never goes back.
    version = max(schema.version, pending.version)
    if committed is not None:
        schema = schema.with_table(committed, version)
    else:
        schema = schema.without_table(pending.table_id, version)
    ended, changes = _ended(catalog, pending, None, index)
    changes += [*_rows(before, committed), _property("global_schema_version", version)]
    if committed is None:
        changes += _grants_on(catalog.rights, ObjectType.TABLE, pending.table_id)
    rights = catalog.rights.changed(changes)
    is_global = committed is not None and not committed.is_sharded
    return Applied(
        replace(ended, schema=schema, rights=rights), tuple(changes), committed if is_global else None
    )


def _commit_procedure(catalog: Catalog, pending: Pending, change: ProcedureChange, index: int) -> Applied:
    version = max(catalog.schema.version, pending.version)
    committed = procedures.becomes(catalog.schema, change, pending.version)
    ended, changes = _ended(catalog, pending, None, index)
    if committed is not None:
        schema = catalog.schema.with_procedure(committed, version)
        changes.append(procedures.procedure_change(committed))
    else:
        schema = catalog.schema.without_procedure(pending.table_id, version)
        changes.append(RowChange(PICO_ROUTINE.id, (pending.table_id,), None))
        changes += _grants_on(catalog.rights, ObjectType.PROCEDURE, pending.table_id)
    changes.append(_property("global_schema_version", version))
    return Applied(replace(ended, schema=schema, rights=catalog.rights.changed(changes)), tuple(changes))


def _grants_on(rights: Rights, object_type: ObjectType, object_id: int) -> list[RowChange]:
    """They go with the object."""
    return [
        revoke_change(grantee, held)
        for grantee, all_held in sorted(rights.grants.items())
        for held in sorted(all_held)
        if held.object_type == object_type and held.object_id == object_id
    ]


def _abort(catalog: Catalog, pending: Pending, entry: DdlAbort, index: int) -> Applied:
    schema = catalog.schema
    ended, changes = _ended(catalog, pending, entry, index)
    if isinstance(pending.change, CreateTable):
        changes.append(RowChange(PICO_TABLE.id, (pending.table_id,), None))
    elif isinstance(pending.change, CreateProcedure):
        changes.append(RowChange(PICO_ROUTINE.id, (pending.table_id,), None))
    elif isinstance(pending.change, ProcedureChange):
        procedure = replace(schema.procedures_by_id[pending.table_id], operable=True)
        schema = schema.with_procedure(procedure, schema.version)
        changes.append(procedures.procedure_change(procedure))
    else:
        restored = replace(schema.tables_by_id[pending.table_id], operable=True)
        schema = schema.with_table(restored, schema.version)
        changes.append(RowChange(PICO_TABLE.id, (restored.id,), table_row(restored)))
    return Applied(replace(ended, schema=schema), tuple(changes))


def _ended(
    catalog: Catalog, pending: Pending, aborted: DdlAbort | None, index: int
) -> tuple[Catalog, list[RowChange]]:
    """It isn't under way any more, and how it ended is told to whoever asks later."""
    left = {version: other for version, other in catalog.pending.items() if version != pending.version}
    made = Ended(pending.version, pending.term, pending.table_id, aborted, index)
    ended = {**catalog.ended, pending.version: made}
    changes = [
        RowChange(PICO_PENDING_SCHEMA_CHANGE.id, (pending.table_id,), None),
        *_oldest(left),
        RowChange(PICO_ENDED_SCHEMA_CHANGE.id, (pending.version,), _ended_row(made)),
    ]
    while len(ended) > ENDED_MAX:
        forgotten = next(iter(ended))
        del ended[forgotten]
        changes.append(RowChange(PICO_ENDED_SCHEMA_CHANGE.id, (forgotten,), None))
    return replace(catalog, pending=left, ended=ended), changes


def _oldest(pending: Mapping[int, Pending]) -> list[RowChange]:
    """The properties that show the oldest of the changes under way."""
    version = min(pending, default=None)
    change = None if version is None else msgspec.json.decode(change_to_json(pending[version].change))
    return [_property("pending_schema_change", change), _property("pending_schema_version", version)]


def _ended_row(ended: Ended) -> Row:
    why = ended.aborted
    told = (
        ("committed", None, None, None) if why is None else ("aborted", why.sqlstate, why.cause, why.detail)
    )
    return (ended.version, ended.table_id, *told, ended.term, ended.index)


def _ended_of_row(row: Row) -> Ended:
    version, table_id, outcome, sqlstate, cause, detail, term, index = row
    aborted = None
    if outcome != "committed":
        aborted = DdlAbort(
            cast(int, version), cast(str, sqlstate), cast(str, cause), cast("str | None", detail)
        )
    return Ended(cast(int, version), cast(int, term), TableId(cast(int, table_id)), aborted, cast(int, index))


def _rows(before: Table | None, committed: Table | None) -> list[RowChange]:
    """The difference in _pico_table and _pico_index."""
    changes: list[RowChange] = []
    old = {row[:2]: row for row in index_rows(before)} if before is not None else {}
    new = {row[:2]: row for row in index_rows(committed)} if committed is not None else {}
    # Deletes first: a name that one index gives up may be another's.
    changes += [RowChange(PICO_INDEX.id, key, None) for key in old if key not in new]
    if committed is None:
        assert before is not None
        changes.append(RowChange(PICO_TABLE.id, (before.id,), None))
    else:
        changes.append(RowChange(PICO_TABLE.id, (committed.id,), table_row(committed)))
    changes += [RowChange(PICO_INDEX.id, key, row) for key, row in new.items() if old.get(key) != row]
    return changes


def _property(key: str, value: object | None) -> RowChange:
    row = None if value is None else (key, json_text(value))
    return RowChange(PICO_PROPERTY.id, (key,), row)


# --- from rows -----------------------------------------------------------------------------------


def catalog_of_rows(rows: Mapping[TableId, Iterable[Row]]) -> Catalog:
    """The catalog that the system tables' rows add up to: at start, or from a snapshot."""
    pending: dict[int, Pending] = {}
    for row in rows[PICO_PENDING_SCHEMA_CHANGE.id]:
        table_id, _, version, ddl, _, term, _, user_id = row
        assert isinstance(ddl, str) and isinstance(version, int) and isinstance(term, int)
        assert isinstance(table_id, int) and isinstance(user_id, int)
        change = change_from_json(ddl)
        names = claimed_names(change)
        pending[version] = Pending(version, term, TableId(table_id), names, change, user_id)
    unborn = {p.table_id for p in pending.values() if isinstance(p.change, CreateTable)}
    tables = tables_of_rows((row for row in rows[PICO_TABLE.id] if row[0] not in unborn), rows[PICO_INDEX.id])
    properties = {row[0]: row[1] for row in rows[PICO_PROPERTY.id]}
    version = properties.get("global_schema_version", "0")
    assert isinstance(version, str)
    listed = {table.id: table for table in tables} | {table.id: table for table in SYSTEM_TABLES}
    tiers = [tier_of_row(row) for row in rows[PICO_TIER.id]]
    unborn = {p.table_id for p in pending.values() if isinstance(p.change, CreateProcedure)}
    known = [procedures.procedure_of_row(row) for row in rows[PICO_ROUTINE.id] if row[0] not in unborn]
    schema = Schema(
        int(version),
        {table.name: table for table in listed.values()},
        {tier.name: tier for tier in tiers},
        {procedure.name: procedure for procedure in known},
    )
    next_table_id = properties.get("next_table_id", str(FIRST_USER_TABLE_ID))
    next_user_id = properties.get("next_user_id", str(FIRST_USER_ID))
    assert isinstance(next_table_id, str) and isinstance(next_user_id, str)
    ended = sorted(map(_ended_of_row, rows[PICO_ENDED_SCHEMA_CHANGE.id]), key=lambda ended: ended.index)
    return Catalog(
        schema,
        pending,
        {each.version: each for each in ended},
        int(next_table_id),
        rights_of_rows(rows[PICO_USER.id], rows[PICO_PRIVILEGE.id]),
        int(next_user_id),
    )
