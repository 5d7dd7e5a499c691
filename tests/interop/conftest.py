"""What tests with real clients share: an instance for each module, tables, a SELECT that takes long."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import Instance

# Ten rows, from which cross joins make as many as a test wants.
DIGITS = "CREATE TABLE digits (n INT PRIMARY KEY)"
DIGITS_ROWS = "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)"

# 10^12 rows to look at: no machine ends it while a test runs.
LONG_SELECT = (
    "SELECT count(*) FROM "
    + " CROSS JOIN ".join(f"digits AS d{i}" for i in range(12))
    + " WHERE "
    + " + ".join(f"d{i}.n" for i in range(12))
    + " < 0"
)


def numbers(count_exponent: int) -> str:
    """A query for the numbers from 0 to 10^count_exponent - 1, as column n."""
    places = range(count_exponent)
    total = " + ".join(f"d{i}.n * {10**i}" for i in places)
    return f"SELECT {total} AS n FROM " + " CROSS JOIN ".join(f"digits AS d{i}" for i in places)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "toolchain: builds a client with Go or Maven; runs in CI, or when -m names it"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("CI") or "toolchain" in (config.option.markexpr or ""):
        return
    skipped = pytest.mark.skip(reason="builds a client: runs in CI, or with -m toolchain")
    for item in items:
        if item.get_closest_marker("toolchain"):
            item.add_marker(skipped)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Instance]:
    """Lets admin in without a password. Table `digits` is there."""
    running = Instance(tmp_path_factory.mktemp("shoal") / "i", timing_scale=timing_scale)
    running.start()
    try:
        running.execute(DIGITS, DIGITS_ROWS)
        yield running
        assert running.stop() == 0, running.log()[-4000:]
        assert not running.bugs(), running.bugs()
    finally:
        running.kill()


_table_numbers = itertools.count(1)


@pytest.fixture
def table(instance: Instance) -> Callable[[str], str]:
    """Makes a table of a name of its own: table("id INT PRIMARY KEY, t TEXT") gives the name."""

    def make(columns: str) -> str:
        name = f"t{next(_table_numbers)}"
        instance.execute(f"CREATE TABLE {name} ({columns})")
        return name

    return make
