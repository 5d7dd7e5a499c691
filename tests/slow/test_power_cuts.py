"""2,000 power cuts at a random I/O, of the sharded data and of the Raft store."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.storage.power_cuts import run_power_cut
from tests.unit.storage.raft_walk import Walk

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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_raft_store_keeps_its_promises_through_2000_power_cuts() -> None:
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    seed, cuts, kept = 1_000, 0, 0
    try:
        while cuts < CUTS:
            walk = Walk(seed, directory)
            try:
                walk.run()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
            cuts, kept, seed = cuts + walk.cuts, kept + walk.kept, seed + 1
            shutil.rmtree(walk.directory)
    finally:
        shutil.rmtree(directory)
    print(f"{cuts} power cuts, {kept} steps done, none lost")
    assert kept > 5 * cuts
