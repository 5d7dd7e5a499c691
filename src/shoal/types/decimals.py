"""DECIMAL: exact numbers of up to 38 digits, in bytes that sort as the numbers do."""

from __future__ import annotations

from decimal import Decimal

from shoal.types.sqltype import SqlType


def to_stored(value: Decimal) -> bytes: raise NotImplementedError
def from_stored(stored: bytes) -> Decimal: raise NotImplementedError
def from_int(value: int) -> bytes: raise NotImplementedError
def from_float(value: float) -> bytes: raise NotImplementedError
def from_text(text: str) -> bytes: raise NotImplementedError
def to_text(stored: bytes, scale: int | None = None) -> str: raise NotImplementedError
def to_int(stored: bytes) -> int: raise NotImplementedError
def to_float(stored: bytes) -> float: raise NotImplementedError
def add(a: bytes, b: bytes) -> bytes: raise NotImplementedError
def subtract(a: bytes, b: bytes) -> bytes: raise NotImplementedError
def multiply(a: bytes, b: bytes) -> bytes: raise NotImplementedError
def divide(a: bytes, b: bytes) -> bytes: raise NotImplementedError
def negate(a: bytes) -> bytes: raise NotImplementedError
def absolute(a: bytes) -> bytes: raise NotImplementedError
def round_to(a: bytes, scale: int = 0) -> bytes: raise NotImplementedError
def truncate_to(a: bytes, scale: int = 0) -> bytes: raise NotImplementedError
def ceiling(a: bytes) -> bytes: raise NotImplementedError
def floor(a: bytes) -> bytes: raise NotImplementedError
def quantize(stored: bytes, precision: int, scale: int) -> bytes: raise NotImplementedError
