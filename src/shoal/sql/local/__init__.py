"""From the typed plan to the text that SQLite runs.

`compile_program` writes one text per statement, and says where each of its values comes from. The plan is
typed, so the text says exactly what is meant where SQLite's own rules differ: overflow, division by zero,
NaN, exact decimals, casts, LIKE's case, a subquery of several rows. What SQLite does right is left to it,
and so are the order of joins and the choice of indexes. Where it does wrong, a check that is part of the
text is preferred over a call of a Python function per row, and that over nothing at all.

Functions whose names begin with `shoal_` are ours: storage/functions.py registers them.

Not here yet: fragments of a plan for one shard, and the tables that carry rows between fragments.
"""

from __future__ import annotations

from shoal.sql.local.compile import compile_program

__all__ = ["compile_program"]
