"""The governor at work: on the leader, steps are planned, carried out, and planned anew.

Here: Governing: when to plan, what the rules get to see, carrying steps out.
Not here: which steps (governor/), what a master does about a schema change (own_tables.py).

A lane has at most one step under way, and after one that failed it rests for a moment: longer each time, and no other
lane with it. A step that something else has made needless is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from shoal.catalog.apply import Pending, after
from shoal.catalog.entries import Dml
from shoal.catalog.members import TABLE_IDS
from shoal.catalog.rights import ADMIN_ID
from shoal.catalog.system import PICO_PENDING_SCHEMA_CHANGE, PICO_TIER
from shoal.errors import (
    AdminShutdown,
    CannotConnectNow,
    OutcomeUnknown,
    QueryCanceled,
    RetryableError,
    ShoalError,
)
from shoal.governor.plan import plan
from shoal.governor.state import (
    AddLearner,
    AddVoter,
    ApplyChange,
    CheckChange,
    Cluster,
    EndChange,
    HandOver,
    Lane,
    Refusal,
    Remove,
    Step,
    Verdict,
    Write,
)
from shoal.node.catalog_log import CatalogLog, Change, Decision
from shoal.node.hearing import Hearing
from shoal.node.raft_loop import RaftLoop
from shoal.node.rpc import Rpc, TimedOut
from shoal.protocol.cluster import ApplySchemaChange, Done
from shoal.raft.membership import RefusedChange
from shoal.raft.messages import ChangeKind, MembershipChange, RaftId
from shoal.topology.cluster import Topology

_log: Final = logging.getLogger(__name__)

_LOOKED_AT: Final = TABLE_IDS | {PICO_TIER.id, PICO_PENDING_SCHEMA_CHANGE.id}
_LOOK_SECONDS: Final = 0.5  # who has caught up is told by no entry
_REST_SECONDS: Final = 0.1  # of a lane, after a step that failed; twice as long after the next
_REST_SECONDS_MAX: Final = 1.0
_STEP_SECONDS: Final = 10.0
_APPLY_SECONDS: Final = 30.0  # then it is asked once more, in case that the question got lost

# What a question to another instance meets on its way, or there: it says nothing about what was asked.
_ON_THE_WAY: Final = (RetryableError, OutcomeUnknown, CannotConnectNow, AdminShutdown, QueryCanceled)


class Governing:
    def __init__(
        self,
        raft: RaftLoop,
        log: CatalogLog,
        rpc: Rpc,
        loop: asyncio.AbstractEventLoop,
        *,
        topology: Callable[[], Topology],
        address: Callable[[int], str | None],
        apply: Callable[[int], Awaitable[None]],
        hearing: Hearing,
        offline_seconds: Callable[[], float],
        now: Callable[[], int],
        scale: float,
    ) -> None:
        self._raft = raft
        self._log = log
        self._rpc = rpc
        self._loop = loop
        self._topology = topology
        self._address = address
        self._apply = apply  # a schema change, to our own tables
        self._hearing = hearing
        self._offline_seconds = offline_seconds
        self._now = now
        self._scale = scale
        self._busy: dict[Lane, tuple[Step, asyncio.Task[None]]] = {}
        self._failures: dict[Lane, int] = {}  # one after another
        self._verdicts: dict[tuple[int, int], Verdict] = {}  # by version and raft id
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._stopped = False

    def start(self) -> None:
        self._raft.on_role(self._on_role)
        self._log.on_change(self._on_change)
        self._look()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for _, task in self._busy.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        if self._raft.is_leader and not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._plan)

    def _on_role(self) -> None:
        if not self._raft.is_leader:
            self._verdicts.clear()
            self._failures.clear()
        self.wake()

    def _on_change(self, change: Change) -> None:
        # A new leader may act once its first entry is applied, which is no record.
        if change.record is not None and not any(row.table_id in _LOOKED_AT for row in change.rows):
            return
        if change.before.pending is not change.after.pending:
            self._forget_ended(change.after.pending)
        self.wake()

    def _forget_ended(self, pending: Mapping[int, Pending]) -> None:
        for key in [key for key in self._verdicts if key[0] not in pending]:
            del self._verdicts[key]
        for step, task in self._busy.values():
            if isinstance(step, ApplyChange) and step.version not in pending:
                task.cancel()

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
            catalog=self._log.catalog,
            leader=core.id,
            voters=core.membership.voters,
            learners=core.membership.learners,
            caught_up=self._raft.caught_up(),
            verdicts=self._verdicts,
            heard=self._hearing.of_all(),
            offline_seconds=self._offline_seconds(),
            now=self._now(),
        )
        steps = plan(cluster, frozenset(self._busy))
        wanted = {step.lane for step in steps} | self._busy.keys()
        self._failures = {lane: count for lane, count in self._failures.items() if lane in wanted}
        for step in steps:
            task = self._loop.create_task(self._carry_out(step, self._log.applied))
            self._busy[step.lane] = step, task

    async def _carry_out(self, step: Step, at: int) -> None:
        """It was planned on the state after entry `at`; by now there may be more."""
        failures = self._failures.pop(step.lane, 0)
        try:
            _log.info("governor: %s", step.why)
            if await self._take(step, at):
                failures = 0
            else:
                failures += 1
                self._failures[step.lane] = failures
                await asyncio.sleep(min(_REST_SECONDS * 2 ** (failures - 1), _REST_SECONDS_MAX) * self._scale)
        finally:
            del self._busy[step.lane]
            self.wake()

    async def _take(self, step: Step, at: int) -> bool:
        """False: not now."""
        try:
            match step:
                case ApplyChange() | CheckChange():
                    await self._ask_for_verdict(step)
                case _:
                    async with asyncio.timeout(_STEP_SECONDS * self._scale):
                        await self._change(step, at)
        except TimedOut:
            return True  # it may well be at it: that it takes long is no reason to wait longer
        except (*_ON_THE_WAY, TimeoutError) as error:
            _log.info("governor: %s: not now: %s", step.why, str(error) or "not in time")
            return False
        except (ShoalError, RefusedChange) as error:
            _log.warning("governor: %s: %s", step.why, error)
            return False
        except Exception as error:
            _log.error("governor: %s: failed by a bug", step.why, exc_info=error)
            return False
        return True

    async def _change(self, step: Step, at: int) -> None:
        match step:
            case Write():
                await self._log.propose_at(Decision(Dml(step.changes, ADMIN_ID), step.ranges), at)
            case EndChange():
                await self._log.propose_at(Decision(step.entry, step.ranges), at)
            case AddLearner():
                await self._change_members(ChangeKind.ADD_LEARNER, step.raft_id)
            case AddVoter():
                await self._change_members(ChangeKind.ADD_VOTER, step.raft_id)
            case Remove():
                await self._change_members(ChangeKind.REMOVE, step.raft_id)
            case HandOver():
                self._raft.transfer_leadership(step.raft_id)
                await self._raft.until(lambda: not self._raft.is_leader)

    async def _change_members(self, kind: ChangeKind, raft_id: int) -> None:
        index = self._raft.propose_change(MembershipChange(kind, RaftId(raft_id)))
        await self._log.wait_applied(index, self._loop.time() + _STEP_SECONDS * self._scale)

    # --- schema changes --------------------------------------------------------------------------

    async def _ask_for_verdict(self, step: ApplyChange | CheckChange) -> None:
        at = step.raft_id if isinstance(step, ApplyChange) else self._raft.core.id
        verdict: Verdict = None
        try:
            if isinstance(step, CheckChange):
                await self._check(step.version)
            elif at == self._raft.core.id:
                await self._apply(step.version)
            else:
                address = self._address(at)
                if address is None:
                    raise RetryableError(f"nobody knows where the instance with raft id {at} is")
                request = ApplySchemaChange(step.version)
                await self._rpc.call(address, request, Done, _APPLY_SECONDS * self._scale)
        except _ON_THE_WAY:
            raise
        except ShoalError as error:
            verdict = Refusal(error.sqlstate, error.message, error.detail)
        if step.version in self._log.catalog.pending and self._raft.is_leader:
            self._verdicts[step.version, at] = verdict

    async def _check(self, version: int) -> None:
        """What the apply of its DdlCommit must not find out too late: an apply can't fail."""
        catalog = self._log.catalog
        pending = catalog.pending.get(version)
        becomes = None if pending is None else after(catalog.schema, pending.change, version)
        if pending is not None and becomes is not None:
            before = catalog.schema.tables_by_id.get(pending.table_id)
            await self._log.on_thread(lambda db: db.check_migration(before, becomes))
