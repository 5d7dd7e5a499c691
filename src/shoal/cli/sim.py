"""`shoal sim`: one simulated run again, or very many, or as many as it takes to find a bug on purpose.

Here: the command, its progress, and how a failure is told.
Not here: the simulation (sim/).
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shoal.sim.cluster import TICKS, Outcome, run_seed
from shoal.sim.knobs import Knobs
from shoal.sim.trace import Trace

if TYPE_CHECKING:
    from shoal.sim.planted import Planted

FAILURES_SHOWN: Final = 5
EVENTS_SHOWN: Final = 40
HUNT_CPU_SECONDS: Final = 60.0


def sim(
    seed: Annotated[int | None, typer.Option(help="Run this seed, and tell what came of it.")] = None,
    seeds: Annotated[int, typer.Option(help="Without --seed: run so many.")] = 1000,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    instances: Annotated[
        int | None,
        typer.Option(help="So many members at the start; the seed decides otherwise.", min=1, max=7),
    ] = None,
    ticks: Annotated[int, typer.Option(help="How long the faults last.", min=1)] = TICKS,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: print every event.")] = False,
    jobs: Annotated[int, typer.Option(help="So many processes.", min=1)] = 1,
    planted: Annotated[
        str | None,
        typer.Option(help="With this bug on purpose; without --seed: look for a seed that finds it."),
    ] = None,
) -> None:
    """Run the consensus core in a simulated cluster: the same seed is the same run."""
    bug = _planted(planted) if planted is not None else None
    if seed is not None:
        again = f"shoal sim --seed {seed}" + _options(instances, ticks)
        again += f" --planted {bug.name}" if bug is not None else ""
        with bug.on() if bug is not None else nullcontext():
            raise typer.Exit(_one(seed, instances, ticks, whole=trace, again=again))
    if bug is not None:
        raise typer.Exit(_hunt(bug, first, ticks))
    raise typer.Exit(_many(seeds, first, instances, ticks, jobs))


def _planted(name: str) -> Planted:
    from shoal.sim.planted import PLANTED  # reads its list, which no other command needs

    if name not in PLANTED:
        raise typer.BadParameter(f"{name!r} is none of: {', '.join(PLANTED)}", param_hint="--planted")
    return PLANTED[name]


def _hunt(bug: Planted, first: int, ticks: int) -> int:
    """0: it was found."""
    from shoal.sim.campaign import hunt

    sys.stdout.write(f"{bug.name}: {bug.story}\n")
    hunted = hunt(bug, first=first, ticks=ticks, cpu_s=HUNT_CPU_SECONDS)
    found = hunted.outcome
    if found is None:
        sys.stdout.write(f"not found in {hunted.seeds} seeds, {hunted.cpu_s:.1f} CPU seconds\n")
        return 1
    sys.stdout.write(
        f"found after {hunted.seeds} seeds, {hunted.cpu_s:.1f} CPU seconds: {found.failure}\n"
        f"again: shoal sim --seed {found.seed}{_options(None, ticks)} --planted {bug.name}\n"
    )
    return 0


def _options(instances: int | None, ticks: int) -> str:
    return (f" --instances {instances}" if instances else "") + (
        f" --ticks {ticks}" if ticks != TICKS else ""
    )


def _one(seed: int, instances: int | None, ticks: int, *, whole: bool, again: str) -> int:
    trace = Trace(keep=None if whole else EVENTS_SHOWN)
    outcome = run_seed(seed, instances=instances, ticks=ticks, trace=trace)
    if whole or outcome.failure is not None:
        sys.stdout.write("\n".join(trace.last) + "\n\n")
    sys.stdout.write(f"seed {seed}, trace {trace.hash}\n{_knobs(outcome.knobs)}\n{_sums(outcome)}\n")
    if outcome.failure is None:
        return 0
    sys.stdout.write(f"failed at event {outcome.step}: {outcome.failure}\nagain: {again}\n")
    return 1


def _knobs(knobs: Knobs) -> str:
    shown = [f"{each.name}={getattr(knobs, each.name)}" for each in fields(knobs) if each.name != "limits"]
    limits = [f"{each.name}={getattr(knobs.limits, each.name)}" for each in fields(knobs.limits)]
    return "  " + " ".join(shown) + "\n  " + " ".join(limits)


def _sums(outcome: Outcome) -> str:
    return (
        f"  {outcome.step} events in {outcome.simulated_us / 1e6:.1f} simulated seconds: {outcome.committed} entries "
        f"committed, {outcome.terms} terms, {outcome.crashes} crashes, {outcome.changes} changes of the members, "
        f"{outcome.snapshots} snapshots, {outcome.reads} reads"
    )


def _many(seeds: int, first: int, instances: int | None, ticks: int, jobs: int) -> int:
    from shoal.sim.campaign import Totals, run_seeds  # brings multiprocessing, which no other command needs

    totals = Totals()
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, console=console) as progress:
        shown = 0
        task = progress.add_task("seeds", total=seeds, rate="")
        for some in run_seeds(range(first, first + seeds), instances=instances, ticks=ticks, jobs=jobs):
            totals.merge(some)
            for seed, failure in some.failures[: max(0, FAILURES_SHOWN - shown)]:
                progress.console.print(f"seed {seed}: {failure}", markup=False, highlight=False)
            shown += len(some.failures)
            progress.update(task, advance=some.seeds, rate=f"{totals.events_per_s:,.0f} events/s")
    sys.stdout.write(
        f"{totals.seeds} seeds, {totals.cpu_s:.1f} CPU seconds, {totals.events_per_s:,.0f} events/s, "
        f"{totals.cluster_hours_per_cpu_minute:.1f} cluster-hours per CPU minute\n"
        f"{totals.committed} entries committed ({totals.lively} seeds with enough of them), {totals.crashes} crashes, "
        f"{totals.changes} changes of the members, {totals.snapshots} snapshots, {totals.reads} reads\n"
    )
    if not totals.failures:
        return 0
    sys.stdout.write(f"{len(totals.failures)} seeds failed:\n")
    for seed, failure in totals.failures[:FAILURES_SHOWN]:
        sys.stdout.write(f"  shoal sim --seed {seed}{_options(instances, ticks)}   {failure}\n")
    return 1
