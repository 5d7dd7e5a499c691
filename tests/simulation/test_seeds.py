"""Clusters by chance: some seeds each time, many by name; and the same seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.many import Totals, run_many
from tests.simulation.run import run_seed

FAST: range = range(30)
_PER_TEST = 5
_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", FAST[::_PER_TEST])
def test_answers_agree_with_the_log_and_all_instances_with_each_other(first: int) -> None:
    totals = Totals()
    for seed in range(first, first + _PER_TEST):
        totals.add(run_seed(seed), 0.0)
        assert not totals.failures, f"seed {seed}: {totals.failures[0].failure}"
    assert totals.counts["lively"] >= _PER_TEST // 2, totals


def test_the_same_seed_is_the_same_run_whatever_the_order_of_sets() -> None:
    told = [_in_another_process(seed=3, hash_seed=str(hash_seed)) for hash_seed in (0, 1)]
    assert told[0] == told[1]
    assert run_seed(3).trace in told[0]


def _in_another_process(seed: int, hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": "src", "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_1000_seeds() -> None:
    totals = run_many(range(1_000, 2_000), jobs=2, seconds=3500)
    print(totals)
    assert not totals.failures, [outcome.seed for outcome in totals.failures]
    assert totals.counts["lively"] > 0.8 * totals.counts["seeds"]
