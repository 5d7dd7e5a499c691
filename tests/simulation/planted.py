"""Bugs planted into our own code, which the simulation must find.

Here: BUGS, each a place in a module of src/shoal and what stands there instead; find(), which hunts one in a process of its
own.
Not here: which of them a test takes (test_planted.py).

    python -m tests.simulation.planted             # all of them, with the seconds of CPU
    python -m tests.simulation.planted --hunt NAME # one, in this process
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
PATIENCE_SECONDS: Final = 60.0  # of CPU


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    module: str
    right: str  # stands in it exactly once
    wrong: str
    told: bool = False  # the story of moves.py is asked before seeds are


BUGS: Final = (
    Bug(
        "two proposals may take the same unique value",
        "shoal.catalog.cas",
        "    return _duplicate(changes, tail, schema, since)\n",
        "    return None\n",
    ),
    Bug(
        "a proposal may join the log though its table was changed since",
        "shoal.catalog.cas",
        "        if found is not None or table is None:\n",
        "        if table is None:\n",
    ),
    Bug(
        "what a proposal has read isn't compared, only what it writes",
        "shoal.catalog.cas",
        "    ranges = (*predicate.ranges, *_read_by_itself(entry), *written_ranges(entry))\n",
        "    ranges = (*_read_by_itself(entry), *written_ranges(entry))\n",
    ),
    Bug(
        "the tail is kept from one leadership to the next",
        "shoal.node.catalog_log",
        "        if tail is None or self._tail_term != raft.term:\n",
        "        if tail is None or tail.last > log.last_index:\n",
    ),
    Bug(
        "a decision to do nothing counts however old its state is",
        "shoal.node.catalog_log",
        "            if at >= needed:\n",
        "            if True:\n",
    ),
    Bug(
        "a proposal is sent again though its outcome is unknown",
        "shoal.node.catalog_log",
        "                except OutcomeUnknown:\n                    return await self._find_out(proposal, term, deadline)\n",
        "                except OutcomeUnknown:\n                    await self._pause(deadline)\n                    continue\n",
    ),
    Bug(
        "a lost answer is taken for a lost entry before another leader has said so",
        "shoal.node.catalog_log",
        "            if later > term:\n                return None\n",
        "            if later >= term:\n                return None\n",
    ),
    Bug(
        "a write is acknowledged when the leader has it in its log",
        "shoal.node.catalog_log",
        "                return await self._settled(proposal, counter, reply, deadline)\n        except asyncio.CancelledError:\n",
        "                return reply.index\n        except asyncio.CancelledError:\n",
    ),
    Bug(
        "the governor compares with the state of when it proposes, not of when it planned",
        "shoal.node.governing",
        "    async def _change(self, step: Step, at: int) -> None:\n",
        "    async def _change(self, step: Step, at: int) -> None:\n        at = self._log.applied\n",
        told=True,
    ),
    Bug(
        "the commit of a schema change doesn't rest on who the masters are",
        "shoal.governor.rules.schema_changes",
        "        ranges=(_row(pending), Range(PICO_REPLICASET.id)),\n",
        "        ranges=(_row(pending),),\n",
    ),
    Bug(
        "no answer from a master is taken for a yes",
        "shoal.node.governing",
        "        except _ON_THE_WAY:\n            raise\n        except ShoalError as error:\n            verdict",
        "        except _ON_THE_WAY:\n            verdict = None\n        except ShoalError as error:\n            verdict",
        told=True,
    ),
    Bug(
        "a master that is behind says yes to a change that it doesn't know",
        "shoal.node.own_tables",
        "            await self._log.wait_applied(request.version, deadline)\n",
        "            pass\n",
    ),
    Bug(
        "a schema change is not the same when it is applied twice",
        "shoal.storage.table_versions",
        "    if found == after.version:\n        return\n",
        "    if found == after.version:\n        tables.drop_table(connection, after.physical, schema=after.file)\n        return\n",
        told=True,
    ),
    Bug(
        "an aborted change isn't taken back",
        "shoal.node.own_tables",
        "            if isinstance(entry, DdlAbort):\n                self._drop_if_aborted(pending, change.before.schema, schema)\n",
        "            if isinstance(entry, DdlAbort):\n                return\n",
        told=True,
    ),
    Bug(
        "a snapshot tells the tables nothing",
        "shoal.node.own_tables",
        "            self.follow_all()\n        elif change.record is not None:\n",
        "        elif change.record is not None:\n",
    ),
    Bug(
        "rows of global tables stay as they were when a snapshot is installed",
        "shoal.storage.catalog_snapshot",
        "        return all(frame == next(ours, None) for frame in theirs) and next(ours, None) is None\n",
        "        return all(frame is not None for frame in theirs)\n",
    ),
    Bug(
        "a write doesn't rest on the rights of who asks for it",
        "shoal.node.execute",
        "(*reads.ranges(bindings, dry.count), *rights.basis(user_id))",
        "reads.ranges(bindings, dry.count)",
    ),
    Bug(
        "rights are looked at when a statement is bound, and not where it is decided",
        "shoal.node.execute",
        "        refuse_unless_allowed(prepared, rights)\n",
        "        pass\n",
    ),
    Bug(
        "an instance that doesn't answer counts as one that has applied the entry",
        "shoal.node.applied",
        "                except ShoalError:\n                    pass  # not yet, or it can't be reached\n",
        "                except ShoalError:\n                    return True\n",
    ),
    Bug(
        "a call whose connection broke was never sent",
        "shoal.node.rpc.dialled",
        "            if request_id <= self._handed_id:\n",
        "            if request_id < 0:\n",
    ),
)


# --- planting ------------------------------------------------------------------------------------


class _Planter(importlib.abc.MetaPathFinder):
    """Gives out one module with the bug in it."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self._bug.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None and spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self._bug)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        return compile(planted(source, self._bug), self.path, "exec")


