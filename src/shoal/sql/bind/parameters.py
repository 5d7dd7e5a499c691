"""The types of $1, $2, …: what the client said, else what the statement needs.

Here: Parameters, which learns the types while a statement is bound from left to right.
Not here: what a place in the statement wants (expressions.py), values (the wire's).

Rules:
- An OID that the client sent is taken as given, and shown to it unchanged. 0 and 705 mean: infer.
- The first place that wants a type gives it, and it is final for the whole statement: a later place converts
  what it gets, like any other value, or refuses it.
- A statement is bound in *units*: one item of a select list, the whole WHERE, one value of an INSERT. Within
  one unit a parameter that the client didn't type can't have two types: who is meant isn't clear there.
- What nobody wants a type of is TEXT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from shoal.errors import AmbiguousParameter, FeatureNotSupported, ProgramLimitExceeded, UndefinedParameter
from shoal.sql.bind.coercion import plain, shown
from shoal.types.sqltype import TEXT, UNKNOWN, SqlType, type_of_oid

NUMBER_MAX: Final = 32_766  # as many values as one statement of SQLite takes
_INFER: Final = frozenset({0, 705})
_CLIENT: Final = 0  # the unit of what the client typed


class Parameters:
    def __init__(self, oids: Sequence[int]) -> None:
        self._oids: dict[int, int] = {}
        self._types: dict[int, SqlType] = {}
        self._units: dict[int, int] = {}  # in which unit a type was found
        self._count = 0
        self._unit = self._last_unit = 1
        for number, oid in enumerate(oids, start=1):
            self._mentioned(number, None)
            if oid in _INFER:
                continue
            given = type_of_oid(oid)
            if given is None:
                raise FeatureNotSupported(f"feature is not supported: parameter oid {oid}")
            self._oids[number] = oid
            self._types[number] = given
            self._units[number] = _CLIENT

    @contextmanager
    def unit(self) -> Iterator[None]:
        """What is bound inside is one unit."""
        outside = self._unit
        self._last_unit += 1
        self._unit = self._last_unit
        try:
            yield
        finally:
            self._unit = outside

    def hint(self, number: int) -> SqlType:
        """The type, or UNKNOWN as long as there is none."""
        return self._types.get(number, UNKNOWN)

    def found_here(self, number: int) -> bool:
        """Did this very unit give the parameter its type?"""
        return self._units.get(number) == self._unit

    def type_of(self, number: int, desired: SqlType | None, at: int) -> SqlType:
        """Its type, which becomes the desired one if it has none yet."""
        self._mentioned(number, at)
        known = self._types.get(number)
        if known is not None:
            return known
        found = TEXT if desired is None or desired.is_unknown else plain(desired)
        self._types[number] = found
        self._units[number] = self._unit
        return found

    def conflict(self, number: int, other: SqlType, at: int) -> AmbiguousParameter:
        first, second = shown(self._types[number]), shown(other)
        return AmbiguousParameter(
            f"inconsistent types {first} and {second} deduced for parameter ${number}, consider using "
            f"transitive type casts through a common type, e.g. ${number}::{first}::{second} and "
            f"${number}::{first}",
            position=at + 1,
        )

    def _mentioned(self, number: int, at: int | None) -> None:
        if number < 1:
            raise UndefinedParameter(
                f"there is no parameter ${number}", position=None if at is None else at + 1
            )
        if number > NUMBER_MAX:
            raise ProgramLimitExceeded(
                f"a statement can have at most {NUMBER_MAX} parameters",
                position=None if at is None else at + 1,
            )
        self._count = max(self._count, number)

    @property
    def types(self) -> tuple[SqlType, ...]:
        return tuple(self._types.get(number, TEXT) for number in range(1, self._count + 1))

    @property
    def oids(self) -> tuple[int, ...]:
        """As ParameterDescription shows them."""
        return tuple(self._oids.get(number, t.oid) for number, t in enumerate(self.types, start=1))
