"""Expressions, as SQLite's text.

Here: expression(), for every kind of expression of the plan but subqueries and aggregates, and the row
comparisons.
Not here: arithmetic (arithmetic.py), casts (casts.py), functions by name (calls.py), subqueries
(queries.py), aggregates (aggregates.py), assignments to columns (changes.py).

Whatever has an operator in it stands in parentheses, so nothing depends on SQLite's precedences.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FeatureNotSupported
from shoal.sql import plan
from shoal.sql.local import aggregates, arithmetic, queries
from shoal.sql.local.calls import call
from shoal.sql.local.casts import cast_text
from shoal.sql.local.cheap import cannot_fail, is_cheap
from shoal.sql.local.draft import Draft, constant
from shoal.sql.walk import is_closed

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})

# What follows the operand. IS TRUE asks SQLite for truth, and a BOOLEAN is 0 or 1.
_TESTS: Final = {
    "is_null": "IS NULL",
    "is_not_null": "IS NOT NULL",
    "is_true": "IS TRUE",
    "is_not_true": "IS NOT TRUE",
    "is_false": "IS FALSE",
    "is_not_false": "IS NOT FALSE",
    "is_unknown": "IS NULL",
    "is_not_unknown": "IS NOT NULL",
}
_DISTINCT: Final = {"is_distinct": "IS NOT", "is_not_distinct": "IS"}


def expression(expr: plan.Expr, draft: Draft) -> str:
    def text(inner: plan.Expr) -> str:
        return expression(inner, draft)

    match expr:
        case plan.Column():
            return draft.column(expr)
        case plan.Const():
            return draft.const(expr)
        case plan.Param():
            return draft.param(expr.number)
        case plan.Session():
            return draft.session(expr.fact, expr.precision)
        case plan.Op():
            return _operator(expr, draft)
        case plan.RowOp():
            return f"(({_list(expr.left, draft)}) {expr.op} ({_list(expr.right, draft)}))"
        case plan.Cast():
            return cast_text(expr, text, draft)
        case plan.Call():
            return call(expr, text, draft)
        case plan.Like():
            return _like(expr, draft)
        case plan.Case():
            return _case(expr, draft)
        case plan.InList():
            return f"({text(expr.arg)} {_in(expr.negated)} ({_list(expr.items, draft)}))"
        case plan.InArray():
            return _in_array(expr, draft)
        case plan.InQuery():
            left = text(expr.args[0]) if len(expr.args) == 1 else f"({_list(expr.args, draft)})"
            return f"({left} {_in(expr.negated)} ({queries.inner_query(expr.query, draft)}))"
        case plan.Exists():
            return f"EXISTS ({queries.inner_query(expr.query, draft)})"
        case plan.ScalarQuery():
            return queries.scalar_query(expr, draft)
        case plan.ArrayOf():
            return f"shoal_array({_list(expr.items, draft)})"
        case plan.IndexOf():
            return _index(expr, draft)
        case plan.Aggregate():
            return aggregates.aggregate(expr, text)
        case plan.OutputRef():
            return f"f{expr.ordinal}"  # over a set operation; a block's have been replaced


def _list(exprs: tuple[plan.Expr, ...], draft: Draft) -> str:
    return ", ".join(expression(expr, draft) for expr in exprs)


def _in(negated: bool) -> str:
    return "NOT IN" if negated else "IN"


def _operator(op: plan.Op, draft: Draft) -> str:
    def text(inner: plan.Expr) -> str:
        return expression(inner, draft)

    name = op.op
    if name in _COMPARISONS or name == "||":
        return f"({text(op.args[0])} {name} {text(op.args[1])})"
    if name in arithmetic.ARITHMETIC:
        return arithmetic.arithmetic(op, text)
    if name in ("and", "or"):
        operands = _chain(op)
        if not all(cannot_fail(operand) for operand in operands[1:]):
            return _one_by_one(name, operands, draft)
        return _balanced([text(operand) for operand in operands], f" {name.upper()} ")
    if name == "not":
        return f"(NOT {text(op.args[0])})"
    if name in _TESTS:
        return f"({text(op.args[0])} {_TESTS[name]})"
    if name in _DISTINCT:
        return f"({text(op.args[0])} {_DISTINCT[name]} {text(op.args[1])})"
    raise AssertionError(op)


def _chain(op: plan.Op) -> list[plan.Expr]:
    """The operands of a AND b AND c …, whichever way they are nested."""
    operands: list[plan.Expr] = []
    left_to_do: list[plan.Expr] = [op]
    while left_to_do:
        expr = left_to_do.pop()
        if isinstance(expr, plan.Op) and expr.op == op.op:
            left_to_do.extend(reversed(expr.args))
        else:
            operands.append(expr)
    return operands


def condition(expr: plan.Expr, draft: Draft) -> str:
    """Where only truth matters (WHERE, ON, WHEN): there, SQLite stops at the first operand that decides."""
    if isinstance(expr, plan.Op) and expr.op in ("and", "or"):
        return _balanced([condition(operand, draft) for operand in _chain(expr)], f" {expr.op.upper()} ")
    return expression(expr, draft)


def _one_by_one(name: str, operands: list[plan.Expr], draft: Draft) -> str:
    """AND and OR as a value, for which SQLite evaluates both sides: `b <> 0 AND a / b > 1` must not fail."""
    first = expression(operands[0], draft)
    if len(operands) == 1:
        return first
    rest = _one_by_one(name, operands[1:], draft)
    if not is_cheap(operands[0]) or all(cannot_fail(operand) for operand in operands[1:]):
        return f"({first} {name.upper()} {rest})"
    if name == "and":
        return f"iif(NOT {first}, 0, {first} AND {rest})"
    return f"iif({first}, 1, {first} OR {rest})"


def _balanced(texts: list[str], separator: str) -> str:
    """One level of parentheses for a few; a tree for many, since SQLite's expressions are 1000 deep at most."""
    while len(texts) > 100:
        texts = [f"({separator.join(texts[at : at + 100])})" for at in range(0, len(texts), 100)]
    return f"({separator.join(texts)})"


