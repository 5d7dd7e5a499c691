"""100 power cuts at a random I/O, of the sharded data and of the Raft store; tests/slow has 2,000 of each."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.storage.power_cuts import run_power_cut
from tests.unit.storage.raft_walk import Walk


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


@pytest.mark.parametrize("seeds", [range(start, start + 11) for start in range(0, 44, 11)], ids=str)
def test_a_raft_store_keeps_its_promises(seeds: range) -> None:
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    cuts = kept = 0
    try:
        for seed in seeds:
            walk = Walk(seed, directory)
            try:
                walk.run()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            cuts, kept = cuts + walk.cuts, kept + walk.kept
    finally:
        shutil.rmtree(directory)
    assert cuts >= 2 * len(seeds)
    assert kept > 5 * cuts, "the power failed before there was anything to lose"
