"""kill -9 in the middle of schema changes, often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.test_kill_schema_changes import kill_during_schema_changes


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [100, 200])
def test_40_kills(tmp_path: Path, timing_scale: float, seed: int) -> None:
    changes = kill_during_schema_changes(tmp_path / "i", timing_scale, kills=40, seed=seed)
    print(f"{changes} schema changes were acknowledged")
