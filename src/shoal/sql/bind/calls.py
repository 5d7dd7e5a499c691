"""Calls of scalar functions.

Here: bind_call() and hint_call(), by what kind of function it is: one of the catalogue, one whose arguments
only need a common type (COALESCE), one that the session answers, a look-up in a system table. TRIM and
SUBSTRING, whose special forms are functions of the catalogue under other names.
Not here: the catalogue (functions.py), aggregates (aggregates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.errors import (
    FeatureNotSupported,
    ShoalError,
    SqlSyntaxError,
    UndefinedFunction,
    UndefinedObject,
    WrongObjectType,
)
from shoal.sql import ast, plan
from shoal.sql.bind.coercion import FREE, Hint, argument_types, choose, plain, shown
from shoal.sql.bind.pg_catalog import TYPE_OIDS
from shoal.sql.bind.scope import relation_of_table
from shoal.sql.functions import (
    ALIASES,
    CONCAT,
    FIXED,
    FUNCTIONS,
    HOMOGENEOUS,
    INSTANCE_LOOKUPS,
    MEMBERS,
    NOT_IMPLEMENTED,
    OWN_FACTS,
    SESSION_FUNCTIONS,
    WINDOW_ONLY,
    Function,
    Overload,
    SessionFunction,
)
from shoal.types.sqltype import BOOLEAN, INT, JSON, TEXT, SqlType

if TYPE_CHECKING:
    from shoal.sql.bind.expressions import Expressions

NULLIF = "nullif"
TO_REGTYPE = "to_regtype"
CURRENT_SETTING = "current_setting"
PRECISION_MAX = 6
INSTANCES = "_pico_instance"


def hint_call(expressions: Expressions, node: ast.Call) -> Hint:
    name = ALIASES.get(node.name.text, node.name.text)
    if name in HOMOGENEOUS:
        from shoal.sql.bind.hints import same_type

        return same_type(expressions, list(node.args)) if node.args else FREE
    if name == NULLIF:
        return Hint(expressions.hint(node.args[0]).type) if node.args else FREE
    function = FUNCTIONS.get(name)
    if function is not None:
        chosen = choose(function.overloads, [expressions.hint(arg) for arg in node.args])
        return FREE if chosen is None else Hint(chosen.result)
    session = SESSION_FUNCTIONS.get(name)
    if session is not None:
        return Hint(session.type)
    if name in FIXED:
        return Hint(FIXED[name][0])
    return Hint(INT if name == TO_REGTYPE else TEXT)


def bind_call(expressions: Expressions, node: ast.Call, desired: SqlType | None) -> plan.Expr:
    name = ALIASES.get(node.name.text, node.name.text)
    _refuse(node, name)
    if name in HOMOGENEOUS:
        return _homogeneous(expressions, node, name, desired)
    function = FUNCTIONS.get(name)
    if function is not None:
        return _scalar(expressions, node, function, desired)
    session = SESSION_FUNCTIONS.get(name)
    if session is not None:
        return _session(expressions, node, session)
    if name == NULLIF:
        return _nullif(expressions, node)
    if name == CONCAT:
        return _concat(expressions, node)
    if name in FIXED:
        _takes_nothing(expressions, node)
        t, value = FIXED[name]
        return plan.Const(value, t)
    if name in INSTANCE_LOOKUPS or name in OWN_FACTS:
        return _instance(expressions, node, name)
    if name in MEMBERS:
        return _member(expressions, node, name)
    if name == CURRENT_SETTING:
        return _current_setting(expressions, node)
    if name == TO_REGTYPE:
        return _to_regtype(expressions, node)
    raise UndefinedFunction(f"SQL function {node.name.text} not found", position=node.at + 1)


def _refuse(node: ast.Call, name: str) -> None:
    """Everything that is written like a call, and is none of ours."""
    at = node.at + 1
    if node.over:
        if name in FUNCTIONS or name in SESSION_FUNCTIONS:
            raise UndefinedFunction(f"window function {node.name.text} does not exist", position=at)
        raise FeatureNotSupported("window functions are not supported yet", position=at)
    if name in WINDOW_ONLY:
        raise WrongObjectType(f"misuse of window function {name.upper()}()", position=at)
    if name in NOT_IMPLEMENTED:
        raise FeatureNotSupported(f"SQL function `{name.upper()}` not implemented", position=at)
    if node.star:
        raise UndefinedFunction(f"could not resolve function overload for {node.name.text}(*)", position=at)
    if node.distinct:
        raise WrongObjectType(
            f"DISTINCT specified, but {node.name.text} is not an aggregate function", position=at
        )
    if node.filter is not None:
        raise WrongObjectType(
            f"FILTER specified, but {node.name.text} is not an aggregate function", position=at
        )


def no_overload(expressions: Expressions, name: str, args: Sequence[ast.Expr], at: int) -> ShoalError:
    known = [expressions.hint(arg).type for arg in args]
    return UndefinedFunction(
        f"could not resolve function overload for {name}({', '.join(shown(t) for t in known)})",
        position=at + 1,
    )


def _volatile(expressions: Expressions, at: int) -> None:
    from shoal.sql.bind.expressions import FILTERS

    if expressions.clause in FILTERS:
        raise FeatureNotSupported(
            "volatile function is not allowed in filter clause not implemented", position=at + 1
        )
    expressions.binding.volatile = True


# --- of the catalogue ----------------------------------------------------------------------------


def _scalar(
    expressions: Expressions, node: ast.Call, function: Function, desired: SqlType | None
) -> plan.Expr:
    args, chosen = arguments(expressions, node.name.text, function.overloads, node.args, node.at, desired)
    if function.volatile:
        _volatile(expressions, node.at)
    return plan.Call(function.name, args, chosen.result)


def arguments(
    expressions: Expressions,
    name: str,
    overloads: Sequence[Overload],
    nodes: Sequence[ast.Expr],
    at: int,
    desired: SqlType | None = None,
) -> tuple[tuple[plan.Expr, ...], Overload]:
    chosen = choose(overloads, [expressions.hint(node) for node in nodes], desired)
    types = None if chosen is None else argument_types(chosen, len(nodes))
    if chosen is None or types is None:
        raise _contradiction(expressions, overloads, nodes) or no_overload(expressions, name, nodes, at)
    args: list[plan.Expr] = []
    for node, t in zip(nodes, types, strict=True):
        arg = expressions.bind_as(node, t)
        if arg is None:
            contradiction = expressions.contradiction(node, (t,))
            raise contradiction or no_overload(expressions, name, nodes, at)
        args.append(arg)
    return tuple(args), chosen


def _contradiction(
    expressions: Expressions, overloads: Sequence[Overload], nodes: Sequence[ast.Expr]
) -> ShoalError | None:
    """A parameter that got its type a moment ago, where all overloads want it to be of another."""
    for i, node in enumerate(nodes):
        wanted = {overload.args[i] for overload in overloads if i < len(overload.args)}
        if len(wanted) == 1:
            found = expressions.contradiction(node, tuple(wanted))
            if found is not None:
                return found
    return None


def _call(
    expressions: Expressions, shown_as: str, name: str, nodes: Sequence[ast.Expr], at: int
) -> plan.Expr:
    args, chosen = arguments(expressions, shown_as, FUNCTIONS[name].overloads, nodes, at)
    return plan.Call(name, args, chosen.result)


_TRIMS = {"both": "btrim", "leading": "ltrim", "trailing": "rtrim"}


def bind_trim(expressions: Expressions, node: ast.Trim) -> plan.Expr:
    nodes = (node.arg,) if node.chars is None else (node.arg, node.chars)
    return _call(expressions, "trim", _TRIMS[node.side], nodes, node.at)


def bind_substring(expressions: Expressions, node: ast.Substring) -> plan.Expr:
    """FROM takes a position or, if it is a text, a pattern."""
    if node.pattern is not None and node.escape is not None:
        return _call(
            expressions, "substring", "substring_similar", (node.arg, node.pattern, node.escape), node.at
        )
    if node.start is None:
        assert node.length is not None
        args, _ = arguments(
            expressions,
            "substring",
            (Overload((TEXT, INT), TEXT),),
            (node.arg, node.length),
            node.at,
        )
        return plan.Call("substr", (args[0], plan.Const(1, INT), args[1]), TEXT)
    start = expressions.hint(node.start).type
    is_pattern = start.is_text or (start.is_unknown and isinstance(node.start, ast.Literal))
    if node.length is None:
        name = "substring_regex" if is_pattern else "substr"
        return _call(expressions, "substring", name, (node.arg, node.start), node.at)
    name = "substring_similar" if is_pattern else "substr"
    return _call(expressions, "substring", name, (node.arg, node.start, node.length), node.at)


# --- of arguments of one type --------------------------------------------------------------------


def _homogeneous(expressions: Expressions, node: ast.Call, name: str, desired: SqlType | None) -> plan.Expr:
    from shoal.sql.bind.expressions import common_exact

    if not node.args:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    args = expressions.same_type(name.upper(), node.args, node.at, desired)
    if name != "coalesce":
        expressions.comparable_type("<", args, node.at)
    return plan.Call(name, args, common_exact(args))


def _nullif(expressions: Expressions, node: ast.Call) -> plan.Expr:
    """The first argument's type: the second one is only compared with it."""
    if len(node.args) != 2:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    args = expressions.same_type("NULLIF", node.args, node.at)
    expressions.comparable_type("=", args, node.at)
    return plan.Call(NULLIF, args, args[0].type)


