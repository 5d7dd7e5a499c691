"""PostgreSQL 15 from Debian as the peer to measure against: installed if need be, and run in a temporary directory.

Here: finding the programs, initdb, starting on loopback with what a fresh installation has, stopping.
Not here: what is measured (run.py).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

BIN = Path("/usr/lib/postgresql/15/bin")
PACKAGES = ("postgresql-15", "postgresql-client-15")


class Unavailable(Exception):
    """There is no PostgreSQL here, and it can't be installed."""


def ensure_installed() -> None:
    if (BIN / "postgres").exists() and shutil.which("pgbench"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable(
            f"PostgreSQL 15 is not installed; on Debian: sudo apt-get install {' '.join(PACKAGES)}"
        )
    print("installing PostgreSQL 15 with apt-get")
    # The package would start a server of its own on port 5432; we only want the programs.
    Path("/etc/postgresql-common").mkdir(exist_ok=True)
    created = Path("/etc/postgresql-common/createcluster.conf")
    if not created.exists():
        created.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": environment}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
    done = subprocess.run(["apt-get", "install", "-y", "-qq", *PACKAGES], **quiet)  # type: ignore[call-overload]
    if done.returncode != 0 or not (BIN / "postgres").exists():
        raise Unavailable("apt-get could not install PostgreSQL 15")


class Postgres:
    """One server with the settings of a fresh Debian installation, on a free port of loopback."""

    def __init__(self) -> None:
        self._user = self._unprivileged()
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-bench-pg-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> str:
        return subprocess.run([BIN / "postgres", "--version"], capture_output=True, text=True).stdout.strip()

    @property
    def url(self) -> str:
        return f"postgresql://bench@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        data = self.directory / "data"
        if self._user is not None:
            os.chown(self.directory, *self._user)
        done = subprocess.run(
            [BIN / "initdb", "-D", data, "-U", "bench", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8"],
            capture_output=True,
            text=True,
            cwd=self.directory,
            **self._as_user(),
        )
        if done.returncode != 0:
            raise Unavailable(f"initdb failed: {done.stderr}")
        log = (self.directory / "log").open("wb")
        self._process = subprocess.Popen(
            [
                *(BIN / "postgres", "-D", data, "-p", str(self.port)),
                *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.directory}"),
                # Room for the table, so that both sides read from memory. The rest is as installed: fsync is on.
                *("-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            process_group=0,
            **self._as_user(),
        )
        log.close()
        deadline = time.monotonic() + 60
        while subprocess.run([BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"PostgreSQL doesn't start: {(self.directory / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        """The server and its children: each connection has one."""
        return [self.pid, *_children_of(self.pid)]

    @staticmethod
    def _unprivileged() -> tuple[int, int] | None:
        """(uid, gid) of someone else if we are root: postgres refuses to run as root."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return entry.pw_uid, entry.pw_gid
        raise Unavailable(
            "PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody"
        )

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user[0], "group": self._user[1], "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
