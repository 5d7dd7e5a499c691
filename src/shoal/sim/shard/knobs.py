"""What a seed draws: the size of a replicaset, its limits, and how badly it is treated.

Here: Knobs, draw().
Not here: doing it (network.py, member.py, cluster.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from shoal.shard.own import Limits

MS: Final = 1_000
SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Chances are per message or per save, times in simulated µs (0: never, or at once)."""

    members: int
    limits: Limits
    # network
    loss: float
    duplication: float
    delay_us: int
    tail: float  # of being late by about tail_us
    tail_us: int
    in_order: bool  # per link, as TCP does
    over_the_wire: bool  # every message is encoded and decoded
    # crashes, and what else goes wrong
    fault_us: int
    down_us: int
    crash_at_message: float
    crash_at_save: float
    crash_at_send: float
    crash_at_wish: float
    late_wishes: float  # of a proposal that stays in somebody's queue
    ambushes: float  # of the master being taken for dead right after the catalog has changed
    pauses: bool
    clocks: float  # how much of the drift that the limits allow is used
    reboots: float  # of a crash after which the clock begins anew
    notice: float  # of a master seeing at once that a member's process is gone
    commit_fails: float
    full_disks: bool
    # disk
    save_us: int
    apply_us: int
    run_us: int  # statements of a group
    read_us: int  # a statement that reads
    apply_entries: int
    entry_writes: int
    log_max: int  # entries, before some are forgotten
    log_needed: bool  # what members still need isn't forgotten
    chunk_bytes: int
    # catalog
    catalog_us: int  # how late the members apply it
    skips: bool  # they see only the latest version
    outages: bool
    detect_us: int  # without a status for so long, the governor takes a member for dead
    hasty: float  # of the governor taking a member for dead that isn't
    hand_over_us: int  # how often another member is wanted as the master
    # load
    clients: int
    think_us: int
    keys: int
    writes_max: int  # of a statement
    reads: float
    inserts: float  # of the writes: they fail, and tell what is there, if anything is
    stray: float  # of asking a member by chance


def draw(rng: Random, members: int | None = None) -> Knobs:
    pick = rng.choice
    lease_us = pick((60, 150, 400)) * MS
    limits = Limits(
        lease_us=lease_us,
        drift=pick((0.01, 0.05, 0.2)),
        beat_us=lease_us // pick((3, 5)),
        silent_us=lease_us * pick((1, 2)) + 100 * MS,
        stuck_us=pick((400, 1000)) * MS,
        hand_over_us=200 * MS,
        contact_us=pick((3, 30, 30)) * SECOND,
        append_bytes=pick((1, 100, 1 << 20)),
        inflight_bytes=pick((1, 300, 16 << 20)),
        recent_bytes=pick((1, 300, 16 << 20)),
        admit_lag=pick((1, 1, 3)),
        masterships_max=pick((1, 3, 100)),
    )
    drawn = pick((1, 2, 2, 2, 3, 3, 3, 3, 4, 5))
    return Knobs(
        members=members or drawn,
        limits=limits,
        loss=pick((0.0, 0.0, 0.01, 0.05)),
        duplication=pick((0.0, 0.0, 0.02, 0.1)),
        delay_us=pick((200, 1 * MS, 5 * MS, 20 * MS)),
        tail=pick((0.0, 0.0, 0.01, 0.05, 0.2)),
        tail_us=pick((100 * MS, 500 * MS, 2 * SECOND)),
        in_order=pick((False, True)),
        over_the_wire=rng.random() < 0.05,
        fault_us=pick((0, 100 * MS, 400 * MS, 1 * SECOND)),
        down_us=pick((20 * MS, 300 * MS, 2 * SECOND)),
        crash_at_message=pick((0.0, 0.0, 0.0005, 0.003)),
        crash_at_save=pick((0.0, 0.0, 0.003, 0.02)),
        crash_at_send=pick((0.0, 0.0, 0.0005, 0.003)),
        crash_at_wish=pick((0.0, 0.0, 0.05, 0.3)),
        late_wishes=pick((0.0, 0.0, 0.3)),
        ambushes=pick((0.0, 0.0, 0.1, 0.3)),
        pauses=pick((False, True)),
        clocks=pick((0.0, 1.0, 1.0)),
        reboots=pick((0.0, 0.3)),
        notice=pick((0.0, 0.5, 1.0)),
        commit_fails=pick((0.0, 0.0, 0.0, 0.01, 0.05)),
        full_disks=pick((False, False, True)),
        save_us=pick((0, 100, 2 * MS, 20 * MS)),
        apply_us=pick((0, 0, 1 * MS, 20 * MS)),
        run_us=pick((0, 0, 1 * MS, 20 * MS)),
        read_us=pick((0, 1 * MS, 50 * MS, 300 * MS)),
        apply_entries=pick((1, 3, 100)),
        entry_writes=pick((1, 2, 100)),
        log_max=pick((3, 20, 1000)),
        log_needed=pick((False, True, True)),
        chunk_bytes=pick((16, 100, 10_000)),
        catalog_us=pick((0, 2 * MS, 30 * MS, 200 * MS)),
        skips=pick((False, False, True)),
        outages=pick((False, False, True)),
        detect_us=pick((200, 400, 800)) * MS,
        hasty=pick((0.0, 0.0, 0.02, 0.1)),
        hand_over_us=pick((0, 0, 500 * MS, 2 * SECOND)),
        clients=pick((1, 3, 8)),
        think_us=pick((1 * MS, 10 * MS, 50 * MS)),
        keys=pick((1, 3, 10)),
        writes_max=pick((1, 1, 3, 6)),
        reads=pick((0.1, 0.5, 0.8)),
        inserts=pick((0.1, 0.5)),
        stray=pick((0.0, 0.05, 0.5)),
    )
