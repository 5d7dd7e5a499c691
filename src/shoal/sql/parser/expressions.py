"""Expressions: a Pratt parser (top-down operator precedence).

Each operator between or behind its operands has a power; `expression(power)` takes whatever binds at
least that strongly. From weak to strong: OR, AND, NOT, LIKE ILIKE, SIMILAR TO, BETWEEN, comparisons and
IN, ||, + -, * / %, IS, the sign, [], ::. So 'x' || a IS NULL is 'x' || (a IS NULL). What stands between
operands associates to the left. A sign right before a number belongs to the number.

Here: operators, calls and their special forms, types' names.
Not here: subqueries (queries.py), what an operator means for which types (bind/).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from shoal.errors import FeatureNotSupported, UndefinedFunction, UndefinedTable
from shoal.sql import ast
from shoal.sql.lexer import TokenKind
from shoal.sql.parser.cursor import NUMBERS, Cursor

OR, AND, NOT, LIKE, SIMILAR, BETWEEN, COMPARE, CONCAT, ADD, MULTIPLY, IS, SIGN, INDEX, CAST = range(1, 15)

POWERS: Final = {
    "or": OR,
    "and": AND,
    "like": LIKE,
    "ilike": LIKE,
    "similar": SIMILAR,
    "between": BETWEEN,
    "=": COMPARE,
    "<>": COMPARE,
    "!=": COMPARE,
    "<": COMPARE,
    "<=": COMPARE,
    ">": COMPARE,
    ">=": COMPARE,
    "in": COMPARE,
    "||": CONCAT,
    "+": ADD,
    "-": ADD,
    "*": MULTIPLY,
    "/": MULTIPLY,
    "%": MULTIPLY,
    "is": IS,
    "[": INDEX,
    "::": CAST,
    "not": NOT,
    "collate": CAST,
    "at": CAST,
}
# What stands behind an operand, and can't begin one.
_BEHIND_OPERANDS: Final = frozenset(POWERS) - {"+", "-", "not"} | {")", ",", "."}
# Whether these are operators, and which, depends on the words behind them.
_CONTEXTUAL: Final = frozenset(("not", "is", "like", "ilike", "similar", "collate", "at"))

# A longer chain of AND or OR becomes a balanced tree: it means the same, and isn't thousands deep.
CHAIN_MAX: Final = 64

# Calls without brackets. The first five are reserved; the others are names once a table is named before.
_BARE_CALLS: Final = frozenset(
    ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
)
_SESSION_CALLS: Final = frozenset(
    ("current_user", "session_user", "current_role", "current_catalog", "current_schema")
)
_QUANTIFIERS: Final = frozenset(("any", "some", "all"))
_TRIM_SIDES: Final = frozenset(("both", "leading", "trailing"))

# Types of several words: what may follow the first.
_LONG_TYPES: Final = {
    "double": (("precision",),),
    "character": (("varying",),),
    "char": (("varying",),),
    "bit": (("varying",),),
    "timestamp": (("with", "time", "zone"), ("without", "time", "zone")),
    "time": (("with", "time", "zone"), ("without", "time", "zone")),
}


class Expressions(Cursor, ABC):
    @abstractmethod
    def query(self, *, options: bool = False) -> ast.Query:
        """[WITH …] SELECT …, VALUES … and what they are combined to."""

    @abstractmethod
    def query_behind(self, first: ast.ScalarQuery) -> ast.Query | None:
        """The query that goes on behind `(…)`, which looked like a subquery; None if none does."""

    def expression(self, power: int = OR) -> ast.Expr:
        """The longest expression in front whose operators all bind at least that strongly."""
        self.enter()
        token = self.token
        prefix = _PREFIXES.get(token.key)
        if prefix is not None:
            left = prefix(self)
        elif token.key:
            left = self._named()
        else:
            left = self._literal()
        while True:
            key = self.token.key
            found = POWERS.get(key)
            if found is None:
                break
            if key in _CONTEXTUAL:
                found = self._power()
            if found < power:
                break
            infix = _INFIXES.get(key)
            if infix is not None:
                left = infix(self, left)
            elif found == COMPARE:
                left = self._comparison(left)
            elif found <= AND:
                left = self._chain(left, found)
            else:
                at = self.advance().at
                left = ast.Binary(key, left, self.expression(found + 1), at)
        self.nesting -= 1
        return left

    def expressions(self) -> tuple[ast.Expr, ...]:
        # Not listed(): calls nest, and this is on the way of each level.
        items = [self.expression()]
        while self.accept(","):
            items.append(self.expression())
        return tuple(items)

    def _power(self) -> int:
        """The power of a word that is an operator only together with what follows it; -1 if it isn't."""
        key = self.token.key
        following = self.tokens[self.index + 1].key
        if key == "not":
            if following == "similar":
                return SIMILAR
            return POWERS[following] if following in ("in", "like", "ilike", "between") else -1
        if key == "is":
            last = self.tokens[self.index + 2].key if following == "not" else following
            return COMPARE if last == "distinct" else IS
        if key == "similar":
            return SIMILAR if following == "to" else -1
        return POWERS[key] if self.is_clause() else -1

    # --- what an expression begins with ---

    def _literal(self) -> ast.Expr:
        token = self.token
        kind = NUMBERS.get(token.kind)
        if kind is not None:
            return self.literal(kind)
        if token.kind is TokenKind.STRING:
            return self.literal(ast.LiteralKind.STRING)
        if token.kind is TokenKind.PARAMETER:
            self.advance()
            return ast.Parameter(token.number, token.at)
        return self._named()

    def _sign(self) -> ast.Expr:
        sign = self.advance()
        kind = NUMBERS.get(self.token.kind)
        if kind is not None:
            return self.literal(kind, sign)
        return ast.Unary(sign.key, self.expression(INDEX), sign.at)

    def _not(self) -> ast.Expr:
        at = self.advance().at
        return ast.Unary("not", self.expression(NOT), at)

    def _null(self) -> ast.Expr:
        return ast.NullLiteral(self.advance().at)

    def _boolean(self) -> ast.Expr:
        token = self.advance()
        return ast.BooleanLiteral(token.key == "true", token.at)

    def _parenthesised(self) -> ast.Expr:
        """(e), (e, e, …), or (query)."""
        at = self.advance().at
        if self.starts_query():
            query = self.query()
            self.expect(")")
            return ast.ScalarQuery(query, at)
        first = self.expression()
        if isinstance(first, ast.ScalarQuery):
            # ((SELECT 1) UNION …): what looked like an operand was the beginning of a query.
            if (longer := self.query_behind(first)) is not None:
                self.expect(")")
                return ast.ScalarQuery(longer, at)
        if self.accept(")"):
            return first
        items = [first]
        while self.accept(","):
            items.append(self.expression())
        self.expect(")")
        return ast.RowExpr(tuple(items), at)

    def _case(self) -> ast.Expr:
        at = self.advance().at
        operand = None if self.token.key == "when" else self.expression()
        branches: list[tuple[ast.Expr, ast.Expr]] = []
        while not branches or self.token.key == "when":
            self.expect("when")
            condition = self.expression()
            self.expect("then")
            branches.append((condition, self.expression()))
        otherwise = self.expression() if self.accept("else") else None
        self.expect("end")
        return ast.Case(operand, tuple(branches), otherwise, at)

    def _cast_call(self) -> ast.Expr:
        at = self.advance().at
        self.expect("(")
        arg = self.expression()
        self.expect("as")
        type_name = self.type_name()
        self.expect(")")
        return ast.Cast(arg, type_name, at)

    def _exists(self) -> ast.Expr:
        at = self.advance().at
        self.expect("(")
        query = self.query()
        self.expect(")")
        return ast.Exists(query, at)

    def _array(self) -> ast.Expr:
        at = self.advance().at
        if self.token.key == "(":
            raise self.unsupported("ARRAY over a subquery")
        self.expect("[")
        if self.token.key == "[":
            raise FeatureNotSupported("nested arrays are not supported", position=self.token.at + 1)
        items = () if self.token.key == "]" else self.expressions()
        self.expect("]")
        return ast.ArrayExpr(items, at)

    def _clock(self) -> ast.Expr:
        token = self.advance()
        args: tuple[ast.Expr, ...] = ()
        if token.key != "current_date" and self.accept("("):
            if self.token.kind is not TokenKind.INTEGER:
                raise self.unexpected("a precision")
            args = (self._literal(),)
            self.expect(")")
        return _call(ast.Name(token.key, token.at), args)

    def _substring(self) -> ast.Expr:
        name = self.advance()
        self.expect("(")
        arg = self.expression()
        if self.token.key in (",", ")"):
            args = [arg]
            while self.accept(","):
                args.append(self.expression())
            self.expect(")")
            return _call(ast.Name("substring", name.at), tuple(args))
        start = length = pattern = escape = None
        if self.accept("similar"):
            pattern = self.expression(LIKE)
            self.expect("escape")
            escape = self.expression()
        else:
            while (start is None and self.accept("from")) or (length is None and self.accept("for")):
                if self.tokens[self.index - 1].key == "from":
                    start = self.expression()
                else:
                    length = self.expression()
            if start is None and length is None:
                raise self.unexpected("FROM, FOR or SIMILAR")
        self.expect(")")
        return ast.Substring(arg, start, length, pattern, escape, name.at)

    # --- names: columns and calls ---

    def _named(self) -> ast.Expr:
        """A column, or a call."""
        token = self.token
        if not self.is_name(token):
            raise self.unexpected("Expr")
        following = self.tokens[self.index + 1].key
        if following == "(":
            special = _SPECIAL_CALLS.get(token.key)
            if special is not None:
                return special(self)
            self.advance()
            return self._call(ast.Name(token.value, token.at))
        self.advance()
        name = ast.Name(token.value, token.at)
        if following != ".":
            if token.key in _SESSION_CALLS:
                return _call(name, ())
            return ast.ColumnRef(None, name, name.at)
        self.advance()
        second = self.label()
        if self.token.key == "(":
            self._check_function_schema(name, second)
            return self._call(second)
        if not self.accept("."):
            return ast.ColumnRef(name, second, name.at)
        third = self.label()
        if self.token.key in (".", "("):
            raise self.unsupported("a name of another database")
        if name.text not in ("public", "pg_catalog", "information_schema"):
            raise undefined_schema(name, second)
        return ast.ColumnRef(second, third, name.at)

    def _left(self) -> ast.Expr:
        """The function left(text, n): the word is reserved for joins, but none stands here."""
        if self.peek().key != "(":
            raise self.unexpected("Expr")
        token = self.advance()
        return self._call(ast.Name(token.value, token.at))

    def _check_function_schema(self, schema: ast.Name, name: ast.Name) -> None:
        if schema.text not in ("public", "pg_catalog"):
            raise UndefinedFunction(
                f"SQL function {schema.text}.{name.text} not found", position=schema.at + 1
            )

    def _call(self, name: ast.Name) -> ast.Call:
        """(args) and what may follow them."""
        self.expect("(")
        star = distinct = False
        args: tuple[ast.Expr, ...] = ()
        if self.token.key == "*":
            self.advance()
            star = True
        elif self.token.key != ")":
            if self.accept("distinct"):
                distinct = True
            elif self.token.key == "all":
                self.advance()
            if self.token.key == "variadic":
                raise self.unsupported("VARIADIC")
            args = self.expressions()
            if self.token.key == "order":
                raise self.unsupported("ORDER BY inside an aggregate")
            if self.token.key in ("=>", ":="):
                raise self.unsupported("an argument by name")
        self.expect(")")
        if self.ahead("within", "group"):
            raise self.unsupported("WITHIN GROUP")
        condition = None
        if self.accept("filter"):
            self.expect("(", "where")
            condition = self.expression()
            self.expect(")")
        over = self._over()
        return ast.Call(name, args, star, distinct, condition, over, name.at)

    def _over(self) -> bool:
        """[OVER name | OVER (…)], which bind/ refuses whatever stands in it: so nothing of it is kept."""
        if not self.accept("over"):
            return False
        if self.token.key != "(":
            self.name("a window")
            return True
        depth = 0
        while True:
            if self.token.kind is TokenKind.END:
                raise self.unexpected('")"')
            match self.advance().key:
                case "(":
                    depth += 1
                case ")":
                    depth -= 1
                    if depth == 0:
                        return True

    def _row(self) -> ast.Expr:
        at = self.advance().at
        self.expect("(")
        items = self.expressions()
        self.expect(")")
        return ast.RowExpr(items, at)

    def _trim(self) -> ast.Expr:
        at = self.advance().at
        self.expect("(")
        side = "both"
        # A column may be called like a side: then what may stand behind an operand follows.
        if self.token.key in _TRIM_SIDES and self.peek().key not in _BEHIND_OPERANDS:
            side = self.advance().key
        chars: ast.Expr | None = None
        if self.accept("from"):
            arg = self.expression()
        else:
            arg = self.expression()
            if self.accept("from"):
                chars, arg = arg, self.expression()
            elif self.accept(","):
                chars = self.expression()
        self.expect(")")
        return ast.Trim(side, chars, arg, at)

    def _position(self) -> ast.Expr:
        name = self.advance()
        self.expect("(")
        needle = self.expression(CONCAT)  # IN ends it
        self.expect("in")
        text = self.expression()
        self.expect(")")
        return _call(ast.Name("position", name.at), (needle, text))

    def _extract(self) -> ast.Expr:
        raise self.unsupported(self.token.key.upper())

    # --- operators between and behind operands ---

    def _chain(self, left: ast.Expr, power: int) -> ast.Expr:
        """a AND b AND …"""
        op = self.token.key
        operands = [left]
        places: list[int] = []
        while self.token.key == op:
            places.append(self.advance().at)
            operands.append(self.expression(power + 1))
        if len(places) > CHAIN_MAX:
            return _balanced(op, operands, places, 0, len(operands))
        for place, right in zip(places, operands[1:], strict=True):
            left = ast.Binary(op, left, right, place)
        return left

    def _comparison(self, left: ast.Expr) -> ast.Expr:
        operator = self.advance()
        op = "<>" if operator.key == "!=" else operator.key
        if self.token.key in _QUANTIFIERS and self.peek().key == "(":
            return self._quantified(left, op, operator.at)
        return ast.Binary(op, left, self.expression(COMPARE + 1), operator.at)

    def _quantified(self, left: ast.Expr, op: str, at: int) -> ast.Expr:
        """= ANY (array) or, as = ANY and <> ALL only, over a query: these are IN and NOT IN."""
        quantifier = self.advance()
        every = quantifier.key == "all"
        self.expect("(")
        if not self.starts_query():
            array = self.expression()
            if not isinstance(array, ast.ScalarQuery):
                self.expect(")")
                return ast.Quantified(op, left, every, array, at)
            query = self.query_behind(array) or array.query
        else:
            query = self.query()
        self.expect(")")
        if (op, every) not in (("=", False), ("<>", True)):
            raise self.unsupported(f"{op} {quantifier.key.upper()} over a subquery", quantifier)
        return ast.InQuery(left, query, every, at)

    def _is(self, left: ast.Expr) -> ast.Expr:
        at = self.advance().at
        negated = self.accept("not")
        if self.accept("distinct"):
            self.expect("from")
            return ast.IsDistinct(left, self.expression(COMPARE + 1), negated, at)
        if self.token.key not in ("null", "true", "false", "unknown"):
            raise self.unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return ast.IsTest(left, self.advance().key, negated, at)

    def _negated(self, left: ast.Expr) -> ast.Expr:
        """a NOT IN, NOT LIKE, NOT ILIKE, NOT SIMILAR TO, NOT BETWEEN."""
        at = self.advance().at
        match self.token.key:
            case "in":
                return self._in(left, at)
            case "between":
                return self._between(left, at)
            case _:
                return self._like(left, at)

    def _like(self, left: ast.Expr, negated_at: int | None = None) -> ast.Expr:
        operator = self.advance()
        power = LIKE
        if operator.key == "similar":
            self.expect("to")
            power = SIMILAR
        if self.token.key in _QUANTIFIERS and self.peek().key == "(":
            raise self.unsupported(f"{operator.key.upper()} {self.token.key.upper()}")
        pattern = self.expression(power + 1)
        escape = self.expression(LIKE + 1) if self.accept("escape") else None
        kind = ast.LikeKind(operator.key)
        at = operator.at if negated_at is None else negated_at
        return ast.Like(kind, left, pattern, escape, negated_at is not None, at)

    def _between(self, left: ast.Expr, negated_at: int | None = None) -> ast.Expr:
        operator = self.advance()
        if self.token.key in ("symmetric", "asymmetric") and not self.ends_item(1):
            raise self.unsupported(f"BETWEEN {self.token.key.upper()}")
        low = self.expression(BETWEEN + 1)
        self.expect("and")
        high = self.expression(BETWEEN + 1)
        at = operator.at if negated_at is None else negated_at
        return ast.Between(left, low, high, negated_at is not None, at)

    def _in(self, left: ast.Expr, negated_at: int | None = None) -> ast.Expr:
        operator = self.advance()
        at = operator.at if negated_at is None else negated_at
        negated = negated_at is not None
        self.expect("(")
        if self.starts_query():
            query = self.query()
            self.expect(")")
            return ast.InQuery(left, query, negated, at)
        first = self.expression()
        if isinstance(first, ast.ScalarQuery):
            # IN ((SELECT …)) is a query in brackets, as in PostgreSQL.
            longer = self.query_behind(first)
            if longer is not None or self.token.key == ")":
                self.expect(")")
                return ast.InQuery(left, longer or first.query, negated, at)
        items = [first]
        while self.accept(","):
            items.append(self.expression())
        self.expect(")")
        return ast.InList(left, tuple(items), negated, at)

    def _index(self, left: ast.Expr) -> ast.Expr:
        at = self.advance().at
        if self.token.key == ":":
            raise self.unsupported("a slice of an array")
        index = self.expression()
        if self.token.key == ":":
            raise self.unsupported("a slice of an array")
        self.expect("]")
        return ast.IndexExpr(left, index, at)

    def _cast(self, left: ast.Expr) -> ast.Expr:
        at = self.advance().at
        return ast.Cast(left, self.type_name(), at)

    def _collate(self, left: ast.Expr) -> ast.Expr:
        raise self.unsupported("COLLATE")

    def _at_time_zone(self, left: ast.Expr) -> ast.Expr:
        raise self.unsupported("AT TIME ZONE")

    # --- types ---

    def type_name(self, *, column: bool = False) -> ast.TypeName:
        """A type's name; a column's may have brackets with lengths, several too, and they mean nothing.

        In a cast only one pair of empty brackets belongs to the type: b::int[][2] is an index behind.
        """
        first = self.name("a type")
        if self.token.key == "." and first.text in ("pg_catalog", "public"):
            self.advance()
            first = self.label("a type")
        words = first.text
        arguments: tuple[int, ...] = ()
        quoted = self.tokens[self.index - 1].kind is TokenKind.QUOTED
        if not quoted:
            if words in ("timestamp", "time") and self.token.key == "(":
                arguments = self.bracketed(self.unsigned_integer)
            for more in _LONG_TYPES.get(words, ()):
                if self.accept_all(*more):
                    words = " ".join((words, *more))
                    break
        if self.token.key == "(" and not arguments:
            arguments = self.bracketed(self.unsigned_integer)
        is_array = False
        if self.token.key == "array":
            self.advance()
            is_array = True
            if self.token.key == "[" and self.peek().kind is TokenKind.INTEGER and self.peek(2).key == "]":
                self._dimension()
        elif column:
            while self.token.key == "[":
                is_array = True
                self._dimension()
        elif self.accept_all("[", "]"):
            is_array = True
        return ast.TypeName(words, arguments, is_array, first.at)

    def _dimension(self) -> None:
        """[] or [n]: an array is of one dimension and any length, whatever the brackets say."""
        self.expect("[")
        if self.token.key != "]":
            self.unsigned_integer()
        self.expect("]")


