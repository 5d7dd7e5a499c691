"""What is inside an expression or a query of the plan, for those who only look.

Here: the operands of an expression, the conditions of an AND, the tables that something reads; and
rewritten(), for those who change a little.
Not here: decisions made of it (optimise/, local/), the plan itself (plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from shoal.sql import plan


def operands(expr: plan.Expr) -> tuple[plan.Expr, ...]:
    """The expressions that an expression is made of; what is inside its subquery is not among them."""
    match expr:
        case plan.Op(args=args) | plan.Call(args=args) | plan.InQuery(args=args):
            return args
        case plan.RowOp(left=left, right=right):
            return left + right
        case plan.Cast(arg=arg):
            return (arg,)
        case plan.Like(arg=arg, pattern=pattern, escape=escape):
            return (arg, pattern) if escape is None else (arg, pattern, escape)
        case plan.Case(branches=branches, otherwise=otherwise):
            flat = tuple(part for branch in branches for part in branch)
            return flat if otherwise is None else (*flat, otherwise)
        case plan.InList(arg=arg, items=items):
            return (arg, *items)
        case plan.InArray(arg=arg, array=array):
            return (arg, array)
        case plan.ArrayOf(items=items):
            return items
        case plan.IndexOf(arg=arg, index=index):
            return (arg, index)
        case plan.Aggregate(args=args, filter=condition):
            return args if condition is None else (*args, condition)
        case _:
            return ()


def rewritten(expr: plan.Expr, change: Callable[[plan.Expr], plan.Expr]) -> plan.Expr:
    """The expression with `change` applied to all of it, from the leaves up; subqueries not entered."""

    def each(exprs: tuple[plan.Expr, ...]) -> tuple[plan.Expr, ...]:
        return tuple(rewritten(at, change) for at in exprs)

    def maybe(at: plan.Expr | None) -> plan.Expr | None:
        return None if at is None else rewritten(at, change)

    new: plan.Expr = expr
    match expr:
        case plan.Op() | plan.Call() | plan.InQuery():
            new = replace(expr, args=each(expr.args))
        case plan.Aggregate():
            new = replace(expr, args=each(expr.args), filter=maybe(expr.filter))
        case plan.RowOp():
            new = replace(expr, left=each(expr.left), right=each(expr.right))
        case plan.Cast():
            new = replace(expr, arg=rewritten(expr.arg, change))
        case plan.Like():
            new = replace(
                expr,
                arg=rewritten(expr.arg, change),
                pattern=rewritten(expr.pattern, change),
                escape=maybe(expr.escape),
            )
        case plan.Case():
            branches = tuple((rewritten(a, change), rewritten(b, change)) for a, b in expr.branches)
            new = replace(expr, branches=branches, otherwise=maybe(expr.otherwise))
        case plan.InList():
            new = replace(expr, arg=rewritten(expr.arg, change), items=each(expr.items))
        case plan.InArray():
            new = replace(expr, arg=rewritten(expr.arg, change), array=rewritten(expr.array, change))
        case plan.ArrayOf():
            new = replace(expr, items=each(expr.items))
        case plan.IndexOf():
            new = replace(expr, arg=rewritten(expr.arg, change), index=rewritten(expr.index, change))
    return change(new)


def rewritten_query(query: plan.Query, change: Callable[[plan.Block], plan.Block]) -> plan.Query:
    """The query with `change` applied to each of its blocks, those of subqueries and CTEs too, inner ones first."""
    each = _expression_rewriter(change)
    return replace(
        query,
        ctes=tuple(replace(cte, query=rewritten_query(cte.query, change)) for cte in query.ctes),
        body=_rewritten_body(query.body, change),
        order_by=tuple(replace(key, expr=each(key.expr)) for key in query.order_by),
    )


def rewritten_subqueries(expr: plan.Expr, change: Callable[[plan.Block], plan.Block]) -> plan.Expr:
    return _expression_rewriter(change)(expr)


def _expression_rewriter(change: Callable[[plan.Block], plan.Block]) -> Callable[[plan.Expr], plan.Expr]:
    def inside(expr: plan.Expr) -> plan.Expr:
        if isinstance(expr, plan.InQuery | plan.Exists | plan.ScalarQuery):
            return replace(expr, query=rewritten_query(expr.query, change))
        return expr

    return lambda expr: rewritten(expr, inside) if _has_subquery(expr) else expr


def _has_subquery(expr: plan.Expr) -> bool:
    return any(subquery(at) is not None for at in walk(expr))


def _rewritten_body(body: plan.Body, change: Callable[[plan.Block], plan.Block]) -> plan.Body:
    each = _expression_rewriter(change)
    match body:
        case plan.Block():
            new = replace(
                body,
                outputs=tuple(replace(output, expr=each(output.expr)) for output in body.outputs),
                source=None if body.source is None else rewritten_source(body.source, change),
                where=None if body.where is None else each(body.where),
                group_by=tuple(each(key) for key in body.group_by),
                having=None if body.having is None else each(body.having),
            )
            return change(new)
        case plan.ValuesRows():
            return replace(body, rows=tuple(tuple(each(value) for value in row) for row in body.rows))
        case plan.SetOperation():
            left, right = _rewritten_body(body.left, change), _rewritten_body(body.right, change)
            return replace(body, left=left, right=right)
        case plan.Query():
            return rewritten_query(body, change)


def rewritten_source(source: plan.Source, change: Callable[[plan.Block], plan.Block]) -> plan.Source:
    match source:
        case plan.Derived():
            return replace(source, query=rewritten_query(source.query, change))
        case plan.Join():
            return replace(
                source,
                left=rewritten_source(source.left, change),
                right=rewritten_source(source.right, change),
                on=None if source.on is None else rewritten_subqueries(source.on, change),
            )
        case _:
            return source


def with_filters(
    root: plan.Query | plan.Dml, change: Callable[[plan.Expr], plan.Expr]
) -> plan.Query | plan.Dml:
    """The statement with `change` applied to what it filters by: WHERE and ON, at every depth."""

    def block(block: plan.Block) -> plan.Block:
        where = None if block.where is None else change(block.where)
        return replace(block, where=where, source=None if block.source is None else joined(block.source))

    def joined(source: plan.Source) -> plan.Source:
        if not isinstance(source, plan.Join):
            return source
        on = None if source.on is None else change(source.on)
        return replace(source, left=joined(source.left), right=joined(source.right), on=on)

    match root:
        case plan.Query():
            return rewritten_query(root, block)
        case plan.Insert():
            return replace(root, source=rewritten_query(root.source, block))
        case plan.Update() | plan.Delete():
            if root.where is None:
                return root
            return replace(root, where=change(rewritten_subqueries(root.where, block)))


def subquery(expr: plan.Expr) -> plan.Query | None:
    match expr:
        case plan.InQuery(query=query) | plan.Exists(query=query) | plan.ScalarQuery(query=query):
            return query
        case _:
            return None


def walk(expr: plan.Expr | None) -> Iterator[plan.Expr]:
    """The expression and everything in it, subqueries not entered."""
    waiting = [] if expr is None else [expr]
    while waiting:
        at = waiting.pop()
        yield at
        waiting.extend(operands(at))


def conjuncts(expr: plan.Expr | None) -> Iterator[plan.Expr]:
    """a AND b AND c, one by one."""
    waiting = [] if expr is None else [expr]
    while waiting:
        at = waiting.pop()
        if isinstance(at, plan.Op) and at.op == "and":
            waiting.extend(reversed(at.args))
        else:
            yield at


def is_closed(expr: plan.Expr) -> bool:
    """Whether its value is the same for every row: no column, no subquery, no aggregate."""
    return not any(
        isinstance(at, plan.Column | plan.OutputRef | plan.Aggregate) or subquery(at) is not None
        for at in walk(expr)
    )


def names_relation(expr: plan.Expr, relation: int) -> bool:
    """Whether its value may depend on that relation's row."""
    return any(
        (isinstance(at, plan.Column) and at.relation == relation) or subquery(at) is not None
        for at in walk(expr)
    )


