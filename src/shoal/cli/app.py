"""The commands of `shoal`, put together, and how what goes wrong is shown.

Here: the application, `shoal --version`, `shoal config`, and the one place where errors become a line on
stderr and an exit code: 1 for what Shoal refuses, 2 for a command line that isn't understood.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from shoal import __version__
from shoal.cli.admin import admin
from shoal.cli.demo import demo
from shoal.cli.expel import expel
from shoal.cli.run import run
from shoal.cli.sim import sim
from shoal.cli.status import status
from shoal.errors import Fault, ShoalError
from shoal.node.config import default_yaml

P = ParamSpec("P")

app = typer.Typer(
    name="shoal",
    help="Shoal, a distributed SQL database that speaks the PostgreSQL protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="The configuration of an instance.", no_args_is_help=True)
app.add_typer(config_app, name="config")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit


@app.callback()
def shoal(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    pass


@config_app.command("default")
def config_default(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
) -> None:
    """Print a commented YAML file with the default configuration."""
    text = default_yaml()
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _fail(f"{output}: {error.strerror}")


def _fail(message: str) -> None:
    sys.stderr.write(f"shoal: {message}\n")
    raise typer.Exit(1)


def _reporting(command: Callable[P, None]) -> Callable[P, None]:
    """Turns what Shoal refuses into a message; a bug of ours keeps its traceback."""

    @wraps(command)
    def reporting(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except (ShoalError, Fault) as error:
            _fail("\n       ".join(str(error).splitlines()))
        except BrokenPipeError:
            # The reader of our output has gone (`shoal admin … | head`); don't let the interpreter's own last
            # flush complain about it.
            sys.stdout = None
            raise typer.Exit(1) from None

    return reporting


app.command()(_reporting(run))
app.command()(_reporting(demo))
app.command()(_reporting(status))
app.command()(_reporting(admin))
app.command()(_reporting(expel))
app.command()(_reporting(sim))
