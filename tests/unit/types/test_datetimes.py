"""DATETIME: the calendar, what is read and written, time zones, templates."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import DatetimeOverflow, InvalidParameterValue, InvalidTextRepresentation
from shoal.types import datetimes, templates
from shoal.types.datetimes import UTC, from_calendar, from_text, to_iso, to_text, zone_of_name
from tests.unit.types.strategies import instants

MOSCOW = zone_of_name("Europe/Moscow")
BERLIN = zone_of_name("Europe/Berlin")
KOLKATA = zone_of_name("Asia/Kolkata")
ZONES = [UTC, MOSCOW, BERLIN, KOLKATA, zone_of_name("-03:30"), zone_of_name("America/New_York")]


@given(st.integers(-12_000, 12_000), st.integers(1, 12), st.integers(1, 28))
def test_the_calendar_reads_back(year: int, month: int, day: int) -> None:
    days = datetimes.days_of_date(year, month, day)
    assert datetimes.date_of_days(days) == (year, month, day)


def test_the_calendar_goes_on_without_a_gap() -> None:
    for start in (
        (-10_000, 12, 25),
        (-1, 12, 25),
        (0, 12, 25),
        (9999, 12, 25),
        (-401, 2, 25),
        (-400, 2, 25),
        (0, 2, 25),
    ):
        first = datetimes.days_of_date(*start)
        for days in range(first, first + 14):
            year, month, day = datetimes.date_of_days(days)
            assert datetimes.days_of_date(year, month, day) == days
    assert datetimes.days_of_date(0, 2, 29) + 1 == datetimes.days_of_date(0, 3, 1)
    assert datetimes.days_of_date(0, 12, 31) + 1 == datetimes.days_of_date(1, 1, 1)
    with pytest.raises(ValueError):
        datetimes.days_of_date(-1, 2, 29)


@given(st.datetimes())
def test_the_calendar_is_python_s_where_python_has_one(moment: datetime.datetime) -> None:
    stored = from_calendar(
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second, moment.microsecond
    )
    assert stored == (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)  # noqa: DTZ001
    assert to_text(stored).startswith(moment.strftime("-%m-%d %H:%M:%S").join([f"{moment.year:04}", ""]))


@given(instants, st.sampled_from(ZONES))
def test_texts_read_back(instant: int, zone: datetimes.Zone) -> None:
    assert from_text(to_text(instant, zone)) == instant
    assert from_text(to_iso(instant, zone)) == instant


@pytest.mark.parametrize(
    "text, utc",
    [
        ("2026-01-13 10:00:00+03", "2026-01-13 07:00:00+00"),
        ("2026-01-13 10:00:00+0330", "2026-01-13 06:30:00+00"),
        ("2026-01-13 10:00:00.5-03:30", "2026-01-13 13:30:00.5+00"),
        ("2026-01-13T10:00:00Z", "2026-01-13 10:00:00+00"),
        ("2026-01-13t10:00:00z", "2026-01-13 10:00:00+00"),
        ("2026-01-13 10:00:00 UTC", "2026-01-13 10:00:00+00"),
        ("2026-07-13 10:00:00 Europe/Berlin", "2026-07-13 08:00:00+00"),
        ("  2026-01-13  ", "2026-01-13 00:00:00+00"),
        ("2026-01-13 10:00Z", "2026-01-13 10:00:00+00"),
        ("2026-01-13T10Z", "2026-01-13 10:00:00+00"),
        ("2026-01-13T10:00:00,25Z", "2026-01-13 10:00:00.25+00"),
        ("20260113T100000.5Z", "2026-01-13 10:00:00.5+00"),
        ("20260113", "2026-01-13 00:00:00+00"),
        ("2026-013", "2026-01-13 00:00:00+00"),
        ("2026013T1000Z", "2026-01-13 10:00:00+00"),
        ("2026-W03-2T10:00Z", "2026-01-13 10:00:00+00"),
        ("2026W032", "2026-01-13 00:00:00+00"),
        ("2020-W53-5", "2021-01-01 00:00:00+00"),
        ("Tue, 13 Jan 2026 10:00:00 +0300", "2026-01-13 07:00:00+00"),
        ("13 Jan 2026 10:00 EST", "2026-01-13 15:00:00+00"),
        ("Tue, 13 Jan 2026 10:00:00 GMT", "2026-01-13 10:00:00+00"),
        ("-0044-03-15", "-0044-03-15 00:00:00+00"),
        ("0000-02-29", "0000-02-29 00:00:00+00"),
        ("-9999-01-01", "-9999-01-01 00:00:00+00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31 23:59:59.999999+00"),
        ("2026-01-13 10:00:00.1234565Z", "2026-01-13 10:00:00.123457+00"),
        ("2026-12-31T23:59:60Z", "2027-01-01 00:00:00+00"),
        ("1900-01-01 00:00:00+02:30:17", "1899-12-31 21:29:43+00"),
    ],
)
def test_what_is_read(text: str, utc: str) -> None:
    assert to_text(from_text(text)) == utc


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "infinity", "-infinity", "epoch", "today", "07-07-2023", "2023/07/07", "07.07.2023", "2026-13-01",
        "2026-00-10", "2026-02-29", "2026-1-1", "2026-01-13 24:00:00", "2026-01-13 10:60:00Z", "2026-01-13 10:00:61Z",
        "2026-01-13 10", "2026-01-13 10:00:00+16", "2026-01-13 10:00:00+3:", "2026-01-13 10:00:00 Nowhere/Land",
        "2026-366", "2026-000", "2025-W53-1", "2026-W00-1", "Mon, 13 Jan 2026 10:00:00 +0300", "13 Foo 2026 10:00 GMT",
        "2026-01-13T10:00:00ZZ", "10:00:00", "2026-01-13 10:0000", "2026-01-13x", "1768262400", "٢٠٢٦-01-13",
        "2026-01-13 10:00:00 ../../etc/passwd", "2026-01-13 BC",
    ],
)  # fmt: skip
def test_what_is_no_datetime(text: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type datetime"):
        from_text(text)


@pytest.mark.parametrize(
    "text", ["10000-01-01", "-10000-12-31", "9999-12-31 23:59:59.9999999Z", "999999-01-01"]
)
def test_what_is_out_of_range(text: str) -> None:
    with pytest.raises(DatetimeOverflow):
        from_text(text)


def test_a_missing_zone_is_the_session_s() -> None:
    assert to_text(from_text("2026-01-13 10:00", MOSCOW)) == "2026-01-13 07:00:00+00"
    assert to_text(from_text("2026-01-13", MOSCOW)) == "2026-01-13 00:00:00+00"  # a date is UTC's midnight
    assert to_text(from_text("2026-01-13 10:00Z", MOSCOW)) == "2026-01-13 10:00:00+00"


def test_a_clock_that_was_moved() -> None:
    # 02:30 never was, and counts as if the clock had not been moved; 02:30 was twice, and is the second.
    assert to_text(from_text("2026-03-29 02:30", BERLIN), BERLIN) == "2026-03-29 03:30:00+02"
    assert to_text(from_text("2026-10-25 02:30", BERLIN), BERLIN) == "2026-10-25 02:30:00+01"


@pytest.mark.parametrize(
    "zone, text, iso",
    [
        ("UTC", "2003-07-08 16:13:00+00", "2003-07-08T16:13:00Z"),
        ("+03", "2003-07-08 19:13:00+03", "2003-07-08T19:13:00+0300"),
        ("Asia/Kolkata", "2003-07-08 21:43:00+05:30", "2003-07-08T21:43:00+0530"),
        ("-03:30", "2003-07-08 12:43:00-03:30", "2003-07-08T12:43:00-0330"),
    ],
)
def test_what_is_written(zone: str, text: str, iso: str) -> None:
    instant = from_calendar(2003, 7, 8, 16, 13)
    assert to_text(instant, zone_of_name(zone)) == text
    assert to_iso(instant, zone_of_name(zone)) == iso


def test_years_that_python_lacks_have_zones_too() -> None:
    # As far in the future as datetime doesn't go, summer time goes on as it is now; long ago it was local.
    assert to_text(from_calendar(9999, 7, 1), BERLIN) == "9999-07-01 02:00:00+02"
    assert to_text(from_calendar(9999, 12, 31, 23), BERLIN) == "10000-01-01 00:00:00+01"
    assert to_text(from_calendar(-44, 3, 15), MOSCOW) == "-0044-03-15 02:30:17+02:30:17"


def test_zone_names() -> None:
    assert zone_of_name("utc") is UTC and zone_of_name("Z") is UTC and zone_of_name("+00:00") is UTC
    assert zone_of_name("europe/MOSCOW").name == "Europe/Moscow"
    assert zone_of_name("3").fixed_seconds == 3 * 3600 and zone_of_name("3").name == "+03"
    assert zone_of_name("-0330").name == "-03:30"
    for name in ("", "Mars/Olympus", "../UTC", "+17", "UTC+3", "localtime", "+03:99", "x" * 500):
        with pytest.raises(InvalidParameterValue, match="not recognized"):
            zone_of_name(name)


def test_midnight_is_the_zone_s() -> None:
    instant = from_text("2026-01-13 22:30:00Z")
    assert to_text(datetimes.midnight(instant)) == "2026-01-13 00:00:00+00"
    assert to_text(datetimes.midnight(instant, MOSCOW), MOSCOW) == "2026-01-14 00:00:00+03"


def test_precision() -> None:
    instant = from_text("2026-01-13 10:00:00.987654Z")
    assert to_text(datetimes.with_precision(instant, 0)) == "2026-01-13 10:00:01+00"
    assert to_text(datetimes.with_precision(instant, 3)) == "2026-01-13 10:00:00.988+00"
    assert datetimes.with_precision(instant, 6) == instant == datetimes.with_precision(instant, 9)


# Templates


def test_strftime() -> None:
    instant = from_text("2003-07-08 19:13:05.043+03")
    for template, shown in [
        ("%Y-%m-%dT%H:%M:%S%z", "2003-07-08T19:13:05+0300"),
        ("%F %T.%f", "2003-07-08 19:13:05.043000"),
        ("%3f|%1f|%9f", "043|0|043000000"),
        ("%a %A %b %B %h", "Tue Tuesday Jul July Jul"),
        ("%j %U %W %V %G %g %u %w", "189 27 27 28 2003 03 2 2"),
        ("%I:%M %p|%l|%k|%P", "07:13 PM| 7|19|pm"),
        ("%C%y %e %D %R", "2003  8 07/08/03 19:13"),
        ("%Z %s", "+03 1057680785"),
        ("100%% %n%t.", "100% \n\t."),
        ("Привет", "Привет"),
        ("", ""),
    ]:
        assert templates.strftime(instant, template, zone_of_name("+03")) == shown, template
    assert templates.strftime(instant, "%Z", MOSCOW) == "MSD"
    assert templates.strftime(from_calendar(-44, 3, 15), "%F %j") == "-0044-03-15 075"


@given(st.datetimes())
def test_strftime_is_c_s(moment: datetime.datetime) -> None:
    instant = (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)  # noqa: DTZ001
    for template in ("%m %d %H %I %M %S %f %p %j %y", "%a %A %b %B %U %W %V %u %w"):
        assert templates.strftime(instant, template) == moment.strftime(template)


def test_strptime() -> None:
    for text, template, date in [
        ("2003-07-08", "", "2003-07-08"),
        ("2003-07-08", "%F", "2003-07-08"),
        ("08/07/2003 19:13:05", "%d/%m/%Y %H:%M:%S", "2003-07-08"),
        ("8 July 2003", "%d %B %Y", "2003-07-08"),
        ("Tue  Jul 8 03", "%a %b %d %y", "2003-07-08"),
        ("2003-189", "%Y-%j", "2003-07-08"),
        ("2003-W28-2", "%G-W%V-%u", "2003-07-08"),
        ("99", "%y", "1999-01-01"),
        ("68", "%y", "2068-01-01"),
        ("-44-03-15", "%Y-%m-%d", "-0044-03-15"),
        ("1057680785", "%s", "2003-07-08"),
        ("2003-07-08T19:13:05+0300", "%Y-%m-%dT%H:%M:%S%z", "2003-07-08"),
        ("100%2003", "100%%%Y", "2003-01-01"),
    ]:
        assert to_text(templates.strptime(text, template))[:-12] == date, text


@pytest.mark.parametrize(
    "text, template",
    [
        ("2003-13-08", "%F"), ("2003-02-30", "%F"), ("x", "%F"), ("2003-07-08x", "%F"), ("2003 2004", "%Y %Y"),
        ("Mon Jul 8 2003", "%a %b %d %Y"), ("8 Foo 2003", "%d %b %Y"), ("25", "%H"), ("13", "%I"), ("2003-400", "%Y-%j"),
        ("2003-07-08 10:99", "%F %H:%M"), ("9" * 12, "%s"),
    ],
)  # fmt: skip
def test_strptime_refuses(text: str, template: str) -> None:
    with pytest.raises((InvalidTextRepresentation, DatetimeOverflow)):
        templates.strptime(text, template)


@pytest.mark.parametrize("directive", ["%n", "%d", "%b", "%Z", "%Y", " ", "%z"])
def test_no_template_is_slow(directive: str) -> None:
    for text in ("1" * 60, " " * 60, "a" * 60, "+03" * 20):
        with pytest.raises(InvalidTextRepresentation):
            templates.strptime(text + "!", directive * 40)


@pytest.mark.parametrize("template", ["%", "%Q", "%5Y", "%+"])
def test_unknown_directives(template: str) -> None:
    with pytest.raises(InvalidParameterValue, match="no directive"):
        templates.strptime("2003", template)
    with pytest.raises(InvalidParameterValue, match="no directive"):
        templates.strftime(0, template)


@given(instants)
def test_templates_read_back(instant: int) -> None:
    days = instant // datetimes.DAY_US
    assert templates.strptime(templates.strftime(instant, "%F"), "%F") == days * datetimes.DAY_US
