"""The SQL functions that generated text calls: whatever SQLite has not, or has otherwise.

Here: register(), for every connection that runs statements, and register_guard() for one that is written to.
Not here: when the text calls which (sql/local/), what the functions compute (types/, topology/buckets.py),
the aggregates (aggregate_functions.py).

All are called in the innermost loop of SQLite, so each is one closure over exactly what it needs: no
dispatch by type, no object per row. An error that one raises is the statement's, as it is.

SQLite calls a deterministic function of constants once per statement, but never ahead of the CASE or
COALESCE that it stands in. So functions that only raise are deterministic, too.
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeAlias

import apsw
import msgspec

from shoal.errors import (
    CardinalityViolation,
    DivisionByZero,
    InvalidEscape,
    InvalidParameterValue,
    InvalidRowCountInLimit,
    InvalidRowCountInOffset,
    NotNullViolation,
    NumericOutOfRange,
    ProgramLimitExceeded,
    ShoalError,
    SubstringError,
    UndefinedObject,
)
from shoal.storage.aggregate_functions import AGGREGATES, OF_AGGREGATES
from shoal.topology.buckets import bucket_function
from shoal.types import arrays, casts, decimals, json, patterns, templates
from shoal.types.sqltype import Kind, SqlType
from shoal.types.values import Stored
from shoal.types.zones import zone_of_name

__all__ = ["FUNCTIONS", "register", "register_guard"]

Function: TypeAlias = Callable[..., Any]

_write_json: Final = msgspec.json.Encoder().encode
_read_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode

TEXT_LENGTH_MAX: Final = 100_000_000

# --- of NULL nothing is computed -----------------------------------------------------------------


def _strict(function: Function) -> Function:
    """For one argument."""
    return lambda a: None if a is None else function(a)


def _strict2(function: Function) -> Function:
    return lambda a, b: None if a is None or b is None else function(a, b)


def _strict3(function: Function) -> Function:
    return lambda a, b, c: None if a is None or b is None or c is None else function(a, b, c)


# --- errors --------------------------------------------------------------------------------------


def _raises(error: type[ShoalError], *message: str) -> Function:
    def fail() -> NoReturn:
        raise error(*message)

    return fail


INTEGER_RANGE: Final = "value doesn't fit into integer range"


def _null_key(column: str, table: str) -> NoReturn:
    raise NotNullViolation(f'null value in column "{column}" of table "{table}" violates not-null constraint')


def _unsigned(value: int | None) -> int | None:
    if value is not None and value < 0:
        raise NumericOutOfRange(f"value {value} is out of range for type unsigned")
    return value


def _row_met_twice() -> NoReturn:
    raise CardinalityViolation(
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
        hint="Ensure that no rows proposed for insertion within the same command have duplicate key values.",
    )


# --- of the cluster ------------------------------------------------------------------------------


def _buckets_of_tier(document: str, tier: str | None) -> bytes:
    if tier is None:
        raise InvalidParameterValue("_pico_bucket: tier name is null")
    ranges = _read_members(document).get(tier)
    if ranges is None:
        raise UndefinedObject(f"_pico_bucket: tier '{tier}' doesn't exist")
    return arrays.pack([bytes(range_).decode() for range_ in _read_items(ranges)])


def _health_of_instance(document: str, uuid: str | None) -> str | None:
    found = None if uuid is None else _read_members(document).get(uuid)
    return None if found is None else bytes(found).decode()


# --- numbers -------------------------------------------------------------------------------------


def _int(value: int | float | None) -> int | None:
    """An integer, or the float that SQLite makes of an overflow."""
    if isinstance(value, float):
        raise NumericOutOfRange(INTEGER_RANGE)
    return value


def _division_by_zero(dividend: Stored) -> None:
    if dividend is not None:
        raise DivisionByZero


def _int_div(a: int | float, b: int | float) -> int | float:
    """Truncated toward zero. A float, which an overflow has left behind, stays one."""
    if b == 0:
        raise DivisionByZero
    if type(a) is float or type(b) is float:
        return a / b
    quotient = abs(a) // abs(b)
    quotient = quotient if (a < 0) == (b < 0) else -quotient
    return float(quotient) if quotient == 1 << 63 else quotient


def _int_mod(a: int, b: int) -> int:
    """With the sign of the dividend."""
    if b == 0:
        raise DivisionByZero
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _number(value: float) -> float:
    if value != value:
        raise NumericOutOfRange("the result is not a number")
    return value + 0.0


def _double_div(a: float, b: float) -> float:
    if b == 0.0:
        raise DivisionByZero
    return _number(a / b)


def _round_double(value: float) -> float:
    # Half to even, as IEEE 754 and PostgreSQL have it; infinity has no digits to round.
    return float(round(value)) + 0.0 if math.isfinite(value) else value


def _power(base: float, exponent: float) -> float:
    try:
        return _number(math.pow(base, exponent))
    except ValueError:
        if base == 0:
            raise InvalidParameterValue("zero raised to a negative power is undefined") from None
        message = "a negative number raised to a non-integer power yields a complex result"
        raise InvalidParameterValue(message) from None
    except OverflowError:
        raise NumericOutOfRange("value out of range: overflow") from None


def _sqrt(value: float) -> float:
    if value < 0:
        raise InvalidParameterValue("cannot take square root of a negative number")
    return math.sqrt(value)


def _decimal_sign(value: bytes) -> bytes:
    if value == decimals.ZERO:
        return value
    return decimals.ONE if value > decimals.ZERO else decimals.neg(decimals.ONE)


def _decimal_round(value: bytes, scale: int) -> bytes:
    # Places beyond those that a DECIMAL has change nothing, and must not become long texts of zeros.
    return decimals.round(value, max(-100, min(scale, 100)))


def _decimal_trunc(value: bytes, scale: int) -> bytes:
    return decimals.trunc(value, max(-100, min(scale, 100)))


# --- casts ---------------------------------------------------------------------------------------

_SCALARS: Final = (
    Kind.INT, Kind.DOUBLE, Kind.DECIMAL, Kind.TEXT, Kind.BOOLEAN, Kind.UUID, Kind.DATETIME, Kind.JSON, Kind.ANY,
)  # fmt: skip


def _plain_casts() -> Mapping[str, tuple[tuple[int, Function], ...]]:
    """One function per pair of types: shoal_cast_text_int. With a DATETIME, the zone is one more argument."""
    functions: dict[str, tuple[tuple[int, Function], ...]] = {}
    for source in map(SqlType, _SCALARS):
        for target in map(SqlType, _SCALARS):
            convert = casts.cast(source, target)
            if source == target or convert is None:
                continue
            name = f"shoal_cast_{source.kind.value}_{target.kind.value}"
            zoned = Kind.DATETIME in (source.kind, target.kind)
            functions[name] = ((2, _zoned_cast(source, target)),) if zoned else ((1, _strict(convert)),)
    return functions


def _zoned_cast(source: SqlType, target: SqlType) -> Function:
    by_zone: dict[str, Function] = {}

    def convert(value: Stored, zone: str) -> Stored:
        if value is None:
            return None
        function = by_zone.get(zone)
        if function is None:
            found = casts.cast(source, target, zone_of_name(zone))
            assert found is not None
            function = by_zone[zone] = found
        answer: Stored = function(value)
        return answer

    return convert


@lru_cache(maxsize=1000)
def _coded_cast(source: str, target: str, zone: str) -> Function:
    convert = casts.cast(type_of_code(source), type_of_code(target), zone_of_name(zone))
    assert convert is not None, (source, target)
    return convert


def _cast(source: str, target: str, value: Stored, zone: str) -> Stored:
    """The casts that are rare: of arrays, and to a DECIMAL with precision."""
    if value is None:
        return None
    answer: Stored = _coded_cast(source, target, zone)(value)
    return answer


def type_of_code(code: str) -> SqlType:
    """What sql/local spells as "decimal:10:2" or "text[]"."""
    name, *limits = code.split(":")
    precision, scale = (int(limits[0]), int(limits[1])) if limits else (None, None)
    return SqlType(Kind(name.removesuffix("[]")), name.endswith("[]"), precision, scale)


# --- texts ---------------------------------------------------------------------------------------


def _like(make: Callable[[str, str], Callable[[str], bool]]) -> Function:
    """ILIKE, SIMILAR TO. The pattern is mostly the same for every row."""
    compiled = lru_cache(maxsize=500)(make)

    def match(value: str | None, pattern: str | None, escape: str | None) -> bool | None:
        if value is None or pattern is None or escape is None:
            return None
        return compiled(pattern, escape)(value)

    return match


def _escape(escape: str | None) -> str | None:
    if escape is not None and len(escape) != 1:
        raise InvalidEscape("ESCAPE expression must be a single character")
    return escape


def _substr(value: str, start: int, count: int | None = None) -> str:
    if count is None:
        return value[max(start, 1) - 1 :]
    if count < 0:
        raise SubstringError(NEGATIVE_LENGTH)
    return value[max(start, 1) - 1 : max(start + count - 1, 0)]


NEGATIVE_LENGTH: Final = "Length parameter in substring cannot be negative"


def _right(value: str, count: int) -> str:
    return value[-count:] if count else ""


def _repeat(value: str, count: int) -> str:
    if len(value) * count > TEXT_LENGTH_MAX:
        raise ProgramLimitExceeded(f"requested length too large, the most is {TEXT_LENGTH_MAX}")
    return value * count


def _split_part(value: str, delimiter: str, position: int) -> str:
    if position == 0:
        raise InvalidParameterValue("field position must not be zero")
    parts = value.split(delimiter) if delimiter else [value]
    index = position - 1 if position > 0 else len(parts) + position
    return parts[index] if 0 <= index < len(parts) else ""


def _replace(value: str, old: str, new: str) -> str:
    if not old:
        return value
    if len(new) > len(old) and len(value) + value.count(old) * (len(new) - len(old)) > TEXT_LENGTH_MAX:
        raise ProgramLimitExceeded(f"requested length too large, the most is {TEXT_LENGTH_MAX}")
    return value.replace(old, new)


def _md5(value: str) -> str:
    return hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()


# --- arrays and JSON -----------------------------------------------------------------------------


def _array(*items: Stored) -> bytes:
    return arrays.pack(items)


def _elements(array: bytes | None) -> str:
    """An array as JSON, for json_each(): bytes as hexadecimal digits. NULL is an array of one NULL.

    So `x IN (the elements)` is what `x = ANY (array)` is: unknown, where there is no array.
    """
    if array is None:
        return "[null]"
    items = [item.hex() if isinstance(item, bytes) else item for item in arrays.unpack(array)]
    return _write_json(items).decode()


def _in_array(value: Stored, array: bytes | None) -> bool | None:
    if array is None:
        return None
    items = arrays.unpack(array)
    if not items:
        return False
    if value is None:
        return None
    if value in items:
        return True
    return None if None in items else False


def _json_path(document: str | None, *path: str | None) -> str | None:
    if document is None or None in path:
        return None
    return json.extract(document, path)  # type: ignore[arg-type]


# --- buckets -------------------------------------------------------------------------------------


class _BucketFunctions(dict[str, Callable[..., int]]):
    """Code → function, made when it is first asked for. A code is one word per part: "3000 int text"."""

    def __missing__(self, code: str) -> Callable[..., int]:
        count, *types = code.split(" ")
        function = self[code] = bucket_function([type_of_code(t) for t in types], int(count))
        return function


_bucket_functions: Final = _BucketFunctions()


def _bucket(code: str, value: Stored) -> int:
    return _bucket_functions[code](value)


def _bucket_of_several(code: str, *key: Stored) -> int:
    return _bucket_functions[code](*key)


def _greatest(*values: Any) -> Stored:
    return max((value for value in values if value is not None), default=None)


def _least(*values: Any) -> Stored:
    return min((value for value in values if value is not None), default=None)


# --- the catalogue -------------------------------------------------------------------------------

# name → how many arguments (-1: any), the function. All are deterministic.
FUNCTIONS: Final[Mapping[str, tuple[tuple[int, Function], ...]]] = {
    # errors, as the text finds them
    "shoal_int_overflow": ((0, _raises(NumericOutOfRange, INTEGER_RANGE)),),
    "shoal_not_a_number": ((0, _raises(NumericOutOfRange, "the result is not a number")),),
    "shoal_division_by_zero": ((1, _division_by_zero),),
    "shoal_several_rows": (
        (0, _raises(CardinalityViolation, "Expression subquery returned more than 1 row")),
    ),
    "shoal_negative_limit": ((0, _raises(InvalidRowCountInLimit, "LIMIT must not be negative")),),
    "shoal_negative_offset": ((0, _raises(InvalidRowCountInOffset, "OFFSET must not be negative")),),
    "shoal_negative_length": ((0, _raises(SubstringError, NEGATIVE_LENGTH)),),
    "shoal_row_met_twice": ((0, _row_met_twice),),
    "shoal_buckets_of_tier": ((2, _buckets_of_tier),),
    "shoal_health_of_instance": ((2, _health_of_instance),),
    "shoal_null_key": ((2, _null_key),),
    "shoal_unsigned": ((1, _unsigned),),
    # numbers
    "shoal_int": ((1, _int),),
    "shoal_int_div": ((2, _strict2(_int_div)),),
    "shoal_int_mod": ((2, _strict2(_int_mod)),),
    "shoal_double_add": ((2, _strict2(lambda a, b: _number(a + b))),),
    "shoal_double_sub": ((2, _strict2(lambda a, b: _number(a - b))),),
    "shoal_double_mul": ((2, _strict2(lambda a, b: _number(a * b))),),
    "shoal_double_div": ((2, _strict2(_double_div)),),
    "shoal_decimal_add": ((2, _strict2(decimals.add)),),
    "shoal_decimal_sub": ((2, _strict2(decimals.sub)),),
    "shoal_decimal_mul": ((2, _strict2(decimals.mul)),),
    "shoal_decimal_div": ((2, _strict2(decimals.div)),),
    "shoal_decimal_neg": ((1, _strict(decimals.neg)),),
    "shoal_decimal_abs": ((1, _strict(decimals.abs)),),
    "shoal_decimal_sign": ((1, _strict(_decimal_sign)),),
    "shoal_decimal_ceil": ((1, _strict(decimals.ceil)),),
    "shoal_decimal_floor": ((1, _strict(decimals.floor)),),
    "shoal_decimal_round": ((1, _strict(decimals.round)), (2, _strict2(_decimal_round))),
    "shoal_decimal_trunc": ((1, _strict(decimals.trunc)), (2, _strict2(_decimal_trunc))),
    "shoal_decimal_fit": ((3, _strict3(decimals.fit)),),
    "shoal_double_round": ((1, _strict(_round_double)),),
    "shoal_power": ((2, _strict2(_power)),),
    "shoal_sqrt": ((1, _strict(_sqrt)),),
    "shoal_greatest": ((-1, _greatest),),
    "shoal_least": ((-1, _least),),
    # casts
    "shoal_cast": ((4, _cast),),
    # texts
    "shoal_ilike": ((3, _like(patterns.ilike)),),
    "shoal_similar": ((3, _like(patterns.similar)),),
    "shoal_escape": ((1, _escape),),
    "shoal_lower": ((1, _strict(str.lower)),),
    "shoal_upper": ((1, _strict(str.upper)),),
    "shoal_substr": ((2, _strict2(_substr)), (3, _strict3(_substr))),
    "shoal_substring_regex": ((2, _strict2(patterns.substring_regex)),),
    "shoal_substring_similar": ((3, _strict3(patterns.substring_similar)),),
    "shoal_left": ((2, _strict2(lambda value, count: value[:count])),),
    "shoal_right": ((2, _strict2(_right)),),
    "shoal_reverse": ((1, _strict(lambda value: value[::-1])),),
    "shoal_repeat": ((2, _strict2(_repeat)),),
    "shoal_replace": ((3, _strict3(_replace)),),
    "shoal_split_part": ((3, _strict3(_split_part)),),
    "shoal_starts_with": ((2, _strict2(str.startswith)),),
    "shoal_md5": ((1, _strict(_md5)),),
    # datetimes
    "shoal_to_char": (
        (3, _strict3(lambda at, form, zone: templates.strftime(at, form, zone_of_name(zone)))),
    ),
    "shoal_to_date": ((2, _strict2(templates.strptime)),),
    # arrays and JSON
    "shoal_array": ((-1, _array),),
    "shoal_array_item": ((2, _strict2(arrays.item)),),
    "shoal_elements": ((1, _elements),),
    "shoal_in_array": ((2, _in_array),),
    "shoal_json_item": ((2, _strict2(lambda document, key: json.extract(document, (key,)))),),
    "shoal_json_extract_path": ((-1, _json_path),),
    # where rows live
    "shoal_bucket": ((2, _bucket), (-1, _bucket_of_several)),
    **_plain_casts(),
    **OF_AGGREGATES,
}


def register(connection: apsw.Connection) -> None:
    """All of them, and a guard that lets everything pass."""
    for name, overloads in FUNCTIONS.items():
        for arity, function in overloads:
            connection.create_scalar_function(name, function, arity, deterministic=True)
    connection.create_scalar_function("shoal_gen_random_uuid", _random_uuid, 0)
    for name, aggregate in AGGREGATES.items():
        connection.create_aggregate_function(name, aggregate, 1)
    register_guard(connection, lambda: None)


def register_guard(connection: apsw.Connection, guard: Callable[[], None]) -> None:
    """What statements that change many rows ask at each row: it returns, or raises what stops them.

    An exception fails the statement alone. An interrupt would roll back the whole transaction, with the
    statements of others in it.
    """

    def ask(*_arguments: object) -> int:
        guard()
        return 1

    connection.create_scalar_function("shoal_guard", ask, -1)


def _random_uuid(*_arguments: object) -> bytes:
    return uuid.uuid4().bytes
