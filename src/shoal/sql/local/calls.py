"""Scalar functions: as SQLite's own where those answer the same, as calls of ours where they don't.

Here: call().
Not here: which functions there are and which overload was chosen (sql/functions.py, the binder), what our
own ones do (storage/functions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from shoal.sql import plan
from shoal.sql.local.arithmetic import arithmetic
from shoal.sql.local.cheap import is_cheap
from shoal.sql.local.draft import Draft

Text: TypeAlias = Callable[[plan.Expr], str]
Form: TypeAlias = Callable[[plan.Call, Text, Draft], str]


def call(expr: plan.Call, text: Text, draft: Draft) -> str:
    form = _FORMS.get(expr.function)
    if form is not None:
        return form(expr, text, draft)
    return _named(f"shoal_{expr.function}", expr, text)


def _named(name: str, expr: plan.Call, text: Text) -> str:
    return f"{name}({', '.join(text(arg) for arg in expr.args)})"


def _native(name: str) -> Form:
    return lambda expr, text, draft: _named(name, expr, text)


def _coalesce(expr: plan.Call, text: Text, draft: Draft) -> str:
    # SQLite's wants two at least.
    return text(expr.args[0]) if len(expr.args) == 1 else _named("coalesce", expr, text)


def _extreme(ours: str, native: str) -> Form:
    """GREATEST, LEAST. SQLite's max() of several is NULL when one of them is; of two, it is the other one then."""

    def form(expr: plan.Call, text: Text, draft: Draft) -> str:
        if len(expr.args) == 2 and all(map(is_cheap, expr.args)):
            values = ", ".join(map(text, expr.args))
            return f"coalesce({native}({values}), {values})"
        return _named(ours, expr, text)

    return form


def _number(name: str, *, int_: Form, double: Form) -> Form:
    """One function for each kind of number; DECIMAL's is ours."""

    def form(expr: plan.Call, text: Text, draft: Draft) -> str:
        if expr.args[0].type.is_decimal:
            return _named(f"shoal_decimal_{name}", expr, text)
        return (double if expr.args[0].type.is_double else int_)(expr, text, draft)

    return form


def _itself(expr: plan.Call, text: Text, draft: Draft) -> str:
    return text(expr.args[0])


def _unsigned_zero(name: str) -> Form:
    """ceil(-0.5) is -0.0, which is no value of ours."""
    return lambda expr, text, draft: f"({_named(name, expr, text)} + 0.0)"


def _mod(expr: plan.Call, text: Text, draft: Draft) -> str:
    return arithmetic(plan.Op("%", expr.args, expr.type), text)


def _substr(expr: plan.Call, text: Text, draft: Draft) -> str:
    """SUBSTR(s, from[, count]): positions before the first count, but hold nothing."""
    value, start = expr.args[0], expr.args[1]
    count = expr.args[2] if len(expr.args) > 2 else None
    if not is_cheap(start) or (count is not None and not is_cheap(count)):
        return _named("shoal_substr", expr, text)
    first = text(start)
    if isinstance(start, plan.Const) and start.source is None and isinstance(start.value, int):
        first = str(max(start.value, 1))
    else:
        first = f"max({first}, 1)"
    if count is None:
        return f"substr({text(value)}, {first})"
    length = f"max({text(start)} + {text(count)} - {first}, 0)"
    return f"substr({text(value)}, {first}, iif({text(count)} < 0, shoal_negative_length(), {length}))"


def _zoned(name: str) -> Form:
    def form(expr: plan.Call, text: Text, draft: Draft) -> str:
        zone = draft.session(plan.SessionFact.ZONE)
        return f"{name}({', '.join((*(text(arg) for arg in expr.args), zone))})"

    return form


_FORMS: Final[Mapping[str, Form]] = {
    "coalesce": _coalesce,
    "nullif": _native("nullif"),
    "greatest": _extreme("shoal_greatest", "max"),
    "least": _extreme("shoal_least", "min"),
    # abs(-2^63) is an error of SQLite's, too: "integer overflow".
    "abs": _number("abs", int_=_native("abs"), double=_native("abs")),
    "ceil": _number("ceil", int_=_itself, double=_unsigned_zero("ceil")),
    "floor": _number("floor", int_=_itself, double=_native("floor")),
    "trunc": _number("trunc", int_=_itself, double=_unsigned_zero("trunc")),
    "round": _number("round", int_=_itself, double=_native("shoal_double_round")),
    "sign": _number(
        "sign",
        int_=_native("sign"),
        double=lambda expr, text, draft: f"CAST({_named('sign', expr, text)} AS REAL)",
    ),
    "mod": _mod,
    "length": _native("length"),
    "octet_length": _native("octet_length"),
    "position": lambda expr, text, draft: f"instr({text(expr.args[1])}, {text(expr.args[0])})",
    "strpos": _native("instr"),
    "substr": _substr,
    "btrim": _native("trim"),
    "ltrim": _native("ltrim"),
    "rtrim": _native("rtrim"),
    "concat": _native("concat"),
    "to_char": _zoned("shoal_to_char"),
    "bucket_of": _native("shoal_bucket"),
}
