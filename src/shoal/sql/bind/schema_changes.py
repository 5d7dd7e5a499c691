"""Any statement that changes the schema: of tables and indexes (ddl.py), or of procedures (procedures.py)."""

from __future__ import annotations

from typing import TypeAlias

from shoal.catalog.entries import SchemaChange
from shoal.catalog.schema import Schema
from shoal.sql.bind.binding import Permit, everything
from shoal.sql.bind.ddl import DdlStatement, bind_ddl
from shoal.sql.bind.procedures import ProcedureStatement, bind_procedure

SchemaStatement: TypeAlias = DdlStatement | ProcedureStatement


def bind_schema_change(
    statement: SchemaStatement, schema: Schema, owner: int, next_id: int, *, permit: Permit = everything
) -> SchemaChange | None:
    """None when IF [NOT] EXISTS made it a no-op. Whoever creates something owns it, and it gets the next id."""
    if isinstance(statement, ProcedureStatement):
        return bind_procedure(statement, schema, owner, next_id, permit=permit)
    changes = bind_ddl(statement, schema, owner, next_id, permit=permit)
    return changes[0] if changes else None
