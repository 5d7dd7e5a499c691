"""Writers that know what must be there: each keeps to rows of its own, so a model can follow it exactly.

Here: Writers, several of them at work on one instance, killed or stopped in the middle; and the comparison
with what the instance has afterwards.

The one statement of each writer that was not answered may have happened or not, as a whole: both states are
allowed, everything else is not.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import psycopg

from tests.cluster import Instance, eventually

SCHEMA: Final = (
    "CREATE TABLE kv (id INT PRIMARY KEY, writer INT NOT NULL, version INT NOT NULL, payload TEXT NOT NULL)",
    "CREATE INDEX kv_writer ON kv (writer, version)",
    "CREATE TABLE words (word TEXT, id INT, writer INT NOT NULL, version INT NOT NULL, payload TEXT NOT NULL,"
    " PRIMARY KEY (word, id)) DISTRIBUTED BY (word)",
    "CREATE UNIQUE INDEX words_id ON words (word, id)",
    "CREATE TABLE counters (writer INT PRIMARY KEY, n INT NOT NULL)",
)

# What an answer can be when the instance goes away: everything else a writer meets is a failure of the test.
_GONE: Final = ("57P01", "40003", None)

Rows = dict[int, tuple[int, str]]  # id → version, payload


@dataclass
class State:
    """What one writer has in the tables."""

    kv: Rows = field(default_factory=dict)
    words: Rows = field(default_factory=dict)
    counter: int = 0

    def copy(self) -> State:
        return State(dict(self.kv), dict(self.words), self.counter)


@dataclass(frozen=True)
class Step:
    sql: str
    parameters: tuple[object, ...]
    after: State
    refused: str | None = None  # the SQLSTATE of the answer that it must get


class Writer:
    def __init__(self, number: int, seed: int, payload_bytes: int) -> None:
        self.number = number
        self.state = State()
        self.unanswered: State | None = None  # the state if the last statement happened
        self.acknowledged = 0
        self.failure: BaseException | None = None
        self._chance = random.Random(seed * 100 + number)
        self._next = 0
        self._payload_bytes = payload_bytes

    def run(self, instance: Instance) -> None:
        """Until the instance is gone."""
        try:
            with instance.connect(prepare_threshold=self._chance.choice((0, 5, None))) as connection:
                while self._one(connection):
                    pass
        except BaseException as error:
            self.failure = error

    def _one(self, connection: psycopg.Connection) -> bool:
        step = self._step()
        try:
            cursor = connection.execute(step.sql.encode(), step.parameters)
        except psycopg.Error as error:
            if error.sqlstate is not None and error.sqlstate == step.refused:
                self.acknowledged += 1
                return True
            if error.sqlstate not in _GONE:
                raise
            self.unanswered = step.after
            return False
        assert step.refused is None, f"{step.sql} must be refused with {step.refused}"
        assert cursor.rowcount >= 0
        self.state = step.after
        self.acknowledged += 1
        return True

    # --- what it does next

    def _step(self) -> Step:
        chance = self._chance
        makers: tuple[tuple[int, Callable[[str, State], Step]], ...] = (
            (4, self._insert_one),
            (4, self._insert_many),
            (4, self._update),
            (2, self._delete),
            (2, self._replace),
            (1, self._duplicate),
            (3, self._count),
        )
        (make,) = chance.choices([m for _, m in makers], [weight for weight, _ in makers])
        return make(chance.choice(("kv", "words")), self.state.copy())

    def _insert_one(self, table: str, after: State) -> Step:
        return self._insert(table, after, 1)

    def _insert_many(self, table: str, after: State) -> Step:
        return self._insert(table, after, self._chance.randint(2, 60))

    def _insert(self, table: str, after: State, count: int) -> Step:
        rows = {self._new_id(): (0, self._payload()) for _ in range(count)}
        _rows(after, table).update(rows)
        return Step(*self._values(table, rows), after)

    def _update(self, table: str, after: State) -> Step:
        part, more = self._chance.randint(0, 1), self._chance.choice("abc")
        rows = _rows(after, table)
        for id_, (version, payload) in rows.items():
            if version % 2 == part:
                rows[id_] = (version + 1, payload + more)
        return Step(
            f"UPDATE {table} SET version = version + 1, payload = payload || %s"
            " WHERE writer = %s AND version % 2 = %s".replace(" % 2", " %% 2"),
            (more, self.number, part),
            after,
        )

    def _delete(self, table: str, after: State) -> Step:
        rows = _rows(after, table)
        ids = sorted(rows)
        first = self._chance.choice(ids) if ids else 0
        last = first + self._chance.randint(0, 200) * 16
        for id_ in ids:
            if first <= id_ <= last:
                del rows[id_]
        return Step(
            f"DELETE FROM {table} WHERE writer = %s AND id BETWEEN %s AND %s",
            (self.number, first, last),
            after,
        )

    def _replace(self, table: str, after: State) -> Step:
        rows = _rows(after, table)
        some = self._chance.sample(sorted(rows), min(len(rows), 5))
        new = {id_: (rows[id_][0] + 1, self._payload()) for id_ in some}
        new[self._new_id()] = (0, self._payload())
        rows.update(new)
        sql, parameters = self._values(table, new)
        return Step(f"{sql} ON CONFLICT DO REPLACE", parameters, after)

    def _duplicate(self, table: str, after: State) -> Step:
        """Its last row is there already, so its first ones must not be."""
        rows = _rows(after, table)
        if not rows:
            return self._insert_many(table, after)
        new = {self._new_id(): (0, self._payload()) for _ in range(self._chance.randint(1, 20))}
        new[self._chance.choice(sorted(rows))] = (9, "")
        return Step(*self._values(table, new), after, refused="23505")

    def _count(self, _table: str, after: State) -> Step:
        after.counter += 1
        if after.counter == 1:
            return Step("INSERT INTO counters VALUES (%s, 1)", (self.number,), after)
        return Step("UPDATE counters SET n = n + 1 WHERE writer = %s", (self.number,), after)

    def _values(self, table: str, rows: Rows) -> tuple[str, tuple[object, ...]]:
        parameters: list[object] = []
        for id_, (version, payload) in rows.items():
            word = [] if table == "kv" else [_word(id_)]
            parameters += (*word, id_, self.number, version, payload)
        marks = ", ".join(["%s"] * (len(parameters) // len(rows)))
        return f"INSERT INTO {table} VALUES " + ", ".join([f"({marks})"] * len(rows)), tuple(parameters)

    def _new_id(self) -> int:
        self._next += 1
        return self._next * 16 + self.number

    def _payload(self) -> str:
        return self._chance.choice("xyz") * self._chance.randint(0, self._payload_bytes)

    # --- afterwards

    def check(self, connection: psycopg.Connection) -> None:
        """What is there is what was answered, and the unanswered statement as a whole or not at all."""
        found = State(
            _read(connection, "kv", self.number),
            _read(connection, "words", self.number),
            _read_counter(connection, self.number),
        )
        if found == self.state:
            pass
        elif found == self.unanswered:
            self.state = found
        else:
            raise AssertionError(f"writer {self.number}: {_difference(self.state, self.unanswered, found)}")
        self.unanswered = None


class Writers:
    """Several of them. begin(), then whatever happens to the instance, then join() and check()."""

    def __init__(self, count: int, seed: int, *, payload_bytes: int = 300) -> None:
        self.writers = [Writer(number, seed, payload_bytes) for number in range(1, count + 1)]
        self._threads: list[threading.Thread] = []
        self._seen: dict[int, int] = {}  # counters as somebody read them: what was read must stay
        self._watch_failure: BaseException | None = None

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def begin(self, instance: Instance) -> None:
        targets: list[Callable[[Instance], None]] = [writer.run for writer in self.writers]
        targets.append(self._watch)
        self._threads = [threading.Thread(target=target, args=(instance,)) for target in targets]
        for thread in self._threads:
            thread.start()

    def until(self, acknowledged: int, seconds: float) -> None:
        """Returns in the middle of things, when they have done so many more statements."""
        enough = self.acknowledged + acknowledged
        eventually(
            lambda: self.acknowledged >= enough or self._failure() is not None,
            seconds,
            f"{acknowledged} statements",
        )

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        failure = self._failure()
        if failure is not None:
            raise failure

    def _failure(self) -> BaseException | None:
        failures = [w.failure for w in self.writers if w.failure is not None]
        return next(iter(failures), self._watch_failure)

    def _watch(self, instance: Instance) -> None:
        try:
            with instance.connect() as connection:
                while True:
                    for writer, n in connection.execute("SELECT writer, n FROM counters").fetchall():
                        assert n >= self._seen.get(writer, 0), f"writer {writer}: {n} after {self._seen}"
                        self._seen[writer] = n
        except psycopg.Error as error:
            if error.sqlstate not in _GONE:
                self._watch_failure = error
        except BaseException as error:
            self._watch_failure = error

    def check(self, instance: Instance) -> None:
        with instance.connect() as connection:
            for writer in self.writers:
                writer.check(connection)
                assert writer.state.counter >= self._seen.get(writer.number, 0), (
                    f"writer {writer.number}: {self._seen[writer.number]} was read before,"
                    f" {writer.state.counter} is there now"
                )
            for table in ("kv", "words"):
                rows = sum(len(_rows(writer.state, table)) for writer in self.writers)
                assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (rows,)


def _rows(state: State, table: str) -> Rows:
    return state.kv if table == "kv" else state.words


def _word(id_: int) -> str:
    return f"word {id_ % 1000}"


def _read(connection: psycopg.Connection, table: str, number: int) -> Rows:
    words = ", word" if table == "words" else ""
    sql = f"SELECT id, version, payload{words} FROM {table} WHERE writer = %s"
    found: Rows = {}
    for id_, version, payload, *word in connection.execute(sql.encode(), (number,)).fetchall():
        assert id_ not in found, f"{table} has {id_} twice"
        assert not word or word == [_word(id_)]
        found[id_] = (version, payload)
    return found


def _read_counter(connection: psycopg.Connection, number: int) -> int:
    row = connection.execute("SELECT n FROM counters WHERE writer = %s", (number,)).fetchone()
    return 0 if row is None else int(row[0])


def _difference(acknowledged: State, unanswered: State | None, found: State) -> str:
    said = []
    for table in ("kv", "words"):
        want, have = _rows(acknowledged, table), _rows(found, table)
        lost = sorted(want.keys() - have.keys())
        extra = sorted(have.keys() - want.keys())
        other = sorted(id_ for id_ in want.keys() & have.keys() if want[id_] != have[id_])
        said.append(f"{table}: lost {lost}, not asked for {extra}, not as acknowledged {other}")
        if unanswered is not None:
            then = _rows(unanswered, table)
            said.append(
                f"the unanswered statement would have made {sorted(then.keys() - want.keys())},"
                f" deleted {sorted(want.keys() - then.keys())},"
                f" changed {sorted(i for i in want.keys() & then.keys() if want[i] != then[i])}"
            )
    said.append(f"counter: {acknowledged.counter} acknowledged, {found.counter} found")
    return "; ".join(said)
