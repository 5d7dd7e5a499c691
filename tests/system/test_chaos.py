"""A cluster whose instances are killed, frozen and cut off while clients write through all of them: nothing that was
acknowledged is lost, nothing happens twice, nobody is told what can't be true."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.cluster import Cluster
from tests.system.chaos import REGISTERS, SCHEMA, Load, Nemesis, check

Clusters = Callable[..., Cluster]


def chaos(
    cluster: Cluster, seconds: float, seed: int, *, clients_per_instance: int = 2, least: float
) -> None:
    """`least`: so many acknowledged operations per second, or the run says nothing."""
    cluster.start()
    leader = cluster.settle()
    leader.execute(*SCHEMA)
    with leader.connect() as connection:
        for start in range(0, REGISTERS, 2000):
            rows = ", ".join(f"({k}, 0, 0)" for k in range(start, start + 2000))
            connection.execute(f"INSERT INTO registers VALUES {rows}".encode())
    cluster.same_everywhere()
    load = Load(cluster, clients_per_instance, seed)
    nemesis = Nemesis(cluster, seed)
    load.start()
    begun = time.monotonic()
    try:
        nemesis.rage(seconds, until=lambda: bool(load.failures))
    finally:
        load.stop()
    lasted = time.monotonic() - begun
    cluster.settle(60)
    check(cluster, load)
    print(
        f"\nseed {seed}: {lasted:.0f} s, {load.acknowledged} acknowledged, {dict(load.answers)}, "
        f"{len(load.registers)} registers, {len(load.sets)} sets, {len(load.lists)} lists, {nemesis.done}"
    )
    assert load.acknowledged >= least * lasted, f"{load.acknowledged} acknowledged in {lasted:.0f} s"


def test_ten_seconds(clusters: Clusters) -> None:
    chaos(clusters(3, links=True), 10, seed=1, least=10)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10, 14))
def test_a_minute(clusters: Clusters, seed: int) -> None:
    chaos(clusters(3, links=True), 60, seed=seed, least=10)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_minute_of_five(clusters: Clusters) -> None:
    chaos(clusters(5, links=True), 60, seed=20, clients_per_instance=1, least=8)
