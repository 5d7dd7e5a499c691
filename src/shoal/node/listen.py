"""Taking an address to listen on, or saying which one can't be had.

Here: bind(), which every listener of the instance uses.
Not here: what is spoken there (node/pg_server.py, node/http.py).
"""

from __future__ import annotations

import errno
import socket

from shoal.errors import InvalidConfiguration
from shoal.node.config import Address

BACKLOG = 1024


def bind(key: str, address: Address) -> socket.socket:
    """A listening TCP socket. `key` is the option that names the address: the error says it."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InvalidConfiguration(f"{key}: no such host: {address.host} ({error.strerror})") from None
    listener = socket.socket(family, kind, protocol)
    try:
        # A restart needn't wait for connections of the last run to leave TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidConfiguration(f"{key}: can't listen on {address}: {_reason(error, address)}") from None
    listener.setblocking(False)
    return listener


def bound_address(listener: socket.socket, asked: Address) -> Address:
    """The address with the port that was really taken."""
    return Address(asked.host, listener.getsockname()[1])


def _reason(error: OSError, address: Address) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {address.port} is in use"
        case errno.EACCES:
            return f"port {address.port} needs root"
        case errno.EADDRNOTAVAIL:
            return f"{address.host} is no address of this machine"
        case _:
            return error.strerror or str(error)
