"""A bound statement as text, one line per part, for scripts to compare.

    select a = t0.a text, col_1 = +(t0.id, 1:int#0) int
    from t t0
    where =(t0.id, $1:int)
    parameters int

Relations are shown as t<number>, constants with their type and the slot of the literal that they came from,
casts that nobody wrote as `~type(…)`. A trailing ! marks an output that can't be NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.catalog.schema import Table
from shoal.sql import plan
from shoal.sql.ast import ConflictAction, JoinKind
from shoal.types import decimals
from shoal.types.datetimes import to_iso
from shoal.types.sqltype import SqlType
from shoal.types.text import cast_text
from shoal.types.values import Stored

__all__ = ["bound_text"]


def bound_text(bound: plan.Bound) -> str:
    lines = list(_root(bound.root))
    options = bound.options
    if options != plan.Options():
        said = [
            f"{name}={_expr(value) if isinstance(value, plan.Const | plan.Param) else value}"
            for name, value in (
                ("vdbe_opcode_max", options.vdbe_opcode_max),
                ("motion_row_max", options.motion_row_max),
                ("read_preference", options.read_preference),
                ("forward", options.forward),
            )
            if value is not None
        ]
        lines.append("option " + ", ".join(said))
    if bound.parameters:
        inferred = [
            _type(t) if oid == t.oid else f"{_type(t)} (oid {oid})"
            for t, oid in zip(bound.parameters, bound.parameter_oids, strict=True)
        ]
        lines.append("parameters " + ", ".join(inferred))
    if bound.pinned:
        lines.append("pinned " + " ".join(f"#{slot}" for slot in sorted(bound.pinned)))
    lines += ["volatile"] * bound.volatile + ["private"] * bound.private
    return "\n".join(lines)


def _type(t: SqlType) -> str:
    return t.sql_name if t.precision is not None or t.unsigned else t.error_name


def _root(root: plan.Query | plan.Dml) -> Iterator[str]:
    match root:
        case plan.Query():
            yield from _query(root)
        case plan.Insert():
            columns = _columns(root.table, root.columns)
            yield f"insert into {root.table.name} t{root.relation} ({columns})"
            yield from _inside(_query(root.source))
            if root.on_conflict is not None:
                yield from _upsert(root.on_conflict, root.table)
            yield from _returning(root.returning)
        case plan.Update():
            yield f"update {root.table.name} t{root.relation}{_index(root.indexed_by)}"
            yield "set " + _sets(root.sets, root.table)
            if root.source is not None:
                yield "from " + _source(root.source)
            yield from _where(root.where)
            yield from _returning(root.returning)
        case plan.Delete():
            yield f"delete from {root.table.name} t{root.relation}{_index(root.indexed_by)}"
            yield from _where(root.where)
            yield from _returning(root.returning)


def _columns(table: Table, numbers: tuple[int, ...]) -> str:
    return ", ".join(table.by_number[number].name for number in numbers)


def _sets(sets: tuple[plan.Set, ...], table: Table) -> str:
    return ", ".join(f"{table.by_number[s.column].name} = {_expr(s.value)}" for s in sets)


def _upsert(upsert: plan.Upsert, table: Table) -> Iterator[str]:
    target = f" ({_columns(table, upsert.target)})" if upsert.target else ""
    yield f"on conflict{target} {upsert.action.value}"
    if upsert.action is ConflictAction.UPDATE:
        yield f"  excluded is t{upsert.excluded}"
        yield "  set " + _sets(upsert.sets, table)
        yield from _inside(_where(upsert.where))


def _where(where: plan.Expr | None) -> Iterator[str]:
    if where is not None:
        yield "where " + _expr(where)


def _returning(outputs: tuple[plan.Output, ...]) -> Iterator[str]:
    if outputs:
        yield "returning " + _outputs(outputs)


def _index(index: object) -> str:
    return "" if index is None else f" indexed by {getattr(index, 'name', '?')}"


def _inside(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _query(query: plan.Query) -> Iterator[str]:
    for cte in query.ctes:
        yield f"with c{cte.number} {cte.name}:"
        yield from _inside(_query(cte.query))
    yield from _body(query.body)
    if query.order_by:
        yield "order by " + ", ".join(
            _expr(key.expr)
            + " desc" * key.descending
            + (" nulls first" if key.nulls_first else " nulls last")
            for key in query.order_by
        )
    if query.limit is not None:
        yield "limit " + _expr(query.limit)
    if query.offset is not None:
        yield "offset " + _expr(query.offset)


def _body(body: plan.Body) -> Iterator[str]:
    match body:
        case plan.Block():
            yield "select " + "distinct " * body.distinct + _outputs(body.outputs)
            if body.source is not None:
                yield "from " + _source(body.source)
            yield from _where(body.where)
            if body.group_by:
                yield "group by " + ", ".join(map(_expr, body.group_by))
            elif body.grouped:
                yield "one group"
            if body.having is not None:
                yield "having " + _expr(body.having)
        case plan.ValuesRows():
            columns = zip(body.names, body.types, strict=True)
            yield "values " + ", ".join(f"{name} {_type(t)}" for name, t in columns)
            for row in body.rows:
                yield "  (" + ", ".join(map(_expr, row)) + ")"
        case plan.SetOperation():
            yield body.kind.value + " all" * body.all
            yield from _inside(_body(body.left))
            yield "and"
            yield from _inside(_body(body.right))
        case plan.Query():
            yield "query"
            yield from _inside(_query(body))


def _outputs(outputs: tuple[plan.Output, ...]) -> str:
    return ", ".join(
        f"{o.name} = {_expr(o.expr)} {_type(o.expr.type)}{'!' * (not o.nullable)}" for o in outputs
    )


def _source(source: plan.Source) -> str:
    match source:
        case plan.Scan():
            alias = "" if source.alias is None else f" as {source.alias}"
            return f"{source.table.name}{alias} t{source.relation}{_index(source.indexed_by)}"
        case plan.Derived():
            name = "" if source.name is None else f" as {source.name}"
            return f"{_nested(source.query)}{name} t{source.relation}"
        case plan.CteScan():
            return f"c{source.cte} as {source.name} t{source.relation}"
        case plan.Join():
            on = "" if source.on is None else f" on {_expr(source.on)}"
            right = _source(source.right)
            if isinstance(source.right, plan.Join):
                right = f"({right})"
            kind = "" if source.kind is JoinKind.INNER else source.kind.value + " "
            return f"{_source(source.left)} {kind}join {right}{on}"


def _nested(query: plan.Query) -> str:
    return "(" + " ".join(line.strip() for line in _query(query)) + ")"


def _list(name: str, exprs: tuple[plan.Expr, ...]) -> str:
    return f"{name}({', '.join(map(_expr, exprs))})"


def _expr(expr: plan.Expr) -> str:
    match expr:
        case plan.Const():
            source = "" if expr.source is None else f"#{expr.source.slot}"
            return f"{_value(expr.value, expr.type)}:{_type(expr.type)}{source}"
        case plan.Param():
            return f"${expr.number}:{_type(expr.type)}"
        case plan.Session():
            precision = "" if expr.precision is None else f"({expr.precision})"
            return f"@{expr.fact.value}{precision}:{_type(expr.type)}"
        case plan.Column():
            return f"t{expr.relation}.{expr.name}"
        case plan.OutputRef():
            return f"output {expr.ordinal}"
        case plan.Op():
            return _list(expr.op, expr.args)
        case plan.RowOp():
            return f"{expr.op}({_list('row', expr.left)}, {_list('row', expr.right)})"
        case plan.Cast():
            return f"{'~' * expr.implicit}{_type(expr.type)}({_expr(expr.arg)})"
        case plan.Call():
            return _list(expr.function, expr.args)
        case plan.Like():
            escape = "" if expr.escape is None else f" escape {_expr(expr.escape)}"
            return f"({_expr(expr.arg)} {'not ' * expr.negated}{expr.kind} {_expr(expr.pattern)}{escape})"
        case plan.Case():
            branches = "".join(f" when {_expr(when)} then {_expr(then)}" for when, then in expr.branches)
            otherwise = "" if expr.otherwise is None else f" else {_expr(expr.otherwise)}"
            return f"case{branches}{otherwise} end"
        case plan.InList():
            return f"({_expr(expr.arg)} {'not ' * expr.negated}in {_list('', expr.items)})"
        case plan.InArray():
            return f"({_expr(expr.arg)} {'not ' * expr.negated}in array {_expr(expr.array)})"
        case plan.InQuery():
            return f"({_list('', expr.args)} {'not ' * expr.negated}in {_nested(expr.query)})"
        case plan.Exists():
            return f"exists {_nested(expr.query)}"
        case plan.ScalarQuery():
            return _nested(expr.query)
        case plan.ArrayOf():
            return f"array[{', '.join(map(_expr, expr.items))}]:{_type(expr.type)}"
        case plan.IndexOf():
            return f"{_expr(expr.arg)}[{_expr(expr.index)}]"
        case plan.Aggregate():
            args = ", ".join(map(_expr, expr.args)) or "*"
            separator = "" if expr.separator is None else f", {expr.separator!r}"
            condition = "" if expr.filter is None else f" filter {_expr(expr.filter)}"
            return f"{expr.function}({'distinct ' * expr.distinct}{args}{separator}){condition}"


def _value(value: Stored, t: SqlType) -> str:
    if value is None:
        return "null"
    if t.is_datetime:
        assert isinstance(value, int)
        return to_iso(value)
    if t.is_decimal:
        assert isinstance(value, bytes)
        return decimals.to_text(value)
    if isinstance(value, str):
        return repr(value)
    return cast_text(t)(value)
