"""What conflicts with a proposal: the rules one by one, and by chance against a scan of the whole log."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import msgspec
import pytest

from shoal.catalog.apply import Catalog, apply
from shoal.catalog.cas import Edge, Predicate, Range, Tail, conflict, written_ranges
from shoal.catalog.entries import (
    Acl,
    AddColumns,
    ChangePassword,
    ColumnSpec,
    CreateIndex,
    CreateTable,
    CreateUser,
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Dml,
    DropIndex,
    DropTable,
    Entry,
    Grant,
    Granted,
    Nop,
    PartSpec,
    RenameTable,
    Revoke,
    RowChange,
    SchemaChange,
)
from shoal.catalog.rights import Held, Rights, User, grant_change, revoke_change, user_change
from shoal.catalog.schema import DEFAULT_TIER, Schema, Table, Tier
from shoal.catalog.system import (
    PICO_DB_CONFIG,
    PICO_PROPERTY,
    PICO_TABLE,
    PICO_TIER,
    PICO_USER,
    SYSTEM_TABLES,
    Row,
    tier_row,
)

T, U = (
    1025,
    1026,
)  # t (a int, b text, u int?, w int?, key (a, b), unique (u), unique (w, a)); u (k int, v int?)


def create(table_id: int, name: str, columns: str, key: str, tier: str | None = None) -> CreateTable:
    specs = []
    for column in columns.split(","):
        column_name, kind = column.split()
        specs.append(ColumnSpec(column_name, kind.rstrip("?"), nullable=kind.endswith("?")))
    parts = tuple(PartSpec(part) for part in key.split())
    sharding = None if tier is None else (parts[0].column,)
    return CreateTable(
        table_id, name, tuple(specs), parts, sharding, False, tier, "memtx", unlogged=False, owner=1
    )


SCHEMA_CHANGES = (
    create(T, "t", "a int,b text,u int?,w int?", "a b"),
    CreateIndex(T, "t_u", True, (PartSpec("u"),)),
    CreateIndex(T, "t_w", True, (PartSpec("w"), PartSpec("a"))),
    CreateIndex(T, "t_b", False, (PartSpec("b"),)),
    create(U, "u", "k int,v int?", "k"),
)


class Log:
    """The leader's: entries, and how far they are applied."""

    def __init__(self) -> None:
        tiers = {DEFAULT_TIER: Tier(DEFAULT_TIER)}
        self.catalog = Catalog(Schema(0, {table.name: table for table in SYSTEM_TABLES}, tiers))
        self.entries: list[Entry] = []
        self.applied = 0
        self.tail = Tail(0)
        for change in SCHEMA_CHANGES:
            version = self.append(DdlPrepare(change, 1))
            self.append(DdlCommit(version))
        self.apply()

    @property
    def last(self) -> int:
        return len(self.entries)

    def append(self, *entries: Entry) -> int:
        for entry in entries:
            self.entries.append(entry)
            self.tail.append(len(self.entries), entry)
        return len(self.entries)

    def apply(self, up_to: int | None = None) -> None:
        for index in range(self.applied + 1, (up_to or self.last) + 1):
            self.catalog = apply(self.catalog, self.entries[index - 1], index, 1).catalog
            self.applied = index

    def ask(self, entry: Entry, *ranges: Range, since: int) -> str | None:
        predicate = Predicate(1, since, ranges)
        predicate = msgspec.msgpack.decode(msgspec.msgpack.encode(predicate), type=Predicate)
        return conflict(predicate, entry, self.tail, self.catalog.schema, self.applied)

    def pending(self) -> int:
        (version,) = self.catalog.pending
        return version


@pytest.fixture
def log() -> Log:
    return Log()


def dml(*changes: RowChange) -> Dml:
    return Dml(changes, 1)


def t(a: int, b: str = "x", u: int | None = None, w: int | None = None) -> RowChange:
    return RowChange(T, (a, b), (a, b, u, w))


def u(k: int, v: int | None = None) -> RowChange:
    return RowChange(U, (k,), (k, v))


