"""A machine with nothing left for the instances: more processes that only calculate than it has processors, and clients.

Here: hogs(), and stay_online(), which says that no instance is taken for dead meanwhile.
Not here: how long (test_offline.py, tests/slow/test_busy_machine.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.cluster import Cluster, Instance, instances_of

_SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """They end with the tests, too."""
    running = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def stay_online(cluster: Cluster, *, seconds: float, hogs_per_processor: int = 4) -> None:
    cluster.start()
    leader = cluster.settle()
    leader.execute("CREATE TABLE g (id INT PRIMARY KEY, v INT) DISTRIBUTED GLOBALLY")
    before = {name: (row["current_state"], row["target_state"]) for name, row in instances_of(leader).items()}
    stop = threading.Event()
    clients = [
        threading.Thread(target=_write, args=(instance, number, stop))
        for number, instance in enumerate(cluster.instances)
    ]
    with hogs(hogs_per_processor * (os.cpu_count() or 1)):
        for client in clients:
            client.start()
        time.sleep(seconds)
        stop.set()
        for client in clients:
            client.join()
    cluster.settle()
    after = {name: (row["current_state"], row["target_state"]) for name, row in instances_of(leader).items()}
    told = [line for each in cluster.instances for line in each.log().splitlines() if "given up" in line]
    assert after == before, "\n".join(told)
    assert not told, "\n".join(told)


def _write(instance: Instance, number: int, stop: threading.Event) -> None:
    """What it is answered doesn't matter: without a leader for a moment it is an error."""
    with instance.connect() as connection:
        while not stop.is_set():
            try:
                connection.execute(
                    b"INSERT INTO g VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET v = v + 1",
                    (number,),
                )
                connection.execute("SELECT sum(v) FROM g")
            except psycopg.Error as error:
                if error.sqlstate is None:
                    raise
