"""The settings of the cluster: what ALTER SYSTEM knows, kept in _pico_db_config.

Here: ClusterSettings, the checks of ALTER SYSTEM, the rows it writes.
Not here: the settings of a session (node/settings.py) and of an instance (node/config.py).

A parameter is here when it does something. Others that Picodata has are refused as unknown, so that nobody
believes to have changed what isn't there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import msgspec

from shoal.catalog.entries import Dml, RowChange
from shoal.catalog.system import PICO_DB_CONFIG, Row, json_text
from shoal.errors import FeatureNotSupported, InvalidParameterValue, UndefinedObject

CLUSTER_SCOPE: Final = ""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """None and 0 of a limit: there is none. A limit counts an answer's rows only when somebody set it."""

    sql_vdbe_opcode_max: int = 0
    sql_motion_row_max: int = 0
    pg_statement_max: int = 100_000
    pg_portal_max: int = 100_000
    raft_wal_count_max: int = 16_384  # entries kept of Raft's log; more, or more bytes, and it is compacted
    raft_wal_size_max: int = 64 << 20
    raft_snapshot_chunk_size_max: int = 16 << 20
    auth_password_length_min: int = 8
    auth_password_enforce_uppercase: bool = True
    auth_password_enforce_lowercase: bool = True
    auth_password_enforce_digits: bool = True
    auth_password_enforce_specialchars: bool = False
    auth_login_attempt_max: int = 4  # wrong passwords one after another, then a user is locked; 0: never
    sql_ddl_timeout: float = (
        86_400.0  # seconds that a schema change is waited for; OPTION (TIMEOUT = …) goes first
    )
    governor_auto_offline_timeout: float = 2.0  # seconds of silence, then an instance is Offline


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        kind = {bool: "bool", str: "string"}.get(type(value), "decimal")
        raise InvalidParameterValue(f"invalid value for '{name}': expected unsigned, got {kind}.")
    if value < 0:
        raise InvalidParameterValue(f"invalid value for '{name}': it must not be negative")
    return value


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        kind = {int: "integer", str: "string"}.get(type(value), "decimal")
        raise InvalidParameterValue(f"invalid value for '{name}': expected bool, got {kind}.")
    return value


def _from_to(least: int, most: int) -> Callable[[str, object], int]:
    def check(name: str, value: object) -> int:
        count = _count(name, value)
        if not least <= count <= most:
            raise InvalidParameterValue(f"invalid value for '{name}': it must be from {least} to {most}")
        return count

    return check


def _seconds(least: float, most: float) -> Callable[[str, object], float]:
    def check(name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            kind = {bool: "bool", str: "string"}.get(type(value), "null")
            raise InvalidParameterValue(f"invalid value for '{name}': expected double, got {kind}.")
        if not least <= value <= most:
            raise InvalidParameterValue(
                f"invalid value for '{name}': it must be from {least:g} to {most:g} seconds"
            )
        return float(value)

    return check


_CHECKS: Final[Mapping[str, Callable[[str, object], int | float | bool]]] = {
    **{
        setting.name: _boolean if isinstance(setting.default, bool) else _count
        for setting in fields(ClusterSettings)
    },
    # No log is kept without an end, and a chunk must fit into a frame between instances.
    "raft_wal_count_max": _from_to(1, 1 << 30),
    "raft_wal_size_max": _from_to(4 << 10, 1 << 40),
    "raft_snapshot_chunk_size_max": _from_to(1 << 10, 16 << 20),
    "sql_ddl_timeout": _seconds(0, 1_000_000_000),
    # Whoever is well is heard several times a second.
    "governor_auto_offline_timeout": _seconds(1, 86_400),
}


def alter_system(name: str | None, value: object | None, tier: str | None, user_id: int) -> Dml:
    """The entry of ALTER SYSTEM SET name = value; value None is DEFAULT or RESET; name None is RESET ALL."""
    if tier is not None:
        raise FeatureNotSupported("parameters of single tiers are not supported: leave FOR TIER out")
    if name is not None and name not in _CHECKS:
        raise UndefinedObject(f"unknown parameter: '{name}'")
    names = list(_CHECKS) if name is None else [name]
    changes: list[RowChange] = []
    for known in names:
        key = (known, CLUSTER_SCOPE)
        checked = None if value is None else _CHECKS[known](known, value)
        row = None if checked is None else (*key, json_text(checked))
        changes.append(RowChange(PICO_DB_CONFIG.id, key, row))
    return Dml(tuple(changes), user_id)


def settings_of_rows(rows: Iterable[Row]) -> ClusterSettings:
    return changed(ClusterSettings(), (RowChange(PICO_DB_CONFIG.id, (row[0], row[1]), row) for row in rows))


def changed(settings: ClusterSettings, changes: Iterable[RowChange]) -> ClusterSettings:
    """The settings after some rows have changed."""
    defaults = ClusterSettings()
    for change in changes:
        if change.table_id != PICO_DB_CONFIG.id or change.key[1] != CLUSTER_SCOPE:
            continue
        name = str(change.key[0])
        if name not in _CHECKS:
            continue
        if change.row is None:
            settings = replace(settings, **{name: getattr(defaults, name)})
        else:
            value = msgspec.json.decode(change.row[2])
            if isinstance(value, int | float) and value >= 0:
                known: dict[str, Any] = {name: value}
                settings = replace(settings, **known)
    return settings
