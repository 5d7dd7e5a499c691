"""Which buckets a statement can touch, as far as its text and its parameters say.

Here: infer_buckets(), Buckets, and the rule find_bucket_id().
Not here: who owns the buckets (the bucket map), the hash (topology/buckets.py), EXPLAIN's words (explain.py).

A filter pins the buckets of a table when it fixes every column of the sharding key, or bucket_id itself, by
= or IN with constants and parameters; through AND and OR, and through equality with another table's column
that is fixed. The statement touches the buckets of all its tables together.

What is inferred is an expression over the parameters: a plan is made once, its buckets are asked at each
execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Final, TypeAlias

from shoal.catalog.schema import BUCKET_ID, Schema, Sharded, Table
from shoal.sql import plan
from shoal.sql.ast import JoinKind
from shoal.sql.optimise.keys import column_number, pinned_columns
from shoal.sql.program import Facts
from shoal.sql.walk import conjuncts, rewritten_query, subquery, walk
from shoal.topology.buckets import bucket_of_key
from shoal.types import casts
from shoal.types.sqltype import INT, TEXT, Kind, SqlType
from shoal.types.values import Stored

__all__ = ["Buckets", "BucketSet", "find_bucket_id", "infer_buckets"]

# A key of three columns with IN lists of 100 each has a million combinations: then it pins nothing.
KEYS_MAX: Final = 10_000

# None is "all of them".
BucketSet: TypeAlias = frozenset[int] | None
Values: TypeAlias = Callable[[plan.Expr], Stored]  # of a constant expression, at an execution


class Unknown(Exception):
    """The value is not known before the statement runs."""


# --- what a filter says of one table --------------------------------------------------------------


# What a column may be equal to: its value stands in each of the lists.
Lists: TypeAlias = tuple[tuple[plan.Expr, ...], ...]


def _in_all(lists: Lists, values: Values, *, with_nulls: bool = False) -> list[Stored]:
    first, *others = ([values(expr) for expr in exprs] for exprs in lists)
    return [
        value
        for value in dict.fromkeys(first)
        if (value is not None or with_nulls) and all(value in other for other in others)
    ]


@dataclass(frozen=True, slots=True)
class Keys:
    """The buckets of these sharding keys: every combination of the columns' values."""

    types: tuple[SqlType, ...]
    columns: tuple[Lists, ...]
    bucket_count: int
    with_nulls: bool = False  # of rows that are inserted; a filter's NULL is equal to nothing

    def evaluate(self, values: Values) -> BucketSet:
        found = [_in_all(lists, values, with_nulls=self.with_nulls) for lists in self.columns]
        combinations = list(islice(product(*found), KEYS_MAX + 1))
        if len(combinations) > KEYS_MAX:
            return None
        return frozenset(bucket_of_key(self.types, key, self.bucket_count) for key in combinations)


@dataclass(frozen=True, slots=True)
class Named:
    """These bucket_ids, as far as there are such."""

    numbers: Lists
    bucket_count: int

    def evaluate(self, values: Values) -> BucketSet:
        found = _in_all(self.numbers, values)
        return frozenset(n for n in found if isinstance(n, int) and 1 <= n <= self.bucket_count)


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Pins, ...]

    def evaluate(self, values: Values) -> BucketSet:
        found = [part.evaluate(values) for part in self.parts]
        known = [buckets for buckets in found if buckets is not None]
        return frozenset[int]().union(*known) if len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class Both:
    """What all parts agree on; without parts, everything."""

    parts: tuple[Pins, ...]

    def evaluate(self, values: Values) -> BucketSet:
        known = [buckets for part in self.parts if (buckets := part.evaluate(values)) is not None]
        return frozenset.intersection(*known) if known else None


Pins: TypeAlias = Keys | Named | Either | Both


