"""What is too much of something: a clear error, and all others go on."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from itertools import islice

import psycopg
import pytest

from shoal.pgwire import messages as m
from tests.cluster import Instance, eventually
from tests.system.numbers import DIGITS, LONG_SELECT
from tests.system.processes import memory_mib, threads
from tests.system.wire import STARTUP, Wire, error_fields


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Instance]:
    """Settings are changed here, so it isn't the one that others share."""
    running = Instance(
        tmp_path_factory.mktemp("limits") / "i",
        timing_scale=timing_scale,
        options=("--max-connections", "20"),
    )
    running.start()
    try:
        running.execute(*DIGITS, "CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
        yield running
        assert running.stop() == 0
        assert not running.bugs(), running.bugs()
    finally:
        running.kill()


# --- settings of the cluster ---------------------------------------------------------------------


def test_pg_statement_max_takes_effect_at_once(instance: Instance) -> None:
    with instance.connect() as admin, Wire(instance).log_in() as wire:

        def parse(name: str) -> str | None:
            wire.say(m.Parse(name, "SELECT 1", ()), m.Sync())
            errors = [error_fields(payload)["C"] for kind, payload in wire.read_until_ready() if kind == "E"]
            return errors[0] if errors else None

        assert parse("s1") is None
        admin.execute("ALTER SYSTEM SET pg_statement_max = 3")
        assert [parse(f"s{i}") for i in range(2, 6)] == [None, None, "53400", "53400"]
        wire.say(m.Close("statement", "s1"), m.Sync())
        wire.read_until_ready()
        assert parse("s6") is None
        assert parse("s7") == "53400"
        admin.execute("ALTER SYSTEM SET pg_statement_max = 5")
        assert [parse(f"t{i}") for i in range(3)] == [None, None, "53400"]
        admin.execute("ALTER SYSTEM RESET pg_statement_max")
        assert parse("t3") is None


def test_pg_portal_max_and_what_frees_portals(instance: Instance, timing_scale: float) -> None:
    with instance.connect() as admin:
        admin.execute("ALTER SYSTEM SET pg_portal_max = 4")
        try:
            # Clients that go away with open portals, more often than there is room for.
            for _ in range(8):
                with Wire(instance).log_in() as wire:
                    wire.say(m.Query("BEGIN"), m.Parse("s", "SELECT n FROM digits", ()))
                    for number in range(3):
                        wire.say(m.Bind(f"p{number}", "s", (), (), ()), m.Execute(f"p{number}", 1))
                    wire.say(m.Flush())
                    kinds = "".join(kind for kind, _ in islice(wire.read(), 2 + 1 + 3 * 3))
                    assert kinds == "CZ1" + "2Ds" * 3
                eventually(
                    lambda: instance.metrics()["shoal_open_connections"] == 1, 10 * timing_scale, "it is gone"
                )
            with Wire(instance).log_in() as wire:
                wire.say(m.Query("BEGIN"), m.Parse("s", "SELECT n FROM digits", ()))
                for number in range(6):
                    wire.say(m.Bind(f"p{number}", "s", (), (), ()))
                wire.say(m.Sync())
                wire.read_until_ready()
                answers = wire.read_until_ready()
                assert [kind for kind, _ in answers] == ["1", *"2222", "E", "Z"]
                assert error_fields(answers[-2][1])["C"] == "53400"
        finally:
            admin.execute("ALTER SYSTEM RESET pg_portal_max")


def test_opcode_and_row_limits(instance: Instance) -> None:
    many = "SELECT a.n FROM digits AS a, digits AS b, digits AS c"
    with instance.connect() as admin, instance.connect() as connection:
        assert len(connection.execute(many.encode()).fetchall()) == 1000  # no limit unless somebody said one

        def refused(sql: str, why: str) -> None:
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match=why):
                connection.execute(sql.encode())

        rows = r"Exceeded maximum number of rows \(50\)"
        opcodes = r"Reached a limit on max executed vdbe opcodes. Limit: 500"
        refused(f"{many} OPTION (sql_motion_row_max = 50)", rows)
        refused(f"{many} OPTION (sql_vdbe_opcode_max = 500)", opcodes)
        refused("SELECT v FROM t WHERE id = 1 OPTION (sql_vdbe_opcode_max = 1)", "Limit: 1")
        assert (
            len(connection.execute(f"{many} LIMIT 50 OPTION (sql_motion_row_max = 50)".encode()).fetchall())
            == 50
        )
        admin.execute("ALTER SYSTEM SET sql_motion_row_max = 50")
        refused(many, rows)
        # 0 is no limit, and the nearest word counts.
        assert len(connection.execute(f"{many} OPTION (sql_motion_row_max = 0)".encode()).fetchall()) == 1000
        connection.execute("SET sql_motion_row_max = 2000")
        assert len(connection.execute(many.encode()).fetchall()) == 1000
        connection.execute("RESET sql_motion_row_max")
        refused(many, rows)
        admin.execute("ALTER SYSTEM SET sql_motion_row_max = DEFAULT")
        admin.execute("ALTER SYSTEM SET sql_vdbe_opcode_max = 500")
        refused(many, opcodes)
        admin.execute("ALTER SYSTEM RESET ALL")
        assert len(connection.execute(many.encode()).fetchall()) == 1000


