"""Aggregates: where they may stand, and what they take.

Here: bind_aggregate(), hint_aggregate().
Not here: which aggregates there are (functions.py), what may stand beside one (grouping.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    GroupingError,
    ShoalError,
    SqlSyntaxError,
    UndefinedFunction,
)
from shoal.sql import ast, plan
from shoal.sql.bind.coercion import Hint, choose, shown
from shoal.sql.bind.structure import columns_in
from shoal.sql.functions import AGGREGATES, ALIASES, Overload
from shoal.types.sqltype import INT, TEXT, SqlType

if TYPE_CHECKING:
    from shoal.sql.bind.expressions import Expressions

GROUP_CONCAT = "group_concat"
COUNT = "count"


@dataclass
class Seen:
    """Has a clause an aggregate? That makes its SELECT a grouped one."""

    any: bool = False


def is_aggregate(node: ast.Call) -> bool:
    return _canonical(node) in AGGREGATES


def _canonical(node: ast.Call) -> str:
    return ALIASES.get(node.name.text, node.name.text)


def hint_aggregate(expressions: Expressions, node: ast.Call) -> Hint:
    function = _canonical(node)
    if function == COUNT or not node.args:
        return Hint(INT)
    found = expressions.hint(node.args[0])
    chosen = choose(AGGREGATES[function], (found,))
    return Hint(TEXT if chosen is None else _result(function, chosen, found.type))


def _result(function: str, chosen: Overload, arg: SqlType) -> SqlType:
    """MIN and MAX give a value of the column: DECIMAL(10, 2) stays that."""
    return arg if function in ("min", "max") and arg.same_values(chosen.result) else chosen.result


def bind_aggregate(expressions: Expressions, node: ast.Call) -> plan.Expr:
    from shoal.sql.bind.expressions import Clause
    from shoal.sql.bind.expressions import Expressions as Inner

    if node.over:
        raise FeatureNotSupported("window functions are not supported yet", position=node.at + 1)
    _check_place(expressions, node)
    expressions.aggregates.any = True
    inner = Inner(expressions.binding, expressions.inner_scope(), Clause.AGGREGATE)
    function = _canonical(node)
    condition = None if node.filter is None else inner.condition(node.filter)
    if node.star:
        if function != COUNT or node.distinct:
            raise UndefinedFunction(
                f"could not resolve function overload for {node.name.text}(*)", position=node.at + 1
            )
        return plan.Aggregate(COUNT, (), False, None, condition, INT)
    separator = _separator(expressions, node) if function == GROUP_CONCAT else None
    if function != GROUP_CONCAT and len(node.args) != 1:
        raise UndefinedFunction(
            f"{node.name.text.upper()} aggregate function has only one argument. "
            f"Got: {len(node.args)} arguments",
            position=node.at + 1,
        )
    operand = node.args[0]
    arg: plan.Expr | None
    if function == COUNT:
        arg, result = inner.bind(operand), INT
    else:
        found = inner.hint(operand)
        chosen = choose(AGGREGATES[function], (found,))
        arg = None if chosen is None else inner.bind_as(operand, chosen.args[0])
        if chosen is None or arg is None:
            raise UndefinedFunction(
                f"could not resolve function overload for {node.name.text}({shown(found.type)})",
                position=node.at + 1,
            )
        result = _result(function, chosen, arg.type)
    aggregate = plan.Aggregate(function, (arg,), node.distinct, separator, condition, result)
    _check_whose(expressions, aggregate, node)
    return aggregate


def _check_place(expressions: Expressions, node: ast.Call) -> None:
    from shoal.sql.bind.expressions import WITH_AGGREGATES, Clause

    clause, name = expressions.clause, node.name.text
    if clause in WITH_AGGREGATES:
        return
    error: ShoalError
    if clause is Clause.AGGREGATE:
        error = GroupingError("aggregate functions inside aggregate function are not allowed")
    elif clause is Clause.GROUP_BY:
        error = GroupingError(f'aggregate function "{name}" is not allowed in GROUP BY')
    elif clause is Clause.SET:
        error = GroupingError("aggregate functions are not supported in update expression.")
    else:
        error = GroupingError(f"misuse of aggregate function {name.upper()}()")
    error.position = node.at + 1
    raise error


def _separator(expressions: Expressions, node: ast.Call) -> str | None:
    if not 1 <= len(node.args) <= 2:
        raise UndefinedFunction(
            f"{node.name.text.upper()} aggregate function has one or two arguments. Got: {len(node.args)} arguments",
            position=node.at + 1,
        )
    if len(node.args) == 1:
        return None
    given = node.args[1]
    if not isinstance(given, ast.Literal) or given.kind is not ast.LiteralKind.STRING:
        raise DatatypeMismatch(
            f"{node.name.text.upper()} aggregate function second argument must be a string literal",
            position=given.at + 1,
        )
    if node.distinct:
        raise SqlSyntaxError("DISTINCT aggregates must have exactly one argument", position=given.at + 1)
    expressions.binding.pinned.add(given.slot)
    return given.text


def _check_whose(expressions: Expressions, aggregate: plan.Aggregate, node: ast.Call) -> None:
    """SQL says that an aggregate over nothing but an outer query's columns belongs to that query."""
    found = {column.relation for column in columns_in(aggregate)}
    own = expressions.scope.own_numbers
    outer = {relation for relation in found if relation not in own and _is_outside(expressions, relation)}
    if outer and not found & own:
        raise FeatureNotSupported("an aggregate over columns of an outer query", position=node.at + 1)


def _is_outside(expressions: Expressions, relation: int) -> bool:
    scope = expressions.scope.parent
    while scope is not None:
        if relation in scope.own_numbers:
            return True
        scope = scope.parent
    return False
