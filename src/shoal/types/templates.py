"""The templates of TO_CHAR and TO_DATE: strftime and strptime, for every year that a DATETIME has.

Here: the meaning of each %x, in English whatever the machine's locale is.
Not here: DATETIME's own texts (datetimes.py).
"""

from __future__ import annotations

import re
from typing import Final

from shoal.errors import InvalidParameterValue, InvalidTextRepresentation
from shoal.types import datetimes
from shoal.types.datetimes import DAY_US, SECOND_US, UTC, Zone
from shoal.types.zones import offset_of_text, offset_text

__all__ = ["strftime", "strptime"]

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# Directives that stand for a template of others.
_COMPOUND: Final = {
    "c": "%a %b %e %H:%M:%S %Y",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "r": "%I:%M:%S %p",
    "R": "%H:%M",
    "T": "%H:%M:%S",
    "v": "%e-%b-%Y",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
}
_DIRECTIVE: Final = re.compile(r"%([1-9]?)(.?)", re.DOTALL)


def _unknown(directive: str) -> InvalidParameterValue:
    return InvalidParameterValue(f'"{directive}" is no directive of a datetime template')


def _expanded(template: str) -> str:
    return _DIRECTIVE.sub(
        lambda found: _COMPOUND.get(found[2], found[0]) if not found[1] else found[0], template
    )


