"""Clients that write global tables through every instance of a cluster, while its instances are killed, frozen, stopped and cut
off; and whether what they were told can be true.

Here: Load, the clients and what they remember; Nemesis, who breaks things; check(), the verdict.
Not here: the search for an order (tests/linearizable.py), links (tests/links.py).

Registers and sets are linearizable by their key. What a client is told without a write of its own, by a plain SELECT, may be
old, but not older than what the same instance has said before, or has acknowledged.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

import psycopg

from tests.cluster import Cluster, Instance
from tests.linearizable import Operation, explanation, register, set_of_numbers

REGISTERS: Final = 20_000
OPERATIONS_PER_KEY: Final = 160
ABREAST: Final = 2  # keys of each kind that are in use at a time
STATEMENT_SECONDS: Final = 2.0

SCHEMA: Final = (
    "CREATE TABLE registers (k INT PRIMARY KEY, v INT NOT NULL, version INT NOT NULL) DISTRIBUTED GLOBALLY",
    "CREATE TABLE members (k INT, element INT, touched INT, PRIMARY KEY (k, element)) DISTRIBUTED GLOBALLY",
    "CREATE TABLE lists (k INT, id INT, place INT NOT NULL, PRIMARY KEY (k, id)) DISTRIBUTED GLOBALLY",
    "CREATE TABLE tokens (id INT PRIMARY KEY, token INT NOT NULL) DISTRIBUTED GLOBALLY",
    "CREATE UNIQUE INDEX tokens_token ON tokens (token)",
    # Short enough for members that were away to need snapshots.
    "ALTER SYSTEM SET raft_wal_count_max = 300",
)

# Nothing has happened, whoever says one of these.
_NOTHING_HAPPENED: Final = ("40001", "57014", "57P03")
# It may have: a lost connection has no SQLSTATE.
_MAY_HAVE: Final = ("40003", "57P01", None)

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


class Refused(Exception):
    """Nothing has happened."""


@dataclass
class Keys:
    """Which keys are in use: each for so many operations that its history can be searched."""

    first: int = 0
    used: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, chance: random.Random) -> int:
        with self.lock:
            place = chance.randrange(ABREAST)
            key = self.first + place
            while self.used[key] >= OPERATIONS_PER_KEY:
                key += ABREAST
            self.used[key] += 1
            return key


@dataclass(frozen=True, slots=True)
class Appended:
    """An element that was to come behind all others of a list, and its place there; None: unknown."""

    id: int
    place: int | None
    called: float
    answered: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A plain read of a register, or an acknowledged write, through one instance."""

    key: int
    version: int
    value: int
    called: float
    answered: float
    plain: bool


