"""Queries by chance: FROM, joins, grouping, subqueries, CTEs, set operations, ORDER BY and LIMIT.

Here: Queries, over the tables of a schema; Query, what one is and how its answers compare.
Not here: expressions (expressions.py), changes of rows (changes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tests.differential.expressions import Chance, Expressions, exactly
from tests.differential.pairs import (
    ATOM,
    BOOL,
    CONCAT,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    KINDS,
    NUMBERS,
    PREDICATE,
    TEXT,
    UUID,
    Pair,
    infix,
    quoted,
    sized,
)

_ROWS_BITS: Final = 16  # of the number of rows that are added up


@dataclass(frozen=True, slots=True)
class Column:
    """What something in FROM offers."""

    name: str
    like: Pair  # its kind and sizes

    def of(self, alias: str) -> Pair:
        text = f"{alias}.{self.name}"
        return replace(self.like, ours=text, theirs=text, level=ATOM)


@dataclass(frozen=True, slots=True)
class Query:
    ours: str
    theirs: str
    columns: tuple[Column, ...]
    # By which outputs the rows are sorted; all of them: the answers are equal row by row.
    sorted_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM clause."""

    ours: str
    theirs: str
    columns: tuple[Pair, ...]


_Item: TypeAlias = tuple[str, str, tuple[Pair, ...]]  # both texts, the columns


def of_kind(columns: Sequence[Pair], kind: str) -> list[Pair]:
    return [column for column in columns if column.kind == kind]


