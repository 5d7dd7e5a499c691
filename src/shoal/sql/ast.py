"""What the parser makes of a text: the statement as it was written, names unresolved, types unknown.

Here: one frozen node per construct, each with `at`, the offset of its first character (0-based; errors
show it 1-based). What stands between or behind its operands (a + b, a IS NULL, a::int, a[1]) has the
place of its operator instead, as PostgreSQL's errors do.
Not here: the text's way into these (lexer.py, parser/), what names and types mean (bind/), the typed
plan (plan.py).

Every number and string literal carries its `slot`: the how-manyth literal token of the text it is. Two
texts that differ in literals only share one plan (normalise.py), and the slot says which literal goes where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Final, TypeAlias

# --- names ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier, already folded to lower case unless it was quoted."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written: its words in lower case joined by one blank, arguments, and array brackets."""

    name: str  # "int", "varchar", "double precision", "timestamp with time zone"
    arguments: tuple[int, ...]
    is_array: bool
    at: int


# --- expressions ---------------------------------------------------------------------------------


class LiteralKind(Enum):
    INTEGER = "integer"  # 1
    DECIMAL = "decimal"  # 1.5, 3.
    DOUBLE = "double"  # 1e5
    STRING = "string"  # 'x'


@dataclass(frozen=True, slots=True)
class Literal:
    kind: LiteralKind
    text: str  # digits without the sign, or the string's value
    negative: bool  # the sign belongs to the number
    slot: int
    at: int


@dataclass(frozen=True, slots=True)
class NullLiteral:
    at: int


@dataclass(frozen=True, slots=True)
class BooleanLiteral:
    value: bool
    at: int


@dataclass(frozen=True, slots=True)
class Parameter:
    number: int  # 1-based; `?` are numbered from left to right
    at: int


@dataclass(frozen=True, slots=True)
class ColumnRef:
    table: Name | None  # a schema prefix `public.` has been dropped
    column: Name
    at: int


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `t.*` in a select list or RETURNING."""

    table: Name | None
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    op: str  # "-", "+", "not"
    arg: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison, logic, concatenation. `at` is the operator's own place."""

    op: str  # + - * / % || = <> < <= > >= and or   (!= is <>)
    left: Expr
    right: Expr
    at: int


