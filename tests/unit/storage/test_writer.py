"""The writer: groups, savepoints, what is told when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from shoal.errors import (
    AdminShutdown,
    DataError,
    InternalError,
    NotNullViolation,
    NumericOutOfRange,
    ShoalError,
    UniqueViolation,
)
from shoal.storage.sqlite import Settings
from shoal.storage.writer import Outcome, WriteSession
from tests.unit.storage.open_storage import Do, Script, Sql, Storage, storage


class Refused(DataError):
    """What a guard function of ours raises."""


def guard(connection: apsw.Connection) -> None:
    def refuse(value: object) -> object:
        if value == 13:
            raise Refused("13 is refused")
        return value

    connection.create_scalar_function("guard", refuse, 1)


@pytest.fixture
def open_storage(tmp_path: Path) -> Iterator[Storage]:
    with storage(tmp_path, settings=Settings(functions=guard)) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 INTEGER NOT NULL) STRICT")
        opened.execute("CREATE TABLE t2_1 (c1 TEXT PRIMARY KEY, c2 INTEGER NOT NULL) STRICT, WITHOUT ROWID")
        yield opened


def errors(outcomes: list[Outcome[object]]) -> list[type[BaseException] | None]:
    return [None if outcome.error is None else type(outcome.error) for outcome in outcomes]


def test_a_failed_statement_fails_alone(open_storage: Storage) -> None:
    outcomes = open_storage.together(
        [
            Sql("INSERT INTO t1_1 VALUES (1, 1), (2, 2)"),
            Sql("INSERT INTO t1_1 VALUES (3, 3), (2, 2)"),
            Sql("INSERT INTO t1_1 VALUES (4, NULL)"),
            Sql("UPDATE t1_1 SET c2 = 9223372036854775807 + c2"),
            Sql("INSERT INTO t1_1 VALUES (5, 5), (6, guard(13))"),
            Sql("UPDATE t1_1 SET c2 = c2 + 10"),
            Sql("SELECT nonsense"),
        ]
    )
    assert errors(outcomes) == [
        None,
        UniqueViolation,
        NotNullViolation,
        NumericOutOfRange,
        Refused,
        None,
        InternalError,
    ]
    assert [outcome.value for outcome in outcomes if outcome.error is None] == [2, 2]
    assert open_storage.rows("SELECT * FROM t1_1") == [(1, 11), (2, 12)]


def test_a_group_is_one_commit(open_storage: Storage) -> None:
    before = open_storage.writer.last_lsn
    open_storage.together([Sql("INSERT INTO t1_1 VALUES (?, 1)", (n,)) for n in range(20)])
    assert open_storage.writer.last_lsn == before + 1


def test_outcomes_come_after_the_commit(open_storage: Storage) -> None:
    seen: list[object] = []
    other = apsw.Connection(str(open_storage.files.data), vfs=open_storage.settings.vfs)
    finished = threading.Event()

    def done(outcome: Outcome[int]) -> None:
        seen.append(other.execute("SELECT count(*) FROM t1_1").get)
        finished.set()

    open_storage.writer.submit(Sql("INSERT INTO t1_1 VALUES (1, 1)"), done)
    assert finished.wait(10)
    assert seen == [1]
    other.close()


def test_several_steps_are_whole_or_nothing(open_storage: Storage) -> None:
    outcomes = open_storage.together(
        [
            Script(("INSERT INTO t1_1 VALUES (1, 1)", "INSERT INTO t2_1 VALUES ('a', 1)")),
            Script(("INSERT INTO t1_1 VALUES (2, 2)", "INSERT INTO t2_1 VALUES ('a', 2)")),
        ]
    )
    assert errors(outcomes) == [None, UniqueViolation]
    assert open_storage.rows("SELECT c1 FROM t1_1") == [(1,)]


def test_a_work_can_go_back_to_its_own_savepoint(open_storage: Storage) -> None:
    def work(session: WriteSession) -> int:
        session.execute("INSERT INTO t1_1 VALUES (1, 1)")
        with pytest.raises(apsw.ConstraintError), session.savepoint():
            session.execute("INSERT INTO t1_1 VALUES (2, 2)")
            session.execute("INSERT INTO t1_1 VALUES (1, 1)")
        return session.executemany("INSERT INTO t1_1 VALUES (?, ?)", [(3, 3), (4, 4)])

    assert open_storage.writer.run(Do(work)) == 2
    assert open_storage.rows("SELECT c1 FROM t1_1") == [(1,), (3,), (4,)]


def test_returning_gives_rows(open_storage: Storage) -> None:
    rows = open_storage.writer.run(
        Do(lambda session: session.returning("INSERT INTO t1_1 VALUES (1, 5) RETURNING c2, c1"))
    )
    assert rows == [(5, 1)]


def test_an_exception_of_ours_comes_through_as_it_is(open_storage: Storage) -> None:
    error = ShoalError("no")

    def work(_session: WriteSession) -> None:
        raise error

    with pytest.raises(ShoalError) as caught:
        open_storage.writer.run(Do(work))
    assert caught.value is error


def test_a_bug_in_a_work_is_an_internal_error(open_storage: Storage) -> None:
    outcomes = open_storage.together([Do(lambda _session: 1 / 0), Sql("INSERT INTO t1_1 VALUES (1, 1)")])
    assert errors(outcomes) == [InternalError, None]


def test_a_work_that_hides_its_steps_is_caught(open_storage: Storage) -> None:
    """It wrote, failed, and said that it needs no savepoint: nothing of the group may stay."""

    def work(session: WriteSession) -> None:
        session.execute("INSERT INTO t1_1 VALUES (1, 1)")
        raise ShoalError("after the write")

    outcomes = open_storage.together([Do(work, one_statement=True), Sql("INSERT INTO t1_1 VALUES (2, 2)")])
    assert outcomes[0].error is not None
    assert (1, 1) not in open_storage.rows("SELECT * FROM t1_1")
    open_storage.execute("INSERT INTO t1_1 VALUES (3, 3)")


def test_unlogged_rows_are_written_and_gone_after_a_restart(tmp_path: Path) -> None:
    with storage(tmp_path) as opened:
        opened.execute("CREATE TABLE unlogged.t7_1 (c1 INTEGER PRIMARY KEY) STRICT")
        opened.execute("INSERT INTO t7_1 VALUES (1)")
        assert opened.rows("SELECT * FROM t7_1") == [(1,)]
        assert opened.writer.last_lsn == 0
    opened.files.delete_unlogged()
    with storage(tmp_path) as opened:
        assert opened.rows("SELECT name FROM unlogged.sqlite_schema") == []


def test_stop_finishes_what_was_submitted(tmp_path: Path) -> None:
    told: list[Outcome[int]] = []
    with storage(tmp_path) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY) STRICT")
        for n in range(2000):
            opened.writer.submit(Sql("INSERT INTO t1_1 VALUES (?)", (n,)), told.append)
    assert [outcome.error for outcome in told] == [None] * 2000
    with pytest.raises(AdminShutdown):
        opened.writer.submit(Sql("SELECT 1"), told.append)
    with storage(tmp_path) as opened:
        assert opened.rows("SELECT count(*) FROM t1_1") == [(2000,)]


def test_one_listener_that_fails_keeps_nobody_from_hearing(open_storage: Storage) -> None:
    def fail(_outcome: Outcome[int]) -> None:
        raise ValueError("a bug in the one who listens")

    open_storage.writer.submit(Sql("INSERT INTO t1_1 VALUES (1, 1)"), fail)
    assert open_storage.execute("INSERT INTO t1_1 VALUES (2, 2)") == 1


def test_the_log_file_starts_anew_under_steady_writes(tmp_path: Path) -> None:
    with storage(tmp_path, settings=Settings(checkpoint_pages=50)) as opened:
        opened.execute("CREATE TABLE t1_1 (c1 INTEGER PRIMARY KEY, c2 BLOB) STRICT")
        for n in range(600):
            opened.execute("INSERT INTO t1_1 VALUES (?, zeroblob(3000))", n)
        wal = Path(f"{opened.files.data}-wal").stat().st_size
    assert wal < 600 * 4096, "the write-ahead log was never started anew"
