"""How many single-row writes per second the writer makes durable, without a wire: `python bench/micro_writer.py`.

Each client is a callback on an event loop that submits its next statement when the one before is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from shoal.storage.sqlite import Settings, SqliteFiles, WalMode, open_catalog
from shoal.storage.writer import Outcome, Writer, WriteSession

ROWS = 200_000
NEW_IDS = iter(range(ROWS, 10**12))
CREATE = "CREATE TABLE t1_1 (bucket_id INTEGER NOT NULL, c1 INTEGER PRIMARY KEY, c2 INTEGER, c3 TEXT NOT NULL) STRICT"
FILL = "INSERT INTO t1_1 VALUES (?, ?, 0, ?)"
UPDATE = "UPDATE t1_1 SET c2 = c2 + ?2 WHERE c1 = ?1"
INSERT = "INSERT INTO t1_1 VALUES (?2 % 3000, ?1, ?2, 'a short text')"


@dataclass(frozen=True, slots=True)
class One:
    sql: str
    bindings: tuple[int, ...]
    one_statement: bool = True

    def run(self, session: WriteSession) -> int:
        return session.execute(self.sql, self.bindings)


@dataclass(frozen=True, slots=True)
class Create:
    one_statement: bool = False

    def run(self, session: WriteSession) -> int:
        session.execute(CREATE)
        return session.executemany(FILL, [(id % 3000, id, "x" * 80) for id in range(ROWS)])


class Client:
    def __init__(self, writer: Writer, next_work: Callable[[], One], latencies: list[float]) -> None:
        self.writer = writer
        self.next_work = next_work
        self.latencies = latencies
        self.stopped = False

    def send(self) -> None:
        self.sent = time.perf_counter()
        self.writer.submit(self.next_work(), self.done)

    def done(self, outcome: Outcome[int]) -> None:
        assert outcome.result() == 1
        self.latencies.append(time.perf_counter() - self.sent)
        if not self.stopped:
            self.send()


async def measure(writer: Writer, what: str, clients: int, seconds: float) -> None:
    rng = random.Random(7)
    works: dict[str, Callable[[], One]] = {
        "update": lambda: One(UPDATE, (rng.randrange(ROWS), 1)),
        "insert": lambda: One(INSERT, (next(NEW_IDS), 1)),
    }
    latencies: list[float] = []
    running = [Client(writer, works[what], latencies) for _ in range(clients)]
    before, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for client in running:
        client.send()
    await asyncio.sleep(seconds)
    took, used = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_SELF)
    count = len(latencies)
    for client in running:
        client.stopped = True
    await asyncio.sleep(0.1)
    latencies.sort()
    cpu_us = (used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime) / count * 1e6
    print(
        f"{what} {clients:3} clients: {count / took:9,.0f}/s   p50 {latencies[count // 2] * 1e3:6.2f} ms"
        f"   p99 {latencies[count * 99 // 100] * 1e3:6.2f} ms   max {latencies[-1] * 1e3:6.1f} ms"
        f"   CPU {cpu_us:5.1f} µs/row",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--wal-mode", choices=[mode.value for mode in WalMode], default="fsync")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        files, settings = SqliteFiles(Path(directory)), Settings(wal_mode=WalMode(arguments.wal_mode))
        catalog = open_catalog(files, settings)
        writer = Writer(files, settings, post=loop.call_soon_threadsafe, on_fault=print)
        writer.start()
        await asyncio.to_thread(writer.run, Create())
        for what in ("update", "insert"):
            for clients in (1, 8, 16, 64):
                await measure(writer, what, clients, arguments.seconds)
        await asyncio.to_thread(writer.stop)
        catalog.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
