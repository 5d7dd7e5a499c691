"""A seed is a run: the same on every machine, in every process, told or not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shoal.sim.cluster import run_seed
from shoal.sim.trace import Trace

SEEDS = range(40, 52)

PROGRAM = """
from shoal.sim.cluster import run_seed
from shoal.sim.trace import Trace
for seed in range(40, 52):
    trace = Trace()
    run_seed(seed, ticks=100, trace=trace)
    print(trace.hash)
"""


def hashes() -> list[str]:
    found: list[str] = []
    for seed in SEEDS:
        trace = Trace()
        run_seed(seed, ticks=100, trace=trace)
        found.append(trace.hash)
    return found


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_same_in_another_process(hash_seed: str) -> None:
    """No order of a set, and no address, has a say in it."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == hashes()


def test_different_seeds_are_different_runs() -> None:
    assert len(set(hashes())) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_that_nobody_watches_is_the_same(seed: int) -> None:
    assert run_seed(seed, ticks=100) == run_seed(seed, ticks=100, trace=Trace())


def test_what_is_checked_does_not_change_the_run() -> None:
    """With fewer invariants a bug is found later; where there is none, all is as before."""
    assert run_seed(SEEDS[0], ticks=100) == run_seed(SEEDS[0], ticks=100, promises=False)


@pytest.mark.parametrize("instances", range(1, 8))
def test_every_size(instances: int) -> None:
    for seed in range(10):
        outcome = run_seed(seed, instances=instances, ticks=60)
        assert outcome.failure is None, outcome
        assert outcome.knobs.instances == instances
