"""Finding the cluster to join, or finding out that this instance is to begin it.

Here: Discovery: asking the others, answering them, telling the log what it waits for.
Not here: who begins a cluster (topology/search.py), joining (membership.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from shoal.errors import InvalidConfiguration, ShoalError
from shoal.node.rpc import Caller, Rejected, Rpc
from shoal.protocol.cluster import Discover, Discovered, Found
from shoal.topology.search import Search, Seeker

_log: Final = logging.getLogger(__name__)

_ROUND_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 2.0
_SAY_SECONDS: Final = 5.0


class Discovery:
    def __init__(self, rpc: Rpc, me: Seeker, peers: Iterable[str], scale: float) -> None:
        self.found: Found | None = None  # the cluster that this instance is in by now, and who is
        self._rpc = rpc
        self._scale = scale
        self._search = Search(me, set(peers))
        rpc.handle(Discover, self._answer)

    def _answer(self, caller: Caller, request: Discover, deadline: float) -> Discovered:
        search, me = self._search, self._search.me
        if not search.decided:
            search.asked_by(Seeker(request.uuid, request.address, request.can_vote), request.known)
        return Discovered(me.uuid, me.address, me.can_vote, tuple(sorted(search.known)), self.found)

    async def run(self) -> Found | None:
        """The cluster that there is; None: this instance is to begin it. Raises InvalidConfiguration when all the others
        turn it away."""
        said = 0.0
        loop = asyncio.get_running_loop()
        while True:
            # Those that have answered are asked again: the one that is to begin may have done so by now.
            search = self._search
            others = sorted(search.known - {search.me.address})
            answers = await asyncio.gather(*(self._ask(address) for address in others))
            for found in answers:
                if isinstance(found, Found):
                    return found
            refusals = [answer for answer in answers if isinstance(answer, Rejected)]
            if refusals and len(refusals) == len(others):
                # Were it one of them, that one could be the one that is wrong.
                raise InvalidConfiguration("\n".join(dict.fromkeys(refusal.message for refusal in refusals)))
            if search.decide():
                return None
            if loop.time() >= said + _SAY_SECONDS * self._scale:
                if said:
                    self._say()
                said = loop.time()
            await asyncio.sleep(_ROUND_SECONDS)

    async def _ask(self, address: str) -> Found | Rejected | None:
        search, me = self._search, self._search.me
        request = Discover(me.uuid, me.address, me.can_vote, tuple(sorted(search.known)))
        try:
            reply = await self._rpc.call(address, request, Discovered, _ASK_SECONDS * self._scale)
        except ShoalError as error:
            # What it knew may have changed by the time that it is there again.
            search.answered.pop(address, None)
            return error if isinstance(error, Rejected) else None
        if reply.uuid == me.uuid and address != me.address:
            search.answered[address] = me  # an alias of our own
            return None
        search.hear(address, Seeker(reply.uuid, reply.address, reply.can_vote), reply.known)
        return reply.found

    def _say(self) -> None:
        search = self._search
        waits = search.to_ask()
        for address in waits:
            _log.warning(
                "looking for the cluster: no answer from %s: %s", address, self._rpc.trouble(address)
            )
        if not waits:
            first = search.first()
            if first is None:
                _log.warning("looking for the cluster: none of those that are there may vote")
            else:
                _log.info("waiting for the instance at %s to begin the cluster", first.address)
