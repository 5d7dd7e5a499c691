"""What a seed draws: the size of a cluster, how far its parts are from each other, and how badly it is treated.

Here: Knobs, draw().
Not here: doing it (run.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.network import Delays

FAULTS = (
    "kill",
    "dark",
    "stop",
    "freeze",
    "isolate",
    "split",
    "one way",
    "reset",
    "transfer",
    "campaign",
    "slow network",
    "slow threads",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Seconds of simulated time; chances are per event or per statement."""

    instances: int
    flags: dict[str, Any]
    network: Delays
    threads: Delays
    seconds: float  # of faults and statements
    clients: int
    think: float
    ddl: float
    acl: float
    dml: float
    sharded: float
    patience: float  # of a client
    cancels: float
    fault_pause: float  # between two faults
    fault_weights: tuple[float, ...]
    fault_seconds: float  # until it is healed
    sudden: float  # of a fault at any event, for whom it concerns
    on_leader: float  # of a fault
    wal_count_max: int | None  # entries: with few of them, whoever comes back gets a snapshot
    early: bool  # faults begin before the cluster is whole
    late: int  # machines that join later
    expel: bool


def draw(rng: Random, instances: int | None = None) -> Knobs:
    pick = rng.choice
    drawn = pick((2, 3, 3, 3, 4, 5, 5))
    quick = rng.random() < 0.5
    network = pick(
        (
            Delays(0.0001, 0.0005),
            Delays(0.0002, 0.002, 0.02, 0.05),
            Delays(0.002, 0.02, 0.05, 0.5),
            Delays(0.0, 0.06),
        )
    )
    threads = pick((Delays(0.00005, 0.0005), Delays(0.0, 0.01, 0.02, 0.2), Delays(0.0, 0.05)))
    # A seed meets only some kinds of fault: some bugs show only where another fault doesn't hide them.
    weights = tuple(float(rng.random() < 0.6) * pick((1, 1, 3)) for _ in FAULTS)
    if not any(weights):
        weights = (1.0,) * len(FAULTS)
    return Knobs(
        instances=instances or drawn,
        flags={
            "raft_tick_ms": 30 if quick else 100,
            "raft_election_ticks": pick((5, 10)),
            "raft_heartbeat_ticks": pick((1, 3)),
        },
        network=network,
        threads=threads,
        seconds=rng.uniform(12, 25),
        clients=pick((2, 3, 4, 6)),
        think=pick((0.02, 0.1, 0.3)),
        ddl=pick((1, 1, 3)),
        acl=pick((0, 0.5, 0.5, 2)),
        dml=pick((1, 2, 4)),
        sharded=pick((0, 1)),
        patience=pick((3, 10, 100)),
        cancels=pick((0, 0, 0.05)),
        fault_pause=pick((1, 3, 8)),
        fault_weights=weights,
        fault_seconds=pick((0.3, 2, 6)),
        sudden=pick((0, 0, 0.0005, 0.003)),
        on_leader=pick((0.2, 0.5, 0.9)),
        wal_count_max=pick((None, None, 10, 40)),
        early=rng.random() < 0.2,
        late=pick((0, 0, 0, 1, 2)),
        expel=rng.random() < 0.25,
    )
