"""Building clients in other languages, once for all workers of a test run, outside the source tree.

Here: built_once().
Not here: what is built (test_pgx.py, test_pgjdbc.py).
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

# The first build on a machine downloads and compiles everything.
BUILD_SECONDS = 900


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """The directory of this test run that `build` has filled; the other workers wait for the one that builds."""
    base = factory.getbasetemp()
    # Workers of pytest-xdist have a directory each, under that of the run.
    shared = base.parent if base.name.startswith("popen-") else base
    place, done = shared / name, shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            build(place)
            done.touch()
    return place
