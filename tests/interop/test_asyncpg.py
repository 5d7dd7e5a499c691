"""asyncpg: binary everywhere, statements prepared and cached, portals read in parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from tests.cluster import Instance
from tests.interop.conftest import LONG_SELECT, numbers
from tests.interop.every_type import CASES, Case

MakeTable = Callable[[str], str]

# asyncpg sends the ends of Python's calendar as -infinity and infinity, which are no values of DATETIME.
UNBOUNDED = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def on_a_connection(
    instance: Instance, work: Callable[[Any], Coroutine[Any, Any, None]], **arguments: Any
) -> None:
    async def main() -> None:
        conn = await asyncpg.connect(instance.url(), timeout=60, **arguments)
        try:
            await work(conn)
            assert await conn.fetchval("SELECT 'still here'") == "still here"
        finally:
            await conn.close()

    asyncio.run(main())


def test_connecting(instance: Instance) -> None:
    async def work(conn: Any) -> None:
        assert conn.get_server_version()[:2] == (15, 0)
        assert conn.get_settings().TimeZone == "UTC"
        assert conn.get_settings().application_name == "fish"
        assert await conn.fetchval("SHOW application_name") == "fish"

    on_a_connection(instance, work, server_settings={"application_name": "fish"})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_go_in_and_come_out(instance: Instance, table: MakeTable, case: Case) -> None:
    name = table(f"id INT PRIMARY KEY, v {case.sql_type}")

    async def work(conn: Any) -> None:
        values = [v for v in (*case.values, None) if v not in UNBOUNDED]
        if case.name == "datetimes":
            values = [[v for v in array if v not in UNBOUNDED] for array in values if array is not None]
        for i, value in enumerate(values):
            await conn.execute(f"INSERT INTO {name} VALUES ($1, $2)", i, value)
        rows = await conn.fetch(f"SELECT v FROM {name} ORDER BY id")
        assert [row["v"] for row in rows] == values
        if not case.sql_type.endswith("[]"):
            for i, value in enumerate(values[:-1]):
                assert await conn.fetchval(f"SELECT id FROM {name} WHERE v = $1", value) == i

    on_a_connection(instance, work)


def test_json(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, j JSON")

    async def work(conn: Any) -> None:
        await conn.execute(f"INSERT INTO {name} VALUES (1, $1)", '{"a": [1, null, "x"]}')
        assert json.loads(await conn.fetchval(f"SELECT j FROM {name}")) == {"a": [1, None, "x"]}
        assert json.loads(await conn.fetchval("SELECT current_state FROM _pico_instance"))[0] == "Online"

    on_a_connection(instance, work)


def test_parameter_types_are_inferred(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, n DECIMAL, ts TEXT[], at DATETIME")

    async def work(conn: Any) -> None:
        statement = await conn.prepare(
            f"SELECT id + $1, n * $2, ts FROM {name} WHERE at < $3 AND n IN ($4, $5)"
        )
        assert [p.name for p in statement.get_parameters()] == [
            "int8",
            "numeric",
            "timestamptz",
            "numeric",
            "numeric",
        ]
        assert [(a.name, a.type.name) for a in statement.get_attributes()] == [
            ("col_1", "int8"),
            ("col_2", "numeric"),
            ("ts", "text[]"),
        ]
        assert await conn.fetchval("SELECT $1", "text without a context") == "text without a context"
        assert await conn.fetchval("SELECT $1 * 1.5", Decimal(2)) == Decimal(3)
        with pytest.raises(asyncpg.DataError):  # found by the client: the type says int8
            await conn.fetchval("SELECT $1 + 1", "x")

    on_a_connection(instance, work)


def test_a_prepared_statement_many_times(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")

    async def work(conn: Any) -> None:
        insert = await conn.prepare(f"INSERT INTO {name} VALUES ($1, $2)")
        for i in range(50):
            await insert.fetch(i, f"{i}")
        assert insert.get_statusmsg() == "INSERT 0 1"
        select = await conn.prepare(f"SELECT t FROM {name} WHERE id = $1")
        assert [await select.fetchval(i) for i in range(50)] == [f"{i}" for i in range(50)]
        await conn.executemany(f"INSERT INTO {name} VALUES ($1, $2)", [(i, "many") for i in range(100, 400)])
        assert await conn.fetchval(f"SELECT count(*) FROM {name} WHERE t = 'many'") == 300
        rows = await conn.fetchmany(f"DELETE FROM {name} WHERE id = $1 RETURNING id, t", [(1,), (2,), (999,)])
        assert [tuple(row) for row in rows] == [(1, "1"), (2, "2")]

    on_a_connection(instance, work)


def test_cursors_read_in_parts(instance: Instance) -> None:
    async def work(conn: Any) -> None:
        query = f"SELECT n FROM ({numbers(4)}) AS numbers ORDER BY n"
        async with conn.transaction():
            seen = [row["n"] async for row in conn.cursor(query, prefetch=777)]
            assert seen == list(range(10_000))

            cursor = await conn.cursor(query)
            assert [row["n"] for row in await cursor.fetch(3)] == [0, 1, 2]
            assert (await cursor.fetchrow())["n"] == 3
            # Another statement in between; the portal stays where it is.
            assert await conn.fetchval("SELECT count(*) FROM digits") == 10
            assert [row["n"] for row in await cursor.fetch(2)] == [4, 5]
            assert len(await cursor.fetch(20_000)) == 10_000 - 6
            assert await cursor.fetch(1) == []

            left_open = await conn.cursor(query)
            await left_open.fetch(10)

    on_a_connection(instance, work)


def test_two_cursors_at_once(instance: Instance) -> None:
    async def work(conn: Any) -> None:
        async with conn.transaction():
            up = await conn.cursor("SELECT n FROM digits ORDER BY n")
            down = await conn.cursor("SELECT n FROM digits ORDER BY n DESC")
            pairs = [((await up.fetchrow())["n"], (await down.fetchrow())["n"]) for _ in range(10)]
            assert pairs == [(i, 9 - i) for i in range(10)]

    on_a_connection(instance, work)


def test_more_cursors_than_reader_threads(instance: Instance) -> None:
    """A portal that waits for its client must not keep a thread, or a few of them would stop all reads."""

    async def work(conn: Any) -> None:
        async with conn.transaction():
            cursors = [await conn.cursor("SELECT n FROM digits ORDER BY n") for _ in range(20)]
            for i in range(3):
                assert [(await cursor.fetchrow())["n"] for cursor in cursors] == [i] * 20
            assert await conn.fetchval("SELECT count(*) FROM digits") == 10

    on_a_connection(instance, work)


def test_pool(instance: Instance, table: MakeTable) -> None:
    """A connection that is given back is reset: locks, cursors, channels, settings."""
    name = table("id INT PRIMARY KEY")

    async def main() -> None:
        async with asyncpg.create_pool(instance.url(), min_size=1, max_size=4) as pool:
            async with pool.acquire() as conn:
                await conn.execute("SET TIME ZONE 'Asia/Tokyo'")
                assert await conn.fetchval("SHOW timezone") == "Asia/Tokyo"
            async with pool.acquire() as conn:
                assert await conn.fetchval("SHOW timezone") == "UTC"

            async def work(i: int) -> None:
                await pool.execute(f"INSERT INTO {name} VALUES ($1)", i)

            await asyncio.gather(*(work(i) for i in range(100)))
            assert await pool.fetchval(f"SELECT count(*) FROM {name}") == 100

    asyncio.run(main())


def test_7500_parameters(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    count = 7500

    async def work(conn: Any) -> None:
        values = ", ".join(f"(${i})" for i in range(1, count + 1))
        assert await conn.execute(f"INSERT INTO {name} VALUES {values}", *range(count)) == f"INSERT 0 {count}"
        listed = ", ".join(f"${i}" for i in range(1, count + 1))
        query = f"SELECT count(*) FROM {name} WHERE id IN ({listed})"
        assert await conn.fetchval(query, *range(1000, 1000 + count)) == count - 1000

    on_a_connection(instance, work)


def test_transactions(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")

    async def work(conn: Any) -> None:
        async with conn.transaction():
            assert conn.is_in_transaction()
            await conn.execute(f"INSERT INTO {name} VALUES (1)")
        assert not conn.is_in_transaction()

        with pytest.raises(asyncpg.FeatureNotSupportedError, match="stand"):
            async with conn.transaction():
                await conn.execute(f"INSERT INTO {name} VALUES (2)")
                raise ZeroDivisionError
        assert not conn.is_in_transaction()

        with pytest.raises(ZeroDivisionError):
            async with conn.transaction(readonly=True):
                await conn.fetch(f"SELECT * FROM {name}")
                raise ZeroDivisionError

        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            async with conn.transaction(readonly=True):
                await conn.execute(f"INSERT INTO {name} VALUES (3)")

        # Savepoints: one that nothing was written after can be gone back to.
        async with conn.transaction():
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with conn.transaction():
                    await conn.fetchval("SELECT 1 / 0")
            assert await conn.fetchval(f"SELECT count(*) FROM {name}") == 2
        assert await conn.fetch(f"SELECT id FROM {name} ORDER BY id") == [(1,), (2,)]

    on_a_connection(instance, work)


def test_a_timeout_cancels_the_statement(instance: Instance) -> None:
    async def work(conn: Any) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await conn.fetch(LONG_SELECT, timeout=0.3)
        assert await conn.fetchval("SELECT 1", timeout=60) == 1
        with pytest.raises(asyncpg.QueryCanceledError):
            await conn.execute(f"SET statement_timeout = 50; {LONG_SELECT}", timeout=60)

    on_a_connection(instance, work)


def test_errors_say_where(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT NOT NULL")
    cases: list[tuple[str, type[Exception], str | None]] = [
        (f"SELEC * FROM {name}", asyncpg.PostgresSyntaxError, "1"),
        (f"SELECT * FROM {name} WHERE", asyncpg.PostgresSyntaxError, None),
        (f"SELECT x FROM {name}", asyncpg.UndefinedColumnError, "8"),
        ("SELECT * FROM missing", asyncpg.UndefinedTableError, "15"),
        (f"INSERT INTO {name} VALUES (1, NULL)", asyncpg.NotNullViolationError, None),
    ]

    async def work(conn: Any) -> None:
        for text, kind, position in cases:
            with pytest.raises(kind) as caught:
                await conn.fetch(text)
            if position is not None:
                assert caught.value.position == position, text
            assert await conn.fetchval("SELECT 1") == 1

    on_a_connection(instance, work)


def test_copy_is_refused(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")

    async def work(conn: Any) -> None:
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="COPY"):
            await conn.copy_records_to_table(name, records=[(1,), (2,)])

    on_a_connection(instance, work)


def test_a_schema_change_under_a_cached_statement(instance: Instance, table: MakeTable) -> None:
    """asyncpg keeps statements of its own accord: it prepares anew when told that the plan is stale."""
    name = table("id INT PRIMARY KEY")

    async def work(conn: Any) -> None:
        await conn.execute(f"INSERT INTO {name} VALUES (1)")
        assert await conn.fetch(f"SELECT * FROM {name}") == [(1,)]
        instance.execute(f"ALTER TABLE {name} ADD COLUMN t TEXT")
        assert await conn.fetch(f"SELECT * FROM {name}") == [(1, None)]

    on_a_connection(instance, work)
