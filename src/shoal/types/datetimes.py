"""DATETIME: an instant, as microseconds since 1970-01-01 UTC, in the years -9999 … 9999.

Here: the calendar, and the texts that are read and written in a session's time zone.
Not here: time zones (zones.py), templates of TO_CHAR and TO_DATE (templates.py), clocks (an instance's).

The calendar is the proleptic Gregorian one, with a year 0; years before it are written with a minus,
-0044-03-15, never with BC. Python's own datetime ends at year 1, so dates outside are moved by whole 400-year
cycles into a range that it knows, and back.
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache
from typing import Final

from shoal.errors import DatetimeOverflow, InvalidParameterValue, InvalidTextRepresentation
from shoal.types.zones import UTC, Zone, fixed_zone, offset_of_text, offset_text, zone_of_name

__all__ = [
    "DAY_US",
    "MAX",
    "MIN",
    "UTC",
    "Zone",
    "checked",
    "date_of_days",
    "days_of_date",
    "fixed_zone",
    "from_calendar",
    "from_text",
    "midnight",
    "to_iso",
    "to_text",
    "with_precision",
    "zone_of_name",
]

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US
_EPOCH_ORDINAL: Final = datetime.date(1970, 1, 1).toordinal()
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097


# The calendar


def days_of_date(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01, of any year. ValueError: there is no such day."""
    if 1 <= year <= 9999:
        return datetime.date(year, month, day).toordinal() - _EPOCH_ORDINAL
    cycles = year // _CYCLE_YEARS - 1
    moved = datetime.date(year - cycles * _CYCLE_YEARS, month, day)
    return moved.toordinal() - _EPOCH_ORDINAL + cycles * _CYCLE_DAYS


