"""Thousands of short simulated runs: what must hold holds after every step, and the cluster lives when all has healed.

Here: the seeds that every push runs.
Not here: many more of them (`make sim`), whether the simulation would find a bug (test_planted.py).
"""

from __future__ import annotations

import pytest

from shoal.sim.campaign import run_some

SEEDS = 3_600
SEEDS_PER_TEST = 100
COUNTING = 0.8  # of them at least; a run in which next to nothing was committed tests next to nothing


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_short_runs(first: int) -> None:
    """A failure names its seed; `shoal sim --seed N` tells its story."""
    totals = run_some(range(first, first + SEEDS_PER_TEST))
    assert totals.failures == []
    assert totals.lively >= COUNTING * SEEDS_PER_TEST
    assert totals.committed > 30 * SEEDS_PER_TEST
    assert totals.reads > 10 * SEEDS_PER_TEST
    assert min(totals.changes, totals.snapshots, totals.crashes) > SEEDS_PER_TEST