def undefined_schema(schema: ast.Name, table: ast.Name) -> UndefinedTable:
    return UndefinedTable(
        f'table with name "{schema.text}.{table.text}" not found',
        position=schema.at + 1,
        detail=f'schema "{schema.text}" does not exist, the only one for tables is public',
    )


def _call(name: ast.Name, args: tuple[ast.Expr, ...]) -> ast.Call:
    return ast.Call(name, args, False, False, None, False, name.at)


def _balanced(op: str, operands: list[ast.Expr], places: list[int], start: int, end: int) -> ast.Expr:
    """operands[start:end] joined by op as a tree of the least depth. places[i] is behind operands[i]."""
    if end - start == 1:
        return operands[start]
    middle = (start + end) // 2
    left = _balanced(op, operands, places, start, middle)
    right = _balanced(op, operands, places, middle, end)
    return ast.Binary(op, left, right, places[middle - 1])


_PREFIXES: Final[dict[str, Callable[[Expressions], ast.Expr]]] = {
    "(": Expressions._parenthesised,
    "-": Expressions._sign,
    "+": Expressions._sign,
    "not": Expressions._not,
    "null": Expressions._null,
    "true": Expressions._boolean,
    "false": Expressions._boolean,
    "case": Expressions._case,
    "cast": Expressions._cast_call,
    "exists": Expressions._exists,
    "array": Expressions._array,
    "substring": Expressions._substring,
    "left": Expressions._left,
    **dict.fromkeys(_BARE_CALLS, Expressions._clock),
}

_SPECIAL_CALLS: Final[dict[str, Callable[[Expressions], ast.Expr]]] = {
    "row": Expressions._row,
    "trim": Expressions._trim,
    "position": Expressions._position,
    "extract": Expressions._extract,
    "overlay": Expressions._extract,
}

_INFIXES: Final[dict[str, Callable[[Expressions, ast.Expr], ast.Expr]]] = {
    "is": Expressions._is,
    "not": Expressions._negated,
    "like": Expressions._like,
    "ilike": Expressions._like,
    "similar": Expressions._like,
    "between": Expressions._between,
    "in": Expressions._in,
    "[": Expressions._index,
    "::": Expressions._cast,
    "collate": Expressions._collate,
    "at": Expressions._at_time_zone,
}
