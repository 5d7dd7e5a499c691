"""200,000 mutated conversations over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.test_wire_fuzz import fuzz_instance

STREAMS = 200_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_200_000_mutated_streams(tmp_path: Path, timing_scale: float) -> None:
    seeds = range(1_000_000, 1_000_000 + STREAMS)
    fuzz = fuzz_instance(tmp_path / "i", timing_scale, seeds, growth_mib=150)
    print(f"{STREAMS} streams: {fuzz.outcomes.most_common()}")
    assert fuzz.outcomes["08P01"] > STREAMS / 20
