"""One power cut in the middle of concurrent writes, and what must be there afterwards.

Here: the works, the run up to the cut, and the promises that are checked on what the disk kept.
Not here: how many of them are run (test_power_cuts.py, tests/slow/test_power_cuts.py).
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ShoalError, UniqueViolation
from shoal.storage.checksum import check_file
from shoal.storage.directory import InstanceDirectory
from shoal.storage.log import Lsn, Operation, entries
from shoal.storage.sqlite import Settings, SqliteFiles, close, open_catalog, open_reader
from shoal.storage.writer import Outcome, Writer, WriteSession
from tests.unit.storage.faulty_vfs import Disk, faulty_vfs_with_checksums

CREATE = (
    "CREATE TABLE IF NOT EXISTS t1_1"
    " (bucket_id INTEGER NOT NULL, c1 INTEGER PRIMARY KEY, c2 INTEGER NOT NULL, c3 TEXT NOT NULL) STRICT",
    "CREATE UNIQUE INDEX IF NOT EXISTS t1_1_i1 ON t1_1 (c2, c1)",
    "CREATE TABLE IF NOT EXISTS t2_1"
    " (bucket_id INTEGER NOT NULL, c1 TEXT NOT NULL, c2 INTEGER NOT NULL, PRIMARY KEY (c1)) STRICT, WITHOUT ROWID",
)
LARGEST = 9  # rows of a work


@dataclass(frozen=True, slots=True)
class Create:
    one_statement: bool = False

    def run(self, session: WriteSession) -> None:
        for sql in CREATE:
            session.execute(sql)


@dataclass(frozen=True, slots=True)
class Insert:
    """`rows` rows in one statement. With `fails`, the last of them is a duplicate."""

    work: int
    rows: int
    fails: bool = False
    one_statement: bool = True

    def run(self, session: WriteSession) -> int:
        keys = [self.work * 100 + n for n in range(self.rows)]
        if self.fails:
            keys.append(keys[0])
        values = ", ".join(
            f"({key % 3000}, {key}, {self.work}, printf('%.*c', {key % 700}, 'x'))" for key in keys
        )
        return session.execute(f"INSERT INTO t1_1 VALUES {values}")


@dataclass(frozen=True, slots=True)
class Pair:
    """The same keys in both tables, a statement per row."""

    work: int
    rows: int
    fails: bool = False
    one_statement: bool = False

    def run(self, session: WriteSession) -> None:
        for n in range(self.rows):
            key = self.work * 100 + n
            session.execute("INSERT INTO t1_1 VALUES (?, ?, ?, 'pair')", (key % 3000, key, self.work))
            session.execute("INSERT INTO t2_1 VALUES (?, ?, ?)", (key % 3000, f"key {key}", self.work))
        if self.fails:
            session.execute("INSERT INTO t2_1 VALUES (1, ?, 1)", (f"key {self.work * 100}",))


@dataclass(frozen=True, slots=True)
class Delete:
    """All rows of an earlier work; if they were updated meanwhile, too."""

    work: int
    one_statement: bool = False

    def run(self, session: WriteSession) -> int:
        session.execute("DELETE FROM t2_1 WHERE c2 = ?", (self.work,))
        return session.execute("DELETE FROM t1_1 WHERE c2 = ?", (self.work,))


class History:
    """What was asked, and what was answered."""

    def __init__(self) -> None:
        self.inserts: dict[int, Insert | Pair] = {}
        self.deletes: set[int] = set()
        self.acknowledged: set[int] = set()
        self.acknowledged_deletes: set[int] = set()
        self.errors: list[BaseException] = []
        self._answered = threading.Semaphore(0)
        self._asked = 0

    def submit(self, writer: Writer, work: Insert | Pair | Delete) -> None:
        if isinstance(work, Delete):
            self.deletes.add(work.work)
        else:
            self.inserts[work.work] = work
        self._asked += 1
        writer.submit(work, self._done)

    def _done(self, outcome: Outcome[object]) -> None:
        work = outcome.work
        if outcome.error is not None:
            self.errors.append(outcome.error)
        elif isinstance(work, Delete):
            self.acknowledged_deletes.add(work.work)
        else:
            assert isinstance(work, Insert | Pair)
            assert not work.fails, "a duplicate was accepted"
            self.acknowledged.add(work.work)
        self._answered.release()

    def wait(self) -> None:
        while self._asked:
            assert self._answered.acquire(timeout=30), "an answer is missing"
            self._asked -= 1


def write_some(writer: Writer, history: History, rng: random.Random, works: int, *, start: int = 1) -> None:
    """Works in bursts, so that there are several groups, some of them begun while another is committed."""
    number = start
    while number < start + works and writer.fault is None:
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            rows, fails = rng.randint(1, LARGEST), rng.random() < 0.15
            if kind < 0.15 and history.acknowledged:
                victim = rng.choice(sorted(history.acknowledged))
                if victim not in history.deletes:
                    history.submit(writer, Delete(victim))
            elif kind < 0.6:
                history.submit(writer, Insert(number, rows, fails))
            else:
                history.submit(writer, Pair(number, rows, fails))
            number += 1
        if rng.random() < 0.7:
            history.wait()
    history.wait()


def check(files: SqliteFiles, history: History) -> None:
    """The promises: nothing acknowledged is lost, nothing is half done, the log agrees with the tables."""
    reader = open_reader(files, Settings())
    try:
        assert reader.execute("PRAGMA main.integrity_check").get == "ok"
        tables = {name for (name,) in reader.execute("SELECT name FROM main.sqlite_schema").fetchall()}
        if "t1_1" not in tables:
            assert not history.acknowledged, "the tables are gone"
            return
        first: dict[int, set[int]] = defaultdict(set)
        second: dict[int, set[int]] = defaultdict(set)
        for key, work in reader.execute("SELECT c1, c2 FROM t1_1").fetchall():
            first[work].add(key)
        for key, work in reader.execute("SELECT c1, c2 FROM t2_1").fetchall():
            second[work].add(int(key.removeprefix("key ")))
        for number, work in history.inserts.items():
            whole = {number * 100 + n for n in range(work.rows)}
            assert first[number] in (set(), whole), f"work {number} is half there"
            assert second[number] == (first[number] if isinstance(work, Pair) else set()), f"half of {number}"
            if work.fails:
                assert not first[number], f"work {number} failed, and is there"
            if number in history.acknowledged and number not in history.deletes:
                assert first[number], f"work {number} was acknowledged, and is gone"
            if number in history.acknowledged_deletes:
                assert not first[number], f"work {number} was deleted, and is there"
        replayed: dict[tuple[int, object], tuple[object, ...]] = {}
        log = entries(reader, Lsn(0), limit=1_000_000)
        assert [entry.lsn for entry in log] == list(range(1, len(log) + 1))
        for entry in log:
            for change in entry.changes():
                if change.old is not None:
                    assert replayed.pop((change.table_id, change.old[1])) == change.old
                if change.new is not None:
                    assert (change.table_id, change.new[1]) not in replayed
                    replayed[change.table_id, change.new[1]] = change.new
                assert change.operation == (
                    Operation.UPDATE
                    if change.old is not None and change.new is not None
                    else Operation.DELETE
                    if change.new is None
                    else Operation.INSERT
                )
        stored = {
            (table, row[1]): row
            for table in (1, 2)
            for row in reader.execute(f"SELECT * FROM t{table}_1").fetchall()
        }
        assert replayed == stored, "the log and the tables disagree"
    finally:
        close(reader)


def run_power_cut(seed: int, directory: Path) -> int:
    """One machine's life. Returns how many works had been acknowledged when the power failed."""
    rng = random.Random(seed)
    before, after = directory / f"{seed}-before", directory / f"{seed}-after"
    before.mkdir()
    disk = Disk(before, rng)
    history = History()
    # Some fail during the very first start.
    disk.cut_at = rng.randrange(1, 80) if rng.random() < 0.15 else rng.randrange(80, 800)
    if rng.random() < 0.2:
        disk.write_errors = 0.01
    settings = Settings(vfs=faulty_vfs_with_checksums(), checkpoint_pages=rng.choice((4, 30, 200, 10_000)))
    files = SqliteFiles(before)
    catalog = writer = None
    try:
        catalog = open_catalog(files, settings)
        writer = Writer(files, settings, post=lambda call: call(), on_fault=lambda _fault: None)
        writer.start()
        writer.run(Create())
        write_some(writer, history, rng, 150)
    except ShoalError:
        assert disk.dead or disk.write_errors, "an error without a reason"
    disk.dead = True  # wherever it got to; closing must not be what saves the rows
    if writer is not None:
        writer.stop()
    if catalog is not None:
        close(catalog)
    assert all(isinstance(error, UniqueViolation) or disk.dead for error in history.errors)

    # The power is back.
    with InstanceDirectory.claim(after) as instance:
        disk.survivors(after)
        disk.close()
        instance.prepare_files(Settings())
        catalog = open_catalog(instance.files, Settings())
        writer = Writer(instance.files, Settings(), post=lambda call: call(), on_fault=lambda _fault: None)
        try:
            check(instance.files, history)
            writer.start()
            writer.run(Create())
            assert writer.run(Insert(999_999, 3)) == 3
        finally:
            writer.stop()
            close(catalog)
        check_file(instance.files.data)
    return len(history.acknowledged)
