"""kill -9 and SIGTERM in the middle of writers: what was acknowledged is there, whole, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import apsw
import psycopg
import pytest

from shoal.catalog.system import PICO_INSTANCE
from tests.cluster import Instance, NotInTime, eventually
from tests.system.replication_log import check_log_against_tables
from tests.system.writers import SCHEMA, Writers

KILLS = 3


def kill_often(directory: Path, timing_scale: float, *, kills: int, seed: int, payload_bytes: int) -> None:
    """Writers on one instance that is killed again and again; what they wrote is compared each time."""
    chance = random.Random(seed)
    instance = Instance(directory, timing_scale=timing_scale)
    instance.start()
    try:
        instance.execute(*SCHEMA)
        writers = Writers(4, seed, payload_bytes=payload_bytes)
        for _ in range(kills):
            writers.begin(instance)
            writers.until(chance.randint(30, 400), 60 * timing_scale)
            instance.kill()
            writers.join()
            instance.start()
            writers.check(instance)
            assert check_log_against_tables(directory) > 0
        assert writers.acknowledged > 30 * kills
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
    finally:
        instance.kill()


def test_acknowledged_statements_survive_kill_9_and_half_ones_do_not(
    tmp_path: Path, timing_scale: float
) -> None:
    kill_often(tmp_path / "i", timing_scale, kills=KILLS, seed=1, payload_bytes=300)


def test_sigterm_in_the_middle_of_writers_loses_nothing(own: Instance, timing_scale: float) -> None:
    own.execute(*SCHEMA)
    writers = Writers(4, 2)
    writers.begin(own)
    writers.until(200, 60 * timing_scale)
    assert own.stop() == 0
    writers.join()
    assert _instance_state(own.directory)[0] == "Offline"
    own.start()
    writers.check(own)
    check_log_against_tables(own.directory)
    assert _instance_state(own.directory)[0] == "Online"


def test_clients_hear_that_the_instance_stops(own: Instance) -> None:
    with own.connect() as idle, pytest.raises(psycopg.errors.AdminShutdown):
        assert own.stop() == 0
        idle.execute("SELECT 1")


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_while_it_starts_for_the_first_time(tmp_path: Path, timing_scale: float, seed: int) -> None:
    """The first start makes the files and the catalog: wherever it is cut off, the next one goes on."""
    chance = random.Random(seed)
    instance = Instance(tmp_path / "i", timing_scale=timing_scale)
    killer = threading.Thread(target=_kill_when_it_begins, args=(instance, chance.uniform(0.0, 0.25)))
    killer.start()
    with contextlib.suppress(NotInTime):
        instance.start()
    killer.join()
    instance.kill()
    instance.start()
    try:
        instance.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        with instance.connect() as connection:
            assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert instance.stop() == 0
    finally:
        instance.kill()
    assert not instance.bugs(), instance.bugs()


def _kill_when_it_begins(instance: Instance, seconds: float) -> None:
    """So long after the first of its files is there."""
    eventually(lambda: (instance.directory / "instance.lock").exists(), 60)
    time.sleep(seconds)
    os.kill(instance.pid, signal.SIGKILL)


def _instance_state(directory: Path) -> list[object]:
    """The state that _pico_instance holds, as [state, incarnation]."""
    connection = apsw.Connection(str(directory / "catalog.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        column = PICO_INSTANCE.by_name["current_state"].physical
        text = connection.execute(f"SELECT {column} FROM {PICO_INSTANCE.physical}").get
    finally:
        connection.close()
    state: list[object] = json.loads(text)
    return state
