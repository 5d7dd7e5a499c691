"""A cluster on this machine: how long it is without a leader, schema changes, writes of global tables against etcd, idling.

Three instances by `shoal demo`, as a user would start them. etcd 3.4 is Debian's, three members on loopback, and takes
turns with Shoal in the same run; its load is made by bench/etcd (in Go, with etcd's own client), Shoal's by
pgbench: each operation is a compare-and-swap of one key, on the disks of a majority when it is answered.

Here: the measurements, bench/cluster.json.
Not here: one instance against PostgreSQL (run.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from process_stats import cpu_seconds
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
RESULTS = HERE / "cluster.json"
SOURCES = HERE.parent / "src"
KEYS = 1000

UPDATE = "\\set id random(1, :keys)\nUPDATE bench SET value = value + 1 WHERE id = :id;\n"


class ShoalCluster:
    """`shoal demo`, with its data in a directory that goes with it."""

    def __init__(self, instances: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-bench-"))
        self._count = instances
        self.instances: list[dict[str, Any]] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ShoalCluster:
        command = [
            *(sys.executable, "-P", "-m", "shoal", "demo", "--json", "--trust", "--base-port", "0"),
            *("--instances", str(self._count), "--dir", str(self.directory / "data")),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        with (self.directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                command,
                env={**environment, "PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(f"the demo doesn't start:\n{(self.directory / 'log').read_text()[-3000:]}")
        self.instances = json.loads(line)["instances"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        return [instance["pid"] for instance in self.instances]

    def leader(self, among: list[dict[str, Any]] | None = None) -> dict[str, Any] | None:
        """Whoever says that it leads, in the greatest term."""
        said = [(raft_of(instance), instance) for instance in among or self.instances]
        leading = [(raft["term"], instance) for raft, instance in said if raft and raft["state"] == "leader"]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def await_leader(
        self, among: list[dict[str, Any]] | None = None, seconds: float = 30.0
    ) -> dict[str, Any]:
        return until(lambda: self.leader(among), seconds, "a leader")


def raft_of(instance: dict[str, Any]) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://{instance['http']}/health", timeout=1) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    except OSError:
        return None
    raft: dict[str, Any] | None = json.loads(body)["raft"]
    return raft


def until(check: Callable[[], Any], seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:g} s: {what}")
        time.sleep(0.002)


# --- without a leader ----------------------------------------------------------------------------


def without_leader(stop: signal.Signals, rounds: int, console: Console) -> list[float]:
    """Seconds from the signal to the leader's process until another one leads, each time in a new cluster."""
    found = []
    for _ in range(rounds):
        with ShoalCluster(3) as cluster:
            leader = cluster.await_leader()
            until(lambda cluster=cluster: all_vote(cluster), 30.0, "three voters")
            others = [instance for instance in cluster.instances if instance is not leader]
            started = time.monotonic()
            os.kill(leader["pid"], stop)
            cluster.await_leader(others)
            found.append(time.monotonic() - started)
            if stop == signal.SIGSTOP:
                os.kill(leader["pid"], signal.SIGCONT)
        console.print(f"  {stop.name}: {found[-1] * 1000:.0f} ms", highlight=False)
    return found


def all_vote(cluster: ShoalCluster) -> bool:
    rafts = [raft_of(instance) for instance in cluster.instances]
    return all(raft is not None and len(raft["voters"]) == 3 for raft in rafts)


# --- schema changes ------------------------------------------------------------------------------


def schema_changes(pairs: int) -> list[dict[str, Any]]:
    """CREATE TABLE and DROP TABLE, one after the other by one client, each answered when all three instances have it."""
    rows = []
    with ShoalCluster(3) as cluster:
        leader = cluster.await_leader()
        until(lambda: all_vote(cluster), 30.0, "three voters")
        follower = next(instance for instance in cluster.instances if instance is not leader)
        for where, instance in (("leader", leader), ("follower", follower)):
            for kind, distribution in (("sharded", ""), ("global", " DISTRIBUTED GLOBALLY")):
                host, _, port = instance["pg"].rpartition(":")
                with psycopg.connect(
                    host=host, port=port, user="admin", dbname="shoal", autocommit=True
                ) as connection:
                    creates, drops = [], []
                    for number in range(pairs + 5):
                        began = time.perf_counter()
                        connection.execute(
                            f"CREATE TABLE t{number} (id INT PRIMARY KEY, v TEXT){distribution}".encode()
                        )
                        created = time.perf_counter()
                        connection.execute(f"DROP TABLE t{number}".encode())
                        creates.append(created - began)
                        drops.append(time.perf_counter() - created)
                del creates[:5], drops[:5]  # nothing was warm
                both = [create + drop for create, drop in zip(creates, drops, strict=True)]
                rows.append(
                    {
                        "where": where,
                        "kind": kind,
                        **{
                            f"{name}_{point}_ms": percentile(values, share) * 1000
                            for name, values in (("create", creates), ("drop", drops), ("both", both))
                            for point, share in (("p50", 0.5), ("p99", 0.99))
                        },
                    }
                )
    return rows


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(round(share * len(ordered)), len(ordered) - 1)]


