"""What every test may ask for."""

from __future__ import annotations

import datetime
import os

import pytest


def pytest_configure() -> None:
    # Which of the planted bugs are looked for changes from day to day. Said here, so that all workers of a run agree
    # at midnight, too.
    os.environ.setdefault("SHOAL_PLANTED_FIFTH", str(datetime.datetime.now(datetime.UTC).toordinal() % 5))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the expected output of script tests anew: read its diff as you would read code",
    )
    parser.addoption(
        "--timing-scale",
        type=float,
        default=1.0,
        metavar="X",
        help="stretch every deadline of the tests, so that a busy machine fails none of them",
    )
    parser.addoption(
        "--minutes",
        type=float,
        default=10.0,
        metavar="N",
        help="how long a test goes on that only waits for something that must not happen",
    )


@pytest.fixture(scope="session")
def minutes(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--minutes"))


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether script tests write their expected output instead of checking it."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def timing_scale(request: pytest.FixtureRequest) -> float:
    """What deadlines are multiplied by."""
    return float(request.config.getoption("--timing-scale"))
