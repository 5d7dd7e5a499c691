"""Schema changes in a cluster whose instances die, freeze, come late or refuse: they come to one end, everywhere the same,
and nothing else waits for them."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster import Cluster, Instance, eventually
from tests.system.catalog_files import check_catalog_against_tables

Clusters = Callable[..., Cluster]


def started(clusters: Clusters, count: int = 3, **options: object) -> tuple[Cluster, Instance]:
    """The cluster, and who leads it."""
    cluster = clusters(count, **options)
    cluster.start()
    return cluster, cluster.settle()


def agree(cluster: Cluster, timing_scale: float) -> None:
    """Nothing is pending; the catalogs are the same, and the tables of each instance are what they say."""
    cluster.same_everywhere()

    def physical() -> bool:
        try:
            for instance in cluster.running:
                check_catalog_against_tables(instance.directory)
        except AssertionError:
            return False
        return True

    try:
        eventually(physical, 20 * timing_scale, "tables as the catalog shows them")
    except AssertionError:
        for instance in cluster.running:
            check_catalog_against_tables(instance.directory)


def test_every_master_has_the_tables(clusters: Clusters, timing_scale: float) -> None:
    cluster, leader = started(clusters)
    with leader.connect() as connection:
        connection.execute("CREATE TABLE s (id INT PRIMARY KEY, v INT)")
        connection.execute("CREATE UNLOGGED TABLE u (id INT PRIMARY KEY)")
        connection.execute("CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        connection.execute("ALTER TABLE s ADD COLUMN w TEXT")
        connection.execute("CREATE INDEX s_w ON s (w)")
    agree(cluster, timing_scale)
    for change in (
        "TRUNCATE s",
        "DROP INDEX s_w",
        "ALTER TABLE s RENAME TO r",
        "DROP TABLE u",
        "DROP TABLE g",
    ):
        cluster.follower().execute(change)
    agree(cluster, timing_scale)