def gone(table_id: int, *key: int | str) -> RowChange:
    return RowChange(table_id, key, None)


# --- rows ----------------------------------------------------------------------------------------


def test_a_row_that_was_written_since_then_is_not_written_on_old_knowledge(log: Log) -> None:
    base = log.last
    log.append(dml(t(1)))
    assert log.ask(dml(t(1)), since=base) == f"rows of table t were written by entry {base + 1}"
    assert log.ask(dml(gone(T, 1, "x")), since=base) is not None
    assert log.ask(dml(t(1)), since=base + 1) is None
    assert log.ask(dml(t(1, "y")), since=base) is None
    assert log.ask(dml(u(1)), since=base) is None
    assert log.ask(dml(u(1), t(1)), since=base) is not None


def test_a_deletion_is_a_write(log: Log) -> None:
    base = log.last
    log.append(dml(gone(T, 1, "x")))
    assert log.ask(dml(t(1)), since=base) is not None
    assert log.ask(dml(), Range(T), since=base) is not None


def test_what_was_read_is_compared_with_what_was_written(log: Log) -> None:
    base = log.last
    log.append(dml(t(5, "m")), Nop(), dml(u(9)))
    reads = {
        "the table": Range(T),
        "the row": Range.of_key(T, (5, "m")),
        "the first part of the key": Range.of_key(T, (5,)),
        "from it on": Range(T, Edge((5, "m"), True)),
        "from the part on": Range(T, Edge((5,), True)),
        "up to it": Range(T, None, Edge((5, "m"), True)),
        "up to the part": Range(T, None, Edge((5,), True)),
        "around": Range(T, Edge((4,), False), Edge((6,), False)),
        "around the text": Range(T, Edge((5, "l"), True), Edge((5, "n"), False)),
    }
    others = {
        "the other table's row": Range.of_key(U, (5,)),
        "another row": Range.of_key(T, (5, "x")),
        "another part": Range.of_key(T, (4,)),
        "behind it": Range(T, Edge((5, "m"), False)),
        "behind the part": Range(T, Edge((5,), False)),
        "before it": Range(T, None, Edge((5, "m"), False)),
        "before the part": Range(T, None, Edge((5,), False)),
        "nothing at all": Range(T, Edge((5, "m"), False), Edge((5, "m"), True)),
    }
    for name, range in reads.items():
        assert log.ask(dml(u(1)), range, since=base) is not None, name
        assert log.ask(dml(u(1)), range, since=base + 1) is None, name
    for name, range in others.items():
        assert log.ask(dml(u(1)), range, since=base) is None, name


@pytest.mark.parametrize(
    "ordered", [(None, -1, 2.5, 3, "", "a", "\uffff", "\U00010000", b"", b"a"), (False, 0.5, True)]
)
def test_values_are_ordered_as_sqlite_orders_them(ordered: tuple[object, ...]) -> None:
    for i, low in enumerate(ordered):
        for j, high in enumerate(ordered):
            assert Range(U, Edge((low,), True), None).contains((high,)) == (i <= j)  # type: ignore[arg-type]
            assert Range(U, None, Edge((low,), False)).contains((high,)) == (j < i)  # type: ignore[arg-type]


def test_a_predicate_survives_its_travel() -> None:
    ranges = (Range(1), Range.of_key(2, (1, 2.5, "é", b"\xff", None)), Range(3, Edge((), False), None))
    predicate = Predicate(7, 1 << 40, ranges)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(predicate), type=Predicate) == predicate


# --- unique indexes ------------------------------------------------------------------------------


def test_two_rows_of_one_unique_value_never_get_into_the_log(log: Log) -> None:
    base = log.last
    log.append(dml(t(1, u=7, w=3)))
    assert log.ask(dml(t(2, u=7)), since=base) == (
        f"another row of table t got the same values in t_u by entry {base + 1}"
    )
    assert log.ask(dml(t(2, u=7)), since=base + 1) is None  # who knows of it has refused by themselves
    assert log.ask(dml(t(2, u=8)), since=base) is None
    assert log.ask(dml(t(2, w=3)), since=base) is None  # (3, 2), not (3, 1)
    assert log.ask(dml(t(1, "y", w=3)), since=base) is not None
    assert log.ask(dml(u(7, 7)), since=base) is None


