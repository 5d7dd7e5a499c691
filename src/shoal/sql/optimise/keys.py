"""Which filters pin a whole key, so that one row at most can pass.

Here: pinned_columns(), pins_a_key(), gives_one_row().
Not here: what follows from it (point_reads.py, local/queries.py for scalar subqueries).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shoal.catalog.schema import BUCKET_ID, Table
from shoal.sql import plan
from shoal.sql.walk import conjuncts, is_closed, names_relation


def pinned_columns(
    where: plan.Expr | None, table: Table, relation: int, *, closed: bool = True
) -> Mapping[int, plan.Expr]:
    """Column number → what it must be equal to, for the columns of a table that a filter fixes.

    `closed`: by constants and parameters only. Else also by columns of other relations, such as those of
    the query around: one row per row of theirs.
    """
    accept: Callable[[plan.Expr], bool] = is_closed if closed else lambda e: not names_relation(e, relation)
    pins: dict[int, plan.Expr] = {}
    for condition in conjuncts(where):
        if not (isinstance(condition, plan.Op) and condition.op == "="):
            continue
        left, right = condition.args
        for column, value in ((left, right), (right, left)):
            if isinstance(column, plan.Column) and column.relation == relation and accept(value):
                pins.setdefault(column_number(table, column), value)
                break
    return pins


def column_number(table: Table, column: plan.Column) -> int:
    return BUCKET_ID if column.ordinal == plan.HIDDEN_BUCKET else table.columns[column.ordinal].number


def pins_a_key(pins: Mapping[int, plan.Expr], table: Table) -> bool:
    """Whether the columns hold the physical primary key or a unique index: one row at most."""
    if all(part.column in pins for part in table.physical_key):
        return True
    return any(
        index.unique and index.operable and all(part.column in pins for part in index.parts)
        for index in table.indexes
    )


def gives_one_row(query: plan.Query) -> bool:
    """Whether a query surely gives at most one row."""
    limit = query.limit
    if isinstance(limit, plan.Const) and limit.source is None and limit.value in (0, 1):
        return True
    return _body_gives_one_row(query.body)


def _body_gives_one_row(body: plan.Body) -> bool:
    match body:
        case plan.Block():
            if body.source is None or (body.grouped and not body.group_by):
                return True
            source = body.source
            if isinstance(source, plan.Scan):
                pins = pinned_columns(body.where, source.table, source.relation, closed=False)
                return pins_a_key(pins, source.table)
            if isinstance(source, plan.Derived):
                return gives_one_row(source.query)
            return False
        case plan.ValuesRows():
            return len(body.rows) <= 1
        case plan.Query():
            return gives_one_row(body)
        case plan.SetOperation():
            return False
