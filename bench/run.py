"""Shoal against PostgreSQL 15 on this machine, with pgbench: `make bench`.

One instance of Shoal (fsync, as installed) and one PostgreSQL (fsync, as installed) run at the same time on
loopback, hold the same table and take turns: A, B, A, B, so that a noisy machine disturbs both alike. What
counts is the ratio of the medians, and CPU µs per transaction, which is steadier still.

Here: the workloads, the runs, the table, bench/results.json.
Not here: starting the servers (instance.py, postgres.py).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import psycopg
from instance import Instance
from postgres import Postgres, Unavailable, ensure_installed
from process_stats import cpu_seconds
from rich.console import Console
from rich.table import Table

ROWS_PER_INSERT = 1000
RESULTS = Path(__file__).parent / "results.json"

ACCOUNTS = "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, filler TEXT NOT NULL)"
HISTORY = (
    "CREATE TABLE history (id BIGINT PRIMARY KEY, account BIGINT NOT NULL, delta BIGINT NOT NULL, note TEXT)"
)


class Server(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def port(self) -> int: ...
    def processes(self) -> list[int]: ...


@dataclass(frozen=True)
class Workload:
    name: str
    mode: str  # of pgbench: prepared, extended, simple
    script: str
    aims: dict[int, float] = field(default_factory=dict)  # clients → the ratio that we aim at


POINT_SELECT = "\\set id random(1, :rows)\nSELECT balance FROM accounts WHERE id = :id;\n"

WORKLOADS = (
    Workload("point SELECT, prepared", "prepared", POINT_SELECT, {8: 1.0, 16: 1.0}),
    Workload("point SELECT, simple protocol", "simple", POINT_SELECT, {8: 0.5, 16: 0.5}),
    Workload(
        "point UPDATE, prepared, fsync",
        "prepared",
        "\\set id random(1, :rows)\n\\set delta random(-5000, 5000)\n"
        "UPDATE accounts SET balance = balance + :delta WHERE id = :id;\n",
        {16: 0.8},
    ),
    Workload(
        "INSERT, prepared, fsync",
        "prepared",
        # A variable of pgbench lives as long as its client: so each client counts its own rows.
        "\\set n :n + 1\n\\set id :base + :client_id * 100000000 + :n\n\\set account random(1, :rows)\n"
        "INSERT INTO history (id, account, delta, note) VALUES (:id, :account, :n, 'a note');\n",
        {16: 0.8},
    ),
)


@dataclass(frozen=True)
class Run:
    tps: float
    cpu_us: float  # of the server, per transaction
    latency_ms: float


def main() -> None:
    arguments = parse_arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    try:
        ensure_installed()
        postgres = Postgres()
    except Unavailable as reason:
        console.print(f"skipped: {reason}")
        return
    load_average = os.getloadavg()[0]
    if load_average > 1:
        # PostgreSQL has a process per client, so a scheduler that is short of cores gives it more than us.
        console.print(f"this machine is busy (load average {load_average:.1f}): don't trust what follows")
    before = machine()
    shoal = Instance()
    try:
        shoal.start()
        postgres.start()
        servers: dict[str, Server] = {"shoal": shoal, "postgresql": postgres}
        loads = {name: load(server, arguments.rows, console) for name, server in servers.items()}
        results = [
            measure(workload, clients, servers, arguments, console)
            for workload in WORKLOADS
            if re.search(arguments.only, workload.name)
            for clients in arguments.clients
        ]
        console.print(as_table(results))
        report = {
            "date": arguments.date,
            "machine": before,
            "versions": {
                "postgresql": postgres.version,
                "python": platform.python_version(),
                **{package: version(package) for package in ("apsw", "uvloop", "msgspec")},
            },
            "rows": arguments.rows,
            "seconds_per_run": arguments.seconds,
            "rounds": arguments.rounds,
            "load_rows_per_second": {
                name: round(arguments.rows / seconds) for name, seconds in loads.items()
            },
            "results": results,
        }
    finally:
        shoal.stop()
        postgres.stop()
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"written to {arguments.output}")
    missed = [r for r in results if r["aim"] is not None and r["ratio"] < r["aim"]]
    for result in missed:
        console.print(f"below the aim: {result['workload']}, {result['clients']} clients")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Shoal against PostgreSQL 15 on this machine.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="accounts in the table")
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each server; the median counts")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="only the workloads with this in their names"
    )
    parser.add_argument("--date", default="", help="written into the results")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser.parse_args()


def load(server: Server, rows: int, console: Console) -> float:
    """Makes the tables and fills accounts with INSERTs of a thousand rows. Returns the seconds it took."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(ACCOUNTS)
        connection.execute(HISTORY)
        started = time.perf_counter()
        for first in range(1, rows + 1, ROWS_PER_INSERT):
            last = min(first + ROWS_PER_INSERT, rows + 1)
            values = ", ".join(f"({i}, 0, 'account {i:>32}')" for i in range(first, last))
            connection.execute(f"INSERT INTO accounts (id, balance, filler) VALUES {values}")  # type: ignore[arg-type]
        seconds = time.perf_counter() - started
        if isinstance(server, Postgres):
            # Left alone, autovacuum would do this in the middle of a run.
            connection.execute("VACUUM ANALYZE accounts")
            connection.execute("CHECKPOINT")
        found = connection.execute("SELECT count(*) FROM accounts").fetchone()
        assert found == (rows,), found
    console.print(
        f"{type(server).__name__.lower()}: {rows} rows loaded in {seconds:.1f} s ({rows / seconds:,.0f}/s)"
    )
    return seconds


