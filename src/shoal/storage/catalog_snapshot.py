"""What a snapshot holds: the rows of the system tables, then those of the global tables.

Here: state_frames(), which reads it from catalog.db, and replace_state(), which makes another catalog.db the same.
Not here: cutting it into chunks that travel (snapshot_files.py), the log that goes on after it (raft_log.py).

A frame is a table's id and some of its rows: tables by id, rows by primary key. So the catalog is known before the
first row of a user's table, and what two instances have of a table can be compared frame by frame. The first
frame has no table's id, but the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, cast

import apsw
import msgspec

from shoal.catalog.apply import Catalog, catalog_of_rows
from shoal.catalog.entries import RowChange
from shoal.catalog.schema import Index, Table, TableId
from shoal.catalog.system import SYSTEM_TABLES, Row
from shoal.errors import DataCorrupted
from shoal.raft.messages import SnapshotMark
from shoal.storage import tables
from shoal.storage.catalog_rows import Texts, texts_of

Frame = tuple[int, bytes]

_MARK: Final = 0  # instead of a table's id
_FRAME_BYTES: Final = 64 << 10  # of rows; the last row may go beyond

_encode: Final = msgspec.msgpack.Encoder().encode
_rows_decoder: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]])

_SYSTEM: Final[Mapping[int, Table]] = {table.id: table for table in SYSTEM_TABLES}


# --- reading -------------------------------------------------------------------------------------


def state_frames(connection: apsw.Connection, mark: SnapshotMark) -> Iterator[Frame]:
    """All of it, as the connection's read transaction sees it."""
    yield _MARK, _encode(mark)
    rows: dict[TableId, list[Row]] = {}
    for table in sorted(SYSTEM_TABLES, key=lambda table: table.id):
        texts = texts_of(table)
        rows[table.id] = cast("list[Row]", connection.execute(texts.scan).fetchall())
        yield from _packed(table.id, rows[table.id])
    for table in global_tables(catalog_of_rows(rows)):
        yield from _table_frames(connection, texts_of(table))


def global_tables(catalog: Catalog) -> list[Table]:
    """The users'."""
    found = [table for table in catalog.schema.tables.values() if not (table.system or table.is_sharded)]
    return sorted(found, key=lambda table: table.id)


def _table_frames(connection: apsw.Connection, texts: Texts) -> Generator[Frame]:
    cursor = connection.execute(texts.scan)
    try:
        yield from _packed(texts.table.id, cast("Iterable[Row]", cursor))
    finally:
        cursor.close(True)


def _packed(table_id: int, rows: Iterable[Row]) -> Iterator[Frame]:
    """Where a frame ends depends on the rows only, so equal rows make equal frames."""
    parts: list[bytes] = []
    size = 0
    for row in rows:
        part = _encode(row)
        parts.append(part)
        size += len(part)
        if size >= _FRAME_BYTES:
            yield table_id, _array(parts)
            parts, size = [], 0
    if parts:
        yield table_id, _array(parts)


def _array(parts: list[bytes]) -> bytes:
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)


def _rows_of(body: bytes) -> list[Row]:
    try:
        return cast("list[Row]", _rows_decoder.decode(body))
    except msgspec.DecodeError as error:
        raise DataCorrupted(f"the snapshot has a frame that holds no rows: {error}") from error


# --- replacing -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Compared:
    """What another member's state is, and what of it differs here."""

    catalog: Catalog
    changes: tuple[RowChange, ...]  # of system tables
    to_fill: dict[int, Table] = field(default_factory=dict)  # global tables whose rows or columns differ


def replace_state(
    connection: apsw.Connection, before: Catalog, mark: SnapshotMark, frames: Callable[[], Iterator[Frame]]
) -> tuple[Catalog, tuple[RowChange, ...]]:
    """In the caller's transaction. Returns the catalog, and what changed in the system tables.

    The frames are read twice: all of them are known to be whole before the first row is written, and no
    table has to be held in memory.
    """
    compared = _compare(connection, before, mark, frames())
    _write_system_rows(connection, compared.changes)
    known = {table.physical: table for table in global_tables(before)}
    for table in global_tables(compared.catalog):
        if table.id in compared.to_fill:
            tables.drop_table(connection, table.physical, schema="main")
            tables.create_table(connection, replace(table, indexes=()), schema="main")
        else:
            _drop_other_indexes(connection, known[table.physical], table)
    for table_id, body in frames():
        table_to_fill = compared.to_fill.get(table_id)
        if table_to_fill is not None:
            connection.executemany(texts_of(table_to_fill).put, _rows_of(body))
    for table in global_tables(compared.catalog):
        # Last, when no row that will go is in the way of a unique one.
        for index in table.indexes:
            tables.create_index(connection, table, index, schema="main")
    return compared.catalog, compared.changes


