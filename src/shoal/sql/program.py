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
from shoal.sql.plan import LiteralSource, Options, SessionFact
from shoal.types.sqltype import SqlType
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
    templatable: bool  # other literals in the same places may share it

    @property
    def returns_rows(self) -> bool:
        return bool(self.names)


Facts: TypeAlias = Mapping[SessionFact, Callable[[int | None], Stored]]
FillIn: TypeAlias = Callable[[Sequence[Stored], Sequence[str] | None, Facts], Sequence[Stored]]
