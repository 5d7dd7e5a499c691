"""The typed plan: what a statement means, every name resolved, every expression with its type.

Here: the expressions, the query blocks and the DML that bind/ makes and that optimise/, local/ and
explain.py read.
Not here: how it was written (ast.py), SQLite's text for it (local/), schema changes (catalog/).

A plan keeps the shape of SQL, in blocks (one Block per SELECT), not in single relational operators: what
runs on a storage is SQLite's text again, and SQLite orders joins and pushes filters by itself. A motion
cuts between blocks.

Relations (tables, subqueries and CTEs in a FROM) have a number that is unique in the statement, and a
column names (relation, ordinal): so an inner query can name an outer one's columns, and nothing is ever
captured by accident.

Operands are already of the types that their operator wants: where the language converts by itself, the
plan has a Cast. So the generator never guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from shoal.catalog.rights import Privilege
from shoal.catalog.schema import Index, Table
from shoal.sql.ast import ConflictAction, JoinKind, LiteralKind, SetKind
from shoal.types.sqltype import BOOLEAN, SqlType
from shoal.types.values import Stored

# --- expressions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiteralSource:
    """Where a constant came from: another text of the same template has another literal in this slot.

    The value of that one is values.literal_value(kind, text, negative, type of the Const).
    """

    slot: int
    kind: LiteralKind
    negative: bool


@dataclass(frozen=True, slots=True)
class Const:
    value: Stored
    type: SqlType
    source: LiteralSource | None = None


@dataclass(frozen=True, slots=True)
class Param:
    number: int  # 1-based
    type: SqlType


class SessionFact(Enum):
    """What only the execution knows. Fixed once per statement."""

    NOW = "now"  # DATETIME: the statement's start
    TODAY = "today"  # DATETIME: its midnight in the session's time zone
    LOCAL_NOW = "local_now"  # DATETIME: like NOW (an instant has no zone)
    ZONE = "zone"  # TEXT: the session's time zone, which casts and TO_CHAR need
    USER = "user"  # TEXT
    DATABASE = "database"  # TEXT: the name that the client connected with
    BACKEND_PID = "backend_pid"  # INT: as BackendKeyData told it
    VERSION = "version"  # TEXT: version()
    INSTANCE_UUID = "instance_uuid"  # TEXT, as _pico_instance.uuid
    INSTANCE_DIR = "instance_dir"  # TEXT
    CONFIG_FILE_PATH = "config_file_path"  # TEXT or NULL
    RAFT_LEADER_ID = "raft_leader_id"  # INT or NULL
    RAFT_LEADER_UUID = "raft_leader_uuid"  # UUID or NULL
    BUCKETS = "buckets"  # JSON: tier → its ranges of buckets
    HEALTH = "health"  # JSON: instance's uuid → how it is


@dataclass(frozen=True, slots=True)
class Session:
    fact: SessionFact
    type: SqlType
    precision: int | None = None  # of CURRENT_TIMESTAMP(p): 0…6


@dataclass(frozen=True, slots=True)
class Column:
    relation: int
    ordinal: int  # of the relation's columns; HIDDEN_BUCKET for a table's bucket_id
    name: str
    type: SqlType
    nullable: bool


HIDDEN_BUCKET = -1


@dataclass(frozen=True, slots=True)
class OutputRef:
    """The n-th output (0-based) of the block that an ORDER BY belongs to."""

    ordinal: int
    type: SqlType


@dataclass(frozen=True, slots=True)
class Op:
    """A built-in operator. Names: + - * / % neg || = <> < <= > >= and or not
    is_null is_true is_false is_unknown (and is_not_…), is_distinct, is_not_distinct."""

    op: str
    args: tuple[Expr, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class RowOp:
    """A comparison of two rows of equal length: = <> < <= > >=."""

    op: str
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class Cast:
    arg: Expr
    type: SqlType
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function by its lower-case name, its overload chosen: functions.py has the list."""

    function: str
    args: tuple[Expr, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Like:
    kind: str  # "like", "ilike", "similar"
    arg: Expr
    pattern: Expr
    escape: Expr | None  # None: the backslash
    negated: bool
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class Case:
    """A simple CASE has been made a searched one, with `operand = value` conditions."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    type: SqlType


@dataclass(frozen=True, slots=True)
class InList:
    arg: Expr
    items: tuple[Expr, ...]
    negated: bool
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class InArray:
    """`x = ANY (array)`; `x <> ALL (array)` is its negation."""

    arg: Expr
    array: Expr
    negated: bool
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class InQuery:
    args: tuple[Expr, ...]  # several: a row
    query: Query
    negated: bool
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class Exists:
    query: Query
    type: SqlType = BOOLEAN


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    """One column; several rows are an error (21000), none is NULL."""

    query: Query
    type: SqlType


@dataclass(frozen=True, slots=True)
class ArrayOf:
    items: tuple[Expr, ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class IndexOf:
    """`a[i]` on an array, `m['k']` on a map: NULL where there is nothing."""

    arg: Expr
    index: Expr
    type: SqlType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """count (args () for count(*)), sum, total, avg, min, max, group_concat."""

    function: str
    args: tuple[Expr, ...]
    distinct: bool
    separator: str | None  # of group_concat
    filter: Expr | None
    type: SqlType


Expr: TypeAlias = (
    "Const | Param | Session | Column | OutputRef | Op | RowOp | Cast | Call | Like | Case | InList | InArray"
    " | InQuery | Exists | ScalarQuery | ArrayOf | IndexOf | Aggregate"
)

# --- relations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    relation: int
    table: Table
    name: str  # the alias, or the table's name
    alias: str | None
    indexed_by: Index | None
    # Which columns the ordinals of Column mean: table.columns, in that order.


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM."""

    relation: int
    query: Query
    name: str | None


@dataclass(frozen=True, slots=True)
class CteScan:
    relation: int
    cte: int  # the number of a Cte in scope
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    kind: JoinKind  # RIGHT has been turned into LEFT (and the select list keeps its order)
    left: Source
    right: Source
    on: Expr | None


Source: TypeAlias = "Scan | Derived | CteScan | Join"

# --- queries -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expr: Expr
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT."""

    outputs: tuple[Output, ...]
    source: Source | None
    where: Expr | None
    group_by: tuple[Expr, ...]
    grouped: bool  # GROUP BY, HAVING or an aggregate: one row per group
    having: Expr | None
    distinct: bool


@dataclass(frozen=True, slots=True)
class ValuesRows:
    names: tuple[str, ...]
    types: tuple[SqlType, ...]
    rows: tuple[tuple[Expr, ...], ...]  # of those types


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Both sides give the same types; names are the left side's."""

    kind: SetKind
    all: bool
    left: Body
    right: Body


Body: TypeAlias = "Block | ValuesRows | SetOperation | Query"


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr  # OutputRef, or over the block's relations
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Cte:
    number: int
    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class Query:
    ctes: tuple[Cte, ...]
    body: Body
    order_by: tuple[SortKey, ...]
    limit: Expr | None  # an INT constant or parameter
    offset: Expr | None
    names: tuple[str, ...]
    types: tuple[SqlType, ...]


# --- DML -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Set:
    column: int  # a column's number in the table
    value: Expr  # of the column's type


@dataclass(frozen=True, slots=True)
class Upsert:
    """ON CONFLICT. In UPDATE's values and filter, relation `excluded` has the table's columns."""

    action: ConflictAction
    target: tuple[int, ...]  # column numbers: the primary key or a unique index; () when not said
    sets: tuple[Set, ...]
    where: Expr | None
    excluded: int


@dataclass(frozen=True, slots=True)
class Insert:
    table: Table
    relation: int  # the target's, for RETURNING and ON CONFLICT
    columns: tuple[int, ...]  # column numbers, in the order of the source's columns
    source: Query  # its types are the columns' types
    on_conflict: Upsert | None
    returning: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Update:
    table: Table
    relation: int
    indexed_by: Index | None
    sets: tuple[Set, ...]
    source: Source | None  # FROM
    where: Expr | None
    returning: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    table: Table
    relation: int
    indexed_by: Index | None
    where: Expr | None
    returning: tuple[Output, ...]


Dml: TypeAlias = "Insert | Update | Delete"

# --- the statement -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    """OPTION (…): None where not said. A Param is an INT."""

    vdbe_opcode_max: Const | Param | None = None
    motion_row_max: Const | Param | None = None
    read_preference: str | None = None
    forward: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A DQL or DML statement, bound."""

    root: Query | Insert | Update | Delete
    options: Options
    parameters: tuple[SqlType, ...]  # inferred
    parameter_oids: tuple[int, ...]  # as ParameterDescription shows them: the client's own where it gave one
    tables: tuple[Table, ...]  # all it reads or writes, each once, in order of appearance
    needs: tuple[tuple[Privilege, Table], ...]  # what who runs it must be allowed to
    pinned: frozenset[int]  # literal slots whose values shaped the plan: another literal needs another plan
    volatile: bool  # calls a function whose answer can differ within one statement
    private: bool = (
        False  # a variable of this session is part of it: never shared, and made anew for each execution
    )

    @property
    def names(self) -> tuple[str, ...]:
        if isinstance(self.root, Query):
            return self.root.names
        return tuple(output.name for output in self.root.returning)

    @property
    def types(self) -> tuple[SqlType, ...]:
        if isinstance(self.root, Query):
            return self.root.types
        return tuple(output.expr.type for output in self.root.returning)
