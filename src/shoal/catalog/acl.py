"""Changing users, roles and rights: whether it may be, and which rows become what.

Here: acl_rows(), which refuses a change or gives its rows, and refuse_password().
Not here: what the rows mean (rights.py), names and positions of a statement (sql/bind/acl.py), when it counts (apply.py).

Rows are made when the change is proposed, on the state that the entry follows: the leader's comparison sees to it that no
other change of rights and no schema change comes between. So each entry says all that it writes, and an apply decides nothing.

Who may: CREATE USER and CREATE ROLE with the privilege of that name. To change or drop a user or role its owner, who is
whoever created it, or who holds ALTER or DROP; one's own password everybody. To grant and revoke the owner of the object, be it a
table or a role; and admin, who alone grants what is about all objects of a type. What is built in only admin touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from shoal.catalog.apply import Catalog
from shoal.catalog.entries import (
    AclChange,
    ChangePassword,
    CreateProcedure,
    CreateRole,
    CreateTable,
    CreateUser,
    DropRole,
    DropUser,
    Grant,
    Granted,
    RenameUser,
    Revoke,
    RowChange,
    SetLogin,
)
from shoal.catalog.rights import (
    ADMIN_ID,
    ANY,
    MAY_LOG_IN,
    PUBLIC_ID,
    REPLICATION_ID,
    SERVICE_ID,
    SUPER_ID,
    Held,
    ObjectType,
    Privilege,
    Rights,
    User,
    grant_change,
    revoke_change,
    user_change,
)
from shoal.catalog.schema import TableId
from shoal.catalog.settings import ClusterSettings
from shoal.catalog.system import PICO_PROPERTY, PICO_USER, json_text
from shoal.errors import (
    DependentObjectsStillExist,
    DuplicateObject,
    InsufficientPrivilege,
    InvalidGrantOperation,
    InvalidParameterValue,
    ObjectInUse,
    ProgramLimitExceeded,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
)

USERS_MAX: Final = 128  # roles are counted, too

_C, _A, _D = Privilege.CREATE, Privilege.ALTER, Privilege.DROP
# What can be granted: on all objects of a type, and on one.
_ON_ALL: Final[Mapping[ObjectType, tuple[Privilege, ...]]] = {
    ObjectType.TABLE: (Privilege.READ, Privilege.WRITE, _C, _A, _D),
    ObjectType.USER: (_C, _A, _D),
    ObjectType.ROLE: (_C, _D),
    ObjectType.PROCEDURE: (_C, _D, Privilege.EXECUTE),
}
_ON_ONE: Final[Mapping[ObjectType, tuple[Privilege, ...]]] = {
    ObjectType.TABLE: (Privilege.READ, Privilege.WRITE, _C, _A, _D),
    ObjectType.USER: (_A, _D),
    ObjectType.ROLE: (_D,),
    ObjectType.PROCEDURE: (_D, Privilege.EXECUTE),
}
# These hold what they hold.
_NO_GRANTEES: Final = frozenset((ADMIN_ID, SUPER_ID, REPLICATION_ID, SERVICE_ID))


def acl_rows(
    catalog: Catalog, change: AclChange, by: int, secret: str | None = None
) -> tuple[RowChange, ...]:
    """What it writes; () if all is like that already. Raises what is wrong, or that `by` may not.

    `secret` is what is kept of a password, where the change is about one.
    """
    rights = catalog.rights
    if by not in rights.users:
        raise InsufficientPrivilege("your user was dropped")
    match change:
        case CreateUser():
            assert secret is not None
            user = User(change.user_id, change.name, 0, change.method, secret, by, is_role=False)
            return (
                *_created(catalog, user, by),
                grant_change(user.id, MAY_LOG_IN, by),
                grant_change(user.id, Held(Privilege.EXECUTE, ObjectType.ROLE, PUBLIC_ID), by),
            )
        case CreateRole():
            role = User(change.user_id, change.name, 0, None, None, by, is_role=True)
            return _created(catalog, role, by)
        case ChangePassword():
            assert secret is not None
            user = _user(rights, change.user_id, change.name)
            if by != user.id:
                _refuse_alter(rights, user, by)
            elif user.id == SERVICE_ID:
                raise _built_in(user)
            return (user_change(replace(user, method=change.method, secret=secret)),)
        case RenameUser():
            return _renamed(rights, change, by)
        case SetLogin():
            user = _user(rights, change.user_id, change.name)
            _refuse_alter(rights, user, by)
            if change.login == rights.may_log_in(user.id):
                return ()
            return (
                grant_change(user.id, MAY_LOG_IN, by) if change.login else revoke_change(user.id, MAY_LOG_IN),
            )
        case DropUser() | DropRole():
            return _dropped(catalog, _user(rights, change.user_id, change.name), by)
        case Grant(what):
            _refuse_grant(catalog, what, by, "Grant")
            _refuse_cycle(rights, what)
            held = Held(what.privilege, what.object_type, what.object_id)
            there = held in rights.grants.get(what.grantee_id, ())
            return () if there else (grant_change(what.grantee_id, held, by),)
        case Revoke(what):
            _refuse_grant(catalog, what, by, "Revoke")
            held = Held(what.privilege, what.object_type, what.object_id)
            there = held in rights.grants.get(what.grantee_id, ())
            return (revoke_change(what.grantee_id, held),) if there else ()


# --- users and roles -----------------------------------------------------------------------------


def _created(catalog: Catalog, user: User, by: int) -> tuple[RowChange, ...]:
    rights = catalog.rights
    object_type = ObjectType.ROLE if user.is_role else ObjectType.USER
    if by != ADMIN_ID and not rights.holds(by, Privilege.CREATE, object_type, ANY):
        raise rights.denied(by, Privilege.CREATE, object_type, user.name)
    _refuse_taken(rights, user.name)
    if len(rights.users) >= USERS_MAX:
        raise ProgramLimitExceeded(f"a limit on the total number of users has been reached: {USERS_MAX}")
    assert user.id == catalog.next_user_id, user
    following = RowChange(PICO_PROPERTY.id, ("next_user_id",), ("next_user_id", json_text(user.id + 1)))
    return user_change(user), following


def _refuse_taken(rights: Rights, name: str) -> None:
    taken = rights.by_name.get(name)
    if taken is not None:
        raise DuplicateObject(f"{taken.kind} {name} already exists")


def _user(rights: Rights, user_id: int, name: str) -> User:
    user = rights.users.get(user_id)
    if user is None:
        raise UndefinedObject(f"user {name} does not exist")
    return user


def _renamed(rights: Rights, change: RenameUser, by: int) -> tuple[RowChange, ...]:
    user = _user(rights, change.user_id, change.name)
    _refuse_alter(rights, user, by)
    if user.is_built_in:
        raise _built_in(user)
    if change.new_name == user.name:
        return ()
    _refuse_taken(rights, change.new_name)
    renamed = replace(user, name=change.new_name)
    if loses_password(user):
        renamed = replace(renamed, secret=None)
    return (user_change(renamed),)


def loses_password(user: User) -> bool:
    """When it is renamed: what is kept of an md5 password has the user's name in it."""
    return user.method == "md5" and user.secret is not None


