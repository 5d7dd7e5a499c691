"""Statements by chance over one schema: most of them mean something, some are a little wrong, some are garbage.

Unlike tests/unit/sql/random_statements.py, which makes what parses, this makes what binds: expressions have
types, names are those of the tables.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

TYPES: Final = ("int", "double", "decimal", "text", "boolean", "uuid", "datetime", "int[]", "text[]", "json")
_SCALARS: Final = TYPES[:7]
_NUMBERS: Final = ("int", "double", "decimal")

_WORDS: Final = (
    "",
    "a",
    "Ünï",
    "o''clock",
    "%a_",
    "1",
    "true",
    "2024-02-29",
    "\\\\",
    "[1, 2]",
    "😀",
    "x" * 40,
)
_UUIDS: Final = ("6f2ba4c4-0f99-4d79-ae17-36f2b3d0a3b4", "00000000-0000-0000-0000-000000000000")
_MOMENTS: Final = (
    "2024-02-29T12:34:56.123456Z",
    "1970-01-01",
    "-9999-12-31T00:00:00Z",
    "9999-12-31T23:59:59+14:00",
    "2003-07-08 19:13:00+03",
)
_NUMBER_EDGES: Final = (
    "0",
    "1",
    "-1",
    "7",
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
)

Table = tuple[str, tuple[tuple[str, str], ...]]  # name, (column, type)s


class RandomSql:
    """The same seed gives the same statements."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._aliases = 0
        self.tables: list[Table] = []

    # --- the schema

    def schema(self) -> list[str]:
        chance, statements = self._chance, []
        for number in range(4):
            types = [chance.choice(TYPES) for _ in range(chance.randint(2, 6))]
            columns = (("id", "int"), *((f"c{i}", t) for i, t in enumerate(types)))
            scalar = [name for name, t in columns if t in _SCALARS]
            key = ["id", *chance.sample(scalar[1:], min(len(scalar) - 1, chance.randint(0, 1)))]
            where = chance.choice(
                ("", "", " DISTRIBUTED GLOBALLY", f" DISTRIBUTED BY ({chance.choice(key)})")
            )
            self.tables.append((f"r{number}", columns))
            statements.append(
                f"CREATE TABLE r{number} ({', '.join(f'{n} {t}' for n, t in columns)},"
                f" PRIMARY KEY ({', '.join(key)})){where}"
            )
            if chance.random() < 0.7:
                column = chance.choice(scalar)
                statements.append(f"CREATE INDEX r{number}_{column} ON r{number} ({column})")
        return statements

    # --- statements

    def statement(self) -> str:
        makers: tuple[tuple[int, Callable[[], str]], ...] = (
            (10, self._query),
            (4, self._insert),
            (2, self._update),
            (1, self._delete),
            (1, lambda: f"EXPLAIN {self._chance.choice(('', '(RAW) ', '(BUCKETS) '))}{self._query()}"),
            (2, lambda: self._broken(self._chance.choice((self._query, self._insert, self._update))())),
            (1, self._garbage),
        )
        (make,) = self._chance.choices([m for _, m in makers], [weight for weight, _ in makers])
        return make()

    def _query(self, depth: int = 2) -> str:
        chance = self._chance
        tail = ""
        if chance.random() < 0.3:
            tail += f" LIMIT {chance.randint(0, 5)}"
            if chance.random() < 0.3:
                tail += f" OFFSET {chance.randint(0, 5)}"
        if chance.random() < 0.15:
            types = [self._type() for _ in range(chance.randint(1, 3))]
            operator = chance.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
            return f"{self._select(types, depth)} {operator} {self._select(types, depth)}{tail}"
        if chance.random() < 0.1:
            name = self._alias()
            types = [self._type() for _ in range(2)]
            inner = self._select(types, depth - 1, named=True)
            return f"WITH {name} AS ({inner}) SELECT * FROM {name} WHERE {name}.k0 IS NOT NULL{tail}"
        order = f" ORDER BY {chance.choice(('1', '1 DESC', '1 NULLS LAST'))}" if chance.random() < 0.4 else ""
        types = [self._type() for _ in range(chance.randint(1, 4))]
        return f"{self._select(types, depth)}{order}{tail}"

    def _select(self, types: list[str], depth: int, named: bool = False) -> str:
        """With outputs of these types, called k0, k1, … if `named`."""
        chance = self._chance
        source, columns = self._source(depth)
        if chance.random() < 0.25:
            return self._grouped(types, source, columns, depth, named)
        outputs = ", ".join(
            self._expression(t, columns, depth) + (f" AS k{i}" if named else "") for i, t in enumerate(types)
        )
        distinct = "DISTINCT " if chance.random() < 0.1 else ""
        where = f" WHERE {self._expression('boolean', columns, depth)}" if chance.random() < 0.6 else ""
        return f"SELECT {distinct}{outputs} FROM {source}{where}"

    def _grouped(
        self, types: list[str], source: str, columns: dict[str, str], depth: int, named: bool
    ) -> str:
        chance = self._chance
        scalar = [name for name, t in columns.items() if t in _SCALARS]
        keys = chance.sample(scalar, min(len(scalar), chance.randint(0, 2)))
        outputs = ", ".join(
            self._aggregate(t, columns, depth) + (f" AS k{i}" if named else "") for i, t in enumerate(types)
        )
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING {self._aggregate('int', columns, depth)} > 1" if chance.random() < 0.3 else ""
        return f"SELECT {outputs} FROM {source}{group}{having}"

    def _aggregate(self, type_: str, columns: dict[str, str], depth: int) -> str:
        chance = self._chance
        inner = self._expression(type_, columns, depth - 1)
        distinct = "DISTINCT " if chance.random() < 0.2 else ""
        if type_ == "int" and chance.random() < 0.6:
            return f"count({distinct}{self._expression(self._type(), columns, depth - 1)})"
        if type_ == "decimal":
            return f"{chance.choice(('sum', 'avg', 'min', 'max'))}({distinct}{inner})"
        if type_ == "double":
            return f"{chance.choice(('sum', 'avg', 'total', 'max'))}({inner})"
        if type_ == "text" and chance.random() < 0.5:
            return f"group_concat({inner})"
        return f"{chance.choice(('min', 'max'))}({inner})"

    def _source(self, depth: int) -> tuple[str, dict[str, str]]:
        """A FROM, and its columns by their qualified names."""
        chance = self._chance
        item, columns = self._item(depth)
        for _ in range(chance.choices((0, 1, 2), (6, 3, 1))[0]):
            other, more = self._item(depth)
            columns = columns | more
            how = chance.choice(("JOIN", "LEFT JOIN", "CROSS JOIN", "RIGHT JOIN", ","))
            condition = (
                f" ON {self._expression('boolean', columns, 1)}" if how in ("LEFT JOIN", "RIGHT JOIN") else ""
            )
            if how == "JOIN":
                condition = f" ON {self._expression('boolean', columns, 1)}"
            item = f"{item} {how} {other}{condition}"
        return item, columns

    def _item(self, depth: int) -> tuple[str, dict[str, str]]:
        chance, alias = self._chance, self._alias()
        if depth > 0 and chance.random() < 0.2:
            types = [self._type() for _ in range(2)]
            inner = self._select(types, depth - 1, named=True)
            return f"({inner}) AS {alias}", {f"{alias}.k{i}": t for i, t in enumerate(types)}
        name, columns = chance.choice(self.tables)
        return f"{name} AS {alias}", {f"{alias}.{column}": t for column, t in columns}

    def _insert(self) -> str:
        chance = self._chance
        name, columns = chance.choice(self.tables)
        conflict = chance.choice(
            ("", "", " ON CONFLICT DO NOTHING", " ON CONFLICT DO REPLACE", " ON CONFLICT DO FAIL")
        )
        returning = " RETURNING *" if chance.random() < 0.2 else ""
        if chance.random() < 0.2:
            return (
                f"INSERT INTO {name} {self._select([t for _, t in columns], 1)} LIMIT 5{conflict}{returning}"
            )
        rows = ", ".join(
            f"({', '.join([str(chance.randint(0, 30)), *(self._literal(t) for _, t in columns[1:])])})"
            for _ in range(chance.randint(1, 4))
        )
        return f"INSERT INTO {name} VALUES {rows}{conflict}{returning}"

    def _update(self) -> str:
        chance = self._chance
        name, columns = chance.choice(self.tables)
        own = {f"{name}.{column}": t for column, t in columns}
        column, type_ = chance.choice(columns)
        change = f"UPDATE {name} SET {column} = {self._expression(type_, own, 2)}"
        if chance.random() < 0.2:
            other, more = self._item(0)
            return f"{change} FROM {other} WHERE {self._expression('boolean', own | more, 2)}"
        returning = f" RETURNING {column}" if chance.random() < 0.2 else ""
        return f"{change} WHERE {self._expression('boolean', own, 2)}{returning}"

    def _delete(self) -> str:
        name, columns = self._chance.choice(self.tables)
        own = {f"{name}.{column}": t for column, t in columns}
        return f"DELETE FROM {name} WHERE {self._expression('boolean', own, 2)} AND id % 3 = 1"

    # --- expressions

    def _type(self) -> str:
        return self._chance.choice(_SCALARS) if self._chance.random() < 0.9 else self._chance.choice(TYPES)

    def _alias(self) -> str:
        self._aliases += 1
        return f"a{self._aliases}"

    def _expression(self, type_: str, columns: dict[str, str], depth: int) -> str:
        chance = self._chance
        if chance.random() < 0.01:
            type_ = chance.choice(TYPES)  # a mistake, now and then
        if depth <= 0 or chance.random() < 0.3:
            fitting = [name for name, t in columns.items() if t == type_]
            if fitting and chance.random() < 0.7:
                return chance.choice(fitting)
            return self._literal(type_)

        def sub(t: str = type_) -> str:
            return self._expression(t, columns, depth - 1)

        forms: list[Callable[[], str]] = [
            lambda: f"({sub()})",
            lambda: f"coalesce({sub()}, {sub()})",
            lambda: f"CASE WHEN {sub('boolean')} THEN {sub()} ELSE {sub()} END",
            lambda: f"CAST({sub(chance.choice(_SCALARS))} AS {type_})",
            lambda: f"({sub('text')})::{type_}",
            lambda: f"nullif({sub()}, {sub()})",
            lambda: f"(SELECT {self._select([type_], depth - 2).removeprefix('SELECT ')} LIMIT 1)",
        ]
        if type_ in _NUMBERS:
            forms += [lambda: f"({sub()} {chance.choice('+-*/')} {sub()})"] * 4
            forms += [
                lambda: f"{chance.choice(('abs', '-', 'round', 'ceil', 'floor', 'sign', 'trunc'))}({sub()})"
            ]
            forms += [lambda: f"greatest({sub()}, {sub()})", lambda: f"least({sub()}, {sub()})"]
        if type_ == "int":
            forms += [
                lambda: f"({sub()} % {sub()})",
                lambda: f"length({sub('text')})",
                lambda: f"position({sub('text')} in {sub('text')})",
                lambda: f"({sub('int[]')})[{sub()}]",
                lambda: f"(SELECT count(*) FROM {self._item(0)[0]})",
            ]
        if type_ == "double":
            forms += [lambda: f"sqrt({sub()})", lambda: f"power({sub()}, {sub()})"]
        if type_ == "text":
            forms += [
                lambda: f"({sub()} || {sub(chance.choice(('text', 'int', 'decimal', 'uuid', 'datetime')))})",
                lambda: f"{chance.choice(('lower', 'upper', 'trim', 'reverse', 'md5'))}({sub()})",
                lambda: f"substr({sub()}, {sub('int')}, {sub('int')})",
                lambda: f"substring({sub()} from {chance.choice(('2', self._pattern()))})",
                lambda: f"replace({sub()}, {sub()}, {sub()})",
                lambda: f"repeat({sub()}, {chance.randint(-1, 50)})",
                lambda: f"split_part({sub()}, {sub()}, {chance.randint(-2, 3)})",
                lambda: f"to_char({sub('datetime')}, '%Y-%m-%d %H:%M:%S %j %U %q')",
                lambda: f"({sub('text[]')})[{sub('int')}]",
                lambda: f"left({sub()}, {sub('int')})",
            ]
        if type_ == "datetime":
            forms += [
                lambda: "now()",
                lambda: f"to_date({sub('text')}, '%Y-%m-%d')",
                lambda: "current_timestamp(3)",
            ]
        if type_ in ("int[]", "text[]"):
            element = type_.removesuffix("[]")
            forms = [lambda: f"ARRAY[{sub(element)}, {sub(element)}]", lambda: f"coalesce({sub()}, {sub()})"]
        if type_ == "json":
            forms = [lambda: f"coalesce({sub()}, {sub()})"]
        if type_ == "boolean":
            forms += self._conditions(sub, columns, depth) * 2
        return chance.choice(forms)()

    def _conditions(
        self, sub: Callable[[str], str], columns: dict[str, str], depth: int
    ) -> list[Callable[[], str]]:
        chance = self._chance
        t = chance.choice(_SCALARS)
        some_not = chance.choice(("", "NOT "))
        return [
            lambda: f"({sub('boolean')} {chance.choice(('AND', 'OR'))} {sub('boolean')})",
            lambda: f"NOT ({sub('boolean')})",
            lambda: f"({sub(t)} {chance.choice(('=', '<>', '<', '<=', '>', '>='))} {sub(t)})",
            lambda: f"({sub(t)} IS {some_not}NULL)",
            lambda: f"({sub('boolean')} IS {some_not}{chance.choice(('TRUE', 'FALSE', 'UNKNOWN'))})",
            lambda: f"({sub(t)} {some_not}BETWEEN {sub(t)} AND {sub(t)})",
            lambda: f"({sub(t)} {some_not}IN ({sub(t)}, {sub(t)}))",
            lambda: f"({sub(t)} {some_not}IN ({self._select([t], depth - 2)}))",
            lambda: f"({some_not}EXISTS ({self._select(['int'], depth - 2)}))",
            lambda: f"({sub('text')} {some_not}{chance.choice(('LIKE', 'ILIKE'))} {sub('text')})",
            lambda: f"({sub('text')} {some_not}SIMILAR TO {self._pattern()})",
            lambda: f"({sub(t)} IS {some_not}DISTINCT FROM {sub(t)})",
            lambda: f"(({sub(t)}, {sub('int')}) = ({sub(t)}, {sub('int')}))",
        ]

    def _pattern(self) -> str:
        pieces = (
            "a",
            "%",
            "_",
            "(a|b)",
            "[a-z]",
            "+",
            "*",
            "?",
            "{2,3}",
            "\\\\",
            ".",
            "^",
            "$",
            "[^0-9]",
            "(",
        )
        return "'" + "".join(self._chance.choice(pieces) for _ in range(self._chance.randint(1, 6))) + "'"

    def _literal(self, type_: str) -> str:
        chance = self._chance
        if chance.random() < 0.08:
            return "NULL"
        match type_:
            case "int":
                return chance.choice((str(chance.randint(-20, 20)), *_NUMBER_EDGES))
            case "double":
                return chance.choice(
                    (
                        "1e0",
                        "-0.0e0",
                        "1.5e10",
                        "1e308",
                        "2.2e-308",
                        "'inf'::double",
                        f"{chance.randint(0, 99)}e-1",
                    )
                )
            case "decimal":
                return chance.choice(
                    ("0.0", "1.50", "-3.25", "9" * 38 + ".0", "0." + "0" * 37 + "1", "1" * 20)
                )
            case "text":
                return f"'{chance.choice(_WORDS)}'"
            case "boolean":
                return chance.choice(("TRUE", "FALSE"))
            case "uuid":
                return f"'{chance.choice(_UUIDS)}'::uuid"
            case "datetime":
                return f"'{chance.choice(_MOMENTS)}'::datetime"
            case "int[]":
                return chance.choice(("ARRAY[1, 2, 3]", "ARRAY[NULL, -5]", "ARRAY[]::int[]"))
            case "text[]":
                return chance.choice(("ARRAY['a', '']", "ARRAY['x', NULL]"))
            case _:
                return chance.choice(("""'{"a": [1, {"b": null}]}'""", "'{}'", "'[1.5e3, true]'"))

    # --- what is wrong on purpose

    def _broken(self, text: str) -> str:
        chance = self._chance
        tokens = re.findall(r"'(?:[^']|'')*'|\w+|\s+|.", text)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(tokens))
            match chance.randint(0, 4):
                case 0:
                    del tokens[at]
                case 1:
                    tokens.insert(at, chance.choice(tokens))
                case 2:
                    other = chance.randrange(len(tokens))
                    tokens[at], tokens[other] = tokens[other], tokens[at]
                case 3:
                    tokens[at] = chance.choice(
                        ("(", ")", ",", ".", "''", "SELECT", "FROM", "$1", "?", "*", "::", "-")
                    )
                case _:
                    tokens[at] = tokens[at][:-1] + chr(chance.randint(32, 0x2FF))
            if not tokens:
                return ""
        return "".join(tokens)

    def _garbage(self) -> str:
        chance = self._chance
        return "".join(
            chance.choice(
                ("select ", "from ", "'", '"', "(", ")", "1", "x", ";", "--", "/*", "*/", "$1", "é", ".")
            )
            for _ in range(chance.randint(1, 40))
        )
