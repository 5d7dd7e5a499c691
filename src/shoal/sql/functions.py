"""The catalogue: every operator, scalar function and aggregate, with the types it takes and gives.

Here: OPERATORS, FUNCTIONS, AGGREGATES as data; what a session knows (SESSION_FUNCTIONS); other names of
the same function (ALIASES).
Not here: choosing an overload (bind/coercion.py), what is more syntax than function — COALESCE, CASE,
IN and their kin take arguments of one type, whatever it is (bind/calls.py) —, SQLite's text (local/).

The order of overloads matters where several fit equally well: the first one is taken, so INT stands before
DECIMAL, and DECIMAL before DOUBLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shoal.sql.plan import SessionFact
from shoal.types.sqltype import (
    ANY,
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UUID,
    SqlType,
    array_of,
)


@dataclass(frozen=True, slots=True)
class Overload:
    args: tuple[SqlType, ...]
    result: SqlType
    variadic: bool = False  # the last argument may stand there any number of times, also never


class Nulls(Enum):
    """When the answer can be NULL."""

    STRICT = "strict"  # when an argument is
    NEVER = "never"
    ALWAYS = "always"  # also when no argument is


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    overloads: tuple[Overload, ...]
    nulls: Nulls = Nulls.STRICT
    volatile: bool = False  # each call may answer something else


def _all(types: tuple[SqlType, ...], arity: int = 2, result: SqlType | None = None) -> tuple[Overload, ...]:
    """One overload per type, all arguments of that type."""
    return tuple(Overload((t,) * arity, t if result is None else result) for t in types)


NUMBERS: Final = (INT, DECIMAL, DOUBLE)
# What = and < and ORDER BY take. Arrays, JSON and ANY have no order.
COMPARABLE: Final = (INT, DECIMAL, DOUBLE, TEXT, BOOLEAN, UUID, DATETIME)
# What || turns into text by itself.
CONCATENABLE: Final = (TEXT, INT, DECIMAL, DOUBLE, BOOLEAN, DATETIME, UUID, JSON)

# --- operators -----------------------------------------------------------------------------------

OPERATORS: Final[Mapping[str, tuple[Overload, ...]]] = {
    "+": _all(NUMBERS),
    "-": _all(NUMBERS),
    "*": _all(NUMBERS),
    "/": _all(NUMBERS),
    "%": _all((INT,)),
    "neg": _all(NUMBERS, arity=1),
    "and": _all((BOOLEAN,)),
    "or": _all((BOOLEAN,)),
    "||": (
        *(Overload((TEXT, t), TEXT) for t in CONCATENABLE),
        *(Overload((t, TEXT), TEXT) for t in CONCATENABLE if t is not TEXT),
    ),
}

# --- scalar functions ----------------------------------------------------------------------------


def _functions(*functions: Function) -> Mapping[str, Function]:
    return {function.name: function for function in functions}


def _one(
    name: str, args: tuple[SqlType, ...], result: SqlType, nulls: Nulls = Nulls.STRICT, volatile: bool = False
) -> Function:
    return Function(name, (Overload(args, result),), nulls, volatile)


def _several(name: str, *overloads: tuple[tuple[SqlType, ...], SqlType]) -> Function:
    return Function(name, tuple(Overload(args, result) for args, result in overloads))


FUNCTIONS: Final[Mapping[str, Function]] = _functions(
    # numbers
    Function("abs", _all(NUMBERS, arity=1)),
    Function("ceil", _all(NUMBERS, arity=1)),
    Function("floor", _all(NUMBERS, arity=1)),
    Function("sign", _all(NUMBERS, arity=1)),
    Function("round", (*_all(NUMBERS, arity=1), Overload((DECIMAL, INT), DECIMAL))),
    Function("trunc", (*_all(NUMBERS, arity=1), Overload((DECIMAL, INT), DECIMAL))),
    _one("mod", (INT, INT), INT),
    _one("power", (DOUBLE, DOUBLE), DOUBLE),
    _one("sqrt", (DOUBLE,), DOUBLE),
    # text
    _one("lower", (TEXT,), TEXT),
    _one("upper", (TEXT,), TEXT),
    _one("length", (TEXT,), INT),
    _one("octet_length", (TEXT,), INT),
    _one("position", (TEXT, TEXT), INT),  # what is looked for, where
    _one("strpos", (TEXT, TEXT), INT),  # where, what is looked for
    _several("substr", ((TEXT, INT), TEXT), ((TEXT, INT, INT), TEXT)),
    _one("substring_regex", (TEXT, TEXT), TEXT, Nulls.ALWAYS),
    _one("substring_similar", (TEXT, TEXT, TEXT), TEXT, Nulls.ALWAYS),
    _several("btrim", ((TEXT,), TEXT), ((TEXT, TEXT), TEXT)),
    _several("ltrim", ((TEXT,), TEXT), ((TEXT, TEXT), TEXT)),
    _several("rtrim", ((TEXT,), TEXT), ((TEXT, TEXT), TEXT)),
    _one("replace", (TEXT, TEXT, TEXT), TEXT),
    _one("left", (TEXT, INT), TEXT),
    _one("right", (TEXT, INT), TEXT),
    _one("reverse", (TEXT,), TEXT),
    _one("repeat", (TEXT, INT), TEXT),
    _one("split_part", (TEXT, TEXT, INT), TEXT),
    _one("starts_with", (TEXT, TEXT), BOOLEAN),
    _one("md5", (TEXT,), TEXT),
    # datetime
    _one("to_date", (TEXT, TEXT), DATETIME),
    _one("to_char", (DATETIME, TEXT), TEXT),
    # the rest
    Function("json_extract_path", (Overload((JSON, TEXT), ANY, variadic=True),), Nulls.ALWAYS),
    _one("gen_random_uuid", (), UUID, Nulls.NEVER, volatile=True),
)

# Takes arguments of any scalar type, turns each into text, and leaves NULL out.
CONCAT: Final = "concat"

# Arguments of one type, whatever it is: its answer is of that type, too.
HOMOGENEOUS: Final = frozenset({"coalesce", "greatest", "least"})

ALIASES: Final[Mapping[str, str]] = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "pow": "power",
    "string_agg": "group_concat",
    "substring": "substr",
}

# --- what the session and the instance know ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionFunction:
    fact: SessionFact
    type: SqlType
    volatile: bool = False  # refused in filters
    nullable: bool = False
    precision: bool = False  # may be given the digits of a second as its argument


SESSION_FUNCTIONS: Final[Mapping[str, SessionFunction]] = {
    "now": SessionFunction(SessionFact.NOW, DATETIME),
    "current_timestamp": SessionFunction(SessionFact.NOW, DATETIME, precision=True),
    "localtimestamp": SessionFunction(SessionFact.LOCAL_NOW, DATETIME, precision=True),
    "current_date": SessionFunction(SessionFact.TODAY, DATETIME),
    "current_user": SessionFunction(SessionFact.USER, TEXT),
    "session_user": SessionFunction(SessionFact.USER, TEXT),
    "current_role": SessionFunction(SessionFact.USER, TEXT),
    "user": SessionFunction(SessionFact.USER, TEXT),
    "current_database": SessionFunction(SessionFact.DATABASE, TEXT),
    "current_catalog": SessionFunction(SessionFact.DATABASE, TEXT),
    "pg_backend_pid": SessionFunction(SessionFact.BACKEND_PID, INT),
    "version": SessionFunction(SessionFact.VERSION, TEXT),
    "pico_instance_uuid": SessionFunction(SessionFact.INSTANCE_UUID, TEXT, volatile=True),
    "instance_uuid": SessionFunction(SessionFact.INSTANCE_UUID, TEXT, volatile=True),
    "pico_raft_leader_id": SessionFunction(SessionFact.RAFT_LEADER_ID, INT, volatile=True, nullable=True),
    "pico_raft_leader_uuid": SessionFunction(
        SessionFact.RAFT_LEADER_UUID, UUID, volatile=True, nullable=True
    ),
}

# f(instance's uuid): the column of _pico_instance that it answers.
INSTANCE_LOOKUPS: Final[Mapping[str, str]] = {
    "pico_instance_name": "name",
    "pico_replicaset_name": "replicaset_name",
    "pico_tier_name": "tier",
}

# f(instance's uuid) that only the instance itself can answer.
OWN_FACTS: Final[Mapping[str, SessionFact]] = {
    "pico_instance_dir": SessionFact.INSTANCE_DIR,
    "pico_config_file_path": SessionFact.CONFIG_FILE_PATH,
}

# f(name), a member of a JSON object that only the execution knows: that object, our function, its answer's type.
MEMBERS: Final[Mapping[str, tuple[SessionFact, str, SqlType]]] = {
    "_pico_bucket": (SessionFact.BUCKETS, "buckets_of_tier", array_of(JSON)),
    "pico_instance_health_status": (SessionFact.HEALTH, "health_of_instance", JSON),
}

# The same answer always: what drivers ask when they connect or give a connection back to its pool.
FIXED: Final[Mapping[str, tuple[SqlType, int | str]]] = {
    "current_schema": (TEXT, "public"),
    "pg_is_in_recovery": (BOOLEAN, 0),  # every instance takes writes
    "pg_advisory_unlock_all": (TEXT, ""),  # there are no such locks
}

NOT_IMPLEMENTED: Final = frozenset({"current_time", "localtime"})

# --- aggregates ----------------------------------------------------------------------------------

# TEXT first: that is what a string literal is to MIN and MAX.
_ORDERED: Final = (TEXT, INT, DECIMAL, DOUBLE, BOOLEAN, DATETIME)

AGGREGATES: Final[Mapping[str, tuple[Overload, ...]]] = {
    "count": (),  # counts values of any type
    "sum": (Overload((INT,), DECIMAL), Overload((DECIMAL,), DECIMAL), Overload((DOUBLE,), DOUBLE)),
    "avg": (Overload((INT,), DECIMAL), Overload((DECIMAL,), DECIMAL), Overload((DOUBLE,), DOUBLE)),
    "total": tuple(Overload((t,), DOUBLE) for t in NUMBERS),
    "min": _all(_ORDERED, arity=1),
    "max": _all(_ORDERED, arity=1),
    "group_concat": (Overload((TEXT,), TEXT),),
}
WINDOW_ONLY: Final = frozenset({"row_number", "last_value"})