@pytest.mark.parametrize("where", ["", "DISTRIBUTED GLOBALLY"], ids=["sharded", "global"])
def test_opcode_and_row_limits_of_writes(instance: Instance, where: str) -> None:
    """What passes a limit is undone as a whole, and disturbs nothing else."""
    name = "limited_global" if where else "limited"
    with instance.connect() as admin, instance.connect() as connection:
        admin.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) {where}".encode())
        ten = f"(VALUES {', '.join(f'({n})' for n in range(10))})"
        admin.execute(f"INSERT INTO {name} SELECT n, 0 FROM {ten} AS d (n)".encode())

        def content() -> tuple[int, int]:
            found = admin.execute(f"SELECT count(*), sum(v)::int FROM {name}".encode()).fetchone()
            assert found is not None
            return found

        def refused(sql: str, why: str) -> None:
            before = content()
            with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match=why):
                connection.execute(sql.encode())
            assert content() == before

        opcodes = "Reached a limit on max executed vdbe opcodes. Limit: 30"
        update, delete = f"UPDATE {name} SET v = v + 1", f"DELETE FROM {name}"
        insert = f"INSERT INTO {name} SELECT a.n * 100 + b.n + 1000, 1 FROM {ten} AS a (n), {ten} AS b (n)"
        long = f"INSERT INTO {name} VALUES {', '.join(f'({i}, 1)' for i in range(10_000, 10_300))}"
        for sql in (update, f"{update} RETURNING v", delete, insert):
            refused(f"{sql} OPTION (sql_vdbe_opcode_max = 30)", opcodes)
        # By full key, there is no row at which to stop: it is counted at the end.
        refused(f"{update} WHERE id = 3 OPTION (sql_vdbe_opcode_max = 1)", "Limit: 1")
        # Rows that are inserted or answered would travel; rows that are changed where they are don't.
        rows = r"Exceeded maximum number of rows \(5\) in virtual table"
        refused(f"{insert} OPTION (sql_motion_row_max = 5)", rows)
        refused(f"{update} RETURNING v OPTION (sql_motion_row_max = 5)", rows)
        connection.execute(f"{update} OPTION (sql_motion_row_max = 5)".encode())
        for setting, why in (("sql_motion_row_max = 5", rows), ("sql_vdbe_opcode_max = 30", opcodes)):
            connection.execute(f"SET {setting}".encode())
            for sql in (insert, long):
                refused(f"{sql} OPTION (sql_motion_row_max = 0)" if "opcode" in setting else sql, why)
            connection.execute("RESET ALL")
        # The one that is refused takes nobody along who writes at the same time.
        with connection.pipeline():
            connection.execute(
                f"INSERT INTO {name} VALUES (50, 1) OPTION (sql_vdbe_opcode_max = 10000)".encode()
            )
        count, total = content()
        connection.execute(
            f"{insert} OPTION (sql_vdbe_opcode_max = 100000, sql_motion_row_max = 100)".encode()
        )
        assert content() == (count + 100, total + 100)
        connection.execute(long.encode())
        assert content() == (count + 400, total + 400)


