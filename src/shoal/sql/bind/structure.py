"""The structure of a bound expression: all that is in it, and whether two are the same.

Here: children(), columns_in(), slots_in(), replaced(), which look into inner queries, too; same().
Not here: looking at one query's own expressions (sql/walk.py), rewriting plans (optimise/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import cast

from shoal.sql import plan

# What an expression consists of: expressions, and queries with theirs.
_NODES = (
    plan.Const,
    plan.Param,
    plan.Session,
    plan.Column,
    plan.OutputRef,
    plan.Op,
    plan.RowOp,
    plan.Cast,
    plan.Call,
    plan.Like,
    plan.Case,
    plan.InList,
    plan.InArray,
    plan.InQuery,
    plan.Exists,
    plan.ScalarQuery,
    plan.ArrayOf,
    plan.IndexOf,
    plan.Aggregate,
)
_PARTS = (
    plan.Query,
    plan.Block,
    plan.ValuesRows,
    plan.SetOperation,
    plan.Output,
    plan.SortKey,
    plan.Cte,
    plan.Join,
    plan.Derived,
)


def children(node: object) -> Iterator[plan.Expr]:
    """The expressions right below: those of a subquery are below it, too."""
    for field in fields(node):  # type: ignore[arg-type]
        yield from _expressions(getattr(node, field.name))


def _expressions(value: object) -> Iterator[plan.Expr]:
    if isinstance(value, _NODES):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _expressions(item)
    elif isinstance(value, _PARTS):
        yield from children(value)


def every(node: plan.Expr) -> Iterator[plan.Expr]:
    """The expression and all below it."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(children(found))


def columns_in(node: plan.Expr) -> Iterator[plan.Column]:
    return (found for found in every(node) if isinstance(found, plan.Column))


def slots_in(node: plan.Expr) -> Iterator[int]:
    """The literals that its constants came from."""
    for found in every(node):
        if isinstance(found, plan.Const) and found.source is not None:
            yield found.source.slot


def replaced(expr: plan.Expr, change: Callable[[plan.Expr], plan.Expr | None]) -> plan.Expr:
    """The expression with what `change` answers in the place of its parts, the largest ones first."""
    new = change(expr)
    if new is not None:
        return new
    return cast(plan.Expr, _replaced_parts(expr, change))


def _replaced_parts(value: object, change: Callable[[plan.Expr], plan.Expr | None]) -> object:
    if isinstance(value, tuple):
        return tuple(_replaced(item, change) for item in value)
    assert is_dataclass(value) and not isinstance(value, type), value
    return replace(value, **{f.name: _replaced(getattr(value, f.name), change) for f in fields(value)})


def _replaced(value: object, change: Callable[[plan.Expr], plan.Expr | None]) -> object:
    if isinstance(value, _NODES):
        return replaced(value, change)
    if isinstance(value, (tuple, *_PARTS)):
        return _replaced_parts(value, change)
    return value


def same(a: object, b: object) -> bool:
    """Are these one expression, written twice? Where a literal stands in the text doesn't matter."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, plan.Const) and isinstance(b, plan.Const):
        return a.type == b.type and a.value == b.value
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (*_NODES, *_PARTS)):
        return all(same(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))
    return a == b
