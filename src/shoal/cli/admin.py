"""`shoal admin`: SQL on a running instance, typed line by line or given with -c.

Here: the REPL and running one statement.
Not here: finding the instance (target.py), printing rows (results.py).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer
from psycopg import capabilities, generators
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from shoal import __version__
from shoal.cli.report import NO_LIMITS
from shoal.cli.results import Column, Format, Row, write_rows, write_status
from shoal.cli.statements import split_statements
from shoal.cli.target import connect
from shoal.errors import ShoalError

CHUNK_ROWS = 1000
HISTORY = "~/.shoal_history"

HELP = """\
A statement ends with ; and may take several lines. Ctrl-C drops it, or cancels it if it runs.
  \\d          the tables
  \\d NAME     the columns and indexes of a table
  \\dS         the system tables
  \\? or \\h    this help
  \\q          leave (Ctrl-D too)
"""

TABLES = (
    "SELECT name, distribution, engine, operable FROM _pico_table WHERE name {} '\\_pico\\_%' ORDER BY name "
    + NO_LIMITS
)


def admin(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR|URL]", help="The instance's directory, a demo's, or a postgresql:// URL."
        ),
    ] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", metavar="SQL", help="Run this and exit; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-j", help="Print rows as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print rows as CSV.")] = False,
) -> None:
    """Run SQL as admin, through the admin socket: interactively, from -c, or from stdin.

    Errors go to stderr with their SQLSTATE. With -c or from stdin the first one ends it, with exit code 1.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    format = Format.JSON if as_json else Format.CSV if as_csv else Format.TABLE
    with contextlib.closing(connect(where)) as connection:
        connection.add_notice_handler(_print_notice)
        if commands:
            done = all(_run_text(connection, text, format) for text in commands)
        elif sys.stdin.isatty():
            done = True
            _Repl(connection, where, format).run()
        else:
            done = _run_text(connection, sys.stdin.read(), format)
        sys.stdout.flush()
    if not done:
        raise typer.Exit(1)


def _run_text(connection: psycopg.Connection, text: str, format: Format) -> bool:
    """Runs statement after statement, up to the first that fails."""
    statements, rest = split_statements(text)
    return all(run_statement(connection, sql, format) for sql in (*statements, rest) if sql)


def run_statement(connection: psycopg.Connection, sql: str, format: Format) -> bool:
    """Runs one statement and prints its answer, or its error. False if it failed."""
    try:
        with contextlib.closing(_answer(connection, sql)) as answer:
            first = next(answer)
            if first.nfields:
                columns = [
                    Column((first.fname(i) or b"").decode(), first.ftype(i)) for i in range(first.nfields)
                ]
                write_rows(columns, _rows(chain((first,), answer)), format)
            else:
                write_status((first.command_status or b"").decode(), format)
                for _ in answer:
                    pass
        return True
    except psycopg.Error as error:
        sys.stdout.flush()
        sys.stderr.write(describe_error(error, sql) + "\n")
        return False


def _answer(connection: psycopg.Connection, sql: str) -> Generator[PGresult, None, None]:
    """The results of one statement by the simple protocol, rows in chunks: an answer may be larger than memory.

    A cursor of psycopg would convert the values; here they are shown as the server writes them.
    """
    connection.pgconn.send_query(sql.encode())
    if capabilities.has_stream_chunked():
        connection.pgconn.set_chunked_rows_mode(CHUNK_ROWS)
    else:
        connection.pgconn.set_single_row_mode()
    failed: PGresult | None = None
    for result in _results(connection):
        if result.status == ExecStatus.FATAL_ERROR:
            failed = result
        elif result.status in (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH):
            connection.close()  # there is no other way out of it
            raise psycopg.NotSupportedError("COPY is for psql and drivers")
        else:
            yield result
    if failed is not None:  # raised last, so that the connection is ready for the next statement
        raise psycopg.errors.error_from_result(failed)


def _results(connection: psycopg.Connection) -> Iterator[PGresult]:
    finished = False
    try:
        connection.wait(generators.send(connection.pgconn))
        while (result := connection.wait(generators.fetch(connection.pgconn))) is not None:
            yield result
        finished = True
    finally:
        if not finished and not connection.closed:
            # Ctrl-C, or nobody reads our output any more. What was on its way still comes; only then can the
            # next statement be sent.
            connection.cancel_safe(timeout=5)
            while connection.wait(generators.fetch(connection.pgconn)) is not None:
                pass


def _rows(results: Iterable[PGresult]) -> Iterator[Row]:
    for result in results:
        fields = range(result.nfields)
        for row in range(result.ntuples):
            yield [None if (value := result.get_value(row, i)) is None else value.decode() for i in fields]