def test_statement_timeout_and_cancel_of_everything_that_takes_long(
    instance: Instance, timing_scale: float
) -> None:
    count = LONG_SELECT.replace(" < 0", " < 0 AND d0.n + d1.n * 7 <> 3")
    with instance.connect() as connection:
        connection.execute("INSERT INTO t VALUES (-1, 'here')")  # without a row an UPDATE has nothing to ask
        connection.execute("SET statement_timeout = '300ms'")
        for sql in (
            LONG_SELECT,
            count,
            LONG_SELECT.replace("count(*)", "max(d11.n)") + " GROUP BY d0.n ORDER BY 1",
            f"INSERT INTO t SELECT s.k, 'x' FROM ({LONG_SELECT.replace('count(*)', 'count(*) AS k')}) AS s",
            f"UPDATE t SET v = 'x' WHERE id < ({LONG_SELECT})",
            f"DELETE FROM digits WHERE n > ({LONG_SELECT})",
        ):
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(sql.encode())
            assert connection.execute("SELECT count(*) FROM digits").fetchone() == (10,)
        connection.execute("SET statement_timeout = 0")
        for sql in (LONG_SELECT, f"DELETE FROM digits WHERE n > ({LONG_SELECT})"):
            timer = threading.Timer(0.3, connection.cancel_safe)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                connection.execute(sql.encode())
            timer.join()
        connection.execute("DELETE FROM t WHERE id = -1")


# --- connections ---------------------------------------------------------------------------------


def test_max_connections(instance: Instance, timing_scale: float) -> None:
    connections = [instance.connect() for _ in range(20)]
    try:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            instance.connect()
        # The administrator comes in all the same.
        with psycopg.connect(
            host=str(instance.socket_directory), port=instance.port, user="admin", dbname="shoal"
        ) as admin:
            assert admin.execute("SELECT 1").fetchone() == (1,)
        connections.pop().close()

        def room() -> bool:
            try:
                instance.connect().close()
            except psycopg.OperationalError:
                return False
            return True

        eventually(room, 10 * timing_scale, "there is room for one")
    finally:
        for connection in connections:
            connection.close()


def test_thousands_of_connections_one_after_another(instance: Instance, timing_scale: float) -> None:
    before = memory_mib(instance.pid)
    for _ in range(1000):
        with socket.create_connection((instance.host, instance.port)) as client:
            client.sendall(STARTUP.encode())
            assert client.recv(1) == b"R"
    eventually(lambda: instance.metrics()["shoal_open_connections"] == 0, 10 * timing_scale)
    assert memory_mib(instance.pid) - before < 20


# --- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [b"Q", b"P", b"B", b"d", b"S", b"X", b"p", b"?"])
@pytest.mark.parametrize("length", [1_000_000_000, 0x7FFFFFFF, 0xFFFFFFFF, 3, 0])
def test_a_header_that_announces_too_much(instance: Instance, kind: bytes, length: int) -> None:
    with instance.connect() as other, Wire(instance).log_in() as wire:
        wire.socket.sendall(kind + struct.pack("!I", length) + b"x" * 100)
        answers = wire.read_all()
        assert [answer for answer, _ in answers] == ["E"]
        fields = error_fields(answers[0][1])
        assert (fields["S"], fields["C"]) == ("FATAL", "08P01")
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_garbage_behind_writes_that_are_under_way(instance: Instance) -> None:
    """They are answered, and then the garbage is."""
    with Wire(instance).log_in() as wire:
        wire.say(m.Parse("", "INSERT INTO t VALUES ($1, 'w')", (20,)), m.Sync())
        wire.read_until_ready()
        wire.socket.sendall(
            b"".join(
                message.encode()
                for number in (b"5001", b"5002")
                for message in (m.Bind("", "", (), (number,), ()), m.Execute("", 0))
            )
            + b"\xff\x00\x00\x00\x04"
        )
        answers = wire.read_all()
        assert [kind for kind, _ in answers] == list("2C2CE"), answers
        assert error_fields(answers[-1][1])["C"] == "08P01"
    with instance.connect() as connection:
        found = connection.execute("SELECT count(*) FROM t WHERE id IN (5001, 5002)").fetchone()
        assert found == (2,)