@dataclass
class Queries:
    """Queries over these tables; `outer` are the columns of the query around."""

    chance: Chance
    tables: dict[str, tuple[Column, ...]]
    outer: tuple[Pair, ...] = ()
    ctes: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    aliases: list[int] = field(default_factory=lambda: [0])  # the last one, of the whole statement

    def __post_init__(self) -> None:
        self.rng = self.chance.rng

    # --- the entrance ---

    def query(self, depth: int = 3) -> Query:
        if self.chance.one_in(8):
            return self._with_ctes(depth)
        return self._query(depth, None)

    def _with_ctes(self, depth: int) -> Query:
        ours, theirs = [], []
        inner = self
        for _ in range(self.rng.randint(1, 2)):
            name = f"w{self._number()}"
            cte = inner._query(depth - 1, None)
            names = f" ({', '.join(f'n{i}' for i in range(len(cte.columns)))})"
            ours.append(f"{name}{names} AS ({cte.ours})")
            theirs.append(f"{name}{names} AS ({cte.theirs})")
            columns = tuple(Column(f"n{i}", column.like) for i, column in enumerate(cte.columns))
            inner = replace(inner, ctes={**inner.ctes, name: columns})
        found = inner._query(depth, None)
        return replace(
            found,
            ours=f"WITH {', '.join(ours)} {found.ours}",
            theirs=f"WITH {', '.join(theirs)} {found.theirs}",
        )

    def _number(self) -> int:
        self.aliases[0] += 1
        return self.aliases[0]

    def _query(self, depth: int, kinds: Sequence[str] | None) -> Query:
        choice = self.rng.randrange(12)
        if choice == 0 and depth > 0:
            body = self._set_operation(depth, kinds)
            return self._ordered_by_outputs(body)
        if choice == 1:
            if self.chance.one_in(3) and kinds is None:
                return self._ordered_by_outputs(self._values(kinds, bare=True))
            return self._ordered_by_outputs(self._values(kinds))
        if choice <= 4:
            return self._grouped(depth, kinds)
        return self._plain(depth, kinds)

    def rows(self, kinds: Sequence[str], depth: int) -> Query:
        """A query of these kinds, without an order."""
        choice = self.rng.randrange(8)
        if choice == 0 and depth > 0:
            return self._set_operation(depth - 1, kinds)
        if choice == 1:
            return self._values(kinds)
        if choice == 2:
            return self._grouped(depth, kinds, ordered=False)
        return self._plain(depth, kinds, ordered=False)

    # --- FROM ---

    def source(self, depth: int) -> Source:
        ours, theirs, columns = self._item(depth)
        separated = self.chance.one_in(6)
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            item_ours, item_theirs, beside = self._item(depth)
            kind = (
                ","
                if separated
                else self.rng.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN"))
            )
            joined = self._joined((ours, theirs, columns), (item_ours, item_theirs, beside), kind)
            ours, theirs, columns = joined.ours, joined.theirs, joined.columns
        return Source(ours, theirs, columns)

    def _joined(self, left: _Item, right: _Item, kind: str) -> Source:
        both = (*left[2], *right[2])
        on_ours = on_theirs = ""
        if kind not in (",", "CROSS JOIN"):
            condition = self._on(left[2], right[2], both)
            on_ours, on_theirs = f" ON {condition.ours}", f" ON {condition.theirs}"
        joint = ", " if kind == "," else f" {kind} "
        return Source(f"{left[0]}{joint}{right[0]}{on_ours}", f"{left[1]}{joint}{right[1]}{on_theirs}", both)

    def _item(self, depth: int) -> _Item:
        alias = f"r{self._number()}"
        if depth > 0 and self.chance.one_in(5):
            query = self._query(depth - 1, None)
            columns = tuple(column.of(alias) for column in query.columns)
            return f"({query.ours}) AS {alias}", f"({query.theirs}) AS {alias}", columns
        named = self.ctes if self.ctes and self.rng.random() < 0.6 else self.tables
        name = self.rng.choice(sorted(named))
        columns = tuple(column.of(alias) for column in named[name])
        return f"{name} AS {alias}", f"{name} AS {alias}", columns

    def _on(self, left: Sequence[Pair], right: Sequence[Pair], both: Sequence[Pair]) -> Pair:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.exact and b.exact]
        if not pairs or self.chance.one_in(5):
            return self._expressions(both, subqueries=False).expression(BOOL, 1)
        a, b = self.rng.choice(pairs)
        condition = infix(a, self.rng.choice(("=", "=", "=", "=", "<")), b, BOOL, PREDICATE)
        if self.chance.one_in(4):
            more = self._expressions(both, subqueries=False).expression(BOOL, 1)
            condition = infix(condition, "AND", more, BOOL, 2)
        if self.chance.one_in(10):
            more = self._expressions(both).expression(BOOL, 2)  # with subqueries
            condition = infix(condition, "AND", more, BOOL, 2)
        return condition

    # --- SELECT ---

    def _expressions(self, columns: Sequence[Pair], subqueries: bool = True) -> Expressions:
        def leaves(kind: str) -> list[Pair]:
            own = of_kind(columns, kind)
            if self.outer and (not own or self.chance.one_in(4)):
                return of_kind(self.outer, kind) or own
            return own

        inner = Inside(replace(self, outer=(*self.outer, *columns))) if subqueries else None
        return Expressions(self.chance, leaves, inner)

    def _kinds(self, columns: Sequence[Pair]) -> list[str]:
        found = sorted({column.kind for column in columns}) or list(KINDS)
        return [
            self.rng.choice(found if self.rng.random() < 0.7 else KINDS)
            for _ in range(self.rng.randint(1, 4))
        ]

    def _where(self, source: Source, depth: int) -> tuple[str, str]:
        if self.rng.random() < 0.45:
            return "", ""
        condition = self._expressions(source.columns).expression(BOOL, depth)
        return f" WHERE {condition.ours}", f" WHERE {condition.theirs}"

    def _plain(self, depth: int, kinds: Sequence[str] | None, ordered: bool = True) -> Query:
        source = Source("", "", ())
        if not self.chance.one_in(10):
            source = self.source(depth - 1)
        expressions = self._expressions(source.columns)
        kinds = self._kinds(source.columns) if kinds is None else kinds
        outputs = [expressions.expression(kind, self.rng.randint(0, max(depth, 0))) for kind in kinds]
        distinct = self.chance.one_in(6)
        if distinct:
            outputs = [exactly(output) for output in outputs]
        where = self._where(source, depth) if source.ours else ("", "")
        return self._select(source, where, ("", ""), outputs, distinct, ordered, expressions)

    def _select(
        self,
        source: Source,
        where: tuple[str, str],
        grouping: tuple[str, str],
        outputs: Sequence[Pair],
        distinct: bool,
        ordered: bool,
        expressions: Expressions,
    ) -> Query:
        names = [f"c{i}" for i in range(len(outputs))]
        texts = []
        for at, clause in enumerate((source.ours, source.theirs)):
            listed = ", ".join(
                f"{(output.ours, output.theirs)[at]} AS {name}"
                for output, name in zip(outputs, names, strict=True)
            )
            text = f"SELECT {'DISTINCT ' if distinct else ''}{listed}"
            if clause:
                text += f" FROM {clause}"
            texts.append(text + where[at] + grouping[at])
        columns = tuple(Column(name, output) for name, output in zip(names, outputs, strict=True))
        query = Query(texts[0], texts[1], columns)
        if not ordered:
            return query
        by_expression = None
        if not distinct and source.columns and self.chance.one_in(5):
            by_expression = expressions.exact(self.rng.choice((INT, TEXT, DECIMAL)), 1)
        return self._ordered_by_outputs(query, by_expression)

    # --- ORDER BY, LIMIT ---

    def _ordered_by_outputs(self, query: Query, first: Pair | None = None) -> Query:
        rng = self.rng
        sortable = [i for i, column in enumerate(query.columns) if column.like.exact]
        total = len(sortable) == len(query.columns) and rng.random() < 0.5
        if not total and rng.random() < 0.5:
            return query
        chosen = rng.sample(sortable, len(sortable) if total else rng.randint(0, len(sortable)))
        ours, theirs = [], []
        if first is not None:
            key = self._sort_key(first.at(CONCAT)[0], first.at(CONCAT)[1])
            if first.ours[:1] not in "-0123456789'" and "." in first.ours:
                ours.append(key[0])
                theirs.append(key[1])
            else:
                first = None
        for i in chosen:
            name = rng.choice((str(i + 1), query.columns[i].name))
            key = self._sort_key(name, name)
            ours.append(key[0])
            theirs.append(key[1])
        if not ours:
            return query
        text, other = (
            f"{query.ours} ORDER BY {', '.join(ours)}",
            f"{query.theirs} ORDER BY {', '.join(theirs)}",
        )
        if total and rng.random() < 0.5:
            limit = f" LIMIT {rng.choice((0, 1, 2, 5, 100))}"
            if self.chance.one_in(3):
                limit += f" OFFSET {rng.choice((0, 1, 3))}"
            text, other = text + limit, other + limit
        return replace(query, ours=text, theirs=other, sorted_by=() if first is not None else tuple(chosen))

    def _sort_key(self, ours: str, theirs: str) -> tuple[str, str]:
        direction = self.rng.choice(("", " ASC", " DESC"))
        nulls = self.rng.choice(("", "", " NULLS FIRST", " NULLS LAST"))
        # NULL is our smallest value, and PostgreSQL's greatest.
        default = " NULLS LAST" if direction == " DESC" else " NULLS FIRST"
        return f"{ours}{direction}{nulls}", f"{theirs}{direction}{nulls or default}"

    # --- GROUP BY ---

    def _grouped(self, depth: int, kinds: Sequence[str] | None, ordered: bool = True) -> Query:
        source = self.source(depth - 1)
        rows = self._expressions(source.columns, subqueries=False)
        keys: list[Pair] = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            key = rows.column(rows.any_kind())
            if key is None or not key.exact:
                continue
            if self.chance.one_in(3):
                key = self._key_of(key)
            keys.append(key)
        aggregates = _Aggregates(self.chance, source.columns)

        def leaves(kind: str) -> list[Pair]:
            found = of_kind(keys, kind)
            if not found or self.rng.random() < 0.7:
                made = aggregates.aggregate(kind)
                if made is not None:
                    return [made]
            return found

        plain_keys = tuple(key for key in keys if key in source.columns)
        inside = Inside(replace(self, outer=(*self.outer, *plain_keys)))
        expressions = Expressions(self.chance, leaves, inside)
        if kinds is None:
            kinds = [
                self.rng.choice((INT, DECIMAL, TEXT, BOOL, DOUBLE, INT))
                for _ in range(self.rng.randint(1, 3))
            ]
            outputs = [key for key in keys if self.rng.random() < 0.8]
        else:
            outputs = []
        outputs += [expressions.expression(kind, self.rng.choice((0, 0, 1, 2))) for kind in kinds]
        distinct = self.chance.one_in(10)
        if distinct:
            outputs = [exactly(output) for output in outputs]
        grouping = ["", ""]
        if keys:
            listed = [self._group_key(key, outputs) for key in keys]
            grouping = [f" GROUP BY {', '.join(text)}" for text in zip(*listed, strict=True)]
        if self.chance.one_in(3):
            having = expressions.expression(BOOL, 1)
            grouping = [f"{grouping[0]} HAVING {having.ours}", f"{grouping[1]} HAVING {having.theirs}"]
        elif not keys and not aggregates.made:
            count = sized(Pair("count(*)", "count(*)", INT), _ROWS_BITS)
            outputs = [count if output.kind == INT else output for output in outputs]
            if count not in outputs:
                grouping = [" HAVING count(*) >= 0"] * 2
        where = self._where(source, 1)
        return self._select(
            source, where, (grouping[0], grouping[1]), outputs, distinct, ordered, expressions
        )

    def _group_key(self, key: Pair, outputs: Sequence[Pair]) -> tuple[str, str]:
        """The key itself, or its position in the select list."""
        if key in outputs and self.rng.random() < 0.3:
            position = str(list(outputs).index(key) + 1)
            return position, position
        return key.ours, key.theirs

    def _key_of(self, column: Pair) -> Pair:
        """An expression with that column in it."""
        x, y = column.ours, column.theirs
        match column.kind:
            case "int" if column.size < 60:
                return sized(Pair(f"({x} + 1)", f"({y} + '1'::int8)", INT), column.size + 1)
            case "text":
                return Pair(f"upper({x})", f"upper({y})", TEXT)
            case "bool":
                return Pair(f"({x} IS TRUE)", f"({y} IS TRUE)", BOOL)
            case "decimal":
                return sized(Pair(f"round({x}, 1)", f"round({y}, 1)", DECIMAL), column.size + 1, 1)
        return column

    # --- VALUES and set operations ---

    def _values(self, kinds: Sequence[str] | None, bare: bool = False) -> Query:
        kinds = self._kinds(()) if kinds is None else kinds
        expressions = self._expressions((), subqueries=False)
        rows = [[expressions.exact(kind, 1) for kind in kinds] for _ in range(self.rng.randint(1, 3))]
        ours = ", ".join(f"({', '.join(value.ours for value in row)})" for row in rows)
        theirs = ", ".join(f"({', '.join(value.theirs for value in row)})" for row in rows)
        columns = tuple(
            Column(f"c{i}", _greatest([row[i] for row in rows], kind)) for i, kind in enumerate(kinds)
        )
        if bare:
            names = [f'"COLUMN_{i + 1}"' for i in range(len(kinds))]
            ours = (
                f"SELECT {', '.join(f'{n} AS c{i}' for i, n in enumerate(names))} FROM (VALUES {ours}) AS v"
            )
            theirs = f"SELECT {', '.join(f'column{i + 1} AS c{i}' for i in range(len(kinds)))} FROM (VALUES {theirs}) AS v"
            return Query(ours, theirs, columns)
        names = ", ".join(f"n{i}" for i in range(len(kinds)))
        listed = ", ".join(f"n{i} AS c{i}" for i in range(len(kinds)))
        alias = f"v{self._number()}"
        return Query(
            f"SELECT {listed} FROM (VALUES {ours}) AS {alias} ({names})",
            f"SELECT {listed} FROM (VALUES {theirs}) AS {alias} ({names})",
            columns,
        )

    def _set_operation(self, depth: int, kinds: Sequence[str] | None) -> Query:
        kinds = self._kinds(()) if kinds is None else kinds
        left = self._operand(depth, kinds)
        for _ in range(self.rng.randint(1, 2)):
            # An INT becomes what stands in the same column on the other side.
            mixed = [INT if kind in (DECIMAL, DOUBLE) and self.chance.one_in(4) else kind for kind in kinds]
            right = self._operand(depth, mixed)
            op = self.rng.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
            # INTERSECT binds more strongly: the left side is in parentheses when it is a set operation, too.
            x, y = (left.ours, left.theirs)
            if self.rng.random() < 0.4 or op == "INTERSECT":
                x, y = f"({x})", f"({y})"
            columns = tuple(
                Column(a.name, _greatest((a.like, b.like), a.like.kind))
                for a, b in zip(left.columns, right.columns, strict=True)
            )
            left = Query(f"{x} {op} ({right.ours})", f"{y} {op} ({right.theirs})", columns)
        return left

    def _operand(self, depth: int, kinds: Sequence[str]) -> Query:
        if depth > 0 and self.chance.one_in(6):
            return self._exactly(self._set_operation(depth - 1, kinds))
        if self.chance.one_in(4):
            return self._values(kinds)
        return self._exactly(self._plain(depth - 1, kinds, ordered=False))

    def _exactly(self, query: Query) -> Query:
        if all(column.like.exact for column in query.columns):
            return query
        alias = f"r{self._number()}"
        outputs = [exactly(column.of(alias)) for column in query.columns]
        names = [column.name for column in query.columns]
        ours = ", ".join(f"{o.ours} AS {n}" for o, n in zip(outputs, names, strict=True))
        theirs = ", ".join(f"{o.theirs} AS {n}" for o, n in zip(outputs, names, strict=True))
        return Query(
            f"SELECT {ours} FROM ({query.ours}) AS {alias}",
            f"SELECT {theirs} FROM ({query.theirs}) AS {alias}",
            tuple(Column(n, o) for o, n in zip(outputs, names, strict=True)),
        )


