"""Real instances for tests: `shoal run`, each in a process of its own, on free ports of loopback.

Here: Instance, started in a directory and ended by its own pid; how to reach it; Cluster, several that find each other;
eventually(), which waits for a condition until a deadline.
Not here: fixtures (each suite's conftest.py decides how long an instance lives), breaking what is between instances
(links.py).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import psycopg

import shoal
from shoal.cli.report import NO_LIMITS
from shoal.node.config import Running
from tests.links import Links

HOST: Final = "127.0.0.1"
ADMIN: Final = "admin"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0

_SOURCES: Final = Path(shoal.__file__).parents[1]
_PR_SET_PDEATHSIG: Final = 1

T = TypeVar("T")


class NotInTime(AssertionError):
    """What was waited for did not come."""


def eventually(check: Callable[[], T], seconds: float, what: str = "") -> T:
    """Asks until the answer is true, and returns it. `seconds` is the patience of a test, not a pause."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {seconds:g} s: {what or check}")
        time.sleep(0.01)


class Ports:
    """Ports for one instance, its own for as long as this object lives, whether it runs or not."""

    def __init__(self) -> None:
        # Bound and not listening: an instance can listen there, and the system gives them to nobody else.
        self._held = [socket.socket() for _ in range(3)]
        for each in self._held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((HOST, 0))
        self.pg, self.rpc, self.http = (int(each.getsockname()[1]) for each in self._held)

    def close(self) -> None:
        for each in self._held:
            each.close()


