"""Expressions: names resolved, an overload chosen for each operator, every operand of the type it wants.

Here: Expressions, which binds the expressions of one clause in one scope: leaves, operators, predicates.
Not here: calls (calls.py, aggregates.py), what is known before binding (hints.py), the rules of the choice
(coercion.py).

An expression is bound from the top down. At each operator hints tell what the operands would be by
themselves, the overload is chosen by them, and then each operand is bound with the wish for its type. A
wish reaches as far as it can be granted: literals, NULLs, parameters without a type, and what is made of
them. What has another type after that is converted, if the language does so by itself, or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from shoal.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    ShoalError,
    SqlSyntaxError,
    StatementTooComplex,
    UndefinedFunction,
    UndefinedObject,
)
from shoal.sql import ast, plan
from shoal.sql.bind import aggregates, calls, hints
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.coercion import Hint, choose, conversions, implicit, listed, plain, shown, unify
from shoal.sql.bind.outputs import query_as
from shoal.sql.bind.scope import Scope
from shoal.sql.functions import OPERATORS
from shoal.types.sqltype import ANY, BOOLEAN, INT, TEXT, Kind, SqlType, array_of, type_of_name

DEPTH_MAX: Final = 200
# Their own place is that of the operator behind the first operand.
_POSTFIX: Final = (
    ast.IsTest,
    ast.Between,
    ast.InList,
    ast.InQuery,
    ast.Quantified,
    ast.Like,
    ast.Cast,
    ast.IndexExpr,
)
COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})


class Clause(Enum):
    """Where an expression stands: that decides about aggregates and volatile functions."""

    SELECT = "SELECT"
    WHERE = "WHERE"
    ON = "ON"
    GROUP_BY = "GROUP BY"
    HAVING = "HAVING"
    ORDER_BY = "ORDER BY"
    AGGREGATE = "an aggregate"
    VALUES = "VALUES"
    SET = "SET"
    RETURNING = "RETURNING"
    LIMIT = "LIMIT"


FILTERS: Final = frozenset({Clause.WHERE, Clause.ON, Clause.HAVING})
WITH_AGGREGATES: Final = frozenset({Clause.SELECT, Clause.HAVING, Clause.ORDER_BY})


class Expressions:
    def __init__(self, binding: Binding, scope: Scope, clause: Clause) -> None:
        self.binding = binding
        self.scope = scope
        self.clause = clause
        self.aggregates = aggregates.Seen()

    # --- from outside ---

    def bind_unit(self, node: ast.Expr, desired: SqlType | None = None) -> plan.Expr:
        """A whole expression: what parameters are in it is decided in it."""
        with self.binding.parameters.unit():
            return self.bind(node, desired)

    def condition(self, node: ast.Expr) -> plan.Expr:
        """A filter: WHERE, ON, HAVING."""
        bound = self.bind_unit(node, BOOLEAN)
        if not bound.type.is_boolean:
            raise DatatypeMismatch(
                "filter expression is not a trivalent expression", position=place(node) + 1
            )
        return bound

    def hint(self, node: ast.Expr) -> Hint:
        found = self.binding.known_hint(node)
        return found if found is not None else self.binding.keep_hint(node, hints.hint(self, node))

    def bind(self, node: ast.Expr, desired: SqlType | None = None) -> plan.Expr:
        binding = self.binding
        binding.depth += 1
        if binding.depth > DEPTH_MAX:
            raise StatementTooComplex("expression is nested too deeply", position=place(node) + 1)
        bound = self._bind(node, desired)
        binding.depth -= 1
        return bound

    def bind_as(self, node: ast.Expr, wanted: SqlType) -> plan.Expr | None:
        """As the type that is wanted; None if it is of another, and isn't converted by itself."""
        return self.coerced(self.bind(node, wanted), wanted, place(node))

    def coerced(self, bound: plan.Expr, wanted: SqlType, at: int) -> plan.Expr | None:
        if bound.type.same_values(wanted):
            return bound
        if implicit(bound.type, wanted):
            return self.binding.convert(bound, wanted, at, implicit=True)
        return None

    def _bind(self, node: ast.Expr, desired: SqlType | None) -> plan.Expr:
        match node:
            case ast.ColumnRef():
                return self._column(node, desired)
            case ast.Literal():
                return self._literal(node, desired)
            case ast.Parameter():
                return self._parameter(node, desired)
            case ast.Binary():
                return self._binary(node, desired)
            case ast.NullLiteral():
                return plan.Const(None, TEXT if desired is None else plain(desired))
            case ast.BooleanLiteral():
                return plan.Const(int(node.value), BOOLEAN)
            case ast.Call():
                return self._call(node, desired)
            case ast.Cast():
                return self._cast(node)
            case ast.Unary():
                return self._unary(node, desired)
            case ast.IsTest():
                return self._is_test(node)
            case ast.IsDistinct():
                return self._is_distinct(node)
            case ast.Between():
                return self._between(node)
            case ast.InList():
                return self._in_list(node)
            case ast.InQuery():
                return self._in_query(node.arg, node.query, node.negated, node.at)
            case ast.Quantified():
                return self._quantified(node)
            case ast.Like():
                return self._like(node)
            case ast.Case():
                return self._case(node, desired)
            case ast.Trim():
                return calls.bind_trim(self, node)
            case ast.Substring():
                return calls.bind_substring(self, node)
            case ast.Exists():
                return plan.Exists(self.binding.subquery(node.query, self.inner_scope()))
            case ast.ScalarQuery():
                return self._scalar_query(node, desired)
            case ast.ArrayExpr():
                return self._array(node, desired)
            case ast.IndexExpr():
                return self._index(node)
            case ast.RowExpr():
                raise row_misused(node)
            case ast.Star():
                raise SqlSyntaxError("* is not an expression", position=node.at + 1)
            case ast.Default():
                raise SqlSyntaxError("DEFAULT is not an expression", position=node.at + 1)

    # --- leaves ---

    def _column(self, node: ast.ColumnRef, desired: SqlType | None) -> plan.Expr:
        found = self.scope.column(node)
        if isinstance(found, plan.Column):
            return self.binding.placed(found, node.at)
        return self.behind_alias().bind(found, desired)

    def behind_alias(self) -> Expressions:
        """What an alias stands for knows no aliases."""
        inner = Expressions(self.binding, self.scope.without_aliases(), self.clause)
        inner.aggregates = self.aggregates
        return inner

    def inner_scope(self) -> Scope:
        return self.scope.without_aliases()

    def _literal(self, node: ast.Literal, desired: SqlType | None) -> plan.Const:
        natural = hints.natural(node)
        if desired is None or desired.is_unknown:
            return self.binding.literal(node, natural)
        wanted = plain(desired)
        if wanted.is_int and node.kind is ast.LiteralKind.INTEGER:
            return self.binding.literal(node, wanted)  # refused if it is too big
        if node.kind is ast.LiteralKind.STRING:
            # A column of ANY or ARRAY takes the text as it is, not as JSON: see assign().
            return self.binding.literal(node, TEXT if wanted.kind is Kind.ANY else wanted)
        takes = implicit(natural, wanted) or (natural.is_decimal and wanted.is_double)
        return self.binding.literal(node, wanted if takes and wanted.kind is not Kind.ANY else natural)

    def _parameter(self, node: ast.Parameter, desired: SqlType | None) -> plan.Param:
        parameters = self.binding.parameters
        if parameters.hint(node.number).is_unknown:
            self.binding.forget_hints()
        return plan.Param(node.number, parameters.type_of(node.number, desired, node.at))

    def _cast(self, node: ast.Cast) -> plan.Expr:
        target = cast_target(node.type)
        arg = node.arg
        if isinstance(arg, ast.Parameter):
            return self._cast_parameter(arg, target)
        leaf = isinstance(arg, ast.Literal) and arg.kind is ast.LiteralKind.STRING
        wish = plain(target) if leaf or isinstance(arg, ast.NullLiteral | ast.ArrayExpr) else None
        return self.binding.convert(self.bind(arg, wish), target, node.type.at, implicit=False)

    def _cast_parameter(self, node: ast.Parameter, target: SqlType) -> plan.Expr:
        """$1::t says what $1 is, if nothing else has. Two such in one unit contradict each other."""
        bound = self._parameter(node, target)
        if not bound.type.same_values(target) and self.binding.parameters.found_here(node.number):
            raise self.binding.parameters.conflict(node.number, target, node.at)
        if bound.type.same_values(target) and target == plain(target):
            return bound
        return self.binding.convert(bound, target, node.at, implicit=False)

    # --- operators ---

    def _unary(self, node: ast.Unary, desired: SqlType | None) -> plan.Expr:
        if node.op == "not":
            arg = self.bind(node.arg, BOOLEAN)
            if not arg.type.is_boolean:
                raise DatatypeMismatch(
                    f"argument of NOT must be type boolean, not type {shown(arg.type)}",
                    position=place(node.arg) + 1,
                )
            return plan.Op("not", (arg,), BOOLEAN)
        chosen = choose(OPERATORS["neg"], (self.hint(node.arg),), desired)
        if chosen is None:
            raise self.no_operator(node.op, (node.arg,), node.at)
        arg = self.wanted(node.op, (node.arg,), chosen.args, node.at)[0]
        return arg if node.op == "+" else plan.Op("neg", (arg,), chosen.result)

    def _binary(self, node: ast.Binary, desired: SqlType | None) -> plan.Expr:
        if node.op in ("and", "or"):
            return self._logic(node)
        if node.op in COMPARISONS:
            return self._comparison(node.op, node.left, node.right, node.at)
        operands = (node.left, node.right)
        chosen = choose(OPERATORS[node.op], [self.hint(operand) for operand in operands], desired)
        if chosen is None:
            raise self.no_operator(node.op, operands, node.at)
        args = self.wanted(node.op, operands, chosen.args, node.at)
        if node.op == "||":
            args = tuple(
                self.binding.convert(arg, TEXT, place(operand), implicit=True)
                for arg, operand in zip(args, operands, strict=True)
            )
        return plan.Op(node.op, args, chosen.result)

    def wanted(
        self, op: str, operands: Sequence[ast.Expr], types: Sequence[SqlType], at: int
    ) -> tuple[plan.Expr, ...]:
        """The operands, each of its wanted type."""
        args: list[plan.Expr] = []
        for operand, t in zip(operands, types, strict=True):
            arg = self.bind_as(operand, t)
            if arg is None:
                raise self.no_operator(op, operands, at)
            args.append(arg)
        return tuple(args)

    def no_operator(self, op: str, operands: Sequence[ast.Expr], at: int) -> ShoalError:
        types = [self.hint(operand).type for operand in operands]
        for operand, others in ((operands[0], types[1:]), (operands[-1], types[:-1])):
            contradiction = self.contradiction(operand, others)
            if contradiction is not None:
                return contradiction
        return UndefinedFunction(
            f"could not resolve operator overload for {op}({', '.join(shown(t) for t in types)})",
            position=at + 1,
        )

    def contradiction(self, operand: ast.Expr, others: Sequence[SqlType]) -> ShoalError | None:
        """A parameter that got its type in this very unit, and is wanted to be of another here."""
        parameters = self.binding.parameters
        if isinstance(operand, ast.Parameter) and parameters.found_here(operand.number):
            for other in others:
                if not other.is_unknown and not other.same_values(parameters.hint(operand.number)):
                    return parameters.conflict(operand.number, other, operand.at)
        return None

    def _logic(self, node: ast.Binary) -> plan.Expr:
        """a AND b AND …: from the left, without going deeper for each."""
        chain: list[tuple[ast.Expr, int]] = []
        left: ast.Expr = node
        while isinstance(left, ast.Binary) and left.op == node.op:
            chain.append((left.right, left.at))
            left = left.left
        result = self._truth(node.op, left, node)
        for right, _ in reversed(chain):
            result = plan.Op(node.op, (result, self._truth(node.op, right, node)), BOOLEAN)
        return result

    def _truth(self, op: str, operand: ast.Expr, node: ast.Binary) -> plan.Expr:
        bound = self.bind(operand, BOOLEAN)
        if not bound.type.is_boolean:
            raise self.no_operator(op, (node.left, node.right), node.at)
        return bound

    # --- predicates ---

    def _comparison(self, op: str, left: ast.Expr, right: ast.Expr, at: int) -> plan.Expr:
        if isinstance(left, ast.RowExpr) and isinstance(right, ast.RowExpr):
            return self._row_comparison(op, left, right, at)
        pair = self._comparable(op, left, right, at)
        return plan.Op(op, pair, BOOLEAN)

    def _comparable(self, op: str, left: ast.Expr, right: ast.Expr, at: int) -> tuple[plan.Expr, plan.Expr]:
        common = unify((self.hint(left), self.hint(right)))
        if common is None or not common.is_scalar:
            raise self.no_operator(op, (left, right), at)
        a, b = self.wanted(op, (left, right), (plain(common),) * 2, at)
        return a, b

    def _row_comparison(self, op: str, left: ast.RowExpr, right: ast.RowExpr, at: int) -> plan.Expr:
        if len(left.items) != len(right.items):
            raise SqlSyntaxError(
                f"row value misused: {len(left.items)} and {len(right.items)} values are compared",
                position=at + 1,
            )
        pairs = [self._comparable(op, a, b, at) for a, b in zip(left.items, right.items, strict=True)]
        return plan.RowOp(op, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))

    def _is_distinct(self, node: ast.IsDistinct) -> plan.Expr:
        pair = self._comparable("IS DISTINCT FROM", node.left, node.right, node.at)
        return plan.Op("is_not_distinct" if node.negated else "is_distinct", pair, BOOLEAN)

    def _is_test(self, node: ast.IsTest) -> plan.Expr:
        suffix = f"not_{node.test}" if node.negated else node.test
        if node.test == "null":
            if isinstance(node.arg, ast.RowExpr):
                raise row_misused(node.arg)
            return plan.Op(f"is_{suffix}", (self.bind(node.arg),), BOOLEAN)
        arg = self.bind(node.arg, BOOLEAN)
        if not arg.type.is_boolean:
            words = f"IS {'NOT ' if node.negated else ''}{node.test.upper()}"
            raise DatatypeMismatch(
                f"argument of {words} must be type boolean, not type {shown(arg.type)}",
                position=place(node.arg) + 1,
            )
        return plan.Op(f"is_{suffix}", (arg,), BOOLEAN)

    def same_type(
        self, what: str, nodes: Sequence[ast.Expr], at: int, desired: SqlType | None = None
    ) -> tuple[plan.Expr, ...]:
        """All of one type: the items of IN, the branches of CASE, the arguments of COALESCE."""
        found = [self.hint(node) for node in nodes]
        common = unify(found, desired)
        bound: list[plan.Expr] = []
        if common is not None:
            for node in nodes:
                item = self.bind_as(node, common)
                if item is None:
                    break
                bound.append(item)
        if common is None or len(bound) < len(nodes):
            known = [hint.type for hint in found]
            for node in nodes:
                contradiction = self.contradiction(node, known)
                if contradiction is not None:
                    raise contradiction
            raise DatatypeMismatch(f"{what} types {listed(known)} cannot be matched", position=at + 1)
        return tuple(bound)

    def comparable_type(self, what: str, bound: Sequence[plan.Expr], at: int) -> None:
        """Values of that type can be compared with each other."""
        t = bound[0].type
        if not t.is_scalar:
            raise UndefinedFunction(
                f"could not resolve operator overload for {what}({shown(t)}, {shown(t)})", position=at + 1
            )

    def _between(self, node: ast.Between) -> plan.Expr:
        arg, low, high = self.same_type("BETWEEN", (node.arg, node.low, node.high), node.at)
        self.comparable_type(">=", (arg,), node.at)
        inside = plan.Op(
            "and",
            (plan.Op(">=", (arg, low), BOOLEAN), plan.Op("<=", (arg, high), BOOLEAN)),
            BOOLEAN,
        )
        return plan.Op("not", (inside,), BOOLEAN) if node.negated else inside

    def _in_list(self, node: ast.InList) -> plan.Expr:
        if isinstance(node.arg, ast.RowExpr):
            raise FeatureNotSupported("IN operator for rows is not supported", position=node.at + 1)
        arg, *items = self.same_type("IN", (node.arg, *node.items), node.at)
        self.comparable_type("=", (arg,), node.at)
        return plan.InList(arg, tuple(items), node.negated)

    def _in_query(self, arg: ast.Expr, query: ast.Query, negated: bool, at: int) -> plan.Expr:
        nodes = arg.items if isinstance(arg, ast.RowExpr) else (arg,)
        known = [self.hint(node).type for node in nodes]
        inner = self.binding.subquery(
            query, self.inner_scope(), tuple(None if t.is_unknown else t for t in known)
        )
        if len(inner.types) != len(nodes):
            raise SqlSyntaxError(
                "subquery must return only one column"
                if len(nodes) == 1
                else f"subquery must return {len(nodes)} columns, not {len(inner.types)}",
                position=at + 1,
            )
        wanted: list[SqlType] = []
        for node, t in zip(nodes, inner.types, strict=True):
            common = unify((self.hint(node), Hint(t)))
            if common is None or not common.is_scalar:
                raise UndefinedFunction(
                    f"could not resolve operator overload for =({shown(self.hint(node).type)}, {shown(t)})",
                    position=at + 1,
                )
            wanted.append(plain(common))
        args = self.wanted("=", nodes, wanted, at)
        return plan.InQuery(args, query_as(self.binding, inner, wanted), negated)

    def _quantified(self, node: ast.Quantified) -> plan.Expr:
        if isinstance(node.array, ast.ScalarQuery):
            if (node.op, node.every) in (("=", False), ("<>", True)):
                return self._in_query(node.arg, node.array.query, node.every, node.at)
            raise FeatureNotSupported("ANY and ALL over a query: only = ANY and <> ALL", position=node.at + 1)
        if (node.op, node.every) not in (("=", False), ("<>", True)):
            raise FeatureNotSupported(
                f"{node.op} {'ALL' if node.every else 'ANY'} (array) is not supported: only = ANY and <> ALL",
                position=node.at + 1,
            )
        array = self.hint(node.array)
        element = Hint(array.type.element) if array.type.is_array else Hint(array.type)
        if not array.type.is_array and not array.type.is_unknown:
            raise DatatypeMismatch(
                f"op ANY/ALL (array) requires array on right side, not {shown(array.type)}",
                position=place(node.array) + 1,
            )
        common = unify((self.hint(node.arg), *(array.elements or (element,))))
        if common is not None and common.is_scalar:
            arg = self.bind_as(node.arg, plain(common))
            items = self.bind_as(node.array, array_of(plain(common)))
            if arg is not None and items is not None:
                return plan.InArray(arg, items, node.every)
        raise UndefinedFunction(
            f"could not resolve operator overload for {node.op}"
            f"({shown(self.hint(node.arg).type)}, {shown(element.type)})",
            position=node.at + 1,
        )

    def _like(self, node: ast.Like) -> plan.Expr:
        nodes = (node.arg, node.pattern) if node.escape is None else (node.arg, node.pattern, node.escape)
        bound: list[plan.Expr] = []
        for each in nodes:
            item = self.bind_as(each, TEXT)
            if item is None:
                types = [shown(self.hint(n).type) for n in nodes]
                if node.escape is None:
                    types.append(TEXT.error_name)
                raise UndefinedFunction(
                    f"could not resolve function overload for {node.kind.value}({', '.join(types)})",
                    position=node.at + 1,
                )
            bound.append(item)
        escape = bound[2] if node.escape is not None else None
        return plan.Like(node.kind.value, bound[0], bound[1], escape, node.negated)

    # --- the rest ---

    def _case(self, node: ast.Case, desired: SqlType | None) -> plan.Expr:
        conditions: list[plan.Expr] = []
        if node.operand is None:
            for condition, _ in node.branches:
                bound = self.bind(condition, BOOLEAN)
                if not bound.type.is_boolean:
                    raise DatatypeMismatch(
                        f"argument of CASE/WHEN must be type boolean, not type {shown(bound.type)}",
                        position=place(condition) + 1,
                    )
                conditions.append(bound)
        else:
            values = [value for value, _ in node.branches]
            operand, *compared = self.same_type("CASE/WHEN", (node.operand, *values), node.at)
            self.comparable_type("=", (operand,), node.at)
            conditions = [plan.Op("=", (operand, value), BOOLEAN) for value in compared]
        results = [result for _, result in node.branches]
        if node.otherwise is not None:
            results.append(node.otherwise)
        bound_results = self.same_type("CASE/THEN", results, node.at, desired)
        t = common_exact(bound_results)
        branches = tuple(zip(conditions, bound_results, strict=False))
        return plan.Case(branches, bound_results[-1] if node.otherwise is not None else None, t)

    def _scalar_query(self, node: ast.ScalarQuery, desired: SqlType | None) -> plan.Expr:
        query = self.binding.subquery(node.query, self.inner_scope(), (desired,))
        if len(query.types) != 1:
            raise SqlSyntaxError("subquery must return only one column", position=node.at + 1)
        return plan.ScalarQuery(query, query.types[0])

    def _array(self, node: ast.ArrayExpr, desired: SqlType | None) -> plan.Expr:
        wish = (
            desired.element
            if desired is not None and desired.is_array and desired.kind is not Kind.ANY
            else None
        )
        if not node.items:
            element = TEXT if wish is None or wish.is_unknown else plain(wish)
            return plan.ArrayOf((), array_of(element))
        for item in node.items:
            if self.hint(item).type.is_array or isinstance(item, ast.ArrayExpr):
                raise FeatureNotSupported("nested arrays are not supported", position=place(item) + 1)
        # Arrays aren't converted as a whole, so the wish is worth any number of conversions of elements.
        if wish is not None and all(conversions(self.hint(item), wish) is not None for item in node.items):
            granted = [self.bind_as(item, plain(wish)) for item in node.items]
            if None not in granted:
                return plan.ArrayOf(tuple(filter(None, granted)), array_of(plain(wish)))
        items = self.same_type("ARRAY", node.items, node.at, wish)
        return plan.ArrayOf(items, array_of(plain(items[0].type)))

    def _index(self, node: ast.IndexExpr) -> plan.Expr:
        arg = self.bind(node.arg)
        t = arg.type
        if not t.is_array and t.kind not in (Kind.JSON, Kind.ANY):
            raise DatatypeMismatch(
                f"cannot index expression of type {shown(t)}", position=place(node.arg) + 1
            )
        known = self.hint(node.index).type
        if known.is_unknown:
            literal = isinstance(node.index, ast.Literal)
            known = TEXT if literal or not t.is_array else INT
        index = self.bind(node.index, known)
        if not (index.type.is_int or index.type.is_text):
            raise DatatypeMismatch(
                f"cannot index expression of type {shown(t)} with {shown(index.type)}",
                position=place(node.index) + 1,
            )
        element = t.element if t.is_array and t.kind is not Kind.ANY else ANY
        return plan.IndexOf(arg, index, element)

    def _call(self, node: ast.Call, desired: SqlType | None) -> plan.Expr:
        if aggregates.is_aggregate(node):
            return aggregates.bind_aggregate(self, node)
        return calls.bind_call(self, node, desired)

    # --- assignment ---

    def assign(self, node: ast.Expr, column: SqlType) -> plan.Expr | None:
        """The value for a column: converted like any operand, and narrowed to what the column takes."""
        return self.assigned(self.bind(node, column), column, place(node))

    def assigned(self, bound: plan.Expr, column: SqlType, at: int) -> plan.Expr | None:
        """None: an expression of that type is nothing for such a column."""
        given = bound.type
        if given == column or (given.same_values(column) and column == plain(column)):
            return bound
        if given.same_values(column) or implicit(given, column) or column.kind is Kind.ANY:
            return self.binding.convert(bound, column, at, implicit=True)
        return None


def cast_target(name: ast.TypeName) -> SqlType:
    found = type_of_name(name.name, name.arguments, in_ddl=False)
    if found is None:
        raise UndefinedObject(f'type "{name.name}" does not exist', position=name.at + 1)
    return array_of(found) if name.is_array else found


def common_exact(bound: Sequence[plan.Expr]) -> SqlType:
    """The type that all have; DECIMAL(10, 2) only if every one is that."""
    first = bound[0].type
    return first if all(item.type == first for item in bound) else plain(first)


def row_misused(node: ast.RowExpr) -> SqlSyntaxError:
    return SqlSyntaxError(
        f"row value misused: row with {len(node.items)} values has no scalar type", position=node.at + 1
    )


def place(node: ast.Expr) -> int:
    """Where an expression begins, roughly: the least place in it that an error could mean."""
    at = node.at
    while True:
        if isinstance(node, ast.Binary | ast.IsDistinct):
            node = node.left
        elif isinstance(node, _POSTFIX):
            node = node.arg
        else:
            return at
        at = min(at, node.at)
