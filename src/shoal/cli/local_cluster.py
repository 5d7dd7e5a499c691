"""A cluster of child processes on this machine, all data in one directory.

Here: choosing ports, starting `shoal run` for each member, waiting until it accepts queries, stopping it, and
cluster.json, by which a directory is recognised and resumed.
Not here: options and output of `shoal demo` (demo.py), what a child does (node/).
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
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psycopg

from shoal.cli.target import CLUSTER_FILE, socket_url
from shoal.errors import InvalidConfiguration, ShoalError
from shoal.node.config import Running

HOST: Final = "127.0.0.1"
LOG_LINES: Final = 15  # of a child that died, shown to the user

# The ports of instance i are base + i, base + 100 + i and base + 200 + i: room for a hundred.
PORTS_PER_KIND: Final = 100

_PR_SET_PDEATHSIG: Final = 1


class InstanceDied(ShoalError):
    """A child ended although nobody had told it to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One instance, as cluster.json remembers it."""

    name: str
    tier: str
    replicaset: str
    pg: int
    rpc: int
    http: int
    uuid: str | None = None  # known once it has run

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.pg, self.rpc, self.http


@dataclass(slots=True)
class _Child:
    member: Member
    process: subprocess.Popen[bytes]
    ready: int  # the reading end of its ready pipe
    received: bytearray = field(default_factory=bytearray)
    running: Running | None = None


class LocalCluster:
    """The members, their directory, and, while it runs, their processes."""

    def __init__(
        self, directory: Path, cluster_name: str, members: tuple[Member, ...], *, trust: bool
    ) -> None:
        self.directory = directory
        self.cluster_name = cluster_name
        self.members = members
        self._trust = trust
        self._children: list[_Child] = []

    # --- what is known of it

    @property
    def running(self) -> tuple[Running, ...]:
        return tuple(child.running for child in self._children if child.running is not None)

    @property
    def admin_url(self) -> str:
        """For any libpq client, on this machine."""
        first = self.members[0]
        if self._trust:
            return f"postgresql://admin@{HOST}:{first.pg}/shoal"
        return socket_url(self.instance_dir(first), first.pg)

    def instance_dir(self, member: Member) -> Path:
        return self.directory / member.name

    def log_file(self, member: Member) -> Path:
        return self.directory / f"{member.name}.log"

    # --- life

    def start(self, timeout_seconds: float) -> None:
        """Returns when every member accepts queries."""
        check_ports(self.members)
        for member in self.members:
            self._children.append(self._spawn(member))
        self._write_cluster_file()
        deadline = time.monotonic() + timeout_seconds
        for child in self._children:
            self._await_ready(child, deadline)
        self.members = tuple(
            replace(child.member, uuid=child.running.uuid)
            for child in self._children
            if child.running is not None
        )
        self._write_cluster_file()

    def wait(self) -> None:
        """Returns never: raises InstanceDied when one of the children ends."""
        while True:
            for child in self._children:
                self._check_alive(child)
            time.sleep(0.1)

    def stop(self, timeout_seconds: float) -> None:
        """Asks all to stop, then sees to it that they do."""
        for child in self._children:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        for child in self._children:
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                sys.stderr.write(f"shoal: {child.member.name} doesn't stop, ending it by force\n")
                child.process.kill()
                child.process.wait()
            os.close(child.ready)
        self._children.clear()

    def kill(self) -> None:
        for child in self._children:
            if child.process.poll() is None:
                child.process.kill()

    # --- the children

    def _spawn(self, member: Member) -> _Child:
        reading, writing = os.pipe()
        command = [
            # -P: a directory `shoal` where the user happens to be is not the package.
            *(sys.executable, "-P", "-m", "shoal", "run"),
            *("--ready-fd", str(writing)),
            *("--instance-dir", str(self.instance_dir(member))),
            *("--cluster-name", self.cluster_name),
            *("--instance-name", member.name),
            *("--replicaset", member.replicaset),
            *("--tier", member.tier),
            *("--pg-listen", f"{HOST}:{member.pg}"),
            *("--rpc-listen", f"{HOST}:{member.rpc}"),
            *("--http-listen", f"{HOST}:{member.http}"),
            "--trust" if self._trust else "--no-trust",
        ]
        try:
            with self.log_file(member).open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writing,),
                    # Ctrl-C in the terminal is for us: we tell the children.
                    process_group=0,
                    preexec_fn=_die_with_parent(),
                )
        except OSError as error:
            os.close(reading)
            raise InvalidConfiguration(f"{error.filename}: {error.strerror}") from None
        finally:
            os.close(writing)
        return _Child(member=member, process=process, ready=reading)

    def _await_ready(self, child: _Child, deadline: float) -> None:
        while b"\n" not in child.received:
            readable, _, _ = select.select([child.ready], [], [], 0.1)
            data = os.read(child.ready, 65536) if readable else b""
            child.received += data
            if readable and not data:  # it has closed the pipe without a word: it is ending
                child.process.wait(max(0.1, deadline - time.monotonic()))
            self._check_alive(child)
            if time.monotonic() > deadline:
                raise InstanceDied(
                    f"{child.member.name} doesn't accept queries in time; its log ends with:\n"
                    + "\n".join(self._log_tail(child.member))
                )
        child.running = Running(**json.loads(child.received))
        self._query(child, deadline)

    def _query(self, child: _Child, deadline: float) -> None:
        """It says it is ready: see for ourselves, through the door that any user takes."""
        url = socket_url(self.instance_dir(child.member), child.member.pg)
        timeout = max(1, int(deadline - time.monotonic()))
        try:
            with psycopg.connect(url, connect_timeout=timeout, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error as error:
            self._check_alive(child)
            raise InstanceDied(f"{child.member.name} runs but answers no query: {error}") from None

    def _check_alive(self, child: _Child) -> None:
        code = child.process.poll()
        if code is None:
            return
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        tail = "\n".join(self._log_tail(child.member))
        raise InstanceDied(f"{child.member.name} {how}; its log ends with:\n{tail}")

    def _log_tail(self, member: Member) -> list[str]:
        text = self.log_file(member).read_text(encoding="utf-8", errors="replace")
        return text.splitlines()[-LOG_LINES:]

    # --- cluster.json

    def _write_cluster_file(self) -> None:
        body = {
            "cluster_name": self.cluster_name,
            "instances": [
                {
                    "name": member.name,
                    "uuid": member.uuid,
                    "tier": member.tier,
                    "replicaset": member.replicaset,
                    "pg": member.pg,
                    "rpc": member.rpc,
                    "http": member.http,
                }
                for member in self.members
            ],
        }
        path = self.directory / CLUSTER_FILE
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)  # whole or not at all


def read_cluster_file(directory: Path) -> tuple[str, tuple[Member, ...]] | None:
    """The name and the members of the cluster in this directory, None if there is none."""
    path = directory / CLUSTER_FILE
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return str(body["cluster_name"]), tuple(Member(**member) for member in body["instances"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidConfiguration(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidConfiguration(f"{path} is damaged: {error}") from None


# --- ports ---------------------------------------------------------------------------------------


def ports_from(base: int, instances: int) -> Iterator[tuple[int, int, int]]:
    for i in range(instances):
        yield base + i, base + PORTS_PER_KIND + i, base + 2 * PORTS_PER_KIND + i


def free_ports(instances: int) -> Iterator[tuple[int, int, int]]:
    """Ports that nobody listens on now. All are held until the last is found, so none comes twice."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(3 * instances)]
        for each in sockets:
            each.bind((HOST, 0))
        ports = [int(each.getsockname()[1]) for each in sockets]
    for i in range(instances):
        yield ports[3 * i], ports[3 * i + 1], ports[3 * i + 2]


def check_ports(members: tuple[Member, ...]) -> None:
    busy = [str(port) for member in members for port in member.ports if not is_free(port)]
    if busy:
        raise InvalidConfiguration(
            f"port {', '.join(busy)} is in use; choose others with --base-port (0 takes free ones)"
        )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True


def _die_with_parent() -> Any:
    """For a child to run before it becomes `shoal run`: a demo that is killed leaves nobody behind."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found here: after fork only the call itself is safe
    parent = os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has died in between
            os._exit(1)

    return tie
