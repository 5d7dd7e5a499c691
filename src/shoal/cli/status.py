"""`shoal status`: what runs, in the words of the system tables.

Here: reading them over SQL, as any client could, and showing them.
Not here: finding the instance (target.py).
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated, Any

import psycopg
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from shoal.cli.target import connect
from shoal.errors import InternalError

USER_TABLES_FROM = 1025  # ids below are the system's

# Whatever limit ALTER SYSTEM has set for statements: the status is there to show it.
NO_LIMITS = "OPTION (SQL_MOTION_ROW_MAX = 0, SQL_VDBE_OPCODE_MAX = 0)"

Rows = list[dict[str, Any]]


def status(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR|URL]", help="The instance's directory, a demo's, or a postgresql:// URL."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print one JSON object.")] = False,
) -> None:
    """Show the cluster: instances, replicasets, tiers, tables and limits."""
    with contextlib.closing(connect(where)) as connection:
        try:
            report = read_report(connection)
        except psycopg.Error as error:
            raise InternalError(f"can't read the system tables: {error}") from None
    if as_json:
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        _show(report)


def read_report(connection: psycopg.Connection) -> dict[str, Any]:
    def rows(sql: str) -> Rows:
        cursor = connection.execute(f"{sql} {NO_LIMITS}".encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    properties = {
        row["key"]: _plain(row["value"]) for row in rows("SELECT key, value FROM _pico_property ORDER BY key")
    }
    addresses: dict[int, dict[str, str]] = {}
    for row in rows("SELECT raft_id, connection_type, address FROM _pico_peer_address"):
        addresses.setdefault(row["raft_id"], {})[row["connection_type"]] = row["address"]
    instances = rows(
        "SELECT name, uuid, raft_id, replicaset_name, tier, current_state, picodata_version "
        "FROM _pico_instance ORDER BY name"
    )
    tables = rows(
        "SELECT name, distribution, engine, operable, schema_version FROM _pico_table "
        f"WHERE id >= {USER_TABLES_FROM} ORDER BY name"
    )
    return {
        "cluster_name": properties.get("cluster_name"),
        "cluster_uuid": properties.get("cluster_uuid"),
        "version": properties.get("cluster_version"),
        "schema_version": properties.get("global_schema_version"),
        "instances": [
            {
                "name": row["name"],
                "uuid": row["uuid"],
                "state": _plain(row["current_state"])[0],
                "replicaset": row["replicaset_name"],
                "tier": row["tier"],
                "version": row["picodata_version"],
                "pg": addresses.get(row["raft_id"], {}).get("pgproto"),
                "rpc": addresses.get(row["raft_id"], {}).get("iproto"),
                "http": addresses.get(row["raft_id"], {}).get("http"),
            }
            for row in instances
        ],
        "replicasets": rows(
            "SELECT name, uuid, tier, state, current_master_name AS master FROM _pico_replicaset ORDER BY name"
        ),
        "tiers": rows("SELECT name, replication_factor, bucket_count FROM _pico_tier ORDER BY name"),
        "tables": [{**row, "distribution": _distribution(_plain(row["distribution"]))} for row in tables],
        "limits": [
            {**row, "value": _plain(row["value"])}
            for row in rows("SELECT key, scope, value FROM _pico_db_config ORDER BY key, scope")
        ],
    }


def _plain(value: Any) -> Any:
    """A value of type ANY or MAP: drivers get its JSON as text, or decoded."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _distribution(value: dict[str, Any]) -> str:
    """From {"Global": null} or {"ShardedBy…": [keys, …, tier]}."""
    (kind, details), *_ = value.items()
    if details is None:
        return kind.lower()
    keys, *_, tier = details
    return f"sharded by {', '.join(keys) if isinstance(keys, list) else keys} in {tier}"


def _show(report: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
    console.print(
        f"cluster [bold]{report['cluster_name']}[/bold]  {report['cluster_uuid']}  "
        f"version {report['version']}, schema version {report['schema_version']}"
    )
    _table(
        console,
        "instances",
        ("name", "state", "replicaset", "tier", "pg", "http", "version"),
        report["instances"],
    )
    _table(console, "replicasets", ("name", "master", "tier", "state"), report["replicasets"])
    _table(console, "tiers", ("name", "replication_factor", "bucket_count"), report["tiers"])
    _table(console, "tables", ("name", "distribution", "engine", "operable"), report["tables"])
    _table(console, "limits set by ALTER SYSTEM", ("key", "scope", "value"), report["limits"])


def _table(console: Console, title: str, columns: tuple[str, ...], rows: Rows) -> None:
    if not rows:
        console.print(f"\n{title}: none")
        return
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*("" if row[column] is None else str(row[column]) for column in columns))
    console.print(table)
