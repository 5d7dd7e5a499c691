"""Many seeds, one after another or side by side, and what came of them.

Here: run_many(), Totals.
Not here: one run (run.py).
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.run import Outcome, run_seed


@dataclass
class Totals:
    counts: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu: float) -> None:
        self.counts["seeds"] += 1
        self.counts["lively"] += outcome.is_lively
        self.counts["entries"] += outcome.entries
        self.counts["snapshots"] += outcome.snapshots
        self.counts["simulated s"] += int(outcome.simulated)
        self.counts["cpu ms"] += int(cpu * 1000)
        self.answers += outcome.answers
        self.kinds += outcome.kinds
        self.faults += outcome.faults
        if outcome.failure is not None:
            self.failures.append(outcome)

    def __str__(self) -> str:
        lines = [dict(each.most_common()) for each in (self.counts, self.answers, self.kinds, self.faults)]
        failed = [outcome.seed for outcome in self.failures]
        return "\n".join(map(str, [*lines, f"{len(failed)} failures: {failed}"]))


def run_many(
    seeds: Iterable[int],
    *,
    instances: int | None = None,
    jobs: int = 1,
    seconds: float = 570,
    failures_max: int = 10,
) -> Totals:
    """Until so much real time has passed. Prints what fails."""
    started = time.monotonic()
    totals = Totals()
    run = partial(timed, instances=instances)
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome, cpu in pool.imap(run, seeds):
            totals.add(outcome, cpu)
            if outcome.failure is not None:
                print(f"seed {outcome.seed}: {outcome.failure[:1500]}", flush=True)
            if time.monotonic() - started > seconds or len(totals.failures) >= failures_max:
                pool.terminate()
                break
    return totals


def timed(seed: int, instances: int | None) -> tuple[Outcome, float]:
    logging.disable(logging.CRITICAL)
    before = time.process_time()
    outcome = run_seed(seed, instances)
    return outcome, time.process_time() - before
