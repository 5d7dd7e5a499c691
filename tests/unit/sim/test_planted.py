"""The simulation finds every bug that is planted, within half a minute of CPU time; and the scripts notice those of the core.

Here: a fifth of the hunts each day, and all of them under `slow`.
Not here: the bugs (src/shoal/sim/planted.py).

SHOAL_PLANTED_FIFTH=0…4 says which fifth, instead of the day; the test's name shows it.
"""

from __future__ import annotations

import os

import pytest

from shoal.raft.quorum import vote_result
from shoal.sim.campaign import hunt
from shoal.sim.disk import Disk
from shoal.sim.member import Member
from shoal.sim.planted import PLANTED, Edit, Planted
from tests.scripts_runner import run_script, script_paths
from tests.unit.raft.test_scripts import Script

CPU_SECONDS = 30.0
FIFTH = int(os.environ["SHOAL_PLANTED_FIFTH"]) % 5

# It takes a vote that is refused with news of a commit, in the very moment of a change: no seed that was tried has it. A
# script does.
FOR_SCRIPTS = {"campaigns-on-though-it-knows-better"}
HUNTED = [name for name in PLANTED if name not in FOR_SCRIPTS]
TODAY = [f"{FIFTH + 1} of 5-{name}" for at, name in enumerate(HUNTED) if at % 5 == FIFTH]


def is_found(name: str) -> None:
    hunted = hunt(PLANTED[name], cpu_s=CPU_SECONDS)
    assert hunted.outcome is not None, f"not found in {hunted.seeds} seeds"
    print(f"{name}: {hunted.seeds} seeds, {hunted.cpu_s:.1f} CPU seconds: {hunted.outcome.failure}")


@pytest.mark.parametrize("bug", TODAY)
def test_todays_bugs_are_found(bug: str) -> None:
    is_found(bug.split("-", 1)[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", HUNTED)
def test_every_bug_is_found(name: str) -> None:
    is_found(name)


def in_the_core(planted: Planted) -> bool:
    return not any(edit.owner in (Disk, Member) for edit in planted.edits)


@pytest.mark.parametrize("name", [name for name, planted in PLANTED.items() if in_the_core(planted)])
def test_a_script_notices(name: str) -> None:
    """So each of them is a behaviour that somebody can read about."""
    for path in script_paths("raft"):
        try:
            with PLANTED[name].on():
                run_script(path, Script().execute, rewrite=False)
        except (Exception, pytest.fail.Exception):
            return
    raise AssertionError("all scripts pass")


def test_there_are_many() -> None:
    assert len(PLANTED) >= 20


@pytest.mark.parametrize("planted", PLANTED.values(), ids=lambda planted: planted.name)
def test_a_bug_is_gone_when_it_is_off(planted: Planted) -> None:
    """Every one of them, so that none lags behind the code."""
    before = [vars(edit.owner)[edit.function] for edit in planted.edits]
    with planted.on():
        during = [vars(edit.owner)[edit.function] for edit in planted.edits]
    after = [vars(edit.owner)[edit.function] for edit in planted.edits]
    assert all(a is c and a is not b for a, b, c in zip(before, during, after, strict=True))


def test_an_edit_of_what_is_not_there_fails() -> None:
    from shoal.raft import quorum

    assert quorum.vote_result is vote_result
    with pytest.raises(AssertionError), Edit(quorum, "vote_result", [(["no such line"], ["pass"])]).on():
        pass
