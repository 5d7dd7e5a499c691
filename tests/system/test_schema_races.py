"""Schema changes by many clients at once: each happens as a whole, in some order, and names its error."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.cluster import Instance, eventually
from tests.system.catalog_files import user_tables, wait_until_they_agree
from tests.system.clients import Connection, at_once, sqlstate


def test_tables_that_are_made_at_once_are_all_there(shared: Instance) -> None:
    def client(number: int) -> None:
        def run(connection: Connection) -> None:
            for i in range(6):
                name = f"made_{number}_{i}"
                connection.execute(f"CREATE TABLE {name} (k{number} INT PRIMARY KEY, v{i} INT)".encode())
                connection.execute(f"INSERT INTO {name} VALUES ({number}, {i})".encode())

        return run  # type: ignore[return-value]

    at_once(shared, [client(number) for number in range(8)])  # type: ignore[misc]
    with shared.connect() as connection:
        for number in range(8):
            for i in range(6):
                cursor = connection.execute(f"SELECT k{number}, v{i} FROM made_{number}_{i}".encode())
                assert cursor.fetchall() == [(number, i)]
        ids = [table.id for table in user_tables(shared.directory).values()]
        assert len(ids) == len(set(ids))


def test_one_name_is_given_once(shared: Instance) -> None:
    answers: list[str] = []

    def run(connection: Connection) -> None:
        answers.append(sqlstate(connection, "CREATE TABLE only_one (id INT PRIMARY KEY)"))
        answers.append(sqlstate(connection, "CREATE INDEX only_index ON only_one (id)"))

    at_once(shared, [run] * 8)
    assert Counter(answers) == {"00000": 2, "42P07": 7, "42710": 7}

    def if_not_exists(connection: Connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS another (id INT PRIMARY KEY)")
        connection.execute("INSERT INTO another VALUES (1) ON CONFLICT DO NOTHING")

    at_once(shared, [if_not_exists] * 8)


def test_changes_of_one_table_by_many(own: Instance, timing_scale: float) -> None:
    """Whatever wins, the others hear why not; nothing stays pending, and a restart finds it as it was."""
    # Undefined or duplicate tables, columns, indexes; too many indexes; rows that a NOT NULL column has none for.
    named = {"00000", "42P01", "42703", "42704", "42P07", "42701", "42710", "23502", "42P17"}
    own.execute("CREATE TABLE a (id INT PRIMARY KEY, x INT)")

    def client(number: int) -> None:
        chance = random.Random(number)

        def run(connection: Connection) -> None:
            for _ in range(40):
                table, column, other = chance.choice("ab"), chance.choice("xyz"), chance.choice("xyz")
                sql = chance.choice(
                    (
                        f"ALTER TABLE {table} ADD COLUMN {column} INT",
                        f"ALTER TABLE {table} ADD COLUMN n{chance.randint(1, 3)} INT NOT NULL",
                        f"ALTER TABLE {table} RENAME COLUMN {column} TO {other}",
                        f"ALTER TABLE {table} RENAME TO {chance.choice('ab')}",
                        f"CREATE INDEX {column}_index ON {table} ({column})",
                        f"CREATE UNIQUE INDEX {column}_unique ON {table} (id, {column})",
                        f"DROP INDEX {column}_index",
                        f"DROP INDEX {column}_unique",
                        f"ALTER INDEX {column}_index RENAME TO {other}_index",
                        f"TRUNCATE {table}",
                        f"DROP TABLE {table}",
                        f"CREATE TABLE {table} (id INT PRIMARY KEY, {column} INT)",
                        f"INSERT INTO {table} (id, {column}) VALUES ({chance.randint(1, 10**9)}, 1)",
                        f"SELECT {column} FROM {table}",
                    )
                )
                answer = sqlstate(connection, sql)
                assert answer in named, (answer, sql)

        return run  # type: ignore[return-value]

    at_once(own, [client(number) for number in range(8)])  # type: ignore[misc]

    wait_until_they_agree(own.directory, 10 * timing_scale)
    before = user_tables(own.directory)
    assert own.stop() == 0
    own.start()
    wait_until_they_agree(own.directory, 10 * timing_scale)
    assert user_tables(own.directory) == before


def test_a_change_goes_on_when_its_client_does_not_wait(shared: Instance, timing_scale: float) -> None:
    with shared.connect() as connection:
        goes_on = []
        for number in range(200):
            # Soon or later: some are given up before they are in the log, and are nothing; the others go on.
            seconds = number / 40_000
            state = sqlstate(
                connection,
                f"CREATE TABLE unwaited_{number} (id INT PRIMARY KEY) OPTION (TIMEOUT = {seconds:.6f})",
            )
            if state == "57014":
                assert sqlstate(connection, f"SELECT * FROM unwaited_{number}") == "42P01"
            else:
                assert state in ("40003", "00000")
                goes_on.append(number)
        assert goes_on
        for number in goes_on:
            eventually(
                lambda number=number: sqlstate(connection, f"SELECT * FROM unwaited_{number}") == "00000",
                10 * timing_scale,
                "the table is there",
            )
        assert connection.execute("SELECT * FROM _pico_pending_schema_change").fetchall() == []


@pytest.mark.parametrize("change", ["DROP TABLE gone", "TRUNCATE gone"])
def test_a_client_that_leaves_at_once(shared: Instance, timing_scale: float, change: str) -> None:
    shared.execute("CREATE TABLE IF NOT EXISTS gone (id INT PRIMARY KEY)")
    connection = shared.connect()
    connection.pgconn.send_query(change.encode())
    connection.close()
    with shared.connect() as other:
        eventually(
            lambda: other.execute("SELECT * FROM _pico_pending_schema_change").fetchall() == [],
            10 * timing_scale,
        )
        assert sqlstate(other, "INSERT INTO gone VALUES (1)") in ("00000", "42P01")
