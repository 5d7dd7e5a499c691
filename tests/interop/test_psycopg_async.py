"""psycopg 3, asynchronous, and its pipelines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, errors
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from tests.cluster import Instance
from tests.interop.conftest import LONG_SELECT

MakeTable = Callable[[str], str]


def on_a_connection(
    instance: Instance, work: Callable[[AsyncConnection[Any]], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with await AsyncConnection.connect(instance.url(), autocommit=True) as conn:
            await work(conn)
            cursor = await conn.execute("SELECT 'still here'")
            assert await cursor.fetchall() == [("still here",)]

    asyncio.run(main())


def test_statements(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")

    async def work(conn: AsyncConnection[Any]) -> None:
        for i in range(10):
            await conn.execute(f"INSERT INTO {name} VALUES (%s, %s)", (i, f"{i}"))
        async with conn.transaction():
            cursor = await conn.execute(f"SELECT t FROM {name} WHERE id >= %s ORDER BY id", (8,))
            assert [row async for row in cursor] == [("8",), ("9",)]
        seen = [row[0] async for row in conn.cursor().stream(f"SELECT id FROM {name} ORDER BY id".encode())]
        assert seen == list(range(10))

    on_a_connection(instance, work)


def test_cancelled_tasks_leave_the_connection_usable(instance: Instance) -> None:
    """psycopg cancels the statement when its task is cancelled."""

    async def work(conn: AsyncConnection[Any]) -> None:
        with pytest.raises((asyncio.TimeoutError, errors.QueryCanceled)):
            await asyncio.wait_for(conn.execute(LONG_SELECT.encode()), 0.3)

    on_a_connection(instance, work)


def test_cancel(instance: Instance) -> None:
    async def work(conn: AsyncConnection[Any]) -> None:
        running = asyncio.create_task(conn.execute(LONG_SELECT.encode()))
        while not running.done():
            await conn.cancel_safe()
            await asyncio.wait([running], timeout=0.05)
        assert isinstance(running.exception(), errors.QueryCanceled)

    on_a_connection(instance, work)


def test_many_connections_at_work(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, worker INT")

    async def main() -> None:
        async with AsyncConnectionPool(instance.url(), min_size=8, max_size=8, open=False) as pool:

            async def work(worker: int) -> None:
                async with pool.connection() as conn:
                    await conn.set_autocommit(True)
                    for i in range(25):
                        await conn.execute(
                            f"INSERT INTO {name} VALUES (%s, %s)",
                            (worker * 100 + i, worker),
                        )
                    cursor = await conn.execute(
                        f"SELECT count(*) FROM {name} WHERE worker = %s",
                        (worker,),
                    )
                    assert await cursor.fetchone() == (25,)
                    await conn.set_autocommit(False)

            await asyncio.gather(*(work(worker) for worker in range(8)))

    asyncio.run(main())


# --- pipelines -----------------------------------------------------------------------------------


def test_a_pipeline(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")

    async def work(conn: AsyncConnection[Any]) -> None:
        async with conn.pipeline():
            for i in range(100):
                await conn.execute(f"INSERT INTO {name} VALUES (%s)", (i,))
            count = await conn.execute(f"SELECT count(*) FROM {name}".encode())
            point = await conn.execute(f"SELECT id FROM {name} WHERE id = %s", (42,))
            assert await point.fetchall() == [(42,)]
            assert await count.fetchall() == [(100,)]

    on_a_connection(instance, work)


def test_an_error_skips_the_rest_of_its_pipeline(instance: Instance, table: MakeTable) -> None:
    """Up to the Sync all is skipped; behind it the pipeline goes on. What came before stands."""
    name = table("id INT PRIMARY KEY")
    insert = f"INSERT INTO {name} VALUES (%s)"

    async def work(conn: AsyncConnection[Any]) -> None:
        async with conn.pipeline() as pipeline:
            await conn.execute(insert, (1,))
            failing = await conn.execute(insert, (1,))
            skipped = await conn.execute(insert, (2,))
            with pytest.raises(errors.UniqueViolation):
                await pipeline.sync()
            with pytest.raises(
                (errors.UniqueViolation, psycopg.errors.PipelineAborted, psycopg.ProgrammingError)
            ):
                await failing.fetchall()
            with pytest.raises((psycopg.errors.PipelineAborted, psycopg.ProgrammingError)):
                await skipped.fetchall()
            await conn.execute(insert, (3,))
            await pipeline.sync()
        cursor = await conn.execute(f"SELECT id FROM {name} ORDER BY id".encode())
        assert await cursor.fetchall() == [(1,), (3,)]
        assert conn.info.transaction_status == TransactionStatus.IDLE

    on_a_connection(instance, work)


def test_a_pipeline_of_large_and_small_answers(instance: Instance) -> None:
    """Answers come in the order of the statements, whichever thread they were found on."""

    async def work(conn: AsyncConnection[Any]) -> None:
        async with conn.pipeline():
            cursors = []
            for i in range(20):
                many = "SELECT a.n, b.n, c.n FROM digits a CROSS JOIN digits b CROSS JOIN digits c"
                cursors.append(
                    await conn.execute(many.encode() if i % 2 else b"SELECT n FROM digits WHERE n = 3")
                )
            counts = [len(await cursor.fetchall()) for cursor in cursors]
        assert counts == [1, 1000] * 10

    on_a_connection(instance, work)


def test_a_pipeline_in_a_transaction(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")

    async def work(conn: AsyncConnection[Any]) -> None:
        async with conn.pipeline(), conn.transaction():
            await conn.execute(f"INSERT INTO {name} VALUES (1)".encode())
            cursor = await conn.execute(f"SELECT id FROM {name}".encode())
            assert await cursor.fetchall() == [(1,)]
            assert conn.info.transaction_status == TransactionStatus.INTRANS
        assert conn.info.transaction_status == TransactionStatus.IDLE

    on_a_connection(instance, work)
