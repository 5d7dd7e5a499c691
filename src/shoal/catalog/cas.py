"""Compare-and-swap: may an entry join the log, when what it rests on was read some entries ago?

Here: Range and Predicate, which travel with a proposal; Tail, what the newest entries of a log have written;
conflict(), the decision of the leader.
Not here: what a statement has read (sql/reads.py), carrying proposals to the leader and trying again (node/),
whether the term of the predicate's entry is right, which only the Raft log can say.

Whoever proposes has decided on the state after some entry. The leader's log has gone on since then, partly by
entries that nobody has applied. The proposal is good if none of those wrote what it read or writes: then it
would be decided the same at the log's end, and an apply, which must never fail, can't. So a duplicate of a
unique index is found here, too. Where the answer isn't certain it is a conflict: a proposal that is decided
anew costs some milliseconds, a wrong one the cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from shoal.catalog.entries import (
    Acl,
    CreateTable,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Dml,
    Entry,
    Nop,
    RowChange,
    object_of,
)
from shoal.catalog.schema import Index, Schema, Table, TableId
from shoal.catalog.system import (
    PICO_ENDED_SCHEMA_CHANGE,
    PICO_INDEX,
    PICO_PENDING_SCHEMA_CHANGE,
    PICO_PROPERTY,
    PICO_ROUTINE,
    PICO_TABLE,
    PICO_TIER,
    SCHEMA_PROPERTIES,
    Row,
)
from shoal.types.values import Stored

__all__ = ["Edge", "Predicate", "Range", "Tail", "conflict", "written_ranges"]

Key: TypeAlias = tuple[Stored, ...]
_RowWrite: TypeAlias = tuple[int, Key, Row | None]  # the entry's index, and None for a row that it deletes
_SchemaChange: TypeAlias = tuple[
    int, int, int | None
]  # the entry's, the version, the table: None could be any

# --- what travels --------------------------------------------------------------------------------


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """Where a range begins or ends: at a key, or at all keys that begin with these parts.

    Values are in the storage form; msgspec can't type a union of str and bytes, so they say Any.
    """

    key: tuple[Any, ...]
    included: bool


class Range(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a table, those that are there and those that aren't, by their primary key.

    The order is that of the values, column by column: whether a key is DESC says where a row lies, not
    whether it is inside.
    """

    table_id: int
    lower: Edge | None = None  # None: no row is before it
    upper: Edge | None = None

    @classmethod
    def of_key(cls, table_id: int, key: Sequence[Stored]) -> Range:
        """One row; or, of a key's first parts, all that begin with them."""
        edge = Edge(tuple(key), included=True)
        return cls(table_id, edge, edge)

    @property
    def is_whole_table(self) -> bool:
        return self.lower is None and self.upper is None

    @property
    def one_key(self) -> Key | None:
        """The parts that all keys of the range begin with, when that is all that it says."""
        lower, upper = self.lower, self.upper
        if lower is None or upper is None or not (lower is upper or lower == upper):
            return None
        return lower.key if lower.included else None

    def contains(self, key: Key) -> bool:
        if self.lower is not None:
            where = _order(key, self.lower.key)
            if where < 0 or (where == 0 and not self.lower.included):
                return False
        if self.upper is not None:
            where = _order(key, self.upper.key)
            if where > 0 or (where == 0 and not self.upper.included):
                return False
        return True


class Predicate(msgspec.Struct, frozen=True, array_like=True):
    """What a proposal rests on: the state after an entry, and what was read of it.

    What the proposal writes need not be among the ranges.
    """

    term: int  # of the entry at `index`
    index: int
    ranges: tuple[Range, ...] = ()


def _order(key: Key, parts: Key) -> int:
    """Below 0, 0 or above: where a key lies, as far as the parts say."""
    assert len(parts) <= len(key), (key, parts)
    for value, part in zip(key, parts, strict=False):
        if value != part:
            return -1 if _sortable(value) < _sortable(part) else 1
    return 0


