"""The system tables: the catalog as rows, readable over SQL from any instance.

Here: their definitions, and the way between a schema's objects and the rows of _pico_table, _pico_index
and _pico_tier.
Not here: which log entry changes which rows (apply.py), where the rows lie (storage/catalog_db.py).

Their ids, names and columns are those that Picodata's users know; what is ours stands behind theirs.
Their own definitions aren't rows that could be changed, but they are listed in _pico_table like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec

from shoal.catalog.schema import (
    BUCKET_ID,
    BUCKET_ID_NAME,
    Column,
    Distribution,
    Global,
    Index,
    IndexId,
    KeyPart,
    Sharded,
    Table,
    TableId,
    Tier,
    TierName,
)
from shoal.types.sqltype import (
    ANY,
    ARRAY,
    BOOLEAN,
    DATETIME,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UNSIGNED,
    Kind,
    SqlType,
    array_of,
    type_of_name,
)
from shoal.types.values import Stored

Row = tuple[Stored, ...]

_json = msgspec.json.Encoder(order="deterministic")

TYPES: Final[Mapping[str, SqlType]] = {
    "string": TEXT,
    "unsigned": UNSIGNED,
    "integer": INT,
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "datetime": DATETIME,
    "map": JSON,
    "array": ARRAY,
    "any": ANY,
}


def _define(table_id: int, name: str, columns: str, key: str, description: str, *unique: str) -> Table:
    """A system table from a short notation: `name type` or `name type?`, comma-separated."""
    made: list[Column] = []
    for number, part in enumerate(columns.split(",")):
        column, type_name = part.split()
        made.append(Column(number, column, TYPES[type_name.rstrip("?")], type_name.endswith("?")))
    numbers = {column.name: column.number for column in made}
    return Table(
        id=TableId(table_id),
        name=name,
        columns=tuple(made),
        primary_key=tuple(KeyPart(numbers[part]) for part in key.split()),
        distribution=Global(),
        version=0,
        generation=0,
        description=description,
        system=True,
        indexes=tuple(
            Index(
                IndexId(position),
                f"{name}_{'_'.join(parts.split())}",
                unique=True,
                method="tree",
                parts=tuple(KeyPart(numbers[part]) for part in parts.split()),
                version=0,
            )
            for position, parts in enumerate(unique, start=1)
        ),
    )


PICO_TABLE: Final = _define(
    512,
    "_pico_table",
    "id unsigned,name string,distribution map,format array,schema_version unsigned,operable boolean,"
    "engine string,owner unsigned,description string,opts array?",
    "id",
    "every table",
    "name",
)
PICO_INDEX: Final = _define(
    513,
    "_pico_index",
    "table_id unsigned,id unsigned,name string,type string,opts array,parts array,operable boolean,"
    "schema_version unsigned",
    "table_id id",
    "every index; id 0 is the primary key",
    "name",
)
PICO_PEER_ADDRESS: Final = _define(
    514,
    "_pico_peer_address",
    "raft_id unsigned,address string,connection_type string",
    "raft_id connection_type",
    "where instances listen: iproto, pgproto, http",
)
PICO_INSTANCE: Final = _define(
    515,
    "_pico_instance",
    "name string,uuid string,raft_id unsigned,replicaset_name string,replicaset_uuid string,"
    "current_state array,target_state array,failure_domain map,tier string,picodata_version string,"
    "sync_incarnation unsigned?,target_state_reason string?,target_state_change_time datetime?",
    "name",
    "the members of the cluster",
    "uuid",
    "raft_id",
)
PICO_PROPERTY: Final = _define(
    516, "_pico_property", "key string,value any?", "key", "the state of the cluster as a whole"
)
PICO_REPLICASET: Final = _define(
    517,
    "_pico_replicaset",
    "name string,uuid string,current_master_name string,target_master_name string,tier string,"
    "weight double,weight_origin string,state string,current_config_version unsigned,"
    "target_config_version unsigned,promotion_vclock map,master_change_counter unsigned?,"
    "current_bucket_state_version unsigned?,target_bucket_state_version unsigned?,in_sync array?",
    "name",
    "replicasets, their masters and the members that have every acknowledged write",
    "uuid",
)
PICO_USER: Final = _define(
    520,
    "_pico_user",
    "id unsigned,name string,schema_version unsigned,auth array?,owner unsigned,type string",
    "id",
    "users and roles; auth is [method, secret]",
    "name",
)
PICO_PRIVILEGE: Final = _define(
    521,
    "_pico_privilege",
    "grantor_id unsigned,grantee_id unsigned,privilege string,object_type string,object_id integer,"
    "schema_version unsigned",
    "grantee_id object_type object_id privilege",
    "grants; object_id -1 is every object of the type",
)
PICO_GOVERNOR_QUEUE: Final = _define(
    522,
    "_pico_governor_queue",
    "id unsigned,batch_id string,op string,op_format string,status string,status_description string,"
    "kind string,description string",
    "id",
    "operations that the governor runs one by one",
)
PICO_TIER: Final = _define(
    523,
    "_pico_tier",
    "name string,replication_factor unsigned,can_vote boolean,current_vshard_config_version unsigned,"
    "target_vshard_config_version unsigned,vshard_bootstrapped boolean,bucket_count unsigned,"
    "is_default boolean?,current_bucket_state_version unsigned?,target_bucket_state_version unsigned?",
    "name",
    "tiers",
)
PICO_ROUTINE: Final = _define(
    524,
    "_pico_routine",
    "id unsigned,name string,kind string,params array,returns array,language string,body string,"
    "security string,operable boolean,schema_version unsigned,owner unsigned",
    "id",
    "stored procedures",
    "name",
)
PICO_DB_CONFIG: Final = _define(
    531, "_pico_db_config", "key string,scope string,value any?", "key scope", "what ALTER SYSTEM set"
)
PICO_BUCKET: Final = _define(
    533,
    "_pico_bucket",
    "tier_name string,bucket_id_start unsigned,bucket_id_end unsigned,state string,"
    "current_replicaset_name string,target_replicaset_name string?",
    "tier_name bucket_id_start",
    "which replicaset owns which range of buckets",
)
PICO_PENDING_SCHEMA_CHANGE: Final = _define(
    600,
    "_pico_pending_schema_change",
    "table_id unsigned,claimed_names array,schema_version unsigned,ddl map,governor_op_id unsigned?,"
    "term unsigned,index unsigned,user_id unsigned",
    "table_id",
    "schema changes that are prepared and neither committed nor aborted",
)
PICO_ENDED_SCHEMA_CHANGE: Final = _define(
    601,
    "_pico_ended_schema_change",
    "schema_version unsigned,table_id unsigned,outcome string,sqlstate string?,cause string?,detail string?,"
    "term unsigned,index unsigned",
    "schema_version",
    "how the latest schema changes ended: committed, or aborted and why",
)

SYSTEM_TABLES: Final = (
    PICO_TABLE,
    PICO_INDEX,
    PICO_PEER_ADDRESS,
    PICO_INSTANCE,
    PICO_PROPERTY,
    PICO_REPLICASET,
    PICO_USER,
    PICO_PRIVILEGE,
    PICO_GOVERNOR_QUEUE,
    PICO_TIER,
    PICO_ROUTINE,
    PICO_DB_CONFIG,
    PICO_BUCKET,
    PICO_PENDING_SCHEMA_CHANGE,
    PICO_ENDED_SCHEMA_CHANGE,
)

# The rows of _pico_property that schema changes write.
SCHEMA_PROPERTIES: Final = (
    "global_schema_version",
    "next_schema_version",
    "next_table_id",
    "pending_schema_change",
    "pending_schema_version",
)


def json_text(value: object) -> str:
    """The storage form of a JSON value."""
    return _json.encode(value).decode()


# --- tables as rows ------------------------------------------------------------------------------

_FIELD_TYPES: Final[Mapping[Kind, str]] = {
    Kind.INT: "integer",
    Kind.DOUBLE: "double",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "string",
    Kind.BOOLEAN: "boolean",
    Kind.UUID: "uuid",
    Kind.DATETIME: "datetime",
    Kind.JSON: "map",
    Kind.ANY: "any",
}


def field_type(column_type: SqlType) -> str:
    """The type as `format` and index parts name it."""
    if column_type.is_array:
        return "array"
    return "unsigned" if column_type.unsigned else _FIELD_TYPES[column_type.kind]


class _Field(msgspec.Struct):
    """One of `format`: Picodata's three keys, and the two that we need to read a column back."""

    name: str
    field_type: str
    is_nullable: bool
    number: int
    sql_type: str = ""


