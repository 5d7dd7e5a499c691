"""What a bound query gives: can it be NULL, what is it in plan terms, and the query that gives other types.

Here: nullable(), nullables(), query_as(), over().
Not here: binding queries (query.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.coercion import Hint, plain
from shoal.sql.functions import CONCAT, FUNCTIONS, Nulls
from shoal.types.sqltype import SqlType

_FIRST_NOT_NULL: Final = frozenset({"coalesce", "greatest", "least"})
_MAYBE_NULL_FACTS: Final = frozenset(
    {
        plan.SessionFact.CONFIG_FILE_PATH,
        plan.SessionFact.RAFT_LEADER_ID,
        plan.SessionFact.RAFT_LEADER_UUID,
    }
)


def nullable(expr: plan.Expr) -> bool:
    """Can it be NULL? True where we don't know better."""
    match expr:
        case plan.Const():
            return expr.value is None
        case plan.Column():
            return expr.nullable
        case plan.Session():
            return expr.fact in _MAYBE_NULL_FACTS
        case plan.Op():
            return not expr.op.startswith("is_") and any(map(nullable, expr.args))
        case plan.RowOp():
            return any(map(nullable, (*expr.left, *expr.right)))
        case plan.Cast():
            return nullable(expr.arg) or expr.arg.type.is_json
        case plan.Call():
            if expr.function in _FIRST_NOT_NULL:
                return all(map(nullable, expr.args))
            if expr.function == CONCAT:
                return False
            function = FUNCTIONS.get(expr.function)
            if function is None or function.nulls is Nulls.ALWAYS:
                return True
            return function.nulls is Nulls.STRICT and any(map(nullable, expr.args))
        case plan.Like():
            return (
                nullable(expr.arg)
                or nullable(expr.pattern)
                or (expr.escape is not None and nullable(expr.escape))
            )
        case plan.Case():
            return expr.otherwise is None or any(
                map(nullable, (*(result for _, result in expr.branches), expr.otherwise))
            )
        case plan.InList():
            return any(map(nullable, (expr.arg, *expr.items)))
        case plan.Exists() | plan.ArrayOf():
            return False
        case plan.Aggregate():
            return expr.function not in ("count", "total")
        case _:
            return True


def nullables(body: plan.Body) -> tuple[bool, ...]:
    """Of each column that a query gives."""
    match body:
        case plan.Query():
            return nullables(body.body)
        case plan.Block():
            return tuple(output.nullable for output in body.outputs)
        case plan.ValuesRows():
            return tuple(any(nullable(row[i]) for row in body.rows) for i in range(len(body.names)))
        case plan.SetOperation():
            left, right = nullables(body.left), nullables(body.right)
            if body.kind is ast.SetKind.EXCEPT:
                return left
            if body.kind is ast.SetKind.INTERSECT:
                return tuple(a and b for a, b in zip(left, right, strict=True))
            return tuple(a or b for a, b in zip(left, right, strict=True))


def names_of(body: plan.Body) -> tuple[str, ...]:
    match body:
        case plan.Query() | plan.ValuesRows():
            return body.names
        case plan.Block():
            return tuple(output.name for output in body.outputs)
        case plan.SetOperation():
            return names_of(body.left)


def types_of(body: plan.Body) -> tuple[SqlType, ...]:
    match body:
        case plan.Query() | plan.ValuesRows():
            return body.types
        case plan.Block():
            return tuple(output.expr.type for output in body.outputs)
        case plan.SetOperation():
            return tuple(
                a if a == b else plain(a)
                for a, b in zip(types_of(body.left), types_of(body.right), strict=True)
            )


def query_of(body: plan.Body) -> plan.Query:
    if isinstance(body, plan.Query):
        return body
    return plan.Query((), body, (), None, None, names_of(body), types_of(body))


