"""Users and rights of a cluster: what is changed at one instance counts at all of them."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from shoal.pgwire.messages import (
    AuthenticationSASL,
    AuthenticationSASLContinue,
    SASLInitialResponse,
    StartupMessage,
)
from tests.cluster import Cluster, Instance, eventually
from tests.interop.raw_client import RawClient
from tests.system.test_users import PASSWORD, Connection, connect, load, refused_login

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("three"), 3, timing_scale=timing_scale)
    try:
        cluster.start()
        cluster.settle()
        cluster.instances[0].execute("CREATE TABLE log (id TEXT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")
        yield cluster
        assert not cluster.bugs(), cluster.bugs()
    finally:
        cluster.close()


@pytest.fixture
def user(three: Cluster) -> str:
    name = f"user_{next(_numbers)}"
    three.instances[1].execute(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}'")
    return name


def notices_of(connection: Connection) -> list[str]:
    told: list[str] = []
    connection.add_notice_handler(lambda notice: told.append(f"{notice.severity} {notice.message_primary}"))
    return told


def test_it_counts_everywhere_when_it_returns(three: Cluster, user: str) -> None:
    """Created at the second, granted at the third, used at the first; and so on, without a pause."""
    sessions = [connect(instance, user) for instance in three.instances]
    admins = [instance.connect() for instance in three.instances]
    for round_ in range(12):
        at = admins[round_ % 3]
        at.execute(f"GRANT READ ON TABLE log TO {user}".encode())
        for session in sessions:
            session.execute("SELECT * FROM log WHERE id = 'x'", prepare=True)
            session.execute("SELECT count(*) FROM log")
        at.execute(f"REVOKE READ ON TABLE log FROM {user}".encode())
        for session in sessions:
            for text in ("SELECT * FROM log WHERE id = 'x'", "SELECT count(*) FROM log"):
                with pytest.raises(errors.InsufficientPrivilege):
                    session.execute(text, prepare=True)
    admins[0].execute(f"DROP USER {user}".encode())
    for instance, session in zip(three.instances, sessions, strict=True):
        with pytest.raises(errors.AdminShutdown):
            session.execute("SELECT 1")
        assert refused_login(instance, user, PASSWORD)
    for admin in admins:
        admin.close()


def test_revoke_under_load(three: Cluster, user: str, timing_scale: float) -> None:
    """Clients write and read at every instance. What was sent after REVOKE had returned is refused at all of them, and
    nothing of them is written after that."""
    reader, writer = user, f"{user}_w"
    with three.instances[0].connect() as admin:
        admin.execute(f"CREATE USER {writer} WITH PASSWORD '{PASSWORD}'".encode())
        admin.execute(f"GRANT READ ON TABLE log TO {reader}".encode())
        admin.execute(f"GRANT WRITE ON TABLE log TO {writer}".encode())
        revoked_at: list[float] = []
        late: list[str] = []
        done = itertools.count()
        connections: list[Connection] = []
        which, local = itertools.count(), threading.local()

        def session(name: str) -> Connection:
            if not hasattr(local, "conn"):
                local.conn = connect(three.instances[next(which) % 3], name)
                local.key = f"{name} {next(which)}"
                connections.append(local.conn)
            conn: Connection = local.conn
            return conn

        def read() -> None:
            conn, began = session(reader), time.monotonic()
            conn.execute("SELECT n FROM log WHERE id = %s", ("x",), prepare=True)
            next(done)
            if revoked_at and began > revoked_at[0]:
                late.append(f"read at {began}")

        def write() -> None:
            conn, began = session(writer), time.monotonic()
            conn.execute("INSERT INTO log VALUES (%s, 0)", (f"{local.key} {next(done)}",), prepare=True)
            if revoked_at and began > revoked_at[0]:
                late.append(f"write at {began}")

        with load(read, 3) as readers, load(write, 3) as writers:
            eventually(lambda: next(done) > 300, 60 * timing_scale, "the load has begun")
            admin.execute(f"REVOKE READ ON TABLE log FROM {reader}".encode())
            admin.execute(f"REVOKE WRITE ON TABLE log FROM {writer}".encode())
            revoked_at.append(time.monotonic())
            counts = [
                instance.connect().execute("SELECT count(*) FROM log").fetchone()
                for instance in three.instances
            ]
            eventually(lambda: len(readers) == len(writers) == 3, 30 * timing_scale, "all are refused")
        for error in (*readers, *writers):
            assert isinstance(error, errors.InsufficientPrivilege), error
        for connection in connections:
            connection.close()
        assert not late
        assert len(set(counts)) == 1
        assert admin.execute("SELECT count(*) FROM log").fetchone() == counts[0]


def test_names_and_ids_are_unique_whoever_creates(three: Cluster) -> None:
    """Three clients at three instances create, rename and drop the same few users at the same time."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        rng = random.Random(number)
        try:
            with three.instances[number].connect() as admin:
                for _ in range(25):
                    name, other = (f"busy_{rng.randrange(4)}" for _ in range(2))
                    text = rng.choice(
                        (
                            f"CREATE USER {name} WITH PASSWORD '{PASSWORD}'",
                            f"CREATE ROLE {name}",
                            f"DROP USER IF EXISTS {name}",
                            f"DROP ROLE IF EXISTS {name}",
                            f"ALTER USER {name} RENAME TO {other}",
                            f"GRANT {name} TO {other}",
                            f"GRANT READ ON TABLE log TO {name}",
                        )
                    )
                    try:
                        admin.execute(text.encode())
                    except (errors.DuplicateObject, errors.UndefinedObject, errors.InvalidGrantOperation):
                        pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    three.same_everywhere()
    with three.instances[0].connect() as admin:
        rows = admin.execute("SELECT id, name FROM _pico_user").fetchall()
        assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == len(rows)
        for user_id, grantee in admin.execute(
            "SELECT object_id, grantee_id FROM _pico_privilege WHERE object_type = 'role' AND object_id > 0"
        ).fetchall():
            assert {user_id, grantee} <= {row[0] for row in rows}, "no grant outlives its role"
        for _, name in rows:
            if name.startswith("busy_"):
                for kind in ("USER", "ROLE"):
                    admin.execute(f"DROP {kind} IF EXISTS {name}".encode())


