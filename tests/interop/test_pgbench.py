"""pgbench: many clients at once, each protocol, with and without blocks. What it did is counted in the rows."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Instance

MakeTable = Callable[[str], str]

PGBENCH = shutil.which("pgbench")
pytestmark = pytest.mark.skipif(
    PGBENCH is None, reason="pgbench is not installed: apt-get install postgresql-contrib"
)

CLIENTS = 8
TRANSACTIONS = 50

protocols = pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])


def pgbench(instance: Instance, protocol: str, script: Path, *arguments: str) -> str:
    """Runs a script CLIENTS × TRANSACTIONS times; none may fail."""
    assert PGBENCH is not None
    done = subprocess.run(
        [
            PGBENCH,
            "-n",
            "-M",
            protocol,
            "-c",
            str(CLIENTS),
            "-j",
            "2",
            "-t",
            str(TRANSACTIONS),
            "-f",
            str(script),
        ]
        + [*arguments, instance.url()],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr, done.stderr
    wanted = CLIENTS * TRANSACTIONS
    assert f"number of transactions actually processed: {wanted}/{wanted}" in done.stdout
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    assert failed is not None
    assert failed[1] == "0"
    return done.stdout


@protocols
def test_a_bank(instance: Instance, table: MakeTable, tmp_path: Path, protocol: str) -> None:
    """The shape of TPC-B, in a block: what was added is all there, once."""
    accounts = table("aid INT PRIMARY KEY, abalance INT, filler VARCHAR(84)")
    history = table("client INT, n INT, aid INT, delta INT, mtime DATETIME, PRIMARY KEY (client, n)")
    instance.execute(
        f"INSERT INTO {accounts} SELECT a.n * 10 + b.n + 1, 0, '' FROM digits a CROSS JOIN digits b"
    )
    script = tmp_path / "bank.sql"
    script.write_text(f"""
\\set n :n + 1
\\set aid random(1, 100)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE {accounts} SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM {accounts} WHERE aid = :aid;
INSERT INTO {history} (client, n, aid, delta, mtime)
    VALUES (:client_id, :n, :aid, :delta, CURRENT_TIMESTAMP);
END;
""")
    pgbench(instance, protocol, script, "-D", "n=0")
    with instance.connect() as conn:
        count, total = conn.execute(f"SELECT count(*), sum(delta) FROM {history}".encode()).fetchone() or (
            0,
            0,
        )
        assert count == CLIENTS * TRANSACTIONS
        assert conn.execute(f"SELECT sum(abalance) FROM {accounts}".encode()).fetchone() == (total,)


@protocols
def test_one_row_that_all_want(instance: Instance, table: MakeTable, tmp_path: Path, protocol: str) -> None:
    """Each UPDATE reads what the one before wrote: no addition is lost."""
    counter = table("id INT PRIMARY KEY, n INT")
    instance.execute(f"INSERT INTO {counter} VALUES (1, 0)")
    script = tmp_path / "counter.sql"
    script.write_text(f"UPDATE {counter} SET n = n + 1 WHERE id = 1;\n")
    pgbench(instance, protocol, script)
    with instance.connect() as conn:
        assert conn.execute(f"SELECT n FROM {counter}".encode()).fetchone() == (CLIENTS * TRANSACTIONS,)


@protocols
def test_reads(instance: Instance, table: MakeTable, tmp_path: Path, protocol: str) -> None:
    name = table("id INT PRIMARY KEY, t TEXT")
    instance.execute(
        f"INSERT INTO {name} SELECT a.n * 10 + b.n, 'some text' FROM digits a CROSS JOIN digits b"
    )
    script = tmp_path / "reads.sql"
    # \gset fails where there is not exactly one row.
    script.write_text(f"""
\\set id random(0, 99)
SELECT id AS found, t FROM {name} WHERE id = :id \\gset
SELECT count(*) AS count FROM {name} WHERE id >= :found - 5 AND id < :found + 5 \\gset
\\set unequal 1 / (case when :found = :id then 1 else 0 end)
\\set few 1 / (case when :count >= 5 then 1 else 0 end)
""")
    pgbench(instance, protocol, script)


def test_connecting_each_time(instance: Instance, tmp_path: Path) -> None:
    script = tmp_path / "connect.sql"
    script.write_text("SELECT n FROM digits WHERE n = 7;\n")
    pgbench(instance, "simple", script, "-C")


def test_a_pipeline(instance: Instance, table: MakeTable, tmp_path: Path) -> None:
    name = table("client INT PRIMARY KEY, n INT")
    instance.execute(f"INSERT INTO {name} SELECT n, 0 FROM digits")
    script = tmp_path / "pipeline.sql"
    script.write_text(f"""
\\startpipeline
UPDATE {name} SET n = n + 1 WHERE client = :client_id;
SELECT n FROM {name} WHERE client = :client_id;
SELECT count(*) FROM {name};
UPDATE {name} SET n = n + 1 WHERE client = :client_id;
\\endpipeline
""")
    pgbench(instance, "prepared", script)
    with instance.connect() as conn:
        rows = conn.execute(f"SELECT n FROM {name} WHERE client < {CLIENTS}".encode()).fetchall()
        assert rows == [(2 * TRANSACTIONS,)] * CLIENTS


def test_a_failure_is_seen(instance: Instance, tmp_path: Path) -> None:
    """That the checks above would notice: a script that errs is reported by pgbench."""
    assert PGBENCH is not None
    script = tmp_path / "bad.sql"
    script.write_text("SELECT 1 / 0;\n")
    done = subprocess.run(
        [PGBENCH, "-n", "-t", "1", "-f", str(script), instance.url()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "division by zero" in done.stderr
