"""Dropping a large table without keeping anybody waiting: put aside at once, cleared in slices.

Here: put_aside(), the slices, and finding what a stopped instance had not finished.
Not here: DROP of a small table (tables.drop_table), which schema change asked for it.

DROP TABLE frees all pages in one statement, 175 ms for 600 MB, and the writer does nothing else meanwhile. So the
table is renamed, which takes no time; as `gone_…` it is no physical table any more, and what is deleted from
it is not logged. Then rows are deleted a few milliseconds at a time, between the groups of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, cast

import apsw

from shoal.storage.writer import Outcome, Writer, WriteSession

_PREFIX: Final = "gone_"

# Fewer rows than this are dropped at once.
_SMALL_ROWS: Final = 20_000
_SLICE_SECONDS: Final = 0.010
_FIRST_SLICE_ROWS: Final = 1_000


def put_aside(connection: apsw.Connection, physical: str, *, schema: str) -> str | None:
    """Takes a physical table out of the way, for a Dropping to clear. None: there is no such table."""
    found = connection.execute(
        f"SELECT 1 FROM {schema}.sqlite_schema WHERE type = 'table' AND name = ?", (physical,)
    ).get
    if found is None:
        return None
    name = _PREFIX + physical
    connection.execute(f"ALTER TABLE {schema}.{physical} RENAME TO {name}")
    return name


def put_aside_tables(connection: apsw.Connection, *, schema: str) -> list[str]:
    """What was put aside and is still there: a starting instance goes on with these."""
    rows = connection.execute(
        f"SELECT name FROM {schema}.sqlite_schema WHERE type = 'table' AND name GLOB '{_PREFIX}*'"
    ).fetchall()
    return [cast(str, row[0]) for row in rows]


@dataclass(frozen=True, slots=True)
class DropSlice:
    """Deletes some rows, or drops the table when few are left. Returns how many rows to try next, 0 at the end."""

    name: str
    schema: str
    rows: int = _FIRST_SLICE_ROWS
    one_statement: bool = False

    def run(self, session: WriteSession) -> int:
        table = f"{self.schema}.{self.name}"
        if not session.rows(
            f"SELECT 1 FROM {self.schema}.sqlite_schema WHERE type = 'table' AND name = ?", (self.name,)
        ):
            return 0
        if not session.rows(f"SELECT 1 FROM {table} LIMIT 1 OFFSET {_SMALL_ROWS}"):
            session.execute(f"DROP TABLE {table}")
            return 0
        started = perf_counter()
        key = ", ".join(
            cast(str, name)
            for (name,) in session.rows(
                "SELECT name FROM pragma_table_info(?, ?) WHERE pk > 0 ORDER BY pk", (self.name, self.schema)
            )
        )
        session.execute(f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} LIMIT {self.rows})")
        seconds = max(perf_counter() - started, 1e-6)
        return max(100, min(int(self.rows * _SLICE_SECONDS / seconds), self.rows * 2))


class Dropping:
    """Clears one table put aside: the next slice is submitted when the one before is committed."""

    def __init__(
        self, writer: Writer, name: str, *, schema: str, finished: Callable[[], None] | None = None
    ) -> None:
        self._writer = writer
        self._name = name
        self._schema = schema
        self._finished = finished

    def start(self) -> None:
        self._writer.submit(DropSlice(self._name, self._schema), self._next)

    def _next(self, outcome: Outcome[int]) -> None:
        """An error ends it: what is left is found at the next start (put_aside_tables())."""
        if outcome.error is None and outcome.value and not self._writer.stopping:
            self._writer.submit(DropSlice(self._name, self._schema, outcome.value), self._next)
        elif self._finished is not None:
            self._finished()
