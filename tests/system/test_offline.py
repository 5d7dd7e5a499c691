"""Instances that die, freeze or hang are made Offline, in time and by name; and come back by themselves."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, Instance, eventually, instances_of
from tests.system.busy import stay_online
from tests.system.clients import Statement
from tests.system.test_disk import fill, mount

Clusters = Callable[..., Cluster]

TIMEOUT = 2.0  # governor_auto_offline_timeout, unless a test changes it


def started(clusters: Clusters, count: int = 3, **options: Any) -> tuple[Cluster, Instance]:
    """The cluster, and who leads it."""
    cluster = clusters(count, **options)
    cluster.start()
    return cluster, cluster.settle()


def row(among: Instance, of: Instance) -> dict[str, Any]:
    return instances_of(among)[of.running.name]


def await_state(among: Instance, of: Instance, state: str, seconds: float) -> dict[str, Any]:
    """Its row, once it is Online or Offline."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [instances_of(among)[of.running.name]]
        return bool(found[0]["state"] == found[0]["target"] == state)

    eventually(there, seconds, f"{of.running.name} {state}")
    return found[0]


def test_a_process_that_has_ended(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    lost = cluster.follower()
    name, before = lost.running.name, row(leader, lost)
    lost.kill()
    eventually(
        lambda: instances_of(leader)[name]["state"] == "Offline", 20 * timing_scale, f"{name} is Offline"
    )
    after = instances_of(leader)[name]
    assert after["target"] == "Offline"
    assert after["target_state_reason"] == "nobody listens at its address"
    assert after["target_state_change_time"] > before["target_state_change_time"]
    lost.start()
    assert row(leader, lost)["target_state_reason"] == "wakeup"
    cluster.settle()


def test_a_frozen_one_is_known_by_its_silence(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    lost = cluster.follower()
    with lost.frozen():
        frozen = time.monotonic()
        found = await_state(leader, lost, "Offline", 20 * timing_scale)
        assert time.monotonic() - frozen > (TIMEOUT - 0.5) * timing_scale
        assert found["target_state_reason"].startswith("silent for")
    # It reads in the log that it is Offline, and asks to be Online again.
    found = await_state(leader, lost, "Online", 20 * timing_scale)
    assert found["target_state_reason"] == "return"
    cluster.settle()


@pytest.mark.slow
def test_the_timeout_is_a_setting(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    leader.execute("ALTER SYSTEM SET governor_auto_offline_timeout = 4.5")
    lost = cluster.follower()
    with lost.frozen():
        frozen = time.monotonic()
        found = await_state(leader, lost, "Offline", 30 * timing_scale)
        assert time.monotonic() - frozen > 4 * timing_scale
        assert found["target_state_reason"] == f"silent for {4.5 * timing_scale:g} s"
    cluster.settle()


def test_a_leader_that_freezes(clusters: Clusters, timing_scale: float) -> None:
    """The others choose a leader, and that one gives it up."""
    cluster, leader = started(clusters)
    others = [instance for instance in cluster.instances if instance is not leader]
    with leader.frozen():
        new = cluster.await_leader(others)
        await_state(new, leader, "Offline", 20 * timing_scale)
    await_state(new, leader, "Online", 20 * timing_scale)
    cluster.settle()


@pytest.mark.parametrize("dies", ["frozen", pytest.param("killed", marks=pytest.mark.slow)])
def test_the_leader_is_lost_together_with_another_one(
    clusters: Clusters, timing_scale: float, dies: str
) -> None:
    """A new leader finds out by itself who isn't there: nothing that the old one had heard is needed."""
    cluster, leader = started(clusters, 5)
    others = [instance for instance in cluster.instances if instance is not leader]
    gone, left = others[0], others[1:]
    names = {leader.running.name, gone.running.name}
    for instance in (gone, leader):
        instance.freeze() if dies == "frozen" else instance.kill()
    new = cluster.await_leader(left)

    def given_up() -> bool:
        members = instances_of(new)
        return {name for name, row in members.items() if row["state"] == "Offline"} == names

    eventually(given_up, 20 * timing_scale, f"{names} are Offline")
    for instance in (gone, leader):
        instance.thaw() if dies == "frozen" else instance.start()
    cluster.settle()


def test_a_silent_master_is_given_up_while_a_schema_change_asks_it(
    clusters: Clusters, timing_scale: float
) -> None:
    """The change waits for it, and nothing else does."""
    cluster, leader = started(clusters)
    lost = cluster.follower()
    (other,) = (instance for instance in cluster.instances if instance not in (leader, lost))
    with lost.frozen():
        created = Statement(leader, "CREATE TABLE s (id INT PRIMARY KEY)")
        # Long before the question to it would time out.
        await_state(leader, lost, "Offline", 20 * timing_scale)
        with other.connect() as beside:
            assert beside.execute("SELECT count(*) FROM _pico_pending_schema_change").fetchone() == (1,)
            beside.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
            beside.execute("INSERT INTO g VALUES (1)")
        assert created.is_running
    assert created.sqlstate(20 * timing_scale) == "00000"
    cluster.settle()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    directory = tmp_path / "disk"
    directory.mkdir()
    mount(directory, "size=32m")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_one_that_is_stuck_and_answers(clusters: Clusters, full_disk: Path, timing_scale: float) -> None:
    """Its disk is full: it hears everything, and applies nothing."""
    cluster = clusters(3)
    stuck = cluster.instances[2]
    stuck.directory = full_disk / "i3"
    cluster.start()
    leader = cluster.settle()
    if leader is stuck:
        stuck.stop()
        leader = cluster.await_leader()
        stuck.start()
        leader = cluster.settle()
    leader.execute("ALTER SYSTEM SET governor_auto_offline_timeout = 1")
    leader.execute("CREATE TABLE g (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    ballast = fill(full_disk)
    with leader.connect() as connection:
        deadline = time.monotonic() + 60 * timing_scale
        number = 0
        while instances_of(leader)[stuck.running.name]["state"] == "Online":
            assert time.monotonic() < deadline, "it is still Online"
            number += 1
            connection.execute("INSERT INTO g VALUES (%s, %s)", (number, "x" * 5000))
    assert "has applied nothing" in row(leader, stuck)["target_state_reason"]
    ballast.unlink()
    await_state(leader, stuck, "Online", 30 * timing_scale)
    cluster.settle()


def test_one_that_is_slow_stays_online(clusters: Clusters, timing_scale: float) -> None:
    """Frozen for most of the time, but never for long: it lags, and moves on."""
    cluster, leader = started(clusters)
    leader.execute("CREATE TABLE g (id INT PRIMARY KEY, v TEXT) DISTRIBUTED GLOBALLY")
    slow = cluster.follower()
    incarnation = row(leader, slow)["current_state"]
    with leader.connect() as connection, contextlib.ExitStack() as stack:
        stack.callback(slow.thaw)
        deadline = time.monotonic() + 8 * timing_scale
        number = 0
        while time.monotonic() < deadline:
            slow.freeze()
            paused = time.monotonic()
            while time.monotonic() - paused < 0.8 * timing_scale:
                number += 1
                connection.execute("INSERT INTO g VALUES (%s, %s)", (number, "x" * 20_000))
            slow.thaw()
            time.sleep(0.1 * timing_scale)
    assert row(leader, slow)["current_state"] == incarnation
    cluster.settle()


def test_a_busy_machine(clusters: Clusters) -> None:
    """The same for ten minutes is in tests/slow."""
    stay_online(clusters(3), seconds=5)
