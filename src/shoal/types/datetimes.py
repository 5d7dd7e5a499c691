"""DATETIME: an instant, in microseconds since 1970-01-01 UTC, for the years -9999 … 9999."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Zone:
    name: str
    def offset_at(self, stored: int) -> int: raise NotImplementedError
    def offset_of_local(self, local: int) -> int: raise NotImplementedError


UTC = Zone("UTC")


def zone_of_name(name: str) -> Zone: raise NotImplementedError
def from_calendar(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, microsecond: int = 0) -> int: raise NotImplementedError
def from_text(text: str, zone: Zone = UTC) -> int: raise NotImplementedError
def to_text(stored: int, zone: Zone = UTC) -> str: raise NotImplementedError
def to_iso(stored: int, zone: Zone = UTC) -> str: raise NotImplementedError
def to_char(stored: int, template: str, zone: Zone = UTC) -> str: raise NotImplementedError
def to_date(text: str, template: str) -> int: raise NotImplementedError
