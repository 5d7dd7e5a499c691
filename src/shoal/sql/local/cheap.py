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
    {"+", "-", "*", "/", "%", "neg", "||", "=", "<>", "<", "<=", ">", ">=", "and", "or", "not"}
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
        case plan.Op():
            return min(_cost_of_operator(expr), DEAR)
        case _:
            return DEAR


def _cost_of_operator(op: plan.Op) -> int:
    if op.type.is_decimal or (op.op not in _NATIVE_OPS and not op.op.startswith("is_")):
        return DEAR
    total = 1
    for arg in op.args:
        price = cost(arg)
        if price >= DEAR:
            return DEAR
        # Twice: the operands of a division, for the case that it is by zero, and an integer operation where
        # it ends and is looked at.
        ends_here = isinstance(arg, plan.Op) and arg.type.is_int and (op.op == "%" or not op.type.is_int)
        total += price * (2 if op.op in ("/", "%") else 1) * (2 if ends_here else 1)
    return total


# --- what can fail -------------------------------------------------------------------------------

_TOTAL_OPS: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "and", "or", "not"})


def cannot_fail(expr: plan.Expr) -> bool:
    """Whether evaluating it can't end in an error, so that nobody can tell if it was."""
    match expr:
        case plan.Const() | plan.Param() | plan.Session() | plan.Column():
            return True
        case plan.Op(op, args):
            return (op in _TOTAL_OPS or op.startswith("is_")) and all(map(cannot_fail, args))
        case plan.InList(arg, items):
            return cannot_fail(arg) and all(map(cannot_fail, items))
        case plan.Like(kind, arg, pattern, escape):
            return kind == "like" and escape is None and cannot_fail(arg) and cannot_fail(pattern)
        case _:
            return False
