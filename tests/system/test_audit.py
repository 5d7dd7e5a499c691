"""The audit log of real instances: what is in it, once, and what isn't."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.cluster import Cluster, Instance, NotInTime, eventually, instances_of
from tests.system.test_users import PASSWORD, connect, refused_login

Clusters = Callable[..., Cluster]

OF_THE_LOG = [
    "grant_privilege",
    "revoke_privilege",
    "create_user",
    "drop_user",
    "create_table",
    "drop_table",
    "truncate_table",
]


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def titles(path: Path) -> list[str]:
    return [event["title"] for event in events(path)]


def test_one_instance(tmp_path: Path, timing_scale: float) -> None:
    path = tmp_path / "audit.log"
    running = Instance(tmp_path / "i", options=("--audit", str(path)), timing_scale=timing_scale)
    try:
        running.start()
        assert path.stat().st_mode & 0o777 == 0o600
        assert titles(path) == [
            "init_audit",
            "change_target_state",
            "change_current_state",
            "new_database_created",
            "create_local_db",
            "local_startup",
        ]
        with running.connect() as admin:
            admin.execute(f"CREATE USER ann WITH PASSWORD '{PASSWORD}'")
            admin.execute("CREATE TABLE fish (id INT PRIMARY KEY)")
            admin.execute("GRANT READ ON TABLE fish TO ann")
            admin.execute("GRANT READ ON TABLE fish TO ann")
            admin.execute("ALTER SYSTEM SET auth_login_attempt_max = 2")
        with connect(running, "ann") as conn:
            conn.execute("SELECT * FROM fish")
            for text in ("INSERT INTO fish VALUES (1)", "DROP TABLE fish", "GRANT super TO ann"):
                with pytest.raises(errors.InsufficientPrivilege):
                    conn.execute(text.encode())
        assert refused_login(running, "nobody", PASSWORD)
        for _ in range(2):
            assert refused_login(running, "ann", "wrong")
        eventually(lambda: "block_user" in titles(path), 10 * timing_scale, "ann is blocked")
        assert refused_login(running, "ann", PASSWORD)
        with running.connect(host=str(running.socket_directory)) as admin:
            admin.execute("ALTER USER ann LOGIN; TRUNCATE fish; DROP TABLE fish; DROP USER ann")
        told = events(path)[6:]
        assert [(event["title"], event["initiator"]) for event in told] == [
            ("auth_ok", "admin"),
            ("create_user", "admin"),
            ("create_table", "admin"),
            ("grant_privilege", "admin"),
            ("change_db_config", "admin"),
            ("auth_ok", "ann"),
            ("access_denied", "ann"),
            ("access_denied", "ann"),
            ("access_denied", "ann"),
            ("auth_fail", "nobody"),
            ("auth_fail", "ann"),
            ("auth_fail", "ann"),
            ("block_user", "admin"),
            ("auth_fail", "ann"),
            ("auth_ok", "admin"),
            ("unblock_user", "admin"),
            ("truncate_table", "admin"),
            ("drop_table", "admin"),
            ("drop_user", "admin"),
        ]
        assert [event["verdict"] for event in told if event["title"] == "auth_fail"] == [
            "there is no such user",
            "wrong password",
            "wrong password",
            "the user may not log in",
        ]
        denied = [event for event in told if event["title"] == "access_denied"]
        assert [(event["privilege"], event["object_type"], event["object"]) for event in denied] == [
            ("write", "table", "fish"),
            ("drop", "table", "fish"),
            ("grant", "role", "super"),
        ]
        assert told[-5]["from"] == "the admin socket"
        assert told[5]["from"].startswith("127.0.0.1:")
        for event in events(path):
            assert {"id", "time", "title", "severity", "message", "initiator"} <= set(event)
            assert event["severity"] in ("low", "medium", "high")
        count = len(events(path))
        assert [event["id"] for event in events(path)] == [f"1.1.{n}" for n in range(1, count + 1)]

        # A kill, and a stop: nothing is told twice, and each start is a generation of its own.
        running.kill()
        running.start()
        again = events(path)[count:]
        assert [(event["id"], event["title"]) for event in again] == [
            ("1.2.1", "init_audit"),
            ("1.2.2", "change_target_state"),
            ("1.2.3", "change_current_state"),
            ("1.2.4", "recover_local_db"),
            ("1.2.5", "local_startup"),
        ]
        assert running.stop() == 0
        stopped = titles(path)[count + 5 :]
        assert stopped[0] == "local_shutdown"
        assert set(stopped[1:]) <= {"change_target_state", "change_current_state"}
        assert PASSWORD not in path.read_text()
        assert "SCRAM-SHA-256$" not in path.read_text()
    finally:
        running.kill()


def test_the_file_is_opened_anew(tmp_path: Path, timing_scale: float) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    running = Instance(tmp_path / "i", options=("--audit", str(path)), timing_scale=timing_scale)
    try:
        running.start()
        path.rename(moved)
        running.execute("CREATE ROLE one")
        assert titles(moved)[-1] == "create_role"
        os.kill(running.pid, signal.SIGHUP)
        eventually(path.exists, 10 * timing_scale, "it is there again")
        running.execute("CREATE ROLE two")
        assert [event.get("role") for event in events(path) if event["title"] == "create_role"] == ["two"]
        everything = [*events(moved), *events(path)]
        assert [event["id"].split(".")[2] for event in everything] == [
            str(number) for number in range(1, len(everything) + 1)
        ]
        # Nowhere to write to: the old one goes on.
        path.rename(moved)
        path.mkdir()
        os.kill(running.pid, signal.SIGHUP)
        eventually(lambda: "the old audit log goes on" in running.log(), 10 * timing_scale)
        running.execute("CREATE ROLE three")
        assert events(moved)[-1]["role"] == "three"
    finally:
        running.kill()


def test_lines_that_were_lost_are_told_at_the_next_start(tmp_path: Path, timing_scale: float) -> None:
    """As after a kill between applying and telling, or a power cut."""
    path = tmp_path / "audit.log"
    running = Instance(tmp_path / "i", options=("--audit", str(path)), timing_scale=timing_scale)

    def of_the_log() -> list[tuple[Any, ...]]:
        return [
            (event["index"], event["title"], event["initiator"], event["time"])
            for event in events(path)
            if event["title"] in OF_THE_LOG or event["title"] in ("change_db_config", "create_index")
        ]

    try:
        running.start()
        with running.connect() as admin:
            admin.execute(f"CREATE USER ann WITH PASSWORD '{PASSWORD}'")
            admin.execute("GRANT CREATE TABLE TO ann")
            with connect(running, "ann") as conn:
                conn.execute("CREATE TABLE fish (id INT PRIMARY KEY, n INT)")
                conn.execute("CREATE TABLE gone (id INT PRIMARY KEY)")
                conn.execute("CREATE INDEX by_n ON fish (n)")
                conn.execute("DROP TABLE gone")
            admin.execute("ALTER SYSTEM SET auth_login_attempt_max = 5")
            admin.execute("INSERT INTO fish VALUES (1, 1)")
            admin.execute("REVOKE CREATE TABLE FROM ann")
        before = of_the_log()
        assert len(before) == 8
        for kept in (8, 7, 5, 3, 2, 1):
            running.kill()
            # The file ends behind so many of them, in the middle of a line.
            index = before[kept - 1][0]
            lines = path.read_bytes().splitlines(keepends=True)
            end = next(at for at, line in enumerate(lines) if json.loads(line).get("index") == index) + 1
            path.write_bytes(b"".join(lines[:end]) + b'{"id":"1.1.')
            running.start()
            half = b'{"id":"1.1.\n'
            assert path.read_bytes().count(half) == 1
            path.write_bytes(path.read_bytes().replace(half, b""))
            assert of_the_log() == before
        assert PASSWORD not in path.read_text()
        # A file that tells of nothing yet: what was before it was told elsewhere.
        running.stop()
        path.unlink()
        running.start()
        assert of_the_log() == []
    finally:
        running.kill()


def test_to_stdout(tmp_path: Path, timing_scale: float) -> None:
    running = Instance(tmp_path / "i", options=("-c", "audit=stdout"), timing_scale=timing_scale)
    try:
        running.start()  # both of its streams go to the log file of the test
        running.execute("CREATE ROLE one")
        lines = [json.loads(line) for line in running.log().splitlines() if line.startswith("{")]
        assert [line["title"] for line in lines][-2:] == ["auth_ok", "create_role"]
        os.kill(running.pid, signal.SIGHUP)
        running.execute("CREATE ROLE two")
        assert running.stop() == 0
    finally:
        running.kill()


def test_what_can_not_be_written(tmp_path: Path, timing_scale: float) -> None:
    """A full disk loses events, and the instance goes on. A path that can't be is refused at the start."""
    running = Instance(tmp_path / "i", options=("--audit", "/dev/full"), timing_scale=timing_scale)
    try:
        running.start()
        running.execute("CREATE ROLE one", "DROP ROLE one")
        assert "the audit log /dev/full can't be written: No space left on device" in running.log()
        assert running.stop() == 0
    finally:
        running.kill()
    path = tmp_path / "nowhere" / "audit.log"
    refused = Instance(tmp_path / "j", options=("--audit", str(path)), timing_scale=timing_scale)
    with pytest.raises(NotInTime):
        refused.start()
    assert f"audit: {path} can't be opened: No such file or directory" in refused.log()
    assert "Traceback" not in refused.log()