def test_nulls_do_not_clash(log: Log) -> None:
    base = log.last
    log.append(dml(t(1)))
    assert log.ask(dml(t(2)), since=base) is None


def test_a_value_that_changed_hands_within_a_proposal_is_no_clash(log: Log) -> None:
    handed_over = dml(t(1, u=8), gone(T, 2, "x"), t(3, u=9), t(1, u=10), t(4, u=8))
    assert log.ask(handed_over, since=log.last) is None
    with pytest.raises(AssertionError, match="t_u"):
        log.ask(dml(t(1, u=8), t(2, u=8)), since=log.last)


def test_rows_are_looked_at_as_the_table_is_now(log: Log) -> None:
    """Older ones may be shorter than the index needs, and the number of an index may have been another's."""

    def changed(change: SchemaChange) -> int:
        version = log.append(DdlPrepare(change, 1))
        log.append(DdlCommit(version))
        log.apply()
        return log.last

    log.append(dml(u(1, 5)))
    base = changed(CreateIndex(U, "u_v", True, (PartSpec("v"),)))
    log.append(dml(u(2, 6)))
    assert log.ask(dml(u(3, 5)), since=base) is None
    assert log.ask(dml(u(3, 6)), since=base) is not None
    log.append(dml(u(4, 7)))
    assert log.ask(dml(u(3, 7)), since=base) is not None
    changed(DropIndex(U, "u_v"))
    changed(AddColumns(U, (ColumnSpec("x", "int", nullable=True),)))
    base = changed(CreateIndex(U, "u_x", True, (PartSpec("x"),)))
    log.append(dml(RowChange(U, (5,), (5, 7, 8))))
    assert log.ask(dml(RowChange(U, (6,), (6, 7, 9))), since=base) is None
    assert log.ask(dml(RowChange(U, (6,), (6, 7, 8))), since=base) is not None


def test_entries_of_an_index_that_was_not_known_when_they_came(log: Log) -> None:
    """A follower gets them before it knows the schema that they were made for, and may be the next leader."""
    version = log.append(DdlPrepare(CreateIndex(U, "u_v", True, (PartSpec("v"),)), 1))
    base = log.append(DdlCommit(version))
    log.append(dml(u(2, 6)))
    assert log.ask(dml(u(3, 6)), since=base) == f"table u was changed by entry {base}"  # not applied here yet
    log.apply(base)
    assert "u_v" in str(log.ask(dml(u(3, 6)), since=base))


# --- schema changes ------------------------------------------------------------------------------


def test_a_change_of_the_table_conflicts_with_whatever_touches_it(log: Log) -> None:
    base = log.last
    version = log.append(DdlPrepare(RenameTable(T, "t2"), 1))
    for since, why in (
        (base, f"table t was changed by entry {version}"),
        (version, "table t is being changed"),
    ):
        log.apply(since)
        assert log.ask(dml(t(1)), since=since) == why
    assert log.ask(dml(u(1)), Range(T), since=base) is not None
    assert log.ask(dml(u(1)), Range.of_key(T, (1, "x")), since=base) is not None
    assert log.ask(dml(u(1)), since=base) is None
    ended = log.append(DdlAbort(version, "XX000", "told to"))
    assert log.ask(dml(t(1)), since=version) == f"table t was changed by entry {ended}"
    assert log.ask(dml(u(1)), Range(T), since=version) is not None
    log.apply()
    assert log.ask(dml(t(1)), since=ended) is None


def test_a_table_that_is_gone(log: Log) -> None:
    version = log.append(DdlPrepare(DropTable(U), 1))
    base = log.append(DdlCommit(version))
    log.apply()
    assert log.ask(dml(u(1)), since=base) == f"table {U} was changed"
    assert log.ask(dml(t(1)), Range(U), since=base) is not None