def _sortable(value: Stored) -> tuple[int, Any]:
    """As SQLite orders values: NULL, numbers, texts by their code points, bytes."""
    if value is None:
        return 0, 0
    if isinstance(value, str):
        return 2, value
    return (3, value) if isinstance(value, bytes) else (1, value)


# --- what an entry writes ------------------------------------------------------------------------

# A change of rights, too, writes it: so all changes of rights and of the schema are in one line, and what one of them
# rests on, another one can't have changed.
_VERSION_KEY: Final[Key] = ("global_schema_version",)

# Every schema change writes some of these rows, and rests on all of them: names and ids are unique.
_SCHEMA_ROWS: Final[Mapping[int, tuple[Key, ...]]] = {
    PICO_TABLE.id: ((),),
    PICO_INDEX.id: ((),),
    PICO_ROUTINE.id: ((),),
    PICO_PENDING_SCHEMA_CHANGE.id: ((),),
    PICO_ENDED_SCHEMA_CHANGE.id: ((),),
    PICO_PROPERTY.id: tuple((key,) for key in SCHEMA_PROPERTIES),
}
_OF_SCHEMA_CHANGES: Final = tuple(
    Range.of_key(table_id, key) if key else Range(table_id)
    for table_id, keys in _SCHEMA_ROWS.items()
    for key in keys
)


def written_ranges(entry: Entry) -> tuple[Range, ...]:
    """The rows that it writes. Of a schema change those of the system tables: what it does to its own table is
    of another kind, and conflicts with whatever touches the table."""
    match entry:
        case Dml():
            return tuple(Range.of_key(change.table_id, change.key) for change in entry.changes)
        case Acl():
            rows = tuple(Range.of_key(change.table_id, change.key) for change in entry.rows)
            return (*rows, Range.of_key(PICO_PROPERTY.id, _VERSION_KEY))
        case DdlPrepare() | DdlCommit() | DdlAbort():
            return _OF_SCHEMA_CHANGES
        case Nop():
            return ()


def _read_by_itself(entry: Entry) -> tuple[Range, ...]:
    """What every proposal of this kind rests on, besides the rows that it writes."""
    if (
        isinstance(entry, DdlPrepare)
        and isinstance(entry.change, CreateTable)
        and entry.change.tier is not None
    ):
        return (Range.of_key(PICO_TIER.id, (entry.change.tier,)),)
    return ()


# --- the newest entries --------------------------------------------------------------------------


