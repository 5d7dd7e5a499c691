"""INSERT, UPDATE and DELETE.

Here: their clauses.
Not here: the queries in them (queries.py).
"""

from __future__ import annotations

from shoal.errors import SqlSyntaxError
from shoal.sql import ast
from shoal.sql.parser.queries import Queries


class Dml(Queries):
    def insert(self) -> ast.Insert:
        at = self.expect("insert").at
        self.expect("into")
        table = self.object_name("a table")
        alias = self.name() if self.accept("as") else None
        columns: tuple[ast.Name, ...] = ()
        if self.token.key == "(" and not self.starts_query(1) and self.peek().key != "(":
            columns = self.names()
        if self.token.key == "overriding":
            raise self.unsupported("OVERRIDING")
        if self.ahead("default", "values"):
            raise self.unsupported("DEFAULT VALUES")
        if self.token.key == "values":
            self.insert_values_at = self.token.at
        source = self.query()
        on_conflict = self._on_conflict() if self.token.key == "on" else None
        return ast.Insert(table, alias, columns, source, on_conflict, self._returning(), self.options(), at)

    def _on_conflict(self) -> ast.OnConflict:
        at = self.expect("on", "conflict").at
        target: tuple[ast.Name, ...] = ()
        if self.ahead("on", "constraint"):
            raise self.unsupported("ON CONFLICT ON CONSTRAINT")
        if self.token.key == "(":
            target = self.names()
            if self.token.key == "where":
                raise self.unsupported("ON CONFLICT with the condition of an index")
        self.expect("do")
        action = ast.ConflictAction(self.one_of("nothing", "update", "fail", "replace"))
        assignments: tuple[ast.Assignment, ...] = ()
        where: ast.Expr | None = None
        if action is ast.ConflictAction.UPDATE:
            self.expect("set")
            assignments = self._assignments()
            where = self.where()
        return ast.OnConflict(target, action, assignments, where, at)

    def update(self) -> ast.Update:
        at = self.expect("update").at
        table, alias, indexed_by = self._target()
        self.expect("set")
        assignments = self._assignments()
        source = self.from_items() if self.accept("from") else None
        where = self.where()
        return ast.Update(
            table, alias, indexed_by, assignments, source, where, self._returning(), self.options(), at
        )

    def delete(self) -> ast.Delete:
        at = self.expect("delete").at
        self.expect("from")
        table, alias, indexed_by = self._target()
        if self.token.key == "using":
            raise self.unsupported("DELETE … USING")
        return ast.Delete(table, alias, indexed_by, self.where(), self._returning(), self.options(), at)

    def _target(self) -> tuple[ast.Name, ast.Name | None, ast.Name | None]:
        """table [[AS] alias] [INDEXED BY index] of what UPDATE and DELETE change."""
        if self.token.key == "only" and self.is_name(self.peek()):
            raise self.unsupported("ONLY")
        table = self.object_name("a table")
        alias = self.name() if self.accept("as") else self.bare_alias()
        return table, alias, self.indexed_by()

    def _assignments(self) -> tuple[ast.Assignment, ...]:
        """a = e, (b, c) = (e, e), …"""
        assignments = list(self._assignment())
        while self.accept(","):
            assignments += self._assignment()
        return tuple(assignments)

    def _assignment(self) -> tuple[ast.Assignment, ...]:
        if self.token.key == "(":
            return self._row_assignment()
        column = self.name("a column")
        if self.token.key == "[":
            raise self.unsupported("assigning to an element of an array")
        self.expect("=")
        return (ast.Assignment(column, self.value_or_default()),)

    def _row_assignment(self) -> tuple[ast.Assignment, ...]:
        columns = self.names()
        self.expect("=")
        place = self.token
        self.accept("row")
        if self.token.key == "(" and self.starts_query(1):
            raise self.unsupported("assigning a subquery to several columns", place)
        values = self.bracketed(self.value_or_default)
        if len(columns) != len(values):
            raise SqlSyntaxError(
                f"number of columns does not match number of values: {len(columns)} and {len(values)}",
                position=place.at + 1,
            )
        return tuple(ast.Assignment(column, value) for column, value in zip(columns, values, strict=True))

    def _returning(self) -> tuple[ast.SelectItem, ...]:
        return self.select_items() if self.accept("returning") else ()