def test_frames_that_never_end_hold_only_what_has_come(instance: Instance) -> None:
    before = memory_mib(instance.pid)
    with instance.connect() as other:
        wires = [Wire(instance).log_in() for _ in range(15)]
        for wire in wires:
            wire.socket.sendall(b"Q" + struct.pack("!I", 200_000_000) + b"x" * 10_000)
        assert other.execute("SELECT 1").fetchone() == (1,)
        assert memory_mib(instance.pid) - before < 50
        for wire in wires:
            wire.socket.close()


# --- large statements ----------------------------------------------------------------------------


def test_a_hundred_large_values_in_one_insert(instance: Instance) -> None:
    value = "ü" * 65_536  # 128 KiB
    with instance.connect() as connection:
        connection.execute("DELETE FROM t")
        rows = ", ".join(["(%s, %s)"] * 100)
        parameters = [p for number in range(100) for p in (number, value)]
        assert connection.execute(f"INSERT INTO t VALUES {rows}".encode(), parameters).rowcount == 100
        found = connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
        assert found == [(number, value) for number in range(100)]
        literals = ", ".join(f"({number}, '{value}')" for number in range(100, 200))
        assert connection.execute(f"INSERT INTO t VALUES {literals}".encode()).rowcount == 100
        assert connection.execute("SELECT count(*) FROM t WHERE v = %s", (value,)).fetchone() == (200,)
        assert connection.execute("DELETE FROM t").rowcount == 200


def test_a_statement_of_ten_megabytes(instance: Instance) -> None:
    with instance.connect() as connection, instance.connect() as other:
        text = "x" * 10_000_000
        assert connection.execute(f"SELECT '{text}'".encode()).fetchone() == (text,)
        connection.execute("DELETE FROM t")
        rows = ", ".join(f"({number}, '{'y' * 80}')" for number in range(100_000))
        done = threading.Event()
        waited: list[float] = []

        def beside() -> None:
            while not done.is_set():
                other.execute("SELECT v FROM t WHERE id = -1")
                waited.append(1)

        thread = threading.Thread(target=beside)
        thread.start()
        try:
            assert connection.execute(f"INSERT INTO t VALUES {rows}".encode()).rowcount == 100_000
        finally:
            done.set()
            thread.join()
        assert len(waited) > 20  # others were served while it was read
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (100_000,)
        connection.execute("TRUNCATE t")
        # One that is wrong at its end says where.
        with pytest.raises(psycopg.errors.SyntaxError) as caught:
            connection.execute(f"INSERT INTO t VALUES {rows}, (1 2)".encode())
        assert caught.value.diag.statement_position == str(len(f"INSERT INTO t VALUES {rows}, (1 ") + 1)
        assert connection.execute("SELECT 1").fetchone() == (1,)