def _compare(
    connection: apsw.Connection, before: Catalog, mark: SnapshotMark, frames: Iterator[Frame]
) -> _Compared:
    if next(frames, None) != (_MARK, _encode(mark)):
        raise DataCorrupted("a snapshot of another state was received")
    groups = groupby(frames, key=itemgetter(0))
    rows: dict[TableId, list[Row]] = {table.id: [] for table in SYSTEM_TABLES}
    group = next(groups, None)
    while group is not None and group[0] in _SYSTEM:
        table = _SYSTEM[group[0]]
        rows[table.id] = [row for _, body in group[1] for row in _rows_of(body)]
        if any(len(row) != len(table.columns) for row in rows[table.id]):
            raise DataCorrupted(f"the snapshot's rows of {table.name} are those of another version")
        group = next(groups, None)
    try:
        catalog = catalog_of_rows(rows)
    except Exception as error:
        raise DataCorrupted(f"the snapshot's system tables make no catalog: {error!r}") from error
    compared = _Compared(catalog, _system_changes(connection, rows))
    known = {table.physical: table for table in global_tables(before)}
    for table in global_tables(catalog):
        theirs: Iterator[Frame] = iter(())
        if group is not None and group[0] == table.id:
            theirs = group[1]
        if not _same_rows(connection, known.get(table.physical), table, theirs):
            compared.to_fill[table.id] = table
        if group is not None and group[0] == table.id:
            group = next(groups, None)
    if group is not None:
        raise DataCorrupted(f"the snapshot has rows of table {group[0]}, and its catalog doesn't")
    return compared


def _same_rows(
    connection: apsw.Connection, before: Table | None, after: Table, theirs: Iterator[Frame]
) -> bool:
    if before is None or _columns(before) != _columns(after):
        return False
    with closing(_table_frames(connection, texts_of(after))) as ours:
        return all(frame == next(ours, None) for frame in theirs) and next(ours, None) is None


def _columns(table: Table) -> list[tuple[int, str, bool]]:
    return [(column.number, column.type.sqlite_type, column.nullable) for column in table.columns]


def _system_changes(connection: apsw.Connection, rows: Mapping[TableId, list[Row]]) -> tuple[RowChange, ...]:
    """The difference, row by row. By their bytes: to Python 1, 1.0 and True are the same."""
    changes: list[RowChange] = []
    for table in SYSTEM_TABLES:
        texts = texts_of(table)
        ours = {texts.key(row): row for row in cast("Iterator[Row]", connection.execute(texts.scan))}
        theirs = {texts.key(row): row for row in rows[table.id]}
        changes += [RowChange(table.id, key, None) for key in ours if key not in theirs]
        changes += [
            RowChange(table.id, key, row)
            for key, row in theirs.items()
            if key not in ours or _encode(ours[key]) != _encode(row)
        ]
    return tuple(changes)


def _write_system_rows(connection: apsw.Connection, changes: Iterable[RowChange]) -> None:
    texts = {table_id: texts_of(table) for table_id, table in _SYSTEM.items()}
    for change in changes:
        connection.execute(texts[change.table_id].delete, change.key)
    # All of the old ones are gone: a unique name may have moved from one row to another.
    for change in changes:
        if change.row is not None:
            connection.execute(texts[change.table_id].put, change.row)


def _drop_other_indexes(connection: apsw.Connection, before: Table, after: Table) -> None:
    """An index's number, and so its physical name, may be that of one that was dropped meanwhile."""

    def definition(index: Index) -> object:
        return index.id, index.unique, index.parts

    wanted = [definition(index) for index in after.indexes]
    for index in before.indexes:
        if definition(index) not in wanted:
            tables.drop_index(connection, before.physical_index(index), schema="main")
