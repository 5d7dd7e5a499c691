"""Writes that take long, meet each other, or meet a schema change, through psycopg."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import TransactionStatus

from tests.cluster import Instance, eventually
from tests.interop.conftest import numbers

MakeTable = Callable[[str], str]


def count(conn: psycopg.Connection[Any], name: str) -> int:
    row = conn.execute(f"SELECT count(*) FROM {name}".encode()).fetchone()
    assert row is not None
    found: int = row[0]
    return found


# --- that take long ------------------------------------------------------------------------------


def test_cancelling_a_write_leaves_nothing_of_it(
    instance: Instance, table: MakeTable, timing_scale: float
) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    ended: list[Exception | None] = []
    with instance.connect() as conn, instance.connect() as other:

        def run() -> None:
            try:
                conn.execute(f"INSERT INTO {name} SELECT n, 'x' FROM ({numbers(7)}) AS numbers".encode())
                ended.append(None)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def cancelled() -> bool:
            conn.cancel_safe(timeout=30 * timing_scale)
            thread.join(0.05)
            return not thread.is_alive()

        eventually(cancelled, 60 * timing_scale, "the end of a cancelled INSERT")
        assert [type(error) for error in ended] == [errors.QueryCanceled]
        assert count(conn, name) == 0
        other.execute(f"INSERT INTO {name} VALUES (1, 'y')".encode())  # the writer is free
        assert count(conn, name) == 1


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO {name} SELECT n + 1000000000, 'x' FROM ({numbers}) AS numbers",
        "UPDATE {name} SET t = t || 'x' WHERE (SELECT count(*) FROM ({numbers}) AS numbers) > 0",
        "DELETE FROM {name} WHERE (SELECT count(*) FROM ({numbers}) AS numbers) > 0",
    ],
    ids=["insert", "update", "delete"],
)
def test_a_timeout_leaves_nothing_of_a_write(instance: Instance, table: MakeTable, text: str) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    with instance.connect() as conn:
        conn.execute(f"INSERT INTO {name} VALUES (1, 'first')".encode())
        conn.execute("SET statement_timeout = '200ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            conn.execute(text.format(name=name, numbers=numbers(8)).encode())
        conn.execute("SET statement_timeout = 0")
        assert conn.execute(f"SELECT * FROM {name}".encode()).fetchall() == [(1, "first")]
        conn.execute(f"INSERT INTO {name} VALUES (2, 'second')".encode())
        assert count(conn, name) == 2


def test_reads_go_on_beside_a_long_write(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    with instance.connect() as reading, ThreadPoolExecutor(1) as pool:
        written = pool.submit(
            instance.execute, f"INSERT INTO {name} SELECT n, 'x' FROM ({numbers(5)}) AS numbers"
        )
        seen = set()
        while not written.done():
            seen.add(count(reading, name))
            assert reading.execute("SELECT n FROM digits WHERE n = 3").fetchone() == (3,)
        written.result()
        assert seen <= {0, 100_000}
        assert count(reading, name) == 100_000


# --- long texts ----------------------------------------------------------------------------------


def long_insert(name: str, rows: list[tuple[object, ...]], behind: str = "") -> bytes:
    """As dump files have it: one INSERT, thousands of literal rows."""

    def literal(value: object) -> str:
        match value:
            case None:
                return "NULL"
            case str():
                return "'" + value.replace("'", "''") + "'"
            case _:
                return str(value)

    text = ",\n".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
    return f"INSERT INTO {name} VALUES\n{text}{behind}".encode()


ROWS: list[tuple[object, ...]] = [
    (i, f"it's row {i}" if i % 7 else None, f"{i}.25" if i % 3 else i) for i in range(5000)
]


@pytest.fixture
def wide(table: MakeTable) -> str:
    return table("id INT PRIMARY KEY, t TEXT, d DECIMAL")


def test_a_long_insert(instance: Instance, wide: str) -> None:
    rows = [(i, t, None if d is None else float(str(d))) for i, t, d in ROWS]
    with instance.connect() as conn:
        cursor = conn.execute(long_insert(wide, rows))
        assert cursor.statusmessage == "INSERT 0 5000"
        found = conn.execute(f"SELECT id, t, d::double FROM {wide} ORDER BY id".encode()).fetchall()
        assert found == rows


@pytest.mark.parametrize(
    ("at", "row", "sqlstate"),
    [
        (4000, (0, "twice", 1), "23505"),
        (4000, (None, "no key", 1), "23502"),
        (4000, ("no number", "x", 1), "22P02"),
        (4000, (10_000, "x", "no decimal"), "22P02"),
        (4000, (10_000, 5, 1), "42804"),
        (4000, (10_000, "x"), "42601"),
        (0, (10_000, "x"), "42601"),
        (4000, (10_000, "x", 1, 2), "42601"),
        (4000, (2**63, "x", 1), "22003"),
    ],
)
def test_a_long_insert_that_fails(
    instance: Instance, wide: str, at: int, row: tuple[object, ...], sqlstate: str
) -> None:
    """Nothing of it is there, and it fails as a short one does."""
    rows = [(i, t, float(str(d))) for i, t, d in ROWS]
    rows.insert(at, row)
    with instance.connect() as conn:
        with pytest.raises(psycopg.Error) as long:
            conn.execute(long_insert(wide, rows))
        assert count(conn, wide) == 0
        with pytest.raises(psycopg.Error) as short:
            conn.execute(long_insert(wide, [(0, "first", 1.5), row]))
        assert (long.value.sqlstate, short.value.sqlstate) == (sqlstate, sqlstate)
        assert count(conn, wide) == 0


def test_a_long_insert_with_clauses_behind(instance: Instance, wide: str) -> None:
    rows: list[tuple[object, ...]] = [(i, "x", 1) for i in range(3000)]
    with instance.connect() as conn:
        conn.execute(long_insert(wide, rows[:10]))
        cursor = conn.execute(long_insert(wide, rows, " ON CONFLICT DO NOTHING"))
        assert cursor.rowcount == 2990
        cursor = conn.execute(long_insert(wide, rows, " ON CONFLICT DO REPLACE RETURNING id"))
        assert sorted(row[0] for row in cursor.fetchall()) == list(range(3000))
        assert count(conn, wide) == 3000


def test_a_long_insert_in_blocks(instance: Instance, wide: str) -> None:
    rows: list[tuple[object, ...]] = [(i, "x", 1) for i in range(3000)]
    with instance.connect(autocommit=False) as conn:
        conn.execute(long_insert(wide, rows))
        assert conn.info.transaction_status == TransactionStatus.INTRANS
        with pytest.raises(errors.FeatureNotSupported, match="stand"):
            conn.rollback()
        conn.read_only = True
        with pytest.raises(errors.ReadOnlySqlTransaction):
            conn.execute(long_insert(wide, [(i + 5000, t, d) for i, t, d in rows]))
        conn.rollback()
        with pytest.raises(errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        with pytest.raises(errors.InFailedSqlTransaction):
            conn.execute(long_insert(wide, rows))
        conn.rollback()
        assert count(conn, wide) == 3000


# --- that meet each other ------------------------------------------------------------------------


def test_one_of_many_inserts_of_a_key_wins(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, winner INT")
    clients, keys = 8, 50
    start = threading.Barrier(clients)

    def race(client: int) -> int:
        won = 0
        with instance.connect() as conn:
            start.wait()
            for key in range(keys):
                try:
                    conn.execute(f"INSERT INTO {name} VALUES (%s, %s)", (key, client))
                    won += 1
                except errors.UniqueViolation:
                    pass
        return won

    with ThreadPoolExecutor(clients) as pool:
        won = list(pool.map(race, range(clients)))
    assert sum(won) == keys
    with instance.connect() as conn:
        rows = conn.execute(f"SELECT winner, count(*) FROM {name} GROUP BY winner".encode()).fetchall()
        assert dict(rows) == {client: wins for client, wins in enumerate(won) if wins}


def test_a_connection_reads_its_own_writes(instance: Instance, table: MakeTable) -> None:
    """At once, on the loop and on a reader thread, while others write, too."""
    name = table("id INT PRIMARY KEY, client INT, n INT")

    def work(client: int) -> None:
        with instance.connect() as conn:
            conn.execute(f"INSERT INTO {name} VALUES (%s, %s, 0)", (client, client))
            for n in range(1, 60):
                conn.execute(f"UPDATE {name} SET n = %s WHERE id = %s", (n, client))
                point = conn.execute(f"SELECT n FROM {name} WHERE id = %s", (client,)).fetchone()
                scan = conn.execute(f"SELECT n FROM {name} WHERE client = %s", (client,)).fetchone()
                assert point == scan == (n,)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


# --- that meet a schema change -------------------------------------------------------------------


def test_writers_while_columns_come(instance: Instance, table: MakeTable) -> None:
    """A prepared INSERT of named columns goes on through every schema change; no row is lost."""
    name = table("id INT PRIMARY KEY, a INT")
    stop = threading.Event()

    def write(client: int) -> int:
        written = 0
        with instance.connect() as conn:
            while not stop.is_set():
                conn.execute(
                    f"INSERT INTO {name} (id, a) VALUES (%s, %s)", (client * 10**6 + written, client)
                )
                written += 1
        return written

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, client) for client in range(4)]
        for i in range(8):
            instance.execute(f"ALTER TABLE {name} ADD COLUMN c{i} TEXT")
            instance.execute(f"CREATE INDEX {name}_c{i} ON {name} (c{i})")
        stop.set()
        written = sum(writer.result() for writer in writers)
    with instance.connect() as conn:
        assert count(conn, name) == written
        assert conn.execute(f"SELECT count(*) FROM {name} WHERE c7 IS NULL".encode()).fetchone() == (written,)


def test_writers_while_a_table_is_truncated_and_dropped(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    ids = itertools.count()

    def write() -> int:
        written = 0
        with instance.connect() as conn:
            try:
                while True:
                    conn.execute(f"INSERT INTO {name} VALUES (%s)", (next(ids),))
                    written += 1
            except errors.UndefinedTable:
                return written

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write) for _ in range(3)]
        for _ in range(5):
            instance.execute(f"TRUNCATE TABLE {name}")
        with instance.connect() as conn:
            eventually(lambda: count(conn, name) > 10, 30)
        instance.execute(f"DROP TABLE {name}")
        assert all(writer.result() > 0 for writer in writers)


def test_tables_made_and_dropped_by_many_at_once(instance: Instance) -> None:
    def work(client: int) -> None:
        with instance.connect() as conn:
            for i in range(5):
                name = f"many_{client}_{i}"
                conn.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY)".encode())
                conn.execute(f"INSERT INTO {name} VALUES (1)".encode())
                assert count(conn, name) == 1
                conn.execute(f"DROP TABLE {name}".encode())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


def test_one_of_many_creates_wins(instance: Instance) -> None:
    def work(_: int) -> bool:
        with instance.connect() as conn:
            try:
                conn.execute("CREATE TABLE contested (id INT PRIMARY KEY)")
                return True
            except errors.DuplicateTable:
                return False

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(6))) == 1
    instance.execute("CREATE TABLE IF NOT EXISTS contested (id INT PRIMARY KEY)", "DROP TABLE contested")
