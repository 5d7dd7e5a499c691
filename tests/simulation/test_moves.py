"""Leadership moves at every point of every step of the governor: some of them each day, all of them by name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.moves import WAYS, Point, moments, told_with

_SHARE = 40  # one point of so many, others tomorrow


def test_a_deposed_governor_changes_nothing(tmp_path: Path) -> None:
    points = moments(tmp_path / "whole")
    today = int(time.time() // 86_400) % _SHARE
    _tell(tmp_path, points[today::_SHARE])


def test_the_story_has_every_kind_of_step(tmp_path: Path) -> None:
    steps = {point.step.split()[0] for point in moments(tmp_path / "whole")}
    assert steps == {
        "AddLearner",
        "AddVoter",
        "ApplyChange",
        "CheckChange",
        "EndChange",
        "HandOver",
        "Remove",
        "Write",
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_deposed_governor_changes_nothing_at_any_point(tmp_path: Path) -> None:
    points = moments(tmp_path / "whole")
    _tell(tmp_path, points)
    print(f"{len(points)} points, {len(WAYS)} ways")


def _tell(directory: Path, points: Sequence[Point]) -> None:
    for number, point in enumerate(points):
        for way in WAYS:
            told_with(directory / f"{number}{way}", point, way)
            shutil.rmtree(directory / f"{number}{way}")
