"""Who may come in: proofs of passwords, and users that are locked after too many wrong ones.

Here: Accounts, one per instance, for clients of PostgreSQL's protocol and of RPC alike.
Not here: the proof itself (pgwire/auth.py), its messages (login.py, rpc/login.py), counting (attempts.py), rights
(catalog/rights.py).

A user is locked by an entry of the log, one per lock, as ALTER USER … NOLOGIN makes it. How many wrong passwords there were is
told among the instances as they come, but no more often than _TELL_SECONDS: a flood of them is no flood of messages, and none
of entries. The instance that counts one too many turns the user away from that moment on, and asks for the lock; one that only heard
of it asks if nobody else has.

All refusals look alike, and a user that doesn't exist is asked like one that does. Whether the user may log in is looked at when the
proof has come, not before: who opens many connections at once doesn't get more guesses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import msgspec

from shoal.catalog.acl import acl_rows
from shoal.catalog.entries import Acl, SetLogin
from shoal.catalog.rights import ADMIN_ID, Rights, User
from shoal.catalog.settings import ClusterSettings
from shoal.errors import InvalidPassword, ShoalError
from shoal.node.attempts import Attempts
from shoal.node.audit import Audit
from shoal.node.catalog_log import CatalogLog, Change, Decision
from shoal.node.rpc import Caller, Rpc
from shoal.pgwire.auth import NONCE_BYTES, Exchange, authenticate, trust
from shoal.protocol.cluster import Done, LoginAttempts
from shoal.storage.catalog_db import CatalogDb
from shoal.topology.cluster import Topology, Variant

_log: Final = logging.getLogger(__name__)

_TELL_SECONDS: Final = 0.1
_CALL_SECONDS: Final = 1.0
_LOCK_SECONDS: Final = 5.0  # for the log to take a lock; then it is asked for again
_HEARD_SECONDS: Final = 1.0  # for another instance to have it locked


class Accounts:
    """Lives on the event loop."""

    def __init__(
        self,
        log: CatalogLog,
        rpc: Rpc,
        loop: asyncio.AbstractEventLoop,
        *,
        self_uuid: str,
        topology: Callable[[], Topology],
        address: Callable[[int], str | None],
        settings: Callable[[], ClusterSettings],
        chance: Random,
        mock_key: bytes,
        audit: Audit,
        scale: float = 1.0,
    ) -> None:
        self._log = log
        self._rpc = rpc
        self._loop = loop
        self._self_uuid = self_uuid
        self._topology = topology
        self._address = address
        self._settings = settings
        self._chance = chance
        self._mock_key = mock_key
        self._audit = audit
        self._scale = scale
        self._attempts = Attempts()
        self._locking: set[int] = set()
        self._tell_at = 0.0  # not before
        self._telling: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        log.on_change(self._on_change)
        rpc.handle(LoginAttempts, self._on_news)

    async def stop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def rights(self) -> Rights:
        return self._log.catalog.rights

    # --- coming in -------------------------------------------------------------------------------

    def exchange(self, name: str, where: str, *, scram_only: bool = False) -> Exchange:
        """Asks for the proof that the client knows the user's password, and raises InvalidPassword without one. `where` it
        comes from is for the audit."""
        user = self._user(name)
        try:
            last = yield from authenticate(
                name,
                None if user is None else user.secret,
                chance=self._chance.randbytes(NONCE_BYTES),
                mock_key=self._mock_key,
                scram_only=scram_only,
                may=lambda: self._may(user),
            )
        except InvalidPassword:
            self._audit.login_refused(name, where, self._why(user))
            if user is not None:
                self._failed(user)
            raise
        assert user is not None
        self._audit.logged_in(name, where)
        self._attempts.succeeded(user.id)
        self._tell()
        return last

    def trust(self, name: str, where: str) -> Exchange:
        """Asks nothing."""
        self._audit.logged_in(name, where)
        return (yield from trust())

    def _user(self, name: str) -> User | None:
        user = self.rights.by_name.get(name)
        return None if user is None or user.is_role else user

    def _may(self, user: User | None) -> bool:
        """Now, and with the password that was asked for."""
        if user is None:
            return False
        now = self.rights.users.get(user.id)
        if now is None or now.secret != user.secret or now.name != user.name:
            return False
        return self.rights.may_log_in(user.id) and not self._is_out(user.id)

    def _is_out(self, user_id: int) -> bool:
        most = self._settings().auth_login_attempt_max
        return bool(most) and self._attempts[user_id] >= most

    def _why(self, user: User | None) -> str:
        """A proof was refused. Not for the client."""
        if user is None:
            return "there is no such user"
        if not self.rights.may_log_in(user.id):
            return "the user may not log in"
        if self._is_out(user.id):
            return "too many wrong passwords before"
        return "no password is set" if user.secret is None else "wrong password"

    def _failed(self, user: User) -> None:
        if not self.rights.may_log_in(user.id):
            return
        self._attempts.failed(user.id)
        self._tell()
        if self._is_out(user.id):
            self._lock(user.id, 0.0)

    # --- locking ---------------------------------------------------------------------------------

    def _lock(self, user_id: int, after_seconds: float) -> None:
        if user_id not in self._locking:
            self._locking.add(user_id)
            self._in_background(self._bring_lock(user_id, after_seconds))

    async def _bring_lock(self, user_id: int, after_seconds: float) -> None:
        def decide(db: CatalogDb) -> Decision | None:
            user = db.catalog.rights.users.get(user_id)
            if user is None:
                return None
            change = SetLogin(user.id, user.name, False, self._attempts[user_id])
            rows = acl_rows(db.catalog, change, ADMIN_ID)
            return Decision(Acl(change, rows, ADMIN_ID)) if rows else None

        try:
            await asyncio.sleep(after_seconds * self._scale)
            while self._is_out(user_id) and self.rights.may_log_in(user_id):
                try:
                    index = await self._log.propose_after(decide, seconds=_LOCK_SECONDS * self._scale)
                except ShoalError as error:
                    _log.warning(
                        "locking user %r is tried again: %s", self.rights.name(user_id), error.message
                    )
                    await asyncio.sleep(_HEARD_SECONDS * self._scale)
                    continue
                if index is not None:
                    _log.warning(
                        "Maximum number of login attempts exceeded; user %r blocked",
                        self.rights.name(user_id),
                    )
                return
        finally:
            self._locking.discard(user_id)

    def _on_change(self, change: Change) -> None:
        before, after = change.before.rights, change.after.rights
        if before is after:
            return
        for user_id in self._attempts.users:
            was, now = before.users.get(user_id), after.users.get(user_id)
            same_password = was is not None and now is not None and was.secret == now.secret
            if not same_password or before.may_log_in(user_id) != after.may_log_in(user_id):
                self._attempts.forget(user_id)

    # --- among the instances ---------------------------------------------------------------------

    def _tell(self) -> None:
        if self._telling is None and self._attempts.has_news:
            self._telling = self._loop.call_at(max(self._loop.time(), self._tell_at), self._tell_now)

    def _tell_now(self) -> None:
        self._telling = None
        self._tell_at = self._loop.time() + _TELL_SECONDS * self._scale
        news = LoginAttempts(self._attempts.take_news())
        for instance in self._topology().instances.values():
            address = self._address(instance.raft_id)
            there = instance.current.variant is Variant.ONLINE and instance.uuid != self._self_uuid
            if there and address is not None and news.news:
                self._in_background(self._send(address, news))

    async def _send(self, address: str, news: msgspec.Struct) -> None:
        try:
            await self._rpc.call(address, news, Done, _CALL_SECONDS * self._scale)
        except ShoalError as error:
            _log.debug("%s was not told of login attempts: %s", address, error.message)

    def _on_news(self, caller: Caller, request: LoginAttempts, deadline: float) -> Done:
        known = [news for news in request.news if self.rights.may_log_in(news.user_id)]
        self._attempts.heard(known)
        for news in known:
            if self._is_out(news.user_id):
                self._lock(news.user_id, _HEARD_SECONDS)
        return Done(self._log.applied)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
