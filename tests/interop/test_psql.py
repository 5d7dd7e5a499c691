"""psql: commands, scripts, what it shows of errors, the admin socket."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Instance

MakeTable = Callable[[str], str]

PSQL = shutil.which("psql")
pytestmark = pytest.mark.skipif(
    PSQL is None, reason="psql is not installed: apt-get install postgresql-client"
)


def _version() -> int:
    assert PSQL is not None
    said = subprocess.run([PSQL, "--version"], capture_output=True, text=True).stdout
    return int(said.split()[2].split(".")[0])


def psql(
    where: Instance | str, *arguments: str, input: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs psql on an instance, or where a connection string says."""
    assert PSQL is not None
    url = where if isinstance(where, str) else where.url()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(
        # -X: whatever the user's ~/.psqlrc says; -A -t: rows alone.
        [PSQL, "-X", "-A", "-t", "-d", url, *arguments],
        input=input or "",
        capture_output=True,
        text=True,
        timeout=120,
        env={**inherited, "LC_ALL": "C.UTF-8", "PGCONNECT_TIMEOUT": "30", **environment},
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_command(instance: Instance) -> None:
    assert rows(psql(instance, "-c", "SELECT 1 + 1, 'жираф', NULL, TRUE")) == ["2|жираф||t"]
    assert rows(psql(instance, "-c", "SELECT 1; SELECT 2", "-c", "SELECT 3")) == ["1", "2", "3"]
    assert rows(psql(instance, "-c", "")) == []


def test_a_table_as_people_see_it(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY, price DECIMAL(10, 2), at DATETIME, tags TEXT[], u UUID, d DOUBLE")
    done = psql(
        instance,
        "-P", "tuples_only=off", "-P", "format=aligned", "-P", "null=(null)", "-q",
        "-c", f"""INSERT INTO {name} VALUES
            (1, 9.5, '2024-07-01 12:30:00+02', ARRAY['a', 'b c', NULL], '6F2BA4C4-0A4C-4D79-86AE-43D4F84B70E1', 1e0),
            (2, NULL, NULL, NULL, NULL, NULL)""",
        "-c", f"SELECT * FROM {name} ORDER BY id",
    )  # fmt: skip
    assert rows(done) == [
        " id | price  |           at           |      tags      |                  u                   |   d    ",
        "----+--------+------------------------+----------------+--------------------------------------+--------",
        '  1 |   9.50 | 2024-07-01 10:30:00+00 | {a,"b c",NULL} | 6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1 |      1',
        "  2 | (null) | (null)                 | (null)         | (null)                               | (null)",
        "(2 rows)",
        "",
    ]


def test_a_script(instance: Instance, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        """-- A comment with an 'apostrophe
/* another;
   /* in another */ */
CREATE TABLE script (id INT PRIMARY KEY, t TEXT);
INSERT INTO script VALUES (1, 'semi;colon'), (2, '-- no comment'); -- behind
UPDATE script SET t = t || '!' WHERE id = 2;
BEGIN;
DELETE FROM script WHERE id = 3;
COMMIT;
SELECT id,
       t
  FROM script
 ORDER BY id;
\\echo the end
DROP TABLE script;
""",
        encoding="utf-8",
    )
    done = psql(instance, "-v", "ON_ERROR_STOP=1", "-f", str(script))
    assert rows(done) == [
        *("CREATE TABLE", "INSERT 0 2", "UPDATE 1", "BEGIN", "DELETE 0", "COMMIT"),
        *("1|semi;colon", "2|-- no comment!", "the end", "DROP TABLE"),
    ]


def test_a_script_stops_at_an_error_when_told_so(instance: Instance) -> None:
    script = "SELECT 1;\nSELECT oops;\nSELECT 2;\n"
    done = psql(instance, "-v", "ON_ERROR_STOP=1", "-f", "-", input=script)
    assert (done.returncode, done.stdout) == (3, "1\n")
    assert 'ERROR:  column with name "oops" not found' in done.stderr
    done = psql(instance, "-f", "-", input=script)
    assert (done.returncode, done.stdout) == (0, "1\n2\n")


def test_the_caret_points_at_the_mistake(instance: Instance) -> None:
    done = psql(instance, "-c", "SELECT 'жираф',\n       oops FROM digits")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    caret = next(line for line in lines if line.strip() == "^")
    pointed = lines[lines.index(caret) - 1]
    assert pointed.startswith("LINE 2: ")
    assert pointed[caret.index("^") :].startswith("oops FROM")

    done = psql(instance, "-c", "SELECT * FORM digits")
    lines = done.stderr.splitlines()
    assert lines[1] == "LINE 1: SELECT * FORM digits"
    assert lines[2].index("^") == lines[1].index("FORM")


def test_errors_in_full(instance: Instance) -> None:
    done = psql(instance, "-v", "VERBOSITY=verbose", "-c", "SELECT 1 / 0")
    assert done.stderr.startswith("ERROR:  22012: division by zero\n")
    assert rows(psql(instance, "-c", "\\set QUIET 1", "-c", "\\errverbose", "-c", "SELECT 1")) == [
        "There is no previous error.",
        "1",
    ]


def test_copy_is_refused_and_the_session_goes_on(instance: Instance, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("100\n101\n")
    for command in (f"\\copy digits FROM '{data}'", "\\copy digits TO STDOUT"):
        done = psql(instance, "-v", "VERBOSITY=verbose", "-f", "-", input=f"{command}\nSELECT 'goes on';\n")
        assert done.stdout == "goes on\n"
        assert "ERROR:  0A000: " in done.stderr
        assert "COPY" in done.stderr


def test_gdesc_tells_columns_without_running(instance: Instance, table: MakeTable) -> None:
    # \gdesc prepares, describes, and then asks the server for the types' names.
    name = table("id INT PRIMARY KEY, price DECIMAL(10, 2), tags TEXT[], at DATETIME")
    done = psql(instance, "-f", "-", input=f"SELECT * FROM {name}\n\\gdesc\nDELETE FROM {name}\n\\gdesc\n")
    assert rows(done) == [
        *("id|bigint", "price|numeric(10,2)", "tags|text[]", "at|timestamp with time zone"),
        "The command has no result, or the result has no columns.",
    ]


def test_gexec_gset_and_variables(instance: Instance) -> None:
    script = """
SELECT 'SELECT ' || n FROM digits WHERE n < 3 ORDER BY n \\gexec
SELECT 7 AS seven, 'x' AS letter \\gset
SELECT :seven, :'letter';
SELECT n FROM digits ORDER BY n LIMIT 2 \\gx
"""
    assert rows(psql(instance, "-f", "-", input=script)) == ["0", "1", "2", "7|x", "n|0", "", "n|1"]


@pytest.mark.skipif(PSQL is not None and _version() < 16, reason="\\bind came with psql 16")
def test_bind_uses_the_extended_protocol(instance: Instance) -> None:
    assert rows(psql(instance, "-f", "-", input="SELECT $1 + 1, $2 \\bind 5 text \\g\n")) == ["6|text"]


def test_fetch_count(instance: Instance) -> None:
    """psql 17 reads in parts by itself; before that it needs a cursor, and DECLARE is refused by its name."""
    done = psql(
        instance, "-v", "FETCH_COUNT=3", "-f", "-", input="SELECT n FROM digits ORDER BY n;\n\\echo on\n"
    )
    if _version() < 17:
        assert done.stdout == "on\n"
        assert "DECLARE is not supported yet" in done.stderr
    else:
        assert done.stdout.splitlines() == [*(str(n) for n in range(10)), "on"]


def test_blocks_and_the_prompt(instance: Instance, table: MakeTable) -> None:
    name = table("id INT PRIMARY KEY")
    done = psql(
        instance,
        "-f",
        "-",
        input=f"BEGIN;\nINSERT INTO {name} VALUES (1);\nROLLBACK;\nSELECT id FROM {name};\n",
    )
    assert done.stdout.splitlines() == ["BEGIN", "INSERT 0 1", "1"]
    assert "ROLLBACK cannot undo: the writes of this transaction block stand" in done.stderr
    # One transaction around all: COMMIT at the end if nothing failed.
    assert rows(
        psql(instance, "-1", "-c", f"INSERT INTO {name} VALUES (2)", "-c", f"SELECT max(id) FROM {name}")
    ) == [
        "INSERT 0 1",
        "2",
    ]


def test_settings_from_the_environment(instance: Instance) -> None:
    said = psql(instance, "-c", "SHOW timezone", PGOPTIONS="-c timezone=Asia/Tokyo")
    assert rows(said) == ["Asia/Tokyo"]
    assert rows(psql(instance, "-c", "SHOW timezone", PGTZ="Europe/Berlin")) == ["Europe/Berlin"]
    refused = psql(instance, "-c", "SELECT 1", PGOPTIONS="-c no_such_setting=1")
    assert refused.returncode == 2
    assert 'unrecognized configuration parameter "no_such_setting"' in refused.stderr
    assert "FATAL" in refused.stderr


def test_encryption_as_asked(instance: Instance) -> None:
    url = instance.url()
    assert rows(psql(f"{url}?sslmode=prefer&gssencmode=prefer", "-c", "SELECT 1")) == ["1"]
    refused = psql(f"{url}?sslmode=require", "-c", "SELECT 1")
    assert refused.returncode == 2
    assert "SSL" in refused.stderr


def test_the_admin_socket(instance: Instance) -> None:
    assert PSQL is not None
    done = subprocess.run(
        [
            PSQL,
            "-X",
            "-A",
            "-t",
            "-h",
            str(instance.socket_directory),
            "-p",
            str(instance.port),
            "-U",
            "admin",
        ]
        + ["-c", "SELECT 'by the socket'"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("by the socket\n", "", 0)


def test_listing_says_what_is_missing(instance: Instance) -> None:
    """The \\d family asks pg_catalog, which is not there yet."""
    done = psql(instance, "-v", "VERBOSITY=verbose", "-f", "-", input="\\dt\nSELECT 'goes on';\n")
    assert done.stdout == "goes on\n"
    assert "ERROR:  " in done.stderr
    assert "HINT:  pg_catalog isn't there yet. SELECT name FROM _pico_table" in done.stderr


def test_a_large_answer(instance: Instance) -> None:
    query = (
        "SELECT a.n, b.n, c.n, d.n, 'some text to make it larger' FROM digits a, digits b, digits c, digits d"
    )
    assert len(rows(psql(instance, "-c", query))) == 10_000
