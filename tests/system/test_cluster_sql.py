"""Global tables and the catalog through every instance of a cluster: compare-and-swap as SQL shows it, deadlines, settings, and
what each instance says of itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tests.cluster import Cluster, Instance, eventually
from tests.system.clients import Connection, rows, sqlstate

Clusters = Callable[..., Cluster]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Cluster]:
    """Shared by the tests of this module: each leaves it whole, with links that are healed."""
    cluster = Cluster(tmp_path_factory.mktemp("three"), 3, links=True, timing_scale=timing_scale)
    try:
        cluster.start()
        cluster.settle()
        yield cluster
        assert not cluster.bugs(), cluster.bugs()
    finally:
        cluster.close()


def through_all(
    cluster: Cluster, client: Callable[[Connection, int], None], clients_per_instance: int = 2
) -> None:
    """Each client with its number, all at once, when every instance has what was done before; raises the first failure."""
    cluster.same_everywhere()
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(cluster.instances) * clients_per_instance)

    def run(instance: Instance, number: int) -> None:
        try:
            with instance.connect() as connection:
                barrier.wait(60)
                client(connection, number)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [
        threading.Thread(target=run, args=(instance, at * clients_per_instance + number))
        for at, instance in enumerate(cluster.instances)
        for number in range(clients_per_instance)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# --- conflicts -----------------------------------------------------------------------------------


def test_no_update_is_lost(three: Cluster) -> None:
    three.instances[0].execute(
        "CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL) DISTRIBUTED GLOBALLY",
        "INSERT INTO counters VALUES (1, 0)",
    )
    returned: list[int] = []

    def count(connection: Connection, number: int) -> None:
        for _ in range(30):
            cursor = connection.execute("UPDATE counters SET n = n + 1 WHERE id = 1 RETURNING n")
            returned.extend(row[0] for row in cursor)

    through_all(three, count)
    assert sorted(returned) == list(range(1, 181))
    contents = three.same_everywhere()
    assert contents["counters"] == ["(1, 180)"]


def test_a_decision_rests_on_all_that_it_has_read(three: Cluster) -> None:
    """Each row says how many there were before it: of those that others write meanwhile, too."""
    three.instances[0].execute(
        "CREATE TABLE numbers (id INT PRIMARY KEY, place INT NOT NULL) DISTRIBUTED GLOBALLY",
        "CREATE TABLE greatest (id INT PRIMARY KEY, client INT NOT NULL) DISTRIBUTED GLOBALLY",
    )

    def take(connection: Connection, number: int) -> None:
        for n in range(10):
            connection.execute(
                "INSERT INTO numbers SELECT %s::INT, count(*) FROM numbers", (number * 100 + n,)
            )
            connection.execute(
                "INSERT INTO greatest SELECT COALESCE(max(id), 0) + 1, %s::INT FROM greatest", (number,)
            )

    through_all(three, take)
    three.same_everywhere()
    asked = three.instances[1]
    assert rows(asked, "SELECT place FROM numbers ORDER BY place") == [(n,) for n in range(60)]
    assert rows(asked, "SELECT id FROM greatest ORDER BY id") == [(n,) for n in range(1, 61)]


def test_one_unique_value_is_given_to_one(three: Cluster) -> None:
    """Two rows with one value under a unique index would stop every instance that applied the second."""
    three.instances[0].execute(
        "CREATE TABLE names (id INT PRIMARY KEY, name TEXT NOT NULL) DISTRIBUTED GLOBALLY",
        "CREATE UNIQUE INDEX names_name ON names (name)",
    )
    got: list[tuple[str, int]] = []
    refused: list[str] = []
    rounds = threading.Barrier(6)

    def ask(connection: Connection, number: int) -> None:
        for n in range(15):
            name = f"name {n}"
            rounds.wait(60)
            state = sqlstate(connection, "INSERT INTO names VALUES (%s, %s)", n * 100 + number, name)
            (got.append((name, number)) if state == "00000" else refused.append(state))

    through_all(three, ask)
    three.same_everywhere()
    assert sorted(name for name, _ in got) == sorted(f"name {n}" for n in range(15))
    assert refused == ["23505"] * 75
    found = rows(three.instances[2], "SELECT name, id % 100 FROM names")
    assert sorted(found) == sorted(got)
    # By an update, and by a value that has just become free.
    first, second = (instance.connect() for instance in three.instances[:2])
    with first, second:
        (taken, other) = (sorted(got)[0][0], sorted(got)[1][0])
        assert sqlstate(first, "UPDATE names SET name = %s WHERE name = %s", taken, other) == "23505"
        first.execute("DELETE FROM names WHERE name = %s", (taken,))
        assert sqlstate(second, "UPDATE names SET name = %s WHERE name = %s", taken, other) == "00000"
    three.same_everywhere()


def test_a_statement_is_all_or_nothing_everywhere(three: Cluster) -> None:
    three.instances[0].execute(
        "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL, name TEXT) DISTRIBUTED GLOBALLY",
        "CREATE UNIQUE INDEX accounts_name ON accounts (name)",
        "INSERT INTO accounts (id, balance) VALUES (0, 100), (1, 100), (2, 100), (3, 100)",
    )
    before = three.same_everywhere()["accounts"]
    for instance in three.instances:
        with instance.connect() as connection:
            assert sqlstate(connection, "INSERT INTO accounts (id, balance) VALUES (4, 1), (1, 1)") == "23505"
            # One under a unique index, when half of the rows have been changed.
            assert sqlstate(connection, "UPDATE accounts SET name = 'n' || CAST(id / 2 AS TEXT)") == "23505"
    assert three.same_everywhere()["accounts"] == before
    done = threading.Event()

    def watch(instance: Instance, sums: set[Any]) -> None:
        with instance.connect() as connection:
            while not done.is_set():
                sums.update(connection.execute("SELECT sum(balance), count(*) FROM accounts").fetchall())

    seen: list[set[Any]] = [set() for _ in three.instances]
    watchers = [threading.Thread(target=watch, args=each) for each in zip(three.instances, seen, strict=True)]
    for watcher in watchers:
        watcher.start()

    def move(connection: Connection, number: int) -> None:
        for n in range(20):
            giver, taker = (number + n) % 4, (number + n + 1 + n % 3) % 4
            connection.execute(
                "UPDATE accounts SET balance = balance + CASE WHEN id = %s THEN -1 ELSE 1 END WHERE id IN (%s, %s)",
                (giver, giver, taker),
            )

    try:
        through_all(three, move, clients_per_instance=1)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()
    assert seen == [{(400, 4)}] * 3
    three.same_everywhere()


def test_who_has_written_reads_what_it_wrote(three: Cluster) -> None:
    three.instances[0].execute("CREATE TABLE own (id INT PRIMARY KEY, n INT) DISTRIBUTED GLOBALLY")

    def write(connection: Connection, number: int) -> None:
        for n in range(25):
            connection.execute("INSERT INTO own VALUES (%s, %s)", (number * 100 + n, n))
            found = connection.execute("SELECT n FROM own WHERE id = %s", (number * 100 + n,)).fetchall()
            assert found == [(n,)], (number, n)
            connection.execute("UPDATE own SET n = -1 WHERE id = %s", (number * 100 + n,))
            counted = connection.execute("SELECT count(*) FROM own WHERE n = -1 AND id / 100 = %s", (number,))
            assert counted.fetchone() == (n + 1,)

    through_all(three, write, clients_per_instance=1)
    three.same_everywhere()


# --- the leader goes -----------------------------------------------------------------------------


def test_a_leader_that_hands_over_fails_no_statement(clusters: Clusters) -> None:
    """What it had taken and not committed, or refused while it went, is proposed again by who asked for it."""
    cluster = clusters(3)
    cluster.start()
    leader = cluster.settle()
    others = [instance for instance in cluster.instances if instance is not leader]
    leader.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, n INT NOT NULL) DISTRIBUTED GLOBALLY",
        "INSERT INTO c VALUES (0, 0), (1, 0), (2, 0), (3, 0)",
    )
    cluster.same_everywhere()
    done = threading.Event()
    counts = [0] * 4
    failures: list[BaseException] = []

    def write(instance: Instance, number: int) -> None:
        try:
            with instance.connect() as connection:
                while not done.is_set():
                    connection.execute("UPDATE c SET n = n + 1 WHERE id = %s", (number,))
                    counts[number] += 1
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(others[n % 2], n)) for n in range(4)]
    for writer in writers:
        writer.start()
    try:
        eventually(lambda: min(counts) > 20, 60 * cluster.timing_scale)
        assert leader.stop() == 0
        after = list(counts)
        eventually(
            lambda: all(now > then + 20 for now, then in zip(counts, after, strict=True)) or failures,
            60 * cluster.timing_scale,
        )
    finally:
        done.set()
        for writer in writers:
            writer.join()
    assert not failures, failures
    found = rows(others[0], "SELECT n FROM c ORDER BY id")
    assert found == [(count,) for count in counts]


# --- without a majority --------------------------------------------------------------------------


def timed_out(connection: Connection, sql: str, seconds: float) -> str:
    begun = time.monotonic()
    state = sqlstate(connection, sql)
    assert time.monotonic() - begun < seconds, f"{sql}: {state} after {time.monotonic() - begun:.1f} s"
    return state


@pytest.mark.parametrize("leads", [False, True])
def test_a_statement_ends_in_time_where_nothing_can_be_agreed(three: Cluster, leads: bool) -> None:
    assert three.links is not None
    leader = three.settle()
    alone = leader if leads else three.follower()
    table = f"alone_{leads}".lower()
    alone.execute(
        f"CREATE TABLE {table} (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY", f"INSERT INTO {table} VALUES (1)"
    )
    three.same_everywhere()
    statements = (
        f"INSERT INTO {table} VALUES (2)",
        f"DELETE FROM {table} WHERE id = 99",
        f"CREATE TABLE more_{table} (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
        "ALTER SYSTEM SET pg_portal_max = 4321",
    )
    three.links.isolate(alone.running.name)
    answers = {}
    try:
        if not leads:
            # As long as it knows of a leader, what it says to that one is on its way.
            eventually(lambda: alone.raft()["leader_id"] == 0, 10 * three.timing_scale)
        with alone.connect() as connection:
            scale = three.timing_scale
            connection.execute(f"SET statement_timeout = {int(500 * scale)}".encode())
            for sql in statements:
                answers[sql] = timed_out(connection, sql, 1.5 * scale)
            # What it has, it still tells.
            assert connection.execute(f"SELECT id FROM {table}".encode()).fetchall() == [(1,)]
    finally:
        three.links.heal()
    assert set(answers.values()) <= {"57014", "40003"}, answers
    if not leads:
        # It never left: so nothing of it may come later.
        assert set(answers.values()) == {"57014"}, answers
    three.settle()
    names = [row[0] for row in rows(alone, "SELECT name FROM _pico_table")]
    happened = {
        statements[0]: (2,) in rows(alone, f"SELECT id FROM {table}"),
        statements[2]: f"more_{table}" in names,
        statements[3]: bool(rows(alone, "SELECT * FROM _pico_db_config WHERE key = 'pg_portal_max'")),
    }
    for sql, did in happened.items():
        assert not did or answers[sql] == "40003", (sql, answers[sql])
    alone.execute("ALTER SYSTEM RESET pg_portal_max", f"INSERT INTO {table} VALUES (3)")
    three.same_everywhere()


# --- what acts everywhere ------------------------------------------------------------------------


def test_alter_system_acts_on_every_instance(three: Cluster) -> None:
    three.instances[0].execute(
        "CREATE TABLE many (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
        "INSERT INTO many VALUES (1), (2), (3)",
    )
    three.same_everywhere()
    sessions = [instance.connect() for instance in three.instances]
    try:

        def answers() -> list[str]:
            return [sqlstate(session, "SELECT id FROM many") for session in sessions]

        assert answers() == ["00000"] * 3
        for asked in three.instances:
            asked.execute("ALTER SYSTEM SET sql_motion_row_max = 2")
            # Through the same instance at once; through the others as soon as they hear of it.
            assert sqlstate(sessions[three.instances.index(asked)], "SELECT id FROM many") != "00000"
            eventually(lambda: "00000" not in answers(), 10 * three.timing_scale)
            asked.execute("ALTER SYSTEM RESET sql_motion_row_max")
            eventually(lambda: answers() == ["00000"] * 3, 10 * three.timing_scale)
    finally:
        for session in sessions:
            session.close()


def info(connection: Connection) -> tuple[Any, ...]:
    sql = "SELECT pico_raft_leader_id(), pico_raft_leader_uuid(), pico_instance_uuid()"
    found = connection.execute(sql).fetchone()
    assert found is not None
    return found


def test_what_instances_say_of_themselves_and_each_other(three: Cluster) -> None:
    leader = three.settle()
    for instance in three.instances:
        with instance.connect() as connection:
            leader_id, leader_uuid, own = info(connection)
            assert (leader_id, str(leader_uuid)) == (leader.raft()["id"], leader.running.uuid)
            assert own == instance.running.uuid
            for other in three.instances:
                asked = connection.execute(
                    "SELECT pico_instance_name(%s), pico_replicaset_name(%s), pico_tier_name(%s)",
                    (other.running.uuid,) * 3,
                ).fetchall()
                told = other.running
                assert asked == [(told.name, told.replicaset, told.tier)]


def test_a_session_hears_of_the_new_leader(clusters: Clusters) -> None:
    cluster = clusters(3)
    cluster.start()
    leader = cluster.settle()
    others = [instance for instance in cluster.instances if instance is not leader]
    sessions: Sequence[Connection] = [instance.connect() for instance in others]
    try:
        assert {info(session)[:2] for session in sessions} == {info(sessions[0])[:2]}
        prepared = "SELECT pico_raft_leader_uuid()"
        before = [session.execute(prepared, prepare=True).fetchall() for session in sessions]
        leader.kill()
        successor = cluster.await_leader(others)
        for session in sessions:

            def told(session: Connection = session) -> bool:
                return info(session)[0] == successor.raft()["id"]

            eventually(told, 10 * cluster.timing_scale, "the session's leader is the new one")
            assert session.execute(prepared, prepare=True).fetchall() != before[0]
            assert str(info(session)[1]) == successor.running.uuid
    finally:
        for session in sessions:
            session.close()


def test_every_instance_shows_the_same_system_tables(three: Cluster) -> None:
    contents = three.same_everywhere()
    for table in ("_pico_instance", "_pico_replicaset", "_pico_peer_address", "_pico_tier", "_pico_property"):
        assert contents[table], table
    assert len(contents["_pico_instance"]) == 3
    assert len(contents["_pico_peer_address"]) == 9
    with three.instances[1].connect() as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE _pico_instance SET tier = 'x'")


def test_sharded_tables_are_changed_through_any_instance(three: Cluster) -> None:
    """Their rows are with one of them so far, and the others say with whom."""
    for number, instance in enumerate(three.instances):
        instance.execute(
            f"CREATE TABLE s{number} (id INT PRIMARY KEY, t TEXT)",
            f"ALTER TABLE s{number} ADD COLUMN more INT",
        )
    three.same_everywhere()
    reached = 0
    for instance in three.instances:
        with instance.connect() as connection:
            for number in range(3):
                state = sqlstate(connection, f"INSERT INTO s{number} (id, more) VALUES (1, 2)")
                assert state in ("00000", "0A000")
                reached += state == "00000"
    assert reached == 3
