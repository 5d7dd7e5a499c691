"""FROM: tables, CTEs, subqueries and joins become relations that have a number and offer columns.

Here: bind_source(), and the checks of INDEXED BY.
Not here: finding a column among them (scope.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from shoal.catalog.rights import Privilege
from shoal.catalog.schema import Index, Table
from shoal.errors import DuplicateAlias, InvalidColumnReference, UndefinedObject, WrongObjectType
from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.expressions import Clause, Expressions
from shoal.sql.bind.outputs import nullables
from shoal.sql.bind.pg_catalog import constant_relation
from shoal.sql.bind.scope import Relation, RelationColumn, Scope, relation_of_table

Relations: TypeAlias = tuple[Relation, ...]


def bind_source(
    binding: Binding, item: ast.FromItem, outer: Scope, beside: Relations = ()
) -> tuple[plan.Source, Relations]:
    """`outer` is what a subquery in FROM sees: not its neighbours. `beside` are names taken already."""
    source, relations = _bind(binding, item, outer)
    taken: set[str] = set()
    for relation in (*beside, *relations):
        if relation.name in taken:
            raise DuplicateAlias(
                f'table name "{relation.name}" specified more than once', position=relation.at + 1
            )
        taken.add(relation.name)
    return source, relations


def _bind(binding: Binding, item: ast.FromItem, outer: Scope) -> tuple[plan.Source, Relations]:
    match item:
        case ast.TableRef():
            return _table(binding, item, outer)
        case ast.SubqueryRef():
            return _subquery(binding, item, outer)
        case ast.Join():
            return _join(binding, item, outer)


def _table(binding: Binding, item: ast.TableRef, outer: Scope) -> tuple[plan.Source, Relations]:
    name = item.name.text if item.schema is None else f"{item.schema.text}.{item.name.text}"
    shown = item.name.text if item.alias is None else item.alias.text
    cte = outer.ctes.get(name)
    source: plan.Source
    if cte is not None:
        if item.indexed_by is not None:
            raise WrongObjectType(
                "invalid index: INDEXED BY clause is only supported for tables",
                position=item.indexed_by.at + 1,
            )
        relation = Relation(binding.next_relation(), shown, cte.columns, item.at)
        source = plan.CteScan(relation.number, cte.number, shown)
    elif name not in binding.schema.tables and (constants := constant_relation(name)) is not None:
        relation = Relation(binding.next_relation(), shown, columns_of(constants), item.at)
        source = plan.Derived(relation.number, constants, shown)
    else:
        table = binding.table(name, item.at, Privilege.READ)
        relation = relation_of_table(binding.next_relation(), shown, table, item.at)
        source = plan.Scan(
            relation.number,
            table,
            shown,
            None if item.alias is None else item.alias.text,
            index_named(binding, table, item.indexed_by),
        )
    return source, (with_names(relation, item.column_aliases),)


def index_named(binding: Binding, table: Table, name: ast.Name | None) -> Index | None:
    """What INDEXED BY asks for; None is the primary key, or that nothing is asked for."""
    if name is None or name.text == f"{table.name}_pkey":
        return None
    found = binding.schema.indexes.get(name.text)
    if found is None:
        raise UndefinedObject(f"index {name.text} not found", position=name.at + 1)
    owner, index = found
    if owner.id != table.id:
        raise UndefinedObject(f"index '{name.text}' for table '{table.name}' not found", position=name.at + 1)
    return index


def with_names(relation: Relation, names: tuple[ast.Name, ...]) -> Relation:
    """t (a, b): other names for the first columns."""
    if len(names) > len(relation.columns):
        raise InvalidColumnReference(
            f'table "{relation.name}" has {len(relation.columns)} columns available '
            f"but {len(names)} columns specified",
            position=names[0].at + 1,
        )
    if not names:
        return relation
    renamed = tuple(
        replace(column, name=name.text) for column, name in zip(relation.columns, names, strict=False)
    )
    return replace(relation, columns=renamed + relation.columns[len(names) :])


def columns_of(query: plan.Query) -> tuple[RelationColumn, ...]:
    return tuple(
        RelationColumn(name, t, maybe)
        for name, t, maybe in zip(query.names, query.types, nullables(query), strict=True)
    )


def _subquery(binding: Binding, item: ast.SubqueryRef, outer: Scope) -> tuple[plan.Source, Relations]:
    query = binding.subquery(item.query, outer)
    name = binding.next_subquery_name() if item.alias is None else item.alias.text
    relation = Relation(binding.next_relation(), name, columns_of(query), item.at)
    source = plan.Derived(relation.number, query, None if item.alias is None else name)
    return source, (with_names(relation, item.column_aliases),)


def _join(binding: Binding, item: ast.Join, outer: Scope) -> tuple[plan.Source, Relations]:
    left, left_relations = _bind(binding, item.left, outer)
    right, right_relations = _bind(binding, item.right, outer)
    on: plan.Expr | None = None
    if item.on is not None:
        scope = outer.inside((*left_relations, *right_relations))
        on = Expressions(binding, scope, Clause.ON).condition(item.on)
    kind = item.kind
    if kind is ast.JoinKind.LEFT:
        right_relations = tuple(relation.with_missing_rows() for relation in right_relations)
    elif kind is ast.JoinKind.RIGHT:
        # The order of the relations stays, and so does the meaning of `*`.
        kind, left, right = ast.JoinKind.LEFT, right, left
        left_relations = tuple(relation.with_missing_rows() for relation in left_relations)
    return plan.Join(kind, left, right, on), (*left_relations, *right_relations)