def date_of_days(days: int) -> tuple[int, int, int]:
    """Year, month and day: the inverse of days_of_date()."""
    # 1970 is not the first year of a cycle, so count the cycles from year 1, where ordinals begin.
    cycles, ordinal = divmod(days + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    date = datetime.date.fromordinal(ordinal + 1)
    return date.year + cycles * _CYCLE_YEARS, date.month, date.day


def from_calendar(
    year: int,
    month: int,
    day: int,
    hour: int = 0,
    minute: int = 0,
    second: int = 0,
    microsecond: int = 0,
) -> int:
    """The stored form of a moment in UTC."""
    try:
        days = days_of_date(year, month, day)
    except ValueError:
        raise DatetimeOverflow(f"there is no day {day} in month {month} of year {year}") from None
    return checked(days * DAY_US + ((hour * 60 + minute) * 60 + second) * SECOND_US + microsecond)


MIN: Final = days_of_date(-9999, 1, 1) * DAY_US
MAX: Final = days_of_date(10000, 1, 1) * DAY_US - 1


def checked(instant: int) -> int:
    if not MIN <= instant <= MAX:
        raise DatetimeOverflow("datetime out of range: years -9999 to 9999")
    return instant


def midnight(instant: int, zone: Zone = UTC) -> int:
    """The beginning of the zone's day that the instant lies in: CURRENT_DATE of a clock's now."""
    local = instant + zone.offset_at(instant) * SECOND_US
    start = local - local % DAY_US
    return checked(start - zone.offset_of_local(start) * SECOND_US)


def with_precision(instant: int, digits: int) -> int:
    """Rounded to that many digits of a second: CURRENT_TIMESTAMP(p)."""
    unit: int = 10 ** (6 - min(max(digits, 0), 6))
    return checked((instant + unit // 2) // unit * unit)


# Out


def year_text(year: int) -> str:
    return f"{year:04}" if year >= 0 else f"-{-year:04}"


@lru_cache(maxsize=4096)
def _date_text(days: int) -> str:
    year, month, day = date_of_days(days)
    return f"{year_text(year)}-{month:02}-{day:02}"


def _time_text(us: int) -> str:
    seconds, fraction = divmod(us, SECOND_US)
    minutes, second = divmod(seconds, 60)
    if fraction:
        return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}." + f"{fraction:06}".rstrip("0")
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"


def to_text(instant: int, zone: Zone = UTC) -> str:
    """2026-01-13 10:00:00.5+03, as PostgreSQL shows a timestamptz."""
    offset = zone.offset_at(instant)
    days, us = divmod(instant + offset * SECOND_US, DAY_US)
    return f"{_date_text(days)} {_time_text(us)}{offset_text(offset) if offset else '+00'}"


def to_iso(instant: int, zone: Zone = UTC) -> str:
    """2003-07-08T19:13:00+0300, what a cast to TEXT gives; UTC is Z."""
    offset = zone.offset_at(instant)
    days, us = divmod(instant + offset * SECOND_US, DAY_US)
    if not offset:
        shown = "Z"
    else:
        shown = offset_text(offset, "")
        if len(shown) == 3:
            shown += "00"
    return f"{_date_text(days)}T{_time_text(us)}{shown}"


# In

_ISO: Final = re.compile(
    r"""
    (?P<year> [+-]?[0-9]{4,6} )
    (?: -(?P<month>[0-9]{2})-(?P<day>[0-9]{2})      # 2026-01-13
      | -(?P<ordinal>[0-9]{3})                      # 2026-013
      | -W(?P<week>[0-9]{2})-(?P<weekday>[1-7])     # 2026-W03-2
    )
    (?P<time> .* )
    """,
    re.VERBOSE | re.DOTALL,
)
_BASIC_DATE: Final = re.compile(
    r"(?P<year>[0-9]{4})(?:(?P<month>[0-9]{2})(?P<day>[0-9]{2})|(?P<ordinal>[0-9]{3})"
    r"|W(?P<week>[0-9]{2})(?P<weekday>[1-7]))(?P<time>(?:[Tt ].*)?)",
    re.DOTALL,
)
_TIME: Final = re.compile(
    r"""
    (?: [Tt] | [ ]+ )
    (?P<hour>[0-9]{2})
    (?: (?P<colon>:?) (?P<minute>[0-9]{2})
        (?: (?P=colon) (?P<second>[0-9]{2}) (?: [.,] (?P<fraction>[0-9]+) )? )? )?
    [ ]* (?P<zone> [A-Za-z+-] [A-Za-z0-9_/:+-]* )?
    """,
    re.VERBOSE,
)
_RFC_2822: Final = re.compile(
    r"""
    (?: (?P<weekday>[A-Za-z]{3}) (?: [ ]*, )? [ ]* )?
    (?P<day>[0-9]{1,2}) [ ]+ (?P<month>[A-Za-z]{3}) [ ]+ (?P<year>[0-9]{4})
    [ ]+ (?P<hour>[0-9]{2}) : (?P<minute>[0-9]{2}) (?: : (?P<second>[0-9]{2}) )?
    [ ]+ (?P<zone> [+-][0-9]{4} | [A-Za-z]{1,3} )
    """,
    re.VERBOSE,
)
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# The zones that RFC 2822 knows by name, in hours.
_RFC_2822_ZONES: Final = {
    "ut": 0, "gmt": 0, "utc": 0, "z": 0,
    "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7,
}  # fmt: skip


def from_text(text: str, zone: Zone = UTC) -> int:
    """Reads ISO 8601, RFC 3339, RFC 2822, and what PostgreSQL prints.

    A missing time is midnight UTC, a missing zone is the given one. Anything else (other orders of day and
    month, infinity, 24:00, month 13) is no datetime: 22P02.
    """
    trimmed = text.strip(" \t\n\r\f\v")
    found = _ISO.fullmatch(trimmed) or _BASIC_DATE.fullmatch(trimmed)
    try:
        if found is not None:
            return _from_iso(found, zone)
        mail = _RFC_2822.fullmatch(trimmed)
        if mail is not None:
            return _from_rfc_2822(mail)
    except (ValueError, InvalidParameterValue):
        pass
    shown = text if len(text) <= 80 else text[:80] + "…"
    raise InvalidTextRepresentation(f'invalid input syntax for type datetime: "{shown}"')


def _from_iso(found: re.Match[str], zone: Zone) -> int:
    year = int(found["year"])
    if found["month"] is not None:
        days = days_of_date(year, int(found["month"]), int(found["day"]))
    elif found["ordinal"] is not None:
        days = days_of_ordinal(year, int(found["ordinal"]))
    else:
        days = days_of_week(year, int(found["week"]), int(found["weekday"]))
    if not found["time"]:
        return checked(days * DAY_US)
    time = _TIME.fullmatch(found["time"])
    if time is None or (time["minute"] is None and found["time"][0] not in "Tt"):
        raise ValueError
    us = time_us(int(time["hour"]), int(time["minute"] or 0), int(time["second"] or 0))
    local = days * DAY_US + us + fraction_us(time["fraction"] or "")
    return checked(local - _offset(time["zone"], local, zone) * SECOND_US)


def _offset(spelled: str | None, local: int, zone: Zone) -> int:
    if spelled is None:
        return zone.offset_of_local(local)
    if spelled[0] not in "+-":
        return zone_of_name(spelled).offset_of_local(local)
    seconds = offset_of_text(spelled)
    if seconds is None:
        raise ValueError
    return seconds


def _from_rfc_2822(found: re.Match[str]) -> int:
    days = days_of_date(int(found["year"]), MONTHS.index(found["month"].lower()) + 1, int(found["day"]))
    if found["weekday"] is not None and WEEKDAYS.index(found["weekday"].lower()) != weekday(days):
        raise ValueError
    us = time_us(int(found["hour"]), int(found["minute"]), int(found["second"] or 0))
    spelled = found["zone"].lower()
    if spelled[0] in "+-":
        seconds = offset_of_text(spelled)
    elif spelled in _RFC_2822_ZONES:
        seconds = _RFC_2822_ZONES[spelled] * 3600
    else:
        seconds = None
    if seconds is None:
        raise ValueError
    return checked(days * DAY_US + us - seconds * SECOND_US)


def weekday(days: int) -> int:
    """0 is Monday."""
    return (days + 3) % 7


def days_of_ordinal(year: int, ordinal: int) -> int:
    """Of the n-th day of a year, 1-based."""
    first = days_of_date(year, 1, 1)
    if not 1 <= ordinal <= days_of_date(year + 1, 1, 1) - first:
        raise ValueError
    return first + ordinal - 1


def days_of_week(year: int, week: int, day: int) -> int:
    """Of an ISO week's day: week 1 has January 4th, day 1 is Monday."""
    first = _first_monday(year)
    days = first + (week - 1) * 7 + day - 1
    if not (1 <= day <= 7 and first <= days < _first_monday(year + 1)):
        raise ValueError
    return days


def _first_monday(year: int) -> int:
    fourth = days_of_date(year, 1, 4)
    return fourth - weekday(fourth)


def week_of_days(days: int) -> tuple[int, int]:
    """The ISO year and week that a day lies in."""
    year = date_of_days(days)[0] + 1
    while (first := _first_monday(year)) > days:
        year -= 1
    return year, (days - first) // 7 + 1


def time_us(hour: int, minute: int, second: int) -> int:
    # A leap second is written :60 and counts as the next minute's :00, as PostgreSQL reads it.
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError
    return ((hour * 60 + minute) * 60 + second) * SECOND_US


def fraction_us(digits: str) -> int:
    """Microseconds of .digits, the seventh one rounds."""
    if len(digits) <= 6:
        return int(digits.ljust(6, "0"))
    return int(digits[:6]) + (digits[6] >= "5")