@dataclass
class Inside:
    """Subqueries of expressions; `queries` sees the columns of the query around."""

    queries: Queries

    def scalar(self, kind: str, depth: int) -> Pair:
        queries, rng = self.queries, self.queries.rng
        depth = min(depth - 1, 1)
        choice = rng.randrange(4)
        if choice == 0:
            query = queries._plain(depth, (kind,), ordered=False)
            if not queries.chance.safe:
                queries.chance.fails()  # several rows
            else:
                query = _limited(queries._exactly(query))
        elif choice == 1:
            query = _limited(queries._exactly(queries.rows((kind,), depth)))
        else:
            made = self._aggregated(kind, depth)
            query = (
                made
                if made is not None
                else _limited(queries._exactly(queries._plain(depth, (kind,), False)))
            )
        like = query.columns[0].like
        return replace(like, ours=f"({query.ours})", theirs=f"({query.theirs})", level=ATOM)

    def _aggregated(self, kind: str, depth: int) -> Query | None:
        queries = self.queries
        source = queries.source(depth)
        aggregate = _Aggregates(queries.chance, source.columns).aggregate(kind)
        if aggregate is None:
            return None
        where = queries._where(source, 1)
        return queries._select(
            source, where, ("", ""), (aggregate,), False, False, queries._expressions(source.columns)
        )

    def exists(self, depth: int) -> Pair:
        query = self.queries._plain(min(depth - 1, 1), None, ordered=False)
        return Pair(f"EXISTS ({query.ours})", f"EXISTS ({query.theirs})", BOOL)

    def in_query(self, arg: Pair, depth: int) -> Pair:
        return self.row_in_query((arg,), depth)

    def row_in_query(self, args: Sequence[Pair], depth: int) -> Pair:
        queries = self.queries
        kinds = [arg.kind for arg in args]
        query = queries._exactly(queries.rows(kinds, min(depth - 1, 1)))
        negated = queries.rng.choice(("", "NOT "))
        left = [arg.at(CONCAT) for arg in args]
        x, y = left[0] if len(args) == 1 else (f"({', '.join(a)})" for a in zip(*left, strict=True))
        return Pair(f"{x} {negated}IN ({query.ours})", f"{y} {negated}IN ({query.theirs})", BOOL, PREDICATE)