class Load:
    """Each client is a thread with a connection to one instance, and connects anew when that is gone."""

    def __init__(self, cluster: Cluster, clients_per_instance: int, seed: int) -> None:
        self.registers: dict[int, list[Operation]] = {}
        self.sets: dict[int, list[Operation]] = {}
        self.seen: dict[Instance, list[Seen]] = {}
        self.lists: dict[int, list[Appended]] = {}
        self.tokens: dict[int, list[tuple[int, bool | None]]] = {}  # token → (id, was it taken by that one?)
        self.acknowledged = 0
        self.answers: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self._cluster = cluster
        self._register_keys, self._set_keys, self._list_keys = Keys(), Keys(), Keys()
        # What others were told last: through another instance it may not be there yet.
        self._last_value: dict[int, int] = {}
        self._last_element: dict[int, int] = {}
        self._values = count(1)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(instance, random.Random(f"{seed} {at} {number}")))
            for at, instance in enumerate(cluster.instances)
            for number in range(clients_per_instance)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        if self.failures:
            raise self.failures[0]

    # --- a client

    def _run(self, instance: Instance, chance: random.Random) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with instance.connect(connect_timeout=2) as connection:
                        milliseconds = int(STATEMENT_SECONDS * 1000 * self._cluster.timing_scale)
                        connection.execute(f"SET statement_timeout = {milliseconds}".encode())
                        connection.prepare_threshold = chance.choice((None, 3))
                        while not self._stop.is_set():
                            if not self._one(instance, connection, chance):
                                break
                except psycopg.OperationalError as error:
                    if error.sqlstate not in _MAY_HAVE and error.sqlstate not in _NOTHING_HAPPENED:
                        raise
                    time.sleep(0.05)
        except BaseException as error:
            self.failures.append(error)
            self._stop.set()

    def _one(self, instance: Instance, connection: Connection, chance: random.Random) -> bool:
        """One operation, and what became of it. Is the connection still good?"""
        self._operations(chance)(instance, connection, chance)
        return not connection.closed

    def _operations(self, chance: random.Random) -> Callable[[Instance, Connection, random.Random], None]:
        kinds = (self._on_register, self._on_set, self._on_list, self._on_token, self._plain_read)
        return chance.choices(kinds, (5, 4, 2, 1, 2))[0]

    def _ask(self, connection: Connection, sql: str, *given: int) -> list[tuple[Any, ...]] | str | None:
        """The rows; or "duplicate"; or None if nobody knows. Raises Refused."""
        try:
            cursor = connection.execute(sql.encode(), given)
            found = cursor.fetchall() if cursor.description is not None else [(cursor.rowcount,)]
        except psycopg.errors.UniqueViolation:
            found = "duplicate"  # type: ignore[assignment]
        except psycopg.Error as error:
            with self._lock:
                self.answers[error.sqlstate or "lost"] += 1
            if error.sqlstate in _NOTHING_HAPPENED:
                raise Refused from None
            if error.sqlstate not in _MAY_HAVE:
                error.add_note(sql)
                raise
            return None
        with self._lock:
            self.acknowledged += 1
        return found

    def _note(
        self,
        histories: dict[int, list[Operation]],
        key: int,
        what: str,
        given: tuple[int, ...],
        answer: object,
        called: float,
    ) -> None:
        answered = math.inf if answer is None else time.monotonic()
        with self._lock:
            histories.setdefault(key, []).append(Operation(what, given, answer, called, answered))

    def _saw(self, instance: Instance, seen: Seen) -> None:
        with self._lock:
            self.seen.setdefault(instance, []).append(seen)

    def _on_register(self, instance: Instance, connection: Connection, chance: random.Random) -> None:
        key, value = self._register_keys.take(chance), next(self._values)
        assert key < REGISTERS
        what = chance.choices(("write", "swap", "read"), (3, 4, 3))[0]
        before = self._last_value.get(key, 0)
        called = time.monotonic()
        with suppress(Refused):
            if what == "write":
                sql = "UPDATE registers SET v = %s, version = version + 1 WHERE k = %s RETURNING version, v"
                rows = self._ask(connection, sql, value, key)
                answer: object = None if rows is None else True
                given: tuple[int, ...] = (value,)
            elif what == "swap":
                sql = "UPDATE registers SET v = %s, version = version + 1 WHERE k = %s AND v = %s RETURNING version, v"
                rows = self._ask(connection, sql, value, key, before)
                answer = None if rows is None else bool(rows)
                given = (before, value)
            else:
                # A read that goes through the log, as a write does.
                rows = self._ask(
                    connection, "UPDATE registers SET v = v WHERE k = %s RETURNING version, v", key
                )
                answer = None if rows is None else rows[0][1]
                given = ()
            self._note(self.registers, key, what, given, answer, called)
            if rows:
                ((version, now),) = rows
                self._last_value[key] = now  # type: ignore[assignment]
                self._saw(instance, Seen(key, version, now, called, time.monotonic(), plain=False))  # type: ignore[arg-type]

    def _on_set(self, instance: Instance, connection: Connection, chance: random.Random) -> None:
        key = self._set_keys.take(chance)
        what = chance.choices(("add", "remove", "read"), (5, 2, 3))[0]
        element = next(self._values) if chance.random() < 0.5 else chance.randint(-6, -1)
        if what == "remove" and chance.random() < 0.7:
            element = self._last_element.get(key, element)
        called = time.monotonic()
        with suppress(Refused):
            if what == "add":
                rows = self._ask(connection, "INSERT INTO members VALUES (%s, %s, 0)", key, element)
                answer: object = None if rows is None else rows != "duplicate"
            elif what == "remove":
                sql = "DELETE FROM members WHERE k = %s AND element = %s RETURNING element"
                rows = self._ask(connection, sql, key, element)
                answer = None if rows is None else bool(rows)
            else:
                # It rests on all of the set, on what isn't in it, too.
                sql = "UPDATE members SET touched = touched + 1 WHERE k = %s RETURNING element"
                rows = self._ask(connection, sql, key)
                answer = None if rows is None else frozenset(row[0] for row in rows)  # type: ignore[misc]
            given = () if what == "read" else (element,)
            if what == "add" and answer:
                self._last_element[key] = element
            self._note(self.sets, key, what, given, answer, called)

    def _on_list(self, instance: Instance, connection: Connection, chance: random.Random) -> None:
        """The row that is written rests on all others, and has none of their keys."""
        key, own = self._list_keys.take(chance), next(self._values)
        called = time.monotonic()
        sql = (
            "INSERT INTO lists SELECT %s::INT, %s::INT, count(*) FROM lists WHERE k = %s::INT RETURNING place"
        )
        with suppress(Refused):
            rows = self._ask(connection, sql, key, own, key)
            place = None if rows is None else rows[0][0]
            answered = math.inf if rows is None else time.monotonic()
            with self._lock:
                self.lists.setdefault(key, []).append(Appended(own, place, called, answered))  # type: ignore[arg-type]

    def _on_token(self, instance: Instance, connection: Connection, chance: random.Random) -> None:
        """Whoever comes first gets it: others under other keys are refused, through whatever instance."""
        token, own = int(time.monotonic() * 5), next(self._values)
        with suppress(Refused):
            rows = self._ask(connection, "INSERT INTO tokens VALUES (%s, %s)", own, token)
            taken = None if rows is None else rows != "duplicate"
            with self._lock:
                self.tokens.setdefault(token, []).append((own, taken))

    def _plain_read(self, instance: Instance, connection: Connection, chance: random.Random) -> None:
        key = self._register_keys.first + chance.randrange(ABREAST)
        with self._lock:
            known = list(self.registers)
        key = known[-1] if known else key
        called = time.monotonic()
        with suppress(Refused):
            rows = self._ask(connection, "SELECT version, v FROM registers WHERE k = %s", key)
            if rows is not None:
                ((version, value),) = rows
                self._saw(instance, Seen(key, version, value, called, time.monotonic(), plain=True))  # type: ignore[arg-type]


