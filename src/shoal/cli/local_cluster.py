"""A cluster of child processes on this machine, all data in one directory.

Here: choosing ports, starting `shoal run` for each member, waiting until it accepts queries, noticing when one
ends, stopping them, and cluster.json, by which a directory is recognised and resumed.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import psycopg

from shoal.cli.target import CLUSTER_FILE, socket_url
from shoal.errors import InvalidConfiguration, ShoalError
from shoal.node.config import SECRET_FILE, Running
from shoal.node.secret import make_cluster_secret

HOST: Final = "127.0.0.1"
LOG_LINES: Final = 15  # of a child that died, shown to the user

# The ports of instance i are base + i, base + 100 + i and base + 200 + i: room for a hundred.
PORTS_PER_KIND: Final = 100

_PR_SET_PDEATHSIG: Final = 1


class InstanceDied(ShoalError):
    """A child ended although nobody had told it to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One instance, as cluster.json remembers it. The cluster gives it its name, so that is known once it has run."""

    directory: str
    pg: int
    rpc: int
    http: int
    name: str | None = None
    uuid: str | None = None
    tier: str | None = None
    replicaset: str | None = None

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.pg, self.rpc, self.http

    @property
    def label(self) -> str:
        return self.name or self.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """What cluster.json holds."""

    cluster_name: str
    replication_factor: int
    members: tuple[Member, ...]


@dataclass(slots=True)
class _Child:
    member: Member
    process: subprocess.Popen[bytes]
    ready: int  # the reading end of its ready pipe
    received: bytearray = field(default_factory=bytearray)
    running: Running | None = None
    mourned: bool = False  # it has ended, and that was told


class LocalCluster:
    """The members, their directory, and, while it runs, their processes."""

    def __init__(
        self, directory: Path, known: ClusterFile, *, trust: bool, tell: Callable[[str], None]
    ) -> None:
        """`tell` hears of members that end while the others go on."""
        self.directory = directory
        self._tell = tell
        self.cluster_name = known.cluster_name
        self.replication_factor = known.replication_factor
        self.members = known.members
        self._trust = trust
        self._children: list[_Child] = []

    # --- what is known of it

    @property
    def running(self) -> tuple[Running, ...]:
        return tuple(
            child.running
            for child in self._children
            if child.running is not None and child.process.poll() is None
        )

    @property
    def majority(self) -> int:
        return len(self.members) // 2 + 1

    @property
    def admin_url(self) -> str:
        """For any libpq client, on this machine."""
        alive = [child.member for child in self._children if child.process.poll() is None]
        first = (alive or self.members)[0]
        if self._trust:
            return f"postgresql://admin@{HOST}:{first.pg}/shoal"
        return socket_url(self.instance_dir(first), first.pg)

    @property
    def secret_file(self) -> Path:
        return self.directory / SECRET_FILE

    def instance_dir(self, member: Member) -> Path:
        return self.directory / member.directory

    def log_file(self, member: Member) -> Path:
        return self.directory / f"{member.directory}.log"

    # --- life

    def start(self, timeout_seconds: float, accepted: Callable[[Member], None]) -> None:
        """Returns when every member accepts queries; `accepted` hears of each.

        One that ends instead is fatal to a new cluster. To one that is resumed it is fatal only if no majority is
        left: the member may have been expelled, or its disk may be gone, and that must not keep the others down.
        """
        check_ports(self.members)
        is_new = all(member.uuid is None for member in self.members)
        make_cluster_secret(self.secret_file)
        for member in self.members:
            self._children.append(self._spawn(member))
        self._write_cluster_file()
        deadline = time.monotonic() + timeout_seconds
        waiting = list(self._children)
        while waiting:
            select.select([child.ready for child in waiting], [], [], 0.1)
            for child in tuple(waiting):
                if self._has_said_ready(child, deadline):
                    waiting.remove(child)
                    accepted(child.member)
                elif child.process.poll() is not None:
                    waiting.remove(child)
                    if is_new or len(self.members) == 1:
                        raise InstanceDied(self._obituary(child))
                    self._mourn(child)
            if waiting and time.monotonic() > deadline:
                labels = ", ".join(child.member.label for child in waiting)
                raise InstanceDied(
                    f"{labels} {'does' if len(waiting) == 1 else 'do'} not accept queries in time; the log of "
                    f"{waiting[0].member.label} ends with:\n{self._log_tail(waiting[0].member)}"
                )
        members = {child.member.directory: child.member for child in self._children}
        self.members = tuple(members[member.directory] for member in self.members)
        self._write_cluster_file()

    def wait(self) -> NoReturn:
        """Raises InstanceDied when so many have ended that the rest is no majority."""
        while True:
            for child in self._children:
                if child.process.poll() is not None and not child.mourned:
                    self._mourn(child)
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
                sys.stderr.write(f"shoal: {child.member.label} doesn't stop, ending it by force\n")
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
        # One alone has nobody to look for. Of several, whoever comes first finds the others by these.
        peers = self.members if len(self.members) > 1 else ()
        command = [
            # -P: a directory `shoal` where the user happens to be is not the package.
            *(sys.executable, "-P", "-m", "shoal", "run"),
            *("--ready-fd", str(writing)),
            *("--instance-dir", str(self.instance_dir(member))),
            *("--cluster-name", self.cluster_name),
            *("--secret-file", str(self.secret_file)),
            *("--init-replication-factor", str(self.replication_factor)),
            *("--pg-listen", f"{HOST}:{member.pg}"),
            *("--rpc-listen", f"{HOST}:{member.rpc}"),
            *("--http-listen", f"{HOST}:{member.http}"),
            *(word for peer in peers for word in ("--peer", f"{HOST}:{peer.rpc}")),
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

    def _has_said_ready(self, child: _Child, deadline: float) -> bool:
        """Reads what its pipe holds. With the whole line it has a name, and answers a query."""
        readable, _, _ = select.select([child.ready], [], [], 0)
        data = os.read(child.ready, 65536) if readable else b""
        child.received += data
        if b"\n" not in child.received:
            if readable and not data:  # it has closed the pipe without a word: it is ending
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.1, deadline - time.monotonic()))
            return False
        running = Running(**json.loads(child.received))
        self._query(child, deadline)
        child.running = running
        child.member = replace(
            child.member,
            name=running.name,
            uuid=running.uuid,
            tier=running.tier,
            replicaset=running.replicaset,
        )
        return True

    def _url(self, child: _Child) -> str:
        return socket_url(self.instance_dir(child.member), child.member.pg)

    def _query(self, child: _Child, deadline: float) -> None:
        """It says it is ready: see for ourselves, through the door that any user takes."""
        url = self._url(child)
        timeout = max(1, int(deadline - time.monotonic()))
        try:
            with psycopg.connect(url, connect_timeout=timeout, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.Error as error:
            if child.process.poll() is not None:
                raise InstanceDied(self._obituary(child)) from None
            raise InstanceDied(f"{child.member.label} runs but answers no query: {error}") from None

    def _mourn(self, child: _Child) -> None:
        """One has ended. Tells of it and goes on, or raises: whatever is left is no majority."""
        child.mourned = True
        living = [other for other in self._children if not other.mourned]
        if any(_is_expelled(self._url(other), child.member) for other in living):
            self._tell(f"{child.member.label} was expelled, and has ended")
            self.members = tuple(each for each in self.members if each.directory != child.member.directory)
            self._write_cluster_file()
            return
        count = f"{len(living)} of {len(self.members)} instances"
        if len(living) >= self.majority:
            self._tell(f"{self._obituary(child)}\n{count} go on")
            return
        why = f"\n{count} are no majority, so all are stopped" if len(self.members) > 1 else ""
        raise InstanceDied(self._obituary(child) + why)

    def _obituary(self, child: _Child) -> str:
        code = child.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"{child.member.label} {how}; its log ends with:\n{self._log_tail(child.member)}"

    def _log_tail(self, member: Member) -> str:
        text = self.log_file(member).read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-LOG_LINES:])

    # --- cluster.json

    def _write_cluster_file(self) -> None:
        body = {
            "cluster_name": self.cluster_name,
            "replication_factor": self.replication_factor,
            "instances": [asdict(member) for member in self.members],
        }
        path = self.directory / CLUSTER_FILE
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)  # whole or not at all


def _is_expelled(url: str, member: Member) -> bool:
    """Whether this instance knows that the member was to leave for good."""
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            # One that has just started, or lost the others, may answer late or not at all.
            connection.execute("SET statement_timeout = 2000")
            found = connection.execute(
                "SELECT target_state FROM _pico_instance WHERE uuid = %s", (member.uuid,)
            ).fetchone()
    except psycopg.Error:
        return False
    return found is not None and "Expelled" in str(found[0])


def read_cluster_file(directory: Path) -> ClusterFile | None:
    """The cluster in this directory, None if there is none."""
    path = directory / CLUSTER_FILE
    try:
        body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = ClusterFile(
            cluster_name=str(body["cluster_name"]),
            replication_factor=int(body["replication_factor"]),
            members=tuple(Member(**member) for member in body["instances"]),
        )
        if not found.members:
            raise ValueError("it names no instances")
        return found
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
