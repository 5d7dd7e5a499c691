"""What an expression costs, so that the text can say it twice where that is cheaper than a call.

Here: cost(), in operations of SQLite's machine, roughly: a column is 1.
Not here: what is worth doing about it (arithmetic.py, casts.py, …).

A call of a Python function costs about as much as 5 operations (130 ns against 25), but must never be
made twice: its own arguments may call again, and a text that doubles at every level is exponential.
"""

from __future__ import annotations

from typing import Final

from shoal.sql import plan

DEAR: Final = 1_000
_CHEAP_MAX: Final = 8

_NATIVE_OPS: Final = frozenset(
    {"+", "-", "*", "/", "neg", "||", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not"}
)


def is_cheap(expr: plan.Expr) -> bool:
    """Whether it may stand in the text two or three times."""
    return cost(expr) <= _CHEAP_MAX


def cost(expr: plan.Expr) -> int:
    match expr:
        case plan.Const() | plan.Param() | plan.Session() | plan.Column():
            return 1
        case plan.Cast(arg, type) if arg.type.is_int and type.is_double:
            return 1 + cost(arg)
        case plan.Cast(arg, type) if arg.type.same_values(type) and type.precision is None:
            return cost(arg)
        case plan.Op(op, args, type):
            if op not in _NATIVE_OPS and not op.startswith("is_"):
                return DEAR
            if type.is_decimal:
                return DEAR  # every operation is a call
            total = 1 + (cost(args[1]) if op == "/" else 0)
            for arg in args:
                total += cost(arg)
                # An integer operation below another kind of operation has been looked at, which takes twice.
                if isinstance(arg, plan.Op) and arg.type.is_int and not type.is_int:
                    total += cost(arg)
                if total >= DEAR:
                    return DEAR
            return total
        case _:
            return DEAR
