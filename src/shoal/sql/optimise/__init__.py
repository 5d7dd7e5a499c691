"""What a plan can be made before it becomes text: the same answer, found with less work.

`optimise` applies its rules in order, each of them once; each takes a statement and returns it, changed or
not. A rule knows nothing of the others, and says in its module what it is good for. Orders of joins and
choices of indexes are not ours: the storage decides them, with its statistics at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from shoal.catalog.schema import Schema
from shoal.sql import plan
from shoal.sql.optimise.buckets import find_bucket_id
from shoal.sql.optimise.integer_comparisons import compare_as_integers

__all__ = ["RULES", "Rule", "optimise"]

Rule: TypeAlias = Callable[[plan.Bound, Schema], plan.Bound]

RULES: Final[tuple[Rule, ...]] = (compare_as_integers, find_bucket_id)


def optimise(bound: plan.Bound, schema: Schema) -> plan.Bound:
    for rule in RULES:
        bound = rule(bound, schema)
    return bound
