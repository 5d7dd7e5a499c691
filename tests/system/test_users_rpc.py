"""Users at the RPC port of a real instance, where programs that move data in bulk come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Instance, eventually
from tests.system.test_audit import events
from tests.system.test_users import PASSWORD, refused_login
from tests.unit.node.rpc_ground import Ground, run
from tests.unit.node.test_rpc_hostile import TurnedAway, client


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def instance(
    tmp_path_factory: pytest.TempPathFactory, audit: Path, timing_scale: float
) -> Iterator[Instance]:
    running = Instance(
        tmp_path_factory.mktemp("rpc") / "i", options=("--audit", str(audit)), timing_scale=timing_scale
    )
    running.start()
    try:
        yield running
        assert not running.bugs(), running.bugs()
    finally:
        running.kill()


def turned_away(instance: Instance, user: str, password: str) -> None:
    async def scenario(ground: Ground) -> None:
        with pytest.raises(TurnedAway) as refused:
            await client(ground, instance.running.rpc, user, password)
        assert refused.value.args == ("login", "28P01", f"authentication failed for user '{user}'")

    run(scenario)


def test_a_user_comes_in_and_has_to_go(instance: Instance, audit: Path) -> None:
    instance.execute(f"CREATE USER ann WITH PASSWORD '{PASSWORD}'")

    async def scenario(ground: Ground) -> None:
        wire = await client(ground, instance.running.rpc, "ann", PASSWORD)
        other = await client(ground, instance.running.rpc, "ann", PASSWORD)
        wire.put(0, 1, 1000, ["ping", b"x"])
        assert await wire.heard() == [1, 1, ["pong", b"x"]]
        # What instances ask each other is not for users, whatever they may do.
        for request in (["cas", 1, b"", [1, 1], b""], ["attempts", [[1, False, 9]]], ["applied", 1, "u"]):
            wire.put(0, 2, 1000, request)
            assert (await wire.heard())[:3] == [2, 2, "42501"]
        await ground.loop.run_in_executor(None, instance.execute, "ALTER USER ann NOLOGIN")
        await wire.ends()
        await other.ends()

    run(scenario)
    turned_away(instance, "ann", PASSWORD)
    told = [(event["title"], event["from"]) for event in events(audit) if event["initiator"] == "ann"]
    assert told == [("auth_ok", "RPC"), ("auth_ok", "RPC"), ("auth_fail", "RPC")]


def test_who_does_not_come_in(instance: Instance) -> None:
    instance.execute(
        f"CREATE USER by_md5 WITH PASSWORD '{PASSWORD}' USING md5",
        f"CREATE USER by_scram WITH PASSWORD '{PASSWORD}'",
        "CREATE ROLE a_role",
    )
    for user, password in (
        ("by_md5", PASSWORD),
        ("nobody", PASSWORD),
        ("a_role", ""),
        ("admin", ""),
        ("guest", ""),
    ):
        turned_away(instance, user, password)
    turned_away(instance, "by_scram", "wrong")


def test_wrong_passwords_are_counted_with_those_of_the_other_protocol(
    instance: Instance, timing_scale: float
) -> None:
    instance.execute(f"CREATE USER counted WITH PASSWORD '{PASSWORD}'")
    for _ in range(2):
        turned_away(instance, "counted", "wrong")
        assert refused_login(instance, "counted", "wrong")
    turned_away(instance, "counted", PASSWORD)
    assert refused_login(instance, "counted", PASSWORD)
    eventually(lambda: "user 'counted' blocked" in instance.log(), 10 * timing_scale)
