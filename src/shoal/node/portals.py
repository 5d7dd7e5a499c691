"""Portals: a prepared statement with its parameters, and how far its answer has been sent.

Here: Portal.
Not here: running it (session.py), the statement (statements.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.node.statements import Prepared, ResultShape
from shoal.storage.readers import ReadCursor
from shoal.types.values import Stored


class Portal:
    __slots__ = (
        "at",
        "count",
        "cursor",
        "done",
        "formats",
        "literals",
        "name",
        "prepared",
        "rows",
        "shape",
        "values",
    )

    def __init__(
        self,
        name: str,
        prepared: Prepared,
        values: Sequence[Stored],
        literals: Sequence[str] | None,
        formats: tuple[int, ...],
        shape: ResultShape,
    ) -> None:
        self.name = name
        self.prepared = prepared
        self.values = values  # the statement's parameters, in the storage form
        self.literals = literals  # of the text at hand, where the plan is shared by a template
        self.formats = formats
        self.shape = shape
        self.cursor: ReadCursor | None = None  # of a read that is under way
        self.rows: Sequence[tuple[Stored, ...]] | None = None  # an answer that is there as a whole
        self.at = 0  # how many of `rows` have been sent
        self.count = 0  # rows sent by this Execute
        self.done = False

    def close(self) -> None:
        if self.cursor is not None:
            self.cursor.close()
            self.cursor = None
