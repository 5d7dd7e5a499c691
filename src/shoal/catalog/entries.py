"""The entries of the cluster's log: everything that changes the catalog or a global table.

Here: the kinds of entry, the changes that DdlPrepare and Acl carry, the record as which an entry stands in the
log, and their bytes.
Not here: what an entry does (apply.py), the log itself (raft/log.py, storage/raft_log.py).

A schema change takes two entries: DdlPrepare makes it known and blocks the table, DdlCommit or DdlAbort
ends it. Between them the masters change their own tables. The change's version is the index of its
DdlPrepare in the log: so it is never used twice, aborted or not.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class RowChange(msgspec.Struct, frozen=True, array_like=True):
    """One row of a global table as it becomes: `row` None deletes the row of that key.

    Values are in the storage form; msgspec can't type a union of str and bytes, so they say Any.
    """

    table_id: int
    key: tuple[Any, ...]
    row: tuple[Any, ...] | None


# --- schema changes ------------------------------------------------------------------------------


class ColumnSpec(msgspec.Struct, frozen=True):
    name: str
    type: str  # as SqlType.sql_name spells it
    nullable: bool


class PartSpec(msgspec.Struct, frozen=True):
    column: str
    descending: bool = False


class CreateTable(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    name: str
    columns: tuple[ColumnSpec, ...]
    primary_key: tuple[PartSpec, ...]
    sharding_key: tuple[str, ...] | None  # None: global
    implicit: bool  # the sharding key is the primary key because nobody said otherwise
    tier: str | None
    engine: str
    unlogged: bool
    owner: int


class DropTable(msgspec.Struct, frozen=True, tag=True):
    table_id: int


class TruncateTable(msgspec.Struct, frozen=True, tag=True):
    table_id: int


class RenameTable(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    new_name: str


class AddColumns(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    columns: tuple[ColumnSpec, ...]


class RenameColumn(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    column: str
    new_name: str


class CreateIndex(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    name: str
    unique: bool
    parts: tuple[PartSpec, ...]


class DropIndex(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    name: str


class RenameIndex(msgspec.Struct, frozen=True, tag=True):
    table_id: int
    name: str
    new_name: str


class CreateProcedure(msgspec.Struct, frozen=True, tag=True):
    procedure_id: int  # from the same count as the tables' ids
    name: str
    parameters: tuple[str, ...]  # types, as SqlType.sql_name spells them
    language: str
    body: str  # as it was written
    owner: int


class DropProcedure(msgspec.Struct, frozen=True, tag=True):
    procedure_id: int


class RenameProcedure(msgspec.Struct, frozen=True, tag=True):
    procedure_id: int
    new_name: str


ProcedureChange: TypeAlias = CreateProcedure | DropProcedure | RenameProcedure

TableChange: TypeAlias = (
    CreateTable
    | DropTable
    | TruncateTable
    | RenameTable
    | AddColumns
    | RenameColumn
    | CreateIndex
    | DropIndex
    | RenameIndex
)

SchemaChange: TypeAlias = TableChange | ProcedureChange


def object_of(change: SchemaChange) -> int:
    """The id of the table, or procedure, that it is about: of these one change is under way at a time."""
    if isinstance(change, ProcedureChange):
        return change.procedure_id
    return change.table_id


# --- users, roles, rights ------------------------------------------------------------------------

# They name all that they are about, so that an audit can tell of them, and hold no secrets: those are in the rows.


class CreateUser(msgspec.Struct, frozen=True, tag=True):
    user_id: int
    name: str
    method: str  # of the password, as _pico_user spells it


class ChangePassword(msgspec.Struct, frozen=True, tag=True):
    user_id: int
    name: str
    method: str


class RenameUser(msgspec.Struct, frozen=True, tag=True):
    user_id: int
    name: str
    new_name: str


class SetLogin(msgspec.Struct, frozen=True, tag=True):
    """Whether the user may log in."""

    user_id: int
    name: str
    login: bool
    attempts: int | None = None  # that failed, where they are the reason


class DropUser(msgspec.Struct, frozen=True, tag=True):
    user_id: int
    name: str


class CreateRole(msgspec.Struct, frozen=True, tag=True):
    user_id: int  # roles are numbered among the users
    name: str


class DropRole(msgspec.Struct, frozen=True, tag=True):
    user_id: int
    name: str


class Granted(msgspec.Struct, frozen=True):
    """One privilege of one grantee, a user or a role. To have a role is the privilege to EXECUTE it."""

    grantee_id: int
    grantee: str
    privilege: str
    object_type: str
    object_id: int  # -1: all of the type
    object: str  # its name; "" for all


class Grant(msgspec.Struct, frozen=True, tag=True):
    what: Granted


class Revoke(msgspec.Struct, frozen=True, tag=True):
    what: Granted


AclChange: TypeAlias = (
    CreateUser | ChangePassword | RenameUser | SetLogin | DropUser | CreateRole | DropRole | Grant | Revoke
)

# --- entries -------------------------------------------------------------------------------------


class Nop(msgspec.Struct, frozen=True, tag=True):
    """A leader's first entry."""


class Dml(msgspec.Struct, frozen=True, tag=True):
    """Rows of global and system tables, all or none."""

    changes: tuple[RowChange, ...]
    user_id: int


class DdlPrepare(msgspec.Struct, frozen=True, tag=True):
    change: SchemaChange
    user_id: int


class DdlCommit(msgspec.Struct, frozen=True, tag=True):
    version: int  # the index of its DdlPrepare


class DdlAbort(msgspec.Struct, frozen=True, tag=True):
    version: int
    sqlstate: str
    cause: str
    detail: str | None = None


class Acl(msgspec.Struct, frozen=True, tag=True):
    """Users, roles and their rights: what is changed, for people, and which rows that are (catalog/acl.py).

    The rows' schema_version is stamped when it is applied: it is the entry's index.
    """

    change: AclChange
    rows: tuple[RowChange, ...]
    user_id: int


Entry: TypeAlias = Nop | Dml | DdlPrepare | DdlCommit | DdlAbort | Acl


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What an entry of the Raft log holds as its data. A new leader's first entry holds nothing, and is a Nop."""

    time: int  # µs since the epoch, by the clock of the leader that appended it
    origin: tuple[
        int, int
    ]  # a random u64 of the proposing process, and its counter: so it knows its own again
    entry: Entry


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_change_encoder = msgspec.json.Encoder()
_change_decoder: msgspec.json.Decoder[SchemaChange] = msgspec.json.Decoder(SchemaChange)


def encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def decode(data: bytes) -> Entry:
    return _decoder.decode(data)


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    return _record_decoder.decode(data)


def change_to_json(change: SchemaChange) -> str:
    """For the column `ddl` of _pico_pending_schema_change."""
    return _change_encoder.encode(change).decode()


def change_from_json(text: str) -> SchemaChange:
    return _change_decoder.decode(text)