def test_lost_events_are_counted(tmp_path: Path, timing_scale: float) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    running = Instance(tmp_path / "i", options=("--audit", str(pipe)), timing_scale=timing_scale)

    def read() -> list[dict[str, Any]]:
        data = b""
        try:
            while chunk := os.read(reading, 1 << 20):
                data += chunk
        except BlockingIOError:
            pass
        return [json.loads(line) for line in data.splitlines()]

    try:
        running.start()
        seen = read()
        with running.connect() as admin:
            # More than a pipe holds.
            for _ in range(150):
                admin.execute("CREATE ROLE one WAIT APPLIED LOCALLY")
                admin.execute("DROP ROLE one WAIT APPLIED LOCALLY")
        if len(seen) + 301 > len(seen := seen + read()):  # nothing is lost with a large pipe
            running.execute("CREATE ROLE two")
            seen += read()
        lost = sum(event["count"] for event in seen if event["title"] == "lost_events")
        numbers = [int(event["id"].split(".")[2]) for event in seen]
        assert numbers == sorted(numbers)
        missing = numbers[-1] - len(numbers)
        assert missing >= lost > 0 or missing == lost == 0, "a gap in the count shows, and is told"
        assert seen[-1]["title"] in ("create_role", "drop_role")
    finally:
        os.close(reading)
        running.kill()


