"""What all tests of simulated clusters share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What the instances say takes longer than what they do: python -m tests.simulation --seed N --log shows it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
