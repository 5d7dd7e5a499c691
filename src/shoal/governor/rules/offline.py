"""Whoever is dead, frozen or stuck is Offline, and nobody waits for it any more. It comes back by itself.

Three kinds of evidence, all of what the leader has heard (state.py, Heard):
- nobody listens at its address: its process has ended;
- it is silent, for governor_auto_offline_timeout;
- it answers, and applies nothing of what it was sent, for several times as long: a full disk, a thread that hangs. Who is
  merely slow moves on, if little by little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from shoal.catalog.cas import Range
from shoal.catalog.members import instance_change
from shoal.catalog.system import PICO_INSTANCE
from shoal.governor.state import Cluster, Heard, Write, instance_lane
from shoal.topology.cluster import State, Variant

# So many timeouts may one entry take somebody, after the leader is done with it.
STALLED_TIMEOUTS: Final = 5


def isolate_the_lost(cluster: Cluster) -> Iterator[Write]:
    for _, instance in sorted(cluster.topology.instances.items()):
        heard = cluster.heard.get(instance.raft_id)
        if heard is None or instance.target.variant is not Variant.ONLINE:
            continue
        reason = evidence(heard, cluster.offline_seconds)
        if reason is None:
            continue
        offline = State(Variant.OFFLINE, instance.target.incarnation)
        changed = replace(instance, current=offline, target=offline, reason=reason, changed_at=cluster.now)
        yield Write(
            lane=instance_lane(instance),
            why=f"{instance.name} is given up: {reason}",
            changes=(instance_change(changed),),
            ranges=(Range.of_key(PICO_INSTANCE.id, (instance.name,)),),
        )


def evidence(heard: Heard, seconds: float) -> str | None:
    if heard.gone:
        return "nobody listens at its address"
    if heard.silent_seconds >= seconds:
        return f"silent for {seconds:g} s"
    if heard.stalled_seconds >= seconds * STALLED_TIMEOUTS:
        return f"it answers, and has applied nothing for {seconds * STALLED_TIMEOUTS:g} s"
    return None
