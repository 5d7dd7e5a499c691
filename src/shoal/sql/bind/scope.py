"""Which names mean what, in one place of a statement.

Here: Relation, what one item of FROM offers; Scope, the relations of one SELECT inside those of its outer
queries; finding a column by name.
Not here: making relations from a FROM (sources.py), from CTEs (query.py).

An inner scope hides an outer one name by name: a column is looked for in the inner relations first. Found
there twice it is ambiguous, found nowhere it is looked for outside, and the inner query is correlated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shoal.catalog.schema import BUCKET_ID_NAME, Table
from shoal.errors import AmbiguousColumn, UndefinedColumn, UndefinedTable
from shoal.sql import ast, plan
from shoal.types.sqltype import INT, SqlType


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: SqlType
    nullable: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """What an item of FROM offers. All have a name; a subquery may have one that nobody wrote."""

    number: int
    name: str
    columns: tuple[RelationColumn, ...]
    at: int = 0  # where it stands in the text
    has_bucket: bool = False  # a sharded table: its bucket_id is there by name only
    outer_joined: bool = False  # its rows may be missing, and its columns NULL then
    qualified_only: bool = False  # EXCLUDED: its columns hide nothing

    def column(self, ordinal: int) -> plan.Column:
        if ordinal == plan.HIDDEN_BUCKET:
            return plan.Column(self.number, ordinal, BUCKET_ID_NAME, INT, self.outer_joined)
        column = self.columns[ordinal]
        return plan.Column(
            self.number, ordinal, column.name, column.type, column.nullable or self.outer_joined
        )

    def find(self, name: str, at: int) -> plan.Column | None:
        found: int | None = None
        for ordinal, column in enumerate(self.columns):
            if column.name == name:
                if found is not None:
                    raise ambiguous(name, at)
                found = ordinal
        if found is None and name == BUCKET_ID_NAME and self.has_bucket:
            found = plan.HIDDEN_BUCKET
        return None if found is None else self.column(found)

    def all_columns(self) -> tuple[plan.Column, ...]:
        """What `*` means: without the hidden one."""
        return tuple(self.column(ordinal) for ordinal in range(len(self.columns)))

    def with_missing_rows(self) -> Relation:
        return replace(self, outer_joined=True)


def relation_of_table(number: int, name: str, table: Table, at: int = 0) -> Relation:
    columns = tuple(
        RelationColumn(column.name, INT if column.type.unsigned else column.type, column.nullable)
        for column in table.columns
    )
    return Relation(number, name, columns, at, table.is_sharded)


@dataclass(frozen=True, slots=True)
class CteInScope:
    number: int
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    relations: tuple[Relation, ...] = ()
    parent: Scope | None = None
    ctes: Mapping[str, CteInScope] = field(default_factory=dict)
    # Of GROUP BY and ORDER BY: the select list's aliases, for names that no relation here has.
    aliases: Mapping[str, ast.Expr] = field(default_factory=dict)

    def inside(self, relations: tuple[Relation, ...]) -> Scope:
        return Scope(relations, self, self.ctes)

    def own_column(self, name: str, at: int) -> plan.Column | None:
        """An unqualified column of this scope's own relations."""
        found: plan.Column | None = None
        for relation in self.relations:
            if relation.qualified_only:
                continue
            column = relation.find(name, at)
            if column is not None:
                if found is not None:
                    raise ambiguous(name, at)
                found = column
        return found

    def relation(self, name: str) -> Relation | None:
        scope: Scope | None = self
        while scope is not None:
            for relation in scope.relations:
                if relation.name == name:
                    return relation
            scope = scope.parent
        return None

    def column(self, reference: ast.ColumnRef) -> plan.Column | ast.Expr:
        """What the name means: a column, or the select list's expression that has it as its alias."""
        name, at = reference.column.text, reference.at
        if reference.table is not None:
            relation = self.relation(reference.table.text)
            if relation is None:
                raise UndefinedTable(f'table with name "{reference.table.text}" not found', position=at + 1)
            column = relation.find(name, at)
            if column is None:
                raise undefined(name, at)
            return column
        scope: Scope | None = self
        while scope is not None:
            column = scope.own_column(name, at)
            if column is not None:
                return column
            if scope is self and name in scope.aliases:
                return scope.aliases[name]
            scope = scope.parent
        raise undefined(name, at)

    @property
    def own_numbers(self) -> frozenset[int]:
        return frozenset(relation.number for relation in self.relations)

    def without_aliases(self) -> Scope:
        return replace(self, aliases={}) if self.aliases else self


def undefined(name: str, at: int) -> UndefinedColumn:
    return UndefinedColumn(f'column with name "{name}" not found', position=at + 1)


def ambiguous(name: str, at: int) -> AmbiguousColumn:
    return AmbiguousColumn(f'column reference "{name}" is ambiguous', position=at + 1)


__all__ = [
    "CteInScope",
    "Relation",
    "RelationColumn",
    "Scope",
    "ambiguous",
    "relation_of_table",
    "undefined",
]
