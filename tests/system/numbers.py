"""Tables with many rows, made by the instance itself."""

from __future__ import annotations

from tests.cluster import Instance

DIGITS = (
    "CREATE TABLE IF NOT EXISTS digits (n INT PRIMARY KEY)",
    "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9) ON CONFLICT DO NOTHING",
)

# 10^12 rows to look at: no machine ends it while a test runs.
LONG_SELECT = (
    "SELECT count(*) FROM "
    + " CROSS JOIN ".join(f"digits AS d{i}" for i in range(12))
    + " WHERE "
    + " + ".join(f"d{i}.n" for i in range(12))
    + " < 0"
)


def numbers(exponent: int) -> str:
    """A query for the numbers from 0 to 10^exponent - 1, as column n."""
    total = " + ".join(f"d{i}.n * {10**i}" for i in range(exponent))
    return f"SELECT {total} AS n FROM " + " CROSS JOIN ".join(f"digits AS d{i}" for i in range(exponent))


def make_numbered(instance: Instance, name: str, exponent: int, payload_bytes: int = 100) -> int:
    """A table (id INT PRIMARY KEY, payload TEXT) with 10^exponent rows; returns how many."""
    payload = "x" * payload_bytes
    instance.execute(
        *DIGITS,
        f"CREATE TABLE {name} (id INT PRIMARY KEY, payload TEXT NOT NULL)",
        f"INSERT INTO {name} SELECT s.n, '{payload}' FROM ({numbers(exponent)}) AS s",
    )
    return int(10**exponent)
