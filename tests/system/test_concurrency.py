"""Many connections on the same rows, and schema changes under statements that run."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice

import psycopg
import pytest

from shoal.pgwire import messages as m
from tests.cluster import Instance, eventually
from tests.system.clients import Connection, at_once, sqlstate
from tests.system.replication_log import check_log_against_tables
from tests.system.wire import Wire, error_fields

Table = Callable[[str], str]


def test_50_connections_on_the_same_rows(own: Instance) -> None:
    """Increments are all counted, transfers keep the sum, and no read sees half of either."""
    own.execute(
        "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL)",
        "CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL)",
        f"INSERT INTO accounts VALUES {', '.join(f'({i}, 1000)' for i in range(10))}",
        "INSERT INTO counts VALUES (1, 0)",
        "CREATE TABLE claims (id INT PRIMARY KEY, owner INT NOT NULL)",
    )
    claimed: list[int] = []

    def client(number: int) -> Callable[[Connection], None]:
        chance = random.Random(number)

        def run(connection: Connection) -> None:
            for turn in range(20):
                connection.execute("UPDATE counts SET n = n + 1 WHERE id = 1")
                a, b = chance.sample(range(10), 2)
                amount = chance.randint(1, 50)
                cursor = connection.execute(
                    "UPDATE accounts SET balance = CASE WHEN id = %s THEN balance - %s ELSE balance + %s END"
                    " WHERE id IN (%s, %s)",
                    (a, amount, amount, a, b),
                )
                assert cursor.rowcount == 2
                total = connection.execute("SELECT sum(balance), count(*) FROM accounts").fetchone()
                assert total == (10_000, 10)
                # One of them all gets the row, the others hear so.
                answer = sqlstate(connection, "INSERT INTO claims VALUES (%s, %s)", turn, number)
                assert answer in ("00000", "23505")
                if answer == "00000":
                    claimed.append(turn)

        return run

    at_once(own, [client(number) for number in range(50)])
    with own.connect() as connection:
        assert connection.execute("SELECT n FROM counts").fetchone() == (50 * 20,)
        assert connection.execute("SELECT sum(balance), count(*) FROM accounts").fetchone() == (10_000, 10)
    assert sorted(claimed) == list(range(20))
    check_log_against_tables(own.directory)


CHANGES = (
    "ALTER TABLE busy ADD COLUMN extra{n} INT",
    "CREATE INDEX busy_index ON busy (v)",
    "DROP INDEX busy_index",
    "ALTER TABLE busy RENAME COLUMN v TO w",
    "ALTER TABLE busy RENAME COLUMN w TO v",
    "ALTER TABLE busy RENAME TO resting",
    "ALTER TABLE resting RENAME TO busy",
    "TRUNCATE busy",
    "DROP TABLE busy",
    # The same names, other types in another order: a plan of before would read the wrong columns.
    "CREATE TABLE busy (v TEXT NOT NULL, id INT PRIMARY KEY, filler DECIMAL)",
    "DROP TABLE busy",
    "CREATE TABLE busy (id INT PRIMARY KEY, v INT NOT NULL)",
)

# The table or column isn't there under this name; its type is another one; plans that can't be kept; a retry.
NAMED = {
    "00000",
    "42P01",
    "42703",
    "42804",
    "42883",
    "0A000",
    "40001",
    "22P02",
    "23505",
    "23502",
    "42601",
    "22023",
}


@pytest.mark.parametrize("prepare_threshold", [None, 0], ids=["simple", "prepared"])
def test_schema_changes_under_reads_and_writes(
    own: Instance, timing_scale: float, prepare_threshold: int | None
) -> None:
    """Rows are (id, 7 * id) or (id, "v id") as the table is: whoever reads something else has read with
    a plan of another version."""
    own.execute("CREATE TABLE busy (id INT PRIMARY KEY, v INT NOT NULL)")
    done = threading.Event()
    answers: Counter[str] = Counter()

    def change(connection: Connection) -> None:
        try:
            for round_ in range(6):
                for text in CHANGES:
                    connection.execute(text.format(n=round_).encode())
        finally:
            done.set()

    def write(number: int) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            id_ = number
            while not done.is_set():
                id_ += 10
                answers[sqlstate(connection, f"INSERT INTO busy (id, v) VALUES ({id_}, {id_ * 7})")] += 1
                answers[sqlstate(connection, f"INSERT INTO busy (id, v) VALUES ({id_}, 'v {id_}')")] += 1
                answers[sqlstate(connection, "UPDATE busy SET v = v WHERE id = %s", id_)] += 1
                answers[sqlstate(connection, "DELETE FROM busy WHERE id = %s", id_ - 200)] += 1

        return run

    def read(sql: str) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            while not done.is_set():
                try:
                    rows = connection.execute(sql.encode()).fetchall()
                except psycopg.Error as error:
                    assert error.sqlstate is not None, error
                    answers[error.sqlstate] += 1
                    continue
                answers["00000"] += 1
                for id_, v in rows:
                    assert v in (id_ * 7, f"v {id_}"), (sql, id_, v)

        return run

    def read_by_key(connection: Connection) -> None:
        chance = random.Random(1)
        while not done.is_set():
            id_ = chance.randrange(400)
            try:
                rows = connection.execute("SELECT id, v FROM busy WHERE id = %s", (id_,)).fetchall()
            except psycopg.Error as error:
                answers[str(error.sqlstate)] += 1
                continue
            answers["00000"] += 1
            assert rows in ([], [(id_, id_ * 7)], [(id_, f"v {id_}")])

    def read_in_parts(connection: Connection) -> None:
        while not done.is_set():
            cursor = connection.cursor()
            try:
                rows = list(cursor.stream("SELECT id, v FROM busy"))
            except psycopg.Error as error:
                answers[str(error.sqlstate)] += 1
                continue
            for id_, v in rows:
                assert v in (id_ * 7, f"v {id_}"), (id_, v)

    at_once(
        own,
        [
            change,
            write(1),
            write(2),
            read("SELECT id, v FROM busy"),
            read("SELECT b.id, a.v FROM busy AS a JOIN busy AS b ON a.id = b.id ORDER BY 1"),
            read_by_key,
            read_in_parts,
        ],
        prepare_threshold=prepare_threshold,
    )
    assert answers.keys() <= NAMED, answers
    assert answers["00000"] > 100, answers
    check_log_against_tables(own.directory)


def test_truncate_against_inserts(shared: Instance, table: Table) -> None:
    """What was inserted is there or was truncated: a statement that is answered never falls between."""
    name = table("id INT PRIMARY KEY, n INT")
    acknowledged = [0, 0, 0, 0]
    stop = threading.Event()
    last_truncate_saw: list[list[int]] = []

    def insert(number: int) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            while not stop.is_set():
                n = acknowledged[number] + 1
                connection.execute(f"INSERT INTO {name} VALUES ({n * 4 + number}, {n})".encode())
                acknowledged[number] = n

        return run

    def truncate(connection: Connection) -> None:
        try:
            for _ in range(40):
                before = list(acknowledged)
                connection.execute(f"TRUNCATE {name}".encode())
                after = list(acknowledged)
                last_truncate_saw[:] = [before, after]
                rows = connection.execute(f"SELECT id % 4, n FROM {name}".encode()).fetchall()
                for number, n in rows:
                    assert n > before[number], "a row that was there before TRUNCATE is there after it"
        finally:
            stop.set()

    at_once(shared, [truncate, *(insert(number) for number in range(4))])
    with shared.connect() as connection:
        rows = connection.execute(f"SELECT id % 4, n FROM {name}".encode()).fetchall()
    found: dict[int, set[int]] = {number: set() for number in range(4)}
    for number, n in rows:
        found[number].add(n)
    before, after = last_truncate_saw
    for number in range(4):
        # All that was begun after the last TRUNCATE ended is there; of what ran beside it, an end piece.
        surely = set(range(after[number] + 2, acknowledged[number] + 1))
        assert surely <= found[number]
        assert found[number] <= set(range(before[number] + 1, acknowledged[number] + 1))
        assert found[number] == set(range(min(found[number], default=1), max(found[number], default=0) + 1))


# --- prepared statements and portals across schema changes ---------------------------------------


def test_a_prepared_statement_is_planned_anew_where_its_rows_stay(shared: Instance, table: Table) -> None:
    name = table("id INT PRIMARY KEY, v INT")
    with Wire(shared).log_in() as wire, shared.connect() as other:
        wire.say(
            m.Parse("get", f"SELECT v FROM {name} WHERE id = $1", (20,)),
            m.Parse("all", f"SELECT * FROM {name} ORDER BY id", ()),
            m.Parse("put", f"INSERT INTO {name} (id, v) VALUES ($1, $2)", (20, 20)),
            m.Sync(),
        )
        wire.read_until_ready()
        assert run(wire, "put", b"1", b"10") == "2CZ"
        for change in (
            f"ALTER TABLE {name} ADD COLUMN w INT",
            f"CREATE INDEX {name}_v ON {name} (v)",
            f"DROP INDEX {name}_v",
            f"TRUNCATE {name}",
        ):
            other.execute(change.encode())
            assert run(wire, "put", b"2", b"20") == "2CZ"
            assert run(wire, "get", b"2") == "2DCZ"
            assert run(wire, "put", b"2", b"20") == "2EZ"  # a duplicate key, not a crash
            other.execute(f"DELETE FROM {name} WHERE id = 2".encode())
        # Its rows would be others: refused, with the words that drivers know, and nothing else is harmed.
        answer = answers_to(wire, "all")
        error = next(error_fields(payload) for kind, payload in answer if kind == "E")
        assert (error["C"], error["M"]) == ("0A000", "cached plan must not change result type")
        other.execute(f"ALTER TABLE {name} RENAME COLUMN v TO u".encode())
        answer = answers_to(wire, "get", b"1")
        assert next(error_fields(payload) for kind, payload in answer if kind == "E")["C"] == "42703"
        other.execute(f"ALTER TABLE {name} RENAME COLUMN u TO v".encode())
        assert run(wire, "get", b"1") == "2CZ"
        other.execute(f"DROP TABLE {name}".encode())
        answer = answers_to(wire, "get", b"1")
        assert next(error_fields(payload) for kind, payload in answer if kind == "E")["C"] == "42P01"


def test_a_table_that_goes_while_a_portal_on_it_is_suspended(
    shared: Instance, table: Table, timing_scale: float
) -> None:
    """The portal has its snapshot: it reads on to its end. The next statement learns what happened."""
    name = table("id INT PRIMARY KEY, payload TEXT")
    count = 20_000
    with shared.connect() as connection:
        for first in range(0, count, 1000):
            values = ", ".join(f"({i}, '{'x' * 50}')" for i in range(first, first + 1000))
            connection.execute(f"INSERT INTO {name} VALUES {values}".encode())
    for change in (f"TRUNCATE {name}", f"DROP TABLE {name}"):
        with Wire(shared).log_in() as wire, shared.connect() as other:
            wire.say(
                m.Query("BEGIN"),
                m.Parse("s", f"SELECT id FROM {name} ORDER BY id", ()),
                m.Bind("p", "s", (), (), ()),
                m.Execute("p", 10),
                m.Sync(),
            )
            wire.read_until_ready()
            rows = [kind for kind, _ in wire.read_until_ready()].count("D")
            other.execute(change.encode())
            eventually(
                lambda: other.execute("SELECT * FROM _pico_pending_schema_change").fetchall() == [],
                10 * timing_scale,
            )
            while rows:
                wire.say(m.Execute("p", 3000), m.Sync())
                kinds = [kind for kind, _ in wire.read_until_ready()]
                assert "E" not in kinds
                rows += kinds.count("D")
                if "C" in kinds:
                    break
            assert rows == (count if change.startswith("TRUNCATE") else 1)
            wire.say(m.Query("ROLLBACK"))
            wire.read_until_ready()
            assert other.execute("SELECT 1").fetchone() == (1,)
            if change.startswith("TRUNCATE"):
                other.execute(f"INSERT INTO {name} VALUES (1, 'new')".encode())


def test_a_schema_change_between_bind_and_execute(shared: Instance, table: Table) -> None:
    name = table("id INT PRIMARY KEY, v INT")
    shared.execute(f"INSERT INTO {name} VALUES (1, 10)")
    with Wire(shared).log_in() as wire, shared.connect() as other:
        for portal, text in (
            ("point", f"SELECT v FROM {name} WHERE id = 1"),
            ("scan", f"SELECT v FROM {name} WHERE v > 0"),
            ("write", f"UPDATE {name} SET v = v + 1 WHERE id = 1"),
        ):
            wire.say(
                m.Query("BEGIN"),
                m.Parse("", text, ()),
                m.Bind(portal, "", (), (), ()),
                m.Flush(),
            )
            wire.read_until_ready()
            assert [kind for kind, _ in islice(wire.read(), 2)] == list("12")
            other.execute(f"TRUNCATE {name}".encode())
            wire.say(m.Execute(portal, 0), m.Sync())
            kinds = "".join(kind for kind, _ in wire.read_until_ready())
            assert kinds == "CZ"  # no row: the table is empty
            wire.say(m.Query("COMMIT"))
            wire.read_until_ready()
            other.execute(f"INSERT INTO {name} VALUES (1, 10)".encode())


def answers_to(wire: Wire, statement: str, *parameters: bytes) -> list[tuple[str, bytes]]:
    wire.say(m.Bind("", statement, (), parameters, ()), m.Execute("", 0), m.Sync())
    return wire.read_until_ready()


def run(wire: Wire, statement: str, *parameters: bytes) -> str:
    return "".join(kind for kind, _ in answers_to(wire, statement, *parameters))
