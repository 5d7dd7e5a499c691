"""Rows as a table, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json

import pytest

from shoal.cli.results import Column, Format, write_rows, write_status

COLUMNS = [
    Column("id", 20),
    Column("name", 25),
    Column("amount", 1700),
    Column("ratio", 701),
    Column("ok", 16),
    Column("data", 114),
]
ROWS = [
    ["1", 'a "quoted", text\nof two lines', "12345678901234567890.50", "1.5e-07", "t", '{"a": [1]}'],
    ["-2", "", "0", "Infinity", "f", "null"],
    [None] * 6,
]


def written(capsys: pytest.CaptureFixture[str], format: Format, rows: list[list[str | None]] = ROWS) -> str:
    write_rows(COLUMNS, rows, format)
    return capsys.readouterr().out


def test_json_keeps_what_json_can_say(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(capsys, Format.JSON)
    assert "12345678901234567890.50" in text  # every digit, not a float
    first, second, third = json.loads(text)
    assert first["id"] == 1
    assert first["name"] == ROWS[0][1]
    assert (first["ok"], second["ok"]) == (True, False)
    assert first["data"] == {"a": [1]}
    assert second["ratio"] == "Infinity"  # no JSON number
    assert set(third.values()) == {None}
    assert written(capsys, Format.JSON, []) == "[]\n"


def test_csv_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(capsys, Format.CSV)
    header, *rows = csv.reader(io.StringIO(text))
    assert header == [column.name for column in COLUMNS]
    assert rows == [[value or "" for value in row] for row in ROWS]
    assert '-2,"",0' in text  # an empty text is not NULL
    assert text.endswith("\n,,,,,\n")


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = written(capsys, Format.TABLE)
    assert text.splitlines()[1].split("|")[1].strip() == "id"
    assert "(3 rows)" in text
    assert "NULL" in text
    assert "[bold]x" in written(capsys, Format.TABLE, [["1", "[bold]x", "1", "1", "t", "{}"]])  # no markup
    assert "(1 row)" in written(capsys, Format.TABLE, [["1"] * 6])


def test_command_tags(capsys: pytest.CaptureFixture[str]) -> None:
    for format in Format:
        write_status("INSERT 0 1", format)
    assert capsys.readouterr().out == 'INSERT 0 1\n{"status": "INSERT 0 1"}\n'
