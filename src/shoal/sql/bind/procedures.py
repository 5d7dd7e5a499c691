"""CREATE, ALTER and DROP PROCEDURE: what they ask of the catalog.

Here: bind_procedure(). A body is bound once when it is created, so that what it names is there then, and its parameters are
of the types that were said.
Not here: calling one: not yet.
"""

from __future__ import annotations

from shoal.catalog.entries import CreateProcedure, DropProcedure, ProcedureChange, RenameProcedure
from shoal.catalog.schema import Procedure, Schema
from shoal.catalog.system import sql_type
from shoal.errors import (
    DuplicateFunction,
    InsufficientPrivilege,
    ShoalError,
    UndefinedFunction,
    UndefinedParameter,
)
from shoal.sql import ast
from shoal.sql.bind import bind
from shoal.sql.bind.binding import Permit, everything
from shoal.sql.bind.ddl import RESERVED_PREFIX, resolve_type
from shoal.sql.parser import parse_one
from shoal.types.sqltype import SqlType

ProcedureStatement = ast.CreateProcedure | ast.RenameProcedure | ast.DropProcedure


def bind_procedure(
    statement: ProcedureStatement,
    schema: Schema,
    owner: int,
    next_id: int,
    *,
    permit: Permit = everything,
) -> ProcedureChange | None:
    """None when IF [NOT] EXISTS made it a no-op. `permit` is asked for what the body does: its errors must not tell somebody
    of tables that he may not touch."""
    match statement:
        case ast.CreateProcedure():
            return _create(statement, schema, owner, next_id, permit)
        case ast.RenameProcedure():
            known = _procedure(statement.name, statement.parameters, schema)
            new_name = statement.new_name
            _refuse_name(new_name, schema)
            return RenameProcedure(known.id, new_name.text)
        case ast.DropProcedure():
            if statement.if_exists and statement.name.text not in schema.procedures:
                return None
            return DropProcedure(_procedure(statement.name, statement.parameters, schema).id)


def _create(
    statement: ast.CreateProcedure, schema: Schema, owner: int, next_id: int, permit: Permit
) -> CreateProcedure | None:
    name = statement.name
    parameters = tuple(map(resolve_type, statement.parameters))
    known = schema.procedures.get(name.text)
    if known is not None and known.parameters != parameters:
        raise _other_signature(known, name)
    if known is not None and statement.if_not_exists:
        return None
    _refuse_name(name, schema)
    _bind_body(statement, schema, parameters, permit)
    return CreateProcedure(next_id, name.text, tuple(map(sql_type, parameters)), "SQL", statement.body, owner)


def _bind_body(
    statement: ast.CreateProcedure, schema: Schema, parameters: tuple[SqlType, ...], permit: Permit
) -> None:
    body = parse_one(statement.body)
    assert isinstance(body, ast.Insert | ast.Update | ast.Delete), statement
    try:
        bound = bind(body, schema, [parameter.oid for parameter in parameters], permit=permit)
        if len(bound.parameters) > len(parameters):
            raise UndefinedParameter(
                f"there is no parameter ${len(bound.parameters)}: the procedure has {len(parameters)}"
            )
    except ShoalError as error:
        if error.position is not None:
            error.position = None if statement.body_at is None else statement.body_at + error.position
        raise


def _refuse_name(name: ast.Name, schema: Schema) -> None:
    if name.text in schema.procedures:
        raise DuplicateFunction(f"procedure {name.text} already exists", position=name.at + 1)
    if name.text.startswith(RESERVED_PREFIX):
        raise InsufficientPrivilege(
            f'names beginning with "{RESERVED_PREFIX}" are for what is built in', position=name.at + 1
        )


def _procedure(name: ast.Name, parameters: tuple[ast.TypeName, ...] | None, schema: Schema) -> Procedure:
    known = schema.procedures.get(name.text)
    if known is None:
        raise UndefinedFunction(f"procedure {name.text} does not exist", position=name.at + 1)
    if parameters is not None and tuple(map(resolve_type, parameters)) != known.parameters:
        raise _other_signature(known, name)
    return known


def _other_signature(known: Procedure, name: ast.Name) -> UndefinedFunction:
    return UndefinedFunction(
        f"routine exists but with a different signature: {known.signature}", position=name.at + 1
    )
