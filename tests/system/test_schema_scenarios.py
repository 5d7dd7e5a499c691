"""Schema changes in a cluster whose instances die, freeze, come late or refuse: they come to one end, everywhere the same,
and nothing else waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.cluster import Cluster, Instance, eventually, instances_of
from tests.system.catalog_files import names_in_data_db, user_tables, wait_until_they_agree
from tests.system.clients import Statement, sqlstate

Clusters = Callable[..., Cluster]

PENDING = "SELECT schema_version FROM _pico_pending_schema_change ORDER BY schema_version"


def started(clusters: Clusters, count: int = 3, **options: Any) -> tuple[Cluster, Instance]:
    """The cluster, and who leads it."""
    cluster = clusters(count, **options)
    cluster.start()
    return cluster, cluster.settle()


def others(cluster: Cluster, *than: Instance) -> list[Instance]:
    return [instance for instance in cluster.instances if instance not in than]


def owner(cluster: Cluster) -> Instance:
    """Whose replicaset has the buckets: sharded tables are used there."""
    return next(instance for instance in cluster.running if instance.running.replicaset == "default_1")


def agree(cluster: Cluster, timing_scale: float) -> None:
    """Nothing is pending; the catalogs are the same, and the tables of each instance are what they say."""
    cluster.same_everywhere()
    for instance in cluster.running:
        wait_until_they_agree(instance.directory, 20 * timing_scale)


def await_pending(instance: Instance, timing_scale: float) -> int:
    """The version of the one schema change that is pending."""

    def pending() -> list[int]:
        with instance.connect() as connection:
            return [version for (version,) in connection.execute(PENDING)]

    (version,) = eventually(pending, 20 * timing_scale, "a pending schema change")
    return version


def await_state(among: Instance, name: str, state: str, seconds: float) -> None:
    eventually(lambda: instances_of(among)[name]["state"] == state, seconds, f"{name} {state}")


def await_name(instances: list[Instance], part: str, timing_scale: float, *, count: int = 1) -> None:
    """Each of them has so many physical things whose names hold this."""

    def there() -> bool:
        return all(
            sum(part in name for name in names_in_data_db(instance.directory)) == count
            for instance in instances
        )

    eventually(there, 20 * timing_scale, f"{part} in data.db")


def compact_at_once(instance: Instance) -> None:
    """Whoever was away for a moment needs a snapshot."""
    instance.execute("ALTER SYSTEM SET raft_wal_count_max = 1")


def fill_log(instance: Instance) -> None:
    for number in range(6):
        instance.execute(f"ALTER SYSTEM SET pg_portal_max = {1000 + number}")


def test_every_master_has_the_tables(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    with leader.connect() as connection:
        connection.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)")
        connection.execute("CREATE UNLOGGED TABLE u (id INT PRIMARY KEY)")
        connection.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        connection.execute("ALTER TABLE s ADD COLUMN w TEXT")
        connection.execute("CREATE INDEX s_w ON s (w)")
        connection.execute("ALTER INDEX s_w RENAME TO s_x")
        connection.execute("ALTER TABLE s RENAME COLUMN w TO x")
    agree(cluster, timing_scale)
    for change in (
        "TRUNCATE s",
        "DROP INDEX s_x",
        "ALTER TABLE s RENAME TO r",
        "DROP TABLE u",
        "DROP TABLE g",
    ):
        cluster.follower().execute(change)
    agree(cluster, timing_scale)


def test_what_one_master_refuses_happens_nowhere(clusters: Clusters, timing_scale: float) -> None:
    """Only one of them has the rows that make it impossible."""
    cluster, _ = started(clusters)
    master = owner(cluster)
    master.execute("CREATE TABLE s (id INT PRIMARY KEY, g INT) DISTRIBUTED BY (g)")
    master.execute("INSERT INTO s VALUES (1, 1), (2, 1)")
    before = user_tables(master.directory)
    for instance in cluster.instances:
        with instance.connect() as connection:
            with pytest.raises(psycopg.errors.UniqueViolation, match='unique index "s_g" of table "s"'):
                connection.execute("CREATE UNIQUE INDEX s_g ON s (g)")
            with pytest.raises(psycopg.errors.NotNullViolation):
                connection.execute("ALTER TABLE s ADD COLUMN needed INT NOT NULL")
        agree(cluster, timing_scale)
    assert user_tables(master.directory) == before
    others(cluster, master)[0].execute("CREATE INDEX s_g ON s (g)")
    master.execute("INSERT INTO s VALUES (3, 1)")
    agree(cluster, timing_scale)


def test_a_master_that_comes_back_refuses(clusters: Clusters, timing_scale: float) -> None:
    """The others have applied the change meanwhile: they take it back."""
    cluster, _ = started(clusters)
    master = owner(cluster)
    client = others(cluster, master)[0]
    master.execute("CREATE TABLE s (id INT PRIMARY KEY, g INT) DISTRIBUTED BY (g)")
    master.execute("INSERT INTO s VALUES (1, 1), (2, 1)")
    name = master.running.name
    master.kill()
    await_state(client, name, "Offline", 20 * timing_scale)
    unique = Statement(client, "CREATE UNIQUE INDEX s_g ON s (g)")
    version = await_pending(client, timing_scale)

    await_name(others(cluster, master), "_i1", timing_scale)
    assert unique.is_running
    master.start()
    assert unique.sqlstate(30 * timing_scale) == "23505"
    agree(cluster, timing_scale)
    with client.connect() as connection:
        (ended,) = connection.execute(
            "SELECT outcome, sqlstate FROM _pico_ended_schema_change WHERE schema_version = %s", (version,)
        ).fetchall()
        assert ended == ("aborted", "23505")
    client.execute("CREATE INDEX s_g ON s (g)")
    agree(cluster, timing_scale)


def test_a_change_waits_for_a_dead_master_and_nothing_else_does(
    clusters: Clusters, timing_scale: float
) -> None:
    cluster, _ = started(clusters, 4)
    leader = cluster.settle()
    master = owner(cluster)
    if leader is not master:
        dead = next(each for each in others(cluster, leader, master))
    else:
        dead = others(cluster, leader)[0]
    expelled = next(each for each in others(cluster, leader, master, dead))
    leader.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)", "CREATE TABLE other (id INT PRIMARY KEY)")
    name, expelled_name = dead.running.name, expelled.running.name
    expelled_uuid = expelled.running.uuid
    dead.kill()
    await_state(leader, name, "Offline", 20 * timing_scale)
    truncate = Statement(leader, "TRUNCATE s")
    version = await_pending(leader, timing_scale)
    with leader.connect() as connection:
        # Another change of the same kind waits, too; one that fails, one that needs nobody, and one of a global table don't.
        widened = Statement(leader, "ALTER TABLE other ADD COLUMN w INT")
        connection.execute("CREATE TABLE g (id INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY")
        connection.execute("INSERT INTO g VALUES (1, 1), (2, 1)")
        assert sqlstate(connection, "CREATE UNIQUE INDEX g_v ON g (v)") == "23505"
        connection.execute("DROP TABLE g")
        connection.execute("CREATE PROCEDURE p (INT) AS $$INSERT INTO other VALUES ($1)$$")
        connection.execute("ALTER PROCEDURE p RENAME TO q")
        assert connection.execute("SELECT name, operable FROM _pico_routine").fetchall() == [("q", True)]
        assert sqlstate(connection, "CALL q (1)") == "0A000"
        connection.execute("DROP PROCEDURE q (INT)")
        connection.execute("ALTER SYSTEM SET pg_portal_max = 77")
        # Somebody comes, and somebody goes.
        newcomer = cluster.add()
        newcomer.start()
        await_state(leader, newcomer.running.name, "Online", 20 * timing_scale)
        expelled.kill()
        cluster.forgiven.add(expelled)
        await_state(leader, expelled_name, "Offline", 20 * timing_scale)
        connection.execute(f"ALTER SYSTEM EXPEL INSTANCE '{expelled_uuid}'".encode())
        assert truncate.is_running
        assert widened.is_running
        assert version in [row[0] for row in connection.execute(PENDING)]
    dead.start()
    assert truncate.sqlstate(30 * timing_scale) == "00000"
    assert widened.sqlstate(30 * timing_scale) == "00000"
    agree(cluster, timing_scale)


def test_writes_to_a_table_that_is_being_changed(clusters: Clusters, timing_scale: float) -> None:
    """They wait, can be stopped, and go on with the table as it is then. Reads go on all the time."""
    cluster, _ = started(clusters)
    master = owner(cluster)
    dead = others(cluster, master)[0]
    master.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)", "INSERT INTO s VALUES (1, 1)")
    with dead.frozen():
        added = Statement(master, "ALTER TABLE s ADD COLUMN w INT")
        await_pending(master, timing_scale)
        with master.connect() as connection:
            assert connection.execute("SELECT id, v FROM s").fetchall() == [(1, 1)]
            connection.execute("SET statement_timeout = 200")
            assert sqlstate(connection, "INSERT INTO s VALUES (2, 2)") == "57014"
            assert sqlstate(connection, "UPDATE s SET v = 3") == "57014"
        waits = Statement(master, "INSERT INTO s (id, v) VALUES (3, 3)")
        stale = Statement(master, "INSERT INTO s VALUES (4, 4, 4)")
        time.sleep(0.2)
        assert waits.is_running
    assert added.sqlstate(20 * timing_scale) == "00000"
    assert waits.sqlstate(20 * timing_scale) == "00000"
    assert stale.sqlstate(20 * timing_scale) == "42601", "it was written for the table as it was"
    with master.connect() as connection:
        assert connection.execute("SELECT * FROM s ORDER BY id").fetchall() == [(1, 1, None), (3, 3, None)]
    agree(cluster, timing_scale)


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE s",
        pytest.param("CREATE INDEX s_v ON s (v)", marks=pytest.mark.slow),
        pytest.param("ALTER TABLE s ADD COLUMN w INT NOT NULL", marks=pytest.mark.slow),
    ],
)
def test_an_admin_gives_up_a_change(clusters: Clusters, timing_scale: float, change: str) -> None:
    cluster, leader = started(clusters)
    master = owner(cluster)
    dead = others(cluster, leader, master)[0]
    master.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)", "INSERT INTO s VALUES (1, 1), (2, 2)")
    if "NOT NULL" in change:
        master.execute("DELETE FROM s")
    name = dead.running.name
    dead.kill()
    await_state(leader, name, "Offline", 20 * timing_scale)
    waiting = Statement(master, change)
    version = await_pending(leader, timing_scale)
    impatient = Statement(master, "DROP TABLE s OPTION (TIMEOUT = 0.3)")
    assert impatient.sqlstate(20 * timing_scale) == "57014"
    waiting.cancel()
    assert waiting.sqlstate(20 * timing_scale) == "40003"
    assert waiting.error is not None
    assert f"Schema change {version} waits for {name}, which is not Online." in str(waiting.error)
    with others(cluster, dead, leader)[0].connect() as connection:
        connection.execute(f"ALTER SYSTEM ABORT SCHEMA CHANGE {version}".encode())
        assert sqlstate(connection, f"ALTER SYSTEM ABORT SCHEMA CHANGE {version}") == "55000"
        assert sqlstate(connection, "ALTER SYSTEM ABORT SCHEMA CHANGE 1") == "42704"
    with master.connect() as connection:
        rows = [] if "NOT NULL" in change else [(1, 1), (2, 2)]
        assert connection.execute("SELECT * FROM s ORDER BY id").fetchall() == rows
        connection.execute("INSERT INTO s VALUES (3, 2)")
    dead.start()
    agree(cluster, timing_scale)
    master.execute(change.replace("NOT NULL", ""))
    agree(cluster, timing_scale)


def test_a_client_is_told_how_the_change_ended(clusters: Clusters, timing_scale: float) -> None:
    """Also if the answer is an abort that somebody else has asked for."""
    cluster, leader = started(clusters)
    dead = others(cluster, leader, owner(cluster))[0]
    dead.freeze()
    try:
        waiting = Statement(leader, "CREATE TABLE s (id INT PRIMARY KEY)")
        version = await_pending(leader, timing_scale)
        leader.execute(f"ALTER SYSTEM ABORT SCHEMA CHANGE {version}")
        assert waiting.sqlstate(20 * timing_scale) == "57014"
        assert "ddl operation was aborted" in str(waiting.error)
    finally:
        dead.thaw()
    leader.execute("CREATE TABLE s (id INT PRIMARY KEY)")
    agree(cluster, timing_scale)


def test_changes_of_different_tables_end_in_any_order(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    dead = others(cluster, leader, owner(cluster))[0]
    with dead.frozen():
        first = Statement(leader, "CREATE TABLE s (id INT PRIMARY KEY)")
        version = await_pending(leader, timing_scale)
        leader.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY WAIT APPLIED LOCALLY")
        with leader.connect() as connection:
            (g,) = connection.execute("SELECT schema_version FROM _pico_table WHERE name = 'g'").fetchall()[0]
            assert g > version
            # Its name is taken from the beginning.
            assert (
                sqlstate(connection, "CREATE TABLE s (id INT PRIMARY KEY) OPTION (TIMEOUT = 0.3)") == "57014"
            )
    assert first.sqlstate(20 * timing_scale) == "00000"
    agree(cluster, timing_scale)


def test_a_new_replicaset_has_all_tables(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    leader.execute(
        "CREATE TABLE s (id INT PRIMARY KEY, v INT)",
        "CREATE UNIQUE INDEX s_v ON s (id, v)",
        "CREATE UNLOGGED TABLE u (id INT PRIMARY KEY)",
        "CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
    )
    cluster.add().start()
    cluster.settle()
    agree(cluster, timing_scale)


def test_a_replicaset_that_comes_while_a_change_is_pending(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    leader.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)")
    dead = others(cluster, leader, owner(cluster))[0]
    with dead.frozen():
        added = Statement(leader, "CREATE INDEX s_v ON s (v)")
        await_pending(leader, timing_scale)
        newcomer = cluster.add()
        newcomer.start()
        assert added.is_running
    assert added.sqlstate(20 * timing_scale) == "00000"
    assert any("_i1" in name for name in names_in_data_db(newcomer.directory))
    agree(cluster, timing_scale)


def test_a_master_that_takes_over_while_a_change_is_pending(clusters: Clusters, timing_scale: float) -> None:
    """Its predecessor is expelled; the change is applied by the new one before it is committed."""
    cluster = clusters(4, options=("-c", 'tiers={"default": {"replication_factor": 2}}'))
    cluster.start()
    leader = cluster.settle()
    leader.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)")
    rows = instances_of(leader)
    with leader.connect() as connection:
        masters = dict(
            connection.execute("SELECT name, current_master_name FROM _pico_replicaset").fetchall()
        )
    by_name = {instance.running.name: instance for instance in cluster.instances}
    old = by_name[masters["default_2"]]
    (new,) = (
        by_name[n]
        for n, row in rows.items()
        if row["replicaset_name"] == "default_2" and by_name[n] is not old
    )
    if old is leader:
        old.stop()
        leader = cluster.await_leader()
        old.start()
        leader = cluster.settle()
    uuid, name = old.running.uuid, old.running.name
    old.kill()
    cluster.forgiven.add(old)
    await_state(leader, name, "Offline", 20 * timing_scale)
    added = Statement(leader, "CREATE INDEX s_v ON s (v)")
    await_pending(leader, timing_scale)
    assert not any("_i1" in name for name in names_in_data_db(new.directory))
    leader.execute(f"ALTER SYSTEM EXPEL INSTANCE '{uuid}' FORCE")
    assert added.sqlstate(20 * timing_scale) == "00000"
    assert any("_i1" in name for name in names_in_data_db(new.directory))


def test_changes_are_learned_from_a_snapshot(clusters: Clusters, timing_scale: float) -> None:
    """An instance is away while tables are dropped, and a change that it had applied is given up."""
    cluster, leader = started(clusters)
    master = owner(cluster)
    away = others(cluster, leader, master)[0]
    compact_at_once(leader)
    leader.execute(
        "CREATE TABLE dropped (id INT PRIMARY KEY)",
        "CREATE TABLE kept (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
    )
    name = away.running.name
    away.kill()
    await_state(leader, name, "Offline", 20 * timing_scale)
    given_up = Statement(leader, "CREATE INDEX kept_v ON kept (v)")
    version = await_pending(leader, timing_scale)
    leader.execute(
        "DROP TABLE dropped", "DROP TABLE g", "CREATE TABLE g2 (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY"
    )
    leader.execute(f"ALTER SYSTEM ABORT SCHEMA CHANGE {version}")
    assert given_up.sqlstate(20 * timing_scale) == "57014"
    fill_log(leader)
    away.start()
    agree(cluster, timing_scale)
    assert any("snapshot" in instance.log() for instance in cluster.instances)


@pytest.mark.parametrize("by", ["log", "snapshot"])
def test_a_master_takes_back_what_was_given_up_while_it_was_away(
    clusters: Clusters, timing_scale: float, by: str
) -> None:
    """It had applied the change."""
    cluster, leader = started(clusters, 5)
    away, dead = others(cluster, leader, owner(cluster))[:2]
    leader.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)")
    if by == "snapshot":
        compact_at_once(leader)
    with dead.frozen():
        given_up = Statement(leader, "ALTER TABLE s ADD COLUMN w INT")
        version = await_pending(leader, timing_scale)
        await_name([away], ".c2", timing_scale)
        away.kill()
        leader.execute(f"ALTER SYSTEM ABORT SCHEMA CHANGE {version}")
        assert given_up.sqlstate(20 * timing_scale) == "57014"
        fill_log(leader)
    away.start()
    agree(cluster, timing_scale)
    assert any("made a snapshot" in each.log() for each in cluster.instances) == (by == "snapshot")
    leader.execute("ALTER TABLE s ADD COLUMN w TEXT")
    agree(cluster, timing_scale)


def test_a_client_whose_instance_needs_a_snapshot_learns_the_end(
    clusters: Clusters, timing_scale: float
) -> None:
    """The entry that ended the change is nowhere any more, and the catalog remembers it."""
    cluster, leader = started(clusters, 5)
    client, dead = others(cluster, leader, owner(cluster))[:2]
    compact_at_once(leader)
    with dead.frozen():
        created = Statement(client, "CREATE TABLE s (id INT PRIMARY KEY) WAIT APPLIED LOCALLY")
        refused = Statement(client, "CREATE TABLE gone (id INT PRIMARY KEY)")
        eventually(
            lambda: len(leader_rows(leader, PENDING)) == 2, 20 * timing_scale, "two changes are pending"
        )
        (gone,) = (
            version
            for version, ddl in leader_rows(
                leader, "SELECT schema_version, ddl FROM _pico_pending_schema_change"
            )
            if "gone" in str(ddl)
        )
        await_name([client], ".c0", timing_scale, count=2)
        client.execute("SELECT 1")  # by then it has told the leader
        client.freeze()
        leader.execute(f"ALTER SYSTEM ABORT SCHEMA CHANGE {gone}")
    try:
        eventually(lambda: not leader_rows(leader, PENDING), 20 * timing_scale, "both have ended")
        fill_log(leader)
    finally:
        client.thaw()
    assert created.sqlstate(20 * timing_scale) == "00000"
    assert refused.sqlstate(20 * timing_scale) == "57014"
    agree(cluster, timing_scale)


def leader_rows(instance: Instance, sql: str) -> list[tuple[Any, ...]]:
    with instance.connect() as connection:
        return connection.execute(sql.encode()).fetchall()


def test_wait_applied(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    silent = cluster.follower()
    name = silent.running.name
    table = "(id INT PRIMARY KEY) DISTRIBUTED GLOBALLY"
    with leader.connect() as connection, silent.frozen():
        # For so long it is silent, and Online.
        connection.execute("ALTER SYSTEM SET governor_auto_offline_timeout = 600")
        connection.execute(f"CREATE TABLE here {table} WAIT APPLIED LOCALLY".encode())
        with pytest.raises(
            psycopg.Error, match=f"committed, and not acknowledged by all instances: {name}\\n"
        ) as error:
            connection.execute(f"CREATE TABLE everywhere {table} OPTION (TIMEOUT = 1)".encode())
        assert error.value.sqlstate == "57S01"
        connection.execute("INSERT INTO everywhere VALUES (1)")
        # One that is made Offline meanwhile is named, too. Then nobody waits for it.
        waiting = Statement(leader, f"CREATE TABLE waiting {table}")
        committed = "SELECT 1 FROM _pico_table WHERE name = 'waiting' AND operable"
        eventually(lambda: leader_rows(leader, committed), 20 * timing_scale, "it is committed")
        connection.execute("ALTER SYSTEM SET governor_auto_offline_timeout = 1")
        assert waiting.sqlstate(30 * timing_scale) == "57S01"
        await_state(leader, name, "Offline", 20 * timing_scale)
        connection.execute("CREATE TABLE later (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
    agree(cluster, timing_scale)
    # Whoever is answered may rely on it at any instance.
    for number in range(10):
        cluster.instances[number % 3].execute(f"CREATE TABLE at_once_{number} {table}")
        for instance in cluster.instances:
            instance.execute(f"SELECT * FROM at_once_{number}")


def test_prepared_statements_meet_changes_that_others_made(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    here, there = others(cluster, leader)
    here.execute("CREATE TABLE g (id INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY")
    with there.connect(prepare_threshold=0) as connection:
        insert, read, everything = (
            "INSERT INTO g (id, v) VALUES (%s, %s)",
            "SELECT v FROM g WHERE id = %s",
            "SELECT * FROM g",
        )
        connection.execute(insert, (1, 10))
        assert connection.execute(read, (1,)).fetchall() == [(10,)]
        assert connection.execute(everything).fetchall() == [(1, 10)]
        here.execute("ALTER TABLE g ADD COLUMN w TEXT", "CREATE INDEX g_v ON g (v)")
        connection.execute(insert, (2, 20))
        assert connection.execute(read, (2,)).fetchall() == [(20,)]
        with pytest.raises(
            psycopg.errors.FeatureNotSupported, match="cached plan must not change result type"
        ):
            connection.execute(everything)
        here.execute("TRUNCATE g")
        assert connection.execute(read, (2,)).fetchall() == []
        connection.execute(insert, (3, 30))
        here.execute("ALTER TABLE g RENAME COLUMN v TO u")
        assert sqlstate(connection, read, 3) == "42703"
        here.execute("DROP TABLE g")
        assert sqlstate(connection, insert, 4, 40) == "42P01"
        here.execute("CREATE TABLE g (id INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY")
        connection.execute(insert, (5, 50))
        assert connection.execute(read, (5,)).fetchall() == [(50,)]
    agree(cluster, timing_scale)
