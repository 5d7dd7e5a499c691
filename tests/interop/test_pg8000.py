"""pg8000: a driver in Python alone, text everywhere, by DB-API and by its own interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pg8000.dbapi
import pg8000.native
import pytest

from tests.cluster import Instance
from tests.interop.every_type import CASES, Case

MakeTable = Callable[[str], str]


@pytest.fixture
def conn(instance: Instance) -> Iterator[Any]:
    connection = pg8000.native.Connection("admin", host=instance.host, port=instance.port, database="shoal")
    yield connection
    assert connection.run("SELECT 'still here'") == [["still here"]]
    connection.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_go_in_and_come_out(conn: Any, table: MakeTable, case: Case) -> None:
    name = table(f"id INT PRIMARY KEY, v {case.sql_type}")
    # pg8000 guesses an array's type from its first elements, so those that say nothing go without it.
    values = [v for v in case.values if v not in ([], [None])]
    for i, value in enumerate(values):
        conn.run(f"INSERT INTO {name} VALUES (:id, :v)", id=i, v=value)
    rows = conn.run(f"SELECT v FROM {name} ORDER BY id")
    assert [row[0] for row in rows] == values


def test_columns_and_counts(conn: Any, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    conn.run(f"INSERT INTO {name} VALUES (1, 'one'), (2, 'two')")
    assert conn.row_count == 2
    conn.run(f"SELECT id, t AS word FROM {name}")
    assert [(column["name"], column["type_oid"]) for column in conn.columns] == [("id", 20), ("word", 25)]


def test_prepared(conn: Any, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    insert = conn.prepare(f"INSERT INTO {name} VALUES (:id, :t)")
    for i in range(20):
        insert.run(id=i, t=f"{i}")
    insert.close()
    assert conn.run(f"SELECT count(*) FROM {name}") == [[20]]


def test_errors_carry_the_code(conn: Any) -> None:
    for text, code in (("SELECT 1 / 0", "22012"), ("SELECT", "42601"), ("COPY digits FROM STDIN", "0A000")):
        with pytest.raises(pg8000.native.DatabaseError) as caught:
            conn.run(text)
        assert caught.value.args[0]["C"] == code


def test_db_api(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    with pg8000.dbapi.connect(
        "admin", host=instance.host, port=instance.port, database="shoal"
    ) as connection:
        cursor = connection.cursor()
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", [(i, f"{i}") for i in range(10)])
        connection.commit()
        cursor.execute(f"SELECT t FROM {name} WHERE id >= %s ORDER BY id", (7,))
        assert cursor.fetchall() == (["7"], ["8"], ["9"])
        connection.rollback()

        cursor.execute(f"INSERT INTO {name} VALUES (100, 'stays')")
        with pytest.raises(pg8000.dbapi.DatabaseError, match="stand"):
            connection.rollback()
        cursor.execute(f"SELECT t FROM {name} WHERE id = 100")
        assert cursor.fetchall() == (["stays"],)
        connection.commit()
