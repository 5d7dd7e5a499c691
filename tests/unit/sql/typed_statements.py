"""Statements by chance that mostly mean something: what the binder's properties are tried on.

A Draft is a statement's text with its literals taken out, so that it can be written again with others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

SCHEMA: Final = """
CREATE TABLE t (a INT PRIMARY KEY, b TEXT, c DOUBLE, d DECIMAL, u UUID, w DATETIME, f BOOL, l INT[],
                m DECIMAL(10, 2), n UNSIGNED, j JSON);
CREATE TABLE s (a INT, k TEXT, v INT, x DECIMAL(5, 1), PRIMARY KEY (a, k)) DISTRIBUTED BY (k)
"""

COLUMNS: Final = {
    "int": ("t.a", "t.n", "t.l[t.a]"),
    "text": ("t.b",),
    "double": ("t.c",),
    "decimal": ("t.d", "t.m"),
    "uuid": ("t.u",),
    "datetime": ("t.w",),
    "bool": ("t.f",),
    "int[]": ("t.l",),
}
TYPES: Final = tuple(COLUMNS)
COMPARABLE: Final = TYPES[:-1]
NUMBERS: Final = ("int", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Literal:
    kind: str  # integer, decimal, double, string
    text: str

    def spelled(self) -> str:
        return "'" + self.text.replace("'", "''") + "'" if self.kind == "string" else self.text


@dataclass(frozen=True, slots=True)
class Draft:
    pieces: tuple[str, ...]  # one more than literals
    literals: tuple[Literal, ...]

    def text(self) -> str:
        parts = [self.pieces[0]]
        for literal, piece in zip(self.literals, self.pieces[1:], strict=True):
            parts += [literal.spelled(), piece]
        return "".join(parts)

    def with_other(self, chance: Chance, slot: int) -> Draft:
        literals = list(self.literals)
        literals[slot] = chance.literal_of(literals[slot].kind)
        return replace(self, literals=tuple(literals))


class Chance:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.literals: list[Literal] = []

    def draft(self) -> Draft:
        self.literals = []
        text = self.statement()
        pieces = text.split("\x00")
        assert len(pieces) == len(self.literals) + 1, text
        return Draft(tuple(pieces), tuple(self.literals))

    # --- literals ---

    def literal_of(self, kind: str) -> Literal:
        rng = self.rng
        number = str(rng.choice((0, 1, 2, 5, rng.randrange(100), rng.randrange(10**17))))
        match kind:
            case "integer":
                return Literal(kind, number)
            case "decimal":
                return Literal(kind, f"{number}.{rng.choice(('', '0', '5', '125', '999'))}")
            case "double":
                return Literal(kind, f"{number}e{rng.choice((0, 1, -2, 300))}")
            case _:
                texts = (
                    number,
                    f"-{number}",
                    f"{number}.5",
                    "x",
                    "",
                    "it's",
                    "t",
                    "off",
                    "2024-02-29",
                    "2024-02-30",
                    "2024-01-02 03:04:05",
                    "6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1",
                    "{1,2}",
                    '{"k": 1}',
                    "99999999999999999999",
                    "1e5",
                )
                return Literal("string", rng.choice(texts))

    def literal(self, *kinds: str) -> str:
        self.literals.append(self.literal_of(self.rng.choice(kinds)))
        return "\x00"

    def string(self, *texts: str) -> str:
        self.literals.append(Literal("string", self.rng.choice(texts)))
        return "\x00"

    def literal_for(self, wanted: str) -> str:
        rng = self.rng
        match wanted:
            case "int":
                return rng.choice(("", "", "-")) + self.literal("integer")
            case "double":
                return self.literal("integer", "decimal", "double")
            case "decimal":
                return self.literal("integer", "decimal")
            case "bool":
                return rng.choice(("TRUE", "FALSE"))
            case "text":
                return self.literal("string")
            case "uuid":
                return self.string("6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1")
            case "datetime":
                return self.string("2024-01-02", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z")
            case _:
                return f"ARRAY[{self.literal('integer')}]" if rng.random() < 0.5 else "ARRAY[]"

    # --- expressions ---

    def expression(self, wanted: str, depth: int = 3) -> str:
        rng = self.rng
        if rng.random() < 0.03:
            wanted = rng.choice(TYPES)  # a mistake
        if depth <= 0 or rng.random() < 0.25:
            return self.leaf(wanted)
        forms = [*self.general(wanted, depth - 1), *self.special(wanted, depth - 1)]
        return rng.choice(forms)()

    def leaf(self, wanted: str) -> str:
        rng = self.rng
        chance = rng.random()
        if chance < 0.4:
            return rng.choice(COLUMNS[wanted])
        if chance < 0.5:
            return f"${rng.randint(1, 4)}"
        if chance < 0.55:
            return "NULL"
        if chance < 0.65:
            return self.literal("string")
        return self.literal_for(wanted)

    def general(self, wanted: str, depth: int) -> Sequence[Callable[[], str]]:
        def sub(t: str = wanted) -> str:
            return self.expression(t, depth)

        rng = self.rng
        return (
            lambda: f"coalesce({sub()}, {sub()})",
            lambda: f"CASE WHEN {sub('bool')} THEN {sub()} ELSE {sub()} END",
            lambda: f"CASE {sub('int')} WHEN {sub('int')} THEN {sub()} END",
            lambda: f"({sub(rng.choice((wanted, 'text', *NUMBERS)))})::{wanted}",
            lambda: f"nullif({sub()}, {sub()})",
            lambda: f"greatest({sub()}, {sub()})",
            lambda: f"(SELECT {sub()})",
            lambda: f"(SELECT {sub()} FROM s AS q{rng.randrange(9)} LIMIT {self.few()})",
        )

    def special(self, wanted: str, depth: int) -> Sequence[Callable[[], str]]:
        def sub(t: str = wanted) -> str:
            return self.expression(t, depth)

        rng = self.rng
        forms: list[Callable[[], str]] = []
        if wanted in NUMBERS:
            less = rng.choice(("int", wanted))
            forms += [
                lambda: f"({sub()} {rng.choice('+-*/')} {sub(less)})",
                lambda: f"-({sub()})",
                lambda: f"abs({sub()})",
            ] * 2
        match wanted:
            case "int":
                forms += [
                    lambda: f"({sub()} % {sub()})",
                    lambda: f"length({sub('text')})",
                    lambda: f"round({sub()})",
                ]
            case "decimal":
                forms += [lambda: f"round({sub()}, {sub('int')})", lambda: f"({sub()})::decimal(10, 2)"]
            case "double":
                forms += [lambda: f"sqrt({sub(rng.choice(('int', 'double')))})"]
            case "text":
                forms += [
                    lambda: f"({sub()} || {sub(rng.choice(TYPES))})",
                    lambda: f"lower({sub()})",
                    lambda: f"substr({sub()}, {sub('int')})",
                    lambda: f"substring({sub()} FROM {sub(rng.choice(('int', 'text')))})",
                    lambda: f"trim({sub()})",
                    lambda: f"concat({sub()}, {sub(rng.choice(COMPARABLE))})",
                ]
            case "datetime":
                forms += [lambda: "now()", lambda: f"current_timestamp({self.few()})"]
            case "int[]":
                forms += [lambda: f"ARRAY[{sub('int')}, {sub('int')}]"]
            case "bool":
                t = rng.choice(COMPARABLE)
                other = rng.choice(NUMBERS) if t in NUMBERS else t
                no = rng.choice(("", "NOT "))
                op = rng.choice(("=", "<>", "<", "<=", ">", ">="))
                forms += [
                    lambda: f"({sub(t)} {op} {sub(other)})",
                    lambda: f"({sub(t)} {op} {sub(other)})",
                    lambda: f"({sub()} AND {sub()} OR NOT {sub()})",
                    lambda: f"({sub(t)} {no}IN ({sub(other)}, {sub(t)}))",
                    lambda: f"({sub(t)} {no}IN (SELECT {sub(other)}))",
                    lambda: f"({sub(t)} {no}BETWEEN {sub(other)} AND {sub(t)})",
                    lambda: f"({sub('text')} {no}LIKE {sub('text')})",
                    lambda: f"(({sub(t)}, {sub('int')}) {op} ({sub(other)}, {sub('int')}))",
                    lambda: f"({sub(t)} IS {no}NULL)",
                    lambda: f"({sub(t)} IS {no}DISTINCT FROM {sub(other)})",
                    lambda: f"({sub()} IS {no}TRUE)",
                    lambda: f"EXISTS (SELECT {self.few()} FROM s WHERE {sub()})",
                    lambda: f"({sub('int')} = ANY ({sub('int[]')}))",
                ]
        return forms

    # --- statements ---

    def statement(self) -> str:
        forms = (self.select, self.select, self.grouped, self.union, self.insert, self.upsert, self.update)
        return self.rng.choice(forms)()

    def select(self) -> str:
        rng = self.rng
        items = [self.expression(rng.choice(TYPES)) for _ in range(rng.randint(1, 3))]
        parts = [f"SELECT {rng.choice(('', '', 'DISTINCT '))}{', '.join(items)} FROM t"]
        if rng.random() < 0.6:
            parts.append(f"WHERE {self.expression('bool')}")
        chance = rng.random()
        if chance < 0.2:
            parts.append(f"ORDER BY {self.literal('integer')}")
        elif chance < 0.4:
            parts.append(f"ORDER BY {self.expression('int', 2)} DESC NULLS LAST")
        if rng.random() < 0.4:
            parts.append(f"LIMIT {self.literal('integer')} OFFSET $5")
        return " ".join(parts)

    def grouped(self) -> str:
        rng = self.rng
        form = rng.choice(("t.b", "t.a", "t.a + ?", "lower(t.b)", "t.a % ? + ?"))

        def key() -> str:
            """The same each time, maybe but for its literals."""
            return "".join(self.few() if character == "?" else character for character in form)

        first = key()
        aggregate = rng.choice(("count(*)", "sum(t.c)", "max(t.b)", "string_agg(t.b, ?)", "avg(t.m)"))
        aggregate = aggregate.replace("?", self.string("-", "+")) if "?" in aggregate else aggregate
        text = f"SELECT {first}, {aggregate} FROM t GROUP BY {key()}"
        if rng.random() < 0.3:
            text += f" HAVING count(*) > {self.few()}"
        if rng.random() < 0.3:
            text += f" ORDER BY {key()}"
        return text

    def few(self) -> str:
        self.literals.append(Literal("integer", self.rng.choice("12")))
        return "\x00"

    def union(self) -> str:
        rng = self.rng
        types = [rng.choice(TYPES) for _ in range(2)]
        sides = [
            f"SELECT {', '.join(self.expression(t, 2) for t in types)} FROM t"
            for _ in range(rng.randint(2, 3))
        ]
        return f" {rng.choice(('UNION', 'UNION ALL', 'EXCEPT'))} ".join(sides)

    def insert(self) -> str:
        columns = "a, b, c, d, u, w, f, l, m, n"
        types = ("int", "text", "double", "decimal", "uuid", "datetime", "bool", "int[]", "decimal", "int")
        if self.rng.random() < 0.5:
            values = ", ".join(self.expression(t, 1) for t in types)
            return f"INSERT INTO t ({columns}) SELECT {values} FROM t"
        rows = []
        for _ in range(self.rng.randint(1, 3)):
            rows.append("(" + ", ".join(self.constant(t) for t in types) + ")")
        return f"INSERT INTO t ({columns}) VALUES {', '.join(rows)}"

    def constant(self, wanted: str) -> str:
        rng = self.rng
        if wanted == "int[]":
            return rng.choice(("ARRAY[]", "NULL"))
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"${rng.randint(1, 4)}",
            lambda: self.literal_for(wanted),
            lambda: self.literal_for(wanted),
            lambda: self.literal("string"),
            lambda: f"{self.literal_for(wanted)}::{wanted}",
            lambda: "DEFAULT",
        )
        return rng.choice(forms)()

    def upsert(self) -> str:
        values = ", ".join(self.constant(t) for t in ("int", "text", "int", "decimal"))
        return (
            f"INSERT INTO s VALUES ({values}) ON CONFLICT (a, k) DO UPDATE "
            f"SET v = s.v + excluded.v + {self.literal('integer')}, x = {self.constant('decimal')} RETURNING s.x"
        )

    def update(self) -> str:
        rng = self.rng
        column = rng.choice(("b text", "c double", "d decimal", "w datetime", "f bool", "m decimal", "n int"))
        name, wanted = column.split()
        return f"UPDATE t SET {name} = {self.expression(wanted)} WHERE {self.expression('bool', 2)}"
