"""2,000 power cuts at a random I/O."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.storage.power_cuts import run_power_cut

CUTS = 2_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_acknowledged_writes_survive_2000_power_cuts() -> None:
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    acknowledged = 0
    try:
        for seed in range(1_000, 1_000 + CUTS):
            try:
                acknowledged += run_power_cut(seed, directory)
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            for left in directory.iterdir():
                shutil.rmtree(left)
    finally:
        shutil.rmtree(directory)
    print(f"{CUTS} power cuts, {acknowledged} acknowledged works, none lost")
    assert acknowledged > 10 * CUTS
