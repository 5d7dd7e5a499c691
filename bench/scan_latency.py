"""What a large SELECT does to everybody else: the latency of point reads beside it, and the memory it takes.

One connection reads a whole table as fast as it comes, another does point reads by key; the aim is that none
of these takes more than 50 ms. The server, the reader and the prober share this machine's cores, so the same
point reads beside a process that only burns CPU are shown too: what the machine itself adds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import socket
import statistics
import struct
import sys
import time
from multiprocessing.sharedctypes import Synchronized

import psycopg
from instance import Instance
from process_stats import memory_mib
from rich.console import Console
from rich.table import Table

AIM_MS = 50.0
ROWS_PER_INSERT = 1000
TABLE = "CREATE TABLE big (id BIGINT PRIMARY KEY, number BIGINT NOT NULL, name TEXT NOT NULL)"


def main() -> None:
    parser = argparse.ArgumentParser(description="Point reads beside a scan.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    console = Console(highlight=False, stderr=arguments.json)
    instance = Instance()
    try:
        instance.start()
        load(instance, arguments.rows, console)
        report = measure(instance, arguments.rows, console)
    finally:
        instance.stop()
    if arguments.json:
        print(json.dumps(report))
    if report["beside the scan"]["max_ms"] > AIM_MS:
        console.print(f"above the aim: {AIM_MS:g} ms")
        sys.exit(1)


def load(instance: Instance, rows: int, console: Console) -> None:
    started = time.perf_counter()
    with psycopg.connect(instance.url, autocommit=True) as connection:
        connection.execute(TABLE)
        for first in range(1, rows + 1, ROWS_PER_INSERT):
            last = min(first + ROWS_PER_INSERT, rows + 1)
            values = ", ".join(f"({i}, {i * 7}, 'name {i}')" for i in range(first, last))
            connection.execute(f"INSERT INTO big (id, number, name) VALUES {values}")  # type: ignore[arg-type]
    console.print(f"{rows} rows loaded in {time.perf_counter() - started:.1f} s")


def measure(instance: Instance, rows: int, console: Console) -> dict[str, dict[str, float]]:
    report: dict[str, dict[str, float]] = {}
    memory_before = memory_mib(instance.pid, "VmRSS")
    with psycopg.connect(instance.url, autocommit=True, prepare_threshold=0) as connection:
        warm_up = time.perf_counter() + 0.5
        report["alone"] = probe(connection, rows, lambda: time.perf_counter() < warm_up + 2.0)
        stop = multiprocessing.Value("b", 0)
        burner = multiprocessing.Process(target=burn, args=(stop,), daemon=True)
        burner.start()
        end = time.perf_counter() + 2.0
        report["beside a process that burns CPU"] = probe(connection, rows, lambda: time.perf_counter() < end)
        stop.value = 1
        burner.join()
        seen = multiprocessing.Value("q", 0)
        scanner = multiprocessing.Process(target=scan, args=(instance.port, seen), daemon=True)
        scanner.start()
        started = time.perf_counter()
        report["beside the scan"] = probe(connection, rows, scanner.is_alive)
        seconds = time.perf_counter() - started
        scanner.join()
        assert seen.value == rows, f"the scan saw {seen.value} rows of {rows}"
    table = Table(
        title=f"point reads, beside a SELECT of {rows:,} rows ({seconds:.1f} s, {rows / seconds:,.0f} rows/s)"
    )
    table.add_column("")
    for heading in ("reads", "p50 ms", "p99 ms", "max ms"):
        table.add_column(heading, justify="right")
    for name, found in report.items():
        table.add_row(
            name, f"{found['reads']:,}", *(f"{found[key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms"))
        )
    console.print(table)
    report["memory"] = {"before_mib": memory_before, "peak_mib": memory_mib(instance.pid, "VmHWM")}
    console.print(
        f"memory of the server: {memory_before:.0f} MiB before, {report['memory']['peak_mib']:.0f} MiB at most"
    )
    return report


def probe(connection: psycopg.Connection, rows: int, going_on: object) -> dict[str, float]:
    chance = random.Random(1)
    times: list[float] = []
    cursor = connection.cursor()
    while going_on():  # type: ignore[operator]
        for _ in range(20):
            key = chance.randint(1, rows)
            started = time.perf_counter()
            cursor.execute("SELECT number FROM big WHERE id = %s", (key,))
            found = cursor.fetchone()
            times.append(time.perf_counter() - started)
            assert found == (key * 7,)
    times.sort()
    return {
        "reads": len(times),
        "p50_ms": statistics.median(times) * 1000,
        "p99_ms": times[int(len(times) * 0.99)] * 1000,
        "max_ms": times[-1] * 1000,
    }


def burn(stop: Synchronized) -> None:  # type: ignore[type-arg]
    while not stop.value:
        sum(range(10_000))


def scan(port: int, seen: Synchronized) -> None:  # type: ignore[type-arg]
    """Reads the whole table and looks at nothing but the end: a client that costs as little as possible."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        startup = struct.pack("!i", 196608) + b"user\0admin\0database\0shoal\0\0"
        connection.sendall(struct.pack("!i", len(startup) + 4) + startup)
        read_until_ready(connection)
        query = b"SELECT id, number, name FROM big\0"
        connection.sendall(b"Q" + struct.pack("!i", len(query) + 4) + query)
        tail = read_until_ready(connection)
    tag = tail[tail.rindex(b"SELECT ") :].split(b"\0")[0]
    seen.value = int(tag.split()[-1])


def read_until_ready(connection: socket.socket) -> bytes:
    buffer = bytearray(1 << 18)
    tail = b""
    while not tail.endswith(b"Z\0\0\0\5I"):
        count = connection.recv_into(buffer)
        assert count, "the server closed the connection"
        tail = (tail + bytes(buffer[max(0, count - 64) : count]))[-64:]
    return tail


if __name__ == "__main__":
    main()
