"""What SET and SHOW know: the settings of one session.

Here: the settings a driver or a user may set, what each accepts, and the session's values.
Not here: settings of the cluster (ALTER SYSTEM, catalog/settings.py), of the instance (node/config.py).

A setting is here for one of two reasons: it does something, or drivers send it when they connect and the
only value accepted is the one that is true anyway. All others are refused, so that nobody believes to
have changed what stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shoal import __version__
from shoal.errors import FeatureNotSupported, InvalidParameterValue, UndefinedObject
from shoal.pgwire.settings import REPORTED, server_version
from shoal.sql.bind import BindSettings
from shoal.types.zones import UTC, Zone, zone_of_name

_BOOLEANS: Final = {
    **dict.fromkeys(("on", "true", "yes", "1", "t"), "on"),
    **dict.fromkeys(("off", "false", "no", "0", "f"), "off"),
}


def _boolean(value: str) -> str:
    found = _BOOLEANS.get(value.lower())
    if found is None:
        raise ValueError("a Boolean value")
    return found


def _anything(value: str) -> str:
    return value


def _zone(value: str) -> str:
    if value.lower() in ("local", "default"):
        return UTC.name
    return zone_of_name(value).name


def _only(*accepted: str) -> Callable[[str], str]:
    """The setting stands for what we are; saying it again is fine, anything else is not."""

    def parse(value: str) -> str:
        if value.lower().replace(" ", "") not in {known.lower().replace(" ", "") for known in accepted}:
            raise FeatureNotSupported(f"only {accepted[0]!r} is supported")
        return accepted[0]

    return parse


_UNITS: Final = {"us": 0.001, "ms": 1.0, "s": 1000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}


def _milliseconds(value: str) -> str:
    number = value.strip()
    unit = number.lstrip("0123456789.").strip()
    digits = number[: len(number) - len(unit)].strip() if unit else number
    if unit not in ("", *_UNITS):
        raise ValueError("a time, such as 500, 500ms or 2s")
    try:
        count = round(float(digits) * _UNITS.get(unit, 1.0))
    except ValueError:
        raise ValueError("a time, such as 500, 500ms or 2s") from None
    if not 0 <= count < 2**31:
        raise ValueError("a time from 0 to 2147483647 ms")
    return str(count)


def _count(value: str) -> str:
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise ValueError("a whole number, 0 for no limit")
    return str(int(value))


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(" or ".join(choices))
        return value.lower()

    return parse


def _digits(value: str) -> str:
    if not re.fullmatch(r"[+-]?[0-9]{1,2}", value) or not -15 <= int(value) <= 3:
        raise ValueError("a whole number from -15 to 3")
    return str(int(value))


def _read_only(value: str) -> str:
    raise FeatureNotSupported("it cannot be changed")


# name → (default, what SET accepts)
_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    # These do something.
    "TimeZone": ("UTC", _zone),
    "statement_timeout": ("0", _milliseconds),
    "default_transaction_read_only": ("off", _boolean),
    "sql_vdbe_opcode_max": ("", _count),
    "sql_motion_row_max": ("", _count),
    "application_name": ("", _anything),
    # These are as they are; drivers say them again.
    "client_encoding": ("UTF8", _only("UTF8", "UTF-8", "'utf-8'", "unicode", "SQL_ASCII")),
    "server_encoding": ("UTF8", _read_only),
    "DateStyle": ("ISO, MDY", _only("ISO, MDY", "ISO", "ISO, DMY", "ISO, YMD")),
    "IntervalStyle": ("postgres", _only("postgres", "iso_8601")),
    "integer_datetimes": ("on", _read_only),
    "standard_conforming_strings": ("on", _only("on", "true")),
    "backslash_quote": ("safe_encoding", _only("safe_encoding")),
    "bytea_output": ("hex", _only("hex")),
    "search_path": ("public", _only("public", '"$user", public', "$user, public", "''", '""', "")),
    "server_version": (server_version(__version__), _read_only),
    "server_version_num": ("150000", _read_only),
    "is_superuser": ("on", _read_only),
    "in_hot_standby": ("off", _read_only),
    "session_authorization": ("admin", _read_only),
    "transaction_isolation": ("read committed", _read_only),
    "default_transaction_isolation": ("read committed", _only("read committed")),
    "transaction_read_only": ("off", _read_only),
    "max_identifier_length": ("65000", _read_only),
    # Output is the shortest that reads back exactly: what 1 and more of it mean.
    "extra_float_digits": ("1", _digits),
    # Messages of these levels are few, and clients filter by themselves; harmless.
    "client_min_messages": ("notice", _choice("debug5", "debug4", "debug3", "debug2", "debug1", "log",
                                              "notice", "warning", "error")),
    # No statement takes locks that outlive it, and no block holds anything: there is nothing to time out.
    "lock_timeout": ("0", _milliseconds),
    "idle_in_transaction_session_timeout": ("0", _milliseconds),
    "row_security": ("on", _boolean),
    "jit": ("off", _only("off")),
}  # fmt: skip

_BY_LOWER: Final = {name.lower(): name for name in _SETTINGS}
_ALIASES: Final = {"names": "client_encoding", "time zone": "TimeZone"}


@dataclass(frozen=True, slots=True)
class Kept:
    """All settings as they were at a moment, for a block or a savepoint to go back to."""

    values: Mapping[str, str]
    behind_local: Mapping[str, str]


class SessionSettings:
    """The settings of one session: defaults, what the startup packet said, what SET said since."""

    def __init__(self, user: str, startup: Mapping[str, str], *, is_superuser: bool = True) -> None:
        self._values = {name: default for name, (default, _) in _SETTINGS.items()}
        self._values["session_authorization"] = user
        self._values["is_superuser"] = "on" if is_superuser else "off"
        self.zone: Zone = UTC
        self.statement_timeout_ms = 0
        self.read_only = False
        self.opcode_max: int | None = None  # None: not said
        self.row_max: int | None = None
        self._behind_local: dict[str, str] = {}  # what SET LOCAL has covered until the block ends
        for name, value in startup.items():
            self.set(name, value)
        self._initial = dict(self._values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def resolve(self, name: str) -> str:
        """The setting's name as we spell it."""
        lower = name.lower()
        found = _BY_LOWER.get(_ALIASES.get(lower, lower).lower())
        if found is None:
            raise UndefinedObject(f'unrecognized configuration parameter "{name}"')
        return found

    def set(self, name: str, value: str | None) -> str | None:
        """Sets it; None: back to what the session began with. Returns its name where clients follow it."""
        known = self.resolve(name)
        self._behind_local.pop(known, None)
        if value is None:
            self._values[known] = self._initial[known]
        else:
            try:
                self._values[known] = _SETTINGS[known][1](value)
            except ValueError as error:
                raise InvalidParameterValue(
                    f'invalid value for parameter "{known}": "{value}"', hint=f"It takes {error}."
                ) from None
            except FeatureNotSupported as error:
                raise FeatureNotSupported(f'parameter "{known}" = "{value}": {error.message}') from None
        self._take_effect(known)
        return known if known.lower() in REPORTED else None

    def set_local(self, name: str, value: str | None) -> str | None:
        """The same, until the block ends."""
        known = self.resolve(name)
        behind = self._behind_local.get(known, self._values[known])
        reported = self.set(name, value)
        self._behind_local[known] = behind
        return reported

    def end_local(self) -> list[str]:
        """The block ends, and SET LOCAL with it."""
        return self._change(self._values | self._behind_local, {})

    def keep(self) -> Kept:
        return Kept(dict(self._values), dict(self._behind_local))

    def go_back(self, kept: Kept) -> list[str]:
        return self._change(kept.values, kept.behind_local)

    def reset_all(self) -> list[str]:
        return self._change(self._initial, {})

    def _change(self, values: Mapping[str, str], behind_local: Mapping[str, str]) -> list[str]:
        """Returns the names whose values changed and that clients follow."""
        before, self._values, self._behind_local = self._values, dict(values), dict(behind_local)
        changed = [name for name, value in before.items() if values[name] != value]
        for name in changed:
            self._take_effect(name)
        return [name for name in changed if name.lower() in REPORTED]

    def for_binding(self) -> BindSettings:
        return BindSettings(self.zone, {name.lower(): value for name, value in self._values.items()})

    def show(self, name: str) -> tuple[str, str]:
        known = self.resolve(name)
        return known, self._values[known]

    def all(self) -> list[tuple[str, str]]:
        return sorted(self._values.items(), key=lambda item: item[0].lower())

    def _take_effect(self, name: str) -> None:
        value = self._values[name]
        match name:
            case "TimeZone":
                self.zone = zone_of_name(value)
            case "statement_timeout":
                self.statement_timeout_ms = int(value)
            case "default_transaction_read_only":
                self.read_only = value == "on"
            case "sql_vdbe_opcode_max":
                self.opcode_max = int(value) if value else None
            case "sql_motion_row_max":
                self.row_max = int(value) if value else None