def _limited(query: Query) -> Query:
    """One row at most, and surely which one."""
    return replace(
        query,
        ours=f"{query.ours} ORDER BY 1 LIMIT 1",
        theirs=f"{query.theirs} ORDER BY 1 NULLS FIRST LIMIT 1",
    )


def _greatest(values: Sequence[Pair], kind: str) -> Pair:
    return Pair(
        "",
        "",
        kind,
        size=max(value.size for value in values),
        scale=max(value.scale for value in values),
        exact=all(value.exact for value in values),
    )


@dataclass
class _Aggregates:
    """Aggregates over rows that have these columns."""

    chance: Chance
    columns: Sequence[Pair]
    made: bool = False

    def aggregate(self, kind: str) -> Pair | None:
        self.rng = self.chance.rng
        rows = Expressions(self.chance, lambda wanted: of_kind(self.columns, wanted))
        made = self._aggregate(kind, rows)
        if made is None:
            return None
        self.made = True
        if self.chance.one_in(6):
            condition = rows.expression(BOOL, 1)
            made = replace(
                made,
                ours=made.ours.replace("\x00", f" FILTER (WHERE {condition.ours})"),
                theirs=made.theirs.replace("\x00", f" FILTER (WHERE {condition.theirs})"),
            )
        return replace(made, ours=made.ours.replace("\x00", ""), theirs=made.theirs.replace("\x00", ""))

    def _aggregate(self, kind: str, rows: Expressions) -> Pair | None:
        rng = self.rng
        distinct = "DISTINCT " if self.chance.one_in(6) else ""
        if kind == INT and rng.random() < 0.7:
            if rng.random() < 0.15:
                # In which order texts are joined isn't said, but how long the result is.
                arg = rows.expression(TEXT, 1)
                return sized(
                    Pair(
                        f"length(string_agg({arg.ours}, '-')\x00)",
                        f"length(string_agg({arg.theirs}, '-')\x00)::int8",
                        INT,
                    ),
                    _ROWS_BITS,
                )
            if rng.random() < 0.4:
                return sized(Pair("count(*)\x00", "count(*)\x00", INT), _ROWS_BITS)
            arg = rows.exact(rng.choice(KINDS), 1)
            return sized(_call("count", distinct, arg, INT), _ROWS_BITS)
        if kind == DECIMAL and rng.random() < 0.7:
            arg = rows.exact(rng.choice((INT, DECIMAL)), 1)
            digits = arg.size if arg.kind == DECIMAL else arg.size * 302 // 1000 + 1
            if digits + 6 + arg.scale > 36:
                return None
            if rng.random() < 0.5:
                return sized(_call("sum", distinct, arg, DECIMAL), digits + 6, arg.scale)
            return sized(_call("avg", distinct, arg, DECIMAL), digits + 1, 20, exact=False)
        if kind == DOUBLE and rng.random() < 0.7:
            found = of_kind(self.columns, DOUBLE)
            arg = rng.choice(found) if found else rows.literal(DOUBLE)
            if not arg.exact or arg.size + arg.scale + _ROWS_BITS > 52:
                return None
            match rng.randrange(3):
                case 0:
                    return sized(_call("sum", distinct, arg, DOUBLE), arg.size + _ROWS_BITS, arg.scale)
                case 1:
                    return sized(_call("avg", distinct, arg, DOUBLE), arg.size + 1, 60, exact=False)
                case _:
                    made = Pair(
                        f"total({distinct}{arg.ours})\x00",
                        f"coalesce(sum({distinct}{arg.theirs})\x00, '0'::float8)",
                        DOUBLE,
                    )
                    return sized(made, arg.size + _ROWS_BITS, arg.scale)
        if kind == UUID:
            return None
        arg = rows.exact(kind, 1)
        name = rng.choice(("min", "max"))
        made = _call(name, "", arg, kind)
        if kind == BOOL:
            made = replace(made, theirs=f"{'bool_and' if name == 'min' else 'bool_or'}({arg.theirs})\x00")
        return sized(made, arg.size, arg.scale, arg.exact)


def _call(name: str, distinct: str, arg: Pair, kind: str) -> Pair:
    return Pair(f"{name}({distinct}{arg.ours})\x00", f"{name}({distinct}{arg.theirs})\x00", kind)


__all__ = ["Column", "Inside", "Queries", "Query", "Source", "of_kind", "quoted", "DATETIME", "NUMBERS"]
