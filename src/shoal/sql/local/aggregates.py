"""Aggregates, without a call per row where SQLite can do the adding.

Here: aggregate().
Not here: the aggregates that are ours (storage/functions.py registers them).

SUM and AVG of INT are exact: SQLite's own sum() fails beyond 64 bits, so it adds the high and the low
halves, each of which has room for 2^31 rows, and one call per group puts them together.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.sql import plan
from shoal.sql.local.arithmetic import unchecked
from shoal.sql.local.cheap import is_cheap
from shoal.sql.local.draft import constant


def aggregate(call: plan.Aggregate, text: Callable[[plan.Expr], str]) -> str:
    where = f" FILTER (WHERE {text(call.filter)})" if call.filter is not None else ""
    distinct = "DISTINCT " if call.distinct else ""
    if not call.args:
        return f"count(*){where}"
    arg = call.args[0]
    value = text(arg)

    def native(name: str) -> str:
        return f"{name}({distinct}{value}){where}"

    match call.function:
        case "count" | "min" | "max":
            return native(call.function)
        case "group_concat" | "string_agg":
            return _group_concat(call, value, distinct, where)
        case "sum" | "avg" if arg.type.is_double:
            # Infinity minus infinity would be a NULL.
            return (
                f"coalesce({native(call.function)}, iif({native('count')} = 0, NULL, shoal_not_a_number()))"
            )
        case "sum" | "avg" if arg.type.is_int and not call.distinct and is_cheap(arg):
            count = f", {native('count')}" if call.function == "avg" else ""
            # One look for an overflow is enough.
            high = f"sum({value} >> 32){where}"
            low = f"sum({unchecked(arg, text)} & 4294967295){where}"
            return f"shoal_{call.function}_of_halves({high}, {low}{count})"
        case "sum" | "avg":
            return native(f"shoal_{call.function}_{'decimal' if arg.type.is_decimal else 'int'}")
        case "total" if arg.type.is_decimal:
            return native("shoal_total_decimal")
        case "total":
            return f"coalesce({native('total')}, shoal_not_a_number())"
    raise AssertionError(call)


def _group_concat(call: plan.Aggregate, value: str, distinct: str, where: str) -> str:
    separator = constant("," if call.separator is None else call.separator)
    if not call.distinct:
        return f"group_concat({value}, {separator}){where}"
    # SQLite's DISTINCT takes one argument only.
    return f"shoal_join(json_group_array({distinct}{value}){where}, {separator})"
