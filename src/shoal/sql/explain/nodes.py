"""The logical plan: relational operators, each on a line, its inputs indented below it.

Here: logical_plan().
Not here: expressions (expressions.py), headings (facets.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shoal.catalog.schema import BUCKET_ID, BUCKET_ID_NAME, Table
from shoal.sql import plan
from shoal.sql.ast import ConflictAction, JoinKind
from shoal.sql.explain.expressions import ExpressionText, identifier
from shoal.sql.walk import rewritten
from shoal.types.sqltype import BOOLEAN, SqlType

_TRUE = plan.Const(1, BOOLEAN)


def logical_plan(bound: plan.Bound, *, fmt: bool = False) -> list[str]:
    return _Plan(fmt).lines(bound.root)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that a part of the plan gives."""

    text: str  # as it is called inside, without its type
    name: str
    type: SqlType


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


class _Plan:
    def __init__(self, fmt: bool) -> None:
        self._fmt = fmt
        self._expressions = ExpressionText(self._number_subquery)
        self._subqueries: list[list[str]] = []
        self._ctes: dict[int, tuple[str, str]] = {}  # name, subquery

    def lines(self, root: plan.Query | plan.Dml) -> list[str]:
        match root:
            case plan.Query():
                lines = self._query(root)
            case plan.Insert():
                lines = self._insert(root)
            case plan.Update():
                lines = self._update(root)
            case plan.Delete():
                lines = self._delete(root)
        at = 0
        while at < len(self._subqueries):
            lines += [f"subquery ${at}:", *_indented(self._subqueries[at])]
            at += 1
        return lines

    def _number_subquery(self, query: plan.Query) -> str:
        number = len(self._subqueries)
        self._subqueries.append([])
        self._subqueries[number] = self._query(query)
        return f"${number}"

    def _list(self, node: str, items: list[str], behind: str = "") -> list[str]:
        """`node (a, b)`; with FMT, an item per line."""
        if not self._fmt:
            return [f"{node} ({', '.join(items)}){behind}"]
        listed = [f"  {item}{',' if n + 1 < len(items) else ''}" for n, item in enumerate(items)]
        return [f"{node} (", *listed, f"){behind}"]

    # --- queries ---

    def _query(self, query: plan.Query) -> list[str]:
        for cte in query.ctes:
            self._ctes[cte.number] = (cte.name, self._number_subquery(cte.query))
        lines = self._body(query.body)
        if query.order_by:
            lines = self._ordered(query, lines)
        if query.limit is not None or query.offset is not None:
            limit = "all" if query.limit is None else self._count(query.limit)
            offset = "" if query.offset is None else f" offset {self._count(query.offset)}"
            lines = [f"limit {limit}{offset}", *_indented(lines)]
        return lines

    def _count(self, expr: plan.Expr) -> str:
        return str(expr.value) if isinstance(expr, plan.Const) else self._expressions.text(expr)

    def _ordered(self, query: plan.Query, lines: list[str]) -> list[str]:
        outputs = [
            f"{identifier(name)}::{t} -> {identifier(name)}"
            for name, t in zip(query.names, query.types, strict=True)
        ]
        keys = [self._sort_key(key, query) for key in query.order_by]
        return [
            *self._list("projection", outputs),
            *_indented([*self._list("order by", keys), "  scan", *_indented(_indented(lines))]),
        ]

    def _sort_key(self, key: plan.SortKey, query: plan.Query) -> str:
        if isinstance(key.expr, plan.OutputRef):
            text = f"{identifier(query.names[key.expr.ordinal])}::{key.expr.type}"
        else:
            text = self._expressions.text(_with_outputs(key.expr, query))
        nulls = (
            "" if key.nulls_first != key.descending else f" nulls {'first' if key.nulls_first else 'last'}"
        )
        return f"{text}{' desc' if key.descending else ''}{nulls}"

    def _body(self, body: plan.Body) -> list[str]:
        match body:
            case plan.Block():
                return self._block(body)
            case plan.ValuesRows():
                rows = [f"value ROW({self._expressions.listed(row)})" for row in body.rows]
                return ["values", *_indented(rows)]
            case plan.SetOperation():
                name = body.kind.value + (" all" if body.all else "")
                return [name, *_indented(self._body(body.left)), *_indented(self._body(body.right))]
            case plan.Query():
                return self._query(body)

    def _block(self, block: plan.Block) -> list[str]:
        below = self._filtered(block.source, block.where)
        if block.group_by:
            columns = [f"{c.text}::{c.type} -> {identifier(c.name)}" for c in self._columns(block.source)]
            keys = [self._expressions.text(key) for key in block.group_by]
            below = [*self._grouped(keys, columns), *_indented(below)]
        if block.having is not None:
            below = [f"having ({self._expressions.text(block.having)})", *_indented(below)]
        outputs = [
            f"{self._expressions.text(output.expr)} -> {identifier(output.name)}" for output in block.outputs
        ]
        node = "projection distinct" if block.distinct else "projection"
        return [*self._list(node, outputs), *_indented(below)]

    def _grouped(self, keys: list[str], columns: list[str]) -> list[str]:
        if not self._fmt:
            return [f"group by ({', '.join(keys)}) output ({', '.join(columns)})"]
        return [*self._list("group by", keys)[:-1], *self._list(") output", columns)]

    def _filtered(self, source: plan.Source | None, where: plan.Expr | None) -> list[str]:
        below = [] if source is None else self._source(source)
        if where is None:
            return below
        return [f"selection ({self._expressions.text(where)})", *_indented(below)]

    # --- sources ---

    def _source(self, source: plan.Source) -> list[str]:
        match source:
            case plan.Scan():
                self._expressions.name_relation(source.relation, source.name)
                alias = f" -> {identifier(source.alias)}" if source.alias is not None else ""
                index = f" (indexed by {identifier(source.indexed_by.name)})" if source.indexed_by else ""
                return [f"scan {identifier(source.table.name)}{alias}{index}"]
            case plan.Derived():
                name = source.name or "unnamed_subquery"
                self._expressions.name_relation(source.relation, name)
                return [f"scan {identifier(name)}", *_indented(self._query(source.query))]
            case plan.CteScan():
                self._expressions.name_relation(source.relation, source.name)
                name, subquery = self._ctes[source.cte]
                alias = "" if source.name == name else f" -> {identifier(source.name)}"
                return [f"scan cte {identifier(name)}({subquery}){alias}"]
            case plan.Join():
                left, right = self._source(source.left), self._source(source.right)
                node = "left join" if source.kind is JoinKind.LEFT else "join"
                condition = self._expressions.text(source.on if source.on is not None else _TRUE)
                return [f"{node} on ({condition})", *_indented(left), *_indented(right)]

    def _columns(self, source: plan.Source | None) -> Iterator[_Column]:
        match source:
            case plan.Scan():
                for name, t in _table_columns(source.table):
                    yield _Column(self._expressions.column(source.relation, name), name, t)
            case plan.Derived():
                for name, t in zip(source.query.names, source.query.types, strict=True):
                    yield _Column(self._expressions.column(source.relation, name), name, t)
            case plan.Join():
                yield from self._columns(source.left)
                yield from self._columns(source.right)
            case _:
                return

    # --- changes ---

    def _insert(self, change: plan.Insert) -> list[str]:
        action = ConflictAction.FAIL if change.on_conflict is None else change.on_conflict.action
        return [
            f"insert into {identifier(change.table.name)} on conflict: {action.value}",
            *_indented(self._query(change.source)),
        ]

    def _update(self, change: plan.Update) -> list[str]:
        scan = plan.Scan(change.relation, change.table, change.table.name, None, change.indexed_by)
        source: plan.Source = scan
        if change.source is not None:
            source = plan.Join(JoinKind.INNER, scan, change.source, None)
        below = self._filtered(source, change.where)
        names = [identifier(change.table.by_number[s.column].name) for s in change.sets]
        sets = ", ".join(f"{name} = col_{n}" for n, name in enumerate(names))
        outputs = [f"{self._expressions.text(s.value)} -> col_{n}" for n, s in enumerate(change.sets)]
        outputs += [f"{key} -> col_{len(names) + n}" for n, key in enumerate(self._key(change))]
        return [
            f"update {identifier(change.table.name)} ({sets})",
            *_indented([*self._list("projection", outputs), *_indented(below)]),
        ]

    def _delete(self, change: plan.Delete) -> list[str]:
        scan = plan.Scan(change.relation, change.table, change.table.name, None, change.indexed_by)
        below = self._filtered(scan, change.where)
        keys = [f"{key} -> pk_col_{n}" for n, key in enumerate(self._key(change))]
        return [
            f"delete from {identifier(change.table.name)}",
            *_indented([*self._list("projection", keys), *_indented(below)]),
        ]

    def _key(self, change: plan.Update | plan.Delete) -> list[str]:
        columns = (change.table.by_number[number] for number in change.table.key_numbers)
        return [f"{self._expressions.column(change.relation, c.name)}::{c.type}" for c in columns]


def _table_columns(table: Table) -> Iterator[tuple[str, SqlType]]:
    """The hidden bucket_id stands behind the last column of the primary key."""
    in_key = [n for n, column in enumerate(table.columns) if column.number in table.key_numbers]
    last = in_key[-1] if in_key else -1
    for n, column in enumerate(table.columns):
        yield column.name, column.type
        if n == last and table.is_sharded:
            yield BUCKET_ID_NAME, table.by_number[BUCKET_ID].type


def _with_outputs(expr: plan.Expr, query: plan.Query) -> plan.Expr:
    def named(at: plan.Expr) -> plan.Expr:
        if isinstance(at, plan.OutputRef):
            return plan.Column(-1, at.ordinal, query.names[at.ordinal], at.type, nullable=True)
        return at

    return rewritten(expr, named)
