"""`shoal demo`, `status` and `expel` with several instances, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cluster import eventually
from tests.interop.test_demo import SHOAL, Demo, demo, environment, is_gone, place, shoal

__all__ = ["place"]  # a fixture

SETTLE_SECONDS = 60.0


def status(where: str) -> tuple[int, dict[str, Any]]:
    answered = shoal("status", where, "--json")
    assert answered.stdout, answered.stderr
    report: dict[str, Any] = json.loads(answered.stdout)
    return answered.returncode, report


def is_well(where: str) -> dict[str, Any] | None:
    code, report = status(where)
    return report if code == 0 else None


def degraded(where: str, problem: str) -> dict[str, Any] | None:
    """The report, once it names this problem."""
    code, report = status(where)
    return report if code == 1 and any(problem in said for said in report["problems"]) else None


def socket_of(place: Path, number: int) -> str:
    """The directory of a member: status and admin take it."""
    return str(place / f"i{number}")


def member_pid(ready: dict[str, Any], place: Path, number: int) -> int:
    """Members have directories by number, and names that the cluster chose: cluster.json knows both."""
    members = json.loads((place / "cluster.json").read_text())["instances"]
    (name,) = (member["name"] for member in members if member["directory"] == f"i{number}")
    (pid,) = (int(instance["pid"]) for instance in ready["instances"] if instance["name"] == name)
    return pid


@pytest.fixture
def three(place: Path) -> Iterator[tuple[Demo, dict[str, Any]]]:
    with demo("--instances", "3", "--base-port", "0", "--trust", "--dir", str(place)) as running:
        yield running


def test_three_instances_are_one_cluster(three: tuple[Demo, dict[str, Any]], place: Path) -> None:
    process, ready = three
    assert sorted(instance["name"] for instance in ready["instances"]) == [
        "default_1_1",
        "default_2_1",
        "default_3_1",
    ]
    report = eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
    assert sum(instance["leader"] for instance in report["instances"]) == 1
    assert {instance["role"] for instance in report["instances"]} == {"voter"}
    assert len({instance["raft_id"] for instance in report["instances"]}) == 3
    assert report["notes"] == []
    # One catalog: what is written through one is there in all.
    with psycopg.connect(ready["admin_url"], autocommit=True) as connection:
        connection.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        connection.execute("INSERT INTO g VALUES (1), (2)")
    for instance in ready["instances"]:
        url = f"postgresql://admin@{instance['pg']}/shoal"
        with psycopg.connect(url, autocommit=True) as connection:

            def count(connection: psycopg.Connection[Any] = connection) -> bool:
                try:
                    return connection.execute("SELECT count(*) FROM g").fetchone() == (2,)
                except psycopg.errors.UndefinedTable:
                    return False

            eventually(count, SETTLE_SECONDS, f"the rows on {instance['name']}")
    code, rest, said = process.end(signal.SIGTERM)
    assert (code, rest, said) == (0, "", "")
    assert all(is_gone(instance["pid"]) for instance in ready["instances"])


def test_a_cluster_is_resumed_as_it_was(place: Path) -> None:
    arguments = ("--dir", str(place))
    with demo(*arguments, "--instances", "3", "--base-port", "0", "--trust") as (process, first):
        with psycopg.connect(first["admin_url"], autocommit=True) as connection:
            connection.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
            connection.execute("INSERT INTO g VALUES (7)")
        assert process.end(signal.SIGTERM)[0] == 0
    for asked, said in (("2", "has 3 instances: --instances 2 can't change that"),):
        refused = shoal("demo", *arguments, "--instances", asked)
        assert refused.returncode == 1
        assert said in refused.stderr
    with demo(*arguments, "--trust") as (process, second):
        for before, after in zip(first["instances"], second["instances"], strict=True):
            for key in ("name", "uuid", "pg", "rpc", "http", "tier", "replicaset"):
                assert before[key] == after[key]
        with psycopg.connect(second["admin_url"], autocommit=True) as connection:
            assert connection.execute("SELECT id FROM g").fetchall() == [(7,)]
        eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well again")
        process.end(signal.SIGKILL)  # and all instances with it: they come back from that, too
        assert all(is_gone(instance["pid"]) for instance in second["instances"])
    with demo(*arguments, "--trust") as (_, third):
        with psycopg.connect(third["admin_url"], autocommit=True) as connection:
            assert connection.execute("SELECT id FROM g").fetchall() == [(7,)]


def test_one_that_dies_is_told_of_and_the_others_go_on(place: Path) -> None:
    with demo("--instances", "3", "--base-port", "0", "--trust", "--dir", str(place)) as (process, ready):
        eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
        os.kill(member_pid(ready, place, 3), signal.SIGKILL)
        left = socket_of(place, 1)
        report = eventually(
            lambda: degraded(left, "is Offline (nobody listens at its address"),
            SETTLE_SECONDS,
            "one is missed",
        )
        silent = [instance for instance in report["instances"] if not instance["reachable"]]
        assert len(silent) == 1
        # Two of three still agree.
        eventually(lambda: status(left)[1]["leader"], SETTLE_SECONDS, "a leader")
        with psycopg.connect(ready["admin_url"], autocommit=True) as connection:
            connection.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        assert process.process.poll() is None
        os.kill(member_pid(ready, place, 2), signal.SIGKILL)
        process.process.wait(SETTLE_SECONDS)
        code, _, said = process.end(signal.SIGTERM)
    assert code == 1
    assert said.count("was ended by SIGKILL; its log ends with:") == 2
    assert "2 of 3 instances go on" in said
    assert "1 of 3 instances are no majority, so all are stopped" in said


def test_without_a_majority_status_still_answers(place: Path) -> None:
    # A frozen process is no dead one: the demo keeps running, and the cluster can't.
    with demo("--instances", "3", "--base-port", "0", "--trust", "--dir", str(place)) as (_, ready):
        eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
        frozen = [member_pid(ready, place, number) for number in (2, 3)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            needed = "1 of 3 voters answers, and 2 are needed to change the catalog"
            report = eventually(
                lambda: degraded(socket_of(place, 1), needed), SETTLE_SECONDS, "no majority is seen"
            )
            assert sum("no answer in 2 s" in problem for problem in report["problems"]) == 2
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        eventually(lambda: is_well(socket_of(place, 1)), SETTLE_SECONDS, "all is well again")


def test_two_instances_need_each_other_and_are_told_so(place: Path) -> None:
    process = subprocess.Popen(
        [
            *SHOAL,
            "demo",
            "--instances",
            "2",
            "--replication-factor",
            "2",
            "--base-port",
            "0",
            "--dir",
            str(place),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(COLUMNS="100"),
    )
    try:
        assert process.stdout is not None
        shown = ""
        while "Ctrl-C" not in shown:
            line = process.stdout.readline()
            assert line, process.wait(SETTLE_SECONDS)
            shown += line
        assert "A majority of 2 voters is both" in shown
        report = eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
        assert "A majority of 2 voters is both" in report["notes"][0]
        assert [tier["replication_factor"] for tier in report["tiers"]] == [2]
        assert len(report["replicasets"]) == 1
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SETTLE_SECONDS)
    assert process.returncode == 0


def test_seven_instances(place: Path) -> None:
    with demo("--instances", "7", "--base-port", "0", "--dir", str(place)) as (_, ready):
        assert len(ready["instances"]) == 7
        report = eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
        roles = [instance["role"] for instance in report["instances"]]
        assert (roles.count("voter"), roles.count("learner")) == (5, 2)


def test_an_instance_is_expelled_by_its_uuid(place: Path) -> None:
    with demo("--instances", "3", "--base-port", "0", "--trust", "--dir", str(place)) as (process, ready):
        report = eventually(lambda: is_well(str(place)), SETTLE_SECONDS, "all is well")
        unknown = str(uuid.uuid4())
        refused = shoal("expel", unknown, str(place))
        assert refused.returncode == 1
        assert unknown in refused.stderr
        # The demo's directories are by number: take the one that doesn't lead, and isn't asked.
        members = json.loads((place / "cluster.json").read_text())["instances"]
        gone = next(member for member in members if member["name"] != report["leader"])
        asked = next(member for member in members if member["name"] != gone["name"])
        refused = shoal("expel", gone["uuid"], str(place / asked["directory"]))
        assert refused.returncode == 1  # it is Online
        assert "Traceback" not in refused.stderr
        done = shoal("expel", gone["uuid"], str(place / asked["directory"]), "--force")
        assert (done.returncode, done.stdout) == (0, f"{gone['uuid']} is expelled\n"), done.stderr
        again = shoal("expel", gone["uuid"], str(place / asked["directory"]), "--force")
        assert again.returncode == 0, again.stderr
        assert is_gone(
            next(instance["pid"] for instance in ready["instances"] if instance["name"] == gone["name"])
        )
        report = eventually(lambda: is_well(str(place / asked["directory"])), SETTLE_SECONDS, "two are well")
        states = {instance["name"]: instance["state"] for instance in report["instances"]}
        assert states[gone["name"]] == "Expelled"
        assert sorted(states.values()) == ["Expelled", "Online", "Online"]
        code, _, said = process.end(signal.SIGTERM)
        assert code == 0
        assert f"{gone['name']} was expelled, and has ended" in said
    # It doesn't come back, and the others do without it.
    with demo("--dir", str(place), "--trust") as (_, ready):
        assert gone["uuid"] not in {instance["uuid"] for instance in ready["instances"]}
        assert len(ready["instances"]) == 2
