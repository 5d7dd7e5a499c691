"""The SQLSTATEs that drivers act on, each provoked through a driver; after each the connection goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg.pq import ExecStatus

from tests.cluster import Instance
from tests.interop.conftest import LONG_SELECT


@pytest.fixture(scope="module")
def conn(instance: Instance) -> Iterator[psycopg.Connection[Any]]:
    """One connection for all: whatever happens to one statement, the next one works."""
    instance.execute(
        "CREATE TABLE fish (id INT PRIMARY KEY, name TEXT NOT NULL, price DECIMAL(6, 2), small UNSIGNED)",
        "CREATE TABLE by_name (id INT, name TEXT, PRIMARY KEY (name)) DISTRIBUTED BY (name)",
        "CREATE UNIQUE INDEX by_name_id ON by_name (name, id)",
        "INSERT INTO fish VALUES (1, 'cod', 1.5, 1)",
    )
    with instance.connect() as connection:
        yield connection


# text → SQLSTATE, and the position of the mistake where there is one.
CASES: list[tuple[str, str, int | None]] = [
    # Class 42: what was written
    ("SELEC 1", "42601", 1),
    ("SELECT * FORM fish", "42601", 10),
    ("SELECT (1", "42601", 10),
    ("SELECT 'open", "42601", 8),
    ("INSERT INTO fish VALUES (1, 'a'", "42601", 32),
    ("SELECT * FROM nothing", "42P01", 15),
    ("INSERT INTO nothing VALUES (1)", "42P01", 13),
    ("UPDATE nothing SET a = 1", "42P01", 8),
    ("DROP TABLE nothing", "42P01", None),
    ("SELECT nothing FROM fish", "42703", 8),
    ("SELECT f.nothing FROM fish AS f", "42703", None),
    ("SELECT g.id FROM fish AS f", "42P01", None),
    ("UPDATE fish SET nothing = 1", "42703", None),
    ("INSERT INTO fish (id, nothing) VALUES (2, 2)", "42703", None),
    ("SELECT id FROM fish AS a JOIN fish AS b ON a.id = b.id", "42702", 8),
    ("SELECT nothing(1)", "42883", 8),
    ("SELECT 1 + TRUE", "42883", None),
    ("SELECT lower(1)", "42883", 8),
    ("INSERT INTO fish VALUES (2, 2.5, NULL, NULL)", "42804", None),
    ("UPDATE fish SET name = 1", "42804", None),
    ("SELECT * FROM fish WHERE id", "42804", None),
    ("SELECT CASE WHEN TRUE THEN 1 ELSE TRUE END", "42804", None),
    ("SELECT 1::nonsense", "42704", None),
    ("SELECT TRUE::datetime", "42846", None),
    ("SELECT name, count(*) FROM fish", "42803", None),
    ("SELECT id FROM fish WHERE count(*) > 1", "42803", None),
    ("SELECT id FROM fish ORDER BY 3", "42P10", None),
    ("SELECT id FROM fish GROUP BY 3", "42P10", None),
    ("CREATE TABLE fish (id INT PRIMARY KEY)", "42P07", None),
    ("CREATE TABLE twice (id INT PRIMARY KEY, id TEXT)", "42701", None),
    ("CREATE TABLE keyless (id INT)", "42P16", None),
    ("CREATE INDEX by_name_id ON by_name (name)", "42710", None),
    ("DROP INDEX nothing", "42704", None),
    ("ALTER TABLE fish ADD COLUMN name TEXT", "42701", None),
    # Class 22: values
    ("SELECT 9223372036854775807 + 1", "22003", None),
    ("SELECT id + 9223372036854775807 FROM fish", "22003", None),
    ("SELECT -9223372036854775808 / -1", "22003", None),
    ("SELECT 'inf'::double - 'inf'::double", "22003", None),
    ("INSERT INTO fish VALUES (2, 'x', 12345.67, 1)", "22003", None),
    ("INSERT INTO fish VALUES (2, 'x', 1, -1)", "22003", None),
    ("SELECT 1 / 0", "22012", None),
    ("SELECT 1.5 / 0", "22012", None),
    ("SELECT id % 0 FROM fish", "22012", None),
    ("SELECT 'x'::int", "22P02", None),
    ("SELECT name::int FROM fish", "22P02", None),
    ("SELECT '2024-13-01'::datetime", "22P02", None),
    ("SELECT 'maybe'::boolean", "22P02", None),
    ("SELECT * FROM fish WHERE id = 'x'", "22P02", None),
    ("SELECT 'a' LIKE 'a' ESCAPE 'xy'", "22025", None),
    ("SELECT substring('abc', 1, -1)", "22011", None),
    # Class 23: constraints
    ("INSERT INTO fish VALUES (1, 'again', NULL, NULL)", "23505", None),
    ("INSERT INTO fish VALUES (7, 'a', NULL, NULL), (7, 'b', NULL, NULL)", "23505", None),
    ("INSERT INTO fish (id) VALUES (2)", "23502", None),
    ("INSERT INTO fish VALUES (2, NULL, NULL, NULL)", "23502", None),
    ("INSERT INTO fish VALUES (NULL, 'x', NULL, NULL)", "23502", None),
    ("UPDATE fish SET name = NULL", "23502", None),
    # Class 21, 53, 57
    ("SELECT (SELECT n FROM digits)", "21000", None),
    ("SELECT n FROM digits OPTION (sql_motion_row_max = 1)", "53400", None),
    # Class 0A: what is known and not there
    ("COPY fish FROM STDIN", "0A000", 1),
    ("DECLARE c CURSOR FOR SELECT 1", "0A000", 1),
    ("SAVEPOINT s", "25P01", None),
    ("ROLLBACK TO SAVEPOINT s", "25P01", None),
    ("LISTEN channel", "0A000", 1),
    ("CREATE VIEW v AS SELECT 1", "0A000", None),
    ("CREATE SEQUENCE s", "0A000", None),
    ("GRANT SELECT ON TABLE fish TO guest", "0A000", 7),
    ("GRANT READ ON TABLE fish TO nobody", "42704", 29),
    ("GRANT READ ON USER guest TO public", "0LP01", None),
    ("CREATE USER fish PASSWORD 'weak'", "22023", None),
    ("DROP ROLE public", "42501", None),
    ("SET client_encoding = 'LATIN1'", "0A000", None),
    # Class 42, 22: settings
    ("SET nothing = 1", "42704", None),
    ("SHOW nothing", "42704", None),
    ("SET statement_timeout = 'soon'", "22023", None),
    # Class 26
    ("DEALLOCATE nothing", "26000", None),
]


@pytest.mark.parametrize("protocol", ["simple", "extended"])
@pytest.mark.parametrize(
    ("text", "sqlstate", "position"), CASES, ids=[f"{case[1]}-{case[0]}"[:60] for case in CASES]
)
def test_errors(
    conn: psycopg.Connection[Any], text: str, sqlstate: str, position: int | None, protocol: str
) -> None:
    pgconn = conn.pgconn
    result = pgconn.exec_(text.encode()) if protocol == "simple" else pgconn.exec_params(text.encode(), None)
    assert result.status == ExecStatus.FATAL_ERROR, "no error"

    def field(name: pq.DiagnosticField) -> str | None:
        raw = result.error_field(name)
        return None if raw is None else raw.decode()

    assert field(pq.DiagnosticField.SQLSTATE) == sqlstate, result.error_message
    assert field(pq.DiagnosticField.SEVERITY) == "ERROR"
    assert field(pq.DiagnosticField.SEVERITY_NONLOCALIZED) == "ERROR"
    assert field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if position is not None:
        assert field(pq.DiagnosticField.STATEMENT_POSITION) == str(position)
    # Nothing of a failed statement is there, and the connection goes on.
    assert conn.execute("SELECT count(*), min(name) FROM fish").fetchone() == (1, "cod")
    assert conn.info.transaction_status == pq.TransactionStatus.IDLE


def test_integrity_errors_name_what_they_are_about(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation, match="(?i)duplicate key"):
        conn.execute("INSERT INTO fish VALUES (1, 'again', NULL, NULL)")
    with pytest.raises(psycopg.errors.NotNullViolation, match="name"):
        conn.execute("INSERT INTO fish VALUES (2, NULL, NULL, NULL)")


# --- errors of the extended protocol, below what drivers let one say -----------------------------


def sqlstate(result: Any) -> str:
    assert result.status == ExecStatus.FATAL_ERROR
    found: bytes = result.error_field(pq.DiagnosticField.SQLSTATE)
    return found.decode()


def test_statements_and_portals_by_name(conn: psycopg.Connection[Any]) -> None:
    pgconn = conn.pgconn
    assert sqlstate(pgconn.exec_prepared(b"nothing", None)) == "26000"
    assert sqlstate(pgconn.describe_prepared(b"nothing")) == "26000"
    assert sqlstate(pgconn.describe_portal(b"nothing")) == "34000"
    assert pgconn.prepare(b"twice", b"SELECT 1").status == ExecStatus.COMMAND_OK
    assert sqlstate(pgconn.prepare(b"twice", b"SELECT 2")) == "42P05"
    assert pgconn.exec_prepared(b"twice", None).get_value(0, 0) == b"1"
    assert pgconn.exec_(b"DEALLOCATE twice").status == ExecStatus.COMMAND_OK
    assert sqlstate(pgconn.exec_prepared(b"twice", None)) == "26000"


def test_parameters_that_do_not_fit(conn: psycopg.Connection[Any]) -> None:
    pgconn = conn.pgconn
    assert sqlstate(pgconn.exec_params(b"SELECT $1::int", [])) == "08P01"
    assert sqlstate(pgconn.exec_params(b"SELECT 1", [b"1"])) == "08P01"
    assert sqlstate(pgconn.exec_params(b"SELECT $1::int", [b"x"])) == "22P02"
    assert sqlstate(pgconn.exec_params(b"SELECT $1::int", [b"123"], [20], [1])) == "22P03"
    assert sqlstate(pgconn.exec_params(b"SELECT $1::text", [b"\xff"], [25])) == "22021"
    assert sqlstate(pgconn.exec_params(b"SELECT $1", [b"x"], [17])) == "0A000"
    assert sqlstate(pgconn.exec_params(b"SELECT $1", [b"x"], [999999])) == "0A000"
    assert sqlstate(pgconn.exec_(b"SELECT $1")) in ("08P01", "42P02")
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_several_statements_are_for_the_simple_protocol(conn: psycopg.Connection[Any]) -> None:
    assert sqlstate(conn.pgconn.exec_params(b"SELECT 1; SELECT 2", None)) == "42601"
    assert conn.pgconn.exec_params(b"", None).status == ExecStatus.EMPTY_QUERY


def test_text_that_is_not_utf8(conn: psycopg.Connection[Any]) -> None:
    assert sqlstate(conn.pgconn.exec_(b"SELECT '\xff\xfe'")) == "22021"
    assert sqlstate(conn.pgconn.exec_params(b"SELECT '\xff\xfe'", None)) == "22021"
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_blocks(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("BEGIN; SELECT 1 / 0")
    assert conn.info.transaction_status == pq.TransactionStatus.INERROR
    for text in ("SELECT 1", "INSERT INTO fish VALUES (9, 'x', NULL, NULL)", "BEGIN", "SHOW timezone"):
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):  # 25P02
            conn.execute(text.encode())
    conn.execute("ROLLBACK")
    for text in (
        "INSERT INTO fish VALUES (9, 'x', NULL, NULL)",
        "CREATE TABLE x (id INT PRIMARY KEY)",
        "TRUNCATE fish",
    ):
        conn.execute("BEGIN READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):  # 25006
            conn.execute(text.encode())
        conn.execute("ROLLBACK")
    assert conn.execute("SELECT count(*) FROM fish").fetchone() == (1,)


def test_cancelled_by_a_timeout(conn: psycopg.Connection[Any]) -> None:
    conn.execute("SET statement_timeout = 20")
    with pytest.raises(psycopg.errors.QueryCanceled):  # 57014
        conn.execute(LONG_SELECT.encode())
    conn.execute("SET statement_timeout = 0")
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_an_expression_as_deep_as_can_be(conn: psycopg.Connection[Any]) -> None:
    depth = 20_000
    for text in (
        "SELECT " + "(" * depth + "1" + ")" * depth,
        "SELECT " + "1 + " * depth + "1",
        "SELECT " + "NOT " * depth + "TRUE",
    ):
        with pytest.raises((psycopg.errors.StatementTooComplex, psycopg.errors.ProgramLimitExceeded)):
            conn.execute(text.encode())
        assert conn.execute("SELECT 1").fetchone() == (1,)
