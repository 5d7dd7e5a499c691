"""Users, roles and rights as clients meet them, on one instance."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.cluster import Instance, eventually
from tests.system.numbers import DIGITS, LONG_SELECT, numbers

PASSWORD = "Shoal-of-herring-1"
SECRET_LETTERS = "Kept-secret-77"

Connection = psycopg.Connection[tuple[Any, ...]]

_numbers = itertools.count(1)


def connect(instance: Instance, user: str, password: str = PASSWORD, **options: Any) -> Connection:
    url = instance.url(user=user, password=password)
    return psycopg.connect(url, **{"autocommit": True, "connect_timeout": 30, **options})


def refused_login(instance: Instance, user: str, password: str) -> bool:
    try:
        connect(instance, user, password).close()
    except psycopg.OperationalError as error:
        assert "authentication failed" in str(error), error
        return True
    return False


@pytest.fixture
def user(shared: Instance) -> str:
    name = f"user_{next(_numbers)}"
    shared.execute(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}'")
    return name


# --- rights --------------------------------------------------------------------------------------


def test_rights_come_and_go_under_a_prepared_statement(
    shared: Instance, user: str, table: Callable[[str], str]
) -> None:
    name = table("id INT PRIMARY KEY, a TEXT")
    with connect(shared, user) as conn, shared.connect() as admin:
        admin.execute(f"INSERT INTO {name} VALUES (1, 'one')".encode())

        def point_read() -> Any:
            return conn.execute(f"SELECT a FROM {name} WHERE id = %s".encode(), (1,), prepare=True).fetchone()

        def scan() -> Any:
            return conn.execute(
                f"SELECT count(*) FROM {name} WHERE a <> %s".encode(), ("",), prepare=True
            ).fetchone()

        def insert(key: int) -> int:
            text = f"INSERT INTO {name} VALUES (%s, 'more')".encode()
            return conn.execute(text, (key,), prepare=True).rowcount

        for _ in range(3):
            for ask in (point_read, scan, lambda: insert(2)):
                with pytest.raises(errors.InsufficientPrivilege):
                    ask()
            admin.execute(f"GRANT READ ON TABLE {name} TO {user}".encode())
            for _ in range(3):
                assert (point_read(), scan()) == (("one",), (1,))
            with pytest.raises(
                errors.InsufficientPrivilege, match=f"Write access to space '{name}' is denied"
            ):
                insert(2)
            admin.execute(f"GRANT WRITE ON TABLE {name} TO {user}".encode())
            assert insert(2) == 1
            assert conn.execute(f"DELETE FROM {name} WHERE id = 2".encode()).rowcount == 1
            admin.execute(f"REVOKE READ ON TABLE {name} FROM {user}".encode())
            admin.execute(f"REVOKE WRITE ON TABLE {name} FROM {user}".encode())


def test_nothing_is_had_on_a_side_way(shared: Instance, user: str, table: Callable[[str], str]) -> None:
    own, other = table("id INT PRIMARY KEY, a TEXT"), table("id INT PRIMARY KEY, secret TEXT")
    with connect(shared, user) as conn, shared.connect() as admin:
        admin.execute(f"INSERT INTO {other} VALUES (1, '{SECRET_LETTERS}')".encode())
        admin.execute(f"GRANT READ ON TABLE {own} TO {user}".encode())
        admin.execute(f"GRANT WRITE ON TABLE {own} TO {user}".encode())
        admin.execute(f"GRANT WRITE ON TABLE {other} TO {user}".encode())
        for text in (
            f"SELECT * FROM {other}",
            f"INSERT INTO {own} SELECT * FROM {other}",
            f"INSERT INTO {own} VALUES ((SELECT max(id) FROM {other}), 'x')",
            f"INSERT INTO {other} VALUES (2, 'x') RETURNING *",
            f"INSERT INTO {other} VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET secret = {other}.secret RETURNING 1",
            f"INSERT INTO {own} VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET a = (SELECT secret FROM {other})",
            f"UPDATE {own} SET a = secret FROM {other} WHERE {own}.id = {other}.id",
            f"UPDATE {own} SET a = (SELECT secret FROM {other} WHERE id = 1)",
            f"UPDATE {other} SET id = id",
            f"DELETE FROM {other} WHERE secret LIKE 'K%'",
            f"DELETE FROM {own} WHERE EXISTS (SELECT 1 FROM {other})",
            f"WITH x AS (SELECT * FROM {other}) SELECT 1",
            f"SELECT 1 WHERE false AND 1 IN (SELECT id FROM {other})",
            f"SELECT a FROM {own} UNION ALL SELECT secret FROM {other}",
            f"SELECT * FROM {own} AS x JOIN {other} AS y ON x.id = y.id",
            f"EXPLAIN SELECT * FROM {other} WHERE secret = 'x'",
            f"EXPLAIN (RAW) UPDATE {own} SET a = (SELECT secret FROM {other})",
            f"SELECT no_such_column FROM {other}",
            "SELECT auth FROM _pico_user",
            "SELECT name FROM _pico_user AS u WHERE u.auth IS NOT NULL",
            "SELECT * FROM _pico_privilege",
            "UPDATE _pico_user SET auth = NULL",
            "INSERT INTO _pico_privilege VALUES (1, 1, 'read', 'table', -1, 0)",
            "EXPLAIN SELECT * FROM _pico_user",
            f"ALTER TABLE {other} RENAME no_such_column TO x",
            f"CREATE INDEX i ON {other} (secret)",
            f"DROP TABLE {other}",
            f"GRANT READ ON TABLE {other} TO {user}",
            f"GRANT READ TABLE TO {user}",
            f"GRANT super TO {user}",
            f"ALTER USER admin WITH PASSWORD '{PASSWORD}'",
            "CREATE ROLE mine",
            "CREATE TABLE mine (id INT PRIMARY KEY)",
            "ALTER SYSTEM SET auth_login_attempt_max = 1000",
            "ALTER SYSTEM EXPEL INSTANCE 'c1f0a1b2-0000-4000-8000-000000000000'",
        ):
            for prepared in (False, True):
                with pytest.raises(errors.InsufficientPrivilege) as refused:
                    conn.execute(text.encode(), prepare=prepared).fetchall()
                assert SECRET_LETTERS not in str(refused.value)
        # What drivers ask, and what is about nobody's rows, is everybody's.
        assert conn.execute("SELECT 1").fetchone() == (1,)
        assert conn.execute("SELECT count(*) FROM pg_type").fetchone() is not None
        assert conn.execute("SELECT current_user").fetchone() == (user,)
        assert conn.execute("SHOW is_superuser").fetchone() == ("off",)
        assert conn.execute(f"INSERT INTO {other} VALUES (3, 'x')".encode()).rowcount == 1
        # Many rows of one long text go another way.
        rows = ", ".join(f"({n}, '{'x' * 20}')" for n in range(100, 900))
        assert conn.execute(f"INSERT INTO {other} VALUES {rows}".encode()).rowcount == 800
        admin.execute(f"REVOKE WRITE ON TABLE {other} FROM {user}".encode())
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute(f"INSERT INTO {other} VALUES {rows.replace('(1', '(2')}".encode())


def test_names_are_only_names(shared: Instance) -> None:
    with shared.connect() as admin:
        before = admin.execute("SELECT count(*) FROM _pico_user").fetchone()
        for name in (
            "x'; DROP USER admin; --",
            'a"b',
            "ß",
            "x\\",
            "'",
            "; SELECT",
            "SELECT",
            "Kapitän Ahab",
            "%s",
            "{}",
        ):
            quoted = '"' + name.replace('"', '""') + '"'
            admin.execute(f"CREATE USER {quoted} WITH PASSWORD '{PASSWORD}'".encode())
            admin.execute(f"GRANT CREATE TABLE TO {quoted}".encode())
            with psycopg.connect(
                host=shared.host,
                port=shared.port,
                user=name,
                password=PASSWORD,
                dbname="shoal",
                autocommit=True,
            ) as conn:
                assert conn.execute("SELECT current_user").fetchone() == (name,)
                with pytest.raises(errors.InsufficientPrivilege) as refused:
                    conn.execute("SELECT * FROM _pico_table")
                assert f"denied for user '{name}'" in str(refused.value)
            admin.execute(f"DROP USER {quoted}".encode())
        assert admin.execute("SELECT count(*) FROM _pico_user").fetchone() == before


def test_owners(shared: Instance, user: str) -> None:
    with connect(shared, user) as conn, shared.connect() as admin:
        admin.execute(f"GRANT CREATE TABLE TO {user}".encode())
        name = f"of_{user}"
        conn.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT)".encode())
        conn.execute(f"INSERT INTO {name} VALUES (1, 1)".encode())
        conn.execute(f"CREATE INDEX {name}_a ON {name} (a)".encode())
        conn.execute(f"ALTER TABLE {name} ADD COLUMN b INT".encode())
        assert conn.execute(f"SELECT * FROM {name}".encode()).fetchall() == [(1, 1, None)]
        with pytest.raises(errors.DependentObjectsStillExist) as refused:
            admin.execute(f"DROP USER {user}".encode())
        assert refused.value.diag.message_detail == f"It owns table {name}."
        conn.execute(f"GRANT READ ON TABLE {name} TO public".encode())
        admin.execute(f"REVOKE CREATE TABLE FROM {user}".encode())
        conn.execute(f"TRUNCATE {name}".encode())
        conn.execute(f"DROP TABLE {name}".encode())


def test_tags_and_rows(shared: Instance) -> None:
    with shared.connect() as admin:
        for text, tag in (
            (f"CREATE USER tagged WITH PASSWORD '{PASSWORD}'", "CREATE ROLE"),
            (f"CREATE USER IF NOT EXISTS tagged WITH PASSWORD '{PASSWORD}' USING md5", "CREATE ROLE"),
            ("CREATE ROLE tagger", "CREATE ROLE"),
            ("ALTER USER tagged NOLOGIN", "ALTER ROLE"),
            ("ALTER USER tagged RENAME TO tagged_too", "ALTER ROLE"),
            (f"ALTER USER tagged_too PASSWORD '{PASSWORD}' USING md5", "ALTER ROLE"),
            ("GRANT READ TABLE TO tagger", "GRANT"),
            ("GRANT tagger TO tagged_too", "GRANT ROLE"),
            ("REVOKE READ TABLE FROM tagger", "REVOKE"),
            ("REVOKE tagger FROM tagged_too", "REVOKE ROLE"),
            ("DROP ROLE tagger", "DROP ROLE"),
        ):
            assert admin.execute(text.encode()).statusmessage == tag
        row = admin.execute(
            "SELECT id, auth, owner, type FROM _pico_user WHERE name = 'tagged_too'"
        ).fetchone()
        assert row is not None
        user_id, auth, owner, kind = row
        assert (owner, kind, auth[0], len(auth[1])) == (1, "user", "md5", 35)
        privileges = admin.execute(
            "SELECT grantor_id, privilege, object_type, object_id FROM _pico_privilege WHERE grantee_id = %s",
            (user_id,),
        ).fetchall()
        assert privileges == [(1, "execute", "role", 2)]
        admin.execute("DROP USER tagged_too")
        assert admin.execute(
            "SELECT count(*) FROM _pico_privilege WHERE grantee_id = %s", (user_id,)
        ).fetchone() == (0,)


def test_the_schema_version_moves(shared: Instance, user: str) -> None:
    def version() -> int:
        row = admin.execute("SELECT value FROM _pico_property WHERE key = 'global_schema_version'").fetchone()
        assert row is not None
        return int(row[0])

    with shared.connect() as admin:
        before = version()
        admin.execute(f"GRANT READ TABLE TO {user}".encode())
        granted = version()
        assert granted > before
        admin.execute(f"GRANT READ TABLE TO {user}".encode())
        assert version() == granted
        assert admin.execute(
            "SELECT schema_version FROM _pico_privilege WHERE privilege = 'read' AND object_id = -1"
            " AND grantee_id = (SELECT id FROM _pico_user WHERE name = %s)",
            (user,),
        ).fetchone() == (granted,)


# --- REVOKE under load ---------------------------------------------------------------------------


@contextlib.contextmanager
def load(work: Callable[[], None], threads: int) -> Iterator[list[BaseException]]:
    """Runs it again and again, on each thread; what it raised at last."""
    raised: list[BaseException] = []
    stopping = threading.Event()

    def run() -> None:
        try:
            while not stopping.is_set():
                work()
        except BaseException as error:
            raised.append(error)

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield raised
    finally:
        stopping.set()
        for thread in running:
            thread.join()


def test_revoke_under_load(
    shared: Instance, user: str, table: Callable[[str], str], timing_scale: float
) -> None:
    """What was sent after REVOKE had returned is refused, and by then all that was let in before is done."""
    name = table("id INT PRIMARY KEY, n INT")
    keys, local = itertools.count(1), threading.local()
    connections: list[Connection] = []
    done_at: list[float] = []
    sent_late: list[float] = []
    revoked_at: list[float] = []

    def work() -> None:
        if not hasattr(local, "conn"):
            local.conn = connect(shared, user)
            connections.append(local.conn)
        began = time.monotonic()
        with local.conn.pipeline():
            for _ in range(20):
                local.conn.execute(f"INSERT INTO {name} VALUES (%s, 0)".encode(), (next(keys),), prepare=True)
        done_at.append(time.monotonic())
        if revoked_at and began > revoked_at[0]:
            sent_late.append(began)

    with shared.connect() as admin:
        admin.execute(f"GRANT WRITE ON TABLE {name} TO {user}".encode())
        with load(work, 4) as raised:
            eventually(lambda: len(done_at) > 40, 30 * timing_scale, "the load has begun")
            admin.execute(f"REVOKE WRITE ON TABLE {name} FROM {user}".encode())
            count = admin.execute(f"SELECT count(*) FROM {name}".encode()).fetchone()
            revoked_at.append(time.monotonic())
            eventually(lambda: len(raised) == 4, 30 * timing_scale, "all are refused")
            assert all(isinstance(error, errors.InsufficientPrivilege) for error in raised), raised
        for connection in connections:
            connection.close()
        assert not sent_late
        assert admin.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() == count


def test_a_read_under_way_goes_no_further(shared: Instance, user: str, timing_scale: float) -> None:
    """Its client reads slowly: when the right goes, most of the rows are still to come."""
    shared.execute(*DIGITS, f"GRANT READ ON TABLE digits TO {user}")
    with connect(shared, user) as conn, shared.connect() as admin:
        wide = f"SELECT '{'x' * 1000}' AS x FROM ({numbers(5)}) AS n"
        rows = conn.cursor().stream(wide.encode())
        assert len(next(rows)[0]) == 1000
        admin.execute(f"REVOKE READ ON TABLE digits FROM {user}".encode())
        count = 1
        with pytest.raises(errors.InsufficientPrivilege):
            for _ in rows:
                count += 1
        assert count < 100_000
        assert conn.execute("SELECT 1").fetchone() == (1,)


# --- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["DROP USER {}", "ALTER USER {} NOLOGIN"])
def test_whoever_may_not_log_in_has_no_session(
    shared: Instance, user: str, ending: str, timing_scale: float
) -> None:
    shared.execute(*DIGITS, f"GRANT READ ON TABLE digits TO {user}")
    idle, busy = connect(shared, user), connect(shared, user)
    raised: list[BaseException] = []

    def long() -> None:
        try:
            busy.execute(LONG_SELECT.encode())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=long)
    thread.start()
    with shared.connect() as admin:
        active = psycopg.pq.TransactionStatus.ACTIVE
        eventually(lambda: busy.pgconn.transaction_status == active, 10 * timing_scale, "it is sent")
        admin.execute(ending.format(user).encode())
        with pytest.raises(errors.AdminShutdown, match="the user may not log in any more"):
            idle.execute("SELECT 1")
        assert idle.closed
        thread.join(30 * timing_scale)
        assert isinstance(raised[0], errors.AdminShutdown), raised
        assert refused_login(shared, user, PASSWORD)
        # A new user of this name is another one.
        if ending.startswith("DROP"):
            admin.execute(f"CREATE USER {user} WITH PASSWORD '{PASSWORD}'".encode())
        else:
            admin.execute(f"ALTER USER {user} LOGIN".encode())
        connect(shared, user).close()


def test_a_renamed_user_and_one_with_another_password_go_on(shared: Instance, user: str) -> None:
    with connect(shared, user) as conn, shared.connect() as admin:
        admin.execute(f"ALTER USER {user} RENAME TO {user}_renamed".encode())
        conn.execute(f"ALTER USER {user}_renamed WITH PASSWORD 'Another-{PASSWORD}'".encode())
        assert conn.execute("SELECT 1").fetchone() == (1,)
        assert refused_login(shared, user, PASSWORD)
        assert refused_login(shared, f"{user}_renamed", PASSWORD)
        connect(shared, f"{user}_renamed", f"Another-{PASSWORD}").close()
        notices: list[str] = []
        admin.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        admin.execute(f"ALTER USER {user}_renamed WITH PASSWORD '{PASSWORD}' USING md5".encode())
        connect(shared, f"{user}_renamed").close()
        admin.execute(f"ALTER USER {user}_renamed RENAME TO {user}".encode())
        assert notices == ["MD5 password cleared because of role rename"]
        assert refused_login(shared, user, PASSWORD)


# --- wrong passwords -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["md5", "scram-sha-256"])
def test_four_wrong_passwords_lock_a_user(
    shared: Instance, user: str, method: str, timing_scale: float
) -> None:
    with shared.connect() as admin:
        admin.execute(f"ALTER USER {user} WITH PASSWORD '{PASSWORD}' USING {method}".encode())
        for _ in range(3):  # a right one ends the row
            for _ in range(3):
                assert refused_login(shared, user, "wrong")
            connect(shared, user).close()
        for _ in range(4):
            assert refused_login(shared, user, "wrong")
        assert refused_login(shared, user, PASSWORD), "from that moment on"

        def may_log_in() -> bool:
            row = admin.execute(
                "SELECT count(*) FROM _pico_privilege WHERE privilege = 'login' AND grantee_id ="
                " (SELECT id FROM _pico_user WHERE name = %s)",
                (user,),
            ).fetchone()
            return row == (1,)

        eventually(lambda: not may_log_in(), 10 * timing_scale, "it is locked in the catalog")
        blocked = f"Maximum number of login attempts exceeded; user '{user}' blocked"
        eventually(lambda: blocked in shared.log(), 10 * timing_scale, "the log tells of it")
        admin.execute(f"ALTER USER {user} LOGIN".encode())
        for _ in range(3):
            assert refused_login(shared, user, "wrong")
        connect(shared, user).close()


def test_a_flood_of_wrong_passwords_is_no_flood_of_entries(shared: Instance, user: str) -> None:
    def flood() -> None:
        for number in range(60):
            assert refused_login(shared, user if number % 2 else f"nobody_{number}", "wrong")

    with shared.connect() as admin:
        admin.execute(f"GRANT READ TABLE TO {user}".encode())
        before = shared.raft()["applied"]
        threads = [threading.Thread(target=flood) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # A barrier: what the flood has proposed, if anything, is before it.
        admin.execute(f"REVOKE READ TABLE FROM {user}".encode())
        assert shared.raft()["applied"] - before == 2, "one lock, and our own"


def test_many_connections_at_once_get_no_more_guesses(shared: Instance, user: str) -> None:
    """They are asked before the first one has failed, and answer afterwards."""
    results: list[bool] = []
    barrier = threading.Barrier(12)

    def guess(number: int) -> None:
        password = PASSWORD if number == 11 else "wrong"
        barrier.wait()
        if number == 11:
            for _ in range(8):  # behind the others
                results.append(refused_login(shared, user, password))
        else:
            refused_login(shared, user, password)

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused_login(shared, user, PASSWORD)


def test_the_rules_for_passwords_are_settings(shared: Instance) -> None:
    with shared.connect() as admin:
        for wrong in ("Tiny1", "nouppercase1", "NOLOWERCASE1", "NoDigitsHere"):
            with pytest.raises(errors.InvalidParameterValue) as refused:
                admin.execute(f"CREATE USER ruled WITH PASSWORD '{wrong}'".encode())
            assert wrong not in str(refused.value)
        admin.execute("ALTER SYSTEM SET auth_password_length_min = 3")
        admin.execute("ALTER SYSTEM SET auth_password_enforce_uppercase = false")
        admin.execute("ALTER SYSTEM SET auth_password_enforce_digits = false")
        try:
            admin.execute("CREATE USER ruled WITH PASSWORD 'abc'")
            with pytest.raises(errors.InvalidParameterValue, match="expected bool, got integer"):
                admin.execute("ALTER SYSTEM SET auth_password_enforce_digits = 1")
            with pytest.raises(errors.InvalidParameterValue):
                admin.execute("ALTER SYSTEM SET auth_login_attempt_max = -1")
        finally:
            admin.execute("ALTER SYSTEM RESET ALL")
        connect(shared, "ruled", "abc").close()
        admin.execute("DROP USER ruled")


def test_no_password_is_told_to_anybody(own: Instance) -> None:
    with own.connect() as admin:
        admin.execute(f"CREATE USER ann WITH PASSWORD '{SECRET_LETTERS}'")
        admin.execute(f"ALTER USER ann WITH PASSWORD '{SECRET_LETTERS}x' USING md5")
        for text in (
            f"CREATE USER bob WITH PASSWORD '{SECRET_LETTERS}' nonsense",
            f"ALTER USER nobody WITH PASSWORD '{SECRET_LETTERS}'",
            f"CREATE USER ann WITH PASSWORD '{SECRET_LETTERS}'",
        ):
            with pytest.raises(psycopg.Error) as refused:
                admin.execute(text.encode())
            assert SECRET_LETTERS not in str(refused.value.diag.message_primary)
            assert SECRET_LETTERS not in str(refused.value.diag.message_detail)
        assert refused_login(own, "ann", f"{SECRET_LETTERS}y")
        with connect(own, "ann", f"{SECRET_LETTERS}x") as conn:
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute("SELECT auth FROM _pico_user")
    own.stop()
    assert SECRET_LETTERS not in own.log()
    for path in own.directory.rglob("*"):
        if path.is_file():
            assert SECRET_LETTERS.encode() not in path.read_bytes(), path
