"""Queries: blocks, sets, subqueries and CTEs, as SQLite's text.

Here: query(), inner_query(), scalar_query(), and the order in which rows come when nobody asked for one.
Not here: expressions (expressions.py), changes (changes.py).

A relation is called r<n>, and the outputs of a subquery f0, f1, …; a CTE is called w<n>. So a name means
one thing in the whole statement, at every depth.

Expressions contain queries and queries contain expressions, so the two modules import each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.catalog.schema import BUCKET_ID, Index, Table
from shoal.errors import FeatureNotSupported
from shoal.sql import plan
from shoal.sql.ast import JoinKind, SetKind
from shoal.sql.local import expressions
from shoal.sql.local.draft import Draft, derived_columns, quoted, table_columns
from shoal.sql.optimise.keys import column_number, gives_one_row
from shoal.sql.walk import conjuncts, is_closed, rewritten, walk

_JOINS: Final = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN", JoinKind.CROSS: "JOIN"}
_SETS: Final = {SetKind.UNION: "UNION", SetKind.EXCEPT: "EXCEPT", SetKind.INTERSECT: "INTERSECT"}


def query(query: plan.Query, draft: Draft, *, named: bool = False) -> str:
    """`named`: its columns are called f0, f1, … for the query around it."""
    return _query(query, draft, named, in_order=True)


def inner_query(query: plan.Query, draft: Draft) -> str:
    """One whose order nobody sees: an operand of IN, of EXISTS, of a set operation."""
    return _query(query, draft, named=False, in_order=False)


def scalar_query(expr: plan.ScalarQuery, draft: Draft) -> str:
    """SQLite would take the first row and be silent about the others: two are enough to know."""
    if gives_one_row(expr.query):
        return f"({inner_query(expr.query, draft)})"
    rows = _query(expr.query, draft, named=True, in_order=False)
    return f"(SELECT iif(count(*) > 1, shoal_several_rows(), max(f0)) FROM (SELECT f0 FROM ({rows}) LIMIT 2))"


# --- a query -------------------------------------------------------------------------------------


def _query(query: plan.Query, draft: Draft, named: bool, in_order: bool) -> str:
    ctes = [
        f"w{cte.number}({', '.join(f'f{n}' for n in range(len(cte.query.types)))})"
        f" AS {'MATERIALIZED ' if cte.number in draft.evaluated_once else ''}"
        f"({_query(cte.query, draft, named=False, in_order=True)})"
        for cte in query.ctes
    ]
    text = _ordered(query, draft, named, in_order)
    if query.limit is not None or query.offset is not None:
        text += f" LIMIT {_row_count(query.limit, draft, '-1', 'shoal_negative_limit()')}"
    if query.offset is not None:
        text += f" OFFSET {_row_count(query.offset, draft, '0', 'shoal_negative_offset()')}"
    return f"WITH {', '.join(ctes)} {text}" if ctes else text


def _row_count(count: plan.Expr | None, draft: Draft, absent: str, negative: str) -> str:
    if count is None:
        return absent
    text = expressions.expression(count, draft)
    if isinstance(count, plan.Const) and isinstance(count.value, int) and count.value >= 0:
        return text  # a literal in its place has no sign either
    return f"iif({text} < 0, {negative}, coalesce({text}, {absent}))"


def _ordered(query: plan.Query, draft: Draft, named: bool, in_order: bool) -> str:
    """A query without its CTEs and its limits."""
    body = query.body
    while isinstance(body, plan.Query) and _is_bare(body):
        body = body.body
    # A constant doesn't sort, and a number would mean a position to SQLite.
    keys = tuple(key for key in query.order_by if not isinstance(key.expr, plan.Const | plan.Param))
    if isinstance(body, plan.Block):
        return _block(body, draft, named, keys, in_order)
    limited = query.limit is not None or query.offset is not None
    if isinstance(body, plan.ValuesRows) and (keys or limited):
        text = f"SELECT * FROM ({_values(body, draft, named=True)})"
    elif all(isinstance(key.expr, plan.OutputRef) for key in keys):
        text = _body(body, draft, named)
    else:
        text = f"SELECT * FROM ({_body(body, draft, named=True)})"
    if keys:
        return f"{text} ORDER BY {', '.join(_sort_key(key, _of_outputs(key.expr, draft)) for key in keys)}"
    if in_order and isinstance(body, plan.SetOperation) and not body.all:
        return f"{text} ORDER BY {', '.join(str(n + 1) for n in range(len(query.types)))}"
    return text


def _is_bare(query: plan.Query) -> bool:
    return not query.ctes and not query.order_by and query.limit is None and query.offset is None


def _of_outputs(expr: plan.Expr, draft: Draft) -> str:
    """A sort key over a set operation, whose outputs are called f0, f1, …"""
    if isinstance(expr, plan.OutputRef):
        return str(expr.ordinal + 1)
    return expressions.expression(expr, draft)


def _sort_key(key: plan.SortKey, text: str) -> str:
    """NULL is SQLite's smallest value, as it is ours: first ascending, last descending."""
    direction = " DESC" if key.descending else ""
    if key.nulls_first == key.descending:
        direction += " NULLS FIRST" if key.nulls_first else " NULLS LAST"
    return text + direction