class Tail:
    """What the entries of a log after some index have written, so that a question costs little.

    A log tells it of every entry, committed or not, in order: of those that are none of the catalog's as a Nop.
    Every instance has one, leader or not: who becomes the leader must know what it has not applied yet.
    Rows are kept until trim(); whoever proposes on a state before the first entry decides anew.
    """

    def __init__(self, last: int) -> None:
        self.first = last + 1  # the oldest entry that it knows
        self.last = last
        self._tables: dict[int, _Written] = {}
        self._schema_changes: list[_SchemaChange] = []
        self._prepared: dict[int, int] = {}  # version → table, until the end of the change is trimmed

    # --- the log goes on

    def append(self, index: int, entry: Entry) -> None:
        assert index == self.last + 1, (index, self.last)
        self.last = index
        match entry:
            case Dml():
                for change in entry.changes:
                    self._written(change.table_id).add(index, change.key, change.row)
            case Acl():
                for change in entry.rows:
                    self._written(change.table_id).add(index, change.key, change.row)
                self._written(PICO_PROPERTY.id).add(index, _VERSION_KEY, None)
            case DdlPrepare():
                changed = object_of(entry.change)
                self._prepared[index] = changed
                self._schema_changes.append((index, index, changed))
            case DdlCommit() | DdlAbort():
                self._schema_changes.append((index, entry.version, self._prepared.get(entry.version)))
            case Nop():
                pass

    def truncate(self, index: int) -> None:
        """Forgets the entries from `index` on: another leader's take their places."""
        if index > self.last:
            return
        assert index >= self.first, (index, self.first)
        self.last = index - 1
        for table_id, written in list(self._tables.items()):
            written.truncate(index)
            if not written.rows:
                del self._tables[table_id]
        del self._schema_changes[bisect_left(self._schema_changes, index, key=_index_of) :]
        self._prepared = {version: table for version, table in self._prepared.items() if version < index}

    def trim(self, first: int) -> None:
        """Forgets the entries before `first`, which is at most the one that comes next."""
        if first <= self.first:
            return
        assert first <= self.last + 1, (first, self.last)
        self.first = first
        for table_id, written in list(self._tables.items()):
            written.trim(first)
            if not written.rows:
                del self._tables[table_id]
        count = bisect_left(self._schema_changes, first, key=_index_of)
        for index, version, _ in self._schema_changes[:count]:
            if version != index:
                self._prepared.pop(version, None)
        del self._schema_changes[:count]

    def _written(self, table_id: int) -> _Written:
        written = self._tables.get(table_id)
        if written is None:
            written = self._tables[table_id] = _Written()
        return written

    # --- questions: the newest entry after `since` that did it, or None

    def schema_change(self, since: int, table_id: int | None = None) -> int | None:
        """Of that table; of any table when none is named."""
        for index, _, changed in reversed(self._schema_changes):
            if index <= since:
                break
            if table_id is None or changed is None or changed == table_id:
                return index
        return None

    def write_into(self, range: Range, table: Table, since: int) -> int | None:
        """Of a row inside the range of a table."""
        found: int | None = None
        if any(not key or range.contains(key) for key in _SCHEMA_ROWS.get(table.id, ())):
            found = self.schema_change(since)
        written = self._tables.get(table.id)
        if found is not None or written is None:
            return found
        only = range.one_key
        if only is not None and len(only) == len(table.primary_key):
            last = written.last_of_key.get(only)
            return last if last is not None and last > since else None
        for index, key, _ in reversed(written.rows):
            if index <= since:
                break
            if range.contains(key):
                return index
        return None

    def write_of_values(self, table: Table, index: Index, values: Key, since: int) -> int | None:
        """Of a row that has these values in a unique index of the table, as the table has been since then."""
        written = self._tables.get(table.id)
        if written is None or written.rows[-1][0] <= since:
            return None
        found = written.last_of_values(table, index).get(values)
        return found if found is not None and found > since else None


def _index_of(what: _RowWrite | _SchemaChange) -> int:
    return what[0]


class _Written:
    """The rows of one table that the tail's entries write."""

    __slots__ = ("_uniques", "last_of_key", "rows")

    def __init__(self) -> None:
        self.rows: list[_RowWrite] = []  # in the log's order; never empty between two questions
        self.last_of_key: dict[Key, int] = {}
        self._uniques: dict[int, _Unique] = {}

    def add(self, index: int, key: Key, row: Row | None) -> None:
        self.rows.append((index, key, row))
        self.last_of_key[key] = index

    def last_of_values(self, table: Table, index: Index) -> dict[Key, int]:
        """By the values of a unique index. Made when it is first asked for: an entry may be appended before the
        schema is known that it was made for, but not asked about before."""
        unique = self._uniques.get(index.id)
        if unique is None or unique.version != table.version:
            unique = self._uniques[index.id] = _Unique(table, index)
        unique.take(self.rows)
        return unique.last

    def truncate(self, index: int) -> None:
        kept = bisect_left(self.rows, index, key=_index_of)
        if kept == len(self.rows):
            return
        del self.rows[kept:]
        self.last_of_key = {key: at for at, key, _ in self.rows}
        self._uniques.clear()

    def trim(self, first: int) -> None:
        count = bisect_left(self.rows, first, key=_index_of)
        for index, key, _ in self.rows[:count]:
            if self.last_of_key.get(key) == index:
                del self.last_of_key[key]
        for unique in self._uniques.values():
            unique.trim(self.rows, count)
        del self.rows[:count]