def test_schema_changes_conflict_with_each_other(log: Log) -> None:
    base = log.last
    version = log.append(DdlPrepare(create(1027, "new", "k int", "k"), 1))
    log.apply()
    for entry in (DdlPrepare(DropTable(T), 1), DdlCommit(version), DdlAbort(version, "XX000", "")):
        assert log.ask(entry, since=base) is not None
        assert log.ask(entry, since=version) is None
    log.append(DdlCommit(version))
    # Not even of one table: a change that ends twice would stop every instance.
    assert log.ask(DdlAbort(version, "XX000", ""), since=version) is not None
    assert log.ask(DdlPrepare(DropTable(T), 1), since=version) is not None


def test_rows_do_not_keep_a_schema_change_from_beginning(log: Log) -> None:
    base = log.last
    log.append(dml(t(1)))
    assert log.ask(DdlPrepare(DropTable(T), 1), since=base) is None
    assert log.ask(DdlPrepare(DropTable(T), 1), Range(T), since=base) is not None


def test_a_table_needs_its_tier(log: Log) -> None:
    base = log.last
    log.append(dml(RowChange(PICO_TIER.id, ("cold",), None)))
    assert log.ask(DdlPrepare(create(1027, "new", "k int", "k", tier="cold"), 1), since=base) is not None
    assert log.ask(DdlPrepare(create(1027, "new", "k int", "k", tier="default"), 1), since=base) is None


def test_who_reads_the_system_tables_reads_what_schema_changes_write(log: Log) -> None:
    base = log.last
    log.append(DdlPrepare(create(1027, "new", "k int", "k"), 1))
    properties = PICO_PROPERTY.id
    assert log.ask(dml(u(1)), Range(PICO_TABLE.id), since=base) is not None
    assert log.ask(dml(u(1)), Range.of_key(PICO_TABLE.id, (1,)), since=base) is not None
    assert log.ask(dml(u(1)), Range(properties), since=base) is not None
    assert log.ask(dml(u(1)), Range.of_key(properties, ("next_table_id",)), since=base) is not None
    assert log.ask(dml(u(1)), Range.of_key(properties, ("cluster_version",)), since=base) is None
    assert (
        log.ask(dml(RowChange(properties, ("cluster_version",), ("cluster_version", "1"))), since=base)
        is None
    )
    assert log.ask(dml(u(1)), Range(PICO_DB_CONFIG.id), since=base) is None


def test_an_end_whose_beginning_is_forgotten(log: Log) -> None:
    version = log.append(DdlPrepare(RenameTable(T, "t2"), 1))
    base = log.append(Nop())
    log.apply()
    log.tail.trim(base + 1)
    log.append(DdlCommit(version))
    assert log.ask(dml(u(1)), since=base) is None
    log.tail.trim(base + 2)
    log.tail = Tail(base)  # as after a restart, whose log begins here: it may be of any table
    log.tail.append(base + 1, DdlCommit(version))
    assert log.ask(dml(u(1)), since=base) is not None
    log.apply()
    assert log.ask(dml(u(1)), since=base + 1) is None


# --- other entries -------------------------------------------------------------------------------


def user_row(user_id: int, name: str, secret: str = "secret") -> RowChange:
    return user_change(User(user_id, name, 0, "md5", secret, 1, is_role=False))


def password(user_id: int) -> Acl:
    name = f"user{user_id}"
    return Acl(ChangePassword(user_id, name, "md5"), (user_row(user_id, name),), 1)


def granted(grantee_id: int, table_id: int, *, revoke: bool = False) -> Acl:
    held = Held("read", "table", table_id)
    what = Granted(grantee_id, "somebody", *held, "something")
    if revoke:
        return Acl(Revoke(what), (revoke_change(grantee_id, held),), 1)
    return Acl(Grant(what), (grant_change(grantee_id, held, 1),), 1)


