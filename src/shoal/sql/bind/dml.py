"""INSERT, UPDATE, DELETE: which columns get which values, and what may not be changed.

Here: bind_insert(), bind_update(), bind_delete().
Not here: what a conflict does (local/), moving a row whose bucket changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shoal.catalog.rights import Privilege
from shoal.catalog.schema import BUCKET_ID, BUCKET_ID_NAME, Column, Sharded, Table
from shoal.errors import (
    DatatypeMismatch,
    DuplicateColumn,
    FeatureNotSupported,
    InvalidColumnReference,
    NotNullViolation,
    SqlSyntaxError,
)
from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.coercion import implicit, shown
from shoal.sql.bind.expressions import Clause, Expressions, place
from shoal.sql.bind.outputs import query_as
from shoal.sql.bind.query import bind_ctes, bind_outputs, bind_query, values_name
from shoal.sql.bind.scope import Relation, Scope, relation_of_table, undefined
from shoal.sql.bind.sources import bind_source, index_named
from shoal.types.sqltype import Kind, SqlType

EXCLUDED = "excluded"


def _target(
    binding: Binding, name: ast.Name, alias: ast.Name | None, *privileges: Privilege
) -> tuple[Table, Relation]:
    table = binding.table(name.text, name.at, *privileges)
    shown_as = name.text if alias is None else alias.text
    return table, relation_of_table(binding.next_relation(), shown_as, table)


def _column(table: Table, name: ast.Name) -> Column:
    column = table.by_name.get(name.text)
    if column is None:
        raise undefined(name.text, name.at)
    return column


# --- INSERT --------------------------------------------------------------------------------------


def bind_insert(binding: Binding, node: ast.Insert) -> plan.Insert:
    table, relation = _target(binding, node.table, node.alias, *_inserting(node))
    columns = _insert_columns(table, node.columns)
    listed = {column.number for column in columns}
    for column in table.columns:
        if column.number not in listed and not column.nullable:
            raise NotNullViolation(f'column "{column.name}" must be specified', position=node.table.at + 1)
    source = _insert_source(binding, node.source, columns)
    on_conflict = None
    if node.on_conflict is not None:
        on_conflict = _on_conflict(binding, node.on_conflict, table, relation)
    scope = Scope((relation,))
    returning = bind_outputs(binding, node.returning, scope, Clause.RETURNING)
    return plan.Insert(
        table, relation.number, tuple(column.number for column in columns), source, on_conflict, returning
    )


def _inserting(node: ast.Insert) -> tuple[Privilege, ...]:
    """Rows that were there before are seen by DO UPDATE, and RETURNING is a kind of reading."""
    sees_rows = node.on_conflict is not None and node.on_conflict.action is ast.ConflictAction.UPDATE
    return (Privilege.WRITE, Privilege.READ) if sees_rows or node.returning else (Privilege.WRITE,)


def _insert_columns(table: Table, names: tuple[ast.Name, ...]) -> tuple[Column, ...]:
    if not names:
        return table.columns
    columns: list[Column] = []
    for name in names:
        column = _column(table, name)
        if column.number == BUCKET_ID:
            raise FeatureNotSupported(
                f'failed to insert: system column "{BUCKET_ID_NAME}" cannot be inserted', position=name.at + 1
            )
        if column in columns:
            raise DuplicateColumn(f'column "{name.text}" specified more than once', position=name.at + 1)
        columns.append(column)
    return tuple(columns)


def _insert_source(binding: Binding, query: ast.Query, columns: tuple[Column, ...]) -> plan.Query:
    types = tuple(column.type for column in columns)
    if isinstance(query.body, ast.Values) and not (query.order_by or query.limit or query.offset):
        scope, ctes = bind_ctes(binding, query.ctes, Scope())
        rows = tuple(_insert_row(binding, row, columns, scope, query.body.at) for row in query.body.rows)
        names = tuple(values_name(i) for i in range(len(columns)))
        values = plan.ValuesRows(names, types, rows)
        return plan.Query(ctes, values, (), None, None, names, types)
    source = bind_query(binding, query, Scope(), types)
    _check_count(len(source.types), len(columns), query.at)
    for i, (column, given) in enumerate(zip(columns, source.types, strict=True)):
        wanted = column.type
        if not (given.same_values(wanted) or implicit(given, wanted) or wanted.kind is Kind.ANY):
            raise _insert_mismatch(i, wanted, given, query.at)
    return query_as(binding, source, types, narrow=True)


def _check_count(given: int, wanted: int, at: int) -> None:
    if given != wanted:
        raise SqlSyntaxError(
            f"invalid number of values: INSERT expects {wanted} columns, got {given}", position=at + 1
        )


def _insert_row(
    binding: Binding, row: tuple[ast.Expr, ...], columns: tuple[Column, ...], scope: Scope, at: int
) -> tuple[plan.Expr, ...]:
    _check_count(len(row), len(columns), row[0].at if row else at)
    values: list[plan.Expr] = []
    for i, (node, column) in enumerate(zip(row, columns, strict=True)):
        if isinstance(node, ast.Default):
            values.append(plan.Const(None, column.type))
            continue
        expressions = Expressions(binding, scope, Clause.VALUES)
        with binding.parameters.unit():
            bound = expressions.bind(node, column.type)
            value = expressions.assigned(bound, column.type, place(node))
        if value is None:
            raise _insert_mismatch(i, column.type, bound.type, place(node))
        values.append(value)
    return tuple(values)


def _insert_mismatch(ordinal: int, wanted: SqlType, given: SqlType, at: int) -> DatatypeMismatch:
    return DatatypeMismatch(
        f"INSERT column at position {ordinal + 1} is of type {shown(wanted)}, "
        f"but expression is of type {shown(given)}",
        position=at + 1,
    )


# --- ON CONFLICT ---------------------------------------------------------------------------------


def _on_conflict(binding: Binding, node: ast.OnConflict, table: Table, relation: Relation) -> plan.Upsert:
    excluded = relation_of_table(binding.next_relation(), EXCLUDED, table)
    target = _conflict_target(table, node)
    if node.action is not ast.ConflictAction.UPDATE:
        return plan.Upsert(node.action, target, (), None, excluded.number)
    if not target:
        raise SqlSyntaxError("ON CONFLICT DO UPDATE requires its columns", position=node.at + 1)
    scope = Scope((relation, replace(excluded, qualified_only=True)))
    where = None
    if node.where is not None:
        where = Expressions(binding, scope, Clause.WHERE).condition(node.where)
    sets = _sets(binding, node.assignments, table, scope)
    distributed = table.distribution.key if isinstance(table.distribution, Sharded) else ()
    for assignment, changed in zip(node.assignments, sets, strict=True):
        if changed.column in distributed:
            raise FeatureNotSupported(
                f'it is illegal to update sharding key column: "{assignment.column.text}"',
                position=assignment.column.at + 1,
            )
    return plan.Upsert(node.action, target, sets, where, excluded.number)


def _conflict_target(table: Table, node: ast.OnConflict) -> tuple[int, ...]:
    """Exactly the primary key or a unique index, in any order."""
    if not node.target:
        return ()
    named = {_column(table, name).number for name in node.target}
    key = table.key_numbers
    if named == set(key):
        return key
    # A key that begins with the bucket is as unique without it, if the bucket follows from the rest.
    rest = set(key) - {BUCKET_ID}
    if named == rest and isinstance(table.distribution, Sharded) and set(table.distribution.key) <= rest:
        return key
    for index in table.indexes:
        if index.unique and named == {part.column for part in index.parts}:
            return tuple(part.column for part in index.parts)
    raise InvalidColumnReference(
        "there is no primary key or unique index matching the ON CONFLICT specification",
        position=node.target[0].at + 1,
    )


# --- UPDATE, DELETE ------------------------------------------------------------------------------


def bind_update(binding: Binding, node: ast.Update) -> plan.Update:
    table, relation = _target(binding, node.table, node.alias, Privilege.READ, Privilege.WRITE)
    index = index_named(binding, table, node.indexed_by)
    source: plan.Source | None = None
    relations: tuple[Relation, ...] = (relation,)
    if node.source is not None:
        source, others = bind_source(binding, node.source, Scope(), beside=relations)
        relations += others
    scope = Scope(relations)
    # The filter says more about a parameter than an assignment, which can convert.
    where = None
    if node.where is not None:
        where = Expressions(binding, scope, Clause.WHERE).condition(node.where)
    sets = _sets(binding, node.assignments, table, scope)
    returning = bind_outputs(binding, node.returning, scope, Clause.RETURNING)
    return plan.Update(table, relation.number, index, sets, source, where, returning)


def _sets(
    binding: Binding, assignments: Sequence[ast.Assignment], table: Table, scope: Scope
) -> tuple[plan.Set, ...]:
    sets: list[plan.Set] = []
    for assignment in assignments:
        name = assignment.column
        column = _column(table, name)
        if column.number == BUCKET_ID:
            raise FeatureNotSupported(
                f'failed to update column: system column "{BUCKET_ID_NAME}" cannot be updated',
                position=name.at + 1,
            )
        if column.number in table.key_numbers:
            raise FeatureNotSupported(
                f'it is illegal to update primary key column: "{name.text}"', position=name.at + 1
            )
        if any(other.column == column.number for other in sets):
            raise SqlSyntaxError("The same column is specified twice in update list", position=name.at + 1)
        sets.append(plan.Set(column.number, _assigned(binding, assignment.value, column, scope)))
    return tuple(sets)


def _assigned(binding: Binding, node: ast.Expr, column: Column, scope: Scope) -> plan.Expr:
    if isinstance(node, ast.Default):
        return plan.Const(None, column.type)
    expressions = Expressions(binding, scope, Clause.SET)
    with binding.parameters.unit():
        bound = expressions.bind(node, column.type)
        value = expressions.assigned(bound, column.type, place(node))
    if value is None:
        raise DatatypeMismatch(
            f'column "{column.name}" is of type {shown(column.type)}, '
            f"but expression is of type {shown(bound.type)}",
            position=place(node) + 1,
        )
    return value


def bind_delete(binding: Binding, node: ast.Delete) -> plan.Delete:
    table, relation = _target(binding, node.table, node.alias, Privilege.READ, Privilege.WRITE)
    index = index_named(binding, table, node.indexed_by)
    scope = Scope((relation,))
    where = None
    if node.where is not None:
        where = Expressions(binding, scope, Clause.WHERE).condition(node.where)
    returning = bind_outputs(binding, node.returning, scope, Clause.RETURNING)
    return plan.Delete(table, relation.number, index, where, returning)