def strftime(instant: int, template: str, zone: Zone = UTC) -> str:
    """The instant in the zone, as the template says: TO_CHAR."""
    offset = zone.offset_at(instant)
    days, us = divmod(instant + offset * SECOND_US, DAY_US)
    year, month, day = datetimes.date_of_days(days)
    seconds, fraction = divmod(us, SECOND_US)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    weekday = datetimes.weekday(days)
    year_day = days - datetimes.days_of_date(year, 1, 1)

    def shown(found: re.Match[str]) -> str:
        width, letter = found[1], found[2]
        if width and letter != "f":
            raise _unknown(found[0])
        match letter:
            case "Y":
                return datetimes.year_text(year)
            case "m":
                return f"{month:02}"
            case "d":
                return f"{day:02}"
            case "H":
                return f"{hour:02}"
            case "M":
                return f"{minute:02}"
            case "S":
                return f"{second:02}"
            case "f":
                return f"{fraction:06}000"[: int(width or 6)]
            case "z":
                return offset_text(offset, "").ljust(5, "0")
            case "Z":
                return zone.abbreviation_at(instant)
            case "C":
                return f"{year // 100:02}"
            case "y":
                return f"{year % 100:02}"
            case "e":
                return f"{day:2}"
            case "k":
                return f"{hour:2}"
            case "I":
                return f"{(hour + 11) % 12 + 1:02}"
            case "l":
                return f"{(hour + 11) % 12 + 1:2}"
            case "p":
                return "AM" if hour < 12 else "PM"
            case "P":
                return "am" if hour < 12 else "pm"
            case "j":
                return f"{year_day + 1:03}"
            case "b" | "h":
                return _MONTHS[month - 1][:3]
            case "B":
                return _MONTHS[month - 1]
            case "a":
                return _WEEKDAYS[weekday][:3]
            case "A":
                return _WEEKDAYS[weekday]
            case "u":
                return str(weekday + 1)
            case "w":
                return str((weekday + 1) % 7)
            case "U":
                return f"{(year_day + 7 - (weekday + 1) % 7) // 7:02}"
            case "W":
                return f"{(year_day + 7 - weekday) // 7:02}"
            case "V":
                return f"{datetimes.week_of_days(days)[1]:02}"
            case "G":
                return datetimes.year_text(datetimes.week_of_days(days)[0])
            case "g":
                return f"{datetimes.week_of_days(days)[0] % 100:02}"
            case "s":
                return str(instant // SECOND_US)
            case "n":
                return "\n"
            case "t":
                return "\t"
            case "%":
                return "%"
            case _:
                raise _unknown(found[0])

    return _DIRECTIVE.sub(shown, _expanded(template))


# What strptime's directives match. Numbers may be shorter than they are written, as in C; and as in C, what one
# directive took the next one doesn't get back: the trailing + forbids it, so no template makes matching slow.
_PATTERNS: Final = {
    "Y": r"[+-]?[0-9]{1,4}+",
    "C": r"[0-9]{2}",
    "y": r"[0-9]{2}",
    "m": r"[0-9]{1,2}+",
    "d": r" ?[0-9]{1,2}+",
    "e": r" ?[0-9]{1,2}+",
    "H": r" ?[0-9]{1,2}+",
    "k": r" ?[0-9]{1,2}+",
    "I": r" ?[0-9]{1,2}+",
    "l": r" ?[0-9]{1,2}+",
    "M": r"[0-9]{1,2}+",
    "S": r"[0-9]{1,2}+",
    "f": r"[0-9]{1,9}+",
    "p": r"[AaPp][Mm]",
    "P": r"[AaPp][Mm]",
    "j": r"[0-9]{1,3}+",
    "b": r"[A-Za-z]++",
    "h": r"[A-Za-z]++",
    "B": r"[A-Za-z]++",
    "a": r"[A-Za-z]++",
    "A": r"[A-Za-z]++",
    "u": r"[1-7]",
    "w": r"[0-6]",
    "G": r"[+-]?[0-9]{1,4}+",
    "V": r"[0-9]{1,2}+",
    "s": r"-?[0-9]{1,12}+",
    "z": r"(?>Z|[+-][0-9]{2}(?::?[0-9]{2})?)",
    "Z": r"(?>[A-Za-z][A-Za-z_/]*+|[+-][0-9]{2}(?::?[0-9]{2})?)",
}


def strptime(text: str, template: str) -> int:
    """The midnight (UTC) of the date that the text tells; a time in it is read and dropped: TO_DATE.

    An empty template is %F. What the template doesn't ask for is taken from 1970-01-01.
    """
    fields: list[str] = []
    pattern = _pattern(_expanded(template or "%F"), fields)
    found = pattern.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        values: dict[str, str] = {}
        for letter, value in zip(fields, found.groups(), strict=True):
            if values.setdefault(letter, value) != value:
                raise ValueError  # %Y twice, with two years
        return datetimes.checked(_days(values) * DAY_US)
    except ValueError:
        raise InvalidTextRepresentation(
            f"'{text}' doesn't match the datetime template '{template}'"
        ) from None


def _pattern(template: str, fields: list[str]) -> re.Pattern[str]:
    spelled = ""
    rest = 0
    for found in _DIRECTIVE.finditer(template):
        spelled += _literal(template[rest : found.start()])
        rest = found.end()
        if found[2] == "%":
            spelled += "%"
        elif found[2] in ("n", "t"):
            spelled += r"\s*+"
        elif found[2] in _PATTERNS and not (found[1] and found[2] != "f"):
            fields.append(found[2])
            spelled += f"({_PATTERNS[found[2]]})"
        else:
            raise _unknown(found[0])
    return re.compile(spelled + _literal(template[rest:]))


def _literal(text: str) -> str:
    return r"\s*+".join(re.escape(word) for word in re.split(r"\s+", text))


def _days(values: dict[str, str]) -> int:
    """The date of what was read. ValueError: there is no such date, or the parts disagree."""
    _check_time(values)
    if "s" in values:
        return int(values["s"]) * SECOND_US // DAY_US
    year = 1970
    if "Y" in values:
        year = int(values["Y"])
    elif "y" in values:
        short = int(values["y"])
        # Without a century, POSIX has 69…99 in the 20th and 0…68 in the 21st.
        year = int(values["C"]) * 100 + short if "C" in values else short + (1900 if short >= 69 else 2000)
    elif "C" in values:
        year = int(values["C"]) * 100
    if "j" in values:
        days = datetimes.days_of_ordinal(year, int(values["j"]))
    elif "V" in values:
        days = datetimes.days_of_week(int(values.get("G", year)), int(values["V"]), _weekday(values, 0) + 1)
    else:
        name = values.get("B") or values.get("b") or values.get("h")
        month = _index(name, _MONTHS) + 1 if name else int(values.get("m", "1"))
        days = datetimes.days_of_date(year, month, int(values.get("d") or values.get("e") or "1"))
    if _weekday(values, datetimes.weekday(days)) != datetimes.weekday(days):
        raise ValueError
    return days


def _weekday(values: dict[str, str], otherwise: int) -> int:
    name = values.get("A") or values.get("a")
    if name:
        return _index(name, _WEEKDAYS)
    if "u" in values:
        return int(values["u"]) - 1
    if "w" in values:
        return (int(values["w"]) + 6) % 7
    return otherwise


def _check_time(values: dict[str, str]) -> None:
    hour = int(values.get("H") or values.get("k") or "0")
    datetimes.time_us(hour, int(values.get("M", "0")), int(values.get("S", "0")))
    half_day_hour = int(values.get("I") or values.get("l") or "1")
    if not 1 <= half_day_hour <= 12:
        raise ValueError
    if values.get("z", "Z") != "Z" and offset_of_text(values["z"]) is None:
        raise ValueError


def _index(name: str, names: tuple[str, ...]) -> int:
    for index, full in enumerate(names):
        if name.lower() in (full.lower(), full[:3].lower()):
            return index
    raise ValueError
