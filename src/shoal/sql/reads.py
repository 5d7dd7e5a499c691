"""What an execution of a change of a global table has read, as ranges: it rests on them until it is an entry.

Here: Reads, which is part of a program, and gives the ranges of one execution.
Not here: finding it for a statement (optimise/reads.py), what the ranges are good for (catalog/cas.py).

A range may say more than was read, never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final, TypeAlias

from shoal.catalog.cas import Range
from shoal.types.values import Stored

__all__ = ["NOTHING", "Given", "Keys", "Reads", "Value"]

# Two columns with IN lists of 100 each are 10,000 keys: comparing those would cost more than it could spare.
KEYS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Given:
    """One of the values that SQLite is given."""

    place: int  # 0-based


Value: TypeAlias = Given | Stored


@dataclass(frozen=True, slots=True)
class Keys:
    """Rows whose key's first columns have these values: every combination of one per column."""

    table_id: int
    columns: tuple[tuple[Value, ...], ...]

    def ranges(self, given: Sequence[Stored]) -> Iterator[Range]:
        if not self.columns:
            yield Range(self.table_id)
            return
        lists = [
            dict.fromkeys(given[value.place] if isinstance(value, Given) else value for value in values)
            for values in self.columns
        ]
        # NULL is equal to nothing, and no key.
        found = product(*([value for value in values if value is not None] for values in lists))
        keys = list(islice(found, KEYS_MAX + 1))
        if len(keys) > KEYS_MAX:
            yield Range(self.table_id)
        else:
            yield from (Range.of_key(self.table_id, key) for key in keys)


@dataclass(frozen=True, slots=True)
class Reads:
    """What every execution of a statement reads, and what only one that leaves rows out does."""

    always: tuple[Keys, ...] = ()
    inserted: int | None = None  # the rows of an INSERT, where fewer changes say that one was left out
    left_out: tuple[Keys, ...] = ()

    def ranges(self, given: Sequence[Stored], count: int) -> tuple[Range, ...]:
        """Of an execution with these values of ?1, ?2, …, which has changed `count` rows."""
        keys = self.always if count == self.inserted else (*self.always, *self.left_out)
        return tuple(range for some in keys for range in some.ranges(given))


NOTHING: Final = Reads()
