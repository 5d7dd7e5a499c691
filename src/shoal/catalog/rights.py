"""Who may do what: the rows of _pico_user and _pico_privilege, and the questions that they answer.

Here: User, Held, Rights with its questions, the built-in users and roles, what a schema change needs.
Not here: what changes any of it (acl.py), what a query needs (sql/bind/), the form of secrets (pgwire/auth.py).

A user holds what was granted to it and to its roles, and to theirs. Besides that, admin may do everything, and the owner of an
object everything to it. A privilege on all tables says nothing of system tables: those are admin's, unless READ was
granted by name.

Rights are one immutable value per version: to know that nothing has changed is to see that it is the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple, cast

import msgspec

from shoal.catalog.cas import Range
from shoal.catalog.entries import (
    AddColumns,
    CreateIndex,
    CreateProcedure,
    CreateTable,
    DropIndex,
    DropTable,
    ProcedureChange,
    RenameColumn,
    RenameIndex,
    RenameTable,
    RowChange,
    SchemaChange,
    TableChange,
    TruncateTable,
)
from shoal.catalog.schema import Schema, Table, TableId
from shoal.catalog.system import PICO_PRIVILEGE, PICO_USER, Row, json_text
from shoal.errors import InsufficientPrivilege

GUEST_ID: Final = 0
ADMIN_ID: Final = 1
PUBLIC_ID: Final = 2
REPLICATION_ID: Final = 3
SUPER_ID: Final = 31
SERVICE_ID: Final = 32
FIRST_USER_ID: Final = 33
ADMIN: Final = "admin"

ANY: Final = -1  # as an object's id: all of the type
UNIVERSE_ID: Final = 0


class Privilege(StrEnum):
    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    LOGIN = "login"


class ObjectType(StrEnum):
    TABLE = "table"
    USER = "user"
    ROLE = "role"
    PROCEDURE = "procedure"
    UNIVERSE = "universe"


class Held(NamedTuple):
    """One privilege that somebody holds."""

    privilege: str
    object_type: str
    object_id: int


MAY_LOG_IN: Final = Held(Privilege.LOGIN, ObjectType.UNIVERSE, UNIVERSE_ID)


@dataclass(frozen=True, slots=True)
class User:
    """A user or a role: they share names and ids."""

    id: int
    name: str
    version: int
    method: str | None  # None: no password was ever set
    secret: str | None = field(repr=False)
    owner: int
    is_role: bool

    @property
    def is_built_in(self) -> bool:
        return self.id < FIRST_USER_ID

    @property
    def kind(self) -> str:
        return "role" if self.is_role else "user"


@dataclass(frozen=True)
class Rights:
    users: Mapping[int, User] = field(default_factory=dict)
    grants: Mapping[int, frozenset[Held]] = field(default_factory=dict)  # by grantee; none is empty
    _held: dict[int, frozenset[Held]] = field(default_factory=dict, init=False, repr=False, compare=False)

    # --- who is there ----------------------------------------------------------------------------

    @cached_property
    def by_name(self) -> Mapping[str, User]:
        return {user.name: user for user in self.users.values()}

    def name(self, user_id: int) -> str:
        user = self.users.get(user_id)
        return f"<{user_id}>" if user is None else user.name

    def may_log_in(self, user_id: int) -> bool:
        return MAY_LOG_IN in self.grants.get(user_id, ())

    # --- what they hold --------------------------------------------------------------------------

    def roles(self, grantee_id: int) -> frozenset[int]:
        """Itself, its roles, and theirs."""
        found = {grantee_id}
        pending = [grantee_id]
        while pending:
            for held in self.grants.get(pending.pop(), ()):
                if held.object_type == ObjectType.ROLE and held.privilege == Privilege.EXECUTE:
                    if held.object_id not in found:
                        found.add(held.object_id)
                        pending.append(held.object_id)
        return frozenset(found)

    def held(self, user_id: int) -> frozenset[Held]:
        """All that was granted to it, directly or not."""
        held = self._held.get(user_id)
        if held is None:
            held = frozenset().union(*(self.grants.get(grantee, ()) for grantee in self.roles(user_id)))
            self._held[user_id] = held
        return held

    def holds(self, user_id: int, privilege: Privilege, object_type: ObjectType, object_id: int) -> bool:
        held = self.held(user_id)
        return (privilege, object_type, ANY) in held or (privilege, object_type, object_id) in held

    def allows(self, user_id: int, privilege: Privilege, table: Table) -> bool:
        if user_id == ADMIN_ID:
            return True
        if table.system:
            return (privilege, ObjectType.TABLE, table.id) in self.held(user_id)
        if table.owner == user_id:
            return user_id in self.users
        return self.holds(user_id, privilege, ObjectType.TABLE, table.id)

    def refuse(self, user_id: int, privilege: Privilege, table: Table) -> None:
        """Raises if the user may not."""
        if not self.allows(user_id, privilege, table):
            raise self.denied(user_id, privilege, ObjectType.TABLE, table.name)

    def denied(
        self, user_id: int, what: str, object_type: ObjectType, name: str, detail: str | None = None
    ) -> InsufficientPrivilege:
        """The error; `name` "" stands for all objects of the type."""
        kind = {ObjectType.TABLE: "space", ObjectType.PROCEDURE: "function"}.get(
            object_type, object_type.value
        )
        about = f"{kind} '{name}'" if name else f"all {kind}s"
        return InsufficientPrivilege(
            f"{what.capitalize()} access to {about} is denied for user '{self.name(user_id)}'",
            detail=detail,
            extra={"privilege": what.lower(), "object_type": object_type.value, "object": name},
        )

    def basis(self, user_id: int) -> tuple[Range, ...]:
        """The rows that say what a user may: a decision that rests on its rights rests on these."""
        if user_id == ADMIN_ID:
            return ()
        grantees = sorted(self.roles(user_id))
        return (
            Range.of_key(PICO_USER.id, (user_id,)),
            *(Range.of_key(PICO_PRIVILEGE.id, (grantee,)) for grantee in grantees),
        )

    # --- another version -------------------------------------------------------------------------

    def changed(self, changes: Iterable[RowChange]) -> Rights:
        """After some rows have changed: itself, if none of its own is among them."""
        users: dict[int, User] | None = None
        grants: dict[int, frozenset[Held]] | None = None
        for change in changes:
            if change.table_id == PICO_USER.id:
                users = dict(self.users) if users is None else users
                users.pop(change.key[0], None)
                if change.row is not None:
                    users[change.key[0]] = user_of_row(change.row)
            elif change.table_id == PICO_PRIVILEGE.id:
                grants = dict(self.grants) if grants is None else grants
                grantee, object_type, object_id, privilege = change.key
                of_grantee = set(grants.pop(grantee, ()))
                held = Held(privilege, object_type, object_id)
                (of_grantee.discard if change.row is None else of_grantee.add)(held)
                if of_grantee:
                    grants[grantee] = frozenset(of_grantee)
        if users is None and grants is None:
            return self
        return replace(
            self,
            users=self.users if users is None else users,
            grants=self.grants if grants is None else grants,
        )


# --- rows ----------------------------------------------------------------------------------------


def rights_of_rows(users: Iterable[Row], privileges: Iterable[Row]) -> Rights:
    grants: dict[int, set[Held]] = {}
    for _, grantee, privilege, object_type, object_id, _ in cast(
        "Iterable[tuple[int, int, str, str, int, int]]", privileges
    ):
        grants.setdefault(grantee, set()).add(Held(privilege, object_type, object_id))
    return Rights(
        {user.id: user for user in map(user_of_row, users)},
        {grantee: frozenset(held) for grantee, held in grants.items()},
    )


def user_of_row(row: Row) -> User:
    user_id, name, version, auth, owner, kind = row
    method, secret = (
        (None, None) if auth is None else msgspec.json.decode(cast(str, auth), type=tuple[str, str])
    )
    return User(
        id=cast(int, user_id),
        name=cast(str, name),
        version=cast(int, version),
        method=method,
        secret=secret or None,
        owner=cast(int, owner),
        is_role=kind == "role",
    )


def user_change(user: User) -> RowChange:
    auth = None if user.method is None else json_text([user.method, user.secret or ""])
    row = (user.id, user.name, user.version, auth, user.owner, user.kind)
    return RowChange(PICO_USER.id, (user.id,), row)


def grant_change(grantee_id: int, held: Held, grantor_id: int, version: int = 0) -> RowChange:
    key = privilege_key(grantee_id, held)
    _, object_type, object_id, privilege = key
    row = (grantor_id, grantee_id, privilege, object_type, object_id, version)
    return RowChange(PICO_PRIVILEGE.id, key, row)


def revoke_change(grantee_id: int, held: Held) -> RowChange:
    return RowChange(PICO_PRIVILEGE.id, privilege_key(grantee_id, held), None)


def privilege_key(grantee_id: int, held: Held) -> tuple[int, str, int, str]:
    return grantee_id, str(held.object_type), held.object_id, str(held.privilege)


def founding_rows(admin_auth: tuple[str, str] | None) -> tuple[RowChange, ...]:
    """Who is there when a cluster begins. `admin_auth` is method and secret, None without a password."""
    method, secret = admin_auth or (None, None)

    def user(user_id: int, name: str, *, is_role: bool = False) -> RowChange:
        return user_change(User(user_id, name, 0, None, None, ADMIN_ID, is_role))

    everything = [
        (ObjectType.TABLE, "create alter drop read write"),
        (ObjectType.USER, "create alter drop"),
        (ObjectType.ROLE, "create drop"),
        (ObjectType.PROCEDURE, "create execute drop"),
    ]
    public = Held(Privilege.EXECUTE, ObjectType.ROLE, PUBLIC_ID)
    return (
        user(GUEST_ID, "guest"),
        user_change(User(ADMIN_ID, ADMIN, 0, method, secret, ADMIN_ID, is_role=False)),
        user(PUBLIC_ID, "public", is_role=True),
        user(REPLICATION_ID, "replication", is_role=True),
        user(SUPER_ID, "super", is_role=True),
        user(SERVICE_ID, "pico_service"),
        grant_change(GUEST_ID, public, ADMIN_ID),
        grant_change(ADMIN_ID, MAY_LOG_IN, ADMIN_ID),
        *(
            grant_change(SUPER_ID, Held(privilege, object_type, ANY), ADMIN_ID)
            for object_type, privileges in everything
            for privilege in privileges.split()
        ),
    )


# --- schema changes ------------------------------------------------------------------------------


def refuse_schema_change(rights: Rights, schema: Schema, change: SchemaChange, user_id: int) -> None:
    """Raises if the user may not ask for it. The change's table, unless it is to be created, is there."""
    if isinstance(change, CreateTable):
        if user_id != ADMIN_ID and not rights.holds(user_id, Privilege.CREATE, ObjectType.TABLE, ANY):
            raise rights.denied(user_id, Privilege.CREATE, ObjectType.TABLE, change.name)
        return
    if isinstance(change, ProcedureChange):
        _refuse_procedure_change(rights, schema, change, user_id)
        return
    rights.refuse(user_id, _needed(change), schema.tables_by_id[TableId(change.table_id)])


def _refuse_procedure_change(rights: Rights, schema: Schema, change: ProcedureChange, user_id: int) -> None:
    """Renaming takes the right to drop it: there is none of its own."""
    if user_id == ADMIN_ID:
        return
    if isinstance(change, CreateProcedure):
        if not rights.holds(user_id, Privilege.CREATE, ObjectType.PROCEDURE, ANY):
            raise rights.denied(user_id, Privilege.CREATE, ObjectType.PROCEDURE, change.name)
        return
    procedure = schema.procedures_by_id[change.procedure_id]
    if procedure.owner != user_id and not rights.holds(
        user_id, Privilege.DROP, ObjectType.PROCEDURE, procedure.id
    ):
        raise rights.denied(user_id, Privilege.DROP, ObjectType.PROCEDURE, procedure.name)


def _needed(change: TableChange) -> Privilege:
    match change:
        case TruncateTable():
            return Privilege.WRITE
        case CreateIndex():
            return Privilege.CREATE
        case DropTable() | DropIndex():
            return Privilege.DROP
        case RenameTable() | AddColumns() | RenameColumn() | RenameIndex():
            return Privilege.ALTER
        case CreateTable():
            raise AssertionError(change)