# --- who breaks things ---------------------------------------------------------------------------


class Nemesis:
    """One fault after another, and what heals it; sometimes two at a time. Never more than a minority is dead for long."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.done: list[tuple[str, float]] = []  # and how many seconds, until all was whole again
        self._cluster = cluster
        self._chance = random.Random(seed)
        assert cluster.links is not None
        self._links = cluster.links

    def rage(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """For so long, or until that is true."""
        deadline = time.monotonic() + seconds
        faults = list(_FAULTS)
        self._chance.shuffle(faults)
        at = 0
        self._heal()
        while time.monotonic() < deadline and not until():
            fault = faults[at % len(faults)]
            at += 1
            begun = time.monotonic()
            getattr(self, fault)()
            self._heal()
            self._restart()
            self.done.append((fault, round(time.monotonic() - begun, 1)))
            self._rest(0.0, 0.8)
        self._links.heal()

    def _heal(self) -> None:
        """No network is as quick as loopback. Where nobody is ever behind the others, old decisions are never met."""
        self._links.heal()
        self._delay(0.015)

    def _delay(self, most: float) -> None:
        for one in self._cluster.instances:
            for other in self._others(one):
                self._links.delay(self._name(one), other, self._chance.uniform(0.0, most))

    def _rest(self, least: float, most: float) -> None:
        time.sleep(self._chance.uniform(least, most) * self._cluster.timing_scale)

    def _restart(self) -> None:
        gone = [instance for instance in self._cluster.instances if not instance.is_running]
        if gone:
            for instance in gone:
                instance.kill()  # forget the old process
            self._cluster.start(*gone)

    def _one(self) -> Instance:
        """Whoever leads more often than others."""
        leader = self._cluster.leader() if self._chance.random() < 0.5 else None
        return leader or self._chance.choice(self._cluster.running)

    def _name(self, instance: Instance) -> str:
        return instance.running.name

    def _others(self, instance: Instance) -> Iterator[str]:
        yield from (self._name(other) for other in self._cluster.instances if other is not instance)

    # --- the faults

    def kill_one(self) -> None:
        self._one().kill()
        self._rest(0.0, 1.5)

    def kill_all(self) -> None:
        for instance in self._cluster.running:
            instance.kill()

    def stop_one(self) -> None:
        assert self._one().stop() == 0
        self._rest(0.0, 0.5)

    def freeze_one(self) -> None:
        with self._one().frozen():
            self._rest(0.2, 3.0)

    def freeze_most(self) -> None:
        some = self._chance.sample(self._cluster.running, len(self._cluster.instances) // 2 + 1)
        for instance in some:
            instance.freeze()
        self._rest(0.2, 2.0)
        for instance in some:
            instance.thaw()

    def isolate_one(self) -> None:
        self._links.isolate(self._name(self._one()))
        self._rest(0.5, 3.5)

    def cut_a_pair(self) -> None:
        """The two still see the others: who hears whom isn't the same for all."""
        one, other = self._chance.sample(self._cluster.instances, 2)
        self._links.cut(self._name(one), self._name(other))
        self._rest(0.5, 3.5)

    def silence_one(self) -> None:
        """It hears everybody, and nobody hears it."""
        one = self._one()
        for other in self._others(one):
            self._links.hold(self._name(one), other)
        self._rest(0.5, 3.5)

    def deafen_one(self) -> None:
        """Everybody hears it, and it hears nobody."""
        one = self._one()
        for other in self._others(one):
            self._links.hold(other, self._name(one))
        self._rest(0.5, 3.5)

    def cut_and_kill(self) -> None:
        """Who is left has to do with who was cut off."""
        one, other = self._chance.sample(self._cluster.instances, 2)
        self._links.isolate(self._name(one))
        self._rest(0.2, 2.0)
        other.kill()
        self._rest(0.0, 0.5)
        self._heal()
        self._rest(0.5, 1.5)

    def delay_all(self) -> None:
        self._delay(0.15)
        self._rest(0.5, 2.0)

    def trickle_one(self) -> None:
        one = self._one()
        for other in self._others(one):
            self._links.trickle(self._name(one), other, 20_000)
        self._rest(0.5, 2.0)

    def reset_all(self) -> None:
        for _ in range(6):
            for one in self._cluster.instances:
                for other in self._others(one):
                    self._links.reset(self._name(one), other)
            self._rest(0.05, 0.4)

    def half_open_one(self) -> None:
        one = self._one()
        for other in self._others(one):
            self._links.half_open(self._name(one), other)
        self._rest(0.5, 2.0)


