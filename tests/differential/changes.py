"""Tables by chance, and statements that change their rows.

Here: Tables, their definition in both dialects, and Changes: INSERT, UPDATE, DELETE in all their forms.
Not here: queries (queries.py).

Values that are written stay small, so that what a column's sizes promise holds for the whole run.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.differential.expressions import BIG_INTS, INTS, Chance, Expressions
from tests.differential.pairs import (
    BOOL,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    KINDS,
    TEXT,
    THEIR_TYPES,
    UUID,
    Pair,
    int_literal,
    null,
    text_literal,
)
from tests.differential.queries import Column, Inside, Queries, of_kind

# What the literals of expressions.py need at most.
_SIZES = {INT: (8, 0), DECIMAL: (10, 3), DOUBLE: (21, 3)}


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    not_null: frozenset[str]
    unique: tuple[str, ...] | None
    is_global: bool
    ours: tuple[str, ...]  # CREATE TABLE, CREATE INDEX
    theirs: tuple[str, ...]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


def a_table(rng: random.Random, number: int, is_global: bool) -> Table:
    name = f"t{number}"
    key: tuple[str, ...] = ("id",)
    columns = [_column("id", INT)]
    if rng.random() < 0.3:
        key = ("k", "n")
        columns = [_column("k", TEXT), _column("n", INT)]
    for i, kind in enumerate(rng.sample(KINDS, rng.randint(3, 7))):
        columns.append(_column(f"{kind[0]}{i}", kind))
    columns.append(_column("i9", INT))
    if rng.random() < 0.3:
        columns.append(Column("big", Pair("", "", INT, size=63)))
    rng.shuffle(columns)
    not_null = {column.name for column in columns if rng.random() < 0.15} - {"big"} | set(key)
    ours = [f"{c.name} {c.like.kind}{' NOT NULL' if c.name in not_null else ''}" for c in columns]
    theirs = [
        f"{c.name} {THEIR_TYPES[c.like.kind]}{' NOT NULL' if c.name in not_null else ''}" for c in columns
    ]
    descending = rng.choice(("", "", " DESC"))
    primary = f"PRIMARY KEY ({', '.join(key)})"
    their_primary = primary
    if descending:
        primary = f"PRIMARY KEY ({key[0]} DESC{''.join(', ' + k for k in key[1:])})"
    distribution = " DISTRIBUTED GLOBALLY" if is_global else ""
    if not is_global and rng.random() < 0.3:
        distribution = f" DISTRIBUTED BY ({key[-1]})"
    ours_ddl = [f"CREATE TABLE {name} ({', '.join(ours)}, {primary}){distribution}"]
    theirs_ddl = [f"CREATE TABLE {name} ({', '.join(theirs)}, {their_primary})"]
    unique = None
    for i in range(rng.choice((0, 0, 1, 2))):
        chosen = rng.sample(columns, rng.randint(1, 2))
        direction = rng.choice(("", " DESC"))
        listed = ", ".join(f"{column.name}{direction}" for column in chosen)
        ours_ddl.append(f"CREATE INDEX {name}_x{i} ON {name} ({listed})")
    if is_global and rng.random() < 0.3:
        unique = ("i9",)
        ours_ddl.append(f"CREATE UNIQUE INDEX {name}_u ON {name} (i9)")
        theirs_ddl.append(f"CREATE UNIQUE INDEX {name}_u ON {name} (i9)")
    return Table(
        name, tuple(columns), key, frozenset(not_null), unique, is_global, tuple(ours_ddl), tuple(theirs_ddl)
    )


def _column(name: str, kind: str) -> Column:
    size, scale = _SIZES.get(kind, (0, 0))
    return Column(name, Pair("", "", kind, size=size, scale=scale))


@dataclass(frozen=True, slots=True)
class Change:
    ours: str
    theirs: str
    table: Table
    may_fail: bool
    returns: tuple[Pair, ...]  # RETURNING


@dataclass
class Changes:
    chance: Chance
    tables: Sequence[Table]

    def __post_init__(self) -> None:
        self.rng = self.chance.rng
        self.by_name = {table.name: table.columns for table in self.tables}

    def some_rows(self, table: Table) -> tuple[str, str]:
        """An INSERT that fills the table at first."""
        rows = []
        keys = set()
        for i in range(self.rng.randint(0, 25)):
            row = []
            for column in table.columns:
                if column.name in table.key:
                    value = (
                        int_literal(i % 13 + i // 13)
                        if column.like.kind == INT
                        else text_literal(self.rng.choice(("a", "b", "B", "ä", "")))
                    )
                else:
                    value = self._value(table, column.name)
                row.append(value)
            key = tuple(
                value.ours for value, c in zip(row, table.columns, strict=True) if c.name in table.key
            )
            if key not in keys:
                keys.add(key)
                rows.append(row)
        if table.unique is not None:
            at = [column.name for column in table.columns].index(table.unique[0])
            for i, row in enumerate(rows):
                row[at] = int_literal(i * 7 % 31)
        return self._insert_values(table, rows)

    def _insert_values(self, table: Table, rows: list[list[Pair]]) -> tuple[str, str]:
        if not rows:
            return "", ""
        ours = ", ".join(f"({', '.join(value.ours for value in row)})" for row in rows)
        theirs = ", ".join(f"({', '.join(value.theirs for value in row)})" for row in rows)
        return f"INSERT INTO {table.name} VALUES {ours}", f"INSERT INTO {table.name} VALUES {theirs}"

    def _value(self, table: Table, name: str) -> Pair:
        """A literal for a column."""
        column = table.column(name)
        kind = column.like.kind
        if name == "big":
            return int_literal(self.rng.choice(BIG_INTS))
        if name not in table.not_null and self.chance.one_in(5):
            return null(kind)
        expressions = Expressions(Chance(self.rng), lambda kind: [])
        while (value := expressions.literal(kind)).ours.startswith("NULL"):
            pass
        if kind in (DECIMAL, DOUBLE) and self.chance.one_in(4):
            return int_literal(self.rng.choice(INTS))
        if self.chance.one_in(8) and kind not in (TEXT, BOOL):
            text = value.ours.split("::")[0].strip("'")
            return Pair(f"'{text}'", f"'{text}'", kind)  # read as what the column is
        return value

    # --- statements ---

    def change(self) -> Change:
        table = self.rng.choice(self.tables)
        form = self.rng.choice((self._insert, self._upsert, self._update, self._delete, self._update_from))
        ours, theirs = form(table)
        returned: tuple[Pair, ...] = ()
        if form != self._update_from and self.rng.random() < 0.4:
            expressions = Expressions(self.chance, self._columns_of(table, table.name))
            if self.chance.one_in(3):
                returned = tuple(c.like for c in table.columns)
                ours, theirs = f"{ours} RETURNING *", f"{theirs} RETURNING *"
            else:
                kinds = [self.rng.choice(KINDS) for _ in range(self.rng.randint(1, 3))]
                returned = tuple(expressions.expression(kind, self.rng.choice((0, 1))) for kind in kinds)
                ours += f" RETURNING {', '.join(f'{r.ours} AS c{i}' for i, r in enumerate(returned))}"
                theirs += f" RETURNING {', '.join(f'{r.theirs} AS c{i}' for i, r in enumerate(returned))}"
        return Change(ours, theirs, table, self.chance.may_fail, returned)

    def _columns_of(self, table: Table, alias: str):  # type: ignore[no-untyped-def]
        columns = [column.of(alias) for column in table.columns]
        return lambda kind: of_kind(columns, kind)

    def _readable(self, table: Table) -> Queries:
        """Queries over what a change of that table may read: a global table's may read global ones."""
        readable = {
            other.name: other.columns for other in self.tables if other.is_global or not table.is_global
        }
        return Queries(self.chance, readable)

    def _new_key(self, table: Table, name: str) -> Pair:
        kind = table.column(name).like.kind
        if kind == INT:
            return int_literal(self.rng.randint(0, 40))
        return text_literal(self.rng.choice(("a", "b", "B", "ä", "", "new", "x")))

    def _small(self, pair: Pair, name: str) -> Pair:
        """A value for a column, within what the column's sizes promise."""
        if pair.kind == INT and name != "big":
            x, y = pair.at(8)
            return Pair(f"{x} % 100", f"{y} % '100'::int8", INT)
        return pair

    def _new_value(self, table: Table, name: str, expressions: Expressions) -> Pair:
        kind = table.column(name).like.kind
        if self.rng.random() < 0.5:
            return self._value(table, name)
        if kind in (TEXT, BOOL, UUID, DATETIME) and self.chance.one_in(8):
            inner = self._readable(table)
            return Inside(inner).scalar(kind, 2)
        if kind == INT:
            return self._small(expressions.expression(kind, 2), name)
        if kind in (DECIMAL, DOUBLE):
            return expressions.leaf(kind)
        if kind == TEXT:
            found = expressions.expression(kind, 2)
            return Pair(f"left({found.ours}, 20)", f"left({found.theirs}, 20)", TEXT)
        return expressions.expression(kind, 2)

    def _insert(self, table: Table) -> tuple[str, str]:
        rng = self.rng
        names = [
            column.name for column in table.columns if column.name in table.not_null or rng.random() < 0.8
        ]
        rng.shuffle(names)
        head = f"INSERT INTO {table.name} ({', '.join(names)}) "
        if rng.random() < 0.5:
            expressions = Expressions(self.chance, lambda kind: [])
            rows = []
            for _ in range(rng.randint(1, 3)):
                rows.append(
                    [
                        self._new_key(table, name)
                        if name in table.key
                        else self._new_value(table, name, expressions)
                        for name in names
                    ]
                )
            ours = ", ".join(f"({', '.join(value.ours for value in row)})" for row in rows)
            theirs = ", ".join(f"({', '.join(value.theirs for value in row)})" for row in rows)
            tail = rng.choice(("", "", " ON CONFLICT DO NOTHING"))
            return f"{head}VALUES {ours}{tail}", f"{head}VALUES {theirs}{tail}"
        queries = self._readable(table)
        source = queries.source(1)
        expressions = Expressions(self.chance, lambda kind: of_kind(source.columns, kind))
        values = []
        for name in names:
            kind = table.column(name).like.kind
            found = of_kind(source.columns, kind)
            if name in table.key and found:
                value = rng.choice(found)
                if kind == INT and value.size < 60:
                    value = Pair(f"{value.ours} + 20", f"{value.theirs} + '20'::int8", INT, size=60)
                values.append(value)
            else:
                values.append(self._new_value(table, name, expressions))
        where = queries._where(source, 1)
        ours = f"SELECT {', '.join(value.ours for value in values)} FROM {source.ours}{where[0]}"
        theirs = f"SELECT {', '.join(value.theirs for value in values)} FROM {source.theirs}{where[1]}"
        if table.unique is None and rng.random() < 0.5:
            # Which of two rows is the first one isn't defined: all values come from the key's columns.
            keys = [i for i, name in enumerate(names) if name in table.key]
            if len(keys) == len(names):
                return f"{head}{ours} ON CONFLICT DO NOTHING", f"{head}{theirs} ON CONFLICT DO NOTHING"
        return f"{head}{ours}", f"{head}{theirs}"

    def _upsert(self, table: Table) -> tuple[str, str]:
        names = [column.name for column in table.columns]
        expressions = Expressions(self.chance, lambda kind: [])
        rows = [
            [
                self._new_key(table, name) if name in table.key else self._new_value(table, name, expressions)
                for name in names
            ]
            for _ in range(self.rng.randint(1, 3))
        ]
        ours = ", ".join(f"({', '.join(value.ours for value in row)})" for row in rows)
        theirs = ", ".join(f"({', '.join(value.theirs for value in row)})" for row in rows)
        target = f"ON CONFLICT ({', '.join(table.key)}) DO "
        head = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES "
        settable = [name for name in names if name not in table.key and name not in (table.unique or ())]
        if not settable or self.chance.one_in(4):
            return f"{head}{ours} {target}NOTHING", f"{head}{theirs} {target}NOTHING"
        both = [
            *(column.of(table.name) for column in table.columns),
            *(column.of("excluded") for column in table.columns),
        ]
        inside = Expressions(self.chance, lambda kind: of_kind(both, kind))
        sets = [
            (name, self._new_value(table, name, inside))
            for name in self.rng.sample(settable, min(2, len(settable)))
        ]
        ours_sets = ", ".join(f"{name} = {value.ours}" for name, value in sets)
        theirs_sets = ", ".join(f"{name} = {value.theirs}" for name, value in sets)
        where = ("", "")
        if self.chance.one_in(3):
            condition = inside.expression(BOOL, 1)
            where = (f" WHERE {condition.ours}", f" WHERE {condition.theirs}")
        return (
            f"{head}{ours} {target}UPDATE SET {ours_sets}{where[0]}",
            f"{head}{theirs} {target}UPDATE SET {theirs_sets}{where[1]}",
        )

    def _settable(self, table: Table) -> list[str]:
        fixed = {*table.key, *(table.unique or ())}
        return [column.name for column in table.columns if column.name not in fixed]

    def _update(self, table: Table) -> tuple[str, str]:
        queries = self._readable(table)
        columns = [column.of(table.name) for column in table.columns]
        inside = queries._expressions(columns)
        settable = self._settable(table)
        names = self.rng.sample(settable, min(self.rng.randint(1, 2), len(settable)))
        sets = [(name, self._new_value(table, name, inside)) for name in names]
        if len(names) == 2 and table.column(names[0]).like == table.column(names[1]).like:
            sets = [(a, table.column(b).of(table.name)) for a, b in (names, names[::-1])]
        ours = ", ".join(f"{name} = {value.ours}" for name, value in sets)
        theirs = ", ".join(f"{name} = {value.theirs}" for name, value in sets)
        where = self._condition(inside)
        return (
            f"UPDATE {table.name} SET {ours}{where[0]}",
            f"UPDATE {table.name} SET {theirs}{where[1]}",
        )

    def _condition(self, inside: Expressions) -> tuple[str, str]:
        if self.chance.one_in(6):
            return "", ""
        condition = inside.expression(BOOL, 2)
        return f" WHERE {condition.ours}", f" WHERE {condition.theirs}"

    def _update_from(self, table: Table) -> tuple[str, str]:
        """Each row meets one row at most: a group's, by what it is grouped by."""
        readable = self._readable(table).tables
        other = self.rng.choice(sorted(readable))
        pairs = [
            (a, b)
            for a in table.columns
            for b in readable[other]
            if a.like.kind == b.like.kind and a.like.kind != UUID
        ]
        mine, theirs_column = self.rng.choice(pairs)
        settable = self._settable(table)
        name = self.rng.choice(settable)
        kind = table.column(name).like.kind
        key = theirs_column.name
        aggregate = "count(*)"
        if kind not in (BOOL, UUID):
            source = [
                column for column in readable[other] if column.like.kind == kind and column.name != "big"
            ]
            if source:
                aggregate = f"max({self.rng.choice(source).name})"
        elif kind in (BOOL, UUID):
            return self._update(table)
        if aggregate == "count(*)" and kind in (TEXT, DATETIME):
            return self._update(table)
        text = (
            f"UPDATE {table.name} SET {name} = s.v FROM"
            f" (SELECT {key} AS k, {aggregate} AS v FROM {other} GROUP BY {key}) AS s"
            f" WHERE {table.name}.{mine.name} = s.k"
        )
        return text, text

    def _delete(self, table: Table) -> tuple[str, str]:
        queries = self._readable(table)
        inside = queries._expressions([column.of(table.name) for column in table.columns])
        condition = inside.expression(BOOL, 2)
        few = f" AND {table.name}.{table.key[0]} IS NOT NULL"
        if table.column(table.key[-1]).like.kind == INT and self.rng.random() < 0.8:
            few = f" AND {table.name}.{table.key[-1]} % 3 = {self.rng.randrange(3)}"
        ours, theirs = condition.at(4)
        return (
            f"DELETE FROM {table.name} WHERE ({ours}){few}",
            f"DELETE FROM {table.name} WHERE ({theirs}){few}",
        )
