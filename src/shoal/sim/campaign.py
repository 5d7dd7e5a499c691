"""Many seeds, on several processors, and what came of them; how long a bug on purpose stays unfound.

Here: run_seeds(), Totals; hunt().
Not here: showing it (cli/sim.py), one run (cluster.py), the bugs (planted.py).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from shoal.sim.cluster import TICKS, Outcome, run_seed
from shoal.sim.planted import Planted

_SEEDS_PER_TASK: Final = 20
ENOUGH_COMMITTED: Final = 10  # entries; a run with fewer has tested little


@dataclass(slots=True)
class Totals:
    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    committed: int = 0
    changes: int = 0
    crashes: int = 0
    snapshots: int = 0
    reads: int = 0
    lively: int = 0  # seeds that have committed enough
    cpu_s: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)  # by seed

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.events += outcome.step
        self.simulated_us += outcome.simulated_us
        self.committed += outcome.committed
        self.changes += outcome.changes
        self.crashes += outcome.crashes
        self.snapshots += outcome.snapshots
        self.reads += outcome.reads
        self.lively += outcome.committed >= ENOUGH_COMMITTED
        if outcome.failure is not None:
            self.failures.append((outcome.seed, outcome.failure))

    def merge(self, other: Totals) -> None:
        for name in (
            "seeds",
            "events",
            "simulated_us",
            "committed",
            "changes",
            "crashes",
            "snapshots",
            "reads",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lively += other.lively
        self.cpu_s += other.cpu_s
        self.failures = sorted(self.failures + other.failures)

    @property
    def events_per_s(self) -> float:
        return self.events / self.cpu_s if self.cpu_s else 0.0

    @property
    def cluster_hours_per_cpu_minute(self) -> float:
        return self.simulated_us / 3.6e9 / (self.cpu_s / 60) if self.cpu_s else 0.0


def run_seeds(
    seeds: Sequence[int], *, instances: int | None = None, ticks: int = TICKS, jobs: int = 1
) -> Iterator[Totals]:
    """Yields what has been added each time."""
    tasks = [seeds[at : at + _SEEDS_PER_TASK] for at in range(0, len(seeds), _SEEDS_PER_TASK)]
    run = partial(run_some, instances=instances, ticks=ticks)
    if jobs == 1:
        yield from map(run, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, tasks)


def run_some(seeds: Sequence[int], *, instances: int | None = None, ticks: int = TICKS) -> Totals:
    totals = Totals()
    started = time.process_time()
    for seed in seeds:
        totals.add(run_seed(seed, instances=instances, ticks=ticks))
    totals.cpu_s = time.process_time() - started
    return totals


@dataclass(frozen=True, slots=True)
class Hunt:
    """For a bug that was planted."""

    seeds: int
    cpu_s: float
    outcome: Outcome | None  # of the seed that has found it


def hunt(planted: Planted, *, first: int = 0, ticks: int = TICKS, cpu_s: float) -> Hunt:
    """Runs one seed after the other until one fails, or the time is over."""
    started = time.process_time()
    seeds = 0
    with planted.on():
        while (spent := time.process_time() - started) < cpu_s:
            outcome = run_seed(first + seeds, ticks=ticks)
            seeds += 1
            if outcome.failure is not None:
                return Hunt(seeds, time.process_time() - started, outcome)
    return Hunt(seeds, spent, None)
