"""Cursors, their limits and their connections; point reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from shoal.errors import (
    AdminShutdown,
    ConfigurationLimitExceeded,
    InternalError,
    QueryCanceled,
    TooManyConnections,
)
from shoal.storage.limits import Limits
from shoal.storage.readers import Batch, PointReader, ReadCursor
from tests.cluster import eventually
from tests.unit.storage.open_storage import Storage, fetch, fetch_all, reader_pool, storage

ROWS = 20_000
LONG = "SELECT count(*) FROM t1_1 a, t1_1 b WHERE a.c1 + b.c1 = 7"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    with storage(tmp_path_factory.mktemp("readers")) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 TEXT) STRICT")
        opened.execute(
            "INSERT INTO t1_1 WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT ?)"
            " SELECT n, 'row ' || n FROM r",
            ROWS,
        )
        yield opened


def test_batches_make_up_the_answer(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        cursor, rows, batches = pool.open("SELECT * FROM t1_1 ORDER BY c1"), [], 0
        while True:
            batch = fetch(cursor, max_bytes=10_000)
            rows.extend(batch.rows)
            batches += 1
            if batch.finished:
                break
            assert pool.suspended == 1
        assert rows == [(n, f"row {n}") for n in range(1, ROWS + 1)]
        assert 10 < batches < ROWS / 100
        assert cursor.closed
        assert pool.suspended == 0


def test_a_row_limit_is_exact_and_small_ones_are_possible(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        cursor = pool.open("SELECT c1 FROM t1_1 WHERE c1 <= ?", (7,))
        assert fetch(cursor, max_rows=1).rows == [(1,)]
        assert fetch(cursor, max_rows=5).rows == [(2,), (3,), (4,), (5,), (6,)]
        last = fetch(cursor, max_rows=5)
        assert (last.rows, last.finished) == ([(7,)], True)


def test_rows_are_encoded_on_the_pool(filled: Storage) -> None:
    threads = set()

    def encode(rows: list[tuple[object, ...]]) -> bytes:
        threads.add(threading.current_thread().name)
        return b"".join(b"%d;" % row[0] for row in rows)

    with reader_pool(filled) as pool:
        batch = fetch(pool.open("SELECT c1 FROM t1_1 WHERE c1 < 1000"), encode=encode)
        assert batch.data == b"".join(b"%d;" % n for n in range(1, 1000))
        assert (batch.row_count, batch.rows, batch.finished) == (999, [], True)
    assert threads == {"shoal-reader"}


def test_wide_rows_pass_the_bound_by_little(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        cursor = pool.open("SELECT printf('%.*c', 100000, 'x') FROM t1_1")
        assert [fetch(cursor, max_bytes=200_000).row_count for _ in range(3)] == [16, 16, 16]
        cursor.close()


def test_a_cursor_keeps_its_snapshot(tmp_path: Path) -> None:
    with storage(tmp_path) as opened, reader_pool(opened) as pool:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY) STRICT")
        opened.execute("INSERT INTO t1_1 VALUES (1), (2), (3)")
        cursor = pool.open("SELECT c1 FROM t1_1")
        assert fetch(cursor, max_rows=1).rows == [(1,)]
        opened.execute("DELETE FROM t1_1")
        assert fetch_all(pool, "SELECT c1 FROM t1_1") == []
        assert fetch(cursor).rows == [(2,), (3,)]


@pytest.mark.parametrize("limit", [1, 10, 1000, 45_000])
def test_the_opcode_limit(filled: Storage, limit: int) -> None:
    with reader_pool(filled) as pool:
        with pytest.raises(
            ConfigurationLimitExceeded,
            match=f"^Reached a limit on max executed vdbe opcodes. Limit: {limit}$",
        ):
            fetch_all(pool, LONG, (), Limits(opcodes=limit))
        # The next statement on this connection has its own budget, or none.
        assert fetch_all(pool, "SELECT count(*) FROM t1_1 WHERE c2 <> ''") == [(ROWS,)]


def test_the_opcode_limit_counts_over_all_batches(filled: Storage) -> None:
    with reader_pool(filled) as pool, pytest.raises(ConfigurationLimitExceeded):
        cursor = pool.open("SELECT * FROM t1_1", (), Limits(opcodes=45_000))
        for _ in range(ROWS // 100):
            if (batch := fetch(cursor, max_rows=100)).error is not None:
                raise batch.error


def test_a_small_query_fits_a_small_limit(filled: Storage) -> None:
    with reader_pool(filled, threads=1) as pool:
        for _ in range(100):  # the count goes on in a cached statement: none of these may meet the limit
            assert len(fetch_all(pool, "SELECT * FROM t1_1 LIMIT 5", (), Limits(opcodes=100))) == 5


def test_the_row_limit(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        assert len(fetch_all(pool, "SELECT * FROM t1_1 LIMIT 100", (), Limits(rows=100))) == 100
        with pytest.raises(ConfigurationLimitExceeded, match="Exceeded maximum number of rows"):
            fetch_all(pool, "SELECT * FROM t1_1", (), Limits(rows=100))


@pytest.mark.parametrize(
    "sql", [LONG, "SELECT count(*) FROM t1_1, t1_1 b, t1_1 c"], ids=["steps", "one opcode"]
)
def test_cancel_stops_what_runs(filled: Storage, sql: str) -> None:
    with reader_pool(filled) as pool:
        cursor, told = pool.open(sql), Queue[Batch]()
        cursor.fetch(1000, 0, None, told.put)
        time.sleep(0.05)
        cursor.cancel()
        assert isinstance(told.get(timeout=10).error, QueryCanceled)
        assert fetch_all(pool, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("limits", [Limits(), Limits(opcodes=10**12)], ids=["free", "limited"])
@pytest.mark.parametrize("stop", [ReadCursor.cancel, ReadCursor.close])
def test_a_stop_is_heard_whenever_it_comes(
    filled: Storage, stop: Callable[[ReadCursor], None], limits: Limits
) -> None:
    """SQLite forgets what it is told before the first step, and a join of 60 tables is planned for a while."""
    tables = ", ".join(f"t1_1 AS t{i}" for i in range(60))
    total = " + ".join(f"t{i}.c1" for i in range(60))
    with reader_pool(filled) as pool:
        for number in range(100):
            # Another text each time: what has been planned before is not planned again.
            sql = f"SELECT count(*) + {number} FROM {tables} WHERE {total} < 0"
            cursor, told = pool.open(sql, (), limits), Queue[Batch]()
            cursor.fetch(1000, 0, None, told.put)
            time.sleep(number / 50_000)
            stop(cursor)
            eventually(
                lambda cursor=cursor: cursor.closed, 10, f"the end of query {number}, which was stopped"
            )
            assert stop is ReadCursor.close or isinstance(told.get(timeout=10).error, QueryCanceled)
        assert fetch_all(pool, "SELECT 1") == [(1,)]


def test_cancel_of_an_idle_cursor_is_told_by_its_next_batch(filled: Storage) -> None:
    reason = QueryCanceled("canceling statement due to statement timeout")
    with reader_pool(filled, threads=1) as pool:
        never_started = pool.open("SELECT 1")
        never_started.cancel()
        assert isinstance(fetch(never_started).error, QueryCanceled)
        cursor = pool.open("SELECT * FROM t1_1")
        fetch(cursor, max_rows=1)
        cursor.cancel(reason)
        assert fetch_all(pool, "SELECT 1") == [(1,)], "somebody else's query is not what was canceled"
        assert fetch(cursor).error is reason
        cursor.cancel()
        assert fetch_all(pool, "SELECT 1") == [(1,)]


def test_close_abandons_a_batch_in_progress(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        cursor, told = pool.open(LONG), Queue[Batch]()
        cursor.fetch(1000, 0, None, told.put)
        time.sleep(0.05)
        cursor.close()
        deadline = time.monotonic() + 10
        while not cursor.closed:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        cursor.close()
        assert told.empty()
        assert pool.suspended == 0


def test_one_suspended_cursor_too_many_is_refused(filled: Storage) -> None:
    with reader_pool(filled, suspended_max=3) as pool:
        cursors = [pool.open("SELECT * FROM t1_1") for _ in range(4)]
        batches = [fetch(cursor, max_rows=1) for cursor in cursors]
        assert [batch.error is None for batch in batches] == [True, True, True, False]
        assert isinstance(batches[3].error, TooManyConnections)
        # Whatever is suspended, small queries go on.
        for _ in range(20):
            assert fetch_all(pool, "SELECT c1 FROM t1_1 WHERE c1 = 5") == [(5,)]
        cursors[0].close()
        assert fetch(pool.open("SELECT * FROM t1_1"), max_rows=1).error is None
        for cursor in cursors:
            cursor.close()
        assert pool.suspended == 1


def test_long_steps_do_not_block_small_queries(filled: Storage) -> None:
    with reader_pool(filled, threads=2, threads_max=8) as pool:
        long = [pool.open(LONG) for _ in range(4)]
        for cursor in long:
            cursor.fetch(1000, 0, None, lambda _batch: None)
        before = time.monotonic()
        assert fetch_all(pool, "SELECT 1") == [(1,)]
        took = time.monotonic() - before
        for cursor in long:
            cursor.close()
        assert took < 5


def test_errors_end_the_cursor(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        cursor = pool.open("SELECT * FROM no_such_table")
        assert isinstance(fetch(cursor).error, InternalError)
        assert cursor.closed
        writes = pool.open("DELETE FROM t1_1")
        assert fetch(writes).error is not None, "readers write nothing"

        def bug(_rows: object) -> bytes:
            raise ValueError("a bug in the encoder")

        assert isinstance(fetch(pool.open("SELECT 1"), encode=bug).error, InternalError)


def test_stop_with_cursors_open(filled: Storage) -> None:
    with reader_pool(filled) as pool:
        fetch(pool.open("SELECT * FROM t1_1"), max_rows=1)
        pool.open(LONG).fetch(1000, 0, None, lambda _batch: None)
        time.sleep(0.02)
    with pytest.raises(AdminShutdown):
        pool.open("SELECT 1").fetch(1, 0, None, lambda _batch: None)


def test_point_reads_see_each_commit(tmp_path: Path) -> None:
    with storage(tmp_path) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 INTEGER) STRICT")
        point = PointReader(opened.files, opened.settings)
        for n in range(10):
            opened.execute("INSERT INTO t1_1 VALUES (?, ?)", n, n * n)
            assert point.rows("SELECT c2 FROM t1_1 WHERE c1 = ?", (n,)) == [(n * n,)]
        with pytest.raises(InternalError):
            point.rows("SELECT nonsense", ())
        assert point.rows("SELECT c2 FROM t1_1 WHERE c1 = ?", (3,)) == [(9,)]
        point.close()
