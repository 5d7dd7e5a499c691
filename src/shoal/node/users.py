"""The users of _pico_user as logging in needs them.

Here: User, and reading them from rows.
Not here: rights (they come with roles and grants), the secrets' form (pgwire/auth.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from shoal.catalog.system import Row

ADMIN: Final = "admin"
ADMIN_ID: Final = 1


@dataclass(frozen=True, slots=True)
class User:
    id: int
    name: str
    secret: str | None = field(repr=False)  # None: no password was ever set, so none fits


def users_of_rows(rows: Iterable[Row]) -> dict[str, User]:
    """Users, not roles, by name."""
    users: dict[str, User] = {}
    for user_id, name, _, auth, _, kind in rows:
        if kind != "user":
            continue
        secret = msgspec.json.decode(cast(str, auth), type=tuple[str, str])[1] if auth is not None else None
        user = User(cast(int, user_id), cast(str, name), secret or None)
        users[user.name] = user
    return users
