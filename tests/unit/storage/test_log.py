"""The replication log: what is captured, what is forgotten, what is trimmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from shoal.errors import DataCorrupted
from shoal.storage import log
from shoal.storage.log import Change, LogBound, LogEntry, Lsn, Operation, entries
from shoal.storage.sqlite import open_reader
from shoal.storage.writer import WriteSession
from tests.unit.storage.open_storage import Do, Script, Sql, Storage, storage

INSERT, UPDATE, DELETE = Operation.INSERT, Operation.UPDATE, Operation.DELETE

TABLES = (
    "CREATE TABLE t1_5 (bucket_id INTEGER NOT NULL, c1 INTEGER PRIMARY KEY, c2 TEXT) STRICT",
    "CREATE TABLE t2_6 (bucket_id INTEGER NOT NULL, c1 TEXT, c2 REAL, c3 BLOB, PRIMARY KEY (c1)) STRICT, WITHOUT ROWID",
    "CREATE TABLE unlogged.t3_7 (c1 INTEGER PRIMARY KEY) STRICT",
    "CREATE TABLE _meta (c1 INTEGER PRIMARY KEY) STRICT",
)


@pytest.fixture
def open_storage(tmp_path: Path) -> Iterator[Storage]:
    with storage(tmp_path) as opened:
        for sql in TABLES:
            opened.execute(sql)
        yield opened


def log_of(opened: Storage) -> list[LogEntry]:
    reader = open_reader(opened.files, opened.settings)
    try:
        return entries(reader, Lsn(0), limit=1_000_000)
    finally:
        reader.close()


def changes(opened: Storage) -> list[Change]:
    return [change for entry in log_of(opened) for change in entry.changes()]


def test_rows_of_both_layouts_are_captured(open_storage: Storage) -> None:
    open_storage.execute("INSERT INTO t1_5 VALUES (7, 1, 'a')")
    open_storage.execute("UPDATE t1_5 SET c2 = NULL")
    open_storage.execute("UPDATE t1_5 SET c1 = 2")
    open_storage.execute("DELETE FROM t1_5")
    open_storage.execute("INSERT INTO t2_6 VALUES (8, 'k', 1.5, x'00ff')")
    open_storage.execute("UPDATE t2_6 SET c2 = 2")
    open_storage.execute("UPDATE t2_6 SET c1 = 'l'")
    open_storage.execute("DELETE FROM t2_6 WHERE c1 = 'l'")
    assert changes(open_storage) == [
        (1, 5, INSERT, None, (7, 1, "a")),
        (1, 5, UPDATE, (7, 1, "a"), (7, 1, None)),
        (1, 5, UPDATE, (7, 1, None), (7, 2, None)),
        (1, 5, DELETE, (7, 2, None), None),
        (2, 6, INSERT, None, (8, "k", 1.5, b"\x00\xff")),
        (2, 6, UPDATE, (8, "k", 1.5, b"\x00\xff"), (8, "k", 2.0, b"\x00\xff")),
        (2, 6, UPDATE, (8, "k", 2.0, b"\x00\xff"), (8, "l", 2.0, b"\x00\xff")),
        (2, 6, DELETE, (8, "l", 2.0, b"\x00\xff"), None),
    ]


def test_replace_and_upsert(open_storage: Storage) -> None:
    open_storage.execute("INSERT INTO t1_5 VALUES (7, 1, 'a')")
    open_storage.execute("INSERT OR REPLACE INTO t1_5 VALUES (7, 1, 'b')")
    open_storage.execute(
        "INSERT INTO t1_5 VALUES (7, 1, 'c') ON CONFLICT (c1) DO UPDATE SET c2 = excluded.c2"
    )
    open_storage.execute("INSERT INTO t1_5 VALUES (7, 1, 'd') ON CONFLICT DO NOTHING")
    open_storage.execute("INSERT INTO t2_6 VALUES (7, 'x', 1, NULL)")
    open_storage.execute("INSERT OR REPLACE INTO t2_6 VALUES (7, 'x', 2, NULL)")
    assert changes(open_storage) == [
        (1, 5, INSERT, None, (7, 1, "a")),
        (1, 5, DELETE, (7, 1, "a"), None),
        (1, 5, INSERT, None, (7, 1, "b")),
        (1, 5, UPDATE, (7, 1, "b"), (7, 1, "c")),
        (2, 6, INSERT, None, (7, "x", 1.0, None)),
        (2, 6, DELETE, (7, "x", 1.0, None), None),
        (2, 6, INSERT, None, (7, "x", 2.0, None)),
    ]


def test_delete_of_all_rows_is_captured(open_storage: Storage) -> None:
    """SQLite would empty a table without looking at its rows, if nobody watched."""
    open_storage.execute("INSERT INTO t2_6 VALUES (1, 'a', 1, NULL), (1, 'b', 2, NULL)")
    open_storage.execute("DELETE FROM t2_6")
    assert [change.operation for change in changes(open_storage)] == [INSERT, INSERT, DELETE, DELETE]


def test_unlogged_and_internal_tables_are_not_captured(open_storage: Storage) -> None:
    open_storage.execute("INSERT INTO t3_7 VALUES (1)")
    open_storage.execute("INSERT INTO _meta VALUES (1)")
    assert log_of(open_storage) == []


def test_a_column_added_later_is_null_in_older_rows(open_storage: Storage) -> None:
    open_storage.execute("INSERT INTO t1_5 VALUES (7, 1, 'a')")
    open_storage.execute("ALTER TABLE t1_5 ADD COLUMN c3 INTEGER")
    open_storage.execute("UPDATE t1_5 SET c2 = 'b'")
    assert changes(open_storage)[-1] == (1, 5, UPDATE, (7, 1, "a", None), (7, 1, "b", None))


def test_what_failed_is_not_in_the_log(open_storage: Storage) -> None:
    def partly(session: WriteSession) -> None:
        session.execute("INSERT INTO t1_5 VALUES (1, 30, 'kept')")
        with pytest.raises(apsw.ConstraintError), session.savepoint():
            session.execute("INSERT INTO t1_5 VALUES (1, 31, 'not kept')")
            session.execute("INSERT INTO t1_5 VALUES (1, 30, 'twice')")
        session.execute("INSERT INTO t1_5 VALUES (1, 32, 'kept')")

    open_storage.together(
        [
            Sql("INSERT INTO t1_5 VALUES (1, 10, 'kept')"),
            Sql("INSERT INTO t1_5 VALUES (1, 11, 'not kept'), (1, 10, 'twice')"),
            Script(
                ("INSERT INTO t1_5 VALUES (1, 12, 'not kept')", "INSERT INTO t1_5 VALUES (1, 10, 'twice')")
            ),
            Do(partly),
        ]
    )
    assert len(log_of(open_storage)) == 1
    assert [change.new for change in changes(open_storage)] == [
        (1, 10, "kept"),
        (1, 30, "kept"),
        (1, 32, "kept"),
    ]


@pytest.mark.parametrize("loose", [1, 2, 3, 1000])
def test_a_failure_after_changes_were_packed(
    open_storage: Storage, monkeypatch: pytest.MonkeyPatch, loose: int
) -> None:
    monkeypatch.setattr(log, "_LOOSE_CHANGES", loose)
    many = ", ".join(f"(1, {n}, 'kept')" for n in range(10))
    failing = ", ".join(f"(1, {n}, 'not kept')" for n in (*range(100, 110), 5))
    open_storage.together(
        [
            Sql("INSERT INTO t1_5 VALUES (1, 50, 'kept')"),
            Sql(f"INSERT INTO t1_5 VALUES {many}"),
            Sql(f"INSERT INTO t1_5 VALUES {failing}"),
            Script(
                (
                    f"INSERT INTO t1_5 VALUES {failing.replace(', (1, 5,', ', (1, 200,')}",
                    "INSERT INTO t1_5 SELECT 1, 5, ''",
                )
            ),
            Sql("INSERT INTO t1_5 VALUES (1, 51, 'kept')"),
        ]
    )
    assert [change.new[1] for change in changes(open_storage) if change.new] == [50, *range(10), 51]


def test_a_large_group_becomes_several_entries(open_storage: Storage) -> None:
    open_storage.execute(
        "INSERT INTO t1_5 WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT 30000)"
        " SELECT 1, n, printf('%.100c', 'x') FROM r"
    )
    found = log_of(open_storage)
    assert len(found) > 2
    assert [entry.continues for entry in found] == [True] * (len(found) - 1) + [False]
    assert max(len(entry.payload) for entry in found) < log.ENTRY_BYTES * 1.1
    assert [change.new[1] for entry in found for change in entry.changes() if change.new] == list(
        range(1, 30001)
    )


@pytest.mark.parametrize(
    "bound",
    [LogBound(bytes=20_000, entries=10**9), LogBound(bytes=10**9, entries=20)],
    ids=["bytes", "entries"],
)
def test_the_log_is_trimmed_within_its_bound(tmp_path: Path, bound: LogBound) -> None:
    with storage(tmp_path, log_bound=bound) as opened:
        opened.execute(TABLES[0])
        for n in range(100):
            opened.execute("INSERT INTO t1_5 VALUES (1, ?, ?)", n, "x" * 1000)
        kept = log_of(opened)
        assert [entry.lsn for entry in kept] == list(range(kept[0].lsn, 101))
        assert 15 <= len(kept) <= 21
    with storage(tmp_path, log_bound=LogBound(bytes=0, entries=0)) as opened:
        assert opened.writer.last_lsn == 100
        opened.execute("INSERT INTO t1_5 VALUES (1, 1000, 'y')")
        assert [entry.lsn for entry in log_of(opened)] == [101], "the newest entry stays"
    with storage(tmp_path) as opened:
        assert opened.writer.last_lsn == 101


def test_entries_are_read_from_an_lsn_on(open_storage: Storage) -> None:
    for n in range(5):
        open_storage.execute("INSERT INTO t1_5 VALUES (1, ?, NULL)", n)
    reader = open_reader(open_storage.files, open_storage.settings)
    assert [entry.lsn for entry in entries(reader, Lsn(3), limit=2)] == [3, 4]
    reader.close()


def test_an_entry_that_is_no_entry() -> None:
    with pytest.raises(DataCorrupted, match="entry 9 of the replication log"):
        LogEntry(Lsn(9), 0, False, b"\xff\xff").changes()
