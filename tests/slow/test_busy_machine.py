"""A machine that has nothing left for the instances takes nobody for dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster import Cluster
from tests.system.busy import stay_online
from tests.system.conftest import clusters

__all__ = ["clusters"]  # a fixture


@pytest.mark.slow
@pytest.mark.timeout(0)  # --minutes says how long
def test_nobody_is_offline_on_a_busy_machine(clusters: Callable[..., Cluster], minutes: float) -> None:
    stay_online(clusters(3), seconds=60 * minutes)