# --- compare-and-swap ----------------------------------------------------------------------------


def shoal_writes(cluster: ShoalCluster, clients: int, seconds: float) -> tuple[float, float]:
    """Operations per second at the leader, and CPU µs per operation of all three."""
    leader = cluster.await_leader()
    script = cluster.directory / "update.sql"
    script.write_text(UPDATE)
    before = cpu_seconds(cluster.pids)
    answer = subprocess.run(
        [
            *("pgbench", "-n", "-h", "127.0.0.1", "-p", leader["pg"].rpartition(":")[2], "-U", "admin"),
            *("-c", str(clients), "-j", "1", "-T", str(round(seconds)), "-M", "prepared"),
            *("-D", f"keys={KEYS}", "-f", str(script), "shoal"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"tps = ([\d.]+)", answer)
    assert found is not None, answer
    operations = float(found[1])
    return operations, (cpu_seconds(cluster.pids) - before) / (operations * seconds) * 1e6


def prepare(cluster: ShoalCluster) -> None:
    host, _, port = cluster.await_leader()["pg"].rpartition(":")
    with psycopg.connect(host=host, port=port, user="admin", dbname="shoal", autocommit=True) as connection:
        connection.execute("CREATE TABLE bench (id INT PRIMARY KEY, value INT NOT NULL) DISTRIBUTED GLOBALLY")
        rows = ", ".join(f"({i}, 0)" for i in range(1, KEYS + 1))
        connection.execute(f"INSERT INTO bench VALUES {rows}")  # type: ignore[arg-type]


@contextlib.contextmanager
def etcd_cluster() -> Iterator[tuple[list[str], list[int]]]:
    """Client endpoints and pids of three members with their default settings."""
    directory = Path(tempfile.mkdtemp(prefix="etcd-bench-"))
    ports = free_ports(6)
    peers = [f"http://127.0.0.1:{port}" for port in ports[:3]]
    endpoints = [f"127.0.0.1:{port}" for port in ports[3:]]
    processes = []
    try:
        for n in range(3):
            command = [
                *("etcd", "--name", f"m{n}", "--data-dir", str(directory / f"m{n}"), "--logger", "zap"),
                *("--log-level", "error", "--initial-cluster-state", "new"),
                *("--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n]),
                *("--listen-client-urls", f"http://{endpoints[n]}"),
                *("--advertise-client-urls", f"http://{endpoints[n]}"),
                *("--initial-cluster", ",".join(f"m{i}={peer}" for i, peer in enumerate(peers))),
            ]
            log = (directory / f"m{n}.log").open("w")
            processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
            )
        until(lambda: all(etcd_answers(endpoint) for endpoint in endpoints), 30.0, "etcd")
        yield endpoints, [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)
        shutil.rmtree(directory, ignore_errors=True)


def etcd_answers(endpoint: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
            return json.load(answer)["health"] == "true"
    except (OSError, ValueError):
        return False


def etcd_writes(
    program: Path, endpoints: list[str], pids: list[int], clients: int, seconds: float
) -> tuple[float, float]:
    before = cpu_seconds(pids)
    command = [
        *(str(program), "-endpoints", ",".join(endpoints), "-clients", str(clients)),
        *("-seconds", str(seconds), "-keys", str(KEYS)),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    operations = float(answer[0])
    return operations, (cpu_seconds(pids) - before) / (operations * seconds) * 1e6


def etcd_load_program(console: Console) -> Path | None:
    """Built here; None, and said why, where that can't be."""
    if shutil.which("etcd") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        console.print("installing etcd-server")
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "etcd-server"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
            capture_output=True,
        )
    for needed in ("etcd", "go"):
        if shutil.which(needed) is None:
            console.print(f"skipped the comparison with etcd: there is no {needed} on this machine")
            return None
    program = Path(tempfile.gettempdir()) / f"shoal-bench-etcd-{os.getuid()}"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=HERE / "etcd",
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        console.print(
            f"skipped the comparison with etcd: its load program can't be built: {built.stderr[-500:]}"
        )
        return None
    return program


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def compare_writes(arguments: argparse.Namespace, console: Console) -> list[dict[str, float]]:
    program = etcd_load_program(console)
    results = []
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ShoalCluster(3))
        prepare(cluster)
        peer = stack.enter_context(etcd_cluster()) if program is not None else None
        for clients in (1, 16):
            ours: list[tuple[float, float]] = []
            theirs: list[tuple[float, float]] = []
            for _ in range(arguments.rounds):
                ours.append(shoal_writes(cluster, clients, arguments.seconds))
                if program is not None and peer is not None:
                    theirs.append(etcd_writes(program, *peer, clients, arguments.seconds))
            row = {"clients": clients, "shoal_ops": _median(ours, 0), "shoal_cpu_us": _median(ours, 1)}
            if theirs:
                row |= {"etcd_ops": _median(theirs, 0), "etcd_cpu_us": _median(theirs, 1)}
                row["ratio"] = row["shoal_ops"] / row["etcd_ops"]
            results.append(row)
    return results


def _median(values: list[tuple[float, float]], place: int) -> float:
    return statistics.median(value[place] for value in values)


# --- idling --------------------------------------------------------------------------------------


def idle(instances: int, seconds: float) -> float:
    """Percent of one core, of all instances together."""
    with ShoalCluster(instances) as cluster:
        cluster.await_leader()
        time.sleep(3)  # what starting has left to do
        before = cpu_seconds(cluster.pids)
        time.sleep(seconds)
        return (cpu_seconds(cluster.pids) - before) / seconds * 100


# --- all of it -----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="kill, freeze, ddl, writes or idle")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--date", default="")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    if os.getloadavg()[0] > 1:
        console.print(
            f"this machine is busy (load average {os.getloadavg()[0]:.1f}): don't trust what follows"
        )
    report: dict[str, Any] = {"date": arguments.date}
    for name, stop, rounds, aim in (
        ("kill", signal.SIGKILL, arguments.kills, 1.0),
        ("freeze", signal.SIGSTOP, arguments.freezes, 3.0),
    ):
        if arguments.only in ("", name):
            found = without_leader(stop, rounds, console)
            median, worst = statistics.median(found), max(found)
            report[name] = {"seconds": found, "median": median, "worst": worst}
            console.print(
                f"leader {stop.name} → another leads: median {median:.2f} s, worst of {rounds} {worst:.2f} s "
                f"(aim: median < {aim:g} s)"
            )
    if arguments.only in ("", "ddl"):
        report["ddl"] = changes = schema_changes(arguments.pairs)
        table = Table(
            title="CREATE TABLE + DROP TABLE, 3 instances, fsync, milliseconds (aim: p50 of both < 50)",
            title_justify="left",
        )
        for heading in ("client at", "table", "CREATE p50", "p99", "DROP p50", "p99", "both p50", "p99"):
            table.add_column(heading, justify="right")
        for row in changes:
            figures = (
                row[f"{name}_{point}_ms"] for name in ("create", "drop", "both") for point in ("p50", "p99")
            )
            table.add_row(row["where"], row["kind"], *(f"{figure:.1f}" for figure in figures))
        console.print(table)
    if arguments.only in ("", "writes"):
        report["writes"] = rows = compare_writes(arguments, console)
        table = Table(title="compare-and-swap, 3 members, fsync", title_justify="left")
        for heading in ("clients", "Shoal ops/s", "CPU µs/op", "etcd ops/s", "CPU µs/op", "ratio", "aim"):
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(
                f"{row['clients']:.0f}",
                f"{row['shoal_ops']:.0f}",
                f"{row['shoal_cpu_us']:.0f}",
                f"{row['etcd_ops']:.0f}" if "etcd_ops" in row else "–",
                f"{row['etcd_cpu_us']:.0f}" if "etcd_ops" in row else "–",
                f"{row['ratio']:.2f}" if "ratio" in row else "–",
                "≥ 0.5" if row["clients"] == 16 else "",
            )
        console.print(table)
    if arguments.only in ("", "idle"):
        report["idle_percent"] = percent = idle(7, 20.0)
        console.print(f"7 instances idle: {percent:.1f} % of one core in all (aim: < 3 %)")
    RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
