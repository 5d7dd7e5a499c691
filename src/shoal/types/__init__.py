"""Types and values: what a value is, in SQL, on the wire, in a hash and in SQLite.

Every value has one *storage form* (values.py), and travels in it from the parameter to the disk and
back. A wire format is only two functions away from it: text.py and binary.py speak PostgreSQL,
msgpack.py speaks MessagePack with Tarantool's extensions. Whoever needs such a function asks once for
the type's own, and calls it per value.

Not here yet: intervals, dates without time, byte strings.
"""

from __future__ import annotations

from shoal.types.sqltype import (
    ANY,
    ARRAY,
    BOOLEAN,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UNKNOWN,
    UNSIGNED,
    UUID,
    Kind,
    SqlType,
    array_of,
    type_of_name,
    type_of_oid,
)
from shoal.types.values import BinaryDecoder, Cast, Decoder, Encoder, Stored, TextDecoder

__all__ = [
    "ANY",
    "ARRAY",
    "BOOLEAN",
    "DATETIME",
    "DECIMAL",
    "DOUBLE",
    "INT",
    "JSON",
    "TEXT",
    "UNKNOWN",
    "UNSIGNED",
    "UUID",
    "BinaryDecoder",
    "Cast",
    "Decoder",
    "Encoder",
    "Kind",
    "SqlType",
    "Stored",
    "TextDecoder",
    "array_of",
    "type_of_name",
    "type_of_oid",
]
