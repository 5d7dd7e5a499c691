"""Whatever arrives on a socket, the server lives, others are served, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.cluster import Instance
from tests.system.conftest import nobody_connected
from tests.system.processes import memory_mib, open_files
from tests.system.wire_fuzz import SCHEMA, Fuzz

STREAMS = 3_000
BATCH = 250


def fuzz_instance(directory: Path, timing_scale: float, seeds: range, growth_mib: float) -> Fuzz:
    instance = Instance(directory, timing_scale=timing_scale)
    instance.start()
    try:
        instance.execute(*SCHEMA)
        fuzz = Fuzz(instance, timing_scale)
        settled = 0.0
        for first in range(seeds.start, seeds.stop, BATCH):
            fuzz.send(range(first, min(first + BATCH, seeds.stop)))
            assert instance.is_running, instance.log()[-4000:]
            assert not instance.bugs(), f"seeds from {first}: {instance.bugs()}"
            with instance.connect() as other:
                _serves(other)
            # By the first third caches and pools have what they usually have.
            if first - seeds.start <= len(seeds) // 3:
                settled = memory_mib(instance.pid)
                files = open_files(instance.pid)
        nobody_connected(instance, timing_scale)
        assert memory_mib(instance.pid) < settled + growth_mib, (settled, memory_mib(instance.pid))
        assert open_files(instance.pid) <= files + 32
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
        return fuzz
    finally:
        instance.kill()


def _serves(connection: psycopg.Connection) -> None:
    connection.execute("DELETE FROM fuzzed WHERE id = 1000")
    connection.execute("INSERT INTO fuzzed (id, t) VALUES (1000, 'other')")
    found = connection.execute("SELECT t FROM fuzzed WHERE id = %s", (1000,)).fetchone()
    assert found == ("other",)


def test_mutated_streams(tmp_path: Path, timing_scale: float) -> None:
    fuzz = fuzz_instance(tmp_path / "i", timing_scale, range(STREAMS), growth_mib=60)
    # A run counts only if it came to all the places that it is there for.
    assert fuzz.outcomes.keys() >= {"answered", "reset", "08P01", "42601", "0A000"}, fuzz.outcomes
