"""Statements by chance: each is answered, in time, and never by a bug."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import psycopg

from tests.cluster import Instance
from tests.system.conftest import nobody_connected
from tests.system.processes import memory_mib
from tests.system.random_sql import RandomSql

STATEMENTS = 1_500
PER_SCHEMA = 250
TIMEOUT_SECONDS = 2


def run_random_statements(
    directory: Path, timing_scale: float, seeds: range, growth_mib: float
) -> Counter[str]:
    """PER_SCHEMA statements for each seed; returns how often each SQLSTATE was the answer."""
    instance = Instance(directory, timing_scale=timing_scale)
    instance.start()
    outcomes: Counter[str] = Counter()
    settled = 0.0
    try:
        for seed in seeds:
            _run_schema(instance, seed, outcomes, timing_scale)
            assert not instance.bugs(), f"seed {seed}: {instance.bugs()}"
            if seed - seeds.start <= len(seeds) // 3:
                settled = memory_mib(instance.pid)
        nobody_connected(instance, timing_scale)
        assert memory_mib(instance.pid) < settled + growth_mib, (settled, memory_mib(instance.pid))
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
    finally:
        instance.kill()
    return outcomes


def _run_schema(instance: Instance, seed: int, outcomes: Counter[str], timing_scale: float) -> None:
    sql = RandomSql(seed)
    with instance.connect(options=f"-c statement_timeout={TIMEOUT_SECONDS}s") as connection:
        for text in sql.schema():
            connection.execute(text.encode())
        for number in range(PER_SCHEMA):
            text = sql.statement()
            started = time.monotonic()
            try:
                outcome = _run(connection, text, number)
                assert not outcome.startswith("XX")
                # What can be stopped only between two rows, or while it is planned, may take a little longer.
                seconds = time.monotonic() - started
                assert seconds < (TIMEOUT_SECONDS + 8) * timing_scale, f"took {seconds:.1f} s"
            except Exception as error:
                error.add_note(f"seed {seed}, statement {number}: {text}")
                raise
            outcomes[outcome] += 1
        for name, _ in sql.tables:
            connection.execute(f"DROP TABLE {name}".encode())


def _run(connection: psycopg.Connection, text: str, number: int) -> str:
    """By the simple or the extended protocol, with text or binary results."""
    try:
        encoded = text.encode()
        if number % 3 == 0:
            connection.execute(encoded)
        else:
            cursor = connection.cursor(binary=number % 3 == 1)
            cursor.execute(encoded, prepare=number % 2 == 0)
            if cursor.description is not None:
                cursor.fetchall()
    except psycopg.Error as error:
        if error.sqlstate is None and not isinstance(error, psycopg.DataError):
            raise
        return error.sqlstate or "a value that psycopg can't take"
    return "00000"


def test_random_statements(tmp_path: Path, timing_scale: float) -> None:
    outcomes = run_random_statements(
        tmp_path / "i", timing_scale, range(STATEMENTS // PER_SCHEMA), growth_mib=80
    )
    # A run counts only if most statements meant something, and others met the errors that they are there for.
    assert outcomes["00000"] > STATEMENTS / 3, outcomes
    assert outcomes.keys() >= {"42601", "22003", "23505"}, outcomes
