"""CREATE, ALTER and DROP of users and roles, GRANT and REVOKE.

Here: their clauses, and the refusal of those that we know and don't have.
Not here: which privilege there is on what (bind/acl.py, catalog/acl.py), who may grant it.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FeatureNotSupported
from shoal.sql import ast
from shoal.sql.lexer import RESERVED, TokenKind
from shoal.sql.parser.queries import Queries

_METHODS: Final = {"md5": "md5", "scram-sha256": "scram-sha256", "scram-sha-256": "scram-sha256"}
_OTHER_METHODS: Final = ("chap-sha1", "ldap")
_METHOD_KINDS: Final = (TokenKind.WORD, TokenKind.INTEGER)

_PRIVILEGES: Final = ("create", "alter", "drop", "read", "write", "execute")
_OBJECT_TYPES: Final = ("table", "user", "role", "procedure")
# PostgreSQL's privileges, and ours that allow the same.
_ELSEWHERE: Final = {
    "select": "READ",
    "insert": "WRITE",
    "update": "READ and WRITE",
    "delete": "READ and WRITE",
    "truncate": "WRITE",
    "all": "each privilege by its name",
}


class Acl(Queries):
    # --- users ---

    def create_user(self, at: int) -> ast.CreateUser:
        """Behind CREATE: USER [IF NOT EXISTS] u [WITH] PASSWORD 'p' [USING method]"""
        self._user("CREATE")
        if_not_exists = self.accept_all("if", "not", "exists")
        user = self.name("a user")
        self.accept("with")
        if self.token.key == "using":
            self.advance()
            self._method()
            raise self.unexpected("PASSWORD")
        self._refuse_attributes("CREATE USER")
        self.expect("password")
        return ast.CreateUser(user, if_not_exists, self._password(), self._wait(), at)

    def alter_user(self, at: int) -> ast.AlterUserPassword | ast.AlterUserLogin | ast.RenameUser:
        """Behind ALTER: USER u [WITH] {PASSWORD 'p' [USING method] | LOGIN | NOLOGIN | RENAME TO v}"""
        self._user("ALTER")
        user = self.name("a user")
        self.accept("with")
        self._refuse_attributes("ALTER USER")
        match self.token.key:
            case "password":
                self.advance()
                return ast.AlterUserPassword(user, self._password(), self._wait(), at)
            case "login" | "nologin":
                login = self.advance().key == "login"
                return ast.AlterUserLogin(user, login, self._wait(), at)
            case "rename":
                self.expect("rename", "to")
                return ast.RenameUser(user, self.name("a user"), self._wait(), at)
            case _:
                raise self.unexpected("PASSWORD, LOGIN, NOLOGIN or RENAME TO")

    def drop_user(self, at: int) -> ast.DropUser:
        """Behind DROP: USER [IF EXISTS] u"""
        self._user("DROP")
        if_exists = self.accept_all("if", "exists")
        user = self.name("a user")
        self._refuse_more("DROP USER")
        return ast.DropUser(user, if_exists, self._wait(), at)

    def _user(self, statement: str) -> None:
        self.expect("user")
        if self.token.key == "mapping" and self.peek().key in ("for", "if"):
            raise self.unsupported(f"{statement} USER MAPPING")

    def _password(self) -> ast.Password:
        if self.token.key == "null":
            raise self.unsupported("PASSWORD NULL")
        password = self.string()
        method: str | None = None
        if self.accept("using"):
            method = self._method()
        return ast.Password(password, method)

    def _method(self) -> str:
        start = self.token
        end = start.at
        # scram-sha-256 is five tokens that touch each other.
        while self.token.at == end and (self.token.kind in _METHOD_KINDS or self.token.key == "-"):
            end = self.advance().end
        if end == start.at:
            raise self.unexpected("MD5 or SCRAM-SHA-256")
        spelled = self.text[start.at : end].lower()
        method = _METHODS.get(spelled)
        if method is None:
            if spelled in _OTHER_METHODS:
                raise self.unsupported(f"the password method {spelled}", start)
            raise FeatureNotSupported(
                f"unknown password method {spelled}: there are md5 and scram-sha-256", position=start.at + 1
            )
        return method

    def _refuse_attributes(self, statement: str) -> None:
        """What PostgreSQL lets stand there."""
        key = self.token.key
        if key in ("superuser", "nosuperuser", "createdb", "nocreatedb", "createrole", "nocreaterole",
                   "inherit", "noinherit", "replication", "noreplication", "bypassrls", "nobypassrls",
                   "connection", "valid", "encrypted", "in", "admin", "sysid", "set", "reset"):  # fmt: skip
            raise self.unsupported(f"{statement} … {key.upper()}")

    # --- roles ---

    def create_role(self, at: int) -> ast.CreateRole:
        """Behind CREATE: ROLE [IF NOT EXISTS] r"""
        self.expect("role")
        if_not_exists = self.accept_all("if", "not", "exists")
        role = self.name("a role")
        if self.token.key in ("with", "login", "password"):
            raise FeatureNotSupported(
                "a role has no password and can't log in: CREATE USER", position=self.token.at + 1
            )
        self._refuse_attributes("CREATE ROLE")
        return ast.CreateRole(role, if_not_exists, self._wait(), at)

    def drop_role(self, at: int) -> ast.DropRole:
        """Behind DROP: ROLE [IF EXISTS] r"""
        self.expect("role")
        if_exists = self.accept_all("if", "exists")
        role = self.name("a role")
        self._refuse_more("DROP ROLE")
        return ast.DropRole(role, if_exists, self._wait(), at)

    def _refuse_more(self, statement: str) -> None:
        if self.token.key == ",":
            raise self.unsupported(f"{statement} of several at once")
        if self.token.key in ("cascade", "restrict"):
            raise self.unsupported(f"{statement} … {self.token.key.upper()}")

    # --- rights ---

    def grant(self) -> ast.Grant:
        """GRANT {privilege {TABLE | …} | privilege ON {TABLE | …} name | role} TO grantee"""
        at = self.expect("grant").at
        what = self._granted("GRANT")
        self.expect("to")
        grantee = self.name("a user or a role")
        if self.token.key == ",":
            raise self.unsupported("GRANT to several at once")
        if self.ahead("with", "grant") or self.ahead("with", "admin"):
            raise self.unsupported(f"WITH {self.peek().key.upper()} OPTION")
        if self.token.key == "granted":
            raise self.unsupported("GRANTED BY")
        return ast.Grant(what, grantee, self._wait(), at)

    def revoke(self) -> ast.Revoke:
        """REVOKE … FROM grantee"""
        at = self.expect("revoke").at
        if self.ahead("grant", "option") or self.ahead("admin", "option"):
            raise self.unsupported(f"REVOKE {self.token.key.upper()} OPTION FOR")
        what = self._granted("REVOKE")
        self.expect("from")
        grantee = self.name("a user or a role")
        if self.token.key == ",":
            raise self.unsupported("REVOKE from several at once")
        if self.token.key in ("cascade", "restrict", "granted"):
            raise self.unsupported(f"REVOKE … {self.token.key.upper()}")
        return ast.Revoke(what, grantee, self._wait(), at)

    def _granted(self, statement: str) -> ast.PrivilegeOn | ast.Name:
        token, following = self.token, self.peek().key
        if token.key in _PRIVILEGES and (following in _OBJECT_TYPES or following in ("on", ",")):
            self.advance()
            if self.token.key == ",":
                raise self.unsupported(f"{statement} of several privileges at once")
            on_one = self.accept("on")
            if self.token.key not in _OBJECT_TYPES:
                raise self.unexpected("TABLE, USER, ROLE or PROCEDURE")
            object_type = self.advance().key
            target = None
            if on_one:
                target = self.object_name("a name") if object_type == "table" else self.name("a name")
                if self.token.key == ",":
                    raise self.unsupported(f"{statement} on several objects at once")
            return ast.PrivilegeOn(token.key, object_type, target, token.at)
        if token.key in _ELSEWHERE and (token.key in RESERVED or following not in ("to", "from")):
            raise FeatureNotSupported(
                f"there is no privilege {token.key.upper()}",
                position=token.at + 1,
                hint=f"{statement} {_ELSEWHERE[token.key]}; there are "
                + ", ".join(name.upper() for name in _PRIVILEGES)
                + ".",
            )
        role = self.name("a privilege or a role")
        if self.token.key == ",":
            raise self.unsupported(f"{statement} of several roles at once")
        return role
