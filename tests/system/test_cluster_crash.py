"""A crash at each boundary of Raft: before and after an entry is on the disk, before and after it is applied. Whoever dies there,
and when all die there, the entry is in the log once or never, and all have the same catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psycopg
import pytest

from tests.cluster import Cluster, Instance, eventually
from tests.system.clients import rows

Clusters = Callable[..., Cluster]

POINTS = ("before_persist", "after_persist", "before_apply", "after_apply")


class Armed:
    """A cluster of three whose instances can be told by an entry's text where to die."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.written: list[str] = []  # acknowledged
        self._names: dict[Instance, str] = {}
        for instance in cluster.instances:
            self._arm(instance)
        cluster.start()
        cluster.settle().execute("CREATE TABLE g (t TEXT PRIMARY KEY) DISTRIBUTED GLOBALLY")

    def _arm(self, instance: Instance, name: str | None = None) -> None:
        # By another name than the last time: the entry by which it died is met again.
        name = name or f"{instance.directory.name}.{len(self._names)}.{len(self.written)}"
        self._names[instance] = name
        instance.environment["SHOAL_CRASH_POINTS"] = name

    def arm_all(self, name: str) -> None:
        for instance in self.cluster.instances:
            assert not instance.is_running
            self._arm(instance, name)

    def crash(self, instance: Instance, point: str, through: Instance) -> None:
        """It dies there, and what was written is acknowledged all the same."""
        text = f"crash {self._names[instance]} {point}"
        with through.connect() as connection:
            connection.execute("INSERT INTO g VALUES (%s)", (text,))
        self.written.append(text)
        assert instance.await_end() == -9
        self._arm(instance)
        instance.start()
        self.cluster.settle()

    def check(self) -> None:
        self.cluster.same_everywhere()
        found = rows(self.cluster.instances[0], "SELECT t FROM g ORDER BY t")
        assert found == sorted((text,) for text in self.written)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_one_dies(clusters: Clusters, role: str) -> None:
    armed = Armed(clusters(3))
    cluster = armed.cluster
    for point in POINTS:
        leader = cluster.await_leader()
        follower = cluster.follower()
        if role == "leader":
            armed.crash(leader, point, through=follower)
        else:
            armed.crash(follower, point, through=leader)
    armed.check()


def all_die(clusters: Clusters, point: str, timing_scale: float) -> None:
    cluster = clusters(3)
    armed = Armed(cluster)
    for instance in cluster.instances:
        instance.kill()
    armed.arm_all("all")
    cluster.start()
    leader = cluster.settle()
    with leader.connect() as connection, contextlib.suppress(psycopg.OperationalError):
        connection.execute("INSERT INTO g VALUES (%s)", (f"crash all {point}",))
        pytest.fail("it was answered")
    eventually(lambda: not cluster.running, 30 * timing_scale, "all are dead")
    for instance in cluster.instances:
        assert instance.await_end() == -9
    armed.arm_all("never")
    cluster.start()
    cluster.settle()
    found = rows(leader, "SELECT t FROM g")
    # Before it is on any disk but on its way to all, either may be. On the disk of one it need not be found; on all it must.
    if point == "before_persist":
        assert found in ([], [(f"crash all {point}",)])
    else:
        assert found == [(f"crash all {point}",)]
    leader.execute("INSERT INTO g VALUES ('more')")
    cluster.same_everywhere()


@pytest.mark.parametrize("point", ["after_persist", "after_apply"])
def test_all_die(clusters: Clusters, timing_scale: float, point: str) -> None:
    all_die(clusters, point, timing_scale)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_persist", "before_apply"])
def test_all_die_elsewhere(clusters: Clusters, timing_scale: float, point: str) -> None:
    all_die(clusters, point, timing_scale)
