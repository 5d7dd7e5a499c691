"""Statements by chance, all of which parse: what the parser's properties are tried on."""

from __future__ import annotations

import random
from collections.abc import Callable

NAMES = (
    "a",
    "b",
    "t1",
    "c2",
    "x$1",
    "e",
    '"Q 1"',
    '"it\'s"',
    '"a""1"',
    "жук2",
    "t.a",
    't1."2"',
    "public.t.c3",
    "offset",
)
TYPES = (
    "int",
    "text",
    "decimal(10, 2)",
    "int[]",
    "double precision",
    "timestamp(3) with time zone",
    "varchar(5)",
)
BINARY = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "=",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "is distinct from",
)


class Chance:
    """A random generator that knows some SQL."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def literal(self) -> str:
        rng = self.rng
        number = str(rng.randrange(10 ** rng.randint(1, 17)))
        return rng.choice(
            (
                number,
                f"{number}.{rng.randrange(1000)}",
                f"{number}.",
                f".{number}",
                f"{number}e{rng.choice(('', '-', '+'))}{rng.randrange(30)}",
                f".5E{rng.randrange(9)}",
                "''",
                f"'{number}'",
                "'it''s'",
                "''''",
                "'-- no /* comment $$ \"'",
                "'\n1, \\'",
                "'Ω 😀'",
            )
        )

    def atom(self) -> str:
        rng = self.rng
        choices = (self.literal, self.literal, lambda: rng.choice(NAMES), lambda: f"${rng.randint(1, 9)}")
        words = lambda: rng.choice(("null", "true", "FALSE", "current_timestamp(3)", "current_date", "now()"))  # noqa: E731
        return rng.choice((*choices, words))()

    def expression(self, depth: int = 4) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            return self.atom()

        def sub() -> str:
            return self.expression(depth - 1)

        def bracketed() -> str:
            return f"({self.expression(depth - 1)})"

        negation = rng.choice(("", "not "))
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"{sub()} {rng.choice(BINARY)} {sub()}",
            lambda: f"{sub()}{rng.choice(('+', '*', '/', '=', '<', '||', '<>'))}{bracketed()}",
            lambda: f"{bracketed()}-{self.literal()}",
            bracketed,
            lambda: f"-{bracketed()}",
            lambda: f"- {self.atom()}",
            lambda: f"not {sub()}",
            lambda: f"{bracketed()} is {negation}{rng.choice(('null', 'true', 'unknown'))}",
            lambda: f"{bracketed()} {negation}in ({sub()}, {sub()})",
            lambda: f"{bracketed()} {negation}in ({self.query(depth - 1)})",
            lambda: f"{bracketed()} {negation}between {bracketed()} and {bracketed()}",
            lambda: (
                f"{bracketed()} {negation}{rng.choice(('like', 'ilike', 'similar to'))} {bracketed()} escape '#'"
            ),
            lambda: f"case when {sub()} then {sub()} else {sub()} end",
            lambda: f"case {sub()} when {sub()} then {sub()} end",
            lambda: f"{bracketed()}::{rng.choice(TYPES)}",
            lambda: f"cast({sub()} as {rng.choice(TYPES)})",
            lambda: f"f1({sub()}, {sub()})",
            lambda: f"count(distinct {sub()}) filter (where {sub()})",
            lambda: f"array[{sub()}, {sub()}][{sub()}]",
            lambda: f"({sub()}, {sub()}) = ({sub()}, {sub()})",
            lambda: f"trim(leading {bracketed()} from {sub()})",
            lambda: f"substring({bracketed()} from {bracketed()} for {bracketed()})",
            lambda: f"position({bracketed()} in {sub()})",
            lambda: f"exists ({self.query(depth - 1)})",
            lambda: f"({self.query(depth - 1)})",
            lambda: f"{bracketed()} = any (array[{sub()}])",
        )
        return rng.choice(forms)()

    def query(self, depth: int = 3) -> str:
        rng = self.rng
        if depth <= 0:
            return f"values ({self.atom()})"
        if rng.random() < 0.2:
            operator = rng.choice(("union", "union all", "except", "intersect"))
            return f"({self.query(depth - 1)}) {operator} {self.select(depth - 1)}"
        return self.select(depth)

    def select(self, depth: int) -> str:
        rng = self.rng

        def sub() -> str:
            return self.expression(depth - 1)

        parts = [f"select {rng.choice(('', 'distinct '))}{sub()}, {sub()} as x1, t.*"]
        item = rng.choice(("t", "t1 as y", f"({self.query(depth - 1)}) z2", "public.t indexed by i1"))
        join = rng.choice(("", f" join u2 on {sub()}", f" left join u on {sub()}", ", u3", " cross join u"))
        clauses = (
            f"from {item}{join}",
            f"where {sub()}",
            f"group by {sub()}, {sub()} having {sub()}",
            f"order by {sub()} desc nulls last, 1",
            f"limit {rng.randrange(100)} offset {rng.randrange(100)}",
        )
        return " ".join((*parts, *(clause for clause in clauses if rng.random() < 0.5)))

    def statement(self) -> str:
        rng = self.rng
        forms: tuple[Callable[[], str], ...] = (
            self.query,
            lambda: (
                f"insert into t1 (a, b2) values ({self.expression()}, default), ({self.atom()}, {self.atom()})"
            ),
            lambda: f"insert into t {self.query()} on conflict do nothing returning *, {self.expression(2)}",
            lambda: (
                f"update t2 set a = {self.expression()}, b = {self.expression()} where {self.expression()}"
            ),
            lambda: (
                f"delete from t where {self.expression()} option (sql_motion_row_max = {rng.randrange(99)})"
            ),
            lambda: (
                f"create table t{rng.randrange(9)} (a varchar({rng.randrange(99)}), b2 int[3], primary key (a))"
            ),
            lambda: f"set x.y1 = {self.literal()}, -{rng.randrange(9)}, on",
            lambda: f"explain (logical) {self.query()}",
        )
        return rng.choice(("", " ", "\n\t")) + rng.choice(forms)() + rng.choice(("", " ", ";", " ;;"))
