"""Which settings a server reports to its clients: ParameterStatus.

Here: what is reported right after login, and which settings are reported anew when SET changes them.
Not here: the values of a session, and what they may be (the session).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shoal.pgwire.messages import ParameterStatus

# Drivers read the version's first number, and choose by it what they may ask of a server.
POSTGRESQL_VERSION: Final = "15.0"

# Session settings whose changes clients hear of: name in lower case → as clients spell it.
REPORTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "application_name": "application_name",
        "client_encoding": "client_encoding",
        "datestyle": "DateStyle",
        "default_transaction_read_only": "default_transaction_read_only",
        "intervalstyle": "IntervalStyle",
        "is_superuser": "is_superuser",
        "session_authorization": "session_authorization",
        "standard_conforming_strings": "standard_conforming_strings",
        "timezone": "TimeZone",
    }
)


def server_version(version: str) -> str:
    """`15.0 (Shoal 0.1.0)`: a version that drivers can parse, and the truth behind it."""
    return f"{POSTGRESQL_VERSION} (Shoal {version})"


def statuses_after_login(
    *,
    version: str,
    user: str,
    is_superuser: bool,
    application_name: str,
    time_zone: str,
    default_transaction_read_only: bool = False,
) -> tuple[ParameterStatus, ...]:
    """What every client is told before its first ReadyForQuery."""
    settings = {
        "server_version": server_version(version),
        "server_encoding": "UTF8",
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "integer_datetimes": "on",
        "TimeZone": time_zone,
        "standard_conforming_strings": "on",
        "IntervalStyle": "postgres",
        "is_superuser": _on_or_off(is_superuser),
        "session_authorization": user,
        "application_name": application_name,
        "in_hot_standby": "off",
        "default_transaction_read_only": _on_or_off(default_transaction_read_only),
    }
    return tuple(ParameterStatus(name, setting) for name, setting in settings.items())


def _on_or_off(setting: bool) -> str:
    return "on" if setting else "off"
