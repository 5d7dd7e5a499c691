"""What tests against the real process share: instances and clusters of their own, and one instance that many of them use.

Not here: what an instance is (tests/cluster.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, Instance, eventually


@pytest.fixture(scope="session")
def _shared_instance(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Instance]:
    running = Instance(tmp_path_factory.mktemp("shared") / "i", timing_scale=timing_scale)
    running.start()
    try:
        yield running
        assert running.stop() == 0, running.log()[-4000:]
    finally:
        running.kill()


@pytest.fixture
def shared(_shared_instance: Instance, timing_scale: float) -> Iterator[Instance]:
    """An instance that other tests of this worker use too: for tests that neither stop it nor set it up
    differently. Afterwards nobody may be connected, and its log may tell of no bug."""
    yield _shared_instance
    assert _shared_instance.is_running, _shared_instance.log()[-4000:]
    nobody_connected(_shared_instance, timing_scale)
    assert not _shared_instance.bugs(), _shared_instance.bugs()


@pytest.fixture
def own(tmp_path: Path, timing_scale: float) -> Iterator[Instance]:
    """An instance for one test, started."""
    running = Instance(tmp_path / "i", timing_scale=timing_scale)
    running.start()
    try:
        yield running
        assert not running.bugs(), running.bugs()
    finally:
        running.kill()


@pytest.fixture
def clusters(tmp_path: Path, timing_scale: float) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters for one test: clusters(3) has three instances, none of them started. Their logs may tell of no bug
    afterwards, but those of `forgiven`."""
    made: list[Cluster] = []

    def make(count: int, **options: Any) -> Cluster:
        directory = tmp_path / f"c{len(made) + 1}"
        directory.mkdir()
        made.append(Cluster(directory, count, timing_scale=timing_scale, **options))
        return made[-1]

    try:
        yield make
        for cluster in made:
            assert not cluster.bugs(), cluster.bugs()
    finally:
        for cluster in made:
            cluster.close()


def nobody_connected(instance: Instance, timing_scale: float) -> None:
    eventually(
        lambda: instance.metrics()["shoal_open_connections"] == 0,
        10 * timing_scale,
        "no connection is open",
    )


_numbers = itertools.count(1)


@pytest.fixture
def table(shared: Instance) -> Callable[[str], str]:
    """Makes a table in the shared instance: table("id INT PRIMARY KEY") gives its name."""

    def make(columns: str) -> str:
        name = f"table_{next(_numbers)}"
        shared.execute(f"CREATE TABLE {name} ({columns})")
        return name

    return make
