"""Which statement a text holds: by its first word, CREATE, ALTER and DROP by the words behind.

Here: the parser as a whole, EXPLAIN, and the statements that we know and don't have.
Not here: what the statements consist of (the other modules of this package).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.sql import ast
from shoal.sql.lexer import words
from shoal.sql.parser.acl import Acl
from shoal.sql.parser.procedures import Procedures
from shoal.sql.parser.session import Session

_FACETS: Final = frozenset(("logical", "buckets", "raw", "forward", "context"))
_POSTGRES_FACETS: Final = frozenset(("verbose", "costs", "settings", "timing", "summary", "format", "wal"))

# Known, and refused with their name (0A000). Their first word begins no statement of ours.
_UNSUPPORTED: Final = words(
    """do call copy prepare execute listen notify backup audit lock vacuum
    analyze checkpoint comment declare fetch move merge cluster reindex refresh import load security
    reassign"""
)
# The same of what CREATE, ALTER and DROP take.
_UNSUPPORTED_OBJECTS: Final = words(
    """schema database view materialized sequence function routine aggregate trigger type domain
    extension role group policy publication subscription server tablespace cast collation conversion
    operator rule statistics foreign language plugin event access text transform owned default recursive
    large"""
)


class Parser(Procedures, Acl, Session):
    """The whole grammar, over one text."""

    def statement(self) -> ast.Statement:
        parse = _STATEMENTS.get(self.token.key)
        if parse is not None:
            return parse(self)
        if self.token.key in _UNSUPPORTED:
            raise self.unsupported(self.token.key.upper())
        raise self.unexpected("a statement")

    def top_query(self) -> ast.Query:
        return self.query(options=True)

    def create(
        self,
    ) -> ast.CreateTable | ast.CreateIndex | ast.CreateProcedure | ast.CreateUser | ast.CreateRole:
        at = self.expect("create").at
        if self.token.key == "user":
            return self.create_user(at)
        if self.token.key == "role":
            return self.create_role(at)
        if self.is_table():
            return self.create_table(at)
        if self.token.key == "index" or self.ahead("unique", "index"):
            return self.create_index(at)
        if self.token.key == "procedure":
            return self.create_procedure(at)
        if self.accept_all("or", "replace"):
            raise self.unsupported(f"CREATE OR REPLACE {self.token.key.upper()}".rstrip())
        raise self._object_refused("CREATE", "TABLE, INDEX, PROCEDURE, USER or ROLE")

    def alter(
        self,
    ) -> (
        ast.AlterTable
        | ast.RenameIndex
        | ast.RenameProcedure
        | ast.AlterSystem
        | ast.ExpelInstance
        | ast.AbortSchemaChange
        | ast.AlterUserPassword
        | ast.AlterUserLogin
        | ast.RenameUser
    ):
        at = self.expect("alter").at
        match self.token.key:
            case "table":
                return self.alter_table(at)
            case "index":
                return self.alter_index(at)
            case "procedure":
                return self.alter_procedure(at)
            case "system":
                return self.alter_system(at)
            case "user":
                return self.alter_user(at)
            case _:
                raise self._object_refused("ALTER", "TABLE, INDEX, PROCEDURE, SYSTEM or USER")

    def drop(self) -> ast.DropTable | ast.DropIndex | ast.DropProcedure | ast.DropUser | ast.DropRole:
        at = self.expect("drop").at
        match self.token.key:
            case "table":
                return self.drop_table(at)
            case "index":
                return self.drop_index(at)
            case "procedure":
                return self.drop_procedure(at)
            case "user":
                return self.drop_user(at)
            case "role":
                return self.drop_role(at)
            case _:
                raise self._object_refused("DROP", "TABLE, INDEX, PROCEDURE, USER or ROLE")

    def _object_refused(self, verb: str, expected: str) -> Exception:
        key = self.token.key
        if key in _UNSUPPORTED_OBJECTS:
            return self.unsupported(f"{verb} {key.upper()}")
        return self.unexpected(expected)

    def explain(self) -> ast.Explain:
        at = self.expect("explain").at
        facets: list[str] = []
        fmt = analyze = False
        if self.token.key == "(" and not self.starts_query(1) and self.peek().key != "(":
            for facet in self.bracketed(self._facet):
                if facet == "fmt":
                    fmt = True
                elif facet == "analyze":
                    analyze = True
                else:
                    facets.append(facet)
        elif self.accept("analyze"):
            analyze = True
        elif self.token.key == "verbose":
            raise self.unsupported("EXPLAIN VERBOSE")
        match self.token.key:
            case "insert":
                return ast.Explain(tuple(facets), fmt, analyze, self.insert(), at)
            case "update":
                return ast.Explain(tuple(facets), fmt, analyze, self.update(), at)
            case "delete":
                return ast.Explain(tuple(facets), fmt, analyze, self.delete(), at)
            case "select" | "values" | "with" | "(":
                return ast.Explain(tuple(facets), fmt, analyze, self.top_query(), at)
            case "do" | "call" | "create" | "execute" | "declare":
                raise self.unsupported(f"EXPLAIN of {self.token.key.upper()}")
            case _:
                raise self.unexpected("a query, INSERT, UPDATE or DELETE")

    def _facet(self) -> str:
        key = self.token.key
        if key in _POSTGRES_FACETS:
            raise self.unsupported(f"EXPLAIN ({key.upper()})")
        if key not in _FACETS and key not in ("fmt", "analyze"):
            raise self.unexpected("LOGICAL, BUCKETS, RAW, FORWARD, CONTEXT, FMT or ANALYZE")
        return self.advance().key


_STATEMENTS: Final[dict[str, Callable[[Parser], ast.Statement]]] = {
    "select": Parser.top_query,
    "values": Parser.top_query,
    "with": Parser.top_query,
    "table": Parser.top_query,
    "(": Parser.top_query,
    "insert": Parser.insert,
    "update": Parser.update,
    "delete": Parser.delete,
    "create": Parser.create,
    "alter": Parser.alter,
    "drop": Parser.drop,
    "truncate": Parser.truncate,
    "grant": Parser.grant,
    "revoke": Parser.revoke,
    "begin": Parser.begin,
    "start": Parser.begin,
    "commit": Parser.commit,
    "end": Parser.commit,
    "rollback": Parser.rollback,
    "savepoint": Parser.savepoint,
    "release": Parser.release,
    "abort": Parser.rollback,
    "set": Parser.set,
    "show": Parser.show,
    "reset": Parser.reset,
    "deallocate": Parser.deallocate,
    "discard": Parser.discard,
    "close": Parser.close,
    "unlisten": Parser.unlisten,
    "explain": Parser.explain,
}
