"""The cluster's secret: what instances prove to each other that they know.

Here: cluster_secret(), which reads its file, and make_cluster_secret(), which makes it.
Not here: the proof (protocol/handshake.py).

Whoever has the file is an instance of the cluster, so nobody but its owner may read it. What is in it appears
in no error and in no log.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from shoal.errors import InvalidConfiguration

_BYTES: Final = 32
_TEXT_BYTES_MIN: Final = 16  # of a file that somebody wrote by hand
_TEXT_BYTES_MAX: Final = 4096


def cluster_secret(path: Path) -> bytes:
    """What the file holds, without the white space around it."""
    try:
        # Without waiting: opening a named pipe would.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "is no file")
        if found.st_mode & 0o077:
            raise _refused(
                path,
                f"may be read by others than its owner (mode {stat.S_IMODE(found.st_mode):04o})",
                hint=f"chmod 600 {path}",
            )
        text = file.read(_TEXT_BYTES_MAX + 1)
    if len(text) > _TEXT_BYTES_MAX:
        raise _refused(path, f"is longer than {_TEXT_BYTES_MAX} bytes")
    secret = text.strip()
    if len(secret) < _TEXT_BYTES_MIN:
        raise _refused(path, f"holds fewer than {_TEXT_BYTES_MIN} bytes: too few to be a secret")
    return secret


def make_cluster_secret(path: Path) -> bytes:
    """What the file holds; if there is none, it is made first. Of several processes that do this at the same
    time one makes it, and all get the same."""
    if not path.exists():
        # Written whole and then given its name, which fails if the name is taken: nobody finds half of it.
        unnamed = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(secrets.token_hex(_BYTES).encode() + b"\n")
                    file.flush()
                    os.fsync(descriptor)
                with contextlib.suppress(FileExistsError):
                    os.link(unnamed, path)
            finally:
                os.unlink(unnamed)
            _sync(path.parent)
        except OSError as error:
            raise _refused(path, f"cannot be written: {error.strerror}") from None
    return cluster_secret(path)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(path: Path, what: str, hint: str | None = None) -> InvalidConfiguration:
    return InvalidConfiguration(f"the cluster's secret {path} {what}", hint=hint)
