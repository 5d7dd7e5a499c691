"""Expressions of the plan, evaluated by plain Python: what generated SQL must agree with.

Here: evaluate(), the reference; run(), the same by SQLite on the generated text.
Not here: which expressions (the tests).

Python's integers have no limit and its Decimals are exact, so the reference is simple: compute, then look
whether the result is a value of the type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import apsw

from shoal.catalog.schema import Column as TableColumn
from shoal.catalog.schema import KeyPart, Sharded, Table, TableId, Tier, TierName, schema_of
from shoal.errors import DivisionByZero, NumericOutOfRange, ShoalError
from shoal.sql import plan
from shoal.sql.local import compile_program
from shoal.sql.program import bindings
from shoal.storage.functions import register
from shoal.storage.tables import create_table
from shoal.types import decimals
from shoal.types.sqltype import BOOLEAN, DECIMAL, DOUBLE, INT, SqlType
from shoal.types.values import Stored

COLUMNS: Final[Mapping[str, SqlType]] = {
    "i": INT, "j": INT, "k": INT, "x": DOUBLE, "y": DOUBLE, "z": DOUBLE,
    "d": DECIMAL, "e": DECIMAL, "b": BOOLEAN, "c": BOOLEAN,
}  # fmt: skip

TABLE: Final = Table(
    TableId(1025),
    "t",
    (
        TableColumn(1, "id", INT, nullable=False),
        *(TableColumn(n + 2, name, t, nullable=True) for n, (name, t) in enumerate(COLUMNS.items())),
    ),
    (KeyPart(1),),
    Sharded((1,), TierName("default"), implicit=True),
    version=1,
    generation=1,
)
SCHEMA: Final = schema_of(1, [TABLE], [Tier(TierName("default"))])
SCAN: Final = plan.Scan(0, TABLE, "t", None, None)


def column(name: str) -> plan.Column:
    ordinal = next(n for n, c in enumerate(TABLE.columns) if c.name == name)
    found = TABLE.columns[ordinal]
    return plan.Column(0, ordinal, name, found.type, found.nullable)


def open_table() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.pragma("case_sensitive_like", 1)
    register(connection)
    create_table(connection, TABLE)
    return connection


def run(connection: apsw.Connection, expr: plan.Expr, row: int, params: tuple[Stored, ...] = ()) -> Stored:
    """The expression for the row with that id."""
    where = plan.Op("=", (column("id"), plan.Const(row, INT)), BOOLEAN)
    block = plan.Block((plan.Output("e", expr),), SCAN, where, (), False, None, False)
    query = plan.Query((), block, (), None, None, ("e",), (expr.type,))
    bound = plan.Bound(
        query, plan.Options(), (INT,) * len(params), (0,) * len(params), (TABLE,), (), frozenset(), False
    )
    program = compile_program(bound, SCHEMA)
    ((value,),) = connection.execute(program.sql, bindings(program)(params, None, {})).fetchall()
    return value


def evaluate(expr: plan.Expr, row: Mapping[str, Stored]) -> Stored:
    """The value; raises what the statement must raise."""
    match expr:
        case plan.Const(value):
            return value
        case plan.Column(name=name):
            return row[name]
        case plan.Cast(arg, type):
            return _cast(evaluate(arg, row), arg.type, type)
        case plan.Op("and" | "or"):
            return _logic(expr, row)
        case plan.Op("not", (arg,)):
            value = evaluate(arg, row)
            return None if value is None else 1 - int(value)
        case plan.Op(op, args) if op.startswith("is_"):
            return int(_test(op, [evaluate(arg, row) for arg in args]))
        case plan.Op(op, args):
            values = _strictly(args, row)
            if None in values:
                return None
            if op in ("=", "<>", "<", "<=", ">", ">="):
                return int(_compare(op, values[0], values[1]))
            return _arithmetic(op, values, expr.type)
        case plan.Case(branches, otherwise):
            for condition, value in branches:
                if evaluate(condition, row):
                    return evaluate(value, row)
            return None if otherwise is None else evaluate(otherwise, row)
        case plan.Call("coalesce", args):
            return next((v for v in (evaluate(arg, row) for arg in args) if v is not None), None)
        case plan.Call("abs", (arg,)):
            value = evaluate(arg, row)
            if isinstance(value, bytes):
                return decimals.abs(value)
            return None if value is None else _of_type(abs(value), arg.type)  # type: ignore[arg-type]
        case plan.InList(arg, items, negated):
            value = evaluate(arg, row)
            try:
                return _in(value, [evaluate(item, row) for item in items], negated)
            except ShoalError as error:
                raise Undecided from error  # another item may be what was looked for
    raise AssertionError(expr)


def _compare(op: str, a: object, b: object) -> bool:
    less, equal = a < b, a == b  # type: ignore[operator]
    return {"=": equal, "<>": not equal, "<": less, "<=": less or equal, ">": not less and not equal,
            ">=": not less}[op]  # fmt: skip


def _test(op: str, values: list[Stored]) -> bool:
    match op:
        case "is_null" | "is_unknown":
            return values[0] is None
        case "is_not_null" | "is_not_unknown":
            return values[0] is not None
        case "is_true":
            return values[0] == 1
        case "is_not_true":
            return values[0] != 1
        case "is_false":
            return values[0] == 0 and values[0] is not None
        case "is_not_false":
            return values[0] != 0 or values[0] is None
        case "is_distinct":
            return values[0] != values[1]
        case "is_not_distinct":
            return values[0] == values[1]
    raise AssertionError(op)


class Undecided(Exception):
    """One operand decides, another one fails: either outcome is right."""


def _strictly(args: tuple[plan.Expr, ...], row: Mapping[str, Stored]) -> list[Stored]:
    """Operands of what is NULL when one of them is: then nobody has to evaluate the others."""
    values: list[Stored] = []
    failed: ShoalError | None = None
    for arg in args:
        try:
            values.append(evaluate(arg, row))
        except ShoalError as error:
            failed = failed or error
    if failed is not None:
        if None in values:
            raise Undecided from failed
        raise failed
    return values


def _logic(expr: plan.Op, row: Mapping[str, Stored]) -> Stored:
    decisive = 0 if expr.op == "and" else 1
    values: list[Stored] = []
    failed: ShoalError | None = None
    for arg in expr.args:
        try:
            values.append(evaluate(arg, row))
        except ShoalError as error:
            failed = error
    if failed is not None:
        if decisive in values or None in values:  # for a condition, unknown is as good as false
            raise Undecided from failed
        raise failed
    if decisive in values:
        return decisive
    return None if None in values else 1 - decisive


def _in(value: Stored, items: list[Stored], negated: bool) -> Stored:
    if value is None:
        return None
    if value in [item for item in items if item is not None]:
        return int(not negated)
    return None if None in items else int(negated)


def _cast(value: Stored, source: SqlType, target: SqlType) -> Stored:
    if value is None or source == target:
        return value
    if target.is_double:
        return decimals.to_float(value) if isinstance(value, bytes) else float(value)
    if target.is_decimal:
        return decimals.from_int(value) if isinstance(value, int) else decimals.from_float(float(value))
    if target.is_int:
        if source.is_double:
            if not math.isfinite(float(value)):
                raise NumericOutOfRange("infinite")
            return _of_type(math.trunc(float(value)), INT)
        return _of_type(decimals.to_int(value), INT)  # type: ignore[arg-type]
    if target.is_boolean:
        return int(value != 0)
    raise AssertionError((source, target))


def _arithmetic(op: str, values: list[Stored], type: SqlType) -> Stored:
    if type.is_decimal:
        function = {
            "+": decimals.add,
            "-": decimals.sub,
            "*": decimals.mul,
            "/": decimals.div,
            "neg": decimals.neg,
        }
        return function[op](*values)  # type: ignore[operator, no-any-return]
    a = values[0]
    if op == "neg":
        return _of_type(-a, type)  # type: ignore[operator]
    b = values[1]
    assert isinstance(a, int | float) and isinstance(b, int | float)
    if op in ("/", "%") and b == 0:
        raise DivisionByZero
    if type.is_int:
        assert isinstance(a, int) and isinstance(b, int)
        quotient = abs(a) // abs(b) if op in ("/", "%") else 0
        quotient = quotient if (a < 0) == (b < 0) else -quotient
        result = {
            "+": a + b,
            "-": a - b,
            "*": a * b,
            "/": quotient,
            "%": a - b * quotient if op == "%" else 0,
        }
        return _of_type(result[op], type)
    try:
        real = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if op == "/" else 0.0}[op]
    except OverflowError:
        real = math.inf
    return _of_type(real, type)


def _of_type(value: float, type: SqlType) -> Stored:
    if type.is_int:
        if not -(2**63) <= value < 2**63:
            raise NumericOutOfRange("out of range")
        return value
    if value != value:
        raise NumericOutOfRange("not a number")
    return value + 0.0
