"""The SQL types: their names, their OIDs, and how SQLite holds them.

Here: SqlType, the constants, names → type, OID → type. This is the one home of type ↔ OID.
Not here: values (text.py, binary.py, msgpack.py turn them into the storage form and back), casts
between types (casts.py).

A type has three names, because its users grew up apart: `name` in plans and metadata (`string`),
`error_name` in complaints (`text`), `sql_name` in SQL (`text`, `decimal(10,2)`), which parses back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shoal.errors import FeatureNotSupported, InvalidParameterValue, SqlSyntaxError

__all__ = [
    "ANY",
    "ARRAY",
    "BOOLEAN",
    "DATETIME",
    "DECIMAL",
    "DECIMAL_DIGITS_MAX",
    "DOUBLE",
    "INT",
    "JSON",
    "TEXT",
    "UNKNOWN",
    "UNSIGNED",
    "UUID",
    "Kind",
    "SqlType",
    "array_of",
    "type_of_name",
    "type_of_oid",
]

DECIMAL_DIGITS_MAX: Final = 38


class Kind(enum.Enum):
    INT = "int"
    DOUBLE = "double"
    DECIMAL = "decimal"
    TEXT = "text"
    BOOLEAN = "boolean"
    UUID = "uuid"
    DATETIME = "datetime"
    JSON = "json"
    ANY = "any"  # a value of system tables, whatever it is; JSON text underneath
    UNKNOWN = "unknown"  # a bare NULL, or a parameter that nothing has typed yet


# kind → name in plans, name in errors, name in errors as an array's element
_NAMES: Final[Mapping[Kind, tuple[str, str, str]]] = {
    Kind.INT: ("int", "int", "int[]"),
    Kind.DOUBLE: ("double", "double", "double[]"),
    Kind.DECIMAL: ("decimal", "numeric", "numeric[]"),
    Kind.TEXT: ("string", "text", "text[]"),
    Kind.BOOLEAN: ("bool", "bool", "boolean[]"),
    Kind.UUID: ("uuid", "uuid", "uuid[]"),
    Kind.DATETIME: ("datetime", "datetime", "datetime[]"),
    Kind.JSON: ("map", "map", "map[]"),
    Kind.ANY: ("any", "any", "array"),
    Kind.UNKNOWN: ("unknown", "unknown", "unknown[]"),
}

# kind → OID of the type, OID of an array of it. An untyped array and an array of maps travel as json,
# as they do in Picodata: clients then read one document instead of a quoted list of documents.
_OIDS: Final[Mapping[Kind, tuple[int, int]]] = {
    Kind.INT: (20, 1016),
    Kind.DOUBLE: (701, 1022),
    Kind.DECIMAL: (1700, 1231),
    Kind.TEXT: (25, 1009),
    Kind.BOOLEAN: (16, 1000),
    Kind.UUID: (2950, 2951),
    Kind.DATETIME: (1184, 1185),
    Kind.JSON: (114, 114),
    Kind.ANY: (114, 114),
    Kind.UNKNOWN: (705, 705),
}

_SQLITE_TYPES: Final[Mapping[Kind, str]] = {
    Kind.INT: "INTEGER",
    Kind.DOUBLE: "REAL",
    Kind.DECIMAL: "BLOB",
    Kind.TEXT: "TEXT",
    Kind.BOOLEAN: "INTEGER",
    Kind.UUID: "BLOB",
    Kind.DATETIME: "INTEGER",
    Kind.JSON: "TEXT",
    Kind.ANY: "TEXT",
    Kind.UNKNOWN: "TEXT",
}


@dataclass(frozen=True, slots=True)
class SqlType:
    """A SQL type. Two types hold the same kind of values when kind and is_array agree; precision, scale
    and unsigned only narrow what a column takes. Ask `same_values` for that, `==` for identity."""

    kind: Kind
    is_array: bool = False
    precision: int | None = None  # DECIMAL(p, s): total digits
    scale: int | None = None  # DECIMAL(p, s): digits after the point, kept in display
    unsigned: bool = False  # INT that refuses negatives; a column's business, never an expression's

    @property
    def name(self) -> str:
        """As plans and metadata show it: int, string, map, string[]."""
        if self.is_array:
            return "array" if self.kind is Kind.ANY else _NAMES[self.kind][0] + "[]"
        return _NAMES[self.kind][0]

    @property
    def error_name(self) -> str:
        """As errors show it: int, text, numeric, boolean[]."""
        return _NAMES[self.kind][2 if self.is_array else 1]

    @property
    def sql_name(self) -> str:
        """As SQL spells it; a parser reads the same type from it (ANY and UNKNOWN can't be spelled)."""
        if self.unsigned:
            spelled = "unsigned"
        elif self.precision is not None:
            spelled = f"decimal({self.precision},{self.scale or 0})"
        else:
            spelled = self.kind.value
        return spelled + "[]" if self.is_array else spelled

    @property
    def oid(self) -> int:
        return _OIDS[self.kind][1 if self.is_array else 0]

    @property
    def array_oid(self) -> int:
        """The OID of an array of this type, for a type that is no array itself."""
        return _OIDS[self.kind][1]

    @property
    def element(self) -> SqlType:
        """What an array holds; a scalar is its own element."""
        return SqlType(self.kind, False, self.precision, self.scale, self.unsigned) if self.is_array else self

    @property
    def sqlite_type(self) -> str:
        """The column type in a STRICT table."""
        if self.is_array:
            return "TEXT" if self.kind is Kind.ANY else "BLOB"
        return _SQLITE_TYPES[self.kind]

    def same_values(self, other: SqlType) -> bool:
        """Do both hold the same kind of values, in the same storage form?"""
        return self.kind is other.kind and self.is_array == other.is_array

    @property
    def is_scalar(self) -> bool:
        """Comparable, sortable, fit for a key: not an array, not JSON, not ANY."""
        return not self.is_array and self.kind not in (Kind.JSON, Kind.ANY, Kind.UNKNOWN)

    @property
    def is_numeric(self) -> bool:
        return not self.is_array and self.kind in (Kind.INT, Kind.DOUBLE, Kind.DECIMAL)

    @property
    def is_int(self) -> bool:
        return not self.is_array and self.kind is Kind.INT

    @property
    def is_double(self) -> bool:
        return not self.is_array and self.kind is Kind.DOUBLE

    @property
    def is_decimal(self) -> bool:
        return not self.is_array and self.kind is Kind.DECIMAL

    @property
    def is_text(self) -> bool:
        return not self.is_array and self.kind is Kind.TEXT

    @property
    def is_boolean(self) -> bool:
        return not self.is_array and self.kind is Kind.BOOLEAN

    @property
    def is_uuid(self) -> bool:
        return not self.is_array and self.kind is Kind.UUID

    @property
    def is_datetime(self) -> bool:
        return not self.is_array and self.kind is Kind.DATETIME

    @property
    def is_json(self) -> bool:
        """Stored as JSON text: JSON, ANY, and the untyped array."""
        return self.kind is Kind.ANY or (self.kind is Kind.JSON and not self.is_array)

    @property
    def is_unknown(self) -> bool:
        return self.kind is Kind.UNKNOWN

    def __str__(self) -> str:
        return self.name


INT: Final = SqlType(Kind.INT)
UNSIGNED: Final = SqlType(Kind.INT, unsigned=True)
DOUBLE: Final = SqlType(Kind.DOUBLE)
DECIMAL: Final = SqlType(Kind.DECIMAL)
TEXT: Final = SqlType(Kind.TEXT)
BOOLEAN: Final = SqlType(Kind.BOOLEAN)
UUID: Final = SqlType(Kind.UUID)
DATETIME: Final = SqlType(Kind.DATETIME)
JSON: Final = SqlType(Kind.JSON)
ANY: Final = SqlType(Kind.ANY)
ARRAY: Final = SqlType(Kind.ANY, is_array=True)  # untyped, of system tables: JSON text, not MessagePack
UNKNOWN: Final = SqlType(Kind.UNKNOWN)


def array_of(element: SqlType) -> SqlType:
    assert not element.is_array, "arrays are one-dimensional"
    return SqlType(element.kind, True, element.precision, element.scale, element.unsigned)


_BY_NAME: Final[Mapping[str, SqlType]] = {
    "int": INT,
    "integer": INT,
    "bigint": INT,
    "smallint": INT,
    "int2": INT,
    "int4": INT,
    "int8": INT,
    "unsigned": UNSIGNED,
    "double": DOUBLE,
    "double precision": DOUBLE,
    "float8": DOUBLE,
    "decimal": DECIMAL,
    "numeric": DECIMAL,
    "number": DECIMAL,
    "text": TEXT,
    "string": TEXT,
    "varchar": TEXT,
    "character varying": TEXT,
    "bool": BOOLEAN,
    "boolean": BOOLEAN,
    "uuid": UUID,
    "datetime": DATETIME,
    "timestamptz": DATETIME,
    "timestamp with time zone": DATETIME,
    "json": JSON,
    "jsonb": JSON,
    "map": JSON,
}

_WITH_LENGTH: Final = frozenset({"varchar", "character varying"})


def type_of_name(name: str, arguments: tuple[int, ...], in_ddl: bool) -> SqlType | None:
    """The type that a name means in a cast or, in_ddl, in a column definition; None: there is no such type.

    The name comes folded to lower case, several words separated by one blank. Brackets of an array are
    the parser's: it wraps the answer in array_of().
    """
    found = _BY_NAME.get(name)
    if found is None or (found.unsigned and not in_ddl):
        return None
    if not arguments:
        return found
    if found is DECIMAL:
        return _decimal_of(name, arguments)
    if name in _WITH_LENGTH:
        # The length is a comment, as in Picodata: TEXT is as long as it needs to be.
        if len(arguments) != 1 or arguments[0] < 1:
            raise InvalidParameterValue(f"length for type {name} must be one number, at least 1")
        return found
    if found is DATETIME and name != "datetime":
        if arguments == (6,):
            return found
        raise FeatureNotSupported(f"{name} has microseconds, no other precision")
    raise SqlSyntaxError(f'type modifier is not allowed for type "{name}"')


def _decimal_of(name: str, arguments: tuple[int, ...]) -> SqlType:
    if len(arguments) > 2:
        raise InvalidParameterValue(f"invalid type modifier: {name} takes a precision and a scale")
    precision, scale = arguments[0], arguments[1] if len(arguments) == 2 else 0
    if not 1 <= precision <= DECIMAL_DIGITS_MAX:
        raise InvalidParameterValue(
            f"{name} precision {precision} must be between 1 and {DECIMAL_DIGITS_MAX}"
        )
    if not 0 <= scale <= precision:
        raise InvalidParameterValue(f"{name} scale {scale} must be between 0 and precision {precision}")
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


# What a client may call a parameter's type: PostgreSQL's OIDs, more than we ever answer with.
_BY_OID: Final[Mapping[int, SqlType]] = {
    16: BOOLEAN,
    20: INT,  # int8
    21: INT,  # int2
    23: INT,  # int4
    26: INT,  # oid
    700: DOUBLE,  # float4
    701: DOUBLE,  # float8
    1700: DECIMAL,
    25: TEXT,
    1043: TEXT,  # varchar
    1042: TEXT,  # bpchar
    19: TEXT,  # name
    705: TEXT,  # unknown
    2950: UUID,
    1184: DATETIME,  # timestamptz
    1114: DATETIME,  # timestamp, read as UTC
    1082: DATETIME,  # date, read as midnight UTC
    114: JSON,
    3802: JSON,  # jsonb
    1000: array_of(BOOLEAN),
    1016: array_of(INT),
    1005: array_of(INT),
    1007: array_of(INT),
    1028: array_of(INT),  # oid[]
    1021: array_of(DOUBLE),
    1022: array_of(DOUBLE),
    1231: array_of(DECIMAL),
    1009: array_of(TEXT),
    1015: array_of(TEXT),
    1014: array_of(TEXT),
    1003: array_of(TEXT),
    2951: array_of(UUID),
    1185: array_of(DATETIME),
    1115: array_of(DATETIME),
    1182: array_of(DATETIME),
    199: array_of(JSON),
    3807: array_of(JSON),
}


def type_of_oid(oid: int) -> SqlType | None:
    """The type of a parameter that the client declared by OID; None: we don't take that OID.

    0 and 705 (unknown) mean "infer it": the caller asks that first, 705 alone reads as text.
    """
    return _BY_OID.get(oid)
