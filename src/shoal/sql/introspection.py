"""What clients ask of pg_catalog without being asked to, where our SQL doesn't reach yet.

asyncpg asks for the element of an array type before it reads or writes one; psql's \\gdesc asks for the names
of the types that a statement gives. Both ask in a text of their own that needs recursion or functions which
are not there. The text is recognised, and another one that gives the same answer takes its place.

Here: known_question().
Not here: pg_type itself (bind/pg_catalog.py). Whoever asks otherwise gets the error of what is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shoal.types.sqltype import BOOLEAN, DATETIME, DECIMAL, DOUBLE, INT, JSON, TEXT, UUID

__all__ = ["KnownQuestion", "known_question"]

_OID_ARRAY: Final = 1028


@dataclass(frozen=True, slots=True)
class KnownQuestion:
    """The same question, as a text that we can answer."""

    text: str
    parameter_oids: tuple[int, ...]


def known_question(text: str) -> KnownQuestion | None:
    """None: it is none of those that we know."""
    if text.startswith("WITH RECURSIVE typeinfo_tree("):
        return _TYPES_OF_ASYNCPG
    if " ".join(text[:200].split()) == _JIT_OFF:
        return _JIT_IS_OFF
    found = _GDESC.fullmatch(text)
    return _described(found) if found is not None else None


# The parameter holds the OIDs that asyncpg has met. It keeps whatever it is told, so it is told all.
_TYPES_OF_ASYNCPG: Final = KnownQuestion(
    """
    SELECT t.oid, 'pg_catalog' AS ns, t.typname AS name, 'b' AS kind, NULL AS basetype,
        CASE WHEN t.typelem = 0 THEN NULL ELSE t.typelem END AS elemtype, t.typdelim AS elemdelim,
        NULL AS range_subtype, NULL AS attrtypoids, NULL AS attrnames, 0 AS depth,
        NULL AS basetype_name, e.typname AS elemtype_name, NULL AS range_subtype_name
    FROM pg_type AS t LEFT JOIN pg_type AS e ON e.oid = t.typelem
    WHERE $1 IS NOT NULL
    """,
    (_OID_ARRAY,),
)

# It asks so without just-in-time compilation, which would take longer than the question. We have none.
_JIT_OFF: Final = "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new"
_JIT_IS_OFF: Final = KnownQuestion("SELECT 'off' AS cur, 'off' AS new", ())

# What psql's \gdesc sends; the two headings are in the user's language.
_GDESC: Final = re.compile(
    r'SELECT name AS ("[^"]+"), pg_catalog\.format_type\(tp, tpm\) AS ("[^"]+")\n'
    r"FROM \(VALUES (.*)\) s\(name, tp, tpm\);?",
    re.DOTALL,
)
_GDESC_ROW: Final = re.compile(r"\(('(?:[^'\\]|'')*'), ?'(\d+)'::pg_catalog\.oid, ?(-?\d+)\),?")


def _described(question: re.Match[str]) -> KnownQuestion | None:
    name, kind, values = question.groups()
    rows: list[str] = []
    at = 0
    while at < len(values):
        row = _GDESC_ROW.match(values, at)
        if row is None:
            return None
        at = row.end()
        rows.append(f"({row[1]}, '{_type_name(int(row[2]), int(row[3]))}')")
    return KnownQuestion(
        f'SELECT "COLUMN_1" AS {name}, "COLUMN_2" AS {kind} FROM (VALUES {", ".join(rows)})', ()
    )


_NAMES: Final = {
    INT: "bigint",
    DOUBLE: "double precision",
    DECIMAL: "numeric",
    TEXT: "text",
    BOOLEAN: "boolean",
    UUID: "uuid",
    DATETIME: "timestamp with time zone",
    JSON: "json",
}
_NAMES_BY_OID: Final = {t.array_oid: f"{name}[]" for t, name in _NAMES.items()} | {
    t.oid: name for t, name in _NAMES.items()
}


def _type_name(oid: int, modifier: int) -> str:
    """PostgreSQL's format_type(). The modifier of numeric holds precision and scale, 4 added to them."""
    name = _NAMES_BY_OID.get(oid, "???")
    if oid == DECIMAL.oid and modifier >= 4:
        return f"{name}({modifier - 4 >> 16},{modifier - 4 & 0xFFFF})"
    return name
