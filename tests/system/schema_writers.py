"""Clients that change schemas and know what must come of it: each has one table of its own.

Here: SchemaWriter, what it does next, and the comparison with what the instance has afterwards.
Not here: who ends the instance meanwhile (test_kill_schema_changes.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from tests.cluster import Instance
from tests.system.catalog_files import user_tables

_GONE = ("57P01", "40003", None)
_KINDS = (
    # A unique index must begin with the sharding key, so only some of these tables can violate one.
    "DISTRIBUTED BY (g)",
    "DISTRIBUTED GLOBALLY",
    "DISTRIBUTED BY (id)",
)


@dataclass(frozen=True)
class State:
    """The table as it is; no columns: there is none."""

    name: str
    columns: tuple[str, ...] = ()
    indexes: frozenset[str] = frozenset()
    rows: frozenset[tuple[int | None, ...]] = frozenset()
    kind: str = ""


@dataclass(frozen=True)
class Step:
    sql: str
    after: State
    refused: str | None = None


class SchemaWriter:
    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.state = State(f"s{number}")
        self.unanswered: State | None = None
        self.acknowledged = 0
        self.changes = 0  # of them, those of the schema
        self.failure: BaseException | None = None
        self._chance = random.Random(seed * 1000 + number)
        self._last = 0

    def run(self, instance: Instance) -> None:
        """Until the instance is gone."""
        try:
            with instance.connect() as connection:
                while self._one(connection):
                    pass
        except BaseException as error:
            self.failure = error

    def _one(self, connection: psycopg.Connection) -> bool:
        step = self._step()
        try:
            connection.execute(step.sql.encode())
        except psycopg.Error as error:
            if error.sqlstate == "40001":
                return True  # nothing has happened: nobody leads, say
            if error.sqlstate == "57S01":
                pass  # committed, and somebody hasn't said that it knows
            elif error.sqlstate is None or error.sqlstate != step.refused:
                if error.sqlstate not in _GONE:
                    error.add_note(step.sql)
                    raise
                self.unanswered = step.after
                return False
        else:
            assert step.refused is None, f"{step.sql} must be refused with {step.refused}"
        self.state = step.after
        self.acknowledged += 1
        self.changes += not step.sql.startswith("INSERT")
        return True

    # --- what it does next

    def _step(self) -> Step:
        state, chance = self.state, self._chance
        if not state.columns:
            return self._create_table()
        what = chance.choices(
            (
                "insert",
                "create index",
                "drop index",
                "add column",
                "rename column",
                "rename",
                "truncate",
                "drop",
            ),
            (6, 4, 3, 2, 2, 1, 2, 1),
        )[0]
        match what:
            case "create index":
                return self._create_index()
            case "drop index" if state.indexes:
                gone = chance.choice(sorted(state.indexes))
                return Step(f"DROP INDEX {gone}", replace(state, indexes=state.indexes - {gone}))
            case "add column" if len(state.columns) < 12:
                name = self._new_name("c")
                rows = frozenset((*row, None) for row in state.rows)
                after = replace(state, columns=(*state.columns, name), rows=rows)
                return Step(f"ALTER TABLE {state.name} ADD COLUMN {name} INT", after)
            case "rename column":
                at = chance.randrange(2, len(state.columns))
                name = self._new_name("r")
                columns = (*state.columns[:at], name, *state.columns[at + 1 :])
                return Step(
                    f"ALTER TABLE {state.name} RENAME COLUMN {state.columns[at]} TO {name}",
                    replace(state, columns=columns),
                )
            case "rename":
                name = self._new_name(f"s{self.number}_")
                return Step(f"ALTER TABLE {state.name} RENAME TO {name}", replace(state, name=name))
            case "truncate":
                return Step(f"TRUNCATE {state.name}", replace(state, rows=frozenset()))
            case "drop":
                return Step(f"DROP TABLE {state.name}", State(self._new_name(f"s{self.number}_")))
            case _:
                return self._insert()

    def _create_table(self) -> Step:
        kind = self._chance.choice(_KINDS)
        after = replace(self.state, columns=("id", "g", "v"), kind=kind)
        return Step(f"CREATE TABLE {after.name} (id INT PRIMARY KEY, g INT NOT NULL, v INT) {kind}", after)

    def _insert(self) -> Step:
        state, chance = self.state, self._chance
        rows = []
        for _ in range(chance.randint(1, 40)):
            self._last += 1
            # The second column tells rows apart in every index; the third sometimes doesn't.
            rest = [chance.randint(0, 100_000) for _ in state.columns[2:]]
            rows.append((self._last, self._last % 7, *rest))
        values = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
        return Step(f"INSERT INTO {state.name} VALUES {values}", replace(state, rows=state.rows | set(rows)))

    def _create_index(self) -> Step:
        """A unique one only where it must fail: so no later INSERT can."""
        state, chance = self.state, self._chance
        name = self._new_name(f"i{self.number}_")
        column = state.columns[chance.randrange(2, len(state.columns))]
        groups = [row[1] for row in state.rows]
        if chance.random() < 0.4 and len(groups) > len(set(groups)) and "(id)" not in state.kind:
            return Step(f"CREATE UNIQUE INDEX {name} ON {state.name} (g)", state, refused="23505")
        if len(state.indexes) >= 4:
            return self._insert()
        return Step(
            f"CREATE INDEX {name} ON {state.name} ({column})",
            replace(state, indexes=state.indexes | {name}),
        )

    def _new_name(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}{self._last}"

    # --- afterwards

    def check(self, instance: Instance) -> None:
        allowed = [self.state] if self.unanswered is None else [self.state, self.unanswered]
        with instance.connect() as connection:
            found = [self._find(connection, instance.directory, state.name) for state in allowed]
        matching = [
            state
            for state in allowed
            # If the name changed, the other one must be gone.
            if all(
                seen == (replace(state, kind="") if other.name == state.name else State(other.name))
                for seen, other in zip(found, allowed, strict=True)
            )
        ]
        assert matching, f"allowed {allowed}, found {found}"
        self.state, self.unanswered = matching[0], None

    def _find(self, connection: psycopg.Connection, directory: Path, name: str) -> State:
        table = user_tables(directory).get(name)
        if table is None:
            try:
                connection.execute(f"SELECT * FROM {name}".encode())
            except psycopg.errors.UndefinedTable:
                return State(name)
            raise AssertionError(f"{name} is not in the catalog's file, and can be read")
        cursor = connection.execute(f"SELECT * FROM {name}".encode())
        assert cursor.description is not None
        assert [column.name for column in cursor.description] == [column.name for column in table.columns]
        return State(
            name,
            tuple(column.name for column in table.columns),
            frozenset(index.name for index in table.indexes),
            frozenset(cursor.fetchall()),
        )
