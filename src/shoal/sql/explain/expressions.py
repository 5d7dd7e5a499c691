"""Expressions as EXPLAIN shows them: every leaf with its type, names quoted only where they must be.

Here: ExpressionText, identifier().
Not here: the tree of the plan (nodes.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from shoal.sql import plan
from shoal.sql.lexer import RESERVED
from shoal.types.sqltype import TEXT
from shoal.types.text import cast_text

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*\Z")

# Higher binds stronger; an operand that binds no stronger than its operator stands in parentheses.
_PRECEDENCE: Final[Mapping[str, int]] = {
    "or": 1, "and": 2, "not": 3,
    "=": 5, "<>": 5, "<": 5, "<=": 5, ">": 5, ">=": 5, "is_distinct": 5, "is_not_distinct": 5,
    "||": 6, "+": 7, "-": 7, "*": 8, "/": 8, "%": 8, "neg": 9,
}  # fmt: skip
_LEAF: Final = 20
_COMPARISON: Final = 5

_TESTS: Final[Mapping[str, str]] = {
    "is_null": "is null",
    "is_true": "is true",
    "is_false": "is false",
    "is_unknown": "is unknown",
}
_DISTINCT: Final[Mapping[str, str]] = {
    "is_distinct": "is distinct from",
    "is_not_distinct": "is not distinct from",
}
_FACTS: Final[Mapping[plan.SessionFact, str]] = {
    plan.SessionFact.NOW: "current_timestamp",
    plan.SessionFact.LOCAL_NOW: "localtimestamp",
    plan.SessionFact.TODAY: "current_date",
    plan.SessionFact.USER: "current_user",
    plan.SessionFact.DATABASE: "current_database()",
}


def identifier(name: str) -> str:
    if _PLAIN_NAME.match(name) and name not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


class ExpressionText:
    """Turns expressions into text; what it meets of subqueries, it hands to `subquery`, which names them."""

    def __init__(self, subquery: Callable[[plan.Query], str]) -> None:
        self._subquery = subquery
        self._relations: dict[int, str | None] = {}

    def name_relation(self, relation: int, name: str | None) -> None:
        self._relations[relation] = name

    def column(self, relation: int, name: str) -> str:
        shown = self._relations.get(relation)
        return identifier(name) if shown is None else f"{identifier(shown)}.{identifier(name)}"

    def text(self, expr: plan.Expr) -> str:
        return self._text(expr)[0]

    def listed(self, exprs: tuple[plan.Expr, ...]) -> str:
        return ", ".join(map(self.text, exprs))

    def _operand(self, expr: plan.Expr, above: int, *, right: bool = False) -> str:
        text, precedence = self._text(expr)
        weaker = precedence < above or (right and precedence == above)
        return f"({text})" if weaker or _is_between(expr) else text

    def _text(self, expr: plan.Expr) -> tuple[str, int]:
        """The text, and how strongly it holds together."""
        match expr:
            case plan.Op():
                return self._operator(expr)
            case plan.RowOp(op, left, right):
                return f"ROW({self.listed(left)}) {op} ROW({self.listed(right)})", _COMPARISON
            case plan.Like():
                return self._like(expr), _COMPARISON
            case plan.InList(arg, items, negated):
                return self._negated(
                    negated, f"{self._operand(arg, _COMPARISON + 1)} in ROW({self.listed(items)})"
                )
            case plan.InArray(arg, array, negated):
                test = f"<> all ({self.text(array)})" if negated else f"= any ({self.text(array)})"
                return f"{self._operand(arg, _COMPARISON + 1)} {test}", _COMPARISON
            case plan.InQuery(args, query, negated):
                row = self.text(args[0]) if len(args) == 1 else f"ROW({self.listed(args)})"
                return self._negated(negated, f"{row} in {self._row(query)}")
            case _:
                return self._leaf(expr), _LEAF

    def _row(self, query: plan.Query) -> str:
        return f"ROW({self._subquery(query)})"

    @staticmethod
    def _negated(negated: bool, text: str) -> tuple[str, int]:
        return (f"not {text}", _PRECEDENCE["not"]) if negated else (text, _COMPARISON)

    def _operator(self, op: plan.Op) -> tuple[str, int]:
        if op.op in _TESTS:
            return f"{self._operand(op.args[0], _COMPARISON + 1)} {_TESTS[op.op]}", _COMPARISON
        positive = op.op.replace("is_not_", "is_")
        if positive in _TESTS:
            test = f"{self._operand(op.args[0], _COMPARISON + 1)} {_TESTS[positive]}"
            return f"not {test}", _PRECEDENCE["not"]
        precedence = _PRECEDENCE[op.op]
        if op.op == "not":
            return f"not {self._operand(op.args[0], precedence)}", precedence
        if op.op == "neg":
            return f"-{self._operand(op.args[0], precedence)}", precedence
        left, right = op.args
        return (
            f"{self._operand(left, precedence, right=precedence == _COMPARISON)}"
            f" {_DISTINCT.get(op.op, op.op)} {self._operand(right, precedence, right=True)}",
            precedence,
        )

    def _like(self, like: plan.Like) -> str:
        word = "similar to" if like.kind == "similar" else like.kind
        escape = f" escape {self.text(like.escape)}" if like.escape is not None else " escape '\\'::string"
        negation = "not " if like.negated else ""
        arg = self._operand(like.arg, _COMPARISON + 1)
        return f"{arg} {negation}{word} {self._operand(like.pattern, _COMPARISON + 1)}{escape}"

    def _leaf(self, expr: plan.Expr) -> str:
        match expr:
            case plan.Const():
                return constant(expr)
            case plan.Param(number, type):
                return f"${number}::{type}"
            case plan.Session(fact, type, precision):
                shown = _FACTS.get(fact, f"{fact.value}()")
                return f"{shown}{'' if precision is None else f'({precision})'}::{type}"
            case plan.Column(relation=relation, name=name, type=type):
                return f"{self.column(relation, name)}::{type}"
            case plan.Cast(arg, type):
                return f"{self._operand(arg, _LEAF)}::{type}"
            case plan.Call(function, args, type):
                return f"{function}({self.listed(args)})::{type}"
            case plan.Case(branches, otherwise, _):
                parts = [f"when {self.text(when)} then {self.text(then)}" for when, then in branches]
                if otherwise is not None:
                    parts.append(f"else {self.text(otherwise)}")
                return f"case {' '.join(parts)} end"
            case plan.Exists(query):
                return f"exists {self._row(query)}"
            case plan.ScalarQuery(query):
                return self._row(query)
            case plan.ArrayOf(items, type):
                return f"array[{self.listed(items)}]::{type}"
            case plan.IndexOf(arg, index, type):
                return f"{self._operand(arg, _LEAF)}[{self.text(index)}]::{type}"
            case plan.Aggregate():
                return self._aggregate(expr)
        raise AssertionError(expr)

    def _aggregate(self, call: plan.Aggregate) -> str:
        args = self.listed(call.args) if call.args else "*"
        if call.separator is not None:
            args += f", {constant(plan.Const(call.separator, TEXT))}"
        distinct = "distinct " if call.distinct else ""
        condition = f" filter (where {self.text(call.filter)})" if call.filter is not None else ""
        return f"{call.function}({distinct}{args}){condition}::{call.type}"


def _is_between(expr: plan.Expr) -> bool:
    """`a >= b and a <= c`, which shows that it belongs together."""
    match expr:
        case plan.Op("and", (plan.Op(">=", (low, _)), plan.Op("<=", (high, _)))):
            return low == high
    return False


def constant(const: plan.Const) -> str:
    """5::int, 'x'::string, true::bool, NULL::unknown."""
    value, type = const.value, const.type
    if value is None:
        return "NULL::unknown"
    shown = cast_text(type)(value)
    if type.is_boolean:
        shown = shown.lower()
    elif not type.is_numeric:
        shown = "'" + shown.replace("'", "''") + "'"
    return f"{shown}::{type}"
