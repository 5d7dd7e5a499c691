"""`shoal expel`: takes an instance out of its cluster for good.

Here: asking for it over SQL, as admin, through whichever instance is at hand.
Not here: whether it may go, and the steps of its leaving (the cluster decides), finding an instance (target.py).
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from typing import Annotated

import psycopg
import typer

from shoal.cli.admin import describe_error
from shoal.cli.target import connect
from shoal.errors import ShoalError

TIMEOUT_SECONDS = 60.0
TIMEOUT_SECONDS_MAX = 86_400


class NotExpelled(ShoalError):
    """The cluster has refused, or nobody knows."""


def expel(
    instance: Annotated[uuid.UUID, typer.Argument(metavar="UUID", help="Which; `shoal status` shows them.")],
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR|URL]",
            help="Whom to ask: an instance's directory, a demo's, or a postgresql:// URL of admin.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Though it is Online, or the master of its replicaset.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=TIMEOUT_SECONDS_MAX, metavar="SECONDS", help="How long to wait until it is out."
        ),
    ] = TIMEOUT_SECONDS,
) -> None:
    """Take an instance out of its cluster, for good: it won't start again, and its UUID never comes back.

    Stop it first. Asking twice does no harm.
    """
    sql = (
        f"ALTER SYSTEM EXPEL INSTANCE '{instance}'{' FORCE' if force else ''} OPTION (TIMEOUT = {timeout:f})"
    )
    with contextlib.closing(connect(where)) as connection:
        try:
            connection.execute(sql.encode())
        except psycopg.Error as error:
            if error.sqlstate is None or connection.closed:
                reason = " ".join(str(error).split())
                raise NotExpelled(
                    f"the connection was lost before the answer came ({reason}). `shoal status` tells whether "
                    f"{instance} is out; asking again does no harm"
                ) from None
            raise NotExpelled(describe_error(error, sql)) from None
    sys.stdout.write(f"{instance} is expelled\n")
