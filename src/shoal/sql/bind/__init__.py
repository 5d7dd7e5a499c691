"""The binder: from what was written to what it means.

A statement's syntax tree, a schema and the parameter types that the client sent become a typed plan: every
name is a column of a numbered relation, every operator and function is one overload of the catalogue, every
operand is of the type that it takes, and every parameter has a type. Or there is an error that says what
doesn't fit, and where it stands in the text.

Three ideas carry it. Names are looked for from the inner scope outwards (scope.py). Types are decided top
down: hints tell what operands would be, an overload is chosen by them, and each operand is bound with the
wish for its type (expressions.py, hints.py, coercion.py). Parameters get their type from the first place that
wishes for one, from left to right, what is before a select list first (parameters.py).

bind() knows no session but what BindSettings holds, and no clock: what only an execution can know stays a
plan.Session.

Not here yet: windows, DO blocks, CALL.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.catalog.schema import Schema
from shoal.errors import StatementTooComplex
from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding, BindSettings, Permit, everything
from shoal.sql.bind.dml import bind_delete, bind_insert, bind_update
from shoal.sql.bind.options import bind_options
from shoal.sql.bind.query import bind_query
from shoal.sql.bind.scope import Scope

__all__ = ["BindSettings", "Permit", "bind"]

_DEFAULTS = BindSettings()


def bind(
    statement: ast.Query | ast.Insert | ast.Update | ast.Delete,
    schema: Schema,
    parameter_oids: Sequence[int] = (),
    settings: BindSettings = _DEFAULTS,
    permit: Permit = everything,
) -> plan.Bound:
    """The statement's plan. The OIDs are those of Parse: 0 where the client doesn't know. `permit` raises where who asks
    may not."""
    binding = Binding(schema, parameter_oids, settings, bind_query, permit)
    root: plan.Query | plan.Dml
    try:
        match statement:
            case ast.Query():
                root = bind_query(binding, statement, Scope())
            case ast.Insert():
                root = bind_insert(binding, statement)
            case ast.Update():
                root = bind_update(binding, statement)
            case ast.Delete():
                root = bind_delete(binding, statement)
    except RecursionError as error:
        raise StatementTooComplex("statement is nested too deeply") from error
    options = bind_options(binding, statement.options)
    return plan.Bound(
        root=root,
        options=options,
        parameters=binding.parameters.types,
        parameter_oids=binding.parameters.oids,
        tables=tuple(binding.tables.values()),
        needs=tuple((privilege, table) for (privilege, _), table in binding.needs.items()),
        pinned=frozenset(binding.pinned),
        volatile=binding.volatile,
        private=binding.private,
    )
