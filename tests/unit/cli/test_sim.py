"""`shoal sim`: what it prints, and how it ends."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from shoal.cli.app import app

BUG = "half-commits"


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["sim", *words])
    return done.exit_code, done.stdout


def test_a_seed_again() -> None:
    code, first = run("--seed", "5", "--ticks", "60")
    assert code == 0
    assert re.match(r"seed 5, trace [0-9a-f]{32}\n  instances=\d", first)
    assert "entries committed" in first
    assert run("--seed", "5", "--ticks", "60") == (0, first)
    assert run("--seed", "6", "--ticks", "60")[1] != first


def test_its_story() -> None:
    _, told = run("--seed", "5", "--ticks", "60", "--trace")
    assert re.search(r"^ +\d+\.\d{6}  1 starts: HardState", told, re.M)
    assert re.search(r"^ +\d+\.\d{6}  \d → \d  Append t\d+ after \d+/t\d+ \[.*\] commit \d+$", told, re.M)
    assert "all is healed" in told


def test_many_seeds() -> None:
    code, told = run("--seeds", "25", "--ticks", "60")
    assert code == 0
    assert re.match(r"25 seeds, [\d.]+ CPU seconds", told)


def test_a_bug_is_found_and_told_again() -> None:
    code, told = run("--planted", BUG, "--ticks", "100")
    assert code == 0
    found = re.search(r"found after \d+ seeds, [\d.]+ CPU seconds: (.*)\nagain: shoal sim (.*)\n", told)
    assert found is not None, told
    code, again = run(*found[2].split())
    assert code == 1
    assert re.search(rf"^failed at event \d+: {re.escape(found[1])}$", again, re.M)
    # Without the bug the same seed is fine.
    assert run(*found[2].replace(f" --planted {BUG}", "").split())[0] == 0


def test_a_bug_that_nobody_knows() -> None:
    code, _ = run("--planted", "no-such-bug")
    assert code == 2


@pytest.mark.parametrize("words", [("--instances", "8"), ("--ticks", "0"), ("--jobs", "0")])
def test_what_cannot_be(words: tuple[str, str]) -> None:
    assert run(*words)[0] == 2