def test_a_change_of_rights_is_in_one_line_with_others_and_with_schema_changes(log: Log) -> None:
    base = log.last
    log.append(granted(40, T))
    assert log.ask(granted(41, U), since=base) is not None
    assert log.ask(DdlPrepare(DropTable(U), 1), since=base) is not None
    assert log.ask(granted(41, U), since=log.last) is None
    base = log.append(Nop())
    log.append(DdlPrepare(DropTable(U), 1))
    assert log.ask(granted(41, U), since=base) is not None
    log.apply()
    base = log.last
    assert log.ask(granted(41, T), since=base) is None
    log.append(DdlCommit(log.pending()))
    assert log.ask(granted(41, T), since=base) is not None


def test_a_write_that_rests_on_rights_conflicts_with_their_change(log: Log) -> None:
    rights = Rights().changed((user_row(40, "ann"), *granted(40, T).rows, *granted(2, T).rows))
    member = grant_change(40, Held("execute", "role", 2), 1)
    rights = rights.changed((member,))
    basis = rights.basis(40)
    base = log.last
    log.append(granted(41, T), password(41))
    assert log.ask(dml(u(1)), *basis, since=base) is None
    for change in (granted(40, T, revoke=True), granted(2, T, revoke=True), password(40)):
        base = log.last
        log.append(change)
        assert log.ask(dml(u(1)), *basis, since=base) is not None
        assert log.ask(dml(u(1)), since=base) is None  # admin's rests on nothing
        assert log.ask(dml(u(1)), *basis, since=log.last) is None
    assert rights.basis(1) == ()


def test_two_users_of_one_name(log: Log) -> None:
    base = log.last
    log.append(Acl(CreateUser(40, "ann", "md5"), (user_row(40, "ann"),), 1))
    # It is found by the index of names, too.
    assert log.ask(dml(user_row(41, "ann")), since=base) is not None
    assert log.ask(dml(user_row(41, "bob")), since=base) is None
    assert log.ask(dml(user_row(40, "bob")), since=base) is not None
    assert log.ask(dml(u(1)), Range(PICO_USER.id), since=base) is not None


def test_nothing_conflicts_with_nothing(log: Log) -> None:
    base = log.last
    log.append(Nop(), dml(t(1)), DdlPrepare(DropTable(U), 1))
    assert log.ask(Nop(), since=base) is None
    log.append(Nop())
    assert log.ask(dml(t(2)), since=base) is None


# --- the window ----------------------------------------------------------------------------------


def test_what_is_not_known_is_a_conflict(log: Log) -> None:
    base = log.last
    assert (
        log.ask(dml(t(1)), since=base + 1) == f"entry {base + 1} is not in this log, which ends with {base}"
    )
    log.append(dml(u(1)), dml(u(2)), dml(u(3)))
    log.apply()
    log.tail.trim(base + 2)
    assert log.ask(dml(t(1)), since=base) == f"what came after entry {base} is not known any more"
    assert log.ask(dml(t(1)), since=base + 1) is None
    assert log.ask(dml(u(2)), since=base + 1) is not None
    log.tail.trim(base + 4)
    assert log.ask(dml(u(2)), since=base + 3) is None


def test_what_was_written_again_is_not_forgotten_with_the_first_time(log: Log) -> None:
    base = log.append(dml(t(1, u=5)))
    log.append(dml(t(1, u=5)), dml(t(1, u=6)))
    assert log.ask(dml(t(2, u=5)), since=base) is not None
    log.tail.trim(base + 1)
    assert log.ask(dml(t(2, u=5)), since=base) is not None
    assert log.ask(dml(t(1)), since=base) is not None
    log.tail.trim(base + 2)
    assert log.ask(dml(t(2, u=5)), since=base + 1) is None
    assert log.ask(dml(t(2, u=6)), since=base + 1) is not None


def test_entries_that_another_leader_replaced_conflict_with_nothing(log: Log) -> None:
    base = log.append(dml(t(1, u=5)))
    log.append(dml(t(2, u=6), t(1, u=7)), DdlPrepare(DropTable(U), 1))
    assert log.ask(dml(t(3, u=7)), since=base) is not None
    log.tail.truncate(base + 1)
    assert log.tail.last == base
    assert log.ask(dml(t(3, u=7), t(2)), since=base) is None
    assert log.ask(dml(u(1)), since=base) is None
    assert log.ask(dml(t(1)), since=base - 1) is not None
    assert log.ask(dml(t(4, u=5)), since=base - 1) is not None


