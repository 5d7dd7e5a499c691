"""CREATE, ALTER and DROP PROCEDURE.

Here: their clauses, and the one statement that is a body.
Not here: what it means (bind/procedures.py), CALL: not yet.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FeatureNotSupported, ShoalError, SqlSyntaxError, StatementTooComplex
from shoal.sql import ast
from shoal.sql.lexer import TokenKind
from shoal.sql.parser.cursor import NESTING_MAX
from shoal.sql.parser.ddl import Ddl
from shoal.sql.parser.dml import Dml

_MODES: Final = frozenset(("in", "out", "inout", "variadic"))


class Procedures(Dml, Ddl):
    def create_procedure(self, at: int) -> ast.CreateProcedure:
        """Behind CREATE: PROCEDURE [IF NOT EXISTS] p ([type, …]) [LANGUAGE SQL] {AS $$…$$ | BEGIN ATOMIC … END}"""
        self.expect("procedure")
        if_not_exists = self.accept_all("if", "not", "exists")
        name = self.object_name("a procedure")
        parameters = self._parameter_types()
        if self.accept("language"):
            if self.name("a language").text != "sql":
                raise self.unsupported("a language other than SQL", self.tokens[self.index - 1])
        if self.accept("as"):
            start = self.token
            body = self.string()
            quote = self.text[start.at : start.end]
            # In a dollar string every character stands for itself.
            body_at = start.at + quote.index("$", 1) + 1 if quote.startswith("$") else None
            self._check_quoted(body, body_at, start.at)
        elif self.accept_all("begin", "atomic"):
            body_at = self.token.at
            self._body_statement()
            body = self.text[body_at : self.tokens[self.index - 1].end]
            self.accept(";")
            self._refuse_second()
            self.expect("end")
        else:
            raise self.unexpected("AS or BEGIN ATOMIC")
        return ast.CreateProcedure(name, if_not_exists, parameters, body, body_at, self._wait(), at)

    def _check_quoted(self, body: str, body_at: int | None, at: int) -> None:
        """Its errors are those of the whole text."""
        try:
            inner = type(self)(body)
            statement = inner._body_statement()
            inner.accept(";")
            if inner.token.kind is not TokenKind.END:
                inner._refuse_second()
                raise inner.unexpected()
            if ast.depth(statement) > NESTING_MAX:
                raise StatementTooComplex(f"the statement is more than {NESTING_MAX} levels deep", position=1)
        except ShoalError as error:
            error.position = at + 1 if body_at is None or error.position is None else body_at + error.position
            raise

    def _body_statement(self) -> ast.Insert | ast.Update | ast.Delete:
        match self.token.key:
            case "insert":
                return self.insert()
            case "update":
                return self.update()
            case "delete":
                return self.delete()
            case _ if self.token.kind is TokenKind.WORD:
                raise FeatureNotSupported(
                    "the body of a procedure is one INSERT, UPDATE or DELETE", position=self.token.at + 1
                )
            case _:
                raise self.unexpected("INSERT, UPDATE or DELETE")

    def _refuse_second(self) -> None:
        if self.token.key in ("insert", "update", "delete", "select", "values", "with"):
            raise FeatureNotSupported(
                "the body of a procedure is one statement, not several", position=self.token.at + 1
            )

    def alter_procedure(self, at: int) -> ast.RenameProcedure:
        """Behind ALTER: PROCEDURE p [(types)] RENAME TO q"""
        self.expect("procedure")
        name = self.object_name("a procedure")
        parameters = self._parameter_types() if self.token.key == "(" else None
        if self.token.key in ("owner", "set", "reset", "depends"):
            raise self.unsupported(f"ALTER PROCEDURE … {self.token.key.upper()}")
        self.expect("rename", "to")
        return ast.RenameProcedure(name, parameters, self.name("a procedure"), self._wait(), at)

    def drop_procedure(self, at: int) -> ast.DropProcedure:
        """Behind DROP: PROCEDURE [IF EXISTS] p [(types)]"""
        self.expect("procedure")
        if_exists = self.accept_all("if", "exists")
        name = self.object_name("a procedure")
        parameters = self._parameter_types() if self.token.key == "(" else None
        self._one_object("DROP PROCEDURE")
        self.accept("cascade") or self.accept("restrict")
        return ast.DropProcedure(name, if_exists, parameters, self._wait(), at)

    def _parameter_types(self) -> tuple[ast.TypeName, ...]:
        if self.accept_all("(", ")"):
            return ()
        return self.bracketed(self._parameter_type)

    def _parameter_type(self) -> ast.TypeName:
        if self.token.key in _MODES and self.is_name(self.peek()):
            raise self.unsupported(f"{self.token.key.upper()} of a parameter")
        found = self.type_name(column=True)
        if self.token.key in ("default", "="):
            raise self.unsupported("DEFAULT of a parameter")
        if self.is_name(self.token):
            raise SqlSyntaxError(
                "parameters of a procedure have types and no names: the body says $1, $2, …",
                position=self.token.at + 1,
            )
        return found
