"""Waiting until an entry of the cluster's log has taken effect everywhere.

Here: Applied: everywhere() asks all instances that are Online, and answers when they have applied the entry.
Not here: who wants to know (commands.py: GRANT, REVOKE and their like; WAIT APPLIED GLOBALLY), applying (catalog_log.py).

An instance answers when it has applied the entry and is done with the writes that it had let in before that: who is told
that a right was taken away may rely on it. Reads look at the rights themselves before they send more rows (executing.py).

Nobody waits for who isn't Online: coming Online means to have applied all that was there. But an instance that was Online
when the entry was applied, and hasn't answered, is named, whatever became of it since: it may still be serving somebody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from shoal.errors import RetryableError, ShoalError
from shoal.node.rpc import Caller, Rpc
from shoal.protocol.cluster import Done, HasApplied
from shoal.topology.cluster import Instance, Topology, Variant

_CALL_SECONDS: Final = 1.0  # then we look whether it is still Online
_AGAIN_SECONDS: Final = 0.02


class Log(Protocol):
    """What is asked of CatalogLog."""

    applied: int

    async def wait_applied(self, index: int, deadline: float) -> None: ...


class Applied:
    def __init__(
        self,
        log: Log,
        rpc: Rpc,
        loop: asyncio.AbstractEventLoop,
        *,
        self_uuid: str,
        topology: Callable[[], Topology],
        address: Callable[[int], str | None],
        settled: Callable[[], Awaitable[None]],
        scale: float = 1.0,
    ) -> None:
        """`settled()` returns when the writes that were let in before the call are done."""
        self._log = log
        self._rpc = rpc
        self._loop = loop
        self._self_uuid = self_uuid
        self._topology = topology
        self._address = address
        self._settled = settled
        self._call_seconds = _CALL_SECONDS * scale
        self._online: dict[str, Instance] = {}  # by uuid
        self._left: dict[str, tuple[Instance, int]] = {}  # who was Online, and the entry since which it isn't
        rpc.handle(HasApplied, self._on_has_applied)

    def on_topology(self) -> None:
        """To be called after every entry that changes who is there."""
        now = {other.uuid: other for other in self._topology().instances.values() if _is_online(other)}
        for uuid, instance in self._online.items():
            if uuid not in now:
                self._left[uuid] = instance, self._log.applied
        self._online = now

    async def everywhere(self, index: int, deadline: float) -> tuple[str, ...]:
        """Returns when it has taken effect on every instance that is Online, or at the deadline (of the loop's clock).
        Gives the names of those that have not said so, in order: () is all of them."""
        try:
            await self._log.wait_applied(index, deadline)
        except TimeoutError:
            pass
        # Whoever has come Online since the entry has it. Whoever has left since may be serving somebody all the same.
        online = {other.uuid: other for other in self._topology().instances.values() if _is_online(other)}
        left = {uuid: instance for uuid, (instance, since) in self._left.items() if since > index}
        asked = sorted((left | online).values(), key=lambda instance: instance.name)
        answers = await asyncio.gather(*(self._has(instance, index, deadline) for instance in asked))
        return tuple(instance.name for instance, there in zip(asked, answers, strict=True) if not there)

    async def _has(self, instance: Instance, index: int, deadline: float) -> bool:
        if instance.uuid == self._self_uuid:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._log.wait_applied(index, deadline)
                    await self._settled()
            except (TimeoutError, ShoalError):  # the second: the instance stops
                return False
            return True
        while (left := deadline - self._loop.time()) > 0:
            address = self._address(instance.raft_id)
            if address is not None:
                try:
                    await self._rpc.call(
                        address, HasApplied(index, instance.uuid), Done, min(left, self._call_seconds)
                    )
                    return True
                except ShoalError:
                    pass  # not yet, or it can't be reached
            now = self._topology().by_uuid.get(instance.uuid)
            if now is None or not _is_online(now):
                return False
            if now.current.incarnation > instance.current.incarnation:
                return True
            await asyncio.sleep(min(_AGAIN_SECONDS, max(0.0, deadline - self._loop.time())))
        return False

    async def _on_has_applied(self, caller: Caller, request: HasApplied, deadline: float) -> Done:
        if request.uuid != self._self_uuid:
            raise RetryableError("another instance has this address now")
        try:
            await self._log.wait_applied(request.index, deadline)
        except TimeoutError:
            raise RetryableError(f"entry {request.index} has not arrived here yet") from None
        await self._settled()
        return Done(self._log.applied)


def _is_online(instance: Instance) -> bool:
    return instance.current.variant is Variant.ONLINE
