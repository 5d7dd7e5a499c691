"""Queries: WITH, SELECT, VALUES, what UNION and its kin combine, ORDER BY, LIMIT.

Here: bind_query(), bind_outputs() (select lists and RETURNING), the ways to name what ORDER BY and GROUP BY
mean.
Not here: FROM (sources.py), what grouping allows (grouping.py), expressions (expressions.py).

A SELECT is bound in the order in which parameters get their types: CTEs, FROM, WHERE, GROUP BY, then the
select list, HAVING, ORDER BY.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from shoal.errors import (
    AmbiguousColumn,
    DatatypeMismatch,
    DuplicateAlias,
    FeatureNotSupported,
    InvalidColumnReference,
    InvalidRowCountInLimit,
    InvalidRowCountInOffset,
    ShoalError,
    SqlSyntaxError,
    TooManyColumns,
    UndefinedTable,
)
from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding
from shoal.sql.bind.coercion import plain, unify
from shoal.sql.bind.expressions import Clause, Expressions, place
from shoal.sql.bind.grouping import check_grouped
from shoal.sql.bind.outputs import (
    body_as_any,
    hints_of,
    names_of,
    nullable,
    over,
    query_of,
    types_of,
)
from shoal.sql.bind.scope import CteInScope, Relation, RelationColumn, Scope
from shoal.sql.bind.sources import bind_source, columns_of, with_names
from shoal.sql.bind.structure import every, replaced, same, slots_in
from shoal.types.sqltype import INT, Kind, SqlType

Desired: TypeAlias = Sequence[SqlType | None]

_COLUMNS_MAX: Final = 2000  # of a result: SQLite's own limit, said before anything is made for each of them


def bind_query(binding: Binding, query: ast.Query, outer: Scope, desired: Desired = ()) -> plan.Query:
    scope, ctes = bind_ctes(binding, query.ctes, outer)
    body: plan.Body
    order_by: tuple[plan.SortKey, ...]
    if isinstance(query.body, ast.Select):
        body, order_by = _bind_select(binding, query.body, scope, desired, query.order_by)
    else:
        body = bind_body(binding, query.body, scope, desired)
        body, order_by = _ordered_by_outputs(binding, body, query.order_by, scope)
    limit = _row_count(binding, query.limit, scope, "LIMIT", InvalidRowCountInLimit)
    offset = _row_count(binding, query.offset, scope, "OFFSET", InvalidRowCountInOffset)
    if isinstance(body, plan.Query) and not (ctes or order_by or limit or offset):
        return body
    return plan.Query(ctes, body, order_by, limit, offset, names_of(body), types_of(body))


def bind_ctes(
    binding: Binding, ctes: tuple[ast.Cte, ...], outer: Scope
) -> tuple[Scope, tuple[plan.Cte, ...]]:
    """Each is visible to those behind it, and to the query."""
    scope = outer
    bound: list[plan.Cte] = []
    for cte in ctes:
        name = cte.name.text
        if any(other.name == name for other in bound):
            raise DuplicateAlias(f'CTE with name "{name}" is already defined', position=cte.name.at + 1)
        query = binding.subquery(cte.query, scope)
        number = binding.next_cte()
        columns = with_names(Relation(number, name, columns_of(query)), cte.columns).columns
        bound.append(plan.Cte(number, name, query))
        scope = replace(scope, ctes={**scope.ctes, name: CteInScope(number, columns)})
    return scope, tuple(bound)


def bind_body(binding: Binding, body: ast.Body, scope: Scope, desired: Desired) -> plan.Body:
    match body:
        case ast.Select():
            return _bind_select(binding, body, scope, desired, ())[0]
        case ast.Values():
            return _bind_values(binding, body, scope, desired)
        case ast.SetOperation():
            return _bind_set_operation(binding, body, scope, desired)
        case ast.Query():
            return bind_query(binding, body, scope, desired)


# --- SELECT --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Item:
    """One column of a select list, `*` replaced by what it stands for."""

    expr: ast.Expr | plan.Column
    name: str | None  # None: nobody named it


def _bind_select(
    binding: Binding,
    select: ast.Select,
    outer: Scope,
    desired: Desired,
    order_by: tuple[ast.SortKey, ...],
) -> tuple[plan.Body, tuple[plan.SortKey, ...]]:
    source: plan.Source | None = None
    relations: tuple[Relation, ...] = ()
    if select.source is not None:
        source, relations = bind_source(binding, select.source, outer)
    scope = outer.inside(relations)
    where = None
    if select.where is not None:
        where = Expressions(binding, scope, Clause.WHERE).condition(select.where)

    items = _expand(binding, select.items, scope)
    aliased = replace(scope, aliases=_aliases(select.items))
    group_by = _group_by(binding, select.group_by, items, aliased)

    expressions = Expressions(binding, scope, Clause.SELECT)
    outputs = _outputs(expressions, items, desired)
    having = None
    if select.having is not None:
        in_having = Expressions(binding, scope, Clause.HAVING)
        in_having.aggregates = expressions.aggregates
        having = in_having.condition(select.having)
    in_order = Expressions(binding, aliased, Clause.ORDER_BY)
    in_order.aggregates = expressions.aggregates

    block = plan.Block(
        outputs=outputs,
        source=source,
        where=where,
        group_by=group_by,
        grouped=False,
        having=having,
        distinct=select.distinct,
    )
    keys = tuple(_sort_key(binding, key, block, in_order) for key in order_by)
    grouped = bool(group_by) or having is not None or expressions.aggregates.any
    block = replace(block, grouped=grouped)
    if grouped:
        checked = [output.expr for output in outputs]
        if having is not None:
            checked.append(having)
        checked.extend(key.expr for key in keys)
        check_grouped(binding, checked, group_by, scope.own_numbers)
    if select.distinct:
        return _distinct_order(binding, block, order_by, keys, scope.own_numbers)
    return block, keys


def _distinct_order(
    binding: Binding,
    block: plan.Block,
    order_by: tuple[ast.SortKey, ...],
    keys: tuple[plan.SortKey, ...],
    own: frozenset[int],
) -> tuple[plan.Body, tuple[plan.SortKey, ...]]:
    """Behind DISTINCT there is nothing left but the outputs, and what can be made of them."""
    if all(isinstance(key.expr, plan.OutputRef) for key in keys):
        return block, keys
    for expr in (*(output.expr for output in block.outputs), *(key.expr for key in keys)):
        binding.pinned.update(slots_in(expr))  # they are compared

    def ordinal_of(expr: plan.Expr) -> int | None:
        if isinstance(expr, plan.OutputRef):
            return expr.ordinal
        found = (i for i, output in enumerate(block.outputs) if same(output.expr, expr))
        return next(found, None)

    ordinals = [ordinal_of(key.expr) for key in keys]
    if None not in ordinals:
        return block, tuple(
            replace(key, expr=plan.OutputRef(ordinal, key.expr.type))
            for key, ordinal in zip(keys, ordinals, strict=True)
            if ordinal is not None
        )
    source, columns = over(binding, query_of(block))

    def column_for(expr: plan.Expr) -> plan.Expr | None:
        ordinal = ordinal_of(expr)
        return None if ordinal is None else columns[ordinal]

    outside: list[plan.SortKey] = []
    for node, key in zip(order_by, keys, strict=True):
        expr = replaced(key.expr, column_for)
        if any(isinstance(part, plan.Aggregate) or _is_own(part, own) for part in every(expr)):
            raise InvalidColumnReference(
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                position=place(node.expr) + 1,
            )
        outside.append(replace(key, expr=expr))
    return _all_of(source, columns), tuple(outside)


def _is_own(expr: plan.Expr, own: frozenset[int]) -> bool:
    return isinstance(expr, plan.Column) and expr.relation in own


def _all_of(source: plan.Derived, columns: tuple[plan.Column, ...]) -> plan.Block:
    outputs = tuple(plan.Output(column.name, column, column.nullable) for column in columns)
    return plan.Block(outputs, source, None, (), False, None, False)


def _expand(binding: Binding, items: tuple[ast.SelectItem, ...], scope: Scope) -> tuple[_Item, ...]:
    expanded: list[_Item] = []
    for item in items:
        expr = item.expr
        if isinstance(expr, ast.Star):
            for relation in _starred(expr, scope):
                for column in relation.all_columns():
                    expanded.append(_Item(binding.placed(column, expr.at), column.name))
        elif item.alias is not None:
            expanded.append(_Item(expr, item.alias.text))
        else:
            expanded.append(_Item(expr, expr.column.text if isinstance(expr, ast.ColumnRef) else None))
        if len(expanded) > _COLUMNS_MAX:
            raise _too_many_columns()
    return tuple(expanded)


def _too_many_columns() -> TooManyColumns:
    return TooManyColumns(f"a result has at most {_COLUMNS_MAX} columns")


def _starred(star: ast.Star, scope: Scope) -> tuple[Relation, ...]:
    if star.table is None:
        found = tuple(relation for relation in scope.relations if not relation.qualified_only)
        if not found:
            raise SqlSyntaxError("SELECT * with no tables specified is not valid", position=star.at + 1)
        return found
    for relation in scope.relations:
        if relation.name == star.table.text:
            return (relation,)
    raise UndefinedTable(f"table '{star.table.text}' not found", position=star.at + 1)


def _aliases(items: tuple[ast.SelectItem, ...]) -> dict[str, ast.Expr]:
    found: dict[str, ast.Expr] = {}
    for item in items:
        if item.alias is not None:
            found.setdefault(item.alias.text, item.expr)
    return found


def _outputs(expressions: Expressions, items: tuple[_Item, ...], desired: Desired) -> tuple[plan.Output, ...]:
    outputs: list[plan.Output] = []
    unnamed = 0
    for i, item in enumerate(items):
        wish = desired[i] if i < len(desired) else None
        bound = item.expr if isinstance(item.expr, plan.Column) else expressions.bind_unit(item.expr, wish)
        name = item.name
        if name is None:
            unnamed += 1
            name = f"col_{unnamed}"
        outputs.append(plan.Output(name, bound, nullable(bound)))
    return tuple(outputs)


def bind_outputs(
    binding: Binding, items: tuple[ast.SelectItem, ...], scope: Scope, clause: Clause
) -> tuple[plan.Output, ...]:
    """A select list that has no GROUP BY: RETURNING."""
    return _outputs(Expressions(binding, scope, clause), _expand(binding, items, scope), ())


# --- GROUP BY ------------------------------------------------------------------------------------


def _group_by(
    binding: Binding, nodes: tuple[ast.Expr, ...], items: tuple[_Item, ...], scope: Scope
) -> tuple[plan.Expr, ...]:
    expressions = Expressions(binding, scope, Clause.GROUP_BY)
    keys: list[plan.Expr] = []
    for node in nodes:
        target: ast.Expr | plan.Column = node
        if isinstance(node, ast.Literal) and node.kind is ast.LiteralKind.INTEGER:
            binding.pinned.add(node.slot)
            target = items[_group_position(node, len(items)) - 1].expr
        if isinstance(target, plan.Column):
            keys.append(target)
        elif target is node:
            keys.append(expressions.bind_unit(target))
        else:
            keys.append(expressions.behind_alias().bind_unit(target))
    return tuple(keys)


def _group_position(node: ast.Literal, count: int) -> int:
    shown = f"-{node.text}" if node.negative else node.text
    digits = node.text.lstrip("0")
    if node.negative or not digits:
        raise InvalidColumnReference(f"GROUP BY position {shown} should be positive", position=node.at + 1)
    if len(digits) > 6 or int(digits) > count:
        raise InvalidColumnReference(f"GROUP BY position {shown} is not in select list", position=node.at + 1)
    return int(digits)


# --- ORDER BY ------------------------------------------------------------------------------------


def _key(key: ast.SortKey, expr: plan.Expr) -> plan.SortKey:
    t = expr.type
    if not t.is_scalar:
        kind = "Array" if t.is_array else "Map" if t.kind is Kind.JSON else "Any"
        raise DatatypeMismatch(
            f"{kind} is not supported as a sort type for ORDER BY", position=key.expr.at + 1
        )
    # NULL is the smallest value.
    nulls_first = (not key.descending) if key.nulls_first is None else key.nulls_first
    return plan.SortKey(expr, key.descending, nulls_first)


def _output_named(body: plan.Body, key: ast.SortKey) -> int | None:
    """Which output a sort key means by its position or bare name; None if it is an expression."""
    names = names_of(body)
    node = key.expr
    if isinstance(node, ast.Literal) and node.kind is ast.LiteralKind.INTEGER:
        shown = f"-{node.text}" if node.negative else node.text
        digits = node.text.lstrip("0")
        if node.negative or not digits:
            raise InvalidColumnReference(
                f"ORDER BY position {shown} should be positive", position=node.at + 1
            )
        if len(digits) > 6 or int(digits) > len(names):
            raise InvalidColumnReference(
                f"Ordering index ({shown}) is bigger than child projection output length ({len(names)})",
                position=node.at + 1,
            )
        return int(digits) - 1
    if isinstance(node, ast.ColumnRef) and node.table is None:
        found = [i for i, name in enumerate(names) if name == node.column.text]
        if len(found) > 1 and not _all_same(body, found):
            raise AmbiguousColumn(f'column reference "{node.column.text}" is ambiguous', position=node.at + 1)
        return found[0] if found else None
    return None


def _all_same(body: plan.Body, ordinals: list[int]) -> bool:
    if not isinstance(body, plan.Block):
        return False
    first, *others = (body.outputs[i].expr for i in ordinals)
    return all(same(first, other) for other in others)


def _check_sort_expression(node: ast.Expr) -> None:
    if isinstance(node, ast.Parameter):
        raise InvalidColumnReference(
            "Using parameter as a standalone ORDER BY expression doesn't influence sorting",
            position=node.at + 1,
        )
    if isinstance(node, ast.Literal):
        raise SqlSyntaxError("non-integer constant in ORDER BY", position=node.at + 1)


def _pin_position(binding: Binding, key: ast.SortKey) -> None:
    if isinstance(key.expr, ast.Literal):
        binding.pinned.add(key.expr.slot)


def _sort_key(
    binding: Binding, key: ast.SortKey, block: plan.Block, expressions: Expressions
) -> plan.SortKey:
    """Of a SELECT: what its list gives, or any expression over its FROM."""
    ordinal = _output_named(block, key)
    if ordinal is not None:
        _pin_position(binding, key)
        return _key(key, plan.OutputRef(ordinal, block.outputs[ordinal].expr.type))
    _check_sort_expression(key.expr)
    return _key(key, expressions.bind_unit(key.expr))


def _ordered_by_outputs(
    binding: Binding, body: plan.Body, order_by: tuple[ast.SortKey, ...], outer: Scope
) -> tuple[plan.Body, tuple[plan.SortKey, ...]]:
    """Of what has no FROM of its own to look into: VALUES, UNION and its kin.

    Their columns can be named; for an expression over them they become a subquery.
    """
    ordinals = [_output_named(body, key) for key in order_by]
    for key, ordinal in zip(order_by, ordinals, strict=True):
        if ordinal is not None:
            _pin_position(binding, key)
    types = types_of(body)
    if None not in ordinals:
        return body, tuple(
            _key(key, plan.OutputRef(ordinal, types[ordinal]))
            for key, ordinal in zip(order_by, ordinals, strict=True)
            if ordinal is not None
        )
    query = query_of(body)
    source, columns = over(binding, query)
    relation = Relation(
        source.relation,
        "",
        tuple(RelationColumn(column.name, column.type, column.nullable) for column in columns),
    )
    expressions = Expressions(binding, outer.inside((relation,)), Clause.ORDER_BY)
    block = _all_of(source, columns)
    keys = tuple(_sort_key(binding, key, block, expressions) for key in order_by)
    if expressions.aggregates.any:
        raise SqlSyntaxError("aggregates in ORDER BY need a SELECT of their own", position=order_by[0].at + 1)
    return block, keys


# --- VALUES --------------------------------------------------------------------------------------


def values_name(ordinal: int) -> str:
    return f"COLUMN_{ordinal + 1}"


def _bind_values(binding: Binding, values: ast.Values, scope: Scope, desired: Desired) -> plan.ValuesRows:
    """Column by column: the values of one are of one type."""
    width = len(values.rows[0])
    for row in values.rows:
        if len(row) != width:
            raise SqlSyntaxError("all values rows must have the same length", position=values.at + 1)
    if width > _COLUMNS_MAX:
        raise _too_many_columns()
    columns: list[tuple[plan.Expr, ...]] = []
    for i in range(width):
        expressions = Expressions(binding, scope, Clause.VALUES)
        wish = desired[i] if i < len(desired) else None
        with binding.parameters.unit():
            column = [row[i] for row in values.rows]
            columns.append(expressions.same_type("VALUES", column, values.at, wish))
    types = tuple(_exact(column) for column in columns)
    rows = tuple(zip(*columns, strict=True))
    return plan.ValuesRows(tuple(values_name(i) for i in range(width)), types, rows)


def _exact(column: tuple[plan.Expr, ...]) -> SqlType:
    first = column[0].type
    return first if all(value.type == first for value in column) else plain(first)


# --- UNION, EXCEPT, INTERSECT --------------------------------------------------------------------

_UNIFY_NAMES: Final = {
    Kind.INT: "Integer",
    Kind.DOUBLE: "Double",
    Kind.DECIMAL: "Decimal",
    Kind.TEXT: "String",
    Kind.BOOLEAN: "Boolean",
    Kind.UUID: "Uuid",
    Kind.DATETIME: "Datetime",
    Kind.JSON: "Map",
    Kind.ANY: "Any",
    Kind.UNKNOWN: "Unknown",
}


def _unify_name(t: SqlType) -> str:
    name = _UNIFY_NAMES[t.kind]
    return f"Array({name})" if t.is_array else name


def _bind_set_operation(
    binding: Binding, operation: ast.SetOperation, scope: Scope, desired: Desired
) -> plan.Body:
    """From the left to the right, without going deeper for each operand."""
    chain: list[ast.SetOperation] = []
    first: ast.Body = operation
    while isinstance(first, ast.SetOperation):
        chain.append(first)
        first = first.left
    chain.reverse()
    operands = (first, *(each.right for each in chain))
    early = _bound_early(binding, operands, scope, desired)
    wish = list(desired)
    for ordinal, t in early.types.items():
        wish += [None] * (ordinal + 1 - len(wish))
        wish[ordinal] = t
    left = early.bodies.get(0) or bind_body(binding, first, scope, wish)
    for i, each in enumerate(chain, start=1):
        right = early.bodies.get(i) or bind_body(binding, each.right, scope, types_of(left))
        common = _common_types(each, left, right)
        left = plan.SetOperation(
            each.kind,
            each.all,
            body_as_any(binding, left, common),
            body_as_any(binding, right, common),
        )
    return left


@dataclass(frozen=True, slots=True)
class _Early:
    bodies: dict[int, plan.Body]  # by the operand's place
    types: dict[int, SqlType]  # by the column's


def _bound_early(binding: Binding, operands: tuple[ast.Body, ...], scope: Scope, desired: Desired) -> _Early:
    """What the first operand leaves open (NULL, a parameter) is of the type that a later one says."""
    early = _Early({}, {})
    open_columns = [i for i, says in enumerate(_says(operands[0]) or ()) if not says]
    for ordinal in open_columns:
        for i, operand in enumerate(operands[1:], start=1):
            says = _says(operand)
            if says is not None and ordinal < len(says) and says[ordinal]:
                if i not in early.bodies:
                    early.bodies[i] = bind_body(binding, operand, scope, desired)
                early.types[ordinal] = types_of(early.bodies[i])[ordinal]
                break
    return early


def _common_types(operation: ast.SetOperation, left: plan.Body, right: plan.Body) -> list[SqlType]:
    ours, theirs = hints_of(left), hints_of(right)
    if len(ours) != len(theirs):
        name = f"{operation.kind.value} all" if operation.all else operation.kind.value
        raise SqlSyntaxError(
            f"children tuples have mismatching amount of columns in {name} node: "
            f"left {len(ours)}, right {len(theirs)}",
            position=operation.at + 1,
        )
    common: list[SqlType] = []
    for a, b in zip(ours, theirs, strict=True):
        found = unify((a, b))
        if found is None:
            raise DatatypeMismatch(
                f"Unable to unify inconsistent types: {_unify_name(a.type)} and {_unify_name(b.type)}",
                position=operation.at + 1,
            )
        common.append(found)
    return common


def _says(body: ast.Body) -> tuple[bool, ...] | None:
    """Which columns have a type by themselves; None where `*` hides which is which."""
    match body:
        case ast.Select():
            if any(isinstance(item.expr, ast.Star) for item in body.items):
                return None
            return tuple(_says_type(item.expr) for item in body.items)
        case ast.Values():
            return tuple(any(map(_says_type, column)) for column in zip(*body.rows, strict=False))
        case ast.SetOperation():
            left, right = _says(body.left), _says(body.right)
            if left is None or right is None:
                return None
            return tuple(a or b for a, b in zip(left, right, strict=False))
        case ast.Query():
            return _says(body.body)


def _says_type(node: ast.Expr) -> bool:
    if isinstance(node, ast.Literal):
        return node.kind is not ast.LiteralKind.STRING
    return not isinstance(node, ast.NullLiteral | ast.Parameter)


# --- LIMIT, OFFSET -------------------------------------------------------------------------------


def _row_count(
    binding: Binding, node: ast.Expr | None, scope: Scope, word: str, negative: type[ShoalError]
) -> plan.Expr | None:
    """A constant or a parameter."""
    if node is None or isinstance(node, ast.NullLiteral):
        return None
    bound = Expressions(binding, scope, Clause.LIMIT).bind_unit(node, INT)
    if not isinstance(bound, plan.Const | plan.Param):
        raise FeatureNotSupported(f"{word} takes a number or a parameter", position=place(node) + 1)
    if not bound.type.is_int:
        raise DatatypeMismatch(
            f"argument of {word} must be type int, not type {bound.type.error_name}", position=place(node) + 1
        )
    if isinstance(bound, plan.Const):
        if bound.source is not None and bound.source.kind is ast.LiteralKind.STRING:
            binding.pinned.add(bound.source.slot)  # it has its sign inside
        if isinstance(bound.value, int) and bound.value < 0:
            raise negative(f"{word} must not be negative", position=place(node) + 1)
    return bound