# --- by chance -----------------------------------------------------------------------------------


def scanned(
    predicate: Predicate, entry: Entry, entries: list[Entry], first: int, schema: Schema, applied: int
) -> bool:
    """The same question, answered by looking at every entry from the first on that the tail knows."""
    if predicate.index < first - 1:
        return True
    touched = {r.table_id for r in (*predicate.ranges, *written_ranges(entry))}
    prepared = {index: e.change.table_id for index, e in enumerate(entries, 1) if isinstance(e, DdlPrepare)}
    is_schema_change = isinstance(entry, DdlPrepare | DdlCommit | DdlAbort)
    for index, other in enumerate(entries, 1):
        if index < first:
            continue
        if isinstance(other, DdlPrepare | DdlCommit | DdlAbort):
            if index > predicate.index and (is_schema_change or isinstance(entry, Acl)):
                return True
            version = index if isinstance(other, DdlPrepare) else other.version
            changed = prepared[version]
            if index > min(predicate.index, applied) and changed in touched:
                return True
    changes = entry.changes if isinstance(entry, Dml) else entry.rows if isinstance(entry, Acl) else ()
    if any(table not in schema.tables_by_id for table in touched):
        return True
    if any(not schema.tables_by_id[change.table_id].operable for change in changes):  # type: ignore[index]
        return True
    for other in entries[predicate.index :]:
        for theirs in _rows(other):
            for r in (*predicate.ranges, *written_ranges(entry)):
                if r.table_id == theirs.table_id and r.contains(theirs.key):
                    return True
            for ours in changes:
                if ours.table_id == theirs.table_id and ours.row is not None and theirs.row is not None:
                    table = schema.tables_by_id[ours.table_id]  # type: ignore[index]
                    if _clash(table, ours.row, theirs.row):
                        return True
    return False


def _rows(entry: Entry) -> Iterator[RowChange]:
    if isinstance(entry, Dml):
        yield from entry.changes
    elif isinstance(entry, Acl):
        yield from entry.rows
        yield RowChange(PICO_PROPERTY.id, ("global_schema_version",), None)


def _clash(table: Table, ours: Row, theirs: Row) -> bool:
    for index in table.indexes:
        places = [part.column for part in index.parts]
        values = [ours[place] for place in places]
        if index.unique and None not in values and values == [theirs[place] for place in places]:
            return True
    return False


