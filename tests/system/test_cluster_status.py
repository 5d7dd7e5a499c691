"""`shoal status` of a cluster that isn't whole: its exit code, and what it says, whoever is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from shoal import __version__
from tests.cluster import Cluster, Instance, eventually
from tests.interop.test_demo import environment

Report = dict[str, Any]


def status(asked: Instance, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "shoal", "status", str(asked.directory), *options],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )


def report(asked: Instance) -> Report:
    answered = status(asked, "--json")
    assert answered.stdout, answered.stderr
    found: Report = json.loads(answered.stdout)
    assert answered.returncode == (1 if found["degraded"] else 0)
    assert found["degraded"] == bool(found["problems"])
    return found


def says(asked: Instance, *problems: str, seconds: float = 30.0) -> Report:
    """The report, once each of these is a part of a problem of its own, and there are no others."""
    last: list[Report] = []

    def right() -> bool:
        last[:] = [report(asked)]
        said = last[0]["problems"]
        return len(said) == len(problems) and all(any(each in one for one in said) for each in problems)

    try:
        eventually(right, seconds)
    except AssertionError as error:
        error.add_note(f"expected {problems}, the last answer was {last[0]['problems']}")
        raise
    return last[0]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("status"), 3, links=True, timing_scale=timing_scale)
    try:
        cluster.start()
        cluster.settle()
        yield cluster
    finally:
        cluster.close()


def test_a_whole_one(three: Cluster) -> None:
    leader = three.settle()
    found = report(three.follower())
    assert not found["degraded"]
    assert found["leader"] == leader.running.name
    for each in found["instances"]:
        assert (each["state"], each["role"], each["reachable"], each["version"]) == (
            "Online", "voter", True, __version__,
        )  # fmt: skip
        assert each["term"] == leader.raft()["term"]
        assert each["applied"] == leader.raft()["applied"]
    shown = status(leader)
    assert shown.returncode == 0
    assert f"all is well: 3 instances are Online, and {leader.running.name} leads" in shown.stdout


def test_one_is_stopped_then_another_is_killed(three: Cluster) -> None:
    leader = three.settle()
    stopped = three.follower()
    (last,) = (each for each in three.instances if each not in (leader, stopped))
    assert stopped.stop() == 0
    name = stopped.running.name
    found = says(leader, f"{name} is Offline (shutdown, ")
    states = {each["name"]: each["state"] for each in found["instances"]}
    assert states == {name: "Offline", leader.running.name: "Online", last.running.name: "Online"}
    leader.kill()
    found = says(
        last,
        "there is no leader",
        "1 of 3 voters answers, and 2 are needed to change the catalog",
        f"{name} is Offline (shutdown, ",
        f"{leader.running.name} does not answer at {leader.running.http}: connection refused",
    )
    assert found["leader"] is None
    # One that waits for the others says so, and can be asked.
    leader.begin()
    eventually(leader.raft, 30 * three.timing_scale)
    eventually(lambda: three.leader([leader, last]), 30 * three.timing_scale)
    leader.await_ready()
    says(last, f"{name} is Offline (shutdown, ")
    shown = status(last)
    assert shown.returncode == 1
    assert f"degraded:\n- {name} is Offline (shutdown, " in shown.stdout
    stopped.start()
    three.settle()
    says(last)


def test_one_that_waits_for_a_majority_can_be_asked(three: Cluster) -> None:
    three.settle()
    for instance in three.instances:
        instance.kill()
    alone, *others = three.instances
    alone.begin()
    eventually(alone.raft, 30 * three.timing_scale)
    found = says(
        alone,
        "there is no leader",
        "1 of 3 voters answers",
        f"{alone.running.name} is starting",
        *(f"{other.running.name} does not answer" for other in others),
    )
    assert found["instances"]
    three.start(*others)
    alone.await_ready()
    three.settle()


def test_one_that_is_frozen(three: Cluster) -> None:
    leader = three.settle()
    frozen = three.follower()
    with frozen.frozen():
        name = frozen.running.name
        says(leader, f"{name} is Offline (silent for 2 s, ")
    three.settle()
    assert says(leader)["leader"]


def test_one_that_is_cut_off_from_the_others(three: Cluster) -> None:
    """Whoever asks reaches it, and the others: so what is wrong is told, whomever is asked."""
    assert three.links is not None
    leader = three.settle()
    alone = three.follower()
    name = alone.running.name
    three.links.isolate(name)
    try:
        says(leader, f"{name} is Offline (silent for 2 s, ", f"{name} hears no leader")
        # It doesn't know that it was given up.
        found = says(alone, f"{name} hears no leader")
        assert found["leader"] == leader.running.name
    finally:
        three.links.heal()
    three.settle()
    says(alone)


def test_versions_that_differ(three: Cluster) -> None:
    leader = three.settle()
    newer = three.follower()
    assert newer.stop() == 0
    major, minor = (int(part) for part in __version__.split(".")[:2])
    newer.version = f"{major}.{minor + 1}.0"
    newer.start()
    three.settle()
    found = says(leader, f"the instances' versions differ: {__version__} (")
    assert newer.version in found["problems"][0]
    assert newer.stop() == 0
    newer.version = None
    newer.start()
    three.settle()
    says(leader)


def test_one_that_was_expelled_is_no_problem(three: Cluster) -> None:
    leader = three.settle()
    gone = next(
        each
        for each in three.instances
        if each is not leader and "this instance begins cluster" not in each.log()
    )
    three.forgiven.add(gone)
    assert gone.stop() == 0
    leader.execute(f"ALTER SYSTEM EXPEL INSTANCE '{gone.running.uuid}'")
    found = says(leader)
    assert "A majority of 2 voters is both" in found["notes"][0]
    shown = status(leader)
    assert shown.returncode == 0
    assert f"expelled: {gone.running.name}" in shown.stdout
    assert "all is well: 2 instances are Online" in shown.stdout


def test_nobody_is_there(three: Cluster) -> None:
    for instance in three.instances:
        instance.kill()
    answered = status(three.instances[0])
    assert answered.returncode != 0
    assert "Traceback" not in answered.stderr
    assert answered.stderr