def table_row(table: Table) -> Row:
    """The row of _pico_table. `format` lists bucket_id where Picodata has it: behind the primary key."""
    formatted = [
        _Field(column.name, field_type(column.type), column.nullable, column.number, sql_type(column.type))
        for column in table.columns
    ]
    if table.is_sharded:
        keys = set(table.key_numbers)
        last = max((i for i, column in enumerate(table.columns) if column.number in keys), default=-1)
        formatted.insert(last + 1, _Field(BUCKET_ID_NAME, "unsigned", False, BUCKET_ID, "unsigned"))
    options: list[dict[str, object]] = [{"generation": [table.generation]}]
    if table.unlogged:
        options.append({"unlogged": [True]})
    if table.key_has_bucket:
        options.append({"pk_contains_bucket_id": [True]})
    return (
        table.id,
        table.name,
        json_text(_distribution_document(table)),
        json_text(formatted),
        table.version,
        int(table.operable),
        table.engine,
        table.owner,
        table.description,
        json_text(options),
    )


def sql_type(column_type: SqlType) -> str:
    if column_type.kind is Kind.ANY:
        return "any[]" if column_type.is_array else "any"
    return column_type.sql_name


def type_of(spelled: str) -> SqlType:
    bare = spelled.removesuffix("[]")
    name, _, rest = bare.partition("(")
    arguments = tuple(int(part) for part in rest.rstrip(")").split(",")) if rest else ()
    found = ANY if name == "any" else type_of_name(name, arguments, in_ddl=True)
    assert found is not None, spelled
    return array_of(found) if spelled.endswith("[]") else found