# --- what a statement touches ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a statement; `pins` is None when it touches no sharded table.

    `exact`: nothing needs to be carried between buckets, so these are the ones. Otherwise they are an upper
    bound, which holds before the statement has run.
    """

    pins: Either | None
    bucket_count: int
    local: bool  # needs no rows of other buckets, however many there are

    @property
    def is_any(self) -> bool:
        return self.pins is None

    def evaluate(self, params: Sequence[Stored] | None, facts: Facts) -> BucketSet:
        """None: all of them."""
        if self.pins is None:
            return frozenset()
        try:
            return self.pins.evaluate(lambda expr: _value(expr, params, facts))
        except Unknown:
            return None

    def is_exact(self, buckets: BucketSet) -> bool:
        return self.local or (buckets is not None and len(buckets) <= 1)


def _value(expr: plan.Expr, params: Sequence[Stored] | None, facts: Facts) -> Stored:
    match expr:
        case plan.Const(value):
            return value
        case plan.Param(number) if params is not None:
            return params[number - 1]
        case plan.Session(fact, _, precision) if fact in facts:
            return facts[fact](precision)
        case plan.Cast(arg, type):
            value = _value(arg, params, facts)
            convert = casts.cast(arg.type, type)
            if convert is not None:
                return None if value is None else convert(value)
    raise Unknown


def infer_buckets(bound: plan.Bound, schema: Schema) -> Buckets:
    tables = [table for table in bound.tables if table.is_sharded]
    if not tables:
        return Buckets(None, 0, local=True)
    inference = _Inference(schema)
    root = bound.root
    match root:
        case plan.Query():
            inference.query(root)
            local = _is_local(root)
        case plan.Insert():
            inference.query(root.source)
            if root.table.is_sharded:
                inference.inserted(root)
            local = isinstance(root.source.body, plan.ValuesRows)
        case plan.Update() | plan.Delete():
            inference.change(root)
            local = not inference.has_subquery and not _moves_rows(root)
            local = local and (isinstance(root, plan.Delete) or root.source is None)
    return Buckets(Either(tuple(inference.found)), schema.bucket_count(tables[0]), local)


def _moves_rows(change: plan.Update | plan.Delete) -> bool:
    """An UPDATE of the sharding key takes rows to other buckets."""
    if isinstance(change, plan.Delete) or not isinstance(change.table.distribution, Sharded):
        return False
    return any(s.column in change.table.distribution.key for s in change.sets)


def _is_local(query: plan.Query) -> bool:
    """Whether the answer is what each bucket answers by itself, one behind the other."""
    body = query.body
    if query.ctes or query.order_by or query.limit is not None or query.offset is not None:
        return False
    if isinstance(body, plan.Query):
        return _is_local(body)
    if isinstance(body, plan.SetOperation):
        return False
    if isinstance(body, plan.Block):
        exprs = [output.expr for output in body.outputs] + ([body.where] if body.where else [])
        if body.grouped or body.distinct or not isinstance(body.source, plan.Scan):
            return body.source is None
        return not any(subquery(at) is not None for expr in exprs for at in walk(expr))
    return True


class _Inference:
    """Goes through a statement, and collects what its filters say of each scan."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.found: list[Pins] = []
        self.has_subquery = False

    def query(self, query: plan.Query) -> None:
        for cte in query.ctes:
            self.query(cte.query)
        self._body(query.body)
        for key in query.order_by:
            self._expression(key.expr)

    def _body(self, body: plan.Body) -> None:
        match body:
            case plan.Block():
                for expr in (*(o.expr for o in body.outputs), body.where, *body.group_by, body.having):
                    self._expression(expr)
                if body.source is not None:
                    self._source(body.source, tuple(conjuncts(body.where)))
            case plan.ValuesRows():
                for row in body.rows:
                    for value in row:
                        self._expression(value)
            case plan.SetOperation():
                self._body(body.left)
                self._body(body.right)
            case plan.Query():
                self.query(body)

    def _expression(self, expr: plan.Expr | None) -> None:
        for at in walk(expr):
            inner = subquery(at)
            if inner is not None:
                self.has_subquery = True
                self.query(inner)

    def _source(self, source: plan.Source, filters: tuple[plan.Expr, ...]) -> None:
        match source:
            case plan.Scan():
                if source.table.is_sharded:
                    self.found.append(self._scan(source.table, source.relation, filters))
            case plan.Derived():
                self.query(source.query)
            case plan.Join():
                self._expression(source.on)
                on = tuple(conjuncts(source.on))
                # The ON of a left join says nothing of the left side's rows, all of which come out; and
                # the WHERE holds for rows of NULLs, too, which no bucket has.
                self._source(source.left, filters if source.kind is JoinKind.LEFT else (*filters, *on))
                self._source(source.right, (*filters, *on))
            case plan.CteScan():
                pass

    def change(self, change: plan.Update | plan.Delete) -> None:
        self._expression(change.where)
        filters = tuple(conjuncts(change.where))
        if isinstance(change, plan.Update):
            for s in change.sets:
                self._expression(s.value)
            if change.source is not None:
                self._source(change.source, filters)
        if change.table.is_sharded:
            self.found.append(self._scan(change.table, change.relation, filters))
            if _moves_rows(change):
                self.found.append(Both(()))

    def inserted(self, change: plan.Insert) -> None:
        table = change.table
        assert isinstance(table.distribution, Sharded)
        body = change.source.body
        if not isinstance(body, plan.ValuesRows):
            self.found.append(Both(()))
            return
        types = tuple(table.by_number[number].type for number in table.distribution.key)
        for row in body.rows:
            values = dict(zip(change.columns, row, strict=True))
            key = tuple(((values.get(number, plan.Const(None, INT)),),) for number in table.distribution.key)
            self.found.append(Keys(types, key, self.schema.bucket_count(table), with_nulls=True))

    # --- one table ---

    def _scan(self, table: Table, relation: int, filters: tuple[plan.Expr, ...]) -> Pins:
        same = _equal_columns(filters)
        return _pins(_Target(table, relation, self.schema.bucket_count(table), same), filters, {})


