"""Which steps are to be taken now.

Here: plan(), and the order of the rules.
Not here: what a rule looks at (rules/, one in a file), carrying a step out (node/governing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from shoal.governor.rules.buckets import give_buckets_an_owner
from shoal.governor.rules.hand_over import hand_over
from shoal.governor.rules.members import follow_the_log
from shoal.governor.rules.offline import isolate_the_lost
from shoal.governor.rules.replicasets import become_ready
from shoal.governor.rules.schema_changes import finish_schema_changes
from shoal.governor.rules.states import reach_targets
from shoal.governor.rules.voters import choose_voters
from shoal.governor.state import Cluster, Lane, Step

Rule: TypeAlias = Callable[[Cluster], Iterable[Step]]

# Safety first, balance last: in a lane the first rule with something to do decides.
RULES: Final[tuple[Rule, ...]] = (
    hand_over,
    isolate_the_lost,
    reach_targets,
    follow_the_log,
    choose_voters,
    become_ready,
    finish_schema_changes,
    give_buckets_an_owner,
)


def plan(cluster: Cluster, busy: frozenset[Lane] = frozenset()) -> tuple[Step, ...]:
    """At most one step for each lane that is free."""
    first: dict[Lane, Step] = {}
    for rule in RULES:
        for step in rule(cluster):
            first.setdefault(step.lane, step)
    return tuple(step for lane, step in first.items() if lane not in busy)
