"""Queries: SELECT, VALUES, what UNION, EXCEPT and INTERSECT make of them, and what FROM takes.

INTERSECT binds tighter than UNION and EXCEPT, which share one precedence, from left to right.

Here: the grammar of a query and of FROM, options.
Not here: expressions (expressions.py), the statements that hold queries (dml.py, statements.py).
"""

from __future__ import annotations

from typing import Final

from shoal.errors import InsufficientPrivilege, SqlSyntaxError
from shoal.sql import ast
from shoal.sql.lexer import TokenKind
from shoal.sql.parser.cursor import NUMBERS
from shoal.sql.parser.expressions import Expressions, undefined_schema

# A level of subqueries is several calls of the parser: it counts as so many levels of nesting.
_QUERY_LEVELS: Final = 3

_SET_KINDS: Final = {"union": ast.SetKind.UNION, "except": ast.SetKind.EXCEPT}
_QUERY_TAILS: Final = frozenset(("union", "except", "intersect", "order", "limit", "offset", "fetch"))
_UNSIGNED_OPTIONS: Final = frozenset(("sql_vdbe_opcode_max", "sql_motion_row_max", "timeout"))
_WORD_OPTIONS: Final = frozenset(("read_preference", "forward"))


class Queries(Expressions):
    # Where the VALUES of an INSERT begin: only these may hold DEFAULT.
    insert_values_at = -1

    def query(self, *, options: bool = False) -> ast.Query:
        """[WITH …] body [ORDER BY] [LIMIT] [OFFSET], and OPTION (…) at the top of a statement."""
        self.enter(_QUERY_LEVELS)
        at = self.token.at
        ctes = self._ctes() if self.token.key == "with" else ()
        query = self._tail(ctes, self._body(), at, options)
        self.nesting -= _QUERY_LEVELS
        return query

    def query_behind(self, first: ast.ScalarQuery) -> ast.Query | None:
        if self.token.key not in _QUERY_TAILS:
            return None
        return self._tail((), self._body(_operand_of(first.query)), first.at, False)

    def _tail(self, ctes: tuple[ast.Cte, ...], body: ast.Body, at: int, options: bool) -> ast.Query:
        order_by: tuple[ast.SortKey, ...] = ()
        if self.token.key == "order":
            self.expect("order", "by")
            order_by = self.listed(self._sort_key)
        limit: ast.Expr | None = None
        offset: ast.Expr | None = None
        limited = False
        while True:
            key = self.token.key
            if key in ("limit", "fetch") and not limited:
                limited = True
                limit = self._limit() if key == "limit" else self._fetch()
            elif key == "offset" and offset is None:
                self.advance()
                offset = self.expression()
                self.accept("rows") or self.accept("row")
            else:
                break
        if self.token.key == "for" and self.is_clause():
            raise self.unsupported(f"FOR {self.peek().key.upper()} (locking rows)")
        return ast.Query(ctes, body, order_by, limit, offset, self.options() if options else (), at)

    def _ctes(self) -> tuple[ast.Cte, ...]:
        self.expect("with")
        if self.token.key == "recursive" and self.peek().key not in ("as", "("):
            raise self.unsupported("WITH RECURSIVE")
        return self.listed(self._cte)

    def _cte(self) -> ast.Cte:
        name = self.name()
        columns = self.names() if self.token.key == "(" else ()
        self.expect("as")
        if self.token.key in ("materialized", "not"):
            raise self.unsupported("MATERIALIZED")
        self.expect("(")
        query = self.query()
        self.expect(")")
        return ast.Cte(name, columns, query)

    # --- bodies ---

    def _body(self, left: ast.Body | None = None) -> ast.Body:
        left = self._intersection(left)
        while self.token.key in ("union", "except"):
            at = self.token.at
            kind = _SET_KINDS[self.advance().key]
            every = self._all_or_distinct()
            left = ast.SetOperation(kind, every, left, self._intersection(None), at)
        return left

    def _intersection(self, left: ast.Body | None) -> ast.Body:
        if left is None:
            left = self._operand()
        while self.token.key == "intersect":
            at = self.advance().at
            every = self._all_or_distinct()
            left = ast.SetOperation(ast.SetKind.INTERSECT, every, left, self._operand(), at)
        return left

    def _all_or_distinct(self) -> bool:
        if self.accept("all"):
            return True
        self.accept("distinct")
        return False

    def _operand(self) -> ast.Body:
        match self.token.key:
            case "select":
                return self._select()
            case "values":
                return self._values()
            case "(":
                self.advance()
                query = self.query()
                self.expect(")")
                return _operand_of(query)
            case "table":
                raise self.unsupported("TABLE as a query")
            case "insert" | "update" | "delete" as verb:
                raise self.unsupported(f"{verb.upper()} inside or behind WITH")
            case _:
                raise self.unexpected("SELECT, VALUES or a query in brackets")

    def _select(self) -> ast.Select:
        at = self.expect("select").at
        distinct = False
        if self.accept("distinct"):
            distinct = True
            if self.token.key == "on":
                raise self.unsupported("DISTINCT ON")
        else:
            self.accept("all")
        items = self.select_items()
        if self.token.key == "into":
            raise self.unsupported("SELECT INTO")
        source = self.from_items() if self.accept("from") else None
        where = self.where()
        group_by: tuple[ast.Expr, ...] = ()
        if self.token.key == "group":
            self.expect("group", "by")
            group_by = self.listed(self._group_key)
        having = self.expression() if self.accept("having") else None
        if self.token.key == "window":
            raise self.unsupported("WINDOW")
        return ast.Select(distinct, items, source, where, group_by, having, at)

    def _values(self) -> ast.Values:
        at = self.expect("values").at
        value = self.value_or_default if at == self.insert_values_at else self.expression
        return ast.Values(self.listed(lambda: self.bracketed(value)), at)

    def value_or_default(self) -> ast.Expr:
        if self.token.key == "default" and self.ends_item(1):
            return ast.Default(self.advance().at)
        return self.expression()

    def where(self) -> ast.Expr | None:
        if not self.accept("where"):
            return None
        if self.ahead("current", "of"):
            raise self.unsupported("WHERE CURRENT OF")
        return self.expression()

    def select_items(self) -> tuple[ast.SelectItem, ...]:
        """What SELECT and RETURNING give."""
        return self.listed(self._select_item)

    def _select_item(self) -> ast.SelectItem:
        token = self.token
        if token.key == "*":
            self.advance()
            return ast.SelectItem(ast.Star(None, token.at), None)
        if self.peek().key == "." and self.is_name(token):
            if self.peek(2).key == "*":
                table = self.name()
                self.expect(".", "*")
                return ast.SelectItem(ast.Star(table, token.at), None)
            if self.peek(3).key == "." and self.peek(4).key == "*":
                schema = self.name()
                self.expect(".")
                table = self.label()
                if schema.text not in ("public", "pg_catalog", "information_schema"):
                    raise undefined_schema(schema, table)
                self.expect(".", "*")
                return ast.SelectItem(ast.Star(table, token.at), None)
        expr = self.expression()
        return ast.SelectItem(expr, self.label() if self.accept("as") else self.bare_alias())

    def _group_key(self) -> ast.Expr:
        if self.token.key in ("rollup", "cube") and self.peek().key == "(":
            raise self.unsupported(self.token.key.upper())
        if self.ahead("grouping", "sets"):
            raise self.unsupported("GROUPING SETS")
        if self.ahead("(", ")"):
            raise self.unsupported("GROUP BY ()")
        if self.token.key in ("all", "distinct"):
            raise self.unsupported(f"GROUP BY {self.token.key.upper()}")
        return self.expression()

    def _sort_key(self) -> ast.SortKey:
        at = self.token.at
        expr = self.expression()
        if self.token.key == "using":
            raise self.unsupported("ORDER BY … USING")
        descending = self.descending()
        nulls_first: bool | None = None
        if self.accept("nulls"):
            nulls_first = self.one_of("first", "last") == "first"
        return ast.SortKey(expr, descending, nulls_first, at)

    def descending(self) -> bool:
        """[ASC | DESC]"""
        if self.accept("desc"):
            return True
        self.accept("asc")
        return False

    def _limit(self) -> ast.Expr | None:
        self.expect("limit")
        if self.accept("all"):
            return None
        if self.token.key == "null" and self.ends_item(1):
            self.advance()
            return None
        limit = self.expression()
        if self.token.key == ",":
            raise self.unexpected(hint="LIMIT a, b is another dialect's: write LIMIT b OFFSET a.")
        return limit

    def _fetch(self) -> ast.Expr:
        """FETCH {FIRST | NEXT} n {ROW | ROWS} ONLY"""
        self.expect("fetch")
        self.one_of("first", "next")
        if self.token.key in ("row", "rows"):
            raise self.unsupported("FETCH without a number of rows")
        limit = self.expression()
        self.one_of("row", "rows")
        if self.token.key == "with":
            raise self.unsupported("WITH TIES")
        self.expect("only")
        return limit

    # --- FROM ---

    def from_items(self) -> ast.FromItem:
        """Items joined by commas, each of which may be a join."""
        left = self._joined(self._from_item())
        while self.token.key == ",":
            at = self.advance().at
            left = ast.Join(ast.JoinKind.CROSS, left, self._joined(self._from_item()), None, at)
        return left

    def _joined(self, left: ast.FromItem) -> ast.FromItem:
        """The joins that follow an item."""
        while (kind := self._join_kind()) is not None:
            at = self.token.at
            left = self._join(left, kind, at)
        return left

    def _join(self, left: ast.FromItem, kind: ast.JoinKind, at: int) -> ast.Join:
        while self.advance().key != "join":
            pass
        right = self._from_item()
        if kind is ast.JoinKind.CROSS:
            return ast.Join(kind, left, right, None, at)
        # a JOIN b JOIN c ON … ON …: the nearer ON belongs to the nearer JOIN.
        while self.token.key != "on" and (inner := self._join_kind()) is not None:
            self.enter(2)
            right = self._join(right, inner, self.token.at)
            self.nesting -= 2
        if self.token.key == "using":
            raise self.unsupported("JOIN … USING")
        self.expect("on")
        return ast.Join(kind, left, right, self.expression(), at)

    def _join_kind(self) -> ast.JoinKind | None:
        """The kind of join in front, if there is one. Takes nothing."""
        key = self.token.key
        following = self.peek().key
        if key == "join":
            return ast.JoinKind.INNER
        if key in ("inner", "cross") and following == "join":
            return ast.JoinKind(key)
        if key in ("left", "right", "full"):
            last = self.peek(2).key if following == "outer" else following
            if last == "join":
                if key == "full":
                    raise self.unsupported("FULL JOIN")
                return ast.JoinKind(key)
        if key == "natural" and self.is_clause():
            raise self.unsupported("NATURAL JOIN")
        return None

    def _from_item(self) -> ast.FromItem:
        token = self.token
        if token.key == "(":
            item = self._bracketed_item()
            if isinstance(item, ast.Query):
                alias, columns = self._alias_and_columns()
                return ast.SubqueryRef(item, alias, columns, token.at)
            if self.token.key == "as" or self._is_alias():
                raise self.unsupported("an alias of a join")
            return item
        if token.key == "lateral" and (self.peek().key == "(" or self.is_name(self.peek())):
            raise self.unsupported("LATERAL")
        if token.key == "only" and self.is_name(self.peek()):
            raise self.unsupported("ONLY")
        schema, name = self.qualified_name("a table")
        if self.token.key == "(":
            raise self.unsupported("a function in FROM", token)
        alias, columns = self._alias_and_columns()
        indexed_by = self.indexed_by()
        return ast.TableRef(name, schema, alias, columns, indexed_by, token.at)

    def _bracketed_item(self) -> ast.Query | ast.FromItem:
        """(query) or (a JOIN b …): which of the two shows only behind any number of brackets."""
        self.enter(_QUERY_LEVELS)
        self.expect("(")
        item: ast.Query | ast.FromItem
        if self.starts_query():
            item = self.query()
        elif self.token.key == "(":
            at = self.token.at
            item = self._bracketed_item()
            if isinstance(item, ast.Query) and self.token.key in _QUERY_TAILS and not self._is_alias():
                item = self._tail((), self._body(_operand_of(item)), at, False)
            elif isinstance(item, ast.Query) and self.token.key != ")":
                alias, columns = self._alias_and_columns()
                item = self._rest_of_join(ast.SubqueryRef(item, alias, columns, at))
            elif not isinstance(item, ast.Query):
                item = self._rest_of_join(item)
        else:
            item = self._rest_of_join(self._from_item())
        self.expect(")")
        self.nesting -= _QUERY_LEVELS
        return item

    def _rest_of_join(self, item: ast.FromItem) -> ast.FromItem:
        joined = self._joined(item)
        if not isinstance(joined, ast.Join):
            raise self.unexpected("JOIN")
        return joined

    def _is_alias(self) -> bool:
        return self.is_name(self.token) and not self.is_clause()

    def _alias_and_columns(self) -> tuple[ast.Name | None, tuple[ast.Name, ...]]:
        """[[AS] alias [(column, …)]]"""
        alias = self.name() if self.accept("as") else self.bare_alias()
        if alias is not None and self.token.key == "(":
            return alias, self.names()
        return alias, ()

    def indexed_by(self) -> ast.Name | None:
        """[INDEXED BY index]"""
        if not self.accept_all("indexed", "by"):
            return None
        return self.object_name("an index")

    def qualified_name(self, what: str) -> tuple[ast.Name | None, ast.Name]:
        """[schema.]name; public is dropped, and only the system schemas are known beside it."""
        name = self.name(what)
        if not self.accept("."):
            return None, name
        schema, name = name, self.label(what)
        if self.token.key == ".":
            raise self.unsupported("a name of another database", self.token)
        if schema.text == "public":
            return None, name
        if schema.text not in ("pg_catalog", "information_schema"):
            raise undefined_schema(schema, name)
        return schema, name

    def object_name(self, what: str) -> ast.Name:
        """[public.]name, of what is changed: nothing in the system schemas can be."""
        schema, name = self.qualified_name(what)
        if schema is not None:
            raise InsufficientPrivilege(
                f'permission denied: "{name.text}" is in a system schema', position=schema.at + 1
            )
        return name

    # --- options ---

    def options(self) -> tuple[ast.Option, ...]:
        """[OPTION (name = value, …)]"""
        return self.bracketed(self._option) if self.accept("option") else ()

    def _option(self) -> ast.Option:
        name = self.name("an option")
        if name.text not in _UNSIGNED_OPTIONS and name.text not in _WORD_OPTIONS:
            raise SqlSyntaxError(
                f'unknown option "{name.text}": expected VdbeOpcodeMax, MotionRowMax, ReadPreference, or Forward',
                position=name.at + 1,
                detail="rule parsing error",
            )
        self.expect("=")
        token = self.token
        value: ast.Literal | ast.Parameter | ast.Name
        if name.text in _WORD_OPTIONS:
            # OFF and ON are values, and ON is reserved.
            value = self.label("a word")
        elif token.kind is TokenKind.PARAMETER:
            value = ast.Parameter(self.advance().number, token.at)
        elif token.kind is TokenKind.INTEGER or (name.text == "timeout" and token.kind in NUMBERS):
            value = self.literal(NUMBERS[token.kind])
        else:
            raise self.unexpected("Unsigned or Parameter")
        return ast.Option(name, value, name.at)


def _operand_of(query: ast.Query) -> ast.Body:
    """A query in brackets as an operand: without clauses of its own it is just its body."""
    if query.ctes or query.order_by or query.limit is not None or query.offset is not None:
        return query
    return query.body
