"""What an expression would be by itself, before anybody wishes for a type.

Here: hint(), for each kind of expression.
Not here: binding it (expressions.py, calls.py), which must come to the same type when nothing is wished.

A hint is cheap and decides nothing: no parameter gets a type by it. Only a subquery is bound for it, once,
since its types can't be known otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.sql import ast, plan
from shoal.sql.bind import aggregates, calls
from shoal.sql.bind.coercion import FREE, Hint, choose, plain, unify
from shoal.sql.functions import OPERATORS, Overload
from shoal.sql.values import natural_type
from shoal.types.sqltype import ANY, BOOLEAN, TEXT, UNKNOWN, Kind, SqlType, array_of

if TYPE_CHECKING:
    from shoal.sql.bind.expressions import Expressions

_BOOLEAN = Hint(BOOLEAN)
_TEXT = Hint(TEXT)
_LOGIC = frozenset({"and", "or", "=", "<>", "<", "<=", ">", ">="})


def natural(node: ast.Literal) -> SqlType:
    return natural_type(node.kind, node.text, node.negative)


def hint(expressions: Expressions, node: ast.Expr) -> Hint:
    match node:
        case ast.ColumnRef():
            found = expressions.scope.column(node)
            if isinstance(found, plan.Column):
                return Hint(found.type)
            return expressions.behind_alias().hint(found)
        case ast.Literal(kind=ast.LiteralKind.STRING) | ast.NullLiteral():
            return FREE
        case ast.Literal():
            t = natural(node)
            return Hint(t, decimal_literal=t.is_decimal)
        case ast.Parameter():
            return Hint(expressions.binding.parameters.hint(node.number))
        case ast.Binary(op="||"):
            return _TEXT
        case ast.Binary():
            if node.op in _LOGIC:
                return _BOOLEAN
            operands = (expressions.hint(node.left), expressions.hint(node.right))
            return _chosen(choose(OPERATORS[node.op], operands))
        case ast.Unary(op="not"):
            return _BOOLEAN
        case ast.Unary():
            return _chosen(choose(OPERATORS["neg"], (expressions.hint(node.arg),)))
        case ast.Cast():
            from shoal.sql.bind.expressions import cast_target

            return Hint(plain(cast_target(node.type)))
        case ast.Call():
            if aggregates.is_aggregate(node):
                return aggregates.hint_aggregate(expressions, node)
            return calls.hint_call(expressions, node)
        case ast.Case():
            results = [result for _, result in node.branches]
            if node.otherwise is not None:
                results.append(node.otherwise)
            return same_type(expressions, results)
        case ast.Trim() | ast.Substring():
            return _TEXT
        case ast.ScalarQuery():
            types = expressions.binding.subquery(node.query, expressions.inner_scope()).types
            return Hint(types[0])
        case ast.ArrayExpr():
            items = tuple(expressions.hint(item) for item in node.items)
            common = unify(items) if any(not item.type.is_unknown for item in items) else UNKNOWN
            return Hint(
                array_of(UNKNOWN if common is None or common.is_array else plain(common)), elements=items
            )
        case ast.IndexExpr():
            arg = expressions.hint(node.arg).type
            return Hint(arg.element if arg.is_array and arg.kind is not Kind.ANY else ANY)
        case ast.RowExpr() | ast.Star() | ast.Default():
            return FREE
        case _:
            return _BOOLEAN  # predicates


def same_type(expressions: Expressions, nodes: list[ast.Expr]) -> Hint:
    """Of what makes all of these one type."""
    found = [expressions.hint(node) for node in nodes]
    if all(item.type.is_unknown for item in found):
        return FREE
    common = unify(found)
    # A set of decimal literals is as ready to be DOUBLE as one of them.
    gladly = all(item.decimal_literal or item.type.is_unknown for item in found)
    return FREE if common is None else Hint(plain(common), decimal_literal=gladly and common.is_decimal)


def _chosen(overload: Overload | None) -> Hint:
    return FREE if overload is None else Hint(overload.result)


__all__ = ["hint", "natural", "same_type"]
