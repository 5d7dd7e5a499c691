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


def find_urls(where: str | None) -> list[str]:
    """The URLs for what the user gave: a URL, an instance's directory, or a demo's. Any of them will do."""
    if where is None:
        where = os.environ.get(option("instance_dir").variable) or str(option("instance_dir").default)
        if not Path(where).is_dir():
            raise NotRunning(
                f"which instance? Give its directory or a postgresql:// URL (there is no {where} here)"
            )
    if where.startswith(("postgresql://", "postgres://")):
        return [where]
    directory = Path(where).expanduser().absolute()
    if directory.name.startswith(_SOCKET_PREFIX):
        return [_url_of(directory)]
    if not directory.is_dir():
        raise NotRunning(f"{directory} is no directory")
    # A demo's directory holds one directory per instance.
    sockets = [*directory.glob(f"{_SOCKET_PREFIX}*")]
    if not sockets and (directory / CLUSTER_FILE).exists():
        sockets = [*directory.glob(f"*/{_SOCKET_PREFIX}*")]
    if not sockets:
        raise NotRunning(f"no instance runs on {directory}: there is no admin socket in it")
    # The newest first: what a crash left behind is older than what runs.
    sockets.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return [_url_of(path) for path in sockets]


def _url_of(path: Path) -> str:
    if len(str(path).encode()) > SOCKET_PATH_BYTES_MAX:
        raise NotRunning(
            f"{path}: too long for the path of a socket; use a shorter path to the same directory"
        )
    return socket_url(path.parent, int(path.name.removeprefix(_SOCKET_PREFIX)))


def connect(where: str | None) -> psycopg.Connection:
    """To the first that answers."""
    refused: list[NotRunning] = []
    for url in find_urls(where):
        try:
            return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="shoal")
        except psycopg.Error as error:
            reason = " ".join(str(error).split())  # libpq writes several lines
            refused.append(NotRunning(f"can't connect to {_without_password(url)}: {reason}"))
    raise refused[0]


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    user, at, place = rest.partition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}" if at else url
