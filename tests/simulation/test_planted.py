"""Bugs that were planted are found: a fifth of them each day, all of them by name."""

from __future__ import annotations

import time

import pytest

from tests.simulation.planted import BUGS, PATIENCE_SECONDS, Bug, find, planted, source_of

_TODAY = int(time.time() // 86_400) % 5


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_its_place_is_still_there(bug: Bug) -> None:
    assert planted(source_of(bug), bug) != source_of(bug)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", BUGS[_TODAY::5], ids=lambda bug: bug.name)
def test_it_is_found(bug: Bug) -> None:
    _found(bug)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_are_found() -> None:
    for bug in BUGS:
        _found(bug)


def _found(bug: Bug) -> None:
    how, seconds = find(bug)
    print(f"{seconds:.1f} s: {bug.name}: {how}")
    assert how, f"not found in {PATIENCE_SECONDS:g} s of CPU: {bug.name}"
