"""What a change of a global table has read: as scripts, and by chance against what the reads are for.

A proposal that conflicts with nothing must be decided the same on the state that it joins. So statements run
dry on an old state, others go ahead, and where cas.conflict() has no objection the statement runs dry again:
the same rows, the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from shoal.catalog.cas import Predicate, Range, Tail, conflict
from shoal.catalog.entries import DdlCommit, DdlPrepare, Dml, Entry, RowChange
from shoal.catalog.schema import DEFAULT_TIER, Schema, Tier
from shoal.catalog.system import PICO_TABLE, PICO_TIER, SYSTEM_TABLES, table_row, tier_row
from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.bind import BindSettings, bind
from shoal.sql.bind.ddl import bind_ddl
from shoal.sql.local import compile_program
from shoal.sql.normalise import normalise
from shoal.sql.parser import parse_one
from shoal.sql.program import Program, bindings
from shoal.storage.catalog_db import CatalogDb, DryRun
from shoal.storage.functions import register
from shoal.storage.sqlite import Settings, SqliteFiles, WalMode
from shoal.types.text import text_decoder
from shoal.types.values import Stored
from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.database import Database
from tests.unit.storage.log_of_one import append


def _program(text: str, schema: Schema) -> Program:
    statement = parse_one(text)
    assert isinstance(statement, ast.Insert | ast.Update | ast.Delete)
    return compile_program(bind(statement, schema, (), BindSettings()), schema)


@pytest.mark.parametrize("path", script_paths("sql/reads"), ids=lambda path: path.stem)
def test_scripts(path: Path, tmp_path: Path, rewrite: bool) -> None:
    database = Database(tmp_path)

    def shown(range: Range) -> str:
        table = database.schema.tables_by_id[range.table_id]  # type: ignore[index]
        if range.is_whole_table:
            return table.name
        assert range.one_key is not None
        more = ", …" * (len(range.one_key) < len(table.primary_key))
        return f"{table.name} ({', '.join(map(str, range.one_key))}{more})"

    def execute(text: str) -> str:
        if text.startswith("CREATE"):
            return database.script(text)
        first, _, rest = text.partition("\n")
        spelled = [word.strip() for word in first[6:].split("|")] if first.startswith("params") else []
        program = _program(rest if spelled else text, database.schema)
        params = [
            None if word == "NULL" else text_decoder(t)(word)
            for word, t in zip(spelled, program.parameters, strict=True)
        ]
        given = bindings(program)(params, None, database.facts())
        reads = program.reads
        if reads.inserted is None:
            lines = [shown(range) for range in reads.ranges(given, 0)]
        else:
            lines = [shown(range) for range in reads.ranges(given, reads.inserted)]
            lines += [f"left out: {shown(range)}" for range in reads.ranges(given, 0)[len(lines) :]]
        return "\n".join(lines) or "nothing"

    run_script(path, execute, rewrite)
    database.close()


# --- by chance -----------------------------------------------------------------------------------

TABLES = """
CREATE TABLE t (a INT, b TEXT, v INT, w INT, PRIMARY KEY (a, b)) DISTRIBUTED GLOBALLY
CREATE UNIQUE INDEX t_v ON t (v)
CREATE TABLE s (k INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY
CREATE TABLE d (v INT, k DECIMAL(6, 1), w INT, PRIMARY KEY (k DESC)) DISTRIBUTED GLOBALLY
CREATE UNIQUE INDEX d_vw ON d (w, v)
"""
KEYS = {"t": ("a", "b"), "s": ("k",), "d": ("k",)}
COLUMNS = {"t": ("a", "b", "v", "w"), "s": ("k", "v"), "d": ("v", "k", "w")}
SPELLED: dict[tuple[str, str], Sequence[str]] = {
    ("t", "b"): ("'x'", "'y'"),
    ("d", "k"): ("1", "1.04", "1.1", "2.0", "2"),
}
INTEGERS = ("0", "1", "2", "3", "NULL")


class Cluster:
    """A log, its database, and the tail that its leader looks at."""

    def __init__(self, directory: Path) -> None:
        self.db = CatalogDb(SqliteFiles(directory), Settings(functions=register, wal_mode=WalMode.WRITE))
        self.tail = Tail(0)
        changes = [RowChange(PICO_TIER.id, (DEFAULT_TIER,), tier_row(Tier(DEFAULT_TIER)))]
        changes += [RowChange(PICO_TABLE.id, (t.id,), table_row(t)) for t in SYSTEM_TABLES]
        self.append(Dml(tuple(changes), 1))
        for text in TABLES.strip().splitlines():
            catalog = self.db.catalog
            statement = parse_one(text)
            assert isinstance(statement, ast.DDL)
            for change in bind_ddl(statement, catalog.schema, 1, catalog.next_table_id):
                self.append(DdlCommit(self.append(DdlPrepare(change, 1))))

    def append(self, entry: Entry) -> int:
        index, _ = append(self.db, entry)
        self.tail.append(index, entry)
        return index

    def conflict(self, dry: DryRun, ranges: tuple[Range, ...], since: int) -> str | None:
        entry = Dml(dry.changes, 1)
        return conflict(
            Predicate(1, since, ranges), entry, self.tail, self.db.catalog.schema, self.db.last_index
        )


class Chance:
    """Statements by chance. A slot is a literal or a parameter."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> tuple[str, list[str]]:
        """The text, with a place for each slot, and the values' spellings."""
        self.slots: list[str] = []
        table = self.rng.choice(("t", "t", "s", "d"))
        match self.rng.randrange(4):
            case 0 | 1:
                text = self._insert(table)
            case 2:
                text = self._update(table)
            case _:
                text = f"DELETE FROM {table}{self._where(table)}"
        if self.rng.random() < 0.3:
            text += f" RETURNING {', '.join(COLUMNS[table])}"
        return text, self.slots

    def _slot(self, table: str, column: str, *, nulls: bool = True) -> str:
        choices = SPELLED.get((table, column), INTEGERS if nulls else INTEGERS[:-1])
        self.slots.append(self.rng.choice(choices))
        return "{}"

    def _insert(self, table: str) -> str:
        rng = self.rng
        text = f"INSERT INTO {table} "
        others = [other for other in ("s", "t") if other != table]
        if rng.random() < 0.15:
            filter = f" WHERE v > {self._slot('s', 'v')}" if rng.random() < 0.5 else ""
            columns = {"t": "v, 'z', v, v", "s": "v, v", "d": "v, v, v"}[table]
            text += f"SELECT {columns} FROM {rng.choice(others)}{filter} ORDER BY 1 LIMIT 2"
        else:
            rows = []
            for _ in range(rng.choice((1, 1, 2, 3))):
                values = []
                for column in COLUMNS[table]:
                    if column not in KEYS[table] and rng.random() < 0.15:
                        values.append(f"(SELECT max(v) FROM {rng.choice(others)})")
                    else:
                        values.append(self._slot(table, column, nulls=column not in KEYS[table]))
                rows.append(f"({', '.join(values)})")
            text += f"VALUES {', '.join(rows)}"
        return text + self._on_conflict(table)

    def _on_conflict(self, table: str) -> str:
        rng = self.rng
        targets = [", ".join(KEYS[table])] + {"t": ["v"], "s": [], "d": ["w, v"]}[table]
        match rng.randrange(5):
            case 0 | 1:
                return f" ON CONFLICT{rng.choice(['', f' ({rng.choice(targets)})'])} DO NOTHING"
            case 2:
                text = f" ON CONFLICT ({rng.choice(targets)}) DO UPDATE SET v = {self._slot(table, 'v')}"
                return text + (f" WHERE {table}.v > {self._slot('s', 'v')}" if rng.random() < 0.6 else "")
            case 3:
                return " ON CONFLICT DO REPLACE"
            case _:
                return ""

    def _update(self, table: str) -> str:
        rng = self.rng
        other = "s" if table != "s" else "t"
        match rng.randrange(6):
            case 0:
                return f"UPDATE {table} SET v = {other}.v FROM {other}{self._where(table)} AND {other}.v = 1"
            case 1 | 2:
                value = self._slot(table, "v")
            case _:
                value = rng.choice((f"{table}.v + 1", "NULL", "(SELECT max(v) FROM s)"))
        return f"UPDATE {table} SET v = {value}{self._where(table)}"

    def _where(self, table: str) -> str:
        rng = self.rng
        conditions = []
        for column in KEYS[table]:
            if rng.random() < 0.85:
                conditions.append(self._condition(table, column))
        if rng.random() < 0.4 or not conditions:
            conditions.append(self._condition(table, "v"))
        rng.shuffle(conditions)
        return " WHERE " + rng.choice((" AND ", " AND ", " AND ", " OR ")).join(conditions)

    def _condition(self, table: str, column: str) -> str:
        named = f"{table}.{column}"
        match self.rng.randrange(8):
            case 0 | 1 | 2 | 3:
                return f"{named} = {self._slot(table, column)}"
            case 4 | 5:
                negation = self.rng.choice(("", "", "NOT "))
                return f"{named} {negation}IN ({self._slot(table, column)}, {self._slot(table, column)})"
            case 6:
                return f"{named} {self.rng.choice(('>', '<=', '<>'))} {self._slot(table, column)}"
            case _:
                return f"{self._slot(table, column)} = {named}"


class Statement:
    """A program and its values: some of them parameters, the others literals that another text had in their
    places when the program was made."""

    def __init__(self, cluster: Cluster, rng: random.Random, skeleton: str, spelled: Sequence[str]) -> None:
        numbers: dict[int, int] = {}
        for slot in range(len(spelled)):
            if rng.random() < 0.3 and spelled[slot] != "NULL":
                numbers[slot] = len(numbers) + 1
        schema = cluster.db.catalog.schema
        self.text = self._text(skeleton, spelled, numbers)
        program = _program(self.text, schema)
        literals = None
        twin = self._text(skeleton, [_another(rng, value) for value in spelled], numbers)
        ours, theirs = normalise(self.text), normalise(twin)
        if ours is not None and theirs is not None and ours.template == theirs.template:
            shared = _program(twin, schema)
            if shared.templatable:
                program, literals = shared, ours.literals
        self.shares = literals is not None
        self.program = program
        params = [
            text_decoder(program.parameters[number - 1])(spelled[slot].strip("'"))
            for slot, number in numbers.items()
        ]
        self.given = bindings(program)(params, literals, {})

    def _text(self, skeleton: str, spelled: Sequence[str], numbers: dict[int, int]) -> str:
        return skeleton.format(*(f"${numbers[i]}" if i in numbers else s for i, s in enumerate(spelled)))

    def run_dry(self, cluster: Cluster) -> DryRun:
        return cluster.db.dry_run(self.program.sql, self.given)

    def reads(self, dry: DryRun) -> tuple[Range, ...]:
        return self.program.reads.ranges(self.given, dry.count)


def _another(rng: random.Random, spelled: str) -> str:
    if spelled == "NULL":
        return spelled
    if spelled.startswith("'"):
        return rng.choice(("'x'", "'y'"))
    return rng.choice(("1.1", "9.9") if "." in spelled else ("5", "6", "0"))


def _decided(cluster: Cluster, rng: random.Random) -> tuple[Statement, DryRun] | None:
    skeleton, spelled = Chance(rng).statement()
    try:
        statement = Statement(cluster, rng, skeleton, spelled)
        return statement, statement.run_dry(cluster)
    except ShoalError as error:
        assert error.sqlstate != "XX000", skeleton
        return None


@pytest.mark.parametrize("seed", range(6))
def test_what_conflicts_with_nothing_would_be_decided_the_same_again(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    cluster = Cluster(tmp_path)
    good = bad = shared = 0
    empty: list[Stored] = []
    for _ in range(350):
        decided = _decided(cluster, rng)
        if decided is None:
            continue
        statement, dry = decided
        since = cluster.db.last_index
        for _ in range(rng.choice((1, 1, 2, 3))):
            other = _decided(cluster, rng)
            if other is not None and other[1].changes:
                cluster.append(Dml(other[1].changes, 1))
        if since == cluster.db.last_index:
            continue
        if cluster.conflict(dry, statement.reads(dry), since) is not None:
            bad += 1
            continue
        good += 1
        shared += statement.shares
        again = statement.run_dry(cluster)
        assert again == dry, (statement.text, statement.given)
        if dry.changes:
            cluster.append(Dml(dry.changes, 1))  # an apply can't fail
        else:
            empty.append(statement.text)
    assert good > 40
    assert bad > 10
    assert shared > 10
    assert len(empty) > 5


def test_nothing_is_read_where_nothing_needs_to_be(tmp_path: Path) -> None:
    """The statements that a busy cluster lives of must not conflict but by their own rows."""
    cluster = Cluster(tmp_path)
    rng = random.Random(0)
    for text in (
        "INSERT INTO t VALUES (5, 'x', 50, 1)",
        "INSERT INTO s VALUES (5, 1) ON CONFLICT (k) DO UPDATE SET v = s.v + 1",
        "INSERT INTO t VALUES (6, 'x', 60, 1) ON CONFLICT DO NOTHING",
        "UPDATE t SET w = w + 1 WHERE a = 5 AND b = 'x'",
        "DELETE FROM s WHERE k = 5",
    ):
        statement = Statement(cluster, rng, text, ())
        dry = statement.run_dry(cluster)
        since = cluster.db.last_index
        for number in range(3):
            changes = (
                RowChange(1025, (number, "y"), (number, "y", None, None)),
                RowChange(1026, (number,), (number, 1)),
            )
            cluster.append(Dml(changes, 1))
        assert cluster.conflict(dry, statement.reads(dry), since) is None, text
        cluster.append(Dml(dry.changes, 1))
