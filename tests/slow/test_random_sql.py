"""20,000 statements by chance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.test_random_sql import PER_SCHEMA, run_random_statements

STATEMENTS = 20_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_20_000_random_statements(tmp_path: Path, timing_scale: float) -> None:
    seeds = range(1_000, 1_000 + STATEMENTS // PER_SCHEMA)
    outcomes = run_random_statements(tmp_path / "i", timing_scale, seeds, growth_mib=150)
    print(f"{STATEMENTS} statements: {outcomes.most_common()}")