_FAULTS: Final = (
    *("kill_one", "kill_one", "kill_all", "stop_one", "freeze_one", "freeze_one", "freeze_most"),
    *("isolate_one", "isolate_one", "cut_a_pair", "silence_one", "deafen_one", "cut_and_kill"),
    *("delay_all", "trickle_one", "reset_all", "half_open_one"),
)


# --- the verdict ---------------------------------------------------------------------------------


def check(cluster: Cluster, load: Load) -> None:
    """After all is healed: is there an order for what every key has told, do all instances have the same, and is that it?"""
    cluster.same_everywhere()
    asked = cluster.instances[0]
    with asked.connect() as connection:
        registers = dict(connection.execute("SELECT k, v FROM registers"))
        sets: dict[int, set[int]] = {}
        for key, element in connection.execute("SELECT k, element FROM members"):
            sets.setdefault(key, set()).add(element)
        lists: dict[int, dict[int, int]] = {}
        for key, own, place in connection.execute("SELECT k, id, place FROM lists"):
            lists.setdefault(key, {})[own] = place
        tokens = {token: own for own, token in connection.execute("SELECT id, token FROM tokens")}
    now = time.monotonic()
    for key, history in load.registers.items():
        last = Operation("read", (), registers[key], now, now + 1)
        _explained(f"register {key}", [*history, last], explanation([*history, last], register, 0))
    for key, history in load.sets.items():
        last = Operation("read", (), frozenset(sets.get(key, ())), now, now + 1)
        found = explanation([*history, last], set_of_numbers, frozenset())
        _explained(f"set {key}", [*history, last], found)
    for key, appended in load.lists.items():
        _in_order(f"list {key}", lists.get(key, {}), appended)
    for token, asking in load.tokens.items():
        got = [own for own, taken in asking if taken]
        assert len(got) <= 1, f"token {token} was given to {got}"
        if got:
            assert tokens[token] == got[0], (
                f"token {token} was given to {got}, and belongs to {tokens[token]}"
            )
        may = [own for own, taken in asking if taken is not False]
        assert token not in tokens or tokens[token] in may, (token, tokens.get(token), asking)
    for instance, seen in load.seen.items():
        _never_back(instance, seen)


def _in_order(what: str, places: dict[int, int], appended: list[Appended]) -> None:
    """Each came behind all that were there: so places are without gaps, and in the order of time."""
    assert sorted(places.values()) == list(range(len(places))), f"{what}: {sorted(places.values())}"
    assert places.keys() <= {each.id for each in appended}, what
    for each in appended:
        assert each.place in (None, places.get(each.id)), (
            f"{what}: {each}, but it is at {places.get(each.id)}"
        )
    there = sorted((each for each in appended if each.id in places), key=lambda each: places[each.id])
    for at, later in enumerate(there):
        for earlier in there[:at]:
            assert earlier.called <= later.answered, f"{what}: {later} came before {earlier} was asked for"


def _explained(what: str, history: list[Operation], found: list[Operation] | None) -> None:
    if found is None:
        lines = sorted(history, key=lambda operation: operation.called)
        raise AssertionError(f"{what} is not linearizable:\n" + "\n".join(map(str, lines)))


def _never_back(instance: Instance, seen: list[Seen]) -> None:
    """What one instance has said, it doesn't take back."""
    by_key: dict[int, list[Seen]] = {}
    for each in seen:
        by_key.setdefault(each.key, []).append(each)
    for key, told in by_key.items():
        values: dict[int, int] = {}
        for each in told:
            assert values.setdefault(each.version, each.value) == each.value, (key, each)
        told.sort(key=lambda each: each.answered)
        for at, later in enumerate(told):
            for earlier in told[:at]:
                if earlier.answered < later.called:
                    assert later.version >= earlier.version, (
                        f"{instance.running.name} said of register {key}: {earlier}, and then {later}"
                    )