Place: TypeAlias = tuple[int, int]  # relation, ordinal


@dataclass(frozen=True, slots=True)
class _Target:
    table: Table
    relation: int
    bucket_count: int
    same: Mapping[Place, frozenset[Place]]  # which columns equal which, for every row that comes out

    def number(self, expr: plan.Expr) -> int | None:
        """The table's column that an expression is, or is equal to."""
        if not isinstance(expr, plan.Column):
            return None
        place = (expr.relation, expr.ordinal)
        for relation, ordinal in sorted(self.same.get(place, frozenset({place}))):
            if relation == self.relation:
                return column_number(self.table, replace(expr, relation=relation, ordinal=ordinal))
        return None


def _equal_columns(filters: tuple[plan.Expr, ...]) -> dict[Place, frozenset[Place]]:
    classes: dict[Place, frozenset[Place]] = {}
    for expr in filters:
        if isinstance(expr, plan.Op) and expr.op == "=":
            left, right = expr.args
            if isinstance(left, plan.Column) and isinstance(right, plan.Column):
                a, b = (left.relation, left.ordinal), (right.relation, right.ordinal)
                joined = classes.get(a, frozenset({a})) | classes.get(b, frozenset({b}))
                classes |= dict.fromkeys(joined, joined)
    return classes


Candidates: TypeAlias = dict[int, Lists]


def _pins(target: _Target, filters: tuple[plan.Expr, ...], outer: Candidates) -> Pins:
    """What conditions that all hold say together; `outer` is what is known already."""
    known = dict(outer)
    branches: list[plan.Op] = []
    for expr in filters:
        if isinstance(expr, plan.Op) and expr.op == "or":
            branches.append(expr)
        else:
            for number, values in _candidates(target, expr):
                known[number] = (*known.get(number, ()), values)
    parts: list[Pins] = []
    if BUCKET_ID in known:
        parts.append(Named(known[BUCKET_ID], target.bucket_count))
    assert isinstance(target.table.distribution, Sharded)
    key = target.table.distribution.key
    if all(number in known for number in key):
        types = tuple(target.table.by_number[number].type for number in key)
        parts.append(Keys(types, tuple(known[number] for number in key), target.bucket_count))
    for branch in branches:
        choices = tuple(_pins(target, tuple(conjuncts(arg)), known) for arg in _alternatives(branch))
        parts.append(Either(choices))
    return Both(tuple(parts))


