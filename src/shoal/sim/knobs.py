"""What a seed draws: the size of a cluster, its limits, and how badly it is treated.

Here: Knobs, draw().
Not here: doing it (network.py, member.py, cluster.py).

Every seed draws its own, because bugs hide behind different ones: some need a quiet cluster with one crash at the
right moment, some a storm of old messages, some a limit of one entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from shoal.raft.node import Limits

TICK_US: Final = 100_000
REPLAY_TICKS: Final = 60  # the latest that a replayed message arrives
ENTRIES_US_MAX: Final = 3_000_000  # the most that its entries delay an append
INSTANCES_MAX: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Chances are per message or per save, times in simulated µs, periods in ticks (0: never)."""

    instances: int
    learners: int  # of them
    limits: Limits
    snapshot_bootstrap: bool  # the first members begin from a mark; otherwise from entries that add them
    # network
    loss: float
    duplication: float
    delay_us: int
    entry_us: int  # that each of its entries adds to an append's delay
    tail: float  # of being late by about tail_us
    tail_us: int
    in_order: bool  # per link, as TCP does
    replay: float  # of arriving once more, much later
    reports_loss: float  # of a lost message's sender being told that the other can't be reached
    over_the_wire: bool  # every message is encoded and decoded
    # crashes, and what else goes wrong
    fault_period: int
    leader_fault_period: int  # of those that hit whoever leads
    reconnect_period: int  # of a member's connections breaking, with nothing lost over it
    down_ticks: int
    crash_at_message: float
    crash_at_save: float
    crash_at_send: float
    lose_in_flight: float  # of a crash that takes along what its member had sent
    pauses: bool
    collide: float  # of drawing the shortest election timeout, as others do
    drift: float  # of a member's clock
    # disk
    save_us: int
    uneven_disks: bool  # some are slower than others
    full: float  # of a disk being full for a while
    batch: int  # messages in one pass of the loop
    compact_after: int  # entries
    compact_keep: int
    chunk_bytes: int
    # load
    proposals: float  # per tick
    proposal_batch: int
    data_bytes: int
    reads: float  # per tick
    membership_period: int
    wild_changes: bool  # voters are added without having been learners
    transfer_period: int
    fast_failover: float  # of a crashed leader's followers noticing at once
    watch_elections: int  # so many election timeouts the healed cluster has to keep its leader


def draw(rng: Random, instances: int | None = None) -> Knobs:
    pick = rng.choice

    def some(*values: float) -> float:
        """A kind of harm that most seeds don't know: with all of them at once nobody leads for long enough to fail."""
        return pick(values) if rng.random() < 0.35 else 0.0

    limits = Limits(
        election_ticks=pick((4, 5, 10)),
        heartbeat_ticks=pick((1, 1, 2, 3)),
        append_bytes=pick((1, 50, 200, 1 << 20)),
        inflight_messages=pick((1, 2, 8, 256)),
        inflight_bytes=pick((1, 100, 16 << 20)),
        apply_bytes=pick((1, 50, 4 << 20, 4 << 20)),
        unsaved_proposals_bytes=pick((100, 64 << 20)),
    )
    drawn = pick((1, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7))
    members = instances or drawn
    return Knobs(
        instances=members,
        learners=min(members - 1, pick((0, 0, 0, 1, 2, 3))),
        limits=limits,
        snapshot_bootstrap=pick((False, True)),
        loss=some(0.01, 0.05, 0.2),
        duplication=some(0.02, 0.1, 0.3),
        delay_us=pick((1_000, 1_000, 10_000, 40_000, 120_000)),
        entry_us=int(some(20_000, 100_000, 300_000)),
        tail=some(0.01, 0.05, 0.2),
        tail_us=pick((300_000, 1_000_000, 4_000_000)),
        in_order=pick((False, False, True)),
        replay=pick((0.0, 0.0, 0.01, 0.1)),
        reports_loss=some(0.3, 1.0),
        over_the_wire=rng.random() < 0.05,
        fault_period=int(some(8, 20, 60)),
        leader_fault_period=pick((0, 8, 15, 30)),
        reconnect_period=int(some(2, 10, 30)),
        down_ticks=pick((1, 4, 15, 40)),
        crash_at_message=some(0.001, 0.003, 0.01),
        crash_at_save=some(0.003, 0.01, 0.05),
        crash_at_send=some(0.001, 0.005, 0.02),
        lose_in_flight=pick((0.0, 0.5, 1.0)),
        pauses=pick((False, True)),
        collide=some(0.5, 0.9),
        drift=some(0.05, 0.5),
        save_us=pick((0, 0, 1_000, 30_000, 150_000)),
        uneven_disks=pick((False, True)),
        full=some(0.002, 0.02),
        batch=pick((1, 1, 2, 64)),
        compact_after=pick((0, 1, 4, 16)),
        compact_keep=pick((0, 0, 2)),
        chunk_bytes=pick((8, 30, 1000)),
        proposals=pick((0.1, 0.3, 1.0)),
        proposal_batch=pick((1, 1, 3, 10)),
        data_bytes=pick((1, 1, 40)),
        reads=pick((0.0, 0.3, 1.0)),
        membership_period=pick((0, 0, 6, 25)),
        wild_changes=pick((False, False, True)),
        transfer_period=int(some(4, 10, 50)),
        fast_failover=some(0.5, 1.0),
        watch_elections=pick((0, 0, 0, 2)),
    )