def _case(case: plan.Case, draft: Draft) -> str:
    branches = " ".join(
        f"WHEN {condition(when, draft)} THEN {expression(then, draft)}" for when, then in case.branches
    )
    otherwise = f" ELSE {expression(case.otherwise, draft)}" if case.otherwise is not None else ""
    return f"CASE {branches}{otherwise} END"


def _like(like: plan.Like, draft: Draft) -> str:
    arg, pattern = expression(like.arg, draft), expression(like.pattern, draft)
    negation = "NOT " if like.negated else ""
    if like.kind == "like":
        # SQLite's own, on connections with case_sensitive_like. A constant prefix uses an index. A pattern
        # that ends in the escape character matches nothing, where PostgreSQL would complain.
        return f"({arg} {negation}LIKE {pattern}{_escape_clause(like.escape, draft)})"
    escape = constant("\\") if like.escape is None else expression(like.escape, draft)
    return f"({negation}shoal_{like.kind}({arg}, {pattern}, {escape}))"


def _escape_clause(escape: plan.Expr | None, draft: Draft) -> str:
    if escape is None:
        return " ESCAPE '\\'"
    if isinstance(escape, plan.Const) and isinstance(escape.value, str):
        # In the text itself, since only so SQLite turns a prefix into a range.
        if escape.source is not None:
            draft.pinned.add(escape.source.slot)
        if escape.value == "":
            return ""
        if len(escape.value) == 1:
            return f" ESCAPE {constant(escape.value)}"
    return f" ESCAPE shoal_escape({expression(escape, draft)})"


def _in_array(test: plan.InArray, draft: Draft) -> str:
    """A list that is made once per statement: the elements as rows, so an index on the left side is used."""
    arg, array = expression(test.arg, draft), expression(test.array, draft)
    element = test.array.type.element
    if element.is_double or not is_closed(test.array):
        # JSON has no infinity. An array that is another one for each row is just looked through.
        return f"({'NOT ' if test.negated else ''}shoal_in_array({arg}, {array}))"
    value = "unhex(value)" if element.sqlite_type == "BLOB" else "value"
    return f"({arg} {_in(test.negated)} (SELECT {value} FROM json_each(shoal_elements({array}))))"


def _index(index: plan.IndexOf, draft: Draft) -> str:
    arg, key = expression(index.arg, draft), expression(index.index, draft)
    if index.arg.type.is_array and not index.arg.type.is_json:
        return f"shoal_array_item({arg}, {key})"
    if index.arg.type.is_json:
        return f"shoal_json_item({arg}, {key})"
    raise FeatureNotSupported(f"cannot index expression of type {index.arg.type.error_name}")
