"""One statement, one program.

Here: compile_program().
Not here: the parts of the text (queries.py, changes.py), the plan's rules (optimise/).
"""

from __future__ import annotations

from collections import Counter

from shoal.catalog.schema import Schema, Table
from shoal.sql import plan
from shoal.sql.local import changes, queries
from shoal.sql.local.draft import Draft
from shoal.sql.optimise import optimise
from shoal.sql.optimise.point_reads import is_point_change, is_point_read
from shoal.sql.optimise.reads import reads_of
from shoal.sql.program import Program, Route
from shoal.sql.reads import NOTHING
from shoal.sql.walk import relations_of_statement


def compile_program(bound: plan.Bound, schema: Schema) -> Program:
    bound = optimise(bound, schema)
    root = bound.root
    draft = Draft(
        schema,
        len(bound.parameters),
        catalog_writer=not isinstance(root, plan.Query) and not root.table.is_sharded,
        evaluated_once=_evaluated_once(bound),
    )
    writes: Table | None = None
    match root:
        case plan.Query():
            route = Route.POINT_READ if is_point_read(root) else Route.READ
            text = queries.query(root, draft)
        case plan.Insert():
            route, writes = Route.WRITE, root.table
            draft.guarded = any(isinstance(at, plan.Scan) for at in relations_of_statement(root))
            text = changes.insert(root, draft)
        case plan.Update():
            route, writes = Route.WRITE, root.table
            draft.guarded = not is_point_change(root)
            text = changes.update(root, draft)
        case plan.Delete():
            route, writes = Route.WRITE, root.table
            draft.guarded = not is_point_change(root)
            text = changes.delete(root, draft)
    pinned = bound.pinned | draft.pinned | _slots_of_options(bound.options)
    return Program(
        sql=text,
        binds=draft.binds,
        route=route,
        names=bound.names,
        types=bound.types,
        parameters=bound.parameters,
        parameter_oids=bound.parameter_oids,
        tag=type(root).__name__.upper() if writes is not None else "SELECT",
        writes=writes,
        guarded=draft.guarded,
        options=bound.options,
        tables=bound.tables,
        reads=NOTHING
        if isinstance(root, plan.Query) or root.table.is_sharded
        else reads_of(root, draft.binds),
        templatable=not pinned and not bound.private,
    )


def _slots_of_options(options: plan.Options) -> frozenset[int]:
    """A limit is a part of the program, and no value that is bound."""
    limits = (options.vdbe_opcode_max, options.motion_row_max)
    return frozenset(at.source.slot for at in limits if isinstance(at, plan.Const) and at.source is not None)


def _evaluated_once(bound: plan.Bound) -> frozenset[int]:
    """The CTEs whose rows must be kept: those that are read several times, or whose rows may differ each time."""
    reads = Counter(at.cte for at in relations_of_statement(bound.root) if isinstance(at, plan.CteScan))
    return frozenset(cte for cte, count in reads.items() if count > 1 or bound.volatile)
