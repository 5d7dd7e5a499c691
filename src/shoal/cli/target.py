"""Which instance is meant: a postgresql:// URL, a directory, or the default directory.

Here: finding the admin socket of a running instance.
Not here: talking to it (admin.py, status.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import psycopg

from shoal.errors import ShoalError
from shoal.node.config import SOCKET_PATH_BYTES_MAX, option

CLUSTER_FILE = "cluster.json"
_SOCKET_PREFIX = ".s.PGSQL."


class NotRunning(ShoalError):
    """Nothing answers where we were told to look."""

    sqlstate = "08001"


def socket_url(instance_dir: Path, pg_port: int) -> str:
    """The URL of an instance's admin socket, as psql and every libpq client take it."""
    return f"postgresql://admin@/shoal?host={quote(str(instance_dir), safe='')}&port={pg_port}"


def find_url(where: str | None) -> str:
    """The URL for what the user gave: a URL, an instance's directory, or a demo's."""
    if where is None:
        where = os.environ.get(option("instance_dir").variable) or str(option("instance_dir").default)
        if not Path(where).is_dir():
            raise NotRunning(
                f"which instance? Give its directory or a postgresql:// URL (there is no {where} here)"
            )
    if where.startswith(("postgresql://", "postgres://")):
        return where
    directory = Path(where).expanduser().absolute()
    if directory.name.startswith(_SOCKET_PREFIX):
        return socket_url(directory.parent, int(directory.name.removeprefix(_SOCKET_PREFIX)))
    if not directory.is_dir():
        raise NotRunning(f"{directory} is no directory")
    # A demo's directory holds one directory per instance; any of them will do.
    sockets = [*directory.glob(f"{_SOCKET_PREFIX}*")]
    if not sockets and (directory / CLUSTER_FILE).exists():
        sockets = [*directory.glob(f"*/{_SOCKET_PREFIX}*")]
    if not sockets:
        raise NotRunning(f"no instance runs on {directory}: there is no admin socket in it")
    newest = max(sockets, key=lambda path: path.stat().st_mtime_ns)
    if len(str(newest).encode()) > SOCKET_PATH_BYTES_MAX:
        raise NotRunning(
            f"{newest}: too long for the path of a socket; use a shorter path to the same directory"
        )
    return socket_url(newest.parent, int(newest.name.removeprefix(_SOCKET_PREFIX)))


def connect(where: str | None) -> psycopg.Connection:
    url = find_url(where)
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="shoal")
    except psycopg.Error as error:
        reason = " ".join(str(error).split())  # libpq writes several lines
        raise NotRunning(f"can't connect to {_without_password(url)}: {reason}") from None


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    user, at, place = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}" if at else url
