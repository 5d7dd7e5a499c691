"""Schema statements: what a CREATE, ALTER, DROP or TRUNCATE asks of the catalog.

Here: bind_ddl(), from the syntax tree to a SchemaChange, with every check that needs the statement's own
words and positions.
Not here: conflicts with other changes (catalog/apply.py checks those when the change is proposed),
carrying it out (node/ddl.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from shoal.catalog.entries import (
    AddColumns,
    ColumnSpec,
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    PartSpec,
    RenameColumn,
    RenameIndex,
    RenameTable,
    SchemaChange,
    TruncateTable,
)
from shoal.catalog.rights import Privilege
from shoal.catalog.schema import BUCKET_ID, BUCKET_ID_NAME, Schema, Sharded, Table
from shoal.catalog.system import sql_type
from shoal.errors import (
    DuplicateColumn,
    DuplicateObject,
    DuplicateTable,
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidObjectDefinition,
    InvalidTableDefinition,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
)
from shoal.sql import ast
from shoal.sql.bind.binding import Permit, error_at, everything
from shoal.types.sqltype import SqlType, array_of, type_of_name

__all__ = ["bind_ddl", "resolve_type"]

RESERVED_PREFIX = "_pico_"

DdlStatement = (
    ast.CreateTable
    | ast.AlterTable
    | ast.DropTable
    | ast.Truncate
    | ast.CreateIndex
    | ast.DropIndex
    | ast.RenameIndex
)


def resolve_type(name: ast.TypeName) -> SqlType:
    """The type of a column definition."""
    found = type_of_name(name.name, name.arguments, in_ddl=True)
    if found is None:
        raise UndefinedObject(f'type "{name.name}" does not exist', position=name.at + 1)
    if not name.is_array:
        return found
    if found.unsigned:
        raise FeatureNotSupported(
            "TypeUnsigned cannot be used as an array element type", position=name.at + 1
        )
    return array_of(found)


def bind_ddl(
    statement: DdlStatement,
    schema: Schema,
    owner: int,
    next_table_id: int,
    *,
    permit: Permit = everything,
) -> tuple[SchemaChange, ...]:
    """The changes that the statement asks for, in order; () when IF [NOT] EXISTS made it a no-op.

    `permit` is asked before errors could tell somebody what is in a table that he may not touch; the rights that count
    are looked at when the change is proposed (catalog/rights.py).
    """
    target = _target(statement, schema)
    if target is not None:
        with error_at(target[1].at):
            permit(_NEEDED[type(statement)], target[0])
    match statement:
        case ast.CreateTable():
            return _create_table(statement, schema, owner, next_table_id)
        case ast.AlterTable():
            return _alter_table(statement, schema)
        case ast.DropTable():
            table = schema.tables.get(statement.table.text)
            if table is None and statement.if_exists:
                return ()
            return (DropTable(_table(schema, statement.table).id),)
        case ast.Truncate():
            return (TruncateTable(_table(schema, statement.table).id),)
        case ast.CreateIndex():
            return _create_index(statement, schema)
        case ast.DropIndex():
            found = _index(schema, statement.name, statement.if_exists)
            return () if found is None else (DropIndex(found.id, statement.name.text),)
        case ast.RenameIndex():
            found = _index(schema, statement.name, statement.if_exists)
            if found is None:
                return ()
            return (RenameIndex(found.id, statement.name.text, statement.new_name.text),)


_NEEDED: Final[Mapping[type, Privilege]] = {
    ast.AlterTable: Privilege.ALTER,
    ast.DropTable: Privilege.DROP,
    ast.Truncate: Privilege.WRITE,
    ast.CreateIndex: Privilege.CREATE,
    ast.DropIndex: Privilege.DROP,
    ast.RenameIndex: Privilege.ALTER,
}


def _target(statement: DdlStatement, schema: Schema) -> tuple[Table, ast.Name] | None:
    """The table that it would change, if it is there, and where that is said."""
    match statement:
        case ast.CreateTable():
            return None
        case ast.DropIndex() | ast.RenameIndex():
            found = schema.indexes.get(statement.name.text)
            return None if found is None or found[0].system else (found[0], statement.name)
        case _:
            named = schema.tables.get(statement.table.text)
            return None if named is None or named.system else (named, statement.table)


def _table(schema: Schema, name: ast.Name) -> Table:
    table = schema.tables.get(name.text)
    if table is None:
        raise UndefinedTable(f"table {name.text} does not exist", position=name.at + 1)
    if table.system:
        raise InsufficientPrivilege(
            f"{name.text} is a system table: it can't be changed", position=name.at + 1
        )
    return table


def _index(schema: Schema, name: ast.Name, if_exists: bool) -> Table | None:
    """The table of an index."""
    found = schema.indexes.get(name.text)
    if found is not None:
        if found[0].system:
            raise InsufficientPrivilege(
                f"{name.text} belongs to a system table: it can't be changed", position=name.at + 1
            )
        return found[0]
    owner = schema.tables.get(name.text.removesuffix("_pkey"))
    if owner is not None and name.text.endswith("_pkey"):
        raise FeatureNotSupported(
            f"{name.text} is the primary key of table {owner.name}: it lives and dies with the table",
            position=name.at + 1,
        )
    if if_exists:
        return None
    raise UndefinedObject(f"index {name.text} does not exist", position=name.at + 1)


# --- CREATE TABLE --------------------------------------------------------------------------------


def _create_table(
    statement: ast.CreateTable, schema: Schema, owner: int, next_table_id: int
) -> tuple[SchemaChange, ...]:
    name = statement.name.text
    if name in schema.tables:
        if statement.if_not_exists:
            return ()
        raise DuplicateTable(f"table {name} already exists", position=statement.name.at + 1)
    if name.startswith(RESERVED_PREFIX):
        raise InsufficientPrivilege(
            f'names beginning with "{RESERVED_PREFIX}" are for system tables', position=statement.name.at + 1
        )
    engine = _engine(statement)
    is_global = isinstance(statement.distribution, ast.DistributedGlobally)
    types = _column_types(statement.columns, is_global)
    primary_key = _primary_key(statement, types)
    key_names = [part.column.text for part in primary_key]
    _check_bucket_key(statement, key_names, is_global)
    sharding_key, tier, implicit = None, None, False
    if is_global:
        if statement.unlogged:
            raise InvalidTableDefinition("Global tables can't be unlogged.", position=statement.at + 1)
        if engine != "memtx":
            raise InvalidTableDefinition("Global tables can use only memtx engine", position=statement.at + 1)
    else:
        sharding_key, tier, implicit = _sharding(statement, schema, types, key_names)
        if statement.unlogged and engine != "memtx":
            raise InvalidTableDefinition(
                "Unlogged tables can use only memtx engine.", position=statement.at + 1
            )
    columns = tuple(
        ColumnSpec(
            column.name.text,
            sql_type(types[column.name.text]),
            column.nullable is not False and column.name.text not in key_names,
        )
        for column in statement.columns
    )
    return (
        CreateTable(
            table_id=next_table_id,
            name=name,
            columns=columns,
            primary_key=tuple(PartSpec(part.column.text, part.descending) for part in primary_key),
            sharding_key=sharding_key,
            implicit=implicit,
            tier=tier,
            engine=engine,
            unlogged=statement.unlogged,
            owner=owner,
        ),
    )


def _engine(statement: ast.CreateTable) -> str:
    """MEMTX and VINYL both mean SQLite here; the word is kept, options that would do nothing are refused."""
    if statement.with_options:
        option = statement.with_options[0][0]
        raise FeatureNotSupported(
            f"table option {option.text} does nothing in Shoal: leave it out", position=option.at + 1
        )
    if statement.engine is None:
        return "memtx"
    if statement.engine.text not in ("memtx", "vinyl"):
        raise FeatureNotSupported(
            f"unknown engine {statement.engine.text}: memtx and vinyl are accepted",
            position=statement.engine.at + 1,
        )
    return statement.engine.text


def _column_types(columns: Iterable[ast.ColumnDef], is_global: bool) -> dict[str, SqlType]:
    types: dict[str, SqlType] = {}
    for column in columns:
        name = column.name.text
        if name == BUCKET_ID_NAME and not is_global:
            raise InvalidTableDefinition(
                "invalid column: bucket_id is reserved for system use in sharded tables. Choose another name.",
                position=column.name.at + 1,
            )
        if name in types:
            raise DuplicateColumn(f"column {name} already exists", position=column.name.at + 1)
        types[name] = resolve_type(column.type)
    return types


def _primary_key(statement: ast.CreateTable, types: dict[str, SqlType]) -> tuple[ast.KeyPart, ...]:
    inline = [column for column in statement.columns if column.primary_key]
    if len(inline) > 1 or (inline and statement.primary_key is not None):
        raise InvalidTableDefinition("Primary key has been already declared", position=inline[-1].at + 1)
    if inline:
        parts: tuple[ast.KeyPart, ...] = (ast.KeyPart(inline[0].name, inline[0].descending),)
    elif statement.primary_key:
        parts = statement.primary_key
    else:
        raise InvalidTableDefinition("Primary key must be declared", position=statement.at + 1)
    nullable = {column.name.text for column in statement.columns if column.nullable is True}
    seen: set[str] = set()
    for part in parts:
        name = part.column.text
        if name in seen:
            raise DuplicateColumn(
                f"column {name} stands twice in the primary key", position=part.column.at + 1
            )
        seen.add(name)
        if name == BUCKET_ID_NAME and name not in types:
            continue
        if name not in types:
            raise UndefinedColumn(f"Primary key column {name} not found", position=part.column.at + 1)
        if name in nullable:
            raise InvalidTableDefinition(
                "Primary key mustn't contain nullable columns", position=part.column.at + 1
            )
        if not types[name].is_scalar:
            raise InvalidTableDefinition(
                f"Primary key column {name} is not of scalar type.", position=part.column.at + 1
            )
    return parts


def _check_bucket_key(statement: ast.CreateTable, key: list[str], is_global: bool) -> None:
    if BUCKET_ID_NAME not in key or any(c.name.text == BUCKET_ID_NAME for c in statement.columns):
        return
    problem = None
    if is_global:
        problem = "bucket_id belongs to sharded tables; a global table has none."
    elif key[0] != BUCKET_ID_NAME:
        problem = "Primary key must include bucket_id as first column."
    elif len(key) == 1:
        problem = "Primary key must include at least one column in addition to bucket_id."
    if problem is not None:
        raise InvalidTableDefinition(f"invalid primary key: {problem}", position=statement.at + 1)


def _sharding(
    statement: ast.CreateTable, schema: Schema, types: dict[str, SqlType], key: list[str]
) -> tuple[tuple[str, ...], str, bool]:
    said = statement.distribution
    assert said is None or isinstance(said, ast.DistributedBy)
    tier = schema.default_tier
    if said is not None and said.tier is not None:
        named = next((t for t in schema.tiers.values() if t.name == said.tier.text), None)
        if named is None:
            raise UndefinedObject(
                f'specified tier "{said.tier.text}" doesn\'t exist', position=said.tier.at + 1
            )
        tier = named
    if not tier.bucket_count:
        at = statement.at if said is None or said.tier is None else said.tier.at
        raise InvalidTableDefinition(
            f"tier {tier.name} has no buckets: it holds no rows of sharded tables", position=at + 1
        )
    if said is None or not said.columns:
        return tuple(name for name in key if name != BUCKET_ID_NAME), tier.name, True
    seen: set[str] = set()
    for column in said.columns:
        name = column.text
        if name not in types:
            raise UndefinedColumn(f"Sharding key column {name} not found", position=column.at + 1)
        if name in seen:
            raise DuplicateColumn(f"column {name} stands twice in the sharding key", position=column.at + 1)
        seen.add(name)
        if not types[name].is_scalar:
            raise InvalidTableDefinition(
                f"Sharding key column {name} is not of scalar type.", position=column.at + 1
            )
    return tuple(column.text for column in said.columns), tier.name, False


# --- ALTER TABLE, CREATE INDEX -------------------------------------------------------------------


def _alter_table(statement: ast.AlterTable, schema: Schema) -> tuple[SchemaChange, ...]:
    if statement.if_exists and statement.table.text not in schema.tables:
        return ()
    table = _table(schema, statement.table)
    first = statement.actions[0]
    match first:
        case ast.RenameTable():
            new_name = first.new_name
            if new_name.text in schema.tables:
                raise DuplicateTable(f"table {new_name.text} already exists", position=new_name.at + 1)
            if new_name.text.startswith(RESERVED_PREFIX):
                raise InsufficientPrivilege(
                    f'names beginning with "{RESERVED_PREFIX}" are for system tables',
                    position=new_name.at + 1,
                )
            return (RenameTable(table.id, new_name.text),)
        case ast.RenameColumn():
            if first.column.text not in table.by_name:
                raise UndefinedColumn(
                    f"column {first.column.text} does not exist", position=first.column.at + 1
                )
            if table.is_sharded and BUCKET_ID_NAME in (first.column.text, first.new_name.text):
                raise InvalidTableDefinition(
                    "bucket_id is reserved for system use in sharded tables.", position=first.column.at + 1
                )
            if first.new_name.text in table.by_name:
                raise DuplicateColumn(
                    f"column {first.new_name.text} already exists", position=first.new_name.at + 1
                )
            return (RenameColumn(table.id, first.column.text, first.new_name.text),)
        case ast.AddColumn():
            return _add_columns(statement, table)


def _add_columns(statement: ast.AlterTable, table: Table) -> tuple[SchemaChange, ...]:
    specs: list[ColumnSpec] = []
    names = set(table.by_name)
    for action in statement.actions:
        assert isinstance(action, ast.AddColumn), action
        column = action.column
        name = column.name.text
        if name in names:
            if action.if_not_exists:
                continue
            if name == BUCKET_ID_NAME:
                raise InvalidTableDefinition(
                    "invalid column: bucket_id is reserved for system use in sharded tables. "
                    "Choose another name.",
                    position=column.name.at + 1,
                )
            raise DuplicateColumn(f"column {name} already exists", position=column.name.at + 1)
        if column.primary_key:
            raise FeatureNotSupported(
                "a primary key can't be added to a table that has one", position=column.at + 1
            )
        names.add(name)
        specs.append(ColumnSpec(name, sql_type(resolve_type(column.type)), column.nullable is not False))
    return (AddColumns(table.id, tuple(specs)),) if specs else ()


def _create_index(statement: ast.CreateIndex, schema: Schema) -> tuple[SchemaChange, ...]:
    name = statement.name.text
    table = _table(schema, statement.table)
    taken = name in schema.indexes or name in (f"{other}_pkey" for other in schema.tables)
    if taken:
        if statement.if_not_exists:
            return ()
        raise DuplicateObject(f"index {name} already exists", position=statement.name.at + 1)
    _check_method(statement)
    seen: set[str] = set()
    numbers: list[int] = []
    for part in statement.parts:
        column = table.by_name.get(part.column.text)
        if column is None:
            raise UndefinedColumn(f"column {part.column.text} does not exist", position=part.column.at + 1)
        if column.name in seen:
            raise DuplicateColumn(
                f"column {column.name} stands twice in the index", position=part.column.at + 1
            )
        if not column.type.is_scalar:
            raise InvalidObjectDefinition(
                f"index type tree does not support column type {column.type.error_name}",
                position=part.column.at + 1,
            )
        seen.add(column.name)
        numbers.append(column.number)
    if statement.unique and isinstance(table.distribution, Sharded):
        _check_unique_covers_sharding_key(statement, numbers, table.distribution)
    parts = tuple(PartSpec(part.column.text, part.descending) for part in statement.parts)
    return (CreateIndex(table.id, name, statement.unique, parts),)


def _check_method(statement: ast.CreateIndex) -> None:
    if statement.with_options:
        option = statement.with_options[0][0]
        raise FeatureNotSupported(
            f"index option {option.text} does nothing in Shoal: leave it out", position=option.at + 1
        )
    method = statement.method
    if method is None or method.text in ("tree", "btree"):
        return
    if method.text == "hash" and not statement.unique:
        raise FeatureNotSupported(
            "index type hash does not support non-unique indexes", position=method.at + 1
        )
    raise FeatureNotSupported(
        f"index type {method.text} is not supported: every index is a tree", position=method.at + 1
    )


def _check_unique_covers_sharding_key(
    statement: ast.CreateIndex, numbers: list[int], distribution: Sharded
) -> None:
    """Two shards can't see each other's rows, so equal keys must live in one bucket."""
    if tuple(numbers[: len(distribution.key)]) == distribution.key:
        return
    if numbers[0] == BUCKET_ID and tuple(numbers[1 : 1 + len(distribution.key)]) == distribution.key:
        return
    raise InvalidObjectDefinition(
        "unique index for the sharded table must include all sharding key columns as a prefix",
        position=statement.at + 1,
    )
