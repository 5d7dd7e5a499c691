"""What an audit tells of the cluster's log: one event for each thing that an entry has done.

Here: Event; events_of_entry() and events_told_late() for schema, users, rights and settings, events_of_members() for instances that come, go or change
their state.
Not here: where events are written, and those that only one instance sees (node/audit.py).

Titles are those that Picodata's users know. There are no secrets in them: the changes that entries carry have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from shoal.catalog.apply import Catalog, Pending
from shoal.catalog.entries import (
    Acl,
    AclChange,
    AddColumns,
    ChangePassword,
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
    DropRole,
    DropTable,
    DropUser,
    Entry,
    Grant,
    Granted,
    RenameColumn,
    RenameIndex,
    RenameProcedure,
    RenameTable,
    RenameUser,
    Revoke,
    SchemaChange,
    SetLogin,
    TruncateTable,
    object_of,
)
from shoal.catalog.rights import ADMIN, ObjectType, Privilege
from shoal.catalog.schema import Procedure, Table, TableId
from shoal.catalog.system import PICO_DB_CONFIG
from shoal.topology.cluster import Instance, Topology

LOW: Final = "low"
MEDIUM: Final = "medium"
HIGH: Final = "high"


@dataclass(frozen=True, slots=True)
class Event:
    title: str
    severity: str
    message: str
    initiator: str = ADMIN
    fields: Mapping[str, str | int] = field(default_factory=dict)


def events_of_entry(before: Catalog, entry: Entry, index: int) -> Iterator[Event]:
    """`before` is the catalog that the entry has changed."""
    match entry:
        case DdlCommit():
            yield _schema_changed(before, before.pending[entry.version], None, index)
        case DdlAbort():
            yield _schema_changed(before, before.pending[entry.version], entry, index)
        case Acl():
            yield _rights_changed(entry.change, before.rights.name(entry.user_id), index)
        case Dml():
            for change in entry.changes:
                if change.table_id == PICO_DB_CONFIG.id:
                    name = str(change.key[0])
                    value = "its default" if change.row is None else str(change.row[2])
                    yield Event(
                        "change_db_config",
                        MEDIUM,
                        f"setting {name} was set to {value}",
                        before.rights.name(entry.user_id),
                        {"key": name, "value": value, "index": index},
                    )


def events_told_late(now: Catalog, entry: Entry, index: int, prepared: DdlPrepare | None) -> Iterator[Event]:
    """Of an entry that was applied some time ago: `now` is a later catalog. What it has dropped has no name any more.
    `prepared` is the beginning of the schema change that the entry ends."""
    if isinstance(entry, DdlCommit | DdlAbort):
        if prepared is None:
            return
        table_id = TableId(object_of(prepared.change))
        pending = Pending(entry.version, 0, table_id, (), prepared.change, prepared.user_id)
        now = replace(now, pending={entry.version: pending})
    yield from events_of_entry(now, entry, index)


# --- the schema ----------------------------------------------------------------------------------


def _schema_changed(before: Catalog, pending: Pending, aborted: DdlAbort | None, index: int) -> Event:
    change = pending.change
    what, name = _described(before, change)
    fields: dict[str, str | int] = {"name": name, "index": index}
    if isinstance(change, RenameTable | RenameIndex | RenameProcedure):
        fields |= {"old_name": name, "new_name": change.new_name}
    title = re.sub(r"(?<!^)(?=[A-Z])", "_", type(change).__name__).lower()
    initiator = before.rights.name(pending.user_id)
    if aborted is None:
        return Event(title, MEDIUM, what, initiator, fields)
    fields |= {"change": title, "cause": aborted.cause}
    return Event("abort_schema_change", LOW, f"aborted: {what}: {aborted.cause}", initiator, fields)


def _described(before: Catalog, change: SchemaChange) -> tuple[str, str]:
    """What has happened, and the name of what it has happened to."""
    match change:
        case CreateTable():
            return f"created table {change.name!r}", change.name
        case CreateProcedure():
            return f"created procedure {change.name!r}", change.name
        case DropProcedure():
            name = _name(before.schema.procedures_by_id.get(change.procedure_id), change.procedure_id)
            return f"dropped procedure {name!r}", name
        case RenameProcedure():
            name = _name(before.schema.procedures_by_id.get(change.procedure_id), change.procedure_id)
            return f"renamed procedure {name!r} to {change.new_name!r}", name
    table = _name(before.schema.tables_by_id.get(TableId(change.table_id)), change.table_id)
    match change:
        case RenameTable():
            return f"renamed table {table!r} to {change.new_name!r}", table
        case AddColumns():
            added = ", ".join(column.name for column in change.columns)
            return f"added columns to table {table!r}: {added}", table
        case RenameColumn():
            return f"renamed column {change.column!r} of table {table!r} to {change.new_name!r}", table
        case CreateIndex():
            return f"created index {change.name!r} on table {table!r}", change.name
        case DropIndex():
            return f"dropped index {change.name!r} of table {table!r}", change.name
        case RenameIndex():
            return f"renamed index {change.name!r} of table {table!r} to {change.new_name!r}", change.name
        case DropTable():
            return f"dropped table {table!r}", table
        case TruncateTable():
            return f"truncated table {table!r}", table


def _name(found: Table | Procedure | None, object_id: int) -> str:
    return f"#{object_id}" if found is None else found.name


# --- users, roles, rights ------------------------------------------------------------------------


def _rights_changed(change: AclChange, by: str, index: int) -> Event:
    def event(title: str, message: str, **fields: str) -> Event:
        return Event(title, HIGH, message, by, {**fields, "index": index})

    match change:
        case CreateUser(_, name, method):
            return event("create_user", f"created user {name!r}", user=name, auth_type=method)
        case ChangePassword(_, name, method):
            message = f"password of user {name!r} was changed"
            return event("change_password", message, user=name, auth_type=method)
        case RenameUser(_, name, new_name):
            message = f"renamed user {name!r} to {new_name!r}"
            return event("rename_user", message, old_name=name, new_name=new_name)
        case SetLogin(_, name, True):
            return event("unblock_user", f"user {name!r} may log in", user=name)
        case SetLogin(_, name, False, attempts):
            why = "" if attempts is None else f": {attempts} wrong passwords"
            return event("block_user", f"user {name!r} may not log in any more{why}", user=name)
        case DropUser(_, name):
            return event("drop_user", f"dropped user {name!r}", user=name)
        case CreateRole(_, name):
            return event("create_role", f"created role {name!r}", role=name)
        case DropRole(_, name):
            return event("drop_role", f"dropped role {name!r}", role=name)
        case Grant(what):
            return _granted("grant", "granted", "to", what, by, index)
        case Revoke(what):
            return _granted("revoke", "revoked", "from", what, by, index)
    raise AssertionError(change)


def _granted(verb: str, done: str, to: str, what: Granted, by: str, index: int) -> Event:
    if what.object_type == ObjectType.ROLE and what.privilege == Privilege.EXECUTE:
        fields: dict[str, str | int] = {"role": what.object, "grantee": what.grantee, "index": index}
        message = f"{done} role {what.object!r} {to} {what.grantee!r}"
        return Event(f"{verb}_role", HIGH, message, by, fields)
    fields = {
        "privilege": what.privilege,
        "object_type": what.object_type,
        "object": what.object,
        "grantee": what.grantee,
        "index": index,
    }
    on = f"{what.object_type} {what.object!r}" if what.object else f"all of type {what.object_type}"
    message = f"{done} privilege {what.privilege} on {on} {to} {what.grantee!r}"
    return Event(f"{verb}_privilege", HIGH, message, by, fields)


# --- instances -----------------------------------------------------------------------------------


def events_of_members(before: Topology, after: Topology, index: int) -> Iterator[Event]:
    for uuid, now in sorted(after.by_uuid.items(), key=lambda item: item[1].raft_id):
        was = before.by_uuid.get(uuid)
        fields: dict[str, str | int] = {
            "instance": now.name,
            "instance_uuid": uuid,
            "raft_id": now.raft_id,
            "index": index,
        }
        if was is None:
            yield Event("join_instance", LOW, f"instance {now.name} joined the cluster", fields=fields)
            continue
        if was.target != now.target:
            because = f": {now.reason}" if now.reason else ""
            message = f"target state of instance {now.name} is now {now.target}{because}"
            yield Event("change_target_state", LOW, message, fields=_with_state(fields, now, str(now.target)))
        if was.current != now.current:
            message = f"current state of instance {now.name} is now {now.current}"
            current = _with_state(fields, now, str(now.current))
            yield Event("change_current_state", MEDIUM, message, fields=current)
            if now.is_expelled:
                message = f"instance {now.name} was expelled from the cluster"
                yield Event("expel_instance", LOW, message, fields=fields)


def _with_state(fields: Mapping[str, str | int], instance: Instance, state: str) -> dict[str, str | int]:
    return {**fields, "new_state": state, "reason": instance.reason or ""}
