"""What an instance executes for a statement: SQLite's text, and where each of its values comes from.

Here: Program, the sources of its values, and bindings(), which makes the function that fills them in.
Not here: making the text (local/), running it (node/execute.py), the plan it came from (plan.py).

All that can be known per statement is in here, so that an execution only fills in values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from shoal.catalog.schema import Table
from shoal.sql.ast import LiteralKind
from shoal.sql.plan import LiteralSource, Options, SessionFact
from shoal.sql.reads import Reads
from shoal.sql.values import literal_value
from shoal.types.datetimes import zone_of_name
from shoal.types.sqltype import INT, Kind, SqlType
from shoal.types.values import Stored


@dataclass(frozen=True, slots=True)
class ParamBind:
    number: int  # 1-based


@dataclass(frozen=True, slots=True)
class LiteralBind:
    """A literal of this text; a cached plan takes it from the text at hand."""

    source: LiteralSource
    type: SqlType
    value: Stored  # of the text that was compiled


@dataclass(frozen=True, slots=True)
class ConstBind:
    value: Stored


@dataclass(frozen=True, slots=True)
class SessionBind:
    fact: SessionFact
    precision: int | None


Bind: TypeAlias = ParamBind | LiteralBind | ConstBind | SessionBind


class Route(Enum):
    """Where a program may run."""

    POINT_READ = "point read"  # at most one row, found by its full key: on the event loop
    READ = "read"  # on a reader thread
    WRITE = "write"  # on the writer thread of the file that holds `writes`


@dataclass(frozen=True)
class Program:
    sql: str
    binds: tuple[Bind, ...]  # the values of ?1, ?2, …
    route: Route
    names: tuple[str, ...]  # of the answer's columns; () without an answer
    types: tuple[SqlType, ...]
    parameters: tuple[SqlType, ...]
    parameter_oids: tuple[int, ...]
    tag: str  # SELECT, INSERT, UPDATE, DELETE
    writes: Table | None
    guarded: bool  # its text calls shoal_guard(), which stops it when it is cancelled or late
    options: Options
    tables: tuple[Table, ...]
    reads: Reads  # of a change of a global table
    templatable: bool  # other literals in the same places may share it

    @property
    def returns_rows(self) -> bool:
        return bool(self.names)


Facts: TypeAlias = Mapping[SessionFact, Callable[[int | None], Stored]]
FillIn: TypeAlias = Callable[[Sequence[Stored], Sequence[str] | None, Facts], Sequence[Stored]]

# --- filling in ----------------------------------------------------------------------------------

_Value: TypeAlias = Callable[[Sequence[str] | None, Facts], Stored]


def bindings(program: Program) -> FillIn:
    """The function that makes, of one execution's values, what SQLite is given for ?1, ?2, …

    It is asked once per program and called once per execution. Where the values are just the parameters,
    it hands those on as they came.
    """
    binds = program.binds
    count = sum(isinstance(bind, ParamBind) for bind in binds)
    assert all(isinstance(b, ParamBind) and b.number == n + 1 for n, b in enumerate(binds[:count])), binds
    others = [_value_of(bind) for bind in binds[count:]]
    if not others:
        if count == len(program.parameters):
            return lambda params, literals, facts: params
        return lambda params, literals, facts: params[:count]

    if not count and len(others) == 1:
        (only,) = others
        return lambda params, literals, facts: (only(literals, facts),)

    def fill_in(params: Sequence[Stored], literals: Sequence[str] | None, facts: Facts) -> Sequence[Stored]:
        # `params` are all there are: with other binds behind them, each has its place.
        return [*params, *[value(literals, facts) for value in others]]

    return fill_in


def _value_of(bind: Bind) -> _Value:
    match bind:
        case ConstBind(value):
            return lambda literals, facts: value
        case SessionBind(fact, precision):
            return lambda literals, facts: facts[fact](precision)
        case LiteralBind():
            return _literal(bind)
        case ParamBind():
            raise AssertionError("parameters come first")


def _literal(bind: LiteralBind) -> _Value:
    kind, negative, slot = bind.source.kind, bind.source.negative, bind.source.slot
    wanted, compiled = bind.type, bind.value
    if kind is LiteralKind.STRING and wanted.is_text:
        return lambda literals, facts: compiled if literals is None else literals[slot]
    if kind is LiteralKind.STRING and wanted.kind is Kind.DATETIME:
        # What the text means depends on the session's time zone.
        def zoned(literals: Sequence[str] | None, facts: Facts) -> Stored:
            if literals is None:
                return compiled
            zone = zone_of_name(str(facts[SessionFact.ZONE](None)))
            return literal_value(kind, literals[slot], negative, wanted, zone)

        return zoned
    if kind is LiteralKind.INTEGER and wanted == INT:

        def integer(literals: Sequence[str] | None, facts: Facts) -> Stored:
            if literals is None:
                return compiled
            text = literals[slot]
            if len(text) < 19:  # surely fits
                return -int(text) if negative else int(text)
            return literal_value(kind, text, negative, wanted)

        return integer
    return lambda literals, facts: (
        compiled if literals is None else literal_value(kind, literals[slot], negative, wanted)
    )
