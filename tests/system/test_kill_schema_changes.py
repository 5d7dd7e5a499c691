"""kill -9 in the middle of schema changes: afterwards the catalog and the physical tables agree."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from tests.cluster import Instance, eventually
from tests.system.catalog_files import wait_until_they_agree
from tests.system.replication_log import check_log_against_tables
from tests.system.schema_writers import SchemaWriter

KILLS = 6


def kill_during_schema_changes(directory: Path, timing_scale: float, *, kills: int, seed: int) -> int:
    """Returns how many schema changes were acknowledged."""
    chance = random.Random(seed)
    instance = Instance(directory, timing_scale=timing_scale)
    instance.start()
    try:
        writers = [SchemaWriter(number, seed) for number in (1, 2, 3)]
        for number in range(kills):
            threads = [threading.Thread(target=writer.run, args=(instance,)) for writer in writers]
            for thread in threads:
                thread.start()
            _until(writers, chance.randint(5, 80), timing_scale)
            if number % 5 == 4:
                assert instance.stop() == 0  # this way, too
            else:
                instance.kill()
            for thread in threads:
                thread.join()
            for writer in writers:
                if writer.failure is not None:
                    raise writer.failure
            instance.start()
            wait_until_they_agree(directory, 30 * timing_scale)
            check_log_against_tables(directory)
            for writer in writers:
                writer.check(instance)
        wait_until_they_agree(directory, 30 * timing_scale)
        assert instance.stop() == 0
        assert not instance.bugs(), instance.bugs()
        return sum(writer.changes for writer in writers)
    finally:
        instance.kill()


def _until(writers: list[SchemaWriter], acknowledged: int, timing_scale: float) -> None:
    enough = sum(writer.acknowledged for writer in writers) + acknowledged
    eventually(
        lambda: (
            any(writer.failure for writer in writers)
            or sum(writer.acknowledged for writer in writers) >= enough
        ),
        60 * timing_scale,
        f"{acknowledged} statements",
    )


def test_schema_changes_survive_kill_9(tmp_path: Path, timing_scale: float) -> None:
    assert kill_during_schema_changes(tmp_path / "i", timing_scale, kills=KILLS, seed=1) > 20
