"""psycopg 3, synchronous: transactions told truthfully, prepared statements, streams, cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, scalar_row
from psycopg_pool import ConnectionPool

from tests.cluster import Instance, eventually
from tests.interop.conftest import LONG_SELECT, numbers

MakeTable = Callable[[str], str]


def sql(text: str) -> bytes:
    """psycopg's types want literals where SQL injection could hide; here the table's name is ours."""
    return text.encode()


# --- connecting ----------------------------------------------------------------------------------


def test_what_a_client_learns_when_it_connects(instance: Instance) -> None:
    with instance.connect(application_name="fish") as conn:
        info = conn.info
        assert info.server_version == 150000
        assert info.encoding == "utf-8"
        assert str(info.timezone) == "UTC"
        assert info.parameter_status("integer_datetimes") == "on"
        assert info.parameter_status("standard_conforming_strings") == "on"
        assert info.parameter_status("application_name") == "fish"
        assert info.backend_pid > 0
        row = conn.execute("SELECT version()").fetchone()
        assert row is not None
        assert row[0].startswith("Shoal ")


def test_settings_are_reported_when_they_change(instance: Instance) -> None:
    with instance.connect() as conn:
        conn.execute("SET application_name = 'shark'")
        assert conn.info.parameter_status("application_name") == "shark"
        conn.execute("SET TIME ZONE 'Europe/Berlin'")
        assert conn.info.parameter_status("TimeZone") == "Europe/Berlin"
        conn.execute("RESET ALL")
        assert conn.info.parameter_status("application_name") == ""
        assert conn.info.parameter_status("TimeZone") == "UTC"
        with pytest.raises(errors.InvalidParameterValue):
            conn.execute("SET TIME ZONE 'Europe/Atlantis'")
        with pytest.raises(errors.UndefinedObject):
            conn.execute("SET no_such_setting = 1")


def test_settings_from_the_connection_string(instance: Instance) -> None:
    with instance.connect(options="-c timezone=Asia/Tokyo -c statement_timeout=2s") as conn:
        assert conn.execute("SHOW timezone").fetchone() == ("Asia/Tokyo",)
        assert conn.info.parameter_status("TimeZone") == "Asia/Tokyo"
    with instance.connect(options="sql_motion_row_max=7,sql_vdbe_opcode_max=0") as conn:
        assert conn.execute("SHOW sql_motion_row_max").fetchone() == ("7",)


# --- transactions --------------------------------------------------------------------------------


def test_autocommit_leaves_the_session_idle(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    with instance.connect() as conn:
        conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        assert conn.info.transaction_status == TransactionStatus.IDLE


def test_a_block_is_told_by_the_status(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    with instance.connect(autocommit=False) as conn:
        assert conn.info.transaction_status == TransactionStatus.IDLE
        conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        assert conn.info.transaction_status == TransactionStatus.INTRANS
        conn.commit()
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert conn.execute(sql(f"SELECT * FROM {name}")).fetchall() == [(1,)]
        conn.rollback()  # it has only read
        assert conn.info.transaction_status == TransactionStatus.IDLE


def test_rollback_after_a_write_says_that_it_stands(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    with instance.connect(autocommit=False) as conn:
        conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        with pytest.raises(errors.FeatureNotSupported, match="writes of this transaction block stand"):
            conn.rollback()
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert conn.execute(sql(f"SELECT * FROM {name}")).fetchall() == [(1,)]


def test_commit_of_a_failed_block(instance: Instance, table: MakeTable) -> None:
    """PostgreSQL would answer ROLLBACK: after a write that would be a lie."""
    name = table("id INT PRIMARY KEY")
    with instance.connect(autocommit=False) as conn:
        with pytest.raises(errors.DivisionByZero):
            conn.execute("SELECT 1 / 0")
        assert conn.info.transaction_status == TransactionStatus.INERROR
        with pytest.raises(errors.InFailedSqlTransaction):
            conn.execute("SELECT 1")
        conn.commit()  # nothing was written: ROLLBACK it is
        assert conn.info.transaction_status == TransactionStatus.IDLE

        conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        with pytest.raises(errors.UniqueViolation):
            conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        with pytest.raises(errors.FeatureNotSupported, match="stand"):
            conn.commit()
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert conn.execute(sql(f"SELECT * FROM {name}")).fetchall() == [(1,)]


def test_transaction_contexts(instance: Instance, table: MakeTable, caplog: pytest.LogCaptureFixture) -> None:
    name = table("id INT PRIMARY KEY")
    with instance.connect() as conn:
        with conn.transaction():
            conn.execute(sql(f"INSERT INTO {name} VALUES (1)"))
            assert conn.info.transaction_status == TransactionStatus.INTRANS
        assert conn.info.transaction_status == TransactionStatus.IDLE

        with pytest.raises(ZeroDivisionError), conn.transaction():
            conn.execute(sql(f"SELECT * FROM {name}"))
            raise ZeroDivisionError  # nothing was written, so it can be rolled back

        # psycopg logs an error of ROLLBACK, since the error that led there is more interesting.
        with pytest.raises(ZeroDivisionError), conn.transaction():
            conn.execute(sql(f"INSERT INTO {name} VALUES (2)"))
            raise ZeroDivisionError
        assert "the writes of this transaction block stand" in caplog.text
        assert conn.info.transaction_status == TransactionStatus.IDLE

        assert conn.execute(sql(f"SELECT id FROM {name} ORDER BY id")).fetchall() == [(1,), (2,)]


def test_transactions_in_transactions(
    instance: Instance, table: MakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    """Savepoints: one that nothing was written after can be gone back to."""
    name = table("id INT PRIMARY KEY")
    insert = f"INSERT INTO {name} VALUES (%s)"
    with instance.connect() as conn:
        with conn.transaction():
            conn.execute(insert, (1,))
            with conn.transaction():
                conn.execute(insert, (2,))
            with pytest.raises(errors.UniqueViolation), conn.transaction():
                conn.execute(insert, (2,))
            assert conn.info.transaction_status == TransactionStatus.INTRANS
            conn.execute(insert, (3,))
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert not caplog.text

        # Where something was, the block stays failed, and COMMIT says what it can't do.
        with pytest.raises(errors.FeatureNotSupported, match="stand"), conn.transaction():
            with pytest.raises(errors.UniqueViolation), conn.transaction():
                conn.execute(insert, (4,))
                conn.execute(insert, (4,))
            assert conn.info.transaction_status == TransactionStatus.INERROR
        assert "the writes since savepoint" in caplog.text
        assert conn.info.transaction_status == TransactionStatus.IDLE
        assert conn.execute(sql(f"SELECT id FROM {name} ORDER BY id")).fetchall() == [(1,), (2,), (3,), (4,)]


def test_read_only_transactions(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    insert = sql(f"INSERT INTO {name} VALUES (1)")
    with instance.connect(autocommit=False) as conn:
        conn.read_only = True
        with pytest.raises(errors.ReadOnlySqlTransaction):
            conn.execute(insert)
        conn.rollback()
        conn.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        conn.commit()
        conn.read_only = None
        with pytest.raises(errors.ReadOnlySqlTransaction):
            conn.execute(sql(f"CREATE TABLE {name}x (id INT PRIMARY KEY)"))
        conn.rollback()
        conn.execute("SET TRANSACTION READ WRITE")
        conn.execute(insert)
        conn.commit()
        assert conn.execute(sql(f"SELECT * FROM {name}")).fetchall() == [(1,)]


def test_notices(instance: Instance) -> None:
    heard: list[tuple[str | None, str | None]] = []
    with instance.connect() as conn:
        conn.add_notice_handler(lambda notice: heard.append((notice.severity, notice.sqlstate)))
        conn.execute("BEGIN")
        conn.execute("BEGIN")
        conn.execute("COMMIT")
        conn.execute("COMMIT")
    assert heard == [("WARNING", "25001"), ("WARNING", "25P01")]


# --- statements ----------------------------------------------------------------------------------


def test_dml_says_how_many(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, n INT")
    with instance.connect() as conn:
        cursor = conn.execute(sql(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)"))
        assert (cursor.rowcount, cursor.statusmessage) == (3, "INSERT 0 3")
        cursor = conn.execute(sql(f"UPDATE {name} SET n = n + 1 WHERE id > 1"))
        assert (cursor.rowcount, cursor.statusmessage) == (2, "UPDATE 2")
        cursor = conn.execute(sql(f"DELETE FROM {name} WHERE id = 3 RETURNING id, n"))
        assert (cursor.rowcount, cursor.statusmessage) == (1, "DELETE 1")
        assert cursor.fetchall() == [(3, 4)]
        cursor = conn.execute(sql(f"SELECT * FROM {name}"))
        assert (cursor.rowcount, cursor.statusmessage) == (2, "SELECT 2")


def test_prepared_on_the_server_after_five_times(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    with instance.connect() as conn:
        for i in range(20):
            conn.execute(f"INSERT INTO {name} VALUES (%s, %s)", (i, str(i)))
        for i in range(20):
            assert conn.execute(f"SELECT t FROM {name} WHERE id = %s", (i,)).fetchone() == (str(i),)
        # Over the wire as one message each: Bind, Describe, Execute, Sync of a named statement.
        assert len(conn._prepared._names) == 2
        conn.execute("DEALLOCATE ALL")


def test_prepared_statements_meet_a_schema_change(instance: Instance, table: MakeTable) -> None:
    """Re-planned where the rows keep their shape, refused where not."""
    name = table("id INT PRIMARY KEY, t TEXT")
    with instance.connect() as conn:
        conn.execute(sql(f"INSERT INTO {name} VALUES (1, 'one')"))
        some, star = sql(f"SELECT t FROM {name}"), sql(f"SELECT * FROM {name}")
        conn.execute(some, prepare=True)
        conn.execute(star, prepare=True)
        instance.execute(f"ALTER TABLE {name} ADD COLUMN n INT")
        assert conn.execute(some, prepare=True).fetchall() == [("one",)]
        with pytest.raises(errors.FeatureNotSupported, match="cached plan must not change result type"):
            conn.execute(star, prepare=True)
        assert conn.execute(star, prepare=False).fetchall() == [(1, "one", None)]
        instance.execute(f"DROP TABLE {name}")
        with pytest.raises(errors.UndefinedTable):
            conn.execute(some, prepare=True)


def test_executemany(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    with instance.connect() as conn, conn.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s)", [(i, f"row {i}") for i in range(500)])
        assert cursor.rowcount == 500
        cursor.executemany(
            f"UPDATE {name} SET t = %s WHERE id = %s RETURNING id",
            [("new", 3), ("new", 7), ("new", 1000)],
            returning=True,
        )
        answers = [cursor.fetchall()]
        while cursor.nextset():
            answers.append(cursor.fetchall())
        assert answers == [[(3,)], [(7,)], []]


def test_executemany_that_fails_in_the_middle(instance: Instance, table: MakeTable) -> None:
    """What came before the error stands: there is no transaction around it yet, and the error says so."""
    name = table("id INT PRIMARY KEY")
    with instance.connect() as conn:
        with pytest.raises(errors.UniqueViolation) as caught:
            conn.cursor().executemany(f"INSERT INTO {name} VALUES (%s)", [(1,), (2,), (1,), (3,)])
        assert caught.value.diag.message_detail is not None
        assert conn.execute(sql(f"SELECT id FROM {name} ORDER BY id")).fetchall() == [(1,), (2,)]


def test_several_statements_in_one_text(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    with instance.connect() as conn:
        cursor = conn.execute(
            sql(f"INSERT INTO {name} VALUES (1); SELECT id FROM {name}; -- and\n SELECT 'two' AS what;")
        )
        assert cursor.statusmessage == "INSERT 0 1"
        assert cursor.nextset()
        assert cursor.fetchall() == [(1,)]
        assert cursor.nextset()
        assert cursor.fetchall() == [("two",)]
        assert not cursor.nextset()


def test_row_factories_use_the_names(instance: Instance) -> None:
    with instance.connect() as conn:
        cursor = conn.cursor(row_factory=dict_row)
        assert cursor.execute("SELECT 1 AS one, 'x' AS \"Two\"").fetchone() == {"one": 1, "Two": "x"}


# --- many rows -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(instance: Instance) -> str:
    """A table of 100,000 rows."""
    instance.execute(
        "CREATE TABLE big (id INT PRIMARY KEY, t TEXT)",
        f"INSERT INTO big SELECT n, 'row number ' || n FROM ({numbers(5)}) AS numbers",
    )
    return "big"


def test_a_large_result(instance: Instance, big: str) -> None:
    with instance.connect() as conn:
        rows = conn.execute(sql(f"SELECT id, t FROM {big} ORDER BY id")).fetchall()
        assert rows == [(i, f"row number {i}") for i in range(100_000)]


def test_a_large_result_in_parts(instance: Instance, big: str) -> None:
    with instance.connect() as conn:
        cursor = conn.execute(sql(f"SELECT id FROM {big} ORDER BY id"))
        assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
        assert len(cursor.fetchmany(50_000)) == 50_000
        assert len(cursor.fetchall()) == 49_997


@pytest.mark.parametrize("size", [1, 500])
def test_a_large_result_as_a_stream(instance: Instance, big: str, size: int) -> None:
    with instance.connect() as conn:
        cursor = conn.cursor(row_factory=scalar_row)
        seen = 0
        for i, value in enumerate(cursor.stream(sql(f"SELECT id FROM {big} ORDER BY id"), size=size)):
            assert value == i
            seen += 1
        assert seen == 100_000
        # Left in the middle: psycopg cancels what is still to come, and the connection goes on.
        with suppress(errors.QueryCanceled):
            for value in cursor.stream(sql(f"SELECT id FROM {big} ORDER BY id"), size=size):
                if value == 10:
                    break
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_named_cursors_are_refused(instance: Instance) -> None:
    """They need DECLARE, which only makes sense in a real transaction."""
    with instance.connect() as conn, conn.transaction():
        with pytest.raises(errors.FeatureNotSupported, match="DECLARE"):
            conn.cursor("named").execute("SELECT 1")
    with instance.connect() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


# --- stopping what takes too long ----------------------------------------------------------------


def test_cancel(instance: Instance, timing_scale: float) -> None:
    with instance.connect() as conn:
        failures: list[Exception] = []

        def run() -> None:
            try:
                conn.execute(sql(LONG_SELECT))
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def cancelled() -> bool:
            # It is lost on a statement that has not begun: so it is said until it is heard.
            conn.cancel_safe(timeout=10 * timing_scale)
            thread.join(0.05)
            return not thread.is_alive()

        eventually(cancelled, 30 * timing_scale, "the end of a cancelled statement")
        assert [type(error) for error in failures] == [errors.QueryCanceled]
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_cancel_when_nothing_runs(instance: Instance) -> None:
    with instance.connect() as conn:
        conn.cancel_safe()
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_statement_timeout(instance: Instance) -> None:
    with instance.connect() as conn:
        conn.execute("SET statement_timeout = '50ms'")
        with pytest.raises(errors.QueryCanceled, match="statement timeout"):
            conn.execute(sql(LONG_SELECT))
        assert conn.execute("SELECT 1").fetchone() == (1,)
        conn.execute("RESET statement_timeout")
        assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_a_limit_on_opcodes(instance: Instance) -> None:
    with instance.connect() as conn:
        with pytest.raises(
            errors.ConfigurationLimitExceeded, match="Reached a limit on max executed vdbe opcodes"
        ):
            conn.execute(sql(LONG_SELECT + " OPTION (sql_vdbe_opcode_max = 10000)"))
        with pytest.raises(errors.ConfigurationLimitExceeded, match="Exceeded maximum number of rows"):
            conn.execute("SELECT n FROM digits OPTION (sql_motion_row_max = 5)")
        assert conn.execute("SELECT 1").fetchone() == (1,)


# --- COPY, pools ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["COPY digits FROM STDIN", "COPY digits TO STDOUT", "COPY (SELECT 1) TO STDOUT"]
)
def test_copy_is_refused(instance: Instance, text: str) -> None:
    with instance.connect() as conn:
        with pytest.raises(errors.FeatureNotSupported, match="COPY"), conn.cursor().copy(sql(text)):
            pass
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_pool(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, worker INT")
    with ConnectionPool(
        instance.url(), min_size=2, max_size=4, check=ConnectionPool.check_connection
    ) as pool:

        def work(worker: int) -> None:
            for i in range(20):
                with pool.connection(timeout=60) as conn:
                    conn.execute(f"INSERT INTO {name} VALUES (%s, %s)", (worker * 100 + i, worker))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pool.connection() as conn:
            row = conn.execute(sql(f"SELECT count(*), count(DISTINCT worker) FROM {name}")).fetchone()
            assert row == (160, 8)


def test_what_two_connections_see(instance: Instance, table: MakeTable) -> None:
    """A statement is there for everyone once it is acknowledged, inside a block or not."""
    name = table("id INT PRIMARY KEY")
    with instance.connect(autocommit=False) as one, instance.connect() as other:
        one.execute(sql(f"INSERT INTO {name} VALUES (1)"))
        assert other.execute(sql(f"SELECT * FROM {name}")).fetchall() == [(1,)]
        one.commit()


def test_rows_from_a_closed_connection(instance: Instance) -> None:
    conn = instance.connect()
    conn.close()
    with pytest.raises(psycopg.OperationalError):
        conn.execute("SELECT 1")
