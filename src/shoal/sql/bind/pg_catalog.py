"""pg_catalog, as far as drivers ask for it before they do anything else.

Here: pg_type, a relation of constants that says which types there are, and to_regtype().
Not here yet: tables and columns (pg_class, pg_attribute, information_schema): psql's \\d family.
"""

from __future__ import annotations

from typing import Final

from shoal.sql import plan
from shoal.types.sqltype import (
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UUID,
    SqlType,
)
from shoal.types.values import Stored

__all__ = ["TYPE_OIDS", "constant_relation"]

# PostgreSQL's names of our types, and their categories: drivers register converters by these.
_TYPES: Final[tuple[tuple[str, SqlType, str, int], ...]] = (
    ("bool", BOOLEAN, "B", 1),
    ("int8", INT, "N", 8),
    ("text", TEXT, "S", -1),
    ("json", JSON, "U", -1),
    ("float8", DOUBLE, "N", 8),
    ("timestamptz", DATETIME, "D", 8),
    ("numeric", DECIMAL, "N", -1),
    ("uuid", UUID, "U", 16),
)

TYPE_OIDS: Final = {name: t.oid for name, t, _, _ in _TYPES} | {
    f"{name}[]": t.array_oid for name, t, _, _ in _TYPES if t.array_oid != t.oid
}

_PG_CATALOG_OID: Final = 11

_COLUMNS: Final[tuple[tuple[str, SqlType], ...]] = (
    ("oid", INT),
    ("typname", TEXT),
    ("typnamespace", INT),
    ("typlen", INT),
    ("typtype", TEXT),
    ("typcategory", TEXT),
    ("typdelim", TEXT),
    ("typrelid", INT),
    ("typelem", INT),
    ("typarray", INT),
    ("typbasetype", INT),
    ("typtypmod", INT),
)


def _rows() -> tuple[tuple[Stored, ...], ...]:
    rows: list[tuple[Stored, ...]] = []
    for name, t, category, size in _TYPES:
        array = t.array_oid if t.array_oid != t.oid else 0
        rows.append((t.oid, name, _PG_CATALOG_OID, size, "b", category, ",", 0, 0, array, 0, -1))
        if array:
            rows.append((array, f"_{name}", _PG_CATALOG_OID, -1, "b", "A", ",", 0, t.oid, 0, 0, -1))
    return tuple(rows)


def constant_relation(name: str) -> plan.Query | None:
    """The relation of that name, with or without pg_catalog before it; None: it isn't there."""
    if name.removeprefix("pg_catalog.") != "pg_type":
        return None
    names = tuple(column for column, _ in _COLUMNS)
    types = tuple(t for _, t in _COLUMNS)
    rows = tuple(tuple(plan.Const(value, t) for value, t in zip(row, types, strict=True)) for row in _rows())
    return plan.Query((), plan.ValuesRows(names, types, rows), (), None, None, names, types)