def test_three_instances(clusters: Clusters, tmp_path: Path, timing_scale: float) -> None:
    """What is in the cluster's log each of them tells once; what happens at one only that one."""
    cluster = clusters(0)
    paths = [tmp_path / f"audit{number}.log" for number in range(4)]
    for path in paths[:3]:
        cluster.add("--audit", str(path))
    cluster.start()
    cluster.settle()
    one, two, three = cluster.instances
    one.execute(
        f"CREATE USER ann WITH PASSWORD '{PASSWORD}'",
        "CREATE TABLE fish (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
        "GRANT READ ON TABLE fish TO ann",
    )
    two.execute("TRUNCATE fish")
    with connect(two, "ann") as conn, pytest.raises(errors.InsufficientPrivilege):
        conn.execute("INSERT INTO fish VALUES (1)")
    three.kill()
    gone = three.running.name
    eventually(lambda: instances_of(one)[gone]["state"] == "Offline", 20 * timing_scale, "it is Offline")
    one.execute("REVOKE READ ON TABLE fish FROM ann", "DROP TABLE fish")
    three.start()
    cluster.settle()
    one.execute("DROP USER ann")

    def of_the_log(path: Path) -> list[tuple[Any, ...]]:
        return [
            (event["title"], event["index"], event["message"], event["initiator"], event["time"])
            for event in events(path)
            if event["title"] in OF_THE_LOG
        ]

    def all_told() -> bool:
        return all(len(of_the_log(path)) == 7 for path in paths[:3])

    eventually(all_told, 20 * timing_scale, "each has told of each")
    assert of_the_log(paths[0]) == of_the_log(paths[1]) == of_the_log(paths[2])
    counted = Counter(title for title, *_ in of_the_log(paths[0]))
    assert counted == dict.fromkeys(OF_THE_LOG, 1)
    for number, path in enumerate(paths[:3]):
        by_ann = [event["title"] for event in events(path) if event["initiator"] == "ann"]
        assert by_ann == (["auth_ok", "access_denied"] if number == 1 else [])
    ids = [event["id"] for path in paths[:3] for event in events(path)]
    assert len(set(ids)) == len(ids)
    # All saw the third one go and come back.
    name = three.running.name
    for path in paths[:2]:
        states = [
            event["new_state"]
            for event in events(path)
            if event["title"] == "change_current_state" and event["instance"] == name
        ]
        assert states == ["Online(1)", "Offline(1)", "Online(2)"]
    # One that comes later tells the whole story, as it reads it.
    late = cluster.add("--audit", str(paths[3]))
    cluster.start(late)
    assert of_the_log(paths[3]) == of_the_log(paths[0])
    assert titles(paths[3])[0] == "init_audit"
    assert not any(title in ("auth_ok", "access_denied") for title in titles(paths[3]))


def test_by_a_snapshot(clusters: Clusters, tmp_path: Path, timing_scale: float) -> None:
    """What led to it is not told, but that it isn't."""
    cluster = clusters(1)
    cluster.start()
    (one,) = cluster.instances
    with one.connect() as admin:
        admin.execute("ALTER SYSTEM SET raft_wal_count_max = 10")
        for number in range(40):
            admin.execute(f"CREATE ROLE r{number}")
    path = tmp_path / "audit.log"
    late = cluster.add("--audit", str(path))
    cluster.start(late)
    told = events(path)
    (snapshot,) = [event for event in told if event["title"] == "apply_snapshot"]
    assert snapshot["index"] > 40
    assert all(
        event["index"] > snapshot["index"] for event in told if "index" in event and event is not snapshot
    )
    assert not any(event["title"] == "create_role" and event["index"] < snapshot["index"] for event in told)


def test_a_refused_admin_socket(own: Instance) -> None:
    with pytest.raises(psycopg.OperationalError, match='the admin socket is for "admin" alone'):
        psycopg.connect(host=str(own.socket_directory), port=own.port, user="guest")