_base = 0


def measure(
    workload: Workload,
    clients: int,
    servers: dict[str, Server],
    arguments: argparse.Namespace,
    console: Console,
) -> dict[str, object]:
    runs: dict[str, list[Run]] = {name: [] for name in servers}
    for turn in range(arguments.rounds):
        order = list(servers) if turn % 2 == 0 else list(reversed(servers))
        for name in order:
            runs[name].append(pgbench(workload, clients, servers[name], arguments))
    shoal, postgres = (statistics.median(run.tps for run in runs[name]) for name in ("shoal", "postgresql"))
    result: dict[str, object] = {
        "workload": workload.name,
        "clients": clients,
        "ratio": round(shoal / postgres, 3),
        "aim": workload.aims.get(clients),
    }
    for name, of_server in runs.items():
        result[name] = {
            "tps": round(statistics.median(run.tps for run in of_server)),
            "tps_of_runs": [round(run.tps) for run in of_server],
            "cpu_us_per_transaction": round(statistics.median(run.cpu_us for run in of_server), 1),
            "latency_ms": round(statistics.median(run.latency_ms for run in of_server), 3),
        }
    console.print(f"{workload.name}, {clients} clients: {shoal:,.0f} / {postgres:,.0f} = {result['ratio']}")
    return result


def pgbench(workload: Workload, clients: int, server: Server, arguments: argparse.Namespace) -> Run:
    global _base
    _base += 100_000_000_000  # no run repeats the keys of another
    user, _, _ = server.url.removeprefix("postgresql://").partition("@")
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(workload.script)
        script.flush()
        before = cpu_seconds(server.processes())
        done = subprocess.run(
            [
                *("pgbench", "-n", "-f", script.name, "-M", workload.mode, "-c", str(clients), "-j", "1"),
                *(
                    "-T",
                    str(arguments.seconds),
                    "-D",
                    f"rows={arguments.rows}",
                    "-D",
                    "n=0",
                    "-D",
                    f"base={_base}",
                ),
                *("-h", "127.0.0.1", "-p", str(server.port), "-U", user, server.url.rpartition("/")[2]),
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        used = cpu_seconds(server.processes()) - before
    if done.returncode != 0:
        raise SystemExit(f"pgbench failed on {server.url}: {done.stderr}\n{done.stdout}")
    transactions = _number(r"number of transactions actually processed: (\d+)", done.stdout)
    failed = _number(r"number of failed transactions: (\d+)", done.stdout)
    if not transactions or failed:
        raise SystemExit(
            f"pgbench: {failed:.0f} failed transactions on {server.url}: {done.stderr}\n{done.stdout}"
        )
    return Run(
        tps=_number(r"tps = ([\d.]+)", done.stdout),
        cpu_us=used / transactions * 1e6,
        latency_ms=_number(r"latency average = ([\d.]+) ms", done.stdout),
    )


def _number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    if match is None:
        raise SystemExit(f"pgbench said something unexpected:\n{text}")
    return float(match[1])


def as_table(results: list[dict[str, object]]) -> Table:
    table = Table(title="transactions per second, and CPU µs of the server per transaction")
    table.add_column("workload")
    for heading in ("clients", "Shoal", "PostgreSQL", "ratio", "aim", "Shoal µs", "PostgreSQL µs"):
        table.add_column(heading, justify="right")
    for result in results:
        shoal, postgres, ratio, aim = (result[key] for key in ("shoal", "postgresql", "ratio", "aim"))
        colour = "" if aim is None else "green" if ratio >= aim else "red"
        table.add_row(
            result["workload"],
            str(result["clients"]),
            f"{shoal['tps']:,}",
            f"{postgres['tps']:,}",
            f"[{colour}]{ratio:.2f}[/]" if colour else f"{ratio:.2f}",
            "" if aim is None else f"≥ {aim}",
            str(shoal["cpu_us_per_transaction"]),
            str(postgres["cpu_us_per_transaction"]),
        )
    return table


def machine() -> dict[str, object]:
    return {
        "cpu": next(_cpu_models(), platform.processor()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
        "fsync_us": round(_fsync_us()),
    }


def _cpu_models() -> Iterator[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            yield line.partition(":")[2].strip()


def _fsync_us() -> float:
    """The median of small appends with fdatasync: the floor of a durable commit here."""
    times = []
    with tempfile.TemporaryFile(dir=tempfile.gettempdir()) as file:
        for _ in range(200):
            started = time.perf_counter()
            file.write(b"x" * 512)
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    sys.exit(main())