# --- what something reads from, at every depth -----------------------------------------------------

Relation: TypeAlias = "plan.Scan | plan.Derived | plan.CteScan"


def scans_of_query(query: plan.Query) -> Iterator[plan.Scan]:
    return (at for at in relations_of_query(query) if isinstance(at, plan.Scan))


def scans_of_expression(expr: plan.Expr | None) -> Iterator[plan.Scan]:
    return (at for at in relations_of_expression(expr) if isinstance(at, plan.Scan))


def relations_of_query(query: plan.Query) -> Iterator[Relation]:
    for cte in query.ctes:
        yield from relations_of_query(cte.query)
    yield from _relations_of_body(query.body)
    for expr in (*(key.expr for key in query.order_by), query.limit, query.offset):
        yield from relations_of_expression(expr)


def _relations_of_body(body: plan.Body) -> Iterator[Relation]:
    match body:
        case plan.Block():
            yield from relations_of_source(body.source)
            for expr in (*(output.expr for output in body.outputs), body.where, *body.group_by, body.having):
                yield from relations_of_expression(expr)
        case plan.ValuesRows():
            for row in body.rows:
                for value in row:
                    yield from relations_of_expression(value)
        case plan.SetOperation():
            yield from _relations_of_body(body.left)
            yield from _relations_of_body(body.right)
        case plan.Query():
            yield from relations_of_query(body)


def relations_of_source(source: plan.Source | None) -> Iterator[Relation]:
    match source:
        case plan.Scan() | plan.CteScan():
            yield source
        case plan.Derived():
            yield source
            yield from relations_of_query(source.query)
        case plan.Join():
            yield from relations_of_source(source.left)
            yield from relations_of_source(source.right)
            yield from relations_of_expression(source.on)
        case None:
            return


def relations_of_expression(expr: plan.Expr | None) -> Iterator[Relation]:
    for at in walk(expr):
        query = subquery(at)
        if query is not None:
            yield from relations_of_query(query)


def relations_of_statement(root: plan.Query | plan.Dml) -> Iterator[Relation]:
    """All but the table that the statement changes."""
    match root:
        case plan.Query():
            yield from relations_of_query(root)
        case plan.Insert():
            yield from relations_of_query(root.source)
            if root.on_conflict is not None:
                for expr in (*(s.value for s in root.on_conflict.sets), root.on_conflict.where):
                    yield from relations_of_expression(expr)
        case plan.Update():
            yield from relations_of_source(root.source)
            for expr in (*(s.value for s in root.sets), root.where):
                yield from relations_of_expression(expr)
        case plan.Delete():
            yield from relations_of_expression(root.where)
    if not isinstance(root, plan.Query):
        for output in root.returning:
            yield from relations_of_expression(output.expr)
