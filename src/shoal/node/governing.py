"""The governor at work: on the leader, steps are planned, carried out, and planned anew.

Here: Governing: when to plan, what the rules get to see, carrying steps out.
Not here: which steps (governor/), schema changes (ddl.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from shoal.catalog.entries import Dml
from shoal.catalog.members import TABLE_IDS
from shoal.catalog.rights import ADMIN_ID
from shoal.catalog.system import PICO_TIER
from shoal.errors import RetryableError, ShoalError
from shoal.governor.plan import plan
from shoal.governor.state import AddLearner, AddVoter, Cluster, HandOver, Lane, Remove, Step, Write
from shoal.node.catalog_log import CatalogLog, Change, Decision
from shoal.node.raft_loop import RaftLoop
from shoal.raft.membership import RefusedChange
from shoal.raft.messages import ChangeKind, MembershipChange, RaftId
from shoal.topology.cluster import Topology

_log: Final = logging.getLogger(__name__)

_LOOKED_AT: Final = TABLE_IDS | {PICO_TIER.id}
_LOOK_SECONDS: Final = 0.5  # who has caught up is told by no entry
_AGAIN_SECONDS: Final = 0.1
_STEP_SECONDS: Final = 10.0


class Governing:
    def __init__(
        self,
        raft: RaftLoop,
        log: CatalogLog,
        topology: Callable[[], Topology],
        loop: asyncio.AbstractEventLoop,
        scale: float,
    ) -> None:
        self._raft = raft
        self._log = log
        self._topology = topology
        self._loop = loop
        self._scale = scale
        self._busy: dict[Lane, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._stopped = False

    def start(self) -> None:
        self._raft.on_role(self.wake)
        self._log.on_change(self._on_change)
        self._look()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        if self._raft.is_leader and not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._plan)

    def _on_change(self, change: Change) -> None:
        if any(row.table_id in _LOOKED_AT for row in change.rows):
            self.wake()

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_SECONDS * self._scale, self._look)
        self.wake()

    def _plan(self) -> None:
        self._scheduled = False
        core = self._raft.core
        if not core.is_leader or not core.has_committed_in_its_term or self._stopped:
            return
        topology = self._topology()
        if not topology.instances:
            return  # the first entry isn't applied yet
        cluster = Cluster(
            topology=topology,
            tiers=self._log.catalog.schema.tiers,
            leader=core.id,
            voters=core.membership.voters,
            learners=core.membership.learners,
            caught_up=self._raft.caught_up(),
        )
        for step in plan(cluster, frozenset(self._busy)):
            self._busy[step.lane] = self._loop.create_task(self._carry_out(step))

    async def _carry_out(self, step: Step) -> None:
        try:
            _log.info("governor: %s", step.why)
            async with asyncio.timeout(_STEP_SECONDS * self._scale):
                await self._take(step)
        except (RetryableError, TimeoutError) as error:
            _log.info("governor: %s: not now: %s", step.why, error)
            await asyncio.sleep(_AGAIN_SECONDS)
        except (ShoalError, RefusedChange) as error:
            _log.warning("governor: %s: %s", step.why, error)
            await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            self._busy.pop(step.lane, None)
            self.wake()

    async def _take(self, step: Step) -> None:
        match step:
            case Write():
                await self._log.propose_at(
                    Decision(Dml(step.changes, ADMIN_ID), step.ranges), self._log.applied
                )
            case AddLearner():
                await self._change(ChangeKind.ADD_LEARNER, step.raft_id)
            case AddVoter():
                await self._change(ChangeKind.ADD_VOTER, step.raft_id)
            case Remove():
                await self._change(ChangeKind.REMOVE, step.raft_id)
            case HandOver():
                self._raft.transfer_leadership(step.raft_id)
                await self._raft.until(lambda: not self._raft.is_leader)

    async def _change(self, kind: ChangeKind, raft_id: int) -> None:
        index = self._raft.propose_change(MembershipChange(kind, RaftId(raft_id)))
        await self._log.wait_applied(index, self._loop.time() + _STEP_SECONDS * self._scale)