def describe_error(error: psycopg.Error, sql: str) -> str:
    """The error with its SQLSTATE, and a mark under the place in the statement where it is."""
    diagnostic = error.diag
    if diagnostic.message_primary is None:
        return f"ERROR: {error}"
    lines = [f"{diagnostic.severity or 'ERROR'} {error.sqlstate}: {diagnostic.message_primary}"]
    position = diagnostic.statement_position or ""
    if position.isdigit() and 0 < int(position) <= len(sql) + 1:
        before = sql[: int(position) - 1]
        row = before.count("\n")
        column = len(before) - (before.rfind("\n") + 1)
        prefix = f"LINE {row + 1}: "
        lines.append(prefix + sql.split("\n")[row])
        lines.append(" " * (len(prefix) + column) + "^")
    if diagnostic.message_detail:
        lines.append(f"DETAIL: {diagnostic.message_detail}")
    if diagnostic.message_hint:
        lines.append(f"HINT: {diagnostic.message_hint}")
    return "\n".join(lines)


def _print_notice(notice: psycopg.errors.Diagnostic) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{notice.severity or 'NOTICE'}: {notice.message_primary}\n")


class _Repl:
    """Reads lines until they make a statement."""

    def __init__(self, connection: psycopg.Connection, where: str | None, format: Format) -> None:
        self._connection = connection
        self._where = where
        self._format = format
        self._lines: list[str] = []  # of a statement that isn't finished

    def run(self) -> None:
        _keep_history()
        sys.stdout.write(
            f"shoal {__version__}, connected as {self._connection.info.user}. \\? helps, \\q leaves.\n"
        )
        while True:
            try:
                line = input("    -> " if self._lines else "shoal> ")
                if not self._lines and line.strip().startswith("\\"):
                    if not self._command(line.split()):
                        return
                    continue
                self._feed(line)
            except EOFError:
                sys.stdout.write("\n")
                return
            except KeyboardInterrupt:  # psycopg has cancelled the statement, if one was running
                self._lines.clear()
                sys.stdout.write("\n")

    def _feed(self, line: str) -> None:
        self._lines.append(line)
        statements, rest = split_statements("\n".join(self._lines))
        self._lines = rest.split("\n") if rest else []
        for sql in statements:
            if not self._run(sql):
                self._lines.clear()  # what follows on the line counted on it
                return

    def _run(self, sql: str) -> bool:
        if self._connection.closed:
            sys.stderr.write("connecting again\n")
            try:
                self._connection = connect(self._where)
            except ShoalError as error:
                sys.stderr.write(f"{error}\n")
                return False
            self._connection.add_notice_handler(_print_notice)
        return run_statement(self._connection, sql, self._format)

    def _command(self, words: list[str]) -> bool:
        """A backslash command. False to leave."""
        match words:
            case ["\\q"]:
                return False
            case ["\\?" | "\\h"]:
                sys.stdout.write(HELP)
            case ["\\d"]:
                self._run(TABLES.format("NOT LIKE"))
            case ["\\dS"]:
                self._run(TABLES.format("LIKE"))
            case ["\\d", name]:
                self._describe(name)
            case _:
                sys.stderr.write(f"unknown command {words[0]}, \\? lists them\n")
        return True

    def _describe(self, name: str) -> None:
        """Columns and indexes, from the JSON columns of _pico_table and _pico_index."""
        with self._connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id, format FROM _pico_table WHERE name = %s {NO_LIMITS}".encode(), (name,)
            )
            found = cursor.fetchone()
            if found is None:
                sys.stderr.write(f"no table {name}; names are lower case unless they were quoted\n")
                return
            table_id, columns = found[0], _decoded(found[1])
            cursor.execute(
                f"SELECT id, name, opts, parts FROM _pico_index WHERE table_id = %s ORDER BY id {NO_LIMITS}".encode(),
                (table_id,),
            )
            indexes = cursor.fetchall()
        rows = [[c["name"], c["sql_type"], "" if c["is_nullable"] else "NOT NULL"] for c in columns]
        write_rows([Column(name, 0) for name in ("column", "type", "null")], rows, Format.TABLE)
        for index_id, index, opts, parts in indexes:
            kind = (
                "primary key " if index_id == 0 else "unique " if {"unique": [True]} in _decoded(opts) else ""
            )
            names = ", ".join(part[0] for part in _decoded(parts))
            sys.stdout.write(f"{index}: {kind}({names})\n")


def _decoded(value: Any) -> Any:
    """MAP and ANY come as their JSON text, or decoded where the driver knows the type."""
    return json.loads(value) if isinstance(value, str) else value


def _keep_history() -> None:
    """History in a file of the user's, where readline and the home directory allow it."""
    try:
        import readline
    except ImportError:
        return
    path = Path(HISTORY).expanduser()
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(2000)

    def save() -> None:
        with contextlib.suppress(OSError):
            path.touch(mode=0o600)  # statements may hold passwords
            readline.write_history_file(path)

    atexit.register(save)