def hints_of(body: plan.Body) -> tuple[Hint, ...]:
    """What its columns are, for finding a common type with others."""
    exprs: list[plan.Expr | None] = [None] * len(types_of(body))
    if isinstance(body, plan.Block):
        exprs = [output.expr for output in body.outputs]
    elif isinstance(body, plan.ValuesRows) and len(body.rows) == 1:
        exprs = list(body.rows[0])
    return tuple(
        Hint(t, decimal_literal=isinstance(expr, plan.Const) and _is_decimal_literal(expr))
        for t, expr in zip(types_of(body), exprs, strict=True)
    )


def _is_decimal_literal(const: plan.Const) -> bool:
    source = const.source
    return const.type.is_decimal and source is not None and source.kind is ast.LiteralKind.DECIMAL


def over(binding: Binding, query: plan.Query) -> tuple[plan.Derived, tuple[plan.Column, ...]]:
    """A subquery in FROM that nobody wrote, and its columns."""
    relation = binding.next_relation()
    columns = tuple(
        plan.Column(relation, ordinal, name, t, maybe)
        for ordinal, (name, t, maybe) in enumerate(
            zip(query.names, query.types, nullables(query), strict=True)
        )
    )
    return plan.Derived(relation, query, None), columns


def query_as(
    binding: Binding, query: plan.Query, wanted: Sequence[SqlType], narrow: bool = False
) -> plan.Query:
    """The query with every column cast to the wanted type, where it isn't of it; the casts exist.

    With narrow, DECIMAL(p, s) and UNSIGNED are honoured, as a column does that the rows go into.
    """
    if _all_are(query.types, wanted, narrow):
        return query
    body = body_as(binding, query.body, wanted, narrow)
    if body is not None and _keeps_order(query):
        return replace(query, body=body, types=tuple(wanted))
    return query_of(_cast_over(binding, query, wanted, narrow))


def body_as(
    binding: Binding, body: plan.Body, wanted: Sequence[SqlType], narrow: bool = False
) -> plan.Body | None:
    """None: the casts can't be put into the body itself without changing what it means."""
    if _all_are(types_of(body), wanted, narrow):
        return body
    if isinstance(body, plan.Block) and not body.distinct:
        outputs = tuple(
            replace(output, expr=_as(binding, output.expr, t, narrow))
            for output, t in zip(body.outputs, wanted, strict=True)
        )
        return replace(body, outputs=outputs)
    if isinstance(body, plan.ValuesRows):
        rows = tuple(
            tuple(_as(binding, value, t, narrow) for value, t in zip(row, wanted, strict=True))
            for row in body.rows
        )
        return replace(body, rows=rows, types=tuple(wanted))
    return None


def body_as_any(binding: Binding, body: plan.Body, wanted: Sequence[SqlType]) -> plan.Body:
    """The same, at the price of a subquery where it has to be."""
    found = body_as(binding, body, wanted)
    return _cast_over(binding, query_of(body), wanted, narrow=False) if found is None else found


def _cast_over(binding: Binding, query: plan.Query, wanted: Sequence[SqlType], narrow: bool) -> plan.Block:
    source, columns = over(binding, query)
    outputs = tuple(
        plan.Output(column.name, _as(binding, column, t, narrow), column.nullable)
        for column, t in zip(columns, wanted, strict=True)
    )
    return plan.Block(outputs, source, None, (), False, None, False)


def _is(given: SqlType, wanted: SqlType, narrow: bool) -> bool:
    return given == wanted or (given.same_values(wanted) and (not narrow or wanted == plain(wanted)))


def _all_are(given: Sequence[SqlType], wanted: Sequence[SqlType], narrow: bool) -> bool:
    return all(_is(t, w, narrow) for t, w in zip(given, wanted, strict=True))


def _as(binding: Binding, expr: plan.Expr, wanted: SqlType, narrow: bool) -> plan.Expr:
    return expr if _is(expr.type, wanted, narrow) else binding.convert(expr, wanted, None, implicit=True)


def _keeps_order(query: plan.Query) -> bool:
    """An ORDER BY that names outputs would sort by what they have been cast to."""
    return not any(isinstance(key.expr, plan.OutputRef) for key in query.order_by)
