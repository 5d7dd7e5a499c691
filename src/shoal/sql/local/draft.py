"""The one mutable thing of a compilation: what the text has needed so far.

Here: Draft, which numbers the values of ?1, ?2, …, and knows what each relation is called in the text.
Not here: the text (expressions.py, queries.py, changes.py).

Parameters keep their numbers, ?n is $n, and everything else is numbered behind them: so where a text has
parameters only, the client's own values are bound as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from shoal.catalog.schema import Schema, Table
from shoal.errors import FeatureNotSupported
from shoal.sql import plan
from shoal.sql.program import Bind, ConstBind, LiteralBind, ParamBind, SessionBind
from shoal.types.values import Stored

# SQLite takes 32,766 values. Literals beyond this many are written into the text, which is then its own plan.
LITERAL_BINDS_MAX: Final = 16_000
# A constant longer than this is bound, so that the text stays readable.
INLINE_LENGTH_MAX: Final = 1_000

ColumnText: TypeAlias = Callable[[plan.Column], str]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def constant(value: Stored) -> str:
    """A value as SQLite's text spells it."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            return "9e999" if value > 0 else "-9e999"
        return repr(value)
    return str(int(value))


@dataclass
class Draft:
    schema: Schema
    parameter_count: int
    # The table that the statement changes, when it is a global one: its connection has it as `main`.
    catalog_writer: bool = False
    evaluated_once: frozenset[int] = frozenset()  # CTEs whose rows are kept
    guarded: bool = False  # every scan calls shoal_guard()
    pinned: set[int] = field(default_factory=set)  # slots whose literal is part of the text
    parameters_used: int = 0  # the greatest number
    _columns: dict[int, ColumnText] = field(default_factory=dict)
    _others: list[Bind] = field(default_factory=list)
    _numbers: dict[LiteralBind | SessionBind, int] = field(default_factory=dict)

    # --- values ---

    def param(self, number: int) -> str:
        self.parameters_used = max(self.parameters_used, number)
        return f"?{number}"

    def const(self, const: plan.Const) -> str:
        source = const.source
        if source is not None:
            if len(self._others) < LITERAL_BINDS_MAX:
                return self._shared(LiteralBind(source, const.type, const.value))
            self.pinned.add(source.slot)
        value = const.value
        if isinstance(value, str | bytes) and len(value) > INLINE_LENGTH_MAX:
            return self._number(ConstBind(value))
        return constant(value)

    def session(self, fact: plan.SessionFact, precision: int | None = None) -> str:
        return self._shared(SessionBind(fact, precision))

    def _shared(self, bind: LiteralBind | SessionBind) -> str:
        number = self._numbers.get(bind)
        if number is not None:
            return f"?{number}"
        text = self._number(bind)
        self._numbers[bind] = self.parameter_count + len(self._others)
        return text

    def _number(self, bind: Bind) -> str:
        self._others.append(bind)
        return f"?{self.parameter_count + len(self._others)}"

    @property
    def binds(self) -> tuple[Bind, ...]:
        """What ?1, ?2, … are. Parameters that nothing reads are bound only below one that something does."""
        count = self.parameter_count if self._others else self.parameters_used
        return (*(ParamBind(number) for number in range(1, count + 1)), *self._others)

    # --- relations ---

    def name_columns(self, relation: int, columns: ColumnText) -> None:
        self._columns[relation] = columns

    def column(self, column: plan.Column) -> str:
        return self._columns[column.relation](column)

    def table(self, table: Table) -> str:
        """The physical table's name, as the connection that runs the statement sees it."""
        file = table.file
        if self.catalog_writer:
            if table.is_sharded:
                raise FeatureNotSupported(
                    f"a change of a global table cannot read the sharded table {table.name}",
                    hint="read the rows first, and send them as values",
                )
            file = "main"
        return f'"{file}".{quoted(table.physical)}'


def table_columns(table: Table, qualifier: str) -> ColumnText:
    """How the columns of a table are called, when the table is called `qualifier`."""
    columns = table.columns

    def name(column: plan.Column) -> str:
        if column.ordinal == plan.HIDDEN_BUCKET:
            return f"{qualifier}.bucket_id"
        return f"{qualifier}.{columns[column.ordinal].physical}"

    return name


def derived_columns(relation: int) -> ColumnText:
    """How the columns of a subquery or a CTE are called."""
    return lambda column: f"r{relation}.f{column.ordinal}"
