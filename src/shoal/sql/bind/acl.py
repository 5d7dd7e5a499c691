"""CREATE USER, GRANT and their like: what a statement asks of users, roles and rights.

Here: bind_acl(), from the syntax tree to an AclChange, with the checks that need the statement's positions.
Not here: who may, and what it writes (catalog/acl.py), passwords (node/accounts.py).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from shoal.catalog.apply import Catalog
from shoal.catalog.entries import (
    AclChange,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    Grant,
    Granted,
    RenameUser,
    Revoke,
    SetLogin,
)
from shoal.catalog.rights import ANY, ObjectType, Privilege, Rights, User
from shoal.errors import (
    DuplicateObject,
    InvalidGrantOperation,
    UndefinedFunction,
    UndefinedObject,
    UndefinedTable,
)
from shoal.sql import ast

__all__ = ["PASSWORD_METHOD", "AclStatement", "bind_acl"]

# Of who doesn't say: also for clients of RPC, who can prove to know a password by no other.
PASSWORD_METHOD: Final = "scram-sha256"

AclStatement: TypeAlias = (
    ast.CreateUser
    | ast.AlterUserPassword
    | ast.AlterUserLogin
    | ast.RenameUser
    | ast.DropUser
    | ast.CreateRole
    | ast.DropRole
    | ast.Grant
    | ast.Revoke
)


def bind_acl(statement: AclStatement, catalog: Catalog) -> AclChange | None:
    """None: IF [NOT] EXISTS was said, and there is nothing to do."""
    rights = catalog.rights
    match statement:
        case ast.CreateUser(user, if_not_exists, password):
            if _is_there(rights, user, is_role=False, if_not_exists=if_not_exists):
                return None
            return CreateUser(catalog.next_user_id, user.text, password.method or PASSWORD_METHOD)
        case ast.CreateRole(role, if_not_exists):
            if _is_there(rights, role, is_role=True, if_not_exists=if_not_exists):
                return None
            return CreateRole(catalog.next_user_id, role.text)
        case ast.AlterUserPassword(user, password):
            changed = _user(rights, user)
            return ChangePassword(changed.id, changed.name, password.method or PASSWORD_METHOD)
        case ast.AlterUserLogin(user, login):
            changed = _user(rights, user)
            return SetLogin(changed.id, changed.name, login)
        case ast.RenameUser(user, new_name):
            changed = _user(rights, user)
            if new_name.text != user.text:
                _is_there(rights, new_name, is_role=False, if_not_exists=False)
            return RenameUser(changed.id, changed.name, new_name.text)
        case ast.DropUser(user, if_exists):
            found = rights.by_name.get(user.text)
            if if_exists and (found is None or found.is_role):
                return None
            dropped = _user(rights, user)
            return DropUser(dropped.id, dropped.name)
        case ast.DropRole(role, if_exists):
            found = rights.by_name.get(role.text)
            if if_exists and (found is None or not found.is_role):
                return None
            dropped = _role(rights, role)
            return DropRole(dropped.id, dropped.name)
        case ast.Grant(what, grantee):
            return Grant(_granted(catalog, what, grantee))
        case ast.Revoke(what, grantee):
            return Revoke(_granted(catalog, what, grantee))


def _is_there(rights: Rights, name: ast.Name, *, is_role: bool, if_not_exists: bool) -> bool:
    """Raises if the name is taken, which users and roles share, unless that is all right."""
    taken = rights.by_name.get(name.text)
    if taken is not None and not (if_not_exists and taken.is_role == is_role):
        raise DuplicateObject(f"{taken.kind} {name.text} already exists", position=name.at + 1)
    return taken is not None


def _user(rights: Rights, name: ast.Name) -> User:
    found = rights.by_name.get(name.text)
    if found is None or found.is_role:
        hint = None if found is None else f"{name.text} is a role."
        raise UndefinedObject(f"user {name.text} does not exist", position=name.at + 1, hint=hint)
    return found


def _role(rights: Rights, name: ast.Name) -> User:
    found = rights.by_name.get(name.text)
    if found is None or not found.is_role:
        hint = None if found is None else f"{name.text} is a user, and nobody inherits from users."
        raise UndefinedObject(f"role {name.text} does not exist", position=name.at + 1, hint=hint)
    return found


def _granted(catalog: Catalog, what: ast.PrivilegeOn | ast.Name, grantee: ast.Name) -> Granted:
    rights = catalog.rights
    to = rights.by_name.get(grantee.text)
    if to is None:
        raise UndefinedObject(
            f"Nor user, neither role with name {grantee.text} exists", position=grantee.at + 1
        )
    if isinstance(what, ast.Name):
        role = _role(rights, what)
        return Granted(to.id, to.name, Privilege.EXECUTE.value, ObjectType.ROLE.value, role.id, role.name)
    if what.object_type == ObjectType.ROLE and what.privilege == Privilege.EXECUTE:
        raise InvalidGrantOperation(
            "sbroad: invalid privilege: execute can't be granted on a role. Supported privileges are: [Create, Drop]",
            position=what.at + 1,
            hint="GRANT role TO grantee makes it a member.",
        )
    object_id, name = (ANY, "") if what.object is None else _object(catalog, what.object_type, what.object)
    return Granted(to.id, to.name, what.privilege, what.object_type, object_id, name)


def _object(catalog: Catalog, object_type: str, name: ast.Name) -> tuple[int, str]:
    match ObjectType(object_type):
        case ObjectType.TABLE:
            table = catalog.schema.tables.get(name.text)
            if table is None:
                raise UndefinedTable(f"table {name.text} does not exist", position=name.at + 1)
            return table.id, table.name
        case ObjectType.USER:
            user = _user(catalog.rights, name)
            return user.id, user.name
        case ObjectType.ROLE:
            role = _role(catalog.rights, name)
            return role.id, role.name
        case _:
            procedure = catalog.schema.procedures.get(name.text)
            if procedure is None:
                raise UndefinedFunction(f"procedure {name.text} does not exist", position=name.at + 1)
            return procedure.id, procedure.name
