"""100 power cuts at a random I/O; tests/slow has 2,000."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.storage.power_cuts import run_power_cut


@pytest.mark.parametrize("seeds", [range(start, start + 25) for start in range(0, 100, 25)], ids=str)
def test_acknowledged_writes_survive_a_power_cut(seeds: range) -> None:
    # In memory where that exists: the VFS, not the real disk, says what is durable.
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    try:
        acknowledged = sum(run_power_cut(seed, directory) for seed in seeds)
    finally:
        shutil.rmtree(directory)
    assert acknowledged > 10 * len(seeds), "the power failed before there was anything to lose"
