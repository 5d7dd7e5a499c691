"""A round: a schema with rows, and statements on it, in both databases.

Here: run_round(), Mismatch.
Not here: making the statements, comparing (the other modules).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.differential.changes import Changes, a_table
from tests.differential.compare import difference
from tests.differential.expressions import Chance
from tests.differential.queries import Queries
from tests.differential.sides import Answer, Ours, Theirs


@dataclass(frozen=True, slots=True)
class Mismatch:
    seed: int
    ours: str
    theirs: str
    why: str
    setup: tuple[str, ...]  # what the tables hold, as statements for Shoal

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.why}\n{self.ours}\n-- {self.theirs}"


@dataclass
class Report:
    statements: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    mismatches: list[Mismatch] = field(default_factory=list)


def run_round(seed: int, theirs: Theirs, directory: Path, report: Report, statements: int = 60) -> None:
    rng = random.Random(seed)
    ours = Ours(directory)
    try:
        _Round(seed, rng, ours, theirs, report).run(statements)
    finally:
        ours.close()


class _Round:
    def __init__(self, seed: int, rng: random.Random, ours: Ours, theirs: Theirs, report: Report) -> None:
        self.seed, self.rng, self.ours, self.theirs, self.report = seed, rng, ours, theirs, report
        all_global, all_sharded = rng.random() < 0.3, rng.random() < 0.4
        self.tables = [
            a_table(rng, n, all_global or (not all_sharded and rng.random() < 0.4))
            for n in range(rng.randint(2, 3))
        ]
        self.setup: list[str] = []

    def run(self, statements: int) -> None:
        self.theirs.run("DROP SCHEMA IF EXISTS public CASCADE")
        self.theirs.run("CREATE SCHEMA public")
        for table in self.tables:
            for text in table.ours:
                self._must(self.ours.run(text), text)
                self.setup.append(text)
            for text in table.theirs:
                self._must(self.theirs.run(text), text)
            ours, theirs = Changes(Chance(self.rng), self.tables).some_rows(table)
            if ours:
                self._must(self.ours.run(ours), ours)
                self._must(self.theirs.run(theirs), theirs)
                self.setup.append(ours)
        columns = {table.name: table.columns for table in self.tables}
        for _ in range(statements):
            if self.rng.random() < 0.25:
                if not self._change():
                    return
            else:
                self._query(columns)

    def _must(self, answer: Answer, text: str) -> None:
        assert answer.sqlstate is None, (self.seed, answer, text)

    def _query(self, columns: dict) -> None:  # type: ignore[type-arg]
        chance = Chance(self.rng, safe=self.rng.random() < 0.85)
        query = Queries(chance, columns).query()
        a, b = self.ours.run(query.ours), self.theirs.run(query.theirs)
        self._compare(
            query.ours,
            query.theirs,
            a,
            b,
            chance.may_fail,
            query.sorted_by,
            [column.like.exact for column in query.columns],
        )

    def _change(self) -> bool:
        """Whether both sides hold the same rows still."""
        chance = Chance(self.rng, safe=self.rng.random() < 0.8)
        change = Changes(chance, self.tables).change()
        a, b = self.ours.run(change.ours), self.theirs.run(change.theirs)
        same = self._compare(
            change.ours,
            change.theirs,
            a,
            b,
            change.may_fail,
            (),
            [returned.exact for returned in change.returns],
        )
        if not same or (a.sqlstate is None) != (b.sqlstate is None):
            return False
        self.setup.append(change.ours)
        text = f"SELECT * FROM {change.table.name}"
        columns = len(change.table.columns)
        return self._compare(
            text, text, self.ours.run(text), self.theirs.run(text), False, (), [True] * columns
        )

    def _compare(
        self,
        ours: str,
        theirs: str,
        a: Answer,
        b: Answer,
        may_fail: bool,
        sorted_by: tuple[int, ...],
        exact: list[bool],
    ) -> bool:
        report = self.report
        report.statements += 1
        if a.sqlstate is not None or b.sqlstate is not None:
            report.outcomes[f"{a.sqlstate or 'ok'}/{b.sqlstate or 'ok'}"] += 1
        else:
            report.outcomes["rows" if a.rows else "no rows"] += 1
        why = difference(a, b, may_fail=may_fail, sorted_by=sorted_by, exact=exact)
        if why is None:
            return True
        report.mismatches.append(Mismatch(self.seed, ours, theirs, why, tuple(self.setup)))
        return False
