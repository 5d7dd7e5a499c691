"""The log is cut, and whoever has slept through what was cut gets a snapshot: its catalog is that of the others then, and its
clients and statements live in the new one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from tests.cluster import Cluster, Instance, eventually
from tests.system.clients import Connection, rows, sqlstate

Clusters = Callable[..., Cluster]

KEPT = 100  # entries of the log

BEFORE = (
    f"ALTER SYSTEM SET raft_wal_count_max = {KEPT}",
    "CREATE TABLE g (id INT PRIMARY KEY, t TEXT) DISTRIBUTED GLOBALLY",
    "CREATE TABLE gone (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
    "CREATE TABLE emptied (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
    "INSERT INTO g VALUES (-1, 'old'), (-2, 'old')",
    "INSERT INTO gone VALUES (1)",
    "INSERT INTO emptied VALUES (1)",
    "CREATE TABLE sharded (id INT PRIMARY KEY)",
)

# In the middle of the sleep, which nobody is to wait for.
LOCALLY = "WAIT APPLIED LOCALLY"
CHANGES = (
    f"ALTER TABLE g ADD COLUMN more INT {LOCALLY}",
    "UPDATE g SET more = 7 WHERE id = -1",
    f"CREATE UNIQUE INDEX g_more ON g (more) {LOCALLY}",
    f"DROP TABLE gone {LOCALLY}",
    f"TRUNCATE emptied {LOCALLY}",
    f"CREATE TABLE made (id INT PRIMARY KEY, t TEXT NOT NULL) DISTRIBUTED GLOBALLY {LOCALLY}",
    "INSERT INTO made VALUES (1, 'new')",
    f"DROP TABLE sharded {LOCALLY}",
    f"CREATE USER late WITH PASSWORD 'Passw0rd' {LOCALLY}",
    "ALTER SYSTEM SET sql_motion_row_max = 100",
)


def prepared(clusters: Clusters, **options: object) -> tuple[Cluster, Instance, Instance]:
    """A cluster of three with BEFORE in it; one that neither leads nor owns buckets, to sleep; and the leader."""
    cluster = clusters(3, **options)
    cluster.start()
    leader = cluster.settle()
    leader.execute(*BEFORE)
    cluster.same_everywhere()
    sleeper = next(
        each
        for each in cluster.instances
        if each is not leader and "this instance begins cluster" not in each.log()
    )
    return cluster, sleeper, leader


def write_many(instance: Instance, entries: int, clients: int = 8) -> None:
    """So many entries: each is a statement of its own."""
    failures: list[BaseException] = []
    first = random.getrandbits(40)

    def write(number: int) -> None:
        try:
            with instance.connect() as connection, connection.cursor() as cursor:
                mine = range(first + number, first + entries, clients)
                cursor.executemany("INSERT INTO g (id, t) VALUES (%s, 'x')", [(n,) for n in mine])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def sleep_through(cluster: Cluster, leader: Instance, entries: int) -> None:
    index = leader.raft()["applied"]
    write_many(leader, entries // 2)
    leader.execute(*CHANGES)
    write_many(leader, entries // 2)
    assert leader.raft()["applied"] >= index + entries


def caught_up_by_snapshot(cluster: Cluster, leader: Instance, sleeper: Instance) -> None:
    cluster.settle(60)
    assert "made a snapshot of entry" in "".join(each.log() for each in cluster.instances)
    assert "caught up by a snapshot" in sleeper.log()
    for instance in cluster.instances:
        # It is cut in halves, so that who was away for a moment needs no snapshot.
        assert log_length(instance) <= KEPT + 20, instance.log()[-2000:]


def log_length(instance: Instance) -> int:
    connection = apsw.Connection(
        str(Path(instance.directory) / "catalog.db"), flags=apsw.SQLITE_OPEN_READONLY
    )
    try:
        connection.set_busy_timeout(5000)
        return int(connection.execute("SELECT count(*) FROM _raft_log").get)
    finally:
        connection.close()


@contextmanager
def answered(connection: Connection, sql: str) -> Iterator[list[str]]:
    """Says it, and goes on; at the end there is the SQLSTATE of the answer."""
    states: list[str] = []
    thread = threading.Thread(target=lambda: states.append(sqlstate(connection, sql)))
    thread.start()
    try:
        yield states
    finally:
        thread.join()


def frozen_through(clusters: Clusters, entries: int) -> None:
    cluster, sleeper, leader = prepared(clusters)
    plain, prepared_one, busy = sleeper.connect(), sleeper.connect(prepare_threshold=0), sleeper.connect()
    with plain, prepared_one, busy:
        same = "SELECT t FROM g WHERE id = %s"
        wider = "SELECT * FROM g WHERE id = %s"
        lost = "SELECT * FROM gone WHERE id = %s"
        write = "INSERT INTO g (id, t) VALUES (%s, 'mine')"
        for sql, given in ((same, -1), (wider, -1), (lost, 1), (write, -10)):
            prepared_one.execute(sql, (given,))
        with sleeper.frozen():
            with answered(busy, "INSERT INTO g (id, t) VALUES (-20, 'said in the sleep')") as states:
                sleep_through(cluster, leader, entries)
                sleeper.thaw()
        assert states == ["00000"]
        caught_up_by_snapshot(cluster, leader, sleeper)
        # What its sessions had before is of the catalog that there is now.
        assert prepared_one.execute(same, (-1,)).fetchall() == [("old",)]
        assert sqlstate(prepared_one, wider, -1) == "0A000"  # it promised two columns, and there are three
        assert sqlstate(prepared_one, lost, 1) == "42P01"
        prepared_one.execute(write, (-11,))
        assert plain.execute("SELECT id, t, more FROM g WHERE id = -1").fetchall() == [(-1, "old", 7)]
        assert sqlstate(plain, "INSERT INTO g VALUES (-30, 'x', 7)") == "23505"
        assert sqlstate(plain, "SELECT id FROM g") not in ("00000", "42P01")  # by sql_motion_row_max
        assert plain.execute("SELECT * FROM emptied").fetchall() == []
        assert plain.execute("SELECT t FROM made").fetchall() == [("new",)]
        assert plain.execute("SELECT name FROM _pico_user WHERE name = 'late'").fetchall() == [("late",)]
        assert sqlstate(plain, "SELECT * FROM sharded") == "42P01"
    cluster.same_everywhere()


def test_frozen_through_many_entries(clusters: Clusters) -> None:
    frozen_through(clusters, 800)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_frozen_through_10_000_entries(clusters: Clusters) -> None:
    frozen_through(clusters, 10_000)


def test_stopped_through_many_entries(clusters: Clusters) -> None:
    cluster, sleeper, leader = prepared(clusters)
    assert sleeper.stop() == 0
    sleep_through(cluster, leader, 600)
    sleeper.start()
    caught_up_by_snapshot(cluster, leader, sleeper)
    assert rows(sleeper, "SELECT t FROM made") == [("new",)]
    # And whoever comes now begins with one.
    late = cluster.add()
    late.start()
    cluster.settle()
    assert "caught up by a snapshot" in late.log()
    late.execute("INSERT INTO made VALUES (2, 'late')")
    cluster.same_everywhere()


def test_killed_in_the_middle_of_a_snapshot(clusters: Clusters, timing_scale: float) -> None:
    """And the leader too, so that another one goes on with another snapshot."""
    cluster, sleeper, leader = prepared(clusters, links=True)
    assert cluster.links is not None
    leader.execute("ALTER SYSTEM SET raft_snapshot_chunk_size_max = 4096")
    name = sleeper.running.name
    with sleeper.frozen():
        sleep_through(cluster, leader, 600)
        for other in cluster.instances:
            if other is not sleeper:
                cluster.links.trickle(other.running.name, name, 30_000)
    eventually(lambda: list(sleeper.directory.glob("raft-snapshot-*")), 30 * timing_scale)
    sleeper.kill()
    sleeper.begin()
    eventually(lambda: list(sleeper.directory.glob("raft-snapshot-*")), 30 * timing_scale)
    leader.kill()
    cluster.links.heal()
    leader.start()
    sleeper.await_ready()
    caught_up_by_snapshot(cluster, leader, sleeper)


def test_what_was_written_just_before_and_seen_only_in_a_snapshot(
    clusters: Clusters, timing_scale: float
) -> None:
    """Nobody can tell the client any more what became of it: it hears that, and not that nothing happened."""
    cluster, sleeper, leader = prepared(clusters, links=True)
    assert cluster.links is not None
    for other in cluster.instances:
        if other is not sleeper:
            cluster.links.hold(other.running.name, sleeper.running.name)
    with sleeper.connect() as connection:
        with answered(connection, "INSERT INTO g (id, t) VALUES (-40, 'on its way')") as states:
            eventually(lambda: rows(leader, "SELECT id FROM g WHERE id = -40"), 30 * timing_scale)
            write_many(leader, 4 * KEPT)
            for other in cluster.instances:  # what was held is lost
                if other is not sleeper:
                    cluster.links.reset(other.running.name, sleeper.running.name)
            cluster.links.heal()
    assert states == ["40003"]
    caught_up_by_snapshot(cluster, leader, sleeper)
    assert rows(sleeper, "SELECT t FROM g WHERE id = -40") == [("on its way",)]


def test_short_absences_need_no_snapshot(clusters: Clusters) -> None:
    cluster, sleeper, leader = prepared(clusters)
    for _ in range(3):
        with sleeper.frozen():
            write_many(leader, KEPT // 4)
        cluster.same_everywhere()
    time.sleep(0.1)
    assert "made a snapshot" not in leader.log()


def test_a_log_that_is_cut_after_every_entry(clusters: Clusters) -> None:
    """Whoever waits for the end of a schema change learns of it all the same, and whoever is an entry behind catches up."""
    cluster = clusters(3)
    cluster.start()
    cluster.settle().execute("ALTER SYSTEM SET raft_wal_count_max = 1")
    for number, instance in enumerate(cluster.instances):
        instance.execute(
            f"CREATE TABLE t{number} (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
            f"INSERT INTO t{number} VALUES (1), (2)",
            f"ALTER TABLE t{number} ADD COLUMN n INT",
            f"UPDATE t{number} SET n = id WHERE id > 0",
            f"CREATE UNIQUE INDEX t{number}_n ON t{number} (n)",
        )
        with instance.connect() as connection:
            assert sqlstate(connection, f"INSERT INTO t{number} VALUES (3, 1)") == "23505"
    contents = cluster.same_everywhere()
    assert contents["t0"] == contents["t1"] == contents["t2"] == ["(1, 1)", "(2, 2)"]
    assert all(log_length(instance) <= 2 for instance in cluster.instances)
