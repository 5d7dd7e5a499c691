"""What clients are told of their session."""

from __future__ import annotations

from shoal.pgwire import REPORTED, statuses_after_login


def test_statuses_after_login() -> None:
    statuses = statuses_after_login(
        version="0.1.0",
        user="ann",
        is_superuser=False,
        application_name="psql",
        time_zone="UTC",
    )
    assert {status.name: status.setting for status in statuses} == {
        "server_version": "15.0 (Shoal 0.1.0)",
        "server_encoding": "UTF8",
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "integer_datetimes": "on",
        "TimeZone": "UTC",
        "standard_conforming_strings": "on",
        "IntervalStyle": "postgres",
        "is_superuser": "off",
        "session_authorization": "ann",
        "application_name": "psql",
        "in_hot_standby": "off",
        "default_transaction_read_only": "off",
    }


def test_what_changes_was_told_before() -> None:
    statuses = statuses_after_login(
        version="0.1.0",
        user="ann",
        is_superuser=True,
        application_name="",
        time_zone="Europe/Berlin",
        default_transaction_read_only=True,
    )
    told = {status.name: status.setting for status in statuses}
    assert set(REPORTED.values()) <= told.keys()
    assert all(name.lower() == key for key, name in REPORTED.items())
    assert told["is_superuser"] == told["default_transaction_read_only"] == "on"
