"""`shoal demo`: a local cluster in the foreground, to try things out and for tests of other programs.

Here: what the options mean, what is printed, and stopping on a signal.
Not here: the processes (local_cluster.py).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from shoal.cli.local_cluster import (
    ClusterFile,
    LocalCluster,
    Member,
    free_ports,
    is_free,
    ports_from,
    read_cluster_file,
)
from shoal.cli.report import needs_all
from shoal.errors import InvalidConfiguration

CLUSTER_NAME = "demo"
BASE_PORT = 4327
INSTANCES_MAX = 7
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0


class _Stop(BaseException):
    """A signal asked us to stop. Like KeyboardInterrupt, no error."""


def demo(
    instances: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=INSTANCES_MAX,
            metavar="N",
            help=f"How many instances, at most {INSTANCES_MAX}. [default: 1, or as before]",
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=INSTANCES_MAX,
            metavar="R",
            help="How many instances hold each row. [default: 1, or as before]",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Keep the data here, and resume the cluster that is there already."
        ),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65000,
            metavar="PORT",
            help=f"The first port; 0 takes free ones. [default: {BASE_PORT}, or as before]",
            show_default=False,
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let clients connect over TCP without a password.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON when the cluster accepts queries.")
    ] = False,
) -> None:
    """Run a local cluster in the foreground, until Ctrl-C.

    Without --dir its data lies in a temporary directory, and goes when it stops.
    """
    with _stopping_on_signals():
        try:
            with _directory(directory) as place:
                cluster = _prepare(place, instances, replication_factor, base_port, trust)
                _run(cluster, as_json)
        except _Stop:
            pass


def _prepare(
    place: Path, instances: int | None, replication_factor: int | None, base_port: int | None, trust: bool
) -> LocalCluster:
    """The cluster that is to run: a new one, or the one that the directory holds."""
    known = read_cluster_file(place)
    if known is None:
        if any(place.iterdir()):
            raise InvalidConfiguration(f"{place} is not empty, and holds no cluster that could be resumed")
        cluster = _new_cluster(instances or 1, replication_factor or 1)
    else:
        _check_resumed(place, known, instances, replication_factor)
        cluster = known
    # As before where it has run, so that URLs stay good; but 0 asks for any port that is free.
    members = cluster.members
    if base_port == 0:
        if known is None or not all(is_free(port) for member in members for port in member.ports):
            members = _with_ports(members, free_ports(len(members)))
    elif base_port is not None or known is None:
        members = _with_ports(members, ports_from(base_port or BASE_PORT, len(members)))
    return LocalCluster(place, replace(cluster, members=members), trust=trust, tell=_tell)


def _new_cluster(instances: int, replication_factor: int) -> ClusterFile:
    if replication_factor > instances:
        there = "there is one" if instances == 1 else f"there are {instances}"
        raise InvalidConfiguration(
            f"--replication-factor {replication_factor} needs as many instances, and {there}"
        )
    members = (Member(directory=f"i{i + 1}", pg=0, rpc=0, http=0) for i in range(instances))
    return ClusterFile(
        cluster_name=CLUSTER_NAME, replication_factor=replication_factor, members=tuple(members)
    )


def _check_resumed(
    place: Path, known: ClusterFile, instances: int | None, replication_factor: int | None
) -> None:
    """What a cluster was made with can't be asked for otherwise later."""
    count = len(known.members)
    for flag, asked, found, what in (
        ("--instances", instances, count, "instances" if count != 1 else "instance"),
        ("--replication-factor", replication_factor, known.replication_factor, "as its replication factor"),
    ):
        if asked not in (None, found):
            raise InvalidConfiguration(
                f"the cluster in {place} has {found} {what}: {flag} {asked} can't change that. "
                "Leave it out, or choose another --dir"
            )


def _with_ports(members: tuple[Member, ...], ports: Iterator[tuple[int, int, int]]) -> tuple[Member, ...]:
    return tuple(
        replace(member, pg=pg, rpc=rpc, http=http)
        for member, (pg, rpc, http) in zip(members, ports, strict=True)
    )


def _run(cluster: LocalCluster, as_json: bool) -> None:
    progress = Console(stderr=True, highlight=False)

    def accepted(member: Member) -> None:
        if progress.is_terminal and len(cluster.members) > 1:
            progress.print(f"{member.directory} accepts queries as {member.name}", markup=False)

    try:
        starting = f"starting {', '.join(member.label for member in cluster.members)}"
        if progress.is_terminal:
            with progress.status(starting):
                cluster.start(START_TIMEOUT_SECONDS, accepted)
        else:
            if not as_json:
                progress.print(starting)
            cluster.start(START_TIMEOUT_SECONDS, accepted)
        if as_json:
            sys.stdout.write(json.dumps(_summary(cluster)) + "\n")
        else:
            _show(cluster)
        sys.stdout.flush()
        cluster.wait()
    finally:
        _kill_on_second_signal(cluster)
        if progress.is_terminal and not as_json:
            progress.print("\nstopping")
        cluster.stop(STOP_TIMEOUT_SECONDS)


def _tell(what: str) -> None:
    sys.stderr.write(f"shoal: {what}\n")
    sys.stderr.flush()


def _summary(cluster: LocalCluster) -> dict[str, object]:
    return {
        "cluster_name": cluster.cluster_name,
        "dir": str(cluster.directory),
        "admin_url": cluster.admin_url,
        "instances": [running.as_json() for running in cluster.running],
    }


def _show(cluster: LocalCluster) -> None:
    table = Table(title=f"cluster {cluster.cluster_name}", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("instance", "PostgreSQL", "HTTP", "replicaset", "tier", "pid"):
        table.add_column(heading)
    for running in cluster.running:
        table.add_row(
            running.name, running.pg, running.http, running.replicaset, running.tier, str(running.pid)
        )
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(f"data     {cluster.directory}")
    console.print(f"connect  psql {shlex.quote(cluster.admin_url)}", markup=False)
    console.print(f"         shoal admin {shlex.quote(str(cluster.directory))}", markup=False)
    if len(cluster.members) > 1:
        console.print(f"         shoal status {shlex.quote(str(cluster.directory))}", markup=False)
        console.print(f"raft     {_what_may_fail(len(cluster.members))}", markup=False)
    console.print("Ctrl-C stops it." if len(cluster.members) == 1 else "Ctrl-C stops them.")


def _what_may_fail(instances: int) -> str:
    """Up to five instances vote (an odd number of them, as even ones add nothing), the others follow."""
    voters = instances if instances <= 3 else 3 if instances == 4 else 5
    return needs_all(voters) or (
        f"{voters} of the instances vote: the catalog can be changed while any {voters // 2 + 1} of them run."
    )


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    """The directory of the data: the one given, made if need be, or one that goes when we go."""
    if kept is not None:
        place = kept.expanduser().absolute()
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidConfiguration(f"--dir {place}: {error.strerror}") from None
        if not os.access(place, os.W_OK | os.X_OK):
            raise InvalidConfiguration(f"--dir {place}: it can't be written to")
        yield place
        return
    place = Path(tempfile.mkdtemp(prefix="shoal-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise _Stop

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    yield


def _kill_on_second_signal(cluster: LocalCluster) -> None:
    """From here on we are stopping. Whoever asks again means it."""

    def kill(number: int, frame: FrameType | None) -> None:
        cluster.kill()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, kill)