def _refuse_alter(rights: Rights, user: User, by: int) -> None:
    if by == ADMIN_ID and user.id != SERVICE_ID:
        return
    if user.is_built_in:
        raise _built_in(user)
    if user.owner != by and not rights.holds(by, Privilege.ALTER, ObjectType.USER, user.id):
        raise rights.denied(by, Privilege.ALTER, ObjectType.USER, user.name)


def _built_in(user: User) -> InsufficientPrivilege:
    return InsufficientPrivilege(f"{user.kind} {user.name} is built in")


def _dropped(catalog: Catalog, user: User, by: int) -> tuple[RowChange, ...]:
    rights = catalog.rights
    if user.is_built_in:
        raise _built_in(user)
    object_type = ObjectType.ROLE if user.is_role else ObjectType.USER
    if by != ADMIN_ID and user.owner != by:
        if not rights.holds(by, Privilege.DROP, object_type, user.id):
            raise rights.denied(by, Privilege.DROP, object_type, user.name)
    if user.id == by:
        raise ObjectInUse("current user cannot be dropped")
    owned = list(_owned(catalog, user.id))
    if owned:
        shown = ", ".join(owned[:10]) + (f" and {len(owned) - 10} more" if len(owned) > 10 else "")
        raise DependentObjectsStillExist(
            "user cannot be dropped because some objects depend on it", detail=f"It owns {shown}."
        )
    about_it = {ObjectType.USER, ObjectType.ROLE}
    gone = [
        revoke_change(grantee, held)
        for grantee, all_held in sorted(rights.grants.items())
        for held in sorted(all_held)
        if grantee == user.id or (held.object_id == user.id and held.object_type in about_it)
    ]
    return (*gone, RowChange(PICO_USER.id, (user.id,), None))


def _owned(catalog: Catalog, user_id: int) -> Iterable[str]:
    for name, table in sorted(catalog.schema.tables.items()):
        if table.owner == user_id and not table.system:
            yield f"table {name}"
    for name, procedure in sorted(catalog.schema.procedures.items()):
        if procedure.owner == user_id:
            yield f"procedure {name}"
    for pending in catalog.pending.values():
        change = pending.change
        if isinstance(change, CreateTable | CreateProcedure) and change.owner == user_id:
            what = "table" if isinstance(change, CreateTable) else "procedure"
            yield f"{what} {change.name}, which is being created"
    for other in catalog.rights.users.values():
        if other.owner == user_id and other.id != user_id:
            yield f"{other.kind} {other.name}"


