"""What ALTER SYSTEM takes, and what it changes."""

from __future__ import annotations

import pytest

from shoal.catalog.settings import ClusterSettings, alter_system, changed
from shoal.errors import InvalidParameterValue, ShoalError, UndefinedObject

USER = 1


def after(settings: ClusterSettings, name: str | None, value: object | None) -> ClusterSettings:
    return changed(settings, alter_system(name, value, None, USER).changes)


def test_a_parameter_is_set_and_reset() -> None:
    settings = ClusterSettings()
    assert settings.raft_wal_count_max == 16_384
    assert settings.raft_wal_size_max == 67_108_864
    assert settings.raft_snapshot_chunk_size_max == 16_777_216
    settings = after(settings, "raft_wal_count_max", 1)
    settings = after(settings, "raft_wal_size_max", 4096)
    settings = after(settings, "raft_snapshot_chunk_size_max", 1024)
    expected = ClusterSettings(
        raft_wal_count_max=1, raft_wal_size_max=4096, raft_snapshot_chunk_size_max=1024
    )
    assert settings == expected
    assert after(settings, "raft_wal_count_max", None).raft_wal_count_max == 16_384
    assert after(settings, None, None) == ClusterSettings()


def test_seconds_may_have_a_fraction() -> None:
    settings = after(ClusterSettings(), "governor_auto_offline_timeout", 2.5)
    assert settings.governor_auto_offline_timeout == 2.5
    settings = after(settings, "governor_auto_offline_timeout", 3)
    assert settings.governor_auto_offline_timeout == 3.0
    assert after(settings, "governor_auto_offline_timeout", None) == ClusterSettings()
    assert after(settings, "sql_ddl_timeout", 0).sql_ddl_timeout == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("raft_wal_count_max", 0, "invalid value for 'raft_wal_count_max': it must be from 1 to 1073741824"),
        ("raft_wal_size_max", 4095, "it must be from 4096 to 1099511627776"),
        ("raft_snapshot_chunk_size_max", 1023, "it must be from 1024 to 16777216"),
        ("raft_snapshot_chunk_size_max", (16 << 20) + 1, "it must be from 1024 to 16777216"),
        ("raft_wal_count_max", -1, "it must not be negative"),
        ("raft_wal_count_max", "many", "expected unsigned, got string"),
        ("raft_wal_count_max", True, "expected unsigned, got bool"),
        ("raft_wal_count_max", 1.5, "expected unsigned, got decimal"),
        ("governor_auto_offline_timeout", 0.9, "it must be from 1 to 86400 seconds"),
        ("governor_auto_offline_timeout", 86_401, "it must be from 1 to 86400 seconds"),
        ("governor_auto_offline_timeout", float("nan"), "it must be from 1 to 86400 seconds"),
        ("governor_auto_offline_timeout", "2", "expected double, got string"),
        ("governor_auto_offline_timeout", True, "expected double, got bool"),
        ("sql_ddl_timeout", -1, "it must be from 0 to 1e+09 seconds"),
    ],
)
def test_a_wrong_value_says_what_is_expected(name: str, value: object, said: str) -> None:
    with pytest.raises(InvalidParameterValue) as error:
        alter_system(name, value, None, USER)
    assert said in error.value.message


def test_what_is_not_there_is_not_taken() -> None:
    with pytest.raises(UndefinedObject, match="unknown parameter: 'raft_wal'"):
        alter_system("raft_wal", 1, None, USER)
    with pytest.raises(ShoalError, match="FOR TIER"):
        alter_system("raft_wal_count_max", 1, "hot", USER)