def test_rights_and_schema_changes_are_in_one_line(three: Cluster, user: str) -> None:
    """While the right to create tables comes and goes, its holder creates some elsewhere: a table is there exactly if
    its CREATE TABLE was not refused."""
    created: list[str] = []
    refused = 0
    stopping = threading.Event()

    def come_and_go() -> None:
        with three.instances[0].connect() as admin:
            while not stopping.is_set():
                admin.execute(f"GRANT CREATE TABLE TO {user}".encode())
                admin.execute(f"REVOKE CREATE TABLE FROM {user}".encode())

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        with connect(three.instances[2], user) as conn:
            for number in range(40):
                name = f"{user}_t{number}"
                try:
                    conn.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY".encode())
                except errors.InsufficientPrivilege:
                    refused += 1
                else:
                    created.append(name)
    finally:
        stopping.set()
        thread.join()
    assert created
    assert refused
    three.same_everywhere()
    with three.instances[1].connect() as admin:
        found = admin.execute("SELECT name FROM _pico_table WHERE name LIKE %s", (f"{user}_t%",)).fetchall()
        assert sorted(name for (name,) in found) == sorted(created)
        with pytest.raises(errors.DependentObjectsStillExist):
            admin.execute(f"DROP USER {user}".encode())
        for name in created:
            admin.execute(f"DROP TABLE {name}".encode())
        admin.execute(f"DROP USER {user}".encode())


# --- wrong passwords -----------------------------------------------------------------------------


def is_locked(instance: Instance, user: str) -> bool:
    with instance.connect() as admin:
        row = admin.execute(
            "SELECT count(*) FROM _pico_privilege WHERE privilege = 'login' AND grantee_id ="
            " (SELECT id FROM _pico_user WHERE name = %s)",
            (user,),
        ).fetchone()
    return row == (0,)


def test_wrong_passwords_are_counted_together(three: Cluster, user: str, timing_scale: float) -> None:
    for instance in (*three.instances, three.instances[0]):  # one or two at each
        assert refused_login(instance, user, "wrong")
    for instance in three.instances:
        eventually(lambda instance=instance: is_locked(instance, user), 10 * timing_scale, "it is locked")  # type: ignore[misc]
        assert refused_login(instance, user, PASSWORD)
    three.instances[2].execute(f"ALTER USER {user} LOGIN")
    for instance in three.instances:
        connect(instance, user).close()


def test_a_right_one_ends_the_row_everywhere(three: Cluster, user: str, timing_scale: float) -> None:
    one, two, _ = three.instances
    for _ in range(4):
        for _ in range(2):
            assert refused_login(one, user, "wrong")
        # The other one hears of them within a moment, and then of the end of the row here.
        time.sleep(0.3 * timing_scale)
        connect(two, user).close()
        time.sleep(0.3 * timing_scale)
    assert not is_locked(one, user)
    connect(one, user).close()


def test_a_flood_at_all_instances_is_one_entry(three: Cluster, user: str, timing_scale: float) -> None:
    def flood(instance: Instance) -> None:
        for _ in range(40):
            assert refused_login(instance, user, "wrong")

    # Nothing else is going on: each entry is of the flood.
    three.settle()
    before = three.instances[0].raft()["applied"]
    threads = [threading.Thread(target=flood, args=(instance,)) for instance in three.instances * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: is_locked(three.instances[0], user), 10 * timing_scale, "it is locked")
    time.sleep(2 * timing_scale)  # whoever only heard of it has asked for the lock by now, if it was going to
    assert three.instances[0].raft()["applied"] - before == 1


