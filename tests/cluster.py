"""Real instances for tests: `shoal run`, each in a process of its own, on free ports of loopback.

Here: Instance, started in a directory and ended by its own pid; how to reach it; eventually(), which waits
for a condition until a deadline.
Not here: fixtures (each suite's conftest.py decides how long an instance lives).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import psycopg

import shoal
from shoal.node.config import Running

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
    ) -> None:
        self.directory = directory
        self.log_file = directory.with_name(directory.name + ".log")
        self._trust = trust
        self._options = tuple(options)
        self._environment = dict(environment or {})
        self._timing_scale = timing_scale
        self._process: subprocess.Popen[bytes] | None = None
        self._running: Running | None = None

    # --- life

    def start(self) -> None:
        """Returns when it accepts queries."""
        assert self._process is None, "it runs already"
        reading, writing = os.pipe()
        command = [
            *(sys.executable, "-P", "-m", "shoal", "run", "--ready-fd", str(writing)),
            *("--instance-dir", str(self.directory)),
            *("--pg-listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"),
            "--trust" if self._trust else "--no-trust",
            *self._options,
        ]
        # What the user has set for an instance of their own is not for ours.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        environment = {**inherited, "PYTHONPATH": str(_SOURCES), **self._environment}
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
        finally:
            os.close(writing)
        try:
            self._running = Running(**self._ready_line(reading))
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(reading)

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
        return code

    def kill(self) -> None:
        """kill -9. Fine if it is gone already."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

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
