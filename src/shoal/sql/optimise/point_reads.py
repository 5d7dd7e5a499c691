"""Which programs may run on the event loop itself: those that surely take some microseconds.

Here: is_point_read(), is_point_change().
Not here: finding the key (keys.py), running it (node/).

A point read touches at most one row, found by its key, and computes little with it. What could take long
for one value only, a regular expression or a million repetitions of a text, is not little.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.sql import plan
from shoal.sql.optimise.keys import pinned_columns, pins_a_key
from shoal.sql.walk import walk

# A SELECT of many constants is no scan, but it isn't little either.
_EXPRESSIONS_MAX: Final = 500

_LITTLE: Final = (
    plan.Const,
    plan.Param,
    plan.Session,
    plan.Column,
    plan.OutputRef,
    plan.Op,
    plan.RowOp,
    plan.Cast,
    plan.Case,
    plan.InList,
    plan.IndexOf,
)
_LITTLE_CALLS: Final = frozenset(
    {"coalesce", "greatest", "least", "nullif", "abs", "ceil", "floor", "round", "trunc", "sign", "mod",
     "lower", "upper", "length", "octet_length", "substr", "bucket_of"}
)  # fmt: skip


def is_point_read(query: plan.Query) -> bool:
    if query.ctes:
        return False
    body = query.body
    limits = tuple(expr for expr in (query.limit, query.offset) if expr is not None)
    keys = tuple(key.expr for key in query.order_by)
    if isinstance(body, plan.ValuesRows):
        return _are_little((*limits, *keys, *(value for row in body.rows for value in row)))
    if not isinstance(body, plan.Block) or body.grouped or body.distinct:
        return False
    wheres = () if body.where is None else (body.where,)
    if not _are_little((*limits, *keys, *wheres, *(output.expr for output in body.outputs))):
        return False
    if body.source is None:
        return True
    if not isinstance(body.source, plan.Scan) or body.source.indexed_by is not None:
        return False
    source = body.source
    return pins_a_key(pinned_columns(body.where, source.table, source.relation), source.table)


def is_point_change(change: plan.Update | plan.Delete) -> bool:
    """Whether it changes at most one row, found by its key: nothing to guard against."""
    values = tuple(s.value for s in change.sets) if isinstance(change, plan.Update) else ()
    if isinstance(change, plan.Update) and change.source is not None:
        return False
    if change.indexed_by is not None or change.where is None:
        return False
    if not _are_little((change.where, *values, *(output.expr for output in change.returning))):
        return False
    return pins_a_key(pinned_columns(change.where, change.table, change.relation), change.table)


def _are_little(exprs: Iterable[plan.Expr]) -> bool:
    count = 0
    for expr in exprs:
        for at in walk(expr):
            count += 1
            if count > _EXPRESSIONS_MAX:
                return False
            if isinstance(at, plan.Call):
                if at.function not in _LITTLE_CALLS:
                    return False
            elif not isinstance(at, _LITTLE):
                return False
    return True
