"""Shoal and PostgreSQL answer the same statements alike; `python -m tests.differential` does it by hand.

What was found so far is kept as scripts: tests/scripts/sql/results/compared.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.postgres import BIN, Postgres, Unavailable

from tests.differential.rounds import Report, run_round
from tests.differential.sides import Theirs


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    if not (BIN / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed: apt-get install postgresql-15")
    server = Postgres()
    try:
        try:
            server.start()
        except Unavailable as error:
            pytest.skip(str(error))
        side = Theirs(server.url)
        yield side
        side.close()
    finally:
        server.stop()


def compare(theirs: Theirs, directory: Path, seeds: range) -> Report:
    report = Report()
    for seed in seeds:
        run_round(seed, theirs, directory / str(seed), report)
        assert not report.mismatches, "\n\n".join(map(str, report.mismatches))
    return report


def test_the_same_answers(theirs: Theirs, tmp_path: Path) -> None:
    report = compare(theirs, tmp_path, range(25))
    # Most statements must get somewhere, or they compare nothing.
    assert report.outcomes["rows"] > report.statements // 2, report.outcomes


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("block", range(4))
def test_the_same_answers_for_long(theirs: Theirs, tmp_path: Path, block: int) -> None:
    compare(theirs, tmp_path, range(100_000 + 80 * block, 100_000 + 80 * (block + 1)))
