"""Arithmetic that SQLite does, without what SQLite does wrong.

Here: + - * / % and negation of INT, DOUBLE and DECIMAL, as text.
Not here: comparisons and logic, which SQLite does right (expressions.py).

SQLite turns an overflowing integer operation into a float, and a division by zero or a NaN into NULL. So:

INT. A float is contagious: whatever of + - * / touches it is a float, too. So a whole tree of operations is
left as it is, and only its result is looked at: a float means that something on the way overflowed.

DOUBLE. A NaN becomes NULL, which is contagious as well: a NULL result of operands that are not NULL was a
NaN once, and we refuse that. Infinity is a value. Adding 0.0 turns -0.0 into 0.0.

DECIMAL is ours: SQLite sees bytes, and each operation is a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from shoal.sql import plan
from shoal.sql.local.cheap import cost, is_cheap

# 2^63 to the 16th is still a finite float: no longer product may go by without a look, since infinity
# times zero would be a NULL.
_LEAVES_MAX: Final = 15
# Above this cost, one call is cheaper than evaluating the tree twice.
_TWICE_MAX: Final = 12

Text = Callable[[plan.Expr], str]  # of an operand

_DECIMAL: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div", "neg": "neg"}
_DOUBLE: Final = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_DIVISIONS: Final = {"/": "div", "%": "mod"}
_CONTAGIOUS: Final = frozenset({"+", "-", "*", "/", "neg"})

ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%", "neg"})


def arithmetic(op: plan.Op, text: Text) -> str:
    if op.type.is_decimal:
        return f"shoal_decimal_{_DECIMAL[op.op]}({', '.join(map(text, op.args))})"
    if op.type.is_double:
        return _double(op, text)
    return _looked_at(op, text)


def unchecked(expr: plan.Expr, text: Text) -> str:
    """For a value that goes straight into an INT column of a STRICT table, which refuses a float by itself."""
    if expr.type.is_int and _is_contagious(expr):
        return _int_tree(expr, text)[0]
    return text(expr)


# --- INT -----------------------------------------------------------------------------------------


def _is_contagious(expr: plan.Expr) -> bool:
    return isinstance(expr, plan.Op) and expr.op in _CONTAGIOUS and expr.type.is_int


def _looked_at(expr: plan.Expr, text: Text) -> str:
    """The value of an INT expression, surely an integer."""
    if not _is_contagious(expr):
        return _modulo(expr, text) if _is_modulo(expr) else text(expr)
    tree, _ = _int_tree(expr, text)
    return _checked(tree, cost(expr))


def _checked(tree: str, price: int) -> str:
    if price <= _TWICE_MAX:
        return f"iif(typeof({tree}) = 'real', shoal_int_overflow(), {tree})"
    return f"shoal_int({tree})"


def _int_tree(expr: plan.Expr, text: Text) -> tuple[str, int]:
    """Text that is a float where something overflowed, and how many leaves it multiplies at most."""
    if not _is_contagious(expr):
        return (_modulo(expr, text) if _is_modulo(expr) else text(expr)), 1
    assert isinstance(expr, plan.Op)
    if expr.op == "neg":
        inner, leaves = _int_tree(expr.args[0], text)
        return f"(- {inner})", leaves  # a blank, since -- begins a comment
    (left, left_leaves), (right, right_leaves) = (_int_tree(arg, text) for arg in expr.args)
    if left_leaves + right_leaves > _LEAVES_MAX:
        left, right = f"shoal_int({left})", f"shoal_int({right})"
        left_leaves = right_leaves = 1
    if expr.op == "/":
        return _division(expr, left, right, "int"), left_leaves + right_leaves
    return f"({left} {expr.op} {right})", left_leaves + right_leaves


def _is_modulo(expr: plan.Expr) -> bool:
    return isinstance(expr, plan.Op) and expr.op == "%"


def _modulo(expr: plan.Expr, text: Text) -> str:
    # % casts its operands to integers, so it would hide a float.
    assert isinstance(expr, plan.Op)
    left, right = (_looked_at(arg, text) for arg in expr.args)
    return _division(expr, left, right, "int")


def _division(op: plan.Op, left: str, right: str, kind: str) -> str:
    """/ or %, with an error where SQLite has NULL. But NULL / 0 is NULL: shoal_division_by_zero() looks at the
    dividend."""
    dividend, divisor = op.args
    if isinstance(divisor, plan.Const) and divisor.source is None and divisor.value:
        return f"({left} {op.op} {right})"
    if is_cheap(dividend) and is_cheap(divisor):
        return f"({left} {op.op} iif({right} = 0, shoal_division_by_zero({left}), {right}))"
    return f"shoal_{kind}_{_DIVISIONS[op.op]}({left}, {right})"


# --- DOUBLE --------------------------------------------------------------------------------------


def _double(op: plan.Op, text: Text) -> str:
    if not all(is_cheap(leaf) for leaf in _leaves(op)):
        return _double_calls(op, text)
    tree = _double_tree(op, text)
    if _has_signed_zero(op):
        tree = f"({tree} + 0.0)"
    if not _may_be_nan(op):
        return tree
    nulls = " OR ".join(f"{text(leaf)} IS NULL" for leaf in _leaves(op) if _is_nullable(leaf))
    nan = f"iif({nulls}, NULL, shoal_not_a_number())" if nulls else "shoal_not_a_number()"
    return f"coalesce({tree}, {nan})"


def _double_calls(expr: plan.Expr, text: Text) -> str:
    """One call per operation: an operand is too dear to be evaluated twice."""
    if not _is_double_op(expr):
        return text(expr)
    assert isinstance(expr, plan.Op)
    operands = [_double_calls(arg, text) for arg in expr.args]
    if expr.op == "neg":
        return f"(0.0 - {operands[0]})"
    return f"shoal_double_{_DOUBLE[expr.op]}({', '.join(operands)})"


def _double_tree(expr: plan.Expr, text: Text) -> str:
    if not _is_double_op(expr):
        return text(expr)
    assert isinstance(expr, plan.Op)
    operands = [_double_tree(arg, text) for arg in expr.args]
    if expr.op == "neg":
        return f"(- {operands[0]})"
    if expr.op == "/":
        return _division(expr, operands[0], operands[1], "double")
    return f"({operands[0]} {expr.op} {operands[1]})"


def _is_double_op(expr: plan.Expr) -> bool:
    return isinstance(expr, plan.Op) and expr.op in _CONTAGIOUS and expr.type.is_double


def _leaves(expr: plan.Expr) -> list[plan.Expr]:
    """The operands of the tree, each once."""
    if not _is_double_op(expr):
        return [expr]
    assert isinstance(expr, plan.Op)
    found: dict[plan.Expr, None] = {}
    for arg in expr.args:
        found.update(dict.fromkeys(_leaves(arg)))
    return list(found)


def _is_nullable(leaf: plan.Expr) -> bool:
    if isinstance(leaf, plan.Column):
        return leaf.nullable
    return not (isinstance(leaf, plan.Const) and leaf.value is not None)


def _is_finite(expr: plan.Expr) -> bool:
    """A literal has digits, so whatever stands in its place is finite, too."""
    return isinstance(expr, plan.Const) and isinstance(expr.value, float) and math.isfinite(expr.value)


def _may_be_nan(expr: plan.Expr) -> bool:
    """Infinity minus infinity, times zero, or over infinity."""
    if not _is_double_op(expr):
        return False
    assert isinstance(expr, plan.Op)
    if any(_may_be_nan(arg) for arg in expr.args):
        return True
    match expr.op:
        case "neg":
            return False
        case "/":
            return not _is_finite(expr.args[1])
        case "*":
            return not any(
                _is_finite(arg) and isinstance(arg, plan.Const) and arg.source is None and arg.value
                for arg in expr.args
            )
        case _:
            return not any(_is_finite(arg) for arg in expr.args)


def _has_signed_zero(expr: plan.Expr) -> bool:
    if not _is_double_op(expr):
        return False
    assert isinstance(expr, plan.Op)
    return expr.op in ("*", "/", "neg") or any(_has_signed_zero(arg) for arg in expr.args)
