"""kill -9 in the middle of writers, often, and with rows that are wide enough for checkpoints to be met."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.test_kill import kill_often


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed, payload_bytes", [(100, 400), (200, 12_000)])
def test_20_kills(tmp_path: Path, timing_scale: float, seed: int, payload_bytes: int) -> None:
    kill_often(tmp_path / "i", timing_scale, kills=20, seed=seed, payload_bytes=payload_bytes)