# --- bodies --------------------------------------------------------------------------------------


def _body(body: plan.Body, draft: Draft, named: bool) -> str:
    match body:
        case plan.Block():
            return _block(body, draft, named, (), in_order=False)
        case plan.ValuesRows():
            return _values(body, draft, named)
        case plan.SetOperation():
            if body.all and body.kind is not SetKind.UNION:
                raise FeatureNotSupported(f"{_SETS[body.kind]} ALL is not supported")
            operator = _SETS[body.kind] + (" ALL" if body.all else "")
            # SQLite's set operators all bind to the left: what is nested on the right needs a SELECT around.
            left = _body(body.left, draft, named)
            right = _body(body.right, draft, named=False)
            if isinstance(body.right, plan.SetOperation):
                right = f"SELECT * FROM ({right})"
            return f"{left} {operator} {right}"
        case plan.Query():
            return f"SELECT * FROM ({_query(body, draft, named, in_order=False)})"


def _values(values: plan.ValuesRows, draft: Draft, named: bool) -> str:
    rows = [[expressions.expression(value, draft) for value in row] for row in values.rows]
    if len(rows) == 1:
        return f"SELECT {', '.join(_output(text, n, named) for n, text in enumerate(rows[0]))}"
    text = "VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)
    if not named:
        return text
    if not all(is_closed(value) for row in values.rows for value in row):
        # Rows that name columns of a query around have no column1, column2, …
        columns = ", ".join(f"f{n}" for n in range(len(values.types)))
        return f"SELECT * FROM (WITH v({columns}) AS ({text}) SELECT * FROM v)"
    columns = ", ".join(f"column{n + 1} AS f{n}" for n in range(len(values.types)))
    return f"SELECT {columns} FROM ({text})"


def _output(text: str, ordinal: int, named: bool) -> str:
    return f"{text} AS f{ordinal}" if named else text


# --- blocks --------------------------------------------------------------------------------------


def _block(
    block: plan.Block, draft: Draft, named: bool, keys: tuple[plan.SortKey, ...], in_order: bool
) -> str:
    # Rows come out in the order of the first source, where nothing sorts or groups them.
    in_order = in_order and not keys
    as_they_come = in_order and not block.grouped and not block.distinct
    source = None
    if block.source is not None:
        first = _first_scan(block) if as_they_come else None
        source = source_text(block.source, draft, as_they_come, first)
    outputs = [expressions.expression(output.expr, draft) for output in block.outputs]
    if block.grouped and not block.group_by and not _has_aggregate(block):
        # For SQLite, only an aggregate among the outputs makes all rows one group.
        outputs[0] = f"iif(count(*) >= 0, {outputs[0]}, NULL)"
    listed = ", ".join(_output(text, n, named) for n, text in enumerate(outputs))
    parts = [f"SELECT {'DISTINCT ' if block.distinct else ''}{listed}"]
    if source is not None:
        parts.append(f"FROM {source}")
    where = condition(block.where, draft, guards(block.source) if draft.guarded else ())
    if where is not None:
        parts.append(f"WHERE {where}")
    groups = [_group_key(expr, draft) for expr in block.group_by]
    if groups:
        parts.append(f"GROUP BY {', '.join(groups)}")
    if block.having is not None:
        parts.append(f"HAVING {expressions.condition(block.having, draft)}")
    order = [_sort_key(key, _block_key(key.expr, block, draft)) for key in keys]
    if in_order and block.distinct:
        order = [str(n + 1) for n in range(len(outputs))]
    elif in_order:
        order = groups
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    return " ".join(parts)


def condition(where: plan.Expr | None, draft: Draft, guards: Sequence[str] = ()) -> str | None:
    """A WHERE. The guards stand first, so that they are asked for rows that don't match, too."""
    terms = [*guards]
    if where is not None:
        terms.append(expressions.condition(where, draft))
    return " AND ".join(terms) or None


def guards(source: plan.Source | None, target: tuple[int, Table] | None = None) -> list[str]:
    """What asks at each row whether the statement may go on: rows of a source, and of an UPDATE's target that is
    joined with it."""
    if source is None:
        return []
    tables = _tables(source)
    if target is not None:
        tables.append(target)
    if isinstance(source, plan.Join) or target is not None:
        return [_guard(relation, table) for relation, table in tables] or ["shoal_guard()"]
    return ["shoal_guard()"]