def _alternatives(expr: plan.Expr) -> Iterator[plan.Expr]:
    waiting = [expr]
    while waiting:
        at = waiting.pop()
        if isinstance(at, plan.Op) and at.op == "or":
            waiting.extend(reversed(at.args))
        else:
            yield at


def _candidates(target: _Target, expr: plan.Expr) -> Iterator[tuple[int, tuple[plan.Expr, ...]]]:
    match expr:
        case plan.Op("=", (left, right)):
            for column, value in ((left, right), (right, left)):
                number = target.number(column)
                if number is not None and _is_constant(value):
                    yield number, (value,)
        case plan.InList(arg, items, False):
            number = target.number(arg)
            if number is not None and all(map(_is_constant, items)):
                yield number, items
        case plan.RowOp("=", left, right):
            for a, b in zip(left, right, strict=True):
                yield from _candidates(target, plan.Op("=", (a, b), expr.type))


def _is_constant(expr: plan.Expr) -> bool:
    """What _value() knows at an execution."""
    if isinstance(expr, plan.Cast):
        kinds = {expr.arg.type.kind, expr.type.kind}
        if Kind.DATETIME in kinds and len(kinds) > 1:
            return False  # depends on the session's time zone
        return _is_constant(expr.arg) and casts.cast(expr.arg.type, expr.type) is not None
    return isinstance(expr, plan.Const | plan.Param)


# --- the rule -------------------------------------------------------------------------------------


def find_bucket_id(bound: plan.Bound, schema: Schema) -> plan.Bound:
    """Where the physical key holds bucket_id and a filter fixes the sharding key, the bucket is known.

    Good for: tables whose key begins with the bucket, which would be scanned as a whole, and those whose
    key ends with it, of which so one row is found instead of one per bucket.
    """
    if not any(_key_has_bucket(table) for table in bound.tables):
        return bound

    def block(block: plan.Block) -> plan.Block:
        if not isinstance(block.source, plan.Scan):
            return block
        where = _with_bucket(block.where, block.source.table, block.source.relation, schema)
        return replace(block, where=where)

    root = bound.root
    match root:
        case plan.Query():
            root = rewritten_query(root, block)
        case plan.Insert():
            root = replace(root, source=rewritten_query(root.source, block))
        case plan.Update() | plan.Delete():
            root = replace(root, where=_with_bucket(root.where, root.table, root.relation, schema))
    return replace(bound, root=root)


def _key_has_bucket(table: Table) -> bool:
    return any(part.column == BUCKET_ID for part in table.physical_key)


def _with_bucket(where: plan.Expr | None, table: Table, relation: int, schema: Schema) -> plan.Expr | None:
    if where is None or not _key_has_bucket(table):
        return where
    assert isinstance(table.distribution, Sharded)
    pins = pinned_columns(where, table, relation)
    key = table.distribution.key
    if BUCKET_ID in pins or not all(number in pins for number in key):
        return where
    bucket = plan.Call(
        "bucket_of",
        (plan.Const(bucket_code(table, schema), TEXT), *(pins[number] for number in key)),
        INT,
    )
    column = plan.Column(relation, plan.HIDDEN_BUCKET, "bucket_id", INT, nullable=False)
    return plan.Op("and", (plan.Op("=", (column, bucket), where.type), where), where.type)


def bucket_code(table: Table, schema: Schema) -> str:
    """How the sharding key is hashed, in one word per part: "3000 int text"."""
    assert isinstance(table.distribution, Sharded)
    types = (type_code(table.by_number[number].type) for number in table.distribution.key)
    return " ".join((str(schema.bucket_count(table)), *types))


def type_code(type: SqlType) -> str:
    """A type in one word, for functions that are told their types: "decimal:10:2", "text[]"."""
    code = type.kind.value + ("[]" if type.is_array else "")
    return code if type.precision is None else f"{code}:{type.precision}:{type.scale or 0}"