def _concat(expressions: Expressions, node: ast.Call) -> plan.Expr:
    if not node.args:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    args: list[plan.Expr] = []
    for arg in node.args:
        bound = expressions.bind(arg)
        if not bound.type.is_scalar:
            raise no_overload(expressions, node.name.text, node.args, node.at)
        args.append(expressions.binding.convert(bound, TEXT, arg.at, implicit=True))
    return plan.Call(CONCAT, tuple(args), TEXT)


# --- of the session and the instance -------------------------------------------------------------


def _to_regtype(expressions: Expressions, node: ast.Call) -> plan.Expr:
    """The OID of the type of that name, NULL if there is none: drivers ask it of types that they know."""
    if len(node.args) != 1:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    name = expressions.bind(node.args[0], TEXT)
    if not name.type.is_text:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    branches = tuple(
        (plan.Op("=", (name, plan.Const(known, TEXT)), BOOLEAN), plan.Const(oid, INT))
        for known, oid in TYPE_OIDS.items()
    )
    return plan.Case(branches, None, INT)


def _takes_nothing(expressions: Expressions, node: ast.Call) -> None:
    if node.args:
        raise no_overload(expressions, node.name.text, node.args, node.at)


def _session(expressions: Expressions, node: ast.Call, function: SessionFunction) -> plan.Expr:
    precision: int | None = None
    if function.precision and len(node.args) == 1:
        digits = node.args[0]
        if (
            not isinstance(digits, ast.Literal)
            or digits.kind is not ast.LiteralKind.INTEGER
            or digits.negative
        ):
            raise SqlSyntaxError("a precision is an integer from 0 to 6", position=digits.at + 1)
        # More than microseconds there are not.
        precision = PRECISION_MAX if len(digits.text) > 2 else min(int(digits.text), PRECISION_MAX)
        expressions.binding.pinned.add(digits.slot)
    else:
        _takes_nothing(expressions, node)
    if function.volatile:
        _volatile(expressions, node.at)
    return plan.Session(function.fact, function.type, precision)