class Instance:
    """One instance in one directory. It may be stopped, killed and started again, on the same data."""

    def __init__(
        self,
        directory: Path,
        *,
        trust: bool = True,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        timing_scale: float = 1.0,
        ports: Ports | None = None,
        peers: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.log_file = directory.with_name(directory.name + ".log")
        self.options = tuple(options)
        self.environment = dict(environment or {})
        self.peers = peers
        self.version: str | None = None  # another one that it takes itself for
        self._trust = trust
        self.ports = ports
        self._timing_scale = timing_scale
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: int | None = None  # a pipe on which it says so
        self._running: Running | None = None

    # --- life

    def start(self) -> None:
        """Returns when it accepts queries."""
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Starts its process, and waits for nothing."""
        assert self._process is None, "it runs already"
        reading, writing = os.pipe()
        ports = self.ports
        pg, rpc, http = (ports.pg, ports.rpc, ports.http) if ports is not None else (0, 0, 0)
        command = [
            *(sys.executable, "-P", *self._program(), "run", "--ready-fd", str(writing)),
            *("--instance-dir", str(self.directory)),
            *("--pg-listen", f"{HOST}:{pg}", "--rpc-listen", f"{HOST}:{rpc}"),
            *("--http-listen", f"{HOST}:{http}"),
            "--trust" if self._trust else "--no-trust",
            *(f"--peer={peer}" for peer in self.peers),
            *self.options,
        ]
        # What the user has set for an instance of their own is not for ours.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        environment = {**inherited, "PYTHONPATH": str(_SOURCES), **self.environment}
        try:
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    pass_fds=(writing,),
                    process_group=0,
                    preexec_fn=_end_with_the_tests(),
                )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._ready = reading

    def _program(self) -> Sequence[str]:
        if self.version is None:
            return "-m", "shoal"
        return "-c", f"import shoal; shoal.__version__ = {self.version!r}; from shoal.cli import main; main()"

    def await_ready(self) -> None:
        """Returns when it accepts queries. One that has not begun, or that doesn't come so far, is a failure."""
        assert self._ready is not None, "it has not begun, or is ready"
        try:
            self._running = Running(**self._ready_line(self._ready))
        except BaseException:
            self.kill()
            raise
        finally:
            self._forget_ready()

    def _forget_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            os.close(ready)

    def _ready_line(self, reading: int) -> dict[str, Any]:
        received = b""
        deadline = time.monotonic() + START_SECONDS * self._timing_scale
        while not received.endswith(b"\n"):
            readable, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(reading, 65536) if readable else b""
            if not data:
                how = "it ended" if readable else "not in time"
                raise NotInTime(f"the instance didn't start, {how}; its log:\n{self.log()[-4000:]}")
            received += data
        answer: dict[str, Any] = json.loads(received)
        return answer

    def stop(self) -> int:
        """Asks it to stop, and returns its exit code."""
        process = self._process
        assert process is not None, "it doesn't run"
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS * self._timing_scale)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotInTime(f"the instance doesn't stop; its log:\n{self.log()[-4000:]}") from None
        self._process = None
        self._forget_ready()
        return code

    def await_end(self) -> int:
        """Its exit code, when it has ended by itself."""
        process = self._process
        assert process is not None, "it doesn't run"
        try:
            code = process.wait(STOP_SECONDS * self._timing_scale)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"the instance doesn't end; its log:\n{self.log()[-4000:]}") from None
        self._process = None
        self._forget_ready()
        return code

    def kill(self) -> None:
        """kill -9. Fine if it is gone already."""
        process, self._process = self._process, None
        self._forget_ready()
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Its process stands still, and its sockets stay."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            if self.is_running:
                self.thaw()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # --- what is known of it

    @property
    def running(self) -> Running:
        assert self._running is not None, "it has not run yet"
        return self._running

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def host(self) -> str:
        return self.running.pg.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.running.pg.rpartition(":")[2])

    @property
    def socket_directory(self) -> Path:
        """Where the admin socket is: libpq takes it as a host."""
        return self.directory

    def url(self, *, user: str = ADMIN, password: str | None = None, database: str = "shoal") -> str:
        secret = "" if password is None else f":{password}"
        return f"postgresql://{user}{secret}@{self.host}:{self.port}/{database}"

    def connect(self, **arguments: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of psycopg that commits each statement, unless told otherwise."""
        return psycopg.connect(self.url(), **{"autocommit": True, "connect_timeout": 30, **arguments})

    def execute(self, *texts: str) -> None:
        """Statements whose answers don't matter, one by one on a connection of their own."""
        with self.connect() as connection:
            for text in texts:
                connection.execute(text.encode())

    def http(self, path: str) -> str:
        # Straight to loopback, whatever proxies the environment names.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.running.http}{path}", timeout=30) as response:
            body: bytes = response.read()
        return body.decode()

    def health(self) -> dict[str, Any]:
        """What it says of itself, ready or not; {} if it says nothing."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        port = self.ports.http if self.ports is not None else int(self.running.http.rpartition(":")[2])
        try:
            with opener.open(f"http://{HOST}:{port}/health", timeout=2) as response:
                body: dict[str, Any] = json.loads(response.read())
        except urllib.error.HTTPError as error:  # starting, or stopping
            with error:
                body = json.loads(error.read())
        except OSError:
            return {}
        return body

    def raft(self) -> dict[str, Any]:
        """How it sees the cluster's log; {} if it doesn't say."""
        return self.health().get("raft") or {}

    def metrics(self) -> dict[str, float]:
        """Name → value, as /metrics shows them."""
        lines = [line for line in self.http("/metrics").splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def bugs(self) -> str:
        """What its log says of bugs: the part from the first traceback or critical line on, or nothing."""
        log = self.log()
        starts = [at for mark in ("Traceback (most recent", " CRITICAL ") if (at := log.find(mark)) >= 0]
        return log[max(0, min(starts) - 500) :][:6000] if starts else ""


class Cluster:
    """Instances that are each other's peers. Each has a directory and ports of its own, whether it runs or not.

    With `links` they are named i1, i2, …, and reach each other through links that a test can break.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        links: bool = False,
        options: Sequence[str] = (),
        timing_scale: float = 1.0,
    ) -> None:
        self.links = Links() if links else None
        self.instances: list[Instance] = []
        self.addresses: list[str] = []  # where the others find each of them
        self.forgiven: set[Instance] = set()  # these may end with an error
        self.timing_scale = timing_scale
        self._directory = directory
        self._options = tuple(options)
        self._ports: list[Ports] = []
        for _ in range(count):
            self.add()

    def add(self, *options: str, peers: Sequence[str] | None = None) -> Instance:
        """One more, not started. Its peers are all that there are when it starts, unless some are named."""
        number = len(self.instances) + 1
        ports = Ports()
        self._ports.append(ports)
        secret = self._directory / "secret"
        own = ["--secret-file", str(secret), "--timing-scale", str(self.timing_scale)]
        address = f"{HOST}:{ports.rpc}"
        if self.links is not None:
            address = f"{HOST}:{self.links.front(f'i{number}', ports.rpc)}"
            own += ["--instance-name", f"i{number}", "--rpc-advertise", address]
        self.addresses.append(address)
        instance = Instance(
            self._directory / f"i{number}",
            options=(*own, *self._options, *options),
            timing_scale=self.timing_scale,
            ports=ports,
            peers=self.addresses if peers is None else peers,
        )
        self.instances.append(instance)
        return instance

    def move(self, instance: Instance) -> None:
        """When it starts again it has other ports. The others are not told."""
        assert self.links is None
        ports = instance.ports = Ports()
        self._ports.append(ports)
        self.addresses[self.instances.index(instance)] = f"{HOST}:{ports.rpc}"

    # --- life

    def start(self, *which: Instance) -> None:
        """All, or these, at once. Returns when each accepts queries."""
        begun = which or tuple(self.instances)
        for instance in begun:
            instance.begin()
        for instance in begun:
            instance.await_ready()

    def close(self) -> None:
        for instance in self.instances:
            instance.kill()
        if self.links is not None:
            self.links.close()
        for ports in self._ports:
            ports.close()

    def bugs(self) -> str:
        return "".join(instance.bugs() for instance in self.instances if instance not in self.forgiven)

    # --- what is known of it

    @property
    def running(self) -> list[Instance]:
        return [instance for instance in self.instances if instance.is_running]

    def leader(self, among: Iterable[Instance] | None = None) -> Instance | None:
        """Whoever says that it leads, in the greatest term."""
        leading = []
        for instance in self.running if among is None else among:
            raft = instance.raft()
            if raft and raft["state"] == "leader":
                leading.append((raft["term"], instance))
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def await_leader(self, among: Iterable[Instance] | None = None, seconds: float = 20.0) -> Instance:
        chosen = None if among is None else list(among)
        found = eventually(lambda: self.leader(chosen), seconds * self.timing_scale, "a leader")
        assert found is not None
        return found

    def follower(self) -> Instance:
        """A voter that doesn't lead."""
        leader = self.await_leader()
        voters = leader.raft()["voters"]
        return next(
            instance
            for instance in self.running
            if instance is not leader and instance.raft()["id"] in voters
        )

    def settle(self, seconds: float = 30.0) -> Instance:
        """Returns who leads, when all that run are Online, one leads, as many vote as should, and all have the same
        catalog."""
        leaders: list[Instance] = []

        def settled() -> bool:
            leaders[:] = []
            running = self.running
            rafts = [instance.raft() for instance in running]
            if (
                not all(rafts)
                or len({(raft["leader_id"], raft["term"], raft["applied"]) for raft in rafts}) > 1
            ):
                return False
            leaders.extend(i for i, raft in zip(running, rafts, strict=True) if raft["state"] == "leader")
            if len(leaders) != 1:
                return False
            members = instances_of(leaders[0])
            online = [name for name, row in members.items() if row["state"] == row["target"] == "Online"]
            return {instance.running.name for instance in running} == set(online)

        eventually(settled, seconds * self.timing_scale, "all are Online, and one leads")
        self.same_everywhere()
        return leaders[0]

    def same_everywhere(self, among: Sequence[Instance] | None = None, seconds: float = 30.0) -> Contents:
        """What is in the system tables and in the global ones, when it is the same on each."""
        found: list[Contents] = []

        def same() -> bool:
            found[:] = [contents(instance) for instance in among or self.running]
            return all(each == found[0] for each in found[1:])

        try:
            eventually(same, seconds * self.timing_scale, "the same catalog everywhere")
        except NotInTime as error:
            for table in sorted({table for each in found for table in each}):
                rows = [each.get(table) for each in found]
                if any(each != rows[0] for each in rows):
                    error.add_note(f"{table}: " + "\n".join(map(str, rows)))
            raise
        return found[0]