def _guard(relation: int, table: Table) -> str:
    """For one of several tables: without a column it would be asked in the outermost loop alone, once for all
    that is inside. The key's first column is in every index, so asking reads nothing else."""
    column = table.physical_key[0].column
    name = "bucket_id" if column == BUCKET_ID else table.by_number[column].physical
    return f"shoal_guard(r{relation}.{name})"


def _tables(source: plan.Source | None) -> list[tuple[int, Table]]:
    """What a join joins, from left to right. Derived relations have guards inside."""
    match source:
        case plan.Scan():
            return [(source.relation, source.table)]
        case plan.Join():
            return _tables(source.left) + _tables(source.right)
        case _:
            return []


def _group_key(expr: plan.Expr, draft: Draft) -> str:
    # A number would mean a position.
    return "NULL" if isinstance(expr, plan.Const) else _no_number(expr, expressions.expression(expr, draft))


def _no_number(expr: plan.Expr, text: str) -> str:
    """SQLite's parser makes `x AND FALSE` the number 0, which would be a position then."""
    return f"coalesce({text}, NULL)" if isinstance(expr, plan.Op) and expr.op in ("and", "or") else text


def _has_aggregate(block: plan.Block) -> bool:
    return any(isinstance(at, plan.Aggregate) for output in block.outputs for at in walk(output.expr))


def _block_key(expr: plan.Expr, block: plan.Block, draft: Draft) -> str:
    if isinstance(expr, plan.OutputRef):
        return str(expr.ordinal + 1)

    def its_output(at: plan.Expr) -> plan.Expr:
        return block.outputs[at.ordinal].expr if isinstance(at, plan.OutputRef) else at

    return _no_number(expr, expressions.expression(rewritten(expr, its_output), draft))


# --- the order that nobody asked for -------------------------------------------------------------
#
# Groups and distinct rows come sorted by their keys, and a table's rows by its primary key. SQLite mostly does
# so by itself, and drops an ORDER BY where it does. But a secondary index that has all the columns of a query
# would be read instead of the table, in its own order: then the table is read by its key, unless a filter has
# a use for the index.


def _first_scan(block: plan.Block) -> int | None:
    """The relation that is read in the order of its key, where SQLite has to be told so."""
    source, conditions = block.source, [block.where]
    while isinstance(source, plan.Join):
        if source.kind is not JoinKind.LEFT:  # its left side comes first anyway, whatever the condition
            conditions.append(source.on)
        source = source.left
    if not isinstance(source, plan.Scan) or source.indexed_by is not None or not source.table.indexes:
        return None
    return None if any(_may_use_index(at, source) for at in conditions) else source.relation


def _may_use_index(where: plan.Expr | None, scan: plan.Scan) -> bool:
    """Whether a filter has something to say of the first column of a secondary index."""
    leading = {index.parts[0].column for index in scan.table.indexes}
    return any(
        isinstance(at, plan.Column)
        and at.relation == scan.relation
        and column_number(scan.table, at) in leading
        for clause in conjuncts(where)
        for at in walk(clause)
    )


# --- sources -------------------------------------------------------------------------------------


def source_text(source: plan.Source, draft: Draft, in_order: bool = False, by_key: int | None = None) -> str:
    """A FROM. `in_order`: somebody may see the order of its rows; `by_key`: the relation to be read by its key."""
    match source:
        case plan.Scan():
            draft.name_columns(source.relation, table_columns(source.table, f"r{source.relation}"))
            text = scan_text(source.table, source.relation, source.indexed_by, draft)
            return text + _by_key(source.table) if source.relation == by_key else text
        case plan.Derived():
            draft.name_columns(source.relation, derived_columns(source.relation))
            return f"({_query(source.query, draft, True, in_order)}) AS r{source.relation}"
        case plan.CteScan():
            draft.name_columns(source.relation, derived_columns(source.relation))
            return f"w{source.cte} AS r{source.relation}"
        case plan.Join():
            left = source_text(source.left, draft, in_order, by_key)
            right = source_text(source.right, draft)
            if isinstance(source.right, plan.Join):
                right = f"({right})"
            on = f" ON {expressions.condition(source.on, draft)}" if source.on is not None else ""
            return f"{left} {_JOINS[source.kind]} {right}{on}"


def scan_text(table: Table, relation: int, indexed_by: Index | None, draft: Draft) -> str:
    hint = f" INDEXED BY {quoted(table.physical_index(indexed_by))}" if indexed_by is not None else ""
    return f"{draft.table(table)} AS r{relation}{hint}"


def _by_key(table: Table) -> str:
    if table.rowid_column is not None:
        return " NOT INDEXED"
    return f" INDEXED BY {quoted(f'sqlite_autoindex_{table.physical}_1')}"