class _Unique:
    """Which of the rows was the last with which values of a unique index."""

    __slots__ = ("_taken", "_values", "last", "version")

    def __init__(self, table: Table, index: Index) -> None:
        self.version = table.version
        self.last: dict[Key, int] = {}
        self._values = values_of(table, index)
        self._taken = 0  # rows that are in `last`, from the first on

    def take(self, rows: list[_RowWrite]) -> None:
        for index, values in self._valued(rows[self._taken :]):
            self.last[values] = index
        self._taken = len(rows)

    def trim(self, rows: list[_RowWrite], count: int) -> None:
        for index, values in self._valued(rows[: min(count, self._taken)]):
            if self.last.get(values) == index:
                del self.last[values]
        self._taken = max(0, self._taken - count)

    def _valued(self, rows: Iterable[_RowWrite]) -> Iterator[tuple[int, Key]]:
        for index, _, row in rows:
            # A row from before the table's last change may have other columns. Nobody asks about those: that
            # change is newer, and conflicts by itself.
            if row is not None and index > self.version and (values := self._values(row)) is not None:
                yield index, values


def values_of(table: Table, index: Index) -> Callable[[Row], Key | None]:
    """What a row has in an index; None where one of them is NULL, which clashes with nothing."""
    places = tuple(table.columns.index(table.by_number[part.column]) for part in index.parts)

    def values(row: Row) -> Key | None:
        found = tuple(row[place] for place in places)
        return None if None in found else found

    return values


# --- the decision --------------------------------------------------------------------------------


def conflict(predicate: Predicate, entry: Entry, tail: Tail, schema: Schema, applied: int) -> str | None:
    """Why a proposal can't be the log's next entry, in words; None: it can.

    `schema` is the leader's, as entry `applied` left it. Nothing may be appended between the question and the
    entry.
    """
    since = predicate.index
    if since > tail.last:
        return f"entry {since} is not in this log, which ends with {tail.last}"
    if since < tail.first - 1:
        return f"what came after entry {since} is not known any more"
    # The leader may have applied less than who proposes: its schema, too, must be the one at the log's end.
    known_since = min(since, applied)
    changes = entry.changes if isinstance(entry, Dml) else entry.rows if isinstance(entry, Acl) else ()
    ranges = (*predicate.ranges, *_read_by_itself(entry), *written_ranges(entry))
    for table_id in dict.fromkeys(range.table_id for range in ranges):
        found = tail.schema_change(known_since, table_id)
        table = schema.tables_by_id.get(TableId(table_id))
        if found is not None or table is None:
            return f"table {table_id if table is None else table.name} was changed" + _by(found)
    for change in changes:
        table = schema.tables_by_id[TableId(change.table_id)]
        if not table.operable:
            return f"table {table.name} is being changed"
    for range in ranges:
        table = schema.tables_by_id[TableId(range.table_id)]
        found = tail.write_into(range, table, since)
        if found is not None:
            return f"rows of table {table.name} were written" + _by(found)
    return _duplicate(changes, tail, schema, since)


def _by(index: int | None) -> str:
    return "" if index is None else f" by entry {index}"


def _duplicate(changes: Sequence[RowChange], tail: Tail, schema: Schema, since: int) -> str | None:
    """Of rows that two proposals write under different keys with the same values of a unique index.

    Rows that were there before are not looked at: who proposes has met those.
    """
    for table_id in dict.fromkeys(change.table_id for change in changes):
        table = schema.tables_by_id[TableId(table_id)]
        own = [change for change in changes if change.table_id == table_id]
        for index in table.indexes:
            if not index.unique:
                continue
            for values in _own_values(own, table, index):
                found = tail.write_of_values(table, index, values, since)
                if found is not None:
                    return f"another row of table {table.name} got the same values in {index.name}" + _by(
                        found
                    )
    return None


def _own_values(changes: Sequence[RowChange], table: Table, index: Index) -> Iterator[Key]:
    """The values of the rows that a proposal writes. Among themselves they can't clash: SQLite has run the
    statement that they come from."""
    values_in = values_of(table, index)
    holders: dict[Key, Key] = {}
    held: dict[Key, Key] = {}
    for change in changes:
        before = held.pop(change.key, None)
        if before is not None:
            del holders[before]
        values = None if change.row is None else values_in(change.row)
        if values is not None:
            assert values not in holders, f"two rows of one proposal clash in {index.name}"
            holders[values], held[change.key] = change.key, values
            yield values
