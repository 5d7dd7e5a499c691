"""`shoal run`: one instance, in this process, until it is told to stop."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.node.config import Config, Running, load, option

_log = logging.getLogger("shoal")


def _flag(key: str, metavar: str = "TEXT") -> Any:
    opt = option(key)
    shown = "" if opt.default in (None, [], {}) else f" [default: {opt.default}]"
    return typer.Option(opt.flag, help=opt.help + shown, metavar=metavar, show_default=False)


def run(
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A YAML file, such as `shoal config default` prints."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "-c", metavar="KEY=VALUE", help="Set any option; stronger than flags, environment and file."
        ),
    ] = None,
    instance_dir: Annotated[str | None, _flag("instance_dir", "DIR")] = None,
    cluster_name: Annotated[str | None, _flag("cluster_name", "NAME")] = None,
    peer: Annotated[list[str] | None, _flag("peer", "HOST:PORT")] = None,
    secret_file: Annotated[str | None, _flag("secret_file", "FILE")] = None,
    instance_name: Annotated[str | None, _flag("instance_name", "NAME")] = None,
    replicaset: Annotated[str | None, _flag("replicaset", "NAME")] = None,
    tier: Annotated[str | None, _flag("tier", "NAME")] = None,
    tiers: Annotated[str | None, _flag("tiers", "JSON")] = None,
    init_replication_factor: Annotated[str | None, _flag("init_replication_factor", "N")] = None,
    failure_domain: Annotated[str | None, _flag("failure_domain", "KEY=VALUE,…")] = None,
    pg_listen: Annotated[str | None, _flag("pg_listen", "HOST:PORT")] = None,
    rpc_listen: Annotated[str | None, _flag("rpc_listen", "HOST:PORT")] = None,
    http_listen: Annotated[str | None, _flag("http_listen", "HOST:PORT")] = None,
    pg_advertise: Annotated[str | None, _flag("pg_advertise", "HOST:PORT")] = None,
    rpc_advertise: Annotated[str | None, _flag("rpc_advertise", "HOST:PORT")] = None,
    http_advertise: Annotated[str | None, _flag("http_advertise", "HOST:PORT")] = None,
    trust: Annotated[bool | None, typer.Option("--trust/--no-trust", help=option("trust").help)] = None,
    max_connections: Annotated[str | None, _flag("max_connections", "N")] = None,
    wal_mode: Annotated[str | None, _flag("wal_mode", "fsync|write")] = None,
    reader_threads: Annotated[str | None, _flag("reader_threads", "N")] = None,
    cache_bytes: Annotated[str | None, _flag("cache_bytes", "SIZE")] = None,
    log_level: Annotated[str | None, _flag("log_level", "debug|info|warning|error")] = None,
    audit: Annotated[str | None, _flag("audit", "FILE|stdout")] = None,
    raft_tick_ms: Annotated[str | None, _flag("raft_tick_ms", "N")] = None,
    raft_heartbeat_ticks: Annotated[str | None, _flag("raft_heartbeat_ticks", "N")] = None,
    raft_election_ticks: Annotated[str | None, _flag("raft_election_ticks", "N")] = None,
    join_timeout: Annotated[str | None, _flag("join_timeout", "SECONDS")] = None,
    boot_timeout: Annotated[str | None, _flag("boot_timeout", "SECONDS")] = None,
    timing_scale: Annotated[str | None, _flag("timing_scale", "FACTOR")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when ready.")] = False,
    ready_fd: Annotated[
        int | None, typer.Option("--ready-fd", metavar="FD", help="Write that line to this file descriptor.")
    ] = None,
) -> None:
    """Run one instance in the foreground.

    Options come from -c, the flags, the environment (SHOAL_INSTANCE_DIR, …), the YAML file and the defaults,
    in this order: the first that names an option decides.
    """
    flags: dict[str, object] = {
        "instance_dir": instance_dir,
        "cluster_name": cluster_name,
        "peer": peer or None,
        "secret_file": secret_file,
        "instance_name": instance_name,
        "replicaset": replicaset,
        "tier": tier,
        "tiers": tiers,
        "init_replication_factor": init_replication_factor,
        "failure_domain": failure_domain,
        "pg_listen": pg_listen,
        "rpc_listen": rpc_listen,
        "http_listen": http_listen,
        "pg_advertise": pg_advertise,
        "rpc_advertise": rpc_advertise,
        "http_advertise": http_advertise,
        "trust": trust,
        "max_connections": max_connections,
        "wal_mode": wal_mode,
        "reader_threads": reader_threads,
        "cache_bytes": cache_bytes,
        "log_level": log_level,
        "audit": audit,
        "raft_tick_ms": raft_tick_ms,
        "raft_heartbeat_ticks": raft_heartbeat_ticks,
        "raft_election_ticks": raft_election_ticks,
        "join_timeout": join_timeout,
        "boot_timeout": boot_timeout,
        "timing_scale": timing_scale,
    }
    config = load(assignments=assignments or (), flags=flags, environment=os.environ, file=config_file)
    _log_to_stderr(config)

    def ready(running: Running) -> None:
        _log.info("%s accepts queries at %s, admin at %s", running.name, running.pg, config.instance_dir)
        line = json.dumps(running.as_json()) + "\n"
        if as_json:
            sys.stdout.write(line)
            sys.stdout.flush()
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w", encoding="utf-8") as pipe:
                pipe.write(line)

    # Imported when needed: `shoal status` starts without SQLite and the SQL engine.
    from shoal.node.instance import run as run_instance

    run_instance(config, ready)


def _log_to_stderr(config: Config) -> None:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s")
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler])
