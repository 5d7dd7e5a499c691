"""Clients: one question by one of them, many at once, each a thread with a connection of its own, and one that waits while a
test goes on."""

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


class Statement:
    """One statement that may take its time, on a thread and a connection of its own."""

    def __init__(self, instance: Instance, sql: str) -> None:
        self.error: psycopg.Error | None = None
        self._connection = instance.connect()
        self._sql = sql
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._connection.execute(self._sql.encode())
        except psycopg.Error as error:
            self.error = error
        finally:
            self._connection.close()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def cancel(self) -> None:
        self._connection.cancel()

    def sqlstate(self, seconds: float) -> str | None:
        """Of its answer; None: the connection was lost without one."""
        self._thread.join(seconds)
        assert not self.is_running, f"no answer within {seconds:g} s: {self._sql}"
        return "00000" if self.error is None else self.error.sqlstate