Contents: TypeAlias = dict[str, list[str]]


def contents(instance: Instance) -> Contents:
    """The rows of all system tables and global tables, as this instance has them."""
    with instance.connect() as connection:
        tables = connection.execute(
            f"SELECT name, distribution FROM _pico_table {NO_LIMITS}".encode()
        ).fetchall()
        names = sorted(name for name, distribution in tables if "Global" in str(distribution))
        return {
            name: sorted(map(str, connection.execute(f'SELECT * FROM "{name}" {NO_LIMITS}'.encode())))
            for name in names
        }


def instances_of(instance: Instance) -> dict[str, dict[str, Any]]:
    """By name: the rows of _pico_instance as this instance has them, with `state` and `target` in one word."""
    with instance.connect() as connection:
        cursor = connection.execute(f"SELECT * FROM _pico_instance {NO_LIMITS}".encode())
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    for row in rows:
        for short, column in (("state", "current_state"), ("target", "target_state")):
            value = row[column]
            row[short] = (json.loads(value) if isinstance(value, str) else value)[0]
    return {row["name"]: row for row in rows}


def _end_with_the_tests() -> Callable[[], None] | None:
    """For the child to run before it becomes `shoal run`: tests that are killed leave nobody behind."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found here: after fork only the call itself is safe
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has died in between
            os._exit(1)

    return tie