@dataclass(frozen=True, slots=True)
class IsTest:
    arg: Expr
    test: str  # "null", "true", "false", "unknown"
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class IsDistinct:
    """`a IS [NOT] DISTINCT FROM b`."""

    left: Expr
    right: Expr
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Between:
    arg: Expr
    low: Expr
    high: Expr
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class InList:
    arg: Expr
    items: tuple[Expr, ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class InQuery:
    arg: Expr  # may be a RowExpr
    query: Query
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Quantified:
    """`a = ANY (array)`: drivers send it; only over an array parameter, literal or expression."""

    op: str
    arg: Expr
    every: bool  # ALL
    array: Expr
    at: int


class LikeKind(Enum):
    LIKE = "like"
    ILIKE = "ilike"
    SIMILAR = "similar"


@dataclass(frozen=True, slots=True)
class Like:
    kind: LikeKind
    arg: Expr
    pattern: Expr
    escape: Expr | None
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Case:
    operand: Expr | None
    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    at: int


@dataclass(frozen=True, slots=True)
class Cast:
    arg: Expr
    type: TypeName
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """f(args). `count(*)` has star. COALESCE, NULLIF, GREATEST, LEAST are calls, too.

    `CURRENT_TIMESTAMP[(p)]` and its kin are calls of their lower-case name with no or one argument.
    `POSITION(a IN b)` is the call position(a, b).
    """

    name: Name
    args: tuple[Expr, ...]
    star: bool
    distinct: bool
    filter: Expr | None  # FILTER (WHERE …)
    over: bool  # has an OVER clause: the binder refuses it (0A000) for now
    at: int


@dataclass(frozen=True, slots=True)
class Trim:
    side: str  # "both", "leading", "trailing"
    chars: Expr | None
    arg: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Substring:
    """SUBSTRING in its special forms; SUBSTR(s, a, b) and SUBSTRING(s, a, b) are calls.

    FROM n [FOR m] and FOR m: start/length set. FROM pattern (posix) can't be told from FROM n before
    types are known: it is start with length None. FROM pat FOR esc likewise. SIMILAR pat ESCAPE esc:
    pattern and escape set.
    """

    arg: Expr
    start: Expr | None
    length: Expr | None
    pattern: Expr | None
    escape: Expr | None
    at: int


@dataclass(frozen=True, slots=True)
class Exists:
    query: Query
    at: int


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    query: Query
    at: int


@dataclass(frozen=True, slots=True)
class RowExpr:
    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class ArrayExpr:
    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class IndexExpr:
    arg: Expr
    index: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Default:
    """DEFAULT in a VALUES row of INSERT or in UPDATE SET: NULL, since columns have no defaults yet."""

    at: int


Expr = (
    Literal
    | NullLiteral
    | BooleanLiteral
    | Parameter
    | ColumnRef
    | Star
    | Unary
    | Binary
    | IsTest
    | IsDistinct
    | Between
    | InList
    | InQuery
    | Quantified
    | Like
    | Case
    | Cast
    | Call
    | Trim
    | Substring
    | Exists
    | ScalarQuery
    | RowExpr
    | ArrayExpr
    | IndexExpr
    | Default
)

# --- queries -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One of OPTION (name = value): sql_vdbe_opcode_max, sql_motion_row_max, read_preference, forward, timeout."""

    name: Name
    value: Literal | Parameter | Name
    at: int


@dataclass(frozen=True, slots=True)
class SelectItem:
    expr: Expr
    alias: Name | None


@dataclass(frozen=True, slots=True)
class TableRef:
    name: Name
    schema: Name | None  # only pg_catalog and information_schema survive here; public is dropped
    alias: Name | None
    column_aliases: tuple[Name, ...]
    indexed_by: Name | None
    at: int


@dataclass(frozen=True, slots=True)
class SubqueryRef:
    query: Query
    alias: Name | None
    column_aliases: tuple[Name, ...]
    at: int


class JoinKind(Enum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    CROSS = "cross"  # also a comma in FROM


@dataclass(frozen=True, slots=True)
class Join:
    kind: JoinKind
    left: FromItem
    right: FromItem
    on: Expr | None  # None for CROSS only
    at: int


FromItem = TableRef | SubqueryRef | Join


@dataclass(frozen=True, slots=True)
class Select:
    distinct: bool
    items: tuple[SelectItem, ...]
    source: FromItem | None
    where: Expr | None
    group_by: tuple[Expr, ...]
    having: Expr | None
    at: int


@dataclass(frozen=True, slots=True)
class Values:
    rows: tuple[tuple[Expr, ...], ...]
    at: int


class SetKind(Enum):
    UNION = "union"
    EXCEPT = "except"
    INTERSECT = "intersect"


@dataclass(frozen=True, slots=True)
class SetOperation:
    kind: SetKind
    all: bool
    left: Body
    right: Body
    at: int


# A Query as an operand is a parenthesised one, with its own ORDER BY and LIMIT.
Body: TypeAlias = "Select | Values | SetOperation | Query"


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool
    nulls_first: bool | None  # None: not said (NULL is the smallest value)
    at: int


@dataclass(frozen=True, slots=True)
class Cte:
    name: Name
    columns: tuple[Name, ...]
    query: Query


@dataclass(frozen=True, slots=True)
class Query:
    ctes: tuple[Cte, ...]
    body: Body
    order_by: tuple[SortKey, ...]
    limit: Expr | None  # None also for LIMIT ALL and LIMIT NULL
    offset: Expr | None
    options: tuple[Option, ...]  # at the top of a statement only
    at: int


# --- DML -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    column: Name
    value: Expr


class ConflictAction(Enum):
    FAIL = "fail"
    NOTHING = "nothing"
    REPLACE = "replace"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class OnConflict:
    target: tuple[Name, ...]  # () when not said
    action: ConflictAction
    assignments: tuple[Assignment, ...]  # of UPDATE; `excluded.c` is a ColumnRef
    where: Expr | None
    at: int


@dataclass(frozen=True, slots=True)
class Insert:
    table: Name
    alias: Name | None
    columns: tuple[Name, ...]  # () when not said
    source: Query
    on_conflict: OnConflict | None
    returning: tuple[SelectItem, ...]
    options: tuple[Option, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Update:
    table: Name
    alias: Name | None
    indexed_by: Name | None
    assignments: tuple[Assignment, ...]
    source: FromItem | None
    where: Expr | None
    returning: tuple[SelectItem, ...]
    options: tuple[Option, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Delete:
    table: Name
    alias: Name | None
    indexed_by: Name | None
    where: Expr | None
    returning: tuple[SelectItem, ...]
    options: tuple[Option, ...]
    at: int


# --- DDL -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnDef:
    name: Name
    type: TypeName
    nullable: bool | None  # None: not said
    primary_key: bool
    descending: bool  # PRIMARY KEY DESC
    at: int


@dataclass(frozen=True, slots=True)
class KeyPart:
    column: Name
    descending: bool


@dataclass(frozen=True, slots=True)
class DistributedBy:
    columns: tuple[Name, ...]  # () with a tier only: by the primary key
    tier: Name | None


@dataclass(frozen=True, slots=True)
class DistributedGlobally:
    pass


@dataclass(frozen=True, slots=True)
class Wait:
    """WAIT APPLIED GLOBALLY|LOCALLY and OPTION (TIMEOUT = seconds) of a schema change."""

    globally: bool
    timeout: str | None  # a number's text


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Name
    if_not_exists: bool
    unlogged: bool
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[KeyPart, ...] | None  # the table constraint; None when a column says it or nobody does
    engine: Name | None  # memtx, vinyl
    with_options: tuple[tuple[Name, str], ...]
    distribution: DistributedBy | DistributedGlobally | None
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class RenameTable:
    new_name: Name


@dataclass(frozen=True, slots=True)
class RenameColumn:
    column: Name
    new_name: Name


@dataclass(frozen=True, slots=True)
class AddColumn:
    column: ColumnDef
    if_not_exists: bool


AlterAction = RenameTable | RenameColumn | AddColumn


@dataclass(frozen=True, slots=True)
class AlterTable:
    """DROP COLUMN and ALTER COLUMN never get here: the parser refuses them (0A000)."""

    table: Name
    if_exists: bool
    actions: tuple[AlterAction, ...]
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class DropTable:
    table: Name
    if_exists: bool
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class Truncate:
    table: Name
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class CreateIndex:
    name: Name
    table: Name
    unique: bool
    if_not_exists: bool
    method: Name | None  # tree, hash, rtree, bitset, btree
    parts: tuple[KeyPart, ...]
    with_options: tuple[tuple[Name, str], ...]
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class DropIndex:
    name: Name
    if_exists: bool
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class RenameIndex:
    name: Name
    if_exists: bool
    new_name: Name
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class CreateProcedure:
    name: Name
    if_not_exists: bool
    parameters: tuple[TypeName, ...]
    body: str  # one INSERT, UPDATE or DELETE
    body_at: int | None  # where it begins in the text; None: it is written in another way there
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class RenameProcedure:
    name: Name
    parameters: tuple[TypeName, ...] | None  # None: not said
    new_name: Name
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class DropProcedure:
    name: Name
    if_exists: bool
    parameters: tuple[TypeName, ...] | None
    wait: Wait
    at: int


# --- users, roles, rights ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Password:
    text: str = field(repr=False)
    method: str | None  # "md5", "scram-sha256"; None: not said


@dataclass(frozen=True, slots=True)
class CreateUser:
    user: Name
    if_not_exists: bool
    password: Password
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class AlterUserPassword:
    user: Name
    password: Password
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class AlterUserLogin:
    user: Name
    login: bool  # LOGIN, else NOLOGIN
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class RenameUser:
    user: Name
    new_name: Name
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class DropUser:
    user: Name
    if_exists: bool
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class CreateRole:
    role: Name
    if_not_exists: bool
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class DropRole:
    role: Name
    if_exists: bool
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class PrivilegeOn:
    privilege: str  # create, alter, drop, read, write, execute
    object_type: str  # table, user, role, procedure
    object: Name | None  # None: all of the type
    at: int


@dataclass(frozen=True, slots=True)
class Grant:
    what: PrivilegeOn | Name  # a Name is a role
    grantee: Name
    wait: Wait
    at: int


@dataclass(frozen=True, slots=True)
class Revoke:
    what: PrivilegeOn | Name
    grantee: Name
    wait: Wait
    at: int


# --- the rest ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN, START TRANSACTION; read_only None when not said. Isolation levels are read and dropped."""

    read_only: bool | None
    at: int


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT and END."""

    at: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK and ABORT."""

    at: int


@dataclass(frozen=True, slots=True)
class Savepoint:
    name: Name
    at: int


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint:
    name: Name
    at: int


@dataclass(frozen=True, slots=True)
class RollbackTo:
    """ROLLBACK TO [SAVEPOINT] name."""

    name: Name
    at: int


@dataclass(frozen=True, slots=True)
class SetVariable:
    """SET [SESSION|LOCAL] name {=|TO} value, …; SET TIME ZONE v is name "timezone"; values () is DEFAULT."""

    name: Name  # may contain dots
    values: tuple[str, ...]
    local: bool
    at: int


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """SET TRANSACTION …, SET SESSION CHARACTERISTICS AS TRANSACTION … (session is true then)."""

    session: bool
    read_only: bool | None
    at: int


@dataclass(frozen=True, slots=True)
class Show:
    name: Name  # "transaction isolation level" → "transaction_isolation", "time zone" → "timezone", "all"
    at: int


@dataclass(frozen=True, slots=True)
class Reset:
    name: Name | None  # None: ALL
    at: int


@dataclass(frozen=True, slots=True)
class Deallocate:
    name: Name | None  # None: ALL
    at: int


@dataclass(frozen=True, slots=True)
class Discard:
    """DISCARD ALL, CLOSE ALL, UNLISTEN *: what pools send when they take a connection back."""

    what: str  # "all", "plans", "portals", "channels"
    at: int


@dataclass(frozen=True, slots=True)
class AlterSystem:
    name: Name | None  # None: RESET ALL
    value: str | int | bool | None  # a decimal or double stays text; None: DEFAULT or RESET
    value_kind: LiteralKind | None
    tier: Name | None
    at: int


@dataclass(frozen=True, slots=True)
class ExpelInstance:
    """ALTER SYSTEM EXPEL INSTANCE 'uuid' [FORCE] [OPTION (TIMEOUT = seconds)]: it leaves the cluster for good."""

    uuid: str  # as it was written
    force: bool  # though it is Online or a master
    timeout: str | None  # a number's text
    at: int


@dataclass(frozen=True, slots=True)
class AbortSchemaChange:
    """ALTER SYSTEM ABORT SCHEMA CHANGE version: it isn't waited for any longer."""

    version: int
    at: int


@dataclass(frozen=True, slots=True)
class Explain:
    facets: tuple[str, ...]  # logical, buckets, raw, forward, context; () when not said
    fmt: bool
    analyze: bool
    statement: Query | Insert | Update | Delete
    at: int


Statement = (
    Query
    | Insert
    | Update
    | Delete
    | CreateTable
    | AlterTable
    | DropTable
    | Truncate
    | CreateIndex
    | DropIndex
    | RenameIndex
    | CreateProcedure
    | RenameProcedure
    | DropProcedure
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | ReleaseSavepoint
    | RollbackTo
    | SetVariable
    | SetTransaction
    | Show
    | Reset
    | Deallocate
    | Discard
    | AlterSystem
    | ExpelInstance
    | AbortSchemaChange
    | CreateUser
    | AlterUserPassword
    | AlterUserLogin
    | RenameUser
    | DropUser
    | CreateRole
    | DropRole
    | Grant
    | Revoke
    | Explain
)

DDL: Final = (
    CreateTable,
    AlterTable,
    DropTable,
    Truncate,
    CreateIndex,
    DropIndex,
    RenameIndex,
    CreateProcedure,
    RenameProcedure,
    DropProcedure,
)

ACL: Final = (
    CreateUser,
    AlterUserPassword,
    AlterUserLogin,
    RenameUser,
    DropUser,
    CreateRole,
    DropRole,
    Grant,
    Revoke,
)


def walk(root: object) -> Iterator[object]:
    """Every node under `root`, itself first, in no promised order. No recursion: trees may be deep."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif (slots := _SLOTS.get(type(node))) is not None:
            yield node
            for slot in slots:
                pending.append(getattr(node, slot))


def depth(root: object) -> int:
    """How many nodes there are on the longest way down."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, level = pending.pop()
        if isinstance(node, tuple):
            pending.extend((item, level) for item in node)
        elif (slots := _SLOTS.get(type(node))) is not None:
            deepest = max(deepest, level)
            pending.extend((getattr(node, slot), level + 1) for slot in slots)
    return deepest


# What each node consists of, its place aside.
_SLOTS: Final[dict[type, tuple[str, ...]]] = {
    node: tuple(f.name for f in fields(node) if f.name != "at")
    for node in list(globals().values())
    if isinstance(node, type) and is_dataclass(node)
}