BOMBS = {
    "brackets": "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
    "open brackets": "SELECT " + "(" * 1_000_000,
    "not": "SELECT " + "NOT " * 100_000 + "TRUE",
    "minus": "SELECT " + "- " * 100_000 + "1",
    "casts": "SELECT 1" + "::int" * 100_000,
    "plus": "SELECT 1" + " + 1" * 100_000,
    "and": "SELECT TRUE" + " AND TRUE" * 100_000,
    "concatenation": "SELECT ''" + " || 'a'" * 100_000,
    "case": "SELECT " + "CASE WHEN TRUE THEN " * 20_000 + "1" + " END" * 20_000,
    "calls": "SELECT " + "abs(" * 50_000 + "1" + ")" * 50_000,
    "subqueries": "SELECT * FROM " + "(SELECT * FROM " * 20_000 + "t" + ") AS s" * 20_000,
    "scalar subqueries": "SELECT " + "(SELECT " * 20_000 + "1" + ")" * 20_000,
    "union": "SELECT 1" + " UNION SELECT 1" * 50_000,
    "union all": "SELECT 1" + " UNION ALL SELECT 1" * 50_000,
    "joins": "SELECT 1 FROM digits" + "".join(f" JOIN digits AS d{i} ON TRUE" for i in range(2_000)),
    "commas": "SELECT 1 FROM digits" + "".join(f", digits AS d{i}" for i in range(2_000)),
    "columns": "SELECT " + ", ".join(["1"] * 100_000),
    "columns of values": f"VALUES ({', '.join(['1'] * 100_000)})",
    "ctes": "WITH " + ", ".join(f"c{i} AS (SELECT 1 AS x)" for i in range(5_000)) + " SELECT x FROM c4999",
    "nested ctes": "WITH c0 AS (SELECT 1 AS x)"
    + "".join(f", c{i + 1} AS (SELECT a.x FROM c{i} AS a JOIN c{i} AS b ON TRUE)" for i in range(60))
    + " SELECT x FROM c60",
    "in": "SELECT 1 WHERE 1 IN (" + ", ".join(["2"] * 200_000) + ")",
    "when": "SELECT CASE 1 " + "WHEN 2 THEN 3 " * 50_000 + "END",
    "between": "SELECT 1 " + "BETWEEN 1 AND 2 = TRUE AND 1 " * 20_000 + "= 1",
    "arrays": "SELECT " + "ARRAY[" * 20_000 + "1" + "]" * 20_000,
    "indexes": "SELECT ARRAY[1]" + "[1]" * 20_000,
    "order by": "SELECT 1 ORDER BY " + ", ".join(["1"] * 100_000),
    "group by": "SELECT 1 FROM digits GROUP BY " + ", ".join(["n"] * 100_000),
    "comments": "SELECT " + "/* " * 100_000 + "1",
    "parameters": "SELECT $" + "9" * 1_000,
    "number": "SELECT " + "9" * 1_000_000,
    "exponent": "SELECT 1e999999999",
    "quoted": "SELECT '" + "''" * 3_000_000,
    "name": f"SELECT 1 AS {'x' * 1_000_000}",
    "statements": "SELECT 1;" * 20_000,
    "repeat": "SELECT repeat('x', 2000000000)",
    "repeated repeat": "SELECT length(repeat(repeat(repeat('x', 10000), 10000), 10000))",
    "replace": "SELECT length(replace(repeat('x', 100000), 'x', repeat('y', 100000)))",
    "like": f"SELECT repeat('a', 30000) LIKE '{'%a' * 2000}b'",
    "similar": f"SELECT repeat('a', 30000) SIMILAR TO '{'(a|aa)*' * 50}b'",
    "regex": f"SELECT substring(repeat('a', 30000) from '{'(a*)*' * 20}b')",
    "regex repetitions": "SELECT substring('a' from '((((a{1000}){1000}){1000}){1000})')",
    "decimal": "SELECT " + " * ".join(["99999999999999999999999999999999999999.0"] * 100),
    "values": "VALUES " + ", ".join(["(1)"] * 100_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_statements_that_explode(instance: Instance, timing_scale: float, name: str) -> None:
    """Refused or answered, in time and in memory; and nobody else waits for it."""
    before = memory_mib(instance.pid)
    with (
        instance.connect(options="-c statement_timeout=5s") as connection,
        instance.connect(options="-c statement_timeout=20s") as other,
    ):
        try:
            connection.execute(BOMBS[name].encode())
            outcome = "00000"
        except psycopg.Error as error:
            assert error.sqlstate is not None, error
            outcome = error.sqlstate
            assert len(str(error)) < 20_000
        assert outcome[:2] in ("00", "54", "42", "22", "57", "53", "0A"), outcome
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM digits").fetchone() == (10,)
    assert memory_mib(instance.pid) - before < 700
    assert threads(instance.pid) < 60


@pytest.mark.parametrize(
    "name", ["brackets", "not", "minus", "case", "calls", "subqueries", "scalar subqueries"]
)
def test_depth_is_bounded(instance: Instance, name: str) -> None:
    with instance.connect() as connection, pytest.raises(psycopg.errors.StatementTooComplex) as caught:
        connection.execute(BOMBS[name].encode())
    assert caught.value.sqlstate == "54001"
