"""What SQL says of the cluster, in a session that was there before it changed."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster import Cluster, eventually


def test_a_session_hears_of_a_new_leader_and_of_who_went(
    clusters: Callable[..., Cluster], timing_scale: float
) -> None:
    cluster = clusters(3)
    cluster.start()
    leader = cluster.settle()
    others = [instance for instance in cluster.instances if instance is not leader]
    with others[0].connect() as connection:

        def seen() -> tuple[int | None, str | None]:
            row = connection.execute("SELECT pico_raft_leader_id(), pico_raft_leader_uuid()::text").fetchone()
            assert row is not None
            return row

        def health() -> str:
            row = connection.execute(
                "SELECT pico_instance_health_status(%s)", (leader.running.uuid,)
            ).fetchone()
            assert row is not None
            assert row[0]["name"] == leader.running.name
            return str(row[0]["status"])

        assert seen() == (leader.raft()["id"], leader.running.uuid)
        assert health() == "healthy"
        assert leader.stop() == 0
        successor = cluster.await_leader(others)
        eventually(
            lambda: seen() == (successor.raft()["id"], successor.running.uuid),
            20 * timing_scale,
            "the new leader in SQL",
        )
        eventually(lambda: health() == "broken", 20 * timing_scale, "the one that stopped")