# --- rights --------------------------------------------------------------------------------------


def _refuse_grant(catalog: Catalog, what: Granted, by: int, verb: str) -> None:
    """What can't be granted or revoked at all, and what `by` may not grant or revoke."""
    rights = catalog.rights
    grantee = rights.users.get(what.grantee_id)
    if grantee is None:
        raise UndefinedObject(f"Nor user, neither role with name {what.grantee} exists")
    if grantee.id in _NO_GRANTEES:
        raise InvalidGrantOperation(f"what {grantee.kind} {grantee.name} may do is built in")
    object_type, privilege = ObjectType(what.object_type), Privilege(what.privilege)
    if object_type is ObjectType.ROLE and privilege is Privilege.EXECUTE:
        owner = _role(rights, what.object_id, what.object).owner
    else:
        _refuse_unsupported(what, privilege, object_type)
        owner = ADMIN_ID if what.object_id == ANY else _owner(catalog, what, object_type)
    if by not in (ADMIN_ID, owner):
        detail = (
            f"Only the owner of {object_type} {what.object}, and admin, may do that."
            if what.object
            else f"It is about all objects of type {object_type}: only admin may do that."
        )
        raise rights.denied(by, verb, object_type, what.object, detail)


def _refuse_unsupported(what: Granted, privilege: Privilege, object_type: ObjectType) -> None:
    on_one = what.object_id != ANY
    supported = (_ON_ONE if on_one else _ON_ALL).get(object_type, ())
    if privilege not in supported:
        names = ", ".join(sorted(other.capitalize() for other in supported))
        where = f"a single {object_type}" if on_one else f"all objects of type {object_type}"
        raise InvalidGrantOperation(
            f"sbroad: invalid privilege: {privilege} can't be granted on {where}. "
            f"Supported privileges are: [{names}]"
        )


def _owner(catalog: Catalog, what: Granted, object_type: ObjectType) -> int:
    match object_type:
        case ObjectType.TABLE:
            table = catalog.schema.tables_by_id.get(TableId(what.object_id))
            if table is None:
                raise UndefinedTable(f"table {what.object} does not exist")
            if table.system and what.privilege != Privilege.READ:
                raise InvalidGrantOperation(f"{table.name} is a system table: it can only be read")
            if table.id == PICO_USER.id:
                raise InvalidGrantOperation(f"{table.name} holds secrets: it is for admin only")
            return table.owner
        case ObjectType.ROLE:
            return _role(catalog.rights, what.object_id, what.object).owner
        case ObjectType.USER:
            user = _user(catalog.rights, what.object_id, what.object)
            if user.is_built_in:
                raise _built_in(user)
            return user.owner
        case ObjectType.PROCEDURE:
            procedure = catalog.schema.procedures_by_id.get(what.object_id)
            if procedure is None:
                raise UndefinedFunction(f"procedure {what.object} does not exist")
            return procedure.owner
        case _:
            raise UndefinedObject(f"{object_type} {what.object} does not exist")


def _role(rights: Rights, role_id: int, name: str) -> User:
    role = rights.users.get(role_id)
    if role is None or not role.is_role:
        raise UndefinedObject(f"role {name} does not exist")
    return role


def _refuse_cycle(rights: Rights, what: Granted) -> None:
    if what.object_type == ObjectType.ROLE and what.privilege == Privilege.EXECUTE:
        if what.grantee_id == what.object_id:
            raise InvalidGrantOperation(f"role {what.object} can't be granted to itself")
        if what.grantee_id in rights.roles(what.object_id):
            raise InvalidGrantOperation(
                f"role {what.object} can't be granted to {what.grantee}, which is one of its own roles"
            )


# --- passwords -----------------------------------------------------------------------------------


def refuse_password(password: str, settings: ClusterSettings) -> None:
    """Raises all that the cluster's rules say against it."""
    missing: list[str] = []
    least = settings.auth_password_length_min
    if len(password) < least:
        missing.append(f"too short (expected at least {least} characters, got {len(password)})")
    for asked, there, what in (
        (settings.auth_password_enforce_uppercase, str.isupper, "uppercase letter"),
        (settings.auth_password_enforce_lowercase, str.islower, "lowercase letter"),
        (settings.auth_password_enforce_digits, str.isdigit, "digit"),
        (settings.auth_password_enforce_specialchars, _is_special, "special character"),
    ):
        if asked and not any(map(there, password)):
            missing.append(f"missing {what}")
    if missing:
        raise InvalidParameterValue(f"invalid password: {'; '.join(missing)}")
    if not password:
        raise InvalidParameterValue("the password must not be empty")
    if "\0" in password:
        raise InvalidParameterValue("the password must not contain a zero byte")


def _is_special(letter: str) -> bool:
    return not letter.isalnum() and not letter.isspace()