def _instance(expressions: Expressions, node: ast.Call, name: str) -> plan.Expr:
    """What is known of the instance with that uuid: a row of _pico_instance, or a fact of its own."""
    _volatile(expressions, node.at)
    uuid = _text_or_uuid(expressions, node)
    if name in OWN_FACTS:
        own = plan.Session(plan.SessionFact.INSTANCE_UUID, TEXT)
        branch = (plan.Op("=", (uuid, own), BOOLEAN), plan.Session(OWN_FACTS[name], TEXT))
        return plan.Case((branch,), None, TEXT)
    binding = expressions.binding
    table = binding.table(INSTANCES, node.at)
    relation = relation_of_table(binding.next_relation(), INSTANCES, table)
    key = relation.find("uuid", node.at)
    answer = relation.find(INSTANCE_LOOKUPS[name], node.at)
    assert key is not None and answer is not None, table
    block = plan.Block(
        outputs=(plan.Output(answer.name, answer, answer.nullable),),
        source=plan.Scan(relation.number, table, INSTANCES, None, None),
        where=plan.Op("=", (key, uuid), BOOLEAN),
        group_by=(),
        grouped=False,
        having=None,
        distinct=False,
    )
    query = plan.Query((), block, (), None, None, (answer.name,), (answer.type,))
    return plan.ScalarQuery(query, plain(answer.type))


def _member(expressions: Expressions, node: ast.Call, name: str) -> plan.Expr:
    _volatile(expressions, node.at)
    fact, function, result = MEMBERS[name]
    key = _text_or_uuid(expressions, node)
    return plan.Call(function, (plan.Session(fact, JSON), key), result)


def _text_or_uuid(expressions: Expressions, node: ast.Call) -> plan.Expr:
    """The only argument, as a text."""
    if len(node.args) != 1:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    given = expressions.bind(node.args[0], TEXT)
    if not (given.type.is_text or given.type.is_uuid):
        raise no_overload(expressions, node.name.text, node.args, node.at)
    return expressions.binding.convert(given, TEXT, node.args[0].at, implicit=True)


def _current_setting(expressions: Expressions, node: ast.Call) -> plan.Expr:
    """The variable's value becomes part of the plan, which nobody else may use then."""
    arg = node.args[0] if node.args else None
    if not 1 <= len(node.args) <= 2:
        raise no_overload(expressions, node.name.text, node.args, node.at)
    if not isinstance(arg, ast.Literal) or arg.kind is not ast.LiteralKind.STRING:
        raise FeatureNotSupported("current_setting() takes a string literal", position=node.at + 1)
    missing_ok = len(node.args) == 2 and node.args[1] == ast.BooleanLiteral(True, node.args[1].at)
    binding = expressions.binding
    binding.pinned.add(arg.slot)
    binding.private = True
    name = arg.text.lower()
    value = binding.settings.variables.get(name)
    if value is None and not missing_ok:
        raise UndefinedObject(f'unrecognized configuration parameter "{arg.text}"', position=arg.at + 1)
    return plan.Const(value, TEXT)


__all__ = ["bind_call", "bind_substring", "bind_trim", "hint_call"]
