"""Whether the replication log and the tables of data.db say the same, read beside the instance or after it.

The log is played from its first entry on; what comes out must be the rows of the physical tables, each as
often as it is there. Of a log that was trimmed only its own order can be looked at.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import apsw

from shoal.storage.log import LogEntry, Lsn, Operation
from shoal.storage.tables import physical_tables

Row = tuple[object, ...]


def check_log_against_tables(directory: Path) -> int:
    """Returns how many changes the log holds."""
    connection = apsw.Connection(str(directory / "data.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        with connection:  # one snapshot of both
            entries = connection.execute(
                "SELECT lsn, config_version, continues, payload FROM _log ORDER BY lsn"
            ).fetchall()
            tables = {
                name: [tuple(row) for row in connection.execute(f"SELECT * FROM {name}").fetchall()]
                for name in physical_tables(connection, schema="main")
            }
    finally:
        connection.close()
    logged: dict[str, Counter[Row]] = {}
    count = 0
    first = entries[0][0] if entries else 1
    for expected, (lsn, version, continues, payload) in enumerate(entries, start=first):
        assert lsn == expected, f"entry {lsn} stands where {expected} should"
        for change in LogEntry(Lsn(lsn), version, bool(continues), payload).changes():
            rows = logged.setdefault(f"t{change.table_id}_{change.generation}", Counter())
            count += 1
            if first > 1:
                continue
            if change.operation != Operation.INSERT:
                old = _shape(change.old)
                assert rows[old] > 0, f"entry {lsn} takes away a row that was not there: {old}"
                rows[old] -= 1
            if change.operation != Operation.DELETE:
                rows[_shape(change.new)] += 1
    assert not entries or not entries[-1][2], "the last transaction of the log has no end"
    for name, found in tables.items() if first == 1 else ():
        assert Counter(map(_shape, found)) == +logged.get(name, Counter()), f"{name} and its log differ"
    return count


def _shape(row: Row | None) -> Row:
    """Rows that were logged before columns were added are shorter: what is missing is NULL."""
    assert row is not None
    end = len(row)
    while end and row[end - 1] is None:
        end -= 1
    return tuple(row[:end])
