"""Stored procedures in the catalog: what a change makes of one, and its row in _pico_routine.

Here: becomes(), and rows ↔ Procedure.
Not here: the order in which changes happen (apply.py), parsing a body (sql/bind/procedures.py), calling one: not yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import msgspec

from shoal.catalog.entries import CreateProcedure, DropProcedure, ProcedureChange, RowChange
from shoal.catalog.schema import Procedure, Schema
from shoal.catalog.system import PICO_ROUTINE, Row, field_type, json_text, sql_type, type_of


def becomes(schema: Schema, change: ProcedureChange, version: int) -> Procedure | None:
    """The procedure as the committed change leaves it; None: dropped."""
    if isinstance(change, CreateProcedure):
        return Procedure(
            id=change.procedure_id,
            name=change.name,
            parameters=tuple(map(type_of, change.parameters)),
            language=change.language,
            body=change.body,
            owner=change.owner,
            version=version,
        )
    if isinstance(change, DropProcedure):
        return None
    before = schema.procedures_by_id[change.procedure_id]
    return replace(before, name=change.new_name, version=version, operable=True)


class _Parameter(msgspec.Struct):
    """One of `params`: Picodata's keys, and the type in full."""

    type: str
    mode: str = "in"
    default: None = None
    sql_type: str = ""


def procedure_change(procedure: Procedure) -> RowChange:
    parameters = [_Parameter(field_type(each), sql_type=sql_type(each)) for each in procedure.parameters]
    row: Row = (
        procedure.id,
        procedure.name,
        "procedure",
        json_text(parameters),
        json_text([]),
        procedure.language,
        procedure.body,
        "invoker",
        int(procedure.operable),
        procedure.version,
        procedure.owner,
    )
    return RowChange(PICO_ROUTINE.id, (procedure.id,), row)


def procedure_of_row(row: Row) -> Procedure:
    procedure_id, name, _, params, _, language, body, _, operable, version, owner = row
    return Procedure(
        id=cast(int, procedure_id),
        name=cast(str, name),
        parameters=tuple(
            type_of(parameter.sql_type)
            for parameter in msgspec.json.decode(cast(str, params), type=list[_Parameter])
        ),
        language=cast(str, language),
        body=cast(str, body),
        owner=cast(int, owner),
        version=cast(int, version),
        operable=bool(operable),
    )