def planted(source: str, bug: Bug) -> str:
    assert source.count(bug.right) == 1, f"{bug.module} has no place for {bug.name!r} any more"
    return source.replace(bug.right, bug.wrong)


def source_of(bug: Bug) -> str:
    return (_ROOT / "src" / (bug.module.replace(".", "/") + ".py")).read_text()


# --- hunting -------------------------------------------------------------------------------------


def find(bug: Bug, seconds: float = PATIENCE_SECONDS) -> tuple[str, float]:
    """How it was found, "" if it wasn't, and after how many seconds of CPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.planted", "--hunt", bug.name, "--seconds", str(seconds)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cpu, _, how = done.stdout.strip().partition(" ")
    return how, float(cpu)


def _hunt(bug: Bug, seconds: float) -> str:
    sys.meta_path.insert(0, _Planter(bug))
    sys.unraisablehook = lambda found: None
    hunts: list[Callable[[float], str]] = [_by_moves, _by_seeds] if bug.told else [_by_seeds]
    for hunt in hunts:
        how = hunt(seconds)
        if how:
            return how
    return ""


def _by_seeds(seconds: float) -> str:
    from tests.simulation.run import run_seed

    seed = 0
    while time.process_time() < seconds:
        try:
            failure = run_seed(seed).failure
        except Exception as error:  # the bug may break anything
            failure = repr(error)
        if failure is not None:
            return f"seed {seed}: {failure}"
        seed += 1
    return ""


def _by_moves(seconds: float) -> str:
    from tests.simulation import moves

    directory = Path(tempfile.mkdtemp(prefix="shoal-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        points = moves.moments(directory / "none")
        for number, point in enumerate(points[::7]):
            for way in moves.WAYS:
                if time.process_time() > seconds / 2:
                    return ""
                moves.told_with(directory / f"{number}{way}", point, way)
                shutil.rmtree(directory / f"{number}{way}")
    except AssertionError as error:
        return str(error)
    finally:
        shutil.rmtree(directory)
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("--hunt")
    parser.add_argument("--seconds", type=float, default=PATIENCE_SECONDS)
    parser.add_argument("--only", help="those with this in their names")
    chosen = parser.parse_args(arguments)
    if chosen.hunt is not None:
        logging.disable(logging.CRITICAL)
        bug = next(bug for bug in BUGS if bug.name == chosen.hunt)
        how = _hunt(bug, chosen.seconds)
        print(f"{time.process_time():.1f} {' '.join(how.split())[:300]}")
        return 0
    missed = 0
    for bug in BUGS:
        if chosen.only is None or chosen.only in bug.name:
            how, cpu = find(bug, chosen.seconds)
            missed += not how
            print(f"{cpu:6.1f} s  {bug.name}: {how[:160] or 'NOT FOUND'}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
