"""What a change of a global table reads, so far as its text says.

Here: reads_of().
Not here: the ranges of one execution (reads.py), the rows that are written: their keys and their values in
unique indexes are looked at anyway.

Whatever isn't plainly a few keys is the whole table.

- UPDATE and DELETE read the rows whose key the filter fixes by = and IN, or a part of the key from its first
  column on. Further conditions only make it fewer.
- INSERT reads what could have been in its way. A row that was inserted, and one that ON CONFLICT changed, is
  written: nothing is to be added. One that was left out, by DO NOTHING or by the WHERE of DO UPDATE, was read
  only. It is found by its key, unless the row of another unique index could have been in the way.
- A table in a FROM or a subquery is read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shoal.catalog.schema import Table
from shoal.sql import plan
from shoal.sql.ast import ConflictAction
from shoal.sql.optimise.keys import column_number
from shoal.sql.program import Bind, LiteralBind, ParamBind, SessionBind
from shoal.sql.reads import Given, Keys, Reads, Value
from shoal.sql.walk import conjuncts, relations_of_statement

__all__ = ["reads_of"]


def reads_of(change: plan.Dml, binds: Sequence[Bind]) -> Reads:
    """Of a statement that is compiled, with `binds` for the values of its text."""
    scanned = dict.fromkeys(at.table.id for at in relations_of_statement(change) if isinstance(at, plan.Scan))
    others = tuple(Keys(table_id, ()) for table_id in scanned)
    if not isinstance(change, plan.Insert):
        return Reads((*others, Keys(change.table.id, tuple(_fixed(change, _Values(binds))))))
    if not _leaves_rows_out(change.on_conflict):
        return Reads(others)
    rows = _rows_of_values(change)
    return Reads(others, None if rows is None else len(rows), _in_the_way(change, rows, _Values(binds)))


# --- UPDATE, DELETE ------------------------------------------------------------------------------


def _fixed(change: plan.Update | plan.Delete, known: _Values) -> Iterator[tuple[Value, ...]]:
    """What the filter fixes the key's columns to, from the first one on."""
    fixed: dict[int, tuple[Value, ...]] = {}
    for condition in conjuncts(change.where):
        for column, exprs in _equalities(condition):
            values = known.all_of(exprs)
            if column.relation == change.relation and column.type.is_scalar and values is not None:
                fixed.setdefault(column_number(change.table, column), values)
    for number in change.table.key_numbers:
        if number not in fixed:
            return
        yield fixed[number]


def _equalities(condition: plan.Expr) -> Iterator[tuple[plan.Column, tuple[plan.Expr, ...]]]:
    """The columns that a condition makes equal to one of some expressions."""
    match condition:
        case plan.Op("=", (left, right)):
            if isinstance(left, plan.Column):
                yield left, (right,)
            if isinstance(right, plan.Column):
                yield right, (left,)
        case plan.InList(plan.Column() as column, items, False):
            yield column, items
        case plan.RowOp("=", left, right):
            for a, b in zip(left, right, strict=True):
                yield from _equalities(plan.Op("=", (a, b), condition.type))


# --- INSERT --------------------------------------------------------------------------------------


def _leaves_rows_out(upsert: plan.Upsert | None) -> bool:
    if upsert is None:
        return False
    return upsert.action is ConflictAction.NOTHING or upsert.where is not None


def _rows_of_values(change: plan.Insert) -> tuple[tuple[plan.Expr, ...], ...] | None:
    query = change.source
    if not isinstance(query.body, plan.ValuesRows) or query.limit is not None or query.offset is not None:
        return None
    return query.body.rows


def _in_the_way(
    change: plan.Insert, rows: tuple[tuple[plan.Expr, ...], ...] | None, known: _Values
) -> tuple[Keys, ...]:
    """The rows that an INSERT may have met instead of inserting its own."""
    table, upsert = change.table, change.on_conflict
    whole = (Keys(table.id, ()),)
    if rows is None:
        return whole
    if set(upsert.target if upsert is not None else ()) != set(table.key_numbers):
        if any(index.unique for index in table.indexes):
            return whole  # what has the same values in the index can have any key
    found: list[Keys] = []
    for row in rows:
        given = dict(zip(change.columns, row, strict=True))
        key: list[tuple[Value, ...]] = []
        for number in table.key_numbers:
            values = (
                known.all_of((given[number],)) if _goes_in_as_it_is(given[number], table, number) else None
            )
            if values is None:
                return whole
            key.append(values)
        found.append(Keys(table.id, tuple(key)))
    return tuple(found)


def _goes_in_as_it_is(value: plan.Expr, table: Table, number: int) -> bool:
    """A DECIMAL with a scale is rounded on its way in: the key would be another."""
    wanted = table.by_number[number].type
    return wanted.is_scalar and wanted.precision is None and value.type.same_values(wanted)


# --- values --------------------------------------------------------------------------------------


class _Values:
    """What is known of expressions before SQLite runs: constants, and what it is given."""

    def __init__(self, binds: Sequence[Bind]) -> None:
        self._places: Mapping[Bind, int] = {bind: place for place, bind in enumerate(binds)}

    def all_of(self, exprs: Iterable[plan.Expr]) -> tuple[Value, ...] | None:
        """None if one of them isn't known."""
        found: list[Value] = []
        for expr in exprs:
            value = self._of(expr)
            if value is None:
                return None
            found.append(value[0])
        return tuple(found)

    def _of(self, expr: plan.Expr) -> tuple[Value] | None:
        match expr:
            case plan.Const(value, type, source):
                if source is None:
                    return (value,)
                bind: Bind = LiteralBind(source, type, value)
            case plan.Param(number):
                bind = ParamBind(number)
            case plan.Session(fact, _, precision):
                bind = SessionBind(fact, precision)
            case _:
                return None
        # A literal that isn't bound may be another one in another text of the template.
        return (Given(self._places[bind]),) if bind in self._places else None
