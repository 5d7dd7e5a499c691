"""Time zones: how far local time is ahead of UTC, at an instant and at a local time.

Here: Zone, zone_of_name(). UTC and fixed offsets are arithmetic, named zones ask the tz database.
Not here: the calendar and the texts (datetimes.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from shoal.errors import InvalidParameterValue

__all__ = ["UTC", "Zone", "fixed_zone", "offset_text", "zone_of_name"]

_SECOND_US: Final = 1_000_000
# The Gregorian calendar repeats after 400 years: dates, leap years and weekdays alike. Years that Python's
# datetime can't hold are asked about a whole number of cycles away.
_CYCLE_US: Final = 146_097 * 86_400 * _SECOND_US
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  local time, or UTC: the zone is asked about it
# Between them Python's datetime can hold the instant in every zone: years 2 … 9998.
_ASKABLE_FROM: Final = (datetime(2, 1, 1) - _EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001
_ASKABLE_TO: Final = (datetime(9998, 1, 1) - _EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001

OFFSET_SECONDS_MAX: Final = 16 * 3600 - 1  # PostgreSQL's bound


@dataclass(frozen=True, slots=True)
class Zone:
    """A session's time zone. Instants and local times are microseconds since 1970-01-01."""

    name: str
    fixed_seconds: int | None  # None: the offset depends on the instant, see rules
    rules: ZoneInfo | None = field(default=None, compare=False)

    def offset_at(self, instant: int) -> int:
        """Seconds that local time is ahead of UTC at this instant."""
        if self.fixed_seconds is not None:
            return self.fixed_seconds
        assert self.rules is not None
        utc = _askable(instant).replace(tzinfo=self.rules)
        return _seconds(self.rules.fromutc(utc))

    def offset_of_local(self, local: int) -> int:
        """The same for a clock's reading. One that was skipped counts as if the clock had not been moved yet,
        one that came twice as the second: PostgreSQL's choice. Both are the lesser of two offsets."""
        if self.fixed_seconds is not None:
            return self.fixed_seconds
        reading = _askable(local).replace(tzinfo=self.rules)
        return min(_seconds(reading), _seconds(reading.replace(fold=1)))

    def abbreviation_at(self, instant: int) -> str:
        """MSK, CET, +03: what the zone calls itself at this instant."""
        if self.rules is None:
            return self.name
        return self.rules.fromutc(_askable(instant).replace(tzinfo=self.rules)).tzname() or self.name


def _askable(time: int) -> datetime:
    if not _ASKABLE_FROM <= time < _ASKABLE_TO:
        cycles = (time - _ASKABLE_FROM) // _CYCLE_US if time < _ASKABLE_FROM else 1
        time -= cycles * _CYCLE_US
    return _EPOCH + timedelta(microseconds=time)


def _seconds(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)


UTC: Final = Zone("UTC", 0)


def offset_text(seconds: int, separator: str = ":") -> str:
    """+03, -03:30, +02:30:17: minutes and seconds only where there are any."""
    sign = "-" if seconds < 0 else "+"
    minutes, second = divmod(-seconds if seconds < 0 else seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02}"
    if minute or second:
        text += f"{separator}{minute:02}"
    if second:
        text += f"{separator}{second:02}"
    return text


def fixed_zone(seconds: int) -> Zone:
    return Zone(offset_text(seconds), seconds) if seconds else UTC


_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_UTC_NAMES: Final = frozenset({"utc", "gmt", "z", "zulu", "etc/utc", "ut"})


def offset_of_text(text: str) -> int | None:
    """Seconds of +03, -0330, +03:00, 5; None when it is no such thing."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    sign, hour, minute, second = found.groups("0")
    if int(minute) > 59 or int(second) > 59:
        return None
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    if seconds > OFFSET_SECONDS_MAX:
        return None
    return -seconds if sign == "-" else seconds


@lru_cache(maxsize=1024)
def zone_of_name(name: str) -> Zone:
    """UTC, an offset east of Greenwich (+03, -03:30, 5), or a name of the tz database in any case."""
    trimmed = name.strip()
    if trimmed.lower() in _UTC_NAMES:
        return UTC
    offset = offset_of_text(trimmed)
    if offset is not None:
        return fixed_zone(offset)
    known = _names_by_lower_case().get(trimmed.lower())
    if known is None:
        shown = name if len(name) <= 80 else name[:80] + "…"
        raise InvalidParameterValue(f'time zone "{shown}" not recognized')
    return Zone(known, None, ZoneInfo(known))


@lru_cache(maxsize=1)
def _names_by_lower_case() -> dict[str, str]:
    # "localtime" is whatever the machine of one instance is set to: no name for a cluster's time zone.
    return {name.lower(): name for name in sorted(available_timezones()) if name != "localtime"}
