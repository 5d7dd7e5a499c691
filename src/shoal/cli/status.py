"""`shoal status`: what runs, who leads, and what is wrong.

Here: showing a report, and the exit code that tells a script whether the cluster is whole.
Not here: making the report (report.py), finding the instance (target.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import psycopg
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.report import Rows, read_report
from shoal.cli.target import connect
from shoal.errors import InternalError

DEGRADED: Final = 1
_WIDTH_IN_A_PIPE: Final = 120
_NUMBERS: Final = frozenset(("id", "term", "applied"))


def status(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR|URL]", help="The instance's directory, a demo's, or a postgresql:// URL."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print one JSON object.")] = False,
) -> None:
    """Show the cluster: instances and their leader, replicasets, tiers, tables and limits.

    The exit code is 0 when all is well and 1 when the cluster is degraded: an instance is not Online or does not
    answer, there is no leader, or versions differ.
    """
    with contextlib.closing(connect(where)) as connection:
        try:
            report = read_report(connection)
        except psycopg.Error as error:
            raise InternalError(f"can't read the system tables: {error}") from None
    if as_json:
        sys.stdout.write(json.dumps(report, ensure_ascii=False) + "\n")
    else:
        show(report, console_for(sys.stdout.isatty()))
    sys.stdout.flush()
    if report["degraded"]:
        raise typer.Exit(DEGRADED)


def console_for(is_terminal: bool) -> Console:
    """As wide as the terminal; in a pipe COLUMNS says how wide."""
    measured = is_terminal or os.environ.get("COLUMNS")
    return Console(highlight=False, width=None if measured else _WIDTH_IN_A_PIPE)


def show(report: dict[str, Any], console: Console) -> None:
    console.print(
        Text.assemble(
            "cluster ",
            (str(report["cluster_name"]), "bold"),
            f"  {report['cluster_uuid']}",
        ),
        Text(f"version {report['version']}, schema version {report['schema_version']}"),
        sep="\n",
    )
    members = [each for each in report["instances"] if each["state"] != "Expelled"]
    _table(
        console,
        "instances",
        members,
        {
            "name": _of("name"),
            "state": _state,
            "raft": _role,
            "id": _of("raft_id"),
            "term": _of("term"),
            "applied": _of("applied"),
            "version": _of("version"),
            "tier": _of("tier"),
            "replicaset": _of("replicaset"),
        },
    )
    expelled = [each["name"] for each in report["instances"] if each["state"] == "Expelled"]
    if expelled:
        console.print(f"expelled: {', '.join(expelled)}", markup=False)
    places: Columns = {"name": _of("name"), "pg": _of("pg"), "rpc": _of("rpc"), "http": _of("http")}
    if any(each["failure_domain"] for each in members):
        places["failure domain"] = _domain
    _table(console, "where they are", members, places)
    identities: Columns = {"name": _of("name"), "uuid": _of("uuid"), "last change": _of("reason")}
    _table(console, "who they are", members, identities)
    for title, columns in (
        ("replicasets", ("name", "master", "tier", "state")),
        ("tiers", ("name", "replication_factor", "bucket_count", "can_vote")),
        ("tables", ("name", "distribution", "engine", "operable")),
    ):
        _table(console, title, report[title], {column: _of(column) for column in columns})
    limits: Columns = {column: _of(column) for column in ("key", "scope", "value")}
    _table(console, "limits set by ALTER SYSTEM", report["limits"], limits)
    console.print()
    whole = not console.is_terminal  # one line each, for whoever reads them with a program
    for note in report["notes"]:
        console.print(f"note: {note}", markup=False, soft_wrap=whole)
    if report["degraded"]:
        console.print("degraded:", style="bold red")
        for problem in report["problems"]:
            console.print(f"- {problem}", markup=False, style="red", soft_wrap=whole)
    else:
        count = f"{len(members)} instances are" if len(members) != 1 else "the instance is"
        console.print(
            f"all is well: {count} Online, and {report['leader']} leads", style="green", markup=False
        )


Columns = dict[str, Callable[[dict[str, Any]], Text]]


def _of(key: str) -> Callable[[dict[str, Any]], Text]:
    def cell(row: dict[str, Any]) -> Text:
        return Text("" if row[key] is None else str(row[key]))

    return cell


def _state(row: dict[str, Any]) -> Text:
    state, target = row["state"], row["target_state"]
    if state != target:
        return Text(f"{state} → {target}", "yellow")
    if state == "Online" and not row["reachable"]:
        return Text("Online, silent", "red")
    if state == "Online" and row["health"] != "running":
        return Text(f"Online, {row['health']}", "yellow")
    return Text(state, "green" if state == "Online" else "red")


def _role(row: dict[str, Any]) -> Text:
    return Text("leader", "bold") if row["leader"] else Text(row["role"] or "")


def _domain(row: dict[str, Any]) -> Text:
    return Text(", ".join(f"{key}={value}" for key, value in sorted(row["failure_domain"].items())))


def _table(console: Console, title: str, rows: Rows, columns: Columns) -> None:
    if not rows:
        console.print(f"\n{title}: none")
        return
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        # A name is what people copy: it is kept whole, and others fold.
        table.add_column(
            column.replace("_", " "),
            overflow="fold",
            no_wrap=column == "name",
            justify="right" if column in _NUMBERS else "left",
        )
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    console.print()
    console.print(table)
