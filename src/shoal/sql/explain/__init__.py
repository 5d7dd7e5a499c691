"""EXPLAIN: what a statement means, which buckets it touches, what SQLite makes of it.

The logical plan is a tree of relational operators, told from the typed plan's blocks: projection over having
over group by over selection over scan. It shows no motions, since on one instance no rows travel between
storages.

Not here yet: where rows move when a statement is distributed over replicasets, and the facet FORWARD with it.
"""

from __future__ import annotations

from shoal.sql.explain.facets import explain

__all__ = ["explain"]
