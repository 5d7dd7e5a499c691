"""Names and OIDs of the types."""

from __future__ import annotations

import pytest

from shoal.errors import FeatureNotSupported, InvalidParameterValue, SqlSyntaxError
from shoal.types import (
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

# type, name, error name, SQL name, OID
TABLE = [
    (INT, "int", "int", "int", 20),
    (UNSIGNED, "int", "int", "unsigned", 20),
    (DOUBLE, "double", "double", "double", 701),
    (DECIMAL, "decimal", "numeric", "decimal", 1700),
    (SqlType(Kind.DECIMAL, precision=10, scale=2), "decimal", "numeric", "decimal(10,2)", 1700),
    (TEXT, "string", "text", "text", 25),
    (BOOLEAN, "bool", "bool", "boolean", 16),
    (UUID, "uuid", "uuid", "uuid", 2950),
    (DATETIME, "datetime", "datetime", "datetime", 1184),
    (JSON, "map", "map", "json", 114),
    (ANY, "any", "any", "any", 114),
    (ARRAY, "array", "array", "any[]", 114),
    (UNKNOWN, "unknown", "unknown", "unknown", 705),
    (array_of(INT), "int[]", "int[]", "int[]", 1016),
    (array_of(DOUBLE), "double[]", "double[]", "double[]", 1022),
    (array_of(DECIMAL), "decimal[]", "numeric[]", "decimal[]", 1231),
    (array_of(TEXT), "string[]", "text[]", "text[]", 1009),
    (array_of(BOOLEAN), "bool[]", "boolean[]", "boolean[]", 1000),
    (array_of(UUID), "uuid[]", "uuid[]", "uuid[]", 2951),
    (array_of(DATETIME), "datetime[]", "datetime[]", "datetime[]", 1185),
    (array_of(JSON), "map[]", "map[]", "json[]", 114),
]


@pytest.mark.parametrize("t, name, error_name, sql_name, oid", TABLE, ids=lambda value: str(value))
def test_names(t: SqlType, name: str, error_name: str, sql_name: str, oid: int) -> None:
    assert (t.name, t.error_name, t.sql_name, t.oid) == (name, error_name, sql_name, oid)


@pytest.mark.parametrize(
    "names, expected",
    [
        ("int integer bigint smallint int2 int4 int8", INT),
        ("double float8", DOUBLE),
        ("decimal numeric number", DECIMAL),
        ("text string varchar", TEXT),
        ("bool boolean", BOOLEAN),
        ("uuid", UUID),
        ("datetime timestamptz", DATETIME),
        ("json jsonb map", JSON),
        ("float4 real float date time timestamp char bytea interval serial money unsigned any", None),
    ],
)
def test_names_of_one_word(names: str, expected: SqlType | None) -> None:
    for name in names.split():
        assert type_of_name(name, (), in_ddl=False) == expected, name


def test_names_of_several_words() -> None:
    assert type_of_name("double precision", (), False) == DOUBLE
    assert type_of_name("character varying", (20,), True) == TEXT
    assert type_of_name("timestamp with time zone", (), False) == DATETIME
    assert type_of_name("timestamp without time zone", (), False) is None


def test_unsigned_is_for_columns() -> None:
    assert type_of_name("unsigned", (), in_ddl=True) == UNSIGNED
    assert UNSIGNED.same_values(INT) and UNSIGNED != INT


def test_arguments() -> None:
    assert type_of_name("numeric", (10, 2), False) == SqlType(Kind.DECIMAL, precision=10, scale=2)
    assert type_of_name("decimal", (5,), False) == SqlType(Kind.DECIMAL, precision=5, scale=0)
    assert type_of_name("varchar", (255,), True) == TEXT
    assert type_of_name("timestamptz", (6,), True) == DATETIME
    with pytest.raises(InvalidParameterValue, match="between 1 and 38"):
        type_of_name("decimal", (39, 0), True)
    with pytest.raises(InvalidParameterValue, match="scale 3"):
        type_of_name("decimal", (2, 3), True)
    with pytest.raises(InvalidParameterValue):
        type_of_name("decimal", (2, 3, 4), True)
    with pytest.raises(InvalidParameterValue):
        type_of_name("varchar", (0,), True)
    with pytest.raises(FeatureNotSupported):
        type_of_name("timestamptz", (3,), True)
    with pytest.raises(SqlSyntaxError, match='not allowed for type "int"'):
        type_of_name("int", (11,), True)


@pytest.mark.parametrize(
    "t", [row[0] for row in TABLE if row[0].kind not in (Kind.ANY, Kind.UNKNOWN)], ids=str
)
def test_a_sql_name_reads_back(t: SqlType) -> None:
    spelled = t.sql_name.removesuffix("[]")
    name, _, rest = spelled.partition("(")
    arguments = tuple(int(number) for number in rest.rstrip(")").split(",")) if rest else ()
    scalar = type_of_name(name, arguments, in_ddl=True)
    assert scalar is not None
    assert (array_of(scalar) if t.is_array else scalar) == t


def test_oids_read_back() -> None:
    for t in (INT, DOUBLE, DECIMAL, TEXT, BOOLEAN, UUID, DATETIME, JSON):
        assert type_of_oid(t.oid) == t
        if t is not JSON:  # an array of maps travels as json
            assert type_of_oid(t.array_oid) == array_of(t)


def test_oids_that_clients_use() -> None:
    for oids, expected in [
        ((20, 21, 23), INT),
        ((700, 701), DOUBLE),
        ((25, 1043, 1042, 19, 705), TEXT),
        ((1184, 1114, 1082), DATETIME),
        ((114, 3802), JSON),
        ((1005, 1007, 1016), array_of(INT)),
        ((199, 3807), array_of(JSON)),
    ]:
        for oid in oids:
            assert type_of_oid(oid) == expected, oid
    for oid in (0, 17, 18, 869, 1083, 1186, 2249):
        assert type_of_oid(oid) is None, oid


def test_elements() -> None:
    narrow = SqlType(Kind.DECIMAL, precision=4, scale=1)
    assert array_of(narrow).element == narrow
    assert TEXT.element == TEXT
    assert ARRAY.element == ANY


def test_what_is_scalar() -> None:
    assert all(t.is_scalar for t in (INT, DOUBLE, DECIMAL, TEXT, BOOLEAN, UUID, DATETIME, UNSIGNED))
    assert not any(t.is_scalar for t in (JSON, ANY, ARRAY, UNKNOWN, array_of(INT)))
    assert all(t.is_json for t in (JSON, ANY, ARRAY)) and not array_of(JSON).is_json
