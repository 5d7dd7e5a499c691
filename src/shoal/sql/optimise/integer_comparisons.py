"""`id = 1.0` on an INT column is `id = 1`.

Good for: keys and buckets. The comparison is of DECIMALs or DOUBLEs, so the column is cast, and a cast column
uses no index and pins no bucket. Where the constant is an integer, nothing is lost by comparing integers.

A DOUBLE stands for many integers from 2^53 on; there the comparison stays what it is.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final

from shoal.catalog.schema import Schema
from shoal.sql import plan
from shoal.sql.walk import rewritten, with_filters
from shoal.types import decimals
from shoal.types.sqltype import INT

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_EXACT_DOUBLES: Final = 2.0**53


def compare_as_integers(bound: plan.Bound, schema: Schema) -> plan.Bound:
    pinned = set(bound.pinned)
    changed = False

    def integers(expr: plan.Expr) -> plan.Expr:
        nonlocal changed
        operands = _operands(expr)
        if operands is None:
            return expr
        if not any(map(_cast_column, operands)):
            return expr
        new = [_as_integer(operand) for operand in operands]
        if None in new:
            return expr
        changed = True
        pinned.update(at.source.slot for at in operands if isinstance(at, plan.Const) and at.source)
        first, *rest = (at for at in new if at is not None)
        if isinstance(expr, plan.InList):
            return replace(expr, arg=first, items=tuple(rest))
        assert isinstance(expr, plan.Op)
        return replace(expr, args=(first, *rest))

    root = with_filters(bound.root, lambda expr: rewritten(expr, integers))
    return replace(bound, root=root, pinned=frozenset(pinned)) if changed else bound


def _operands(expr: plan.Expr) -> tuple[plan.Expr, ...] | None:
    if isinstance(expr, plan.Op) and expr.op in _COMPARISONS:
        return expr.args
    if isinstance(expr, plan.InList):
        return (expr.arg, *expr.items)
    return None


def _as_integer(operand: plan.Expr) -> plan.Expr | None:
    """The same number as an INT; None when it isn't known to be one."""
    column = _cast_column(operand)
    if column is not None:
        return column
    value = _integer(operand)
    return None if value is None else plan.Const(value, INT)


def _cast_column(expr: plan.Expr) -> plan.Column | None:
    """The INT column in a cast to another kind of number."""
    if isinstance(expr, plan.Cast) and (expr.type.is_decimal or expr.type.is_double):
        if isinstance(expr.arg, plan.Column) and expr.arg.type.is_int and expr.type.precision is None:
            return expr.arg
    return None


def _integer(expr: plan.Expr) -> int | None:
    """The integer that a constant DECIMAL or DOUBLE is."""
    if not isinstance(expr, plan.Const):
        return None
    value: Decimal | float
    if isinstance(expr.value, bytes) and expr.type.is_decimal:
        value = decimals.from_stored(expr.value)
    elif isinstance(expr.value, float) and abs(expr.value) < _EXACT_DOUBLES:
        value = expr.value
    else:
        return None
    whole = int(value)
    return whole if whole == value and -(2**63) <= whole < 2**63 else None
