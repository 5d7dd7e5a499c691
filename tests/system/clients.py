"""Clients: one question by one of them, and many at once, each a thread with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import psycopg

from tests.cluster import Instance

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


def at_once(instance: Instance, clients: Sequence[Callable[[Connection], None]], **options: Any) -> None:
    """Returns when all have ended; raises the first failure."""
    barrier = threading.Barrier(len(clients))
    failures: list[BaseException] = []

    def run(client: Callable[[Connection], None]) -> None:
        try:
            with instance.connect(**options) as connection:
                barrier.wait(60)
                client(connection)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    real = [failure for failure in failures if not isinstance(failure, threading.BrokenBarrierError)]
    if failures:
        raise (real or failures)[0]


def rows(instance: Instance, sql: str) -> list[tuple[Any, ...]]:
    """Asked on a connection of its own."""
    with instance.connect() as connection:
        return connection.execute(sql.encode()).fetchall()


def sqlstate(connection: Connection, sql: str, *parameters: object) -> str:
    """Runs it, and returns the SQLSTATE of its answer."""
    try:
        connection.execute(sql.encode(), parameters or None)
    except psycopg.Error as error:
        if error.sqlstate is None:  # the connection is gone
            raise
        if error.sqlstate.startswith("XX"):
            error.add_note(sql)
            raise
        return error.sqlstate
    return "00000"
