"""What may stand in a grouped SELECT: aggregates, what it groups by, and what is made of these.

Here: check_grouped(). The match is of structure: `a + 1` is grouped by `a + 1`, not by `1 + a`.
Not here: binding GROUP BY (query.py), aggregates (aggregates.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.errors import GroupingError
from shoal.sql import plan
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.structure import children, same, slots_in


def check_grouped(
    binding: Binding, exprs: Iterable[plan.Expr], keys: Sequence[plan.Expr], own: frozenset[int]
) -> None:
    """`own` are the relations of the SELECT itself: outer queries' columns are constants in it."""
    columns = {(key.relation, key.ordinal) for key in keys if isinstance(key, plan.Column)}
    others = [key for key in keys if not isinstance(key, plan.Column)]
    # Where literals are compared, another literal may not match: the plan is for these ones only.
    slots = [slot for key in others for slot in slots_in(key)]
    if slots:
        binding.pinned.update(slots)
    pending: list[tuple[plan.Expr, bool]] = []  # and whether it is in an inner query
    for expr in exprs:
        if slots:
            binding.pinned.update(slots_in(expr))
        pending.append((expr, False))
    ungrouped: list[plan.Column] = []
    while pending:
        expr, inner = pending.pop()
        if isinstance(expr, plan.Aggregate) and not inner:
            continue
        if isinstance(expr, plan.Column):
            if expr.relation in own and (expr.relation, expr.ordinal) not in columns:
                ungrouped.append(expr)
        elif not any(same(expr, key) for key in others):
            if isinstance(expr, plan.InQuery):
                pending.extend((arg, inner) for arg in expr.args)
                pending.extend((child, True) for child in children(expr.query))
                continue
            inner = inner or isinstance(expr, plan.ScalarQuery | plan.Exists)
            pending.extend((child, inner) for child in children(expr))
    if ungrouped:
        first = min(ungrouped, key=lambda column: binding.position_of(column) or 0)
        raise GroupingError(
            f'invalid query: column "{first.name}" is not found in grouping expressions!',
            position=binding.position_of(first),
        )