def test_strangers_are_asked_alike_everywhere(three: Cluster, user: str) -> None:
    """The salt of a user that doesn't exist is the same at each instance and each time, as those of real ones are."""

    def challenge(instance: Instance, name: str) -> tuple[str, str]:
        with RawClient(instance) as client:
            client.say(StartupMessage(3, 0, (("user", name),)))
            assert client.until(AuthenticationSASL).mechanisms == ("SCRAM-SHA-256",)
            client.say(SASLInitialResponse("SCRAM-SHA-256", b"n,,n=,r=abcdefghijklmnop"))
            first = client.until(AuthenticationSASLContinue).challenge.decode()
        parts = dict(part.split("=", 1) for part in first.split(","))
        return parts["s"], parts["i"]

    for name in (user, "nobody", "somebody"):
        assert len({challenge(instance, name) for instance in three.instances for _ in range(2)}) == 1
    salts = {challenge(three.instances[0], name)[0] for name in (user, "nobody", "somebody")}
    assert len(salts) == 3


# --- who can't be reached ------------------------------------------------------------------------


def test_who_has_not_confirmed_is_named(three: Cluster, user: str, timing_scale: float) -> None:
    """In an error where something was taken away, in a notice otherwise. It is committed all the same."""
    admin_at = three.await_leader()
    frozen = next(instance for instance in three.instances if instance is not admin_at)
    named = f"not acknowledged by all instances: {frozen.running.name}"
    # Longer than the test freezes it, so that it stays Online.
    admin_at.execute(f"ALTER SYSTEM SET governor_auto_offline_timeout = {30 * timing_scale}")
    with admin_at.connect() as admin:
        told = notices_of(admin)
        admin.execute(f"GRANT READ ON TABLE log TO {user}".encode())
        session = connect(frozen, user)
        session.execute("SELECT count(*) FROM log")
        assert told == []
        with frozen.frozen():
            limit = f"OPTION (TIMEOUT = {1.0 * timing_scale})"
            began = time.monotonic()
            with pytest.raises(psycopg.Error, match=named) as refused:
                admin.execute(f"REVOKE READ ON TABLE log FROM {user} {limit}".encode())
            assert 0.9 * timing_scale < time.monotonic() - began < 10 * timing_scale
            assert refused.value.sqlstate == "57S01"
            # It is so by now, and that is told as well; who doesn't ask is told nothing.
            with pytest.raises(psycopg.Error, match=named):
                admin.execute(f"REVOKE READ ON TABLE log FROM {user} {limit}".encode())
            admin.execute(f"REVOKE READ ON TABLE log FROM {user} WAIT APPLIED LOCALLY".encode())
            assert told == []
            admin.execute(f"GRANT READ TABLE TO {user} {limit}".encode())
            assert told == [f"WARNING the change is committed, and {named}"]
            told.clear()
            for text in (
                f"ALTER USER {user} WITH PASSWORD '{PASSWORD}'",
                f"REVOKE READ TABLE FROM {user}",
                f"ALTER USER {user} NOLOGIN",
            ):
                with pytest.raises(psycopg.Error, match=named) as refused:
                    admin.execute(f"{text} {limit}".encode())
                assert refused.value.sqlstate == "57S01"
        # What is so already is confirmed, too.
        admin.execute(f"ALTER USER {user} NOLOGIN OPTION (TIMEOUT = {30 * timing_scale})".encode())
        with pytest.raises(errors.AdminShutdown):
            session.execute("SELECT count(*) FROM log")
        session.close()
        assert told == []
        admin.execute("ALTER SYSTEM RESET governor_auto_offline_timeout")


def test_nobody_waits_for_who_is_offline(three: Cluster, user: str, timing_scale: float) -> None:
    admin_at = three.await_leader()
    lost = next(instance for instance in three.instances if instance is not admin_at)
    with admin_at.connect() as admin:
        admin.execute(f"GRANT READ TABLE TO {user}".encode())
        lost.kill()
        began = time.monotonic()
        # It was Online a moment ago: either it is found Offline meanwhile, and named, or before.
        with contextlib.suppress(psycopg.Error):
            admin.execute(f"REVOKE READ TABLE FROM {user}".encode())
        admin.execute(f"REVOKE READ TABLE FROM {user}".encode())
        assert time.monotonic() - began < 8 * timing_scale
        lost.start()
        with connect(lost, user) as session, pytest.raises(errors.InsufficientPrivilege):
            session.execute("SELECT count(*) FROM log")
    three.settle()
