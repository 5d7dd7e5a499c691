"""Casts: as SQLite's own where that is exact, as a call where it is not.

Here: cast_text().
Not here: what a cast answers (types/casts.py), the functions that are called (storage/functions.py).
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.sql import plan
from shoal.sql.local.cheap import is_cheap
from shoal.sql.local.draft import Draft, constant
from shoal.sql.optimise.buckets import type_code
from shoal.types.sqltype import Kind, SqlType

# The greatest float below 2^63, and what lies just beyond -2^63: between them truncation is an INT.
_INT_RANGE = "BETWEEN -9223372036854775808.0 AND 9223372036854774784.0"


def cast_text(cast: plan.Cast, text: Callable[[plan.Expr], str], draft: Draft) -> str:
    source, target, value = cast.arg.type, cast.type, text(cast.arg)
    if source.is_unknown or source.kind is Kind.UNKNOWN:
        return value  # a bare NULL
    if source.same_values(target):
        return narrowed(cast.arg, value, target)
    if not source.is_array and not target.is_array:
        native = _native(cast.arg, value, target)
        if native is not None:
            return native
    return _call(source, target, value, draft)


def narrowed(expr: plan.Expr, value: str, target: SqlType) -> str:
    """A value of the right kind, fitted to what a column narrows: UNSIGNED, DECIMAL(p, s)."""
    source = expr.type
    if target.unsigned and not target.is_array and not _is_known_to_fit(expr, target):
        if is_cheap(expr):
            return f"iif({value} < 0, shoal_unsigned({value}), {value})"
        return f"shoal_unsigned({value})"
    if target.precision is not None and not _is_known_to_fit(expr, target):
        if target.is_array:
            return f"shoal_cast({constant(type_code(source))}, {constant(type_code(target))}, {value}, 'UTC')"
        return f"shoal_decimal_fit({value}, {target.precision}, {target.scale or 0})"
    return value


def _is_known_to_fit(expr: plan.Expr, target: SqlType) -> bool:
    # A parameter of the column's type is only as good as the client that sent it.
    return expr.type == target and isinstance(expr, plan.Column | plan.Cast | plan.Const)


def _native(arg: plan.Expr, value: str, target: SqlType) -> str | None:
    source = arg.type
    if source.is_int:
        if target.is_double:
            return f"CAST({value} AS REAL)"
        if target.is_text:
            return f"CAST({value} AS TEXT)"
        if target.is_boolean:
            return f"({value} <> 0)"
    elif source.is_boolean:
        if target.is_int:
            return value
        if target.is_text:
            return f"CASE {value} WHEN 1 THEN 'TRUE' WHEN 0 THEN 'FALSE' END"
    elif source.is_double and target.is_int and is_cheap(arg):
        return f"iif({value} {_INT_RANGE}, CAST({value} AS INTEGER), shoal_cast_double_int({value}))"
    return None


def _call(source: SqlType, target: SqlType, value: str, draft: Draft) -> str:
    zone = [draft.session(plan.SessionFact.ZONE)] if needs_zone(source, target) else []
    if _is_plain(source) and _is_plain(target):
        name = f"shoal_cast_{source.kind.value}_{target.kind.value}"
        return f"{name}({', '.join((value, *zone))})"
    codes = (constant(type_code(source)), constant(type_code(target)))
    return f"shoal_cast({', '.join((*codes, value, *(zone or [constant('UTC')])))})"


def _is_plain(type: SqlType) -> bool:
    return not type.is_array and type.precision is None


def needs_zone(source: SqlType, target: SqlType) -> bool:
    """A text is read, and an instant is shown, in the session's time zone."""
    kinds = {source.kind, target.kind}
    return Kind.DATETIME in kinds and kinds != {Kind.DATETIME}
