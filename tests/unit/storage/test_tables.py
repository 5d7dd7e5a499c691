"""What tables of the catalog are in SQLite, and what errors say about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from shoal.catalog.schema import (
    BUCKET_ID,
    DEFAULT_TIER,
    Column,
    Global,
    Index,
    IndexId,
    KeyPart,
    Sharded,
    Table,
    TableId,
)
from shoal.errors import DataCorrupted, NotNullViolation, NumericOutOfRange, UniqueViolation
from shoal.storage import tables
from shoal.storage.dropping import Dropping, put_aside, put_aside_tables
from shoal.types.sqltype import DATETIME, DECIMAL, DOUBLE, INT, TEXT, SqlType
from tests.unit.storage.open_storage import Do, Storage, storage

BY_ID = Sharded((1,), DEFAULT_TIER, implicit=True)


def table(
    *key: int | KeyPart,
    sharded: Sharded | Global = BY_ID,
    indexes: tuple[Index, ...] = (),
    unlogged: bool = False,
) -> Table:
    return Table(
        id=TableId(1030),
        name="goods",
        columns=(
            Column(1, "id", INT, nullable=False),
            Column(2, "name", TEXT, nullable=False),
            Column(3, "price", DECIMAL, nullable=True),
            Column(4, "weight", DOUBLE, nullable=True),
            Column(5, "made", DATETIME, nullable=True),
        ),
        primary_key=tuple(part if isinstance(part, KeyPart) else KeyPart(part) for part in key),
        distribution=sharded,
        version=7,
        generation=7,
        indexes=indexes,
        unlogged=unlogged,
    )


def index(id: int, *columns: int, unique: bool = False) -> Index:
    parts = tuple(KeyPart(abs(column), descending=column < 0) for column in columns)
    return Index(IndexId(id), f"goods_{id}", unique, "tree", parts, version=8)


KNOWN: dict[int, Table] = {}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Storage]:
    with storage(tmp_path, naming=KNOWN.get) as it:
        yield it


def do(opened: Storage, function: Callable[..., object], *arguments: object, **options: object) -> object:
    return opened.writer.run(Do(lambda session: function(session.connection, *arguments, **options)))


def create(opened: Storage, made: Table) -> str:
    KNOWN[made.id] = made
    do(opened, tables.create_table, made)
    schema = made.file
    [(sql,)] = opened.rows(f"SELECT sql FROM {schema}.sqlite_schema WHERE name = '{made.physical}'")
    return str(sql)


COLUMNS = "c2 TEXT NOT NULL, c3 BLOB, c4 REAL, c5 INTEGER"


@pytest.mark.parametrize(
    "made, expected",
    [
        (table(1), f"(bucket_id INTEGER NOT NULL, c1 INTEGER NOT NULL PRIMARY KEY, {COLUMNS}) STRICT"),
        (
            table(2, 1),
            f"(bucket_id INTEGER NOT NULL, c1 INTEGER NOT NULL, {COLUMNS}, PRIMARY KEY (c2, c1)) STRICT, WITHOUT ROWID",
        ),
        (
            table(2),  # the sharding key is not in it
            f"(bucket_id INTEGER NOT NULL, c1 INTEGER NOT NULL, {COLUMNS}, PRIMARY KEY (c2, bucket_id)) STRICT, WITHOUT ROWID",
        ),
        (
            table(BUCKET_ID, 1),
            f"(bucket_id INTEGER NOT NULL, c1 INTEGER NOT NULL, {COLUMNS}, PRIMARY KEY (bucket_id, c1)) STRICT, WITHOUT ROWID",
        ),
        (
            table(KeyPart(1, descending=True)),
            f"(bucket_id INTEGER NOT NULL, c1 INTEGER NOT NULL, {COLUMNS}, PRIMARY KEY (c1 DESC)) STRICT, WITHOUT ROWID",
        ),
    ],
    ids=["rowid", "clustered", "per bucket", "by bucket", "descending"],
)
def test_layouts(opened: Storage, made: Table, expected: str) -> None:
    assert create(opened, made) == f"CREATE TABLE t1030_7 {expected}"
    do(opened, tables.create_table, made)  # again: nothing happens


def test_global_and_unlogged_tables_lie_elsewhere(opened: Storage) -> None:
    made = table(1, unlogged=True)
    assert create(opened, made).startswith("CREATE TABLE t1030_7 (bucket_id")
    assert made.file == "unlogged"
    assert opened.rows("SELECT name FROM main.sqlite_schema WHERE name GLOB 't*'") == []
    everywhere = table(1, sharded=Global())
    do(opened, tables.create_table, everywhere, schema="main")
    assert tables.physical_columns(everywhere)[0].name == "id"
    assert do(opened, tables.column_names, "t1030_7", schema="main") == ["c1", "c2", "c3", "c4", "c5"]


def test_errors_name_tables_and_keys_as_users_do(opened: Storage) -> None:
    create(opened, table(1, indexes=(index(1, 2, unique=True), index(2, 3, -5, unique=True))))
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', x'01', 0.5, 9)")
    for values, message in (
        ("1, 1, 'b', NULL, 1, 1", 'Duplicate key exists in unique index "goods_pkey" of table "goods"'),
        ("1, 2, 'a', NULL, 1, 1", 'Duplicate key exists in unique index "goods_1" of table "goods"'),
        ("1, 2, 'b', x'01', 1, 9", 'Duplicate key exists in unique index "goods_2" of table "goods"'),
    ):
        with pytest.raises(UniqueViolation) as duplicate:
            opened.execute(f"INSERT INTO t1030_7 VALUES ({values})")
        assert duplicate.value.message == message
    with pytest.raises(NotNullViolation, match='column "name" of table "goods"'):
        opened.execute("INSERT INTO t1030_7 VALUES (1, 2, NULL, NULL, 1, 1)")
    with pytest.raises(NumericOutOfRange, match='column "made" of table "goods"'):
        opened.execute("UPDATE t1030_7 SET c5 = 9223372036854775807 + 1")
    with pytest.raises(NumericOutOfRange):
        opened.execute("UPDATE t1030_7 SET c1 = 9223372036854775807 + 1")


def test_a_key_of_a_clustered_table_is_named(opened: Storage) -> None:
    create(opened, table(2))
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL)")
    opened.execute("INSERT INTO t1030_7 VALUES (2, 1, 'a', NULL, NULL, NULL)")
    with pytest.raises(UniqueViolation, match='"goods_pkey" of table "goods"'):
        opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL)")


def test_a_unique_index_that_the_rows_forbid_leaves_nothing(opened: Storage) -> None:
    made = table(1)
    create(opened, made)
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL), (1, 2, 'a', NULL, NULL, NULL)")
    with pytest.raises(UniqueViolation, match='"goods_5" of table "goods"'):
        do(opened, tables.create_index, made, index(5, 2, unique=True))
    assert opened.rows("SELECT name FROM main.sqlite_schema WHERE type = 'index'") == []
    do(opened, tables.create_index, made, index(5, 2, 1, unique=True))
    do(opened, tables.create_index, made, index(5, 2, 1, unique=True))
    assert opened.rows("SELECT name FROM main.sqlite_schema WHERE type = 'index'") == [("t1030_7_i5",)]


def test_a_change_adds_columns_and_swaps_indexes(opened: Storage) -> None:
    before = table(1, indexes=(index(1, 2), index(2, 3)))
    create(opened, before)
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL)")
    after = replace(
        before,
        version=9,
        columns=(*before.columns, Column(6, "colour", TEXT, nullable=True)),
        indexes=(index(2, 3), index(3, -6)),
    )
    for _ in range(2):
        do(opened, tables.conform, after)
    assert opened.rows("SELECT c1, c6 FROM t1030_7") == [(1, None)]
    assert opened.rows("SELECT name FROM main.sqlite_schema WHERE type = 'index' ORDER BY name") == [
        ("t1030_7_i2",),
        ("t1030_7_i3",),
    ]
    strict = replace(after, columns=(*after.columns, Column(7, "shape", TEXT, nullable=False)))
    with pytest.raises(NotNullViolation, match='column "shape" of table "goods" contains null values'):
        do(opened, tables.conform, strict)


def test_truncate_makes_a_new_generation_and_keeps_the_old(opened: Storage) -> None:
    before = table(1, indexes=(index(1, 2),))
    create(opened, before)
    after = replace(before, version=12, generation=12)
    do(opened, tables.conform, after)
    assert do(opened, tables.physical_tables, schema="main") == ["t1030_12", "t1030_7"]
    do(opened, tables.drop_table, "t1030_7", schema="main")
    do(opened, tables.drop_table, "t1030_7", schema="main")
    assert do(opened, tables.physical_tables, schema="main") == ["t1030_12"]
    assert do(opened, tables.table_exists, "t1030_12", schema="main")
    assert not do(opened, tables.table_exists, "t1030_7", schema="main")


@pytest.mark.parametrize("key", [(1,), (2, 1)], ids=["rowid", "clustered"])
def test_a_large_table_is_dropped_in_slices(opened: Storage, key: tuple[int, ...]) -> None:
    create(opened, table(*key, indexes=(index(1, 3),)))
    opened.execute(
        "INSERT INTO t1030_7 WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 50000)"
        " SELECT 1, n, 'name ' || n, NULL, n, NULL FROM r"
    )
    logged = opened.writer.last_lsn
    name = do(opened, put_aside, "t1030_7", schema="main")
    assert do(opened, put_aside, "t1030_7", schema="main") is None
    assert do(opened, put_aside_tables, schema="main") == [name]
    finished = Event()
    Dropping(opened.writer, str(name), schema="main", finished=finished.set).start()
    assert finished.wait(30)
    assert do(opened, put_aside_tables, schema="main") == []
    assert opened.writer.last_lsn == logged, "what is cleared away is nobody's change"


def test_an_aborted_change_leaves_nothing(opened: Storage) -> None:
    before = table(1, indexes=(index(1, 2), index(2, 3)))
    create(opened, before)
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL)")
    after = replace(
        before,
        version=9,
        columns=(*before.columns, Column(6, "colour", TEXT, nullable=True)),
        indexes=(index(2, 3), index(3, -6)),
    )
    names = "SELECT name FROM main.sqlite_schema WHERE name GLOB 't*' ORDER BY name"
    was = opened.rows(names)
    columns = do(opened, tables.column_names, "t1030_7", schema="main")
    # Done as a whole, in part, or not at all: what is taken back is the same.
    for done in (after, replace(after, indexes=before.indexes), before):
        do(opened, tables.conform, done)
        do(opened, tables.conform, before)
        assert opened.rows(names) == was
        assert do(opened, tables.column_names, "t1030_7", schema="main") == columns
    assert opened.rows("SELECT c1, c2 FROM t1030_7") == [(1, "a")]


def test_a_column_and_an_index_take_the_numbers_of_those_that_were_aborted(opened: Storage) -> None:
    before = table(1)
    create(opened, before)
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL)")

    def widened(kind: SqlType, unique: bool) -> Table:
        column = Column(6, "colour", kind, nullable=True)
        return replace(before, columns=(*before.columns, column), indexes=(index(1, 6, unique=unique),))

    do(opened, tables.conform, widened(TEXT, unique=True))
    do(opened, tables.conform, widened(INT, unique=False))
    opened.execute(
        "INSERT INTO t1030_7 VALUES (1, 2, 'b', NULL, NULL, NULL, 7), (1, 3, 'c', NULL, NULL, NULL, 7)"
    )
    assert opened.rows("SELECT c6 FROM t1030_7 ORDER BY c1") == [(None,), (7,), (7,)]


def test_a_column_with_values_is_never_dropped(opened: Storage) -> None:
    after = replace(table(1), columns=(*table(1).columns, Column(6, "colour", TEXT, nullable=True)))
    create(opened, after)
    opened.execute("INSERT INTO t1030_7 VALUES (1, 1, 'a', NULL, NULL, NULL, 'red')")
    with pytest.raises(DataCorrupted, match="has values in c6"):
        do(opened, tables.conform, table(1))
    assert opened.rows("SELECT c6 FROM t1030_7") == [("red",)]