class Chance:
    """A log that grows, loses its end and its beginning, and is applied now and then."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = Log()
        self.first = 1

    def changes(self) -> tuple[RowChange, ...]:
        made: dict[tuple[object, ...], RowChange] = {}
        taken: set[tuple[object, ...]] = set()
        for _ in range(self.rng.randrange(1, 4)):
            change = self._change()
            row = change.row
            if row is not None and change.table_id == T:
                values = {("u", row[2]), ("w", row[3], row[0])}
                values = {v for v in values if None not in v}
                if values & taken:
                    continue
                taken |= values
            made.setdefault((change.table_id, *change.key), change)
        return tuple(made.values())

    def _change(self) -> RowChange:
        rng = self.rng
        small = [None, *range(4)]
        if rng.random() < 0.1:
            return RowChange(PICO_TIER.id, (f"tier{rng.randrange(2)}",), tier_row(Tier(DEFAULT_TIER)))
        if rng.random() < 0.6:
            change = t(rng.randrange(6), rng.choice("xyz"), rng.choice(small), rng.choice(small))
        else:
            change = u(rng.randrange(8), rng.choice(small))
        return gone(change.table_id, *change.key) if rng.random() < 0.2 else change

    def entry(self) -> Entry:
        rng, catalog = self.rng, self.log.catalog
        what = rng.random()
        if what < 0.85:
            return dml(*self.changes())
        if what < 0.88:
            return rng.choice((password(rng.randrange(3)), granted(rng.randrange(3), T)))
        if what < 0.91:
            return Nop()
        if catalog.pending and rng.random() < 0.7:
            version = self.log.pending()
            return DdlCommit(version) if rng.random() < 0.5 else DdlAbort(version, "XX000", "")
        table_id = rng.choice((T, U))
        return DdlPrepare(RenameTable(table_id, f"table_{table_id}_{rng.randrange(100)}"), 1)

    def range(self) -> Range:
        rng = self.rng
        table = rng.choice((T, T, U, PICO_TIER.id))
        if rng.random() < 0.2:
            return Range(table)
        edges = sorted((self._edge(table) for _ in range(2)), key=lambda edge: edge.key[:1])
        if rng.random() < 0.3:
            return Range.of_key(table, edges[0].key)
        lower, upper = (None if rng.random() < 0.3 else edge for edge in edges)
        return Range(table, lower, upper)

    def _edge(self, table: int) -> Edge:
        rng = self.rng
        if table == PICO_TIER.id:
            return Edge((f"tier{rng.randrange(2)}",), rng.random() < 0.5)
        key = (rng.randrange(7), rng.choice("xyz"))
        return Edge(key[: 1 if table == U else rng.randrange(1, 3)], rng.random() < 0.5)

    def step(self) -> None:
        """Only what a leader would let in."""
        log, rng = self.log, self.rng
        if rng.random() < 0.05:
            log.apply(rng.randrange(log.applied, log.last + 1))
        if rng.random() < 0.02 and log.last > log.applied + 1:
            cut = rng.randrange(log.applied + 1, log.last + 1)
            log.tail.truncate(cut)
            del log.entries[cut - 1 :]
        if rng.random() < 0.02 and log.applied > self.first:
            self.first = rng.randrange(self.first, log.applied + 1)
            log.tail.trim(self.first)
        entry = self.entry()
        if isinstance(entry, DdlPrepare | DdlCommit | DdlAbort):
            log.apply()
            if isinstance(entry, DdlPrepare) == bool(log.catalog.pending):
                return
        if log.ask(entry, since=log.last) is None:
            log.append(entry)

    def compare(self) -> bool:
        log, rng = self.log, self.rng
        since = max(0, log.last - rng.choice((0, 1, 3, 10, 40)))
        entry = self.entry()
        ranges = tuple(self.range() for _ in range(rng.choice((0, 0, 1, 2))))
        predicate = Predicate(1, since, ranges)
        answer = conflict(predicate, entry, log.tail, log.catalog.schema, log.applied)
        expected = scanned(predicate, entry, log.entries, self.first, log.catalog.schema, log.applied)
        assert (answer is not None) == expected, (answer, predicate, entry)
        return expected


@pytest.mark.parametrize("seed", range(8))
def test_the_tail_answers_like_a_scan_of_the_log(seed: int) -> None:
    chance = Chance(seed)
    answers: list[bool] = []
    for _ in range(400):
        chance.step()
        answers += [chance.compare() for _ in range(4)]
    assert 0.15 < sum(answers) / len(answers) < 0.85  # both happen, or nothing would be compared


# --- cost ----------------------------------------------------------------------------------------


def test_a_question_of_single_rows_does_not_depend_on_the_length_of_the_log(log: Log) -> None:
    def seconds() -> float:
        proposals = [dml(t(1_000_000 + n, u=1_000_000 + n, w=n)) for n in range(200)]
        reads = Range.of_key(T, (2_000_000, "x"))
        log.ask(proposals[0], reads, since=base)  # takes in what is new
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            for proposal in proposals:
                predicate = Predicate(1, base, (reads,))
                assert conflict(predicate, proposal, log.tail, log.catalog.schema, log.applied) is None
            best = min(best, time.perf_counter() - start)
        return best

    base = log.last
    log.append(*(dml(t(n, u=n, w=n)) for n in range(10)))
    short = seconds()
    log.append(*(dml(t(n, u=n, w=n)) for n in range(10, 10_000)))
    assert seconds() < 4 * short
