"""Reading, without a wire: `python bench/micro_readers.py`.

Point reads on the loop's thread alone; a scan of 5 million rows alone; and both together: how long a point
read, or anything else on the loop, has to wait while others read through the whole table.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from shoal.storage.readers import Batch, Encode, PointReader, ReaderPool, Row
from shoal.storage.sqlite import Settings, SqliteFiles, open_catalog, open_writer

CREATE = "CREATE TABLE t1_1 (bucket_id INTEGER NOT NULL, c1 INTEGER PRIMARY KEY, c2 INTEGER, c3 TEXT NOT NULL) STRICT"
POINT = "SELECT c1, c2, c3 FROM t1_1 WHERE c1 = ?"
SCAN = "SELECT c1, c2, c3 FROM t1_1"
BATCH_BYTES = 256 << 10


def c_encode(rows: list[Row]) -> bytes:
    return msgspec.msgpack.encode(rows)


def python_encode(rows: list[Row]) -> bytes:
    """About as much work as rows of the wire are."""
    parts = []
    for row in rows:
        for value in row:
            text = str(value).encode()
            parts.append(len(text).to_bytes(4, "big"))
            parts.append(text)
    return b"".join(parts)


class Scan:
    def __init__(self, pool: ReaderPool, encode: Encode, loop: asyncio.AbstractEventLoop) -> None:
        self.cursor = pool.open(SCAN)
        self.encode = encode
        self.rows = 0
        self.largest = 0
        self.finished = loop.create_future()

    def next(self) -> None:
        self.cursor.fetch(BATCH_BYTES, 0, self.encode, self.got)

    def got(self, batch: Batch) -> None:
        if batch.error is not None:
            raise batch.error
        self.rows += batch.row_count
        self.largest = max(self.largest, len(batch.data))
        if batch.finished:
            self.finished.set_result(None)
        else:
            self.next()


def points(point: PointReader, rows: int, rng: random.Random, seconds: float) -> list[float]:
    latencies, clock, end = [], time.perf_counter, time.perf_counter() + seconds
    while (before := clock()) < end:
        point.rows(POINT, (rng.randrange(rows),))
        latencies.append(clock() - before)
    return latencies


def say(what: str, latencies: list[float], seconds: float) -> None:
    latencies.sort()
    count = len(latencies)
    print(
        f"{what:40} {count / seconds:9,.0f}/s   p50 {latencies[count // 2] * 1e6:6.1f} µs"
        f"   p99 {latencies[count * 99 // 100] * 1e6:7.1f} µs   max {latencies[-1] * 1e3:6.2f} ms",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--switch-interval", type=float, default=sys.getswitchinterval())
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    sys.setswitchinterval(arguments.switch_interval)
    loop, rng, rows = asyncio.get_running_loop(), random.Random(7), arguments.rows
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        files, settings = SqliteFiles(Path(directory)), Settings()
        catalog, writer = open_catalog(files, settings), open_writer(files, settings)
        writer.execute(CREATE)
        for start in range(0, rows, 100_000):
            with writer:
                writer.executemany(
                    "INSERT INTO t1_1 VALUES (?, ?, ?, ?)",
                    [
                        (id % 3000, id, id * 7, f"some text {id}")
                        for id in range(start, min(start + 100_000, rows))
                    ],
                )
        writer.wal_checkpoint("main")
        print(f"{rows:,} rows, {files.data.stat().st_size >> 20} MiB")
        point = PointReader(files, settings)
        pool = ReaderPool(files, settings, post=loop.call_soon_threadsafe)
        points(point, rows, rng, 1)
        say("point reads alone", points(point, rows, rng, 2), 2)

        for name, encode in (("C", c_encode), ("Python", python_encode)):
            scan = Scan(pool, encode, loop)
            before = time.perf_counter()
            scan.next()
            await scan.finished
            took = time.perf_counter() - before
            print(
                f"scan alone, encoder in {name}: {scan.rows / took:,.0f} rows/s, batches <= {scan.largest >> 10} KiB"
            )

            scans = [Scan(pool, encode, loop) for _ in range(2)]
            for scan in scans:
                scan.next()
            latencies, before = [], time.perf_counter()
            # The loop serves: a point read per round, and whatever the scans bring.
            while not all(scan.finished.done() for scan in scans):
                asked = time.perf_counter()
                await asyncio.sleep(0)
                point.rows(POINT, (rng.randrange(rows),))
                latencies.append(time.perf_counter() - asked)
            took = time.perf_counter() - before
            say(f"point reads beside 2 scans, {name}", latencies, took)
            print(f"   the scans meanwhile: {sum(scan.rows for scan in scans) / took:,.0f} rows/s")

            scan = Scan(pool, encode, loop)
            scan.next()
            latencies = []
            while not scan.finished.done():
                asked = time.perf_counter()
                await asyncio.sleep(0.001)
                point.rows(POINT, (rng.randrange(rows),))
                latencies.append(time.perf_counter() - asked - 0.001)
            say(f"lateness of an idle loop beside a scan, {name}", latencies, len(latencies) / 1000)
        point.close()
        pool.stop()
        writer.close()
        catalog.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
