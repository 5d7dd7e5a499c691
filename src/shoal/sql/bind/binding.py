"""What one run of the binder knows, and finds out on its way.

Here: BindSettings, and Binding, the only thing that changes while a statement is bound. convert(), which
makes an expression one of another type, and computes what is constant.
Not here: what is converted to what, and why (coercion.py).

Constants are converted here and now, so that everything behind sees values: a key's bucket, a range's end.
A plan may be shared by texts that differ in literals only. A Const therefore names the literal that it came
from, as long as that literal alone, read as the Const's type, gives its value; where more happened to it,
its slot is pinned instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from shoal.catalog.rights import Privilege
from shoal.catalog.schema import Schema, Table
from shoal.errors import CannotCoerce, ShoalError, UndefinedTable
from shoal.sql import ast, plan
from shoal.sql.bind.coercion import Hint, plain
from shoal.sql.bind.parameters import Parameters
from shoal.sql.bind.scope import Scope
from shoal.sql.values import literal_value, natural_type
from shoal.types import casts
from shoal.types.datetimes import UTC, Zone
from shoal.types.sqltype import TEXT, SqlType

# Raises if who asks may not.
Permit: TypeAlias = Callable[[Privilege, Table], None]


def everything(privilege: Privilege, table: Table) -> None:
    """Permits it."""


@dataclass(frozen=True, slots=True)
class BindSettings:
    """What a literal's meaning, and current_setting(), depend on."""

    zone: Zone = UTC
    variables: Mapping[str, str] = field(default_factory=dict)


class Binding:
    def __init__(
        self,
        schema: Schema,
        oids: Sequence[int],
        settings: BindSettings,
        bind_query: Callable[[Binding, ast.Query, Scope, Sequence[SqlType | None]], plan.Query],
        permit: Permit,
    ) -> None:
        self.schema = schema
        self.settings = settings
        self.parameters = Parameters(oids)
        self.tables: dict[int, Table] = {}  # in order of appearance
        self.needs: dict[tuple[Privilege, int], Table] = {}
        self.pinned: set[int] = set()
        self.volatile = False
        self.private = False
        self.depth = 0  # of the expression that is being bound
        self._bind_query = bind_query
        self._permit = permit
        self._relations = self._ctes = self._unnamed = 0
        self._literals: dict[int, ast.Literal] = {}  # by slot
        self._subqueries: dict[int, plan.Query] = {}  # by the identity of their syntax
        self._hints: dict[int, Hint] = {}
        self._places: dict[int, tuple[plan.Column, int]] = {}

    # --- names and numbers ---

    def next_relation(self) -> int:
        self._relations += 1
        return self._relations - 1

    def next_cte(self) -> int:
        self._ctes += 1
        return self._ctes - 1

    def next_subquery_name(self) -> str:
        self._unnamed += 1
        return "unnamed_subquery" if self._unnamed == 1 else f"unnamed_subquery_{self._unnamed - 1}"

    def table(self, name: str, at: int, *privileges: Privilege) -> Table:
        """The table of that name, which the statement needs these privileges on. They are asked for before anybody looks
        at its columns: who may not use a table doesn't learn from errors what is in it."""
        table = self.schema.tables.get(name)
        if table is None:
            raise UndefinedTable(f'table with name "{name}" not found', position=at + 1)
        for privilege in privileges:
            self.need(privilege, table, at)
        self.tables.setdefault(table.id, table)
        return table

    def need(self, privilege: Privilege, table: Table, at: int) -> None:
        with error_at(at):
            self._permit(privilege, table)
        self.needs.setdefault((privilege, table.id), table)

    # --- subqueries ---

    def subquery(self, query: ast.Query, scope: Scope, desired: Sequence[SqlType | None] = ()) -> plan.Query:
        """Bound once, by whoever comes first: that may be somebody who only wants to know its type."""
        found = self._subqueries.get(id(query))
        if found is None:
            found = self._subqueries[id(query)] = self._bind_query(self, query, scope, desired)
        return found

    # --- hints ---

    def known_hint(self, node: ast.Expr) -> Hint | None:
        return self._hints.get(id(node))

    def keep_hint(self, node: ast.Expr, hint: Hint) -> Hint:
        self._hints[id(node)] = hint
        return hint

    def forget_hints(self) -> None:
        """A parameter has got its type: what was unknown may be known now."""
        self._hints.clear()

    # --- places ---

    def placed(self, column: plan.Column, at: int) -> plan.Column:
        """Remembers where a column was named, for errors that are found later."""
        self._places[id(column)] = (column, at)  # keeps it alive, so that its id stays its own
        return column

    def position_of(self, column: plan.Column) -> int | None:
        found = self._places.get(id(column))
        return None if found is None else found[1] + 1

    # --- constants ---

    def literal(self, node: ast.Literal, wanted: SqlType) -> plan.Const:
        self._literals[node.slot] = node
        if (
            node.kind is ast.LiteralKind.INTEGER
            and natural_type(node.kind, node.text, node.negative).is_decimal
        ):
            self.pinned.add(node.slot)  # a smaller number would be an INT
        with error_at(node.at):
            value = literal_value(node.kind, node.text, node.negative, wanted, self.settings.zone)
        return plan.Const(value, wanted, plan.LiteralSource(node.slot, node.kind, node.negative))

    def convert(self, expr: plan.Expr, target: SqlType, at: int | None, implicit: bool) -> plan.Expr:
        """The expression as one of the target type, which it can be cast to."""
        if expr.type == target:
            return expr
        if isinstance(expr, plan.Const):
            return self._converted(expr, target, at)
        if casts.cast(expr.type, target, self.settings.zone) is None:
            raise cannot_cast(expr.type, target, at)
        return plan.Cast(expr, target, implicit)

    def _converted(self, const: plan.Const, target: SqlType, at: int | None) -> plan.Const:
        if const.value is None:
            return plan.Const(None, target)
        source = const.source
        if source is not None:
            node = self._literals[source.slot]
            natural = (
                TEXT
                if source.kind is ast.LiteralKind.STRING
                else natural_type(source.kind, node.text, node.negative)
            )
            # A string literal converts straight to what it is read as. What it is read as and then cast to
            # (DECIMAL, then DECIMAL(10, 2)) comes out the same, as long as both hold the same values.
            straight = (const.type == natural and source.kind is not ast.LiteralKind.STRING) or (
                const.type.same_values(target) and const.type == plain(const.type)
            )
            if straight:
                return self.literal(node, target)
            self.pinned.add(source.slot)
        cast = casts.cast(const.type, target, self.settings.zone)
        if cast is None:
            raise cannot_cast(const.type, target, at)
        with error_at(at):
            return plan.Const(cast(const.value), target)


@contextmanager
def error_at(at: int | None) -> Iterator[None]:
    """Errors of values don't know where the value stands in the text."""
    try:
        yield
    except ShoalError as error:
        if error.position is None and at is not None:
            error.position = at + 1
        raise


def cannot_cast(source: SqlType, target: SqlType, at: int | None) -> CannotCoerce:
    error = CannotCoerce(f"Failed to cast {source.error_name} to {target.error_name}")
    error.position = None if at is None else at + 1
    return error
