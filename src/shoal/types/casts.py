"""What can be cast to what, explicitly and silently."""

from __future__ import annotations

from shoal.types.datetimes import UTC, Zone
from shoal.types.sqltype import SqlType
from shoal.types.values import Cast


def cast(source: SqlType, target: SqlType, zone: Zone = UTC) -> Cast | None: raise NotImplementedError
def implicit(source: SqlType, target: SqlType) -> bool: raise NotImplementedError
def implicit_literal(source: SqlType, target: SqlType) -> bool: raise NotImplementedError
def common_type(a: SqlType, b: SqlType) -> SqlType | None: raise NotImplementedError
