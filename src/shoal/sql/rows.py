"""An INSERT of many literal rows, taken apart without parsing it: one statement, and values for each row.

`INSERT INTO t VALUES (1, 'a'), (2, 'b'), …` with thousands of rows is how bulk data comes where there is
no COPY. Parsing it costs a syntax tree of all values, and SQLite a program with a place for each. But its
rows differ in their literals only: a few shapes of a row, such as one with NULL in it, one with a
negative number, are all that has to be parsed.

Here: rows_of(), which finds the shapes and the rows' literals.
Not here: preparing the statement of a shape, converting its literals (whoever calls).

Only plain INSERT … VALUES is taken apart, without ON CONFLICT and RETURNING: there, in which order the rows
are inserted can't be seen from outside. What doesn't look like that is parsed as a whole, and so is
whatever proves to be wrong: the errors of a long statement are those of the parser and the binder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.sql.normalise import DECIMAL, DOUBLE, INTEGER, STRING, normalise

TEXT_CHARACTERS_MAX: Final = 256 * 1024 * 1024
# More shapes than that are no shapes: every row is another expression.
_SHAPES_MAX: Final = 64

_HEAD: Final = re.compile(r"\s*insert\s+into\s[^()]*?(?:\([^()]*\)\s*)?values\s*(?=\()", re.IGNORECASE)
_ROW: Final = re.compile(r"\(([^()]*)\)\s*(,\s*|;?\s*\Z)")
_LITERAL: Final = re.compile(f"[{INTEGER}{DECIMAL}{DOUBLE}{STRING}]")


@dataclass(frozen=True, slots=True)
class LiteralRows:
    """The rows of one INSERT by their shape: the text of a statement with one such row, then the rows'
    literals, each tuple in the order of that text's slots."""

    shapes: Mapping[str, Sequence[tuple[str, ...]]]


def rows_of(text: str) -> LiteralRows | None:
    """None: it is no such statement, or a look without parsing can't be sure."""
    head = _HEAD.match(text)
    if head is None:
        return None
    normalised = normalise(text, TEXT_CHARACTERS_MAX)
    if normalised is None:
        return None
    template, literals = normalised
    head = _HEAD.match(template)
    if head is None:
        return None
    by_shape: dict[str, list[tuple[str, ...]]] = {}
    counts: dict[str, int] = {}
    if _LITERAL.search(head[0]):
        return None
    at, used, ended = head.end(), 0, False
    for row in _ROW.finditer(template, at):
        if row.start() != at or ended:
            return None
        shape = row[1]
        count = counts.get(shape)
        if count is None:
            if len(counts) == _SHAPES_MAX:
                return None
            count = counts[shape] = len(_LITERAL.findall(shape))
            by_shape[shape] = []
        by_shape[shape].append(literals[used : used + count])
        used += count
        at = row.end()
        ended = not row[2].startswith(",")
    if not ended or at != len(template) or used != len(literals):
        return None
    return LiteralRows({_example(head[0], shape, rows[0]): rows for shape, rows in by_shape.items()})


def _example(head: str, shape: str, literals: tuple[str, ...]) -> str:
    """The statement with one row of this shape, as a text."""
    left = iter(literals)

    def spelled(mark: re.Match[str]) -> str:
        literal = next(left)
        return "'" + literal.replace("'", "''") + "'" if mark[0] == STRING else literal

    return f"{head}({_LITERAL.sub(spelled, shape)})"