def _distribution_document(table: Table) -> object:
    if isinstance(table.distribution, Global):
        return {"Global": None}
    names = [table.by_number[number].name for number in table.distribution.key]
    kind = "ShardedImplicitly" if table.distribution.implicit else "ShardedByKey"
    return {kind: [names, "murmur3", table.distribution.tier]}


def index_rows(table: Table) -> tuple[Row, ...]:
    """The rows of _pico_index: the primary key as id 0, then the others."""
    rows = [
        _index_row(
            table, 0, f"{table.name}_pkey", True, "tree", table.primary_key, table.version, table.operable
        )
    ]
    rows += [
        _index_row(table, i.id, i.name, i.unique, i.method, i.parts, i.version, i.operable)
        for i in table.indexes
    ]
    return tuple(rows)


def _index_row(
    table: Table,
    index_id: int,
    name: str,
    unique: bool,
    method: str,
    parts: Sequence[KeyPart],
    version: int,
    operable: bool,
) -> Row:
    described = []
    for part in parts:
        column = table.by_number[part.column]
        described.append(
            [column.name, field_type(column.type), None, column.nullable, None, *(["desc"] * part.descending)]
        )
    options = [{"unique": unique}]
    return (
        table.id,
        index_id,
        name,
        method,
        json_text(options),
        json_text(described),
        int(operable),
        version,
    )


def tier_row(tier: Tier) -> Row:
    return (
        tier.name,
        tier.replication_factor,
        int(tier.can_vote),
        1,
        1,
        1,
        tier.bucket_count,
        int(tier.is_default),
        1,
        1,
    )


# --- rows as tables ------------------------------------------------------------------------------


def tables_of_rows(table_rows: Iterable[Row], rows_of_indexes: Iterable[Row]) -> list[Table]:
    """The tables that the rows of _pico_table and _pico_index describe; system tables come from here."""
    indexes: dict[int, list[Row]] = {}
    for row in rows_of_indexes:
        indexes.setdefault(cast(int, row[0]), []).append(row)
    system = {table.id: table for table in SYSTEM_TABLES}
    return [
        system.get(TableId(cast(int, row[0]))) or _table_of_row(row, indexes.get(cast(int, row[0]), []))
        for row in table_rows
    ]


def _table_of_row(row: Row, rows_of_indexes: list[Row]) -> Table:
    table_id, name, distribution, formatted, version, operable, engine, owner, description, opts = row
    columns = tuple(
        Column(field.number, field.name, type_of(field.sql_type), field.is_nullable)
        for field in msgspec.json.decode(cast(str, formatted), type=list[_Field])
        if field.number != BUCKET_ID
    )
    # A global table may have a column of that name, and has no hidden one.
    numbers = {BUCKET_ID_NAME: BUCKET_ID} | {column.name: column.number for column in columns}
    options: dict[str, list[object]] = {}
    for option in msgspec.json.decode(cast(str, opts), type=list[dict[str, list[object]]]):
        options |= option
    parsed = {cast(int, index[1]): _index_of_row(index, numbers) for index in rows_of_indexes}
    return Table(
        id=TableId(cast(int, table_id)),
        name=cast(str, name),
        columns=columns,
        primary_key=parsed.pop(0).parts,
        distribution=_distribution_of(cast(str, distribution), numbers),
        version=cast(int, version),
        generation=cast(int, options["generation"][0]),
        operable=bool(operable),
        engine=cast(str, engine),
        owner=cast(int, owner),
        unlogged="unlogged" in options,
        description=cast(str, description),
        indexes=tuple(parsed[index_id] for index_id in sorted(parsed)),
    )


def _index_of_row(row: Row, numbers: Mapping[str, int]) -> Index:
    _, index_id, name, method, opts, parts, operable, version = row
    (unique,) = msgspec.json.decode(cast(str, opts), type=list[dict[str, bool]])
    return Index(
        id=IndexId(cast(int, index_id)),
        name=cast(str, name),
        unique=unique["unique"],
        method=cast(str, method),
        parts=tuple(
            KeyPart(numbers[cast(str, part[0])], "desc" in part[5:])
            for part in msgspec.json.decode(cast(str, parts), type=list[list[object]])
        ),
        version=cast(int, version),
        operable=bool(operable),
    )


def _distribution_of(document: str, numbers: Mapping[str, int]) -> Distribution:
    ((kind, value),) = msgspec.json.decode(document, type=dict[str, object]).items()
    if kind == "Global":
        return Global()
    names, _, tier = cast("list[object]", value)
    key = tuple(numbers[name] for name in cast("list[str]", names))
    return Sharded(key, TierName(cast(str, tier)), implicit=kind == "ShardedImplicitly")


def tier_of_row(row: Row) -> Tier:
    name, replication_factor, can_vote, _, _, _, bucket_count, is_default = row[:8]
    return Tier(
        TierName(cast(str, name)),
        cast(int, bucket_count),
        cast(int, replication_factor),
        bool(can_vote),
        bool(is_default),
    )
