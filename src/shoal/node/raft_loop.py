"""Raft behind a real clock, disk and network.

Here: RaftLoop: it gives the core ticks and messages, has its Readys saved by the catalog's thread, sends what it says, and
tells what was applied. Compaction and snapshots, too.
Not here: the protocol (raft/node.py), what proposals say (catalog_log.py), connections (rpc/).

One Ready is under way at a time. Whatever comes in meanwhile goes into the next: so under load entries share their
fsync by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shoal.catalog.settings import ClusterSettings
from shoal.errors import DiskFull, Fault, IoError, NotLeader, ShoalError
from shoal.node.catalog_thread import CatalogThread, Result
from shoal.node.crash_points import crash_point
from shoal.raft.messages import (
    NOBODY,
    Chunk,
    Envelope,
    Index,
    MembershipChange,
    RaftId,
    SnapshotMark,
    Term,
    decode,
    encode,
)
from shoal.raft.node import ChunkRequest, Node, Ready
from shoal.raft.progress import State
from shoal.storage.catalog_db import AppliedEntry, CatalogDb, Installed

_log: Final = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 0.25  # after the disk has refused something that it may take later
_CAUGHT_UP_ENTRIES: Final = 1000  # so much may be missing in the log of one who is to vote


@dataclass(frozen=True, slots=True)
class RaftStatus:
    """What this instance knows of the cluster's log. Others may know more."""

    id: int
    term: int
    leader_id: int  # 0: it knows of none
    state: str  # "leader" | "follower" | "candidate" | "learner" | …
    applied: int
    commit: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """What a Ready has made of the catalog."""

    installed: Installed | None
    applied: Sequence[AppliedEntry]


class RaftLoop:
    """All methods are for the event loop."""

    def __init__(
        self,
        core: Node,
        thread: CatalogThread,
        loop: asyncio.AbstractEventLoop,
        *,
        tick_seconds: float,
        send: Callable[[int, bytes], None],
        on_saved: Callable[[Saved], None],
        on_given_up: Callable[[Index, ShoalError], None],
        settings: Callable[[], ClusterSettings],
        fail: Callable[[Fault], None],
    ) -> None:
        self.core: Final = core
        self._thread = thread
        self._loop = loop
        self._tick_seconds = tick_seconds
        self._send = send
        self._on_saved = on_saved
        self._on_given_up = on_given_up
        self._settings = settings
        self._fail = fail
        self._on_role: list[Callable[[], None]] = []
        self._heard: Callable[[int], None] = lambda member: None
        self._role = self._standing()
        self._waiting: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._saving = False
        self._making_snapshot = False
        self._refusing: ShoalError | None = None
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._reads: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._next_read = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def on_role(self, changed: Callable[[], None]) -> None:
        """Calls it when this member's role, the leader that it knows, the term or the members have changed."""
        self._on_role.append(changed)

    def on_heard(self, heard: Callable[[int], None]) -> None:
        """Calls it with each member of whom a message comes."""
        self._heard = heard

    async def until(self, condition: Callable[[], bool]) -> None:
        """Asks each time that something of this has changed."""
        while not condition():
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            await future

    def _standing(self) -> tuple[object, ...]:
        core = self.core
        return core.role, core.leader, core.term, core.membership

    def start(self) -> None:
        if self.core.membership.voters == (self.core.id,):
            self.core.campaign()  # there is nobody to wait for
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)
        self.wake()

    def stop(self) -> None:
        """Nothing leaves any more, and nothing is saved but what is under way."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._reads.values():
            if not future.done():
                future.set_exception(NotLeader())
        self._reads.clear()

    # --- what is asked ---------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self.core.is_leader

    @property
    def leader(self) -> int:
        return self.core.leader

    @property
    def term(self) -> Term:
        return self.core.term

    def status(self) -> RaftStatus:
        core = self.core
        return RaftStatus(
            id=core.id,
            term=core.term,
            leader_id=core.leader,
            state=core.role.value if core.id in core.membership.voters else "learner",
            applied=core.log.applied,
            commit=core.log.commit,
            voters=core.membership.voters,
            learners=core.membership.learners,
        )

    def caught_up(self) -> frozenset[int]:
        """On the leader: whose log is nearly complete."""
        enough = self.core.log.commit - _CAUGHT_UP_ENTRIES
        return frozenset(
            member
            for member, progress in self.core.progress.items()
            if member == self.core.id or (progress.state is State.REPLICATE and progress.match >= enough)
        )

    # --- what comes in ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """A message of another member."""
        try:
            envelope = decode(data)
        except (msgspec.DecodeError, ValueError):
            _log.warning("a Raft message that can't be read was dropped")
            return
        if self._stopped or envelope.receiver != self.core.id:
            return  # it is for somebody who had this address before
        self._heard(envelope.sender)
        self.core.step(envelope)
        self.wake()

    def propose(self, data: Sequence[bytes]) -> Index:
        """Raises NotLeader, ProposalDropped, or what the disk says as long as it takes nothing."""
        if self._refusing is not None:
            raise self._refusing
        index = self.core.propose(data)
        self.wake()
        return index

    def propose_change(self, change: MembershipChange) -> Index:
        index = self.core.propose_change(change)
        self.wake()
        return index

    def transfer_leadership(self, to: int) -> None:
        self.core.transfer_leadership(RaftId(to))
        self.wake()

    def leader_lost(self) -> None:
        self.core.leader_lost()
        self.wake()

    def campaign(self) -> None:
        if self.core.leader == NOBODY:
            self.core.campaign()
            self.wake()

    def unreachable(self, member: int) -> None:
        self.core.unreachable(RaftId(member))
        self.wake()

    async def read_index(self, timeout: float) -> tuple[int, int]:
        """An index that includes all that was acknowledged before the call, and the term of the leader that said so.
        Raises NotLeader, TimeoutError."""
        deadline = self._loop.time() + timeout
        while True:
            self._next_read += 1
            request = self._next_read
            future: asyncio.Future[tuple[int, int]] = self._loop.create_future()
            self._reads[request] = future
            try:
                self.core.read_index(request)
                self.wake()
                # A request or its answer may get lost, or its leader: then another is asked.
                left = deadline - self._loop.time()
                return await asyncio.wait_for(future, min(max(0.0, left), 10 * self._tick_seconds))
            except TimeoutError:
                if self._loop.time() >= deadline:
                    raise
            finally:
                self._reads.pop(request, None)

    # --- the pump --------------------------------------------------------------------------------

    def _tick(self) -> None:
        # One at a time: time that this process was not running is not time that it heard nobody.
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)
        self.core.tick()
        self.wake()

    def wake(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        core = self.core
        while True:
            self._deliver(core.take_messages())
            if self._saving or (ready := core.take_ready()) is None:
                break
            if ready.save is None and ready.install is None and not ready.chunks:
                core.advance(ready)
                self._deliver(ready.messages)
            else:
                self._save(ready)
        for request in core.take_chunk_requests():
            self._answer_chunk(request)
        for answer in core.take_reads():
            waiting = self._reads.get(answer.request)
            if waiting is not None and not waiting.done():
                waiting.set_result((answer.index, answer.term))
        if core.wants_snapshot and not self._making_snapshot:
            self._make_snapshot()
        standing = self._standing()
        if standing != self._role:
            self._role = standing
            for changed in self._on_role:
                changed()
            told, self._waiting = self._waiting, []
            for future in told:
                if not future.done():
                    future.set_result(None)

    def _deliver(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self._send(envelope.receiver, encode(envelope))

    def _save(self, ready: Ready) -> None:
        self._saving = True
        # What of it is done: a disk that is full for a moment must not make it happen twice.
        chunks = list(ready.chunks)
        installed: list[Installed] = []

        def job(db: CatalogDb) -> Saved:
            while chunks:
                db.keep_chunk(chunks[0].mark, chunks[0].offset, chunks[0].data)
                del chunks[0]
            if ready.install is not None and not installed:
                installed.append(db.install(ready.install, ready.hard_state))
            applied: Sequence[AppliedEntry] = ()
            if ready.save is not None:
                crash_point("before", ready.save)
                applied = db.save(ready.save)
                crash_point("after", ready.save)
            return Saved(installed[0] if installed else None, applied)

        def done(result: Result[Saved]) -> None:
            error = result.error
            if error is None:
                self._refusing = None
                self._on_done(ready, result.get())
            elif isinstance(error, DiskFull | IoError):
                self._on_refused(ready, error, lambda: self._thread.post(job, done))
            else:
                self._fail(error if isinstance(error, Fault) else Fault(f"saving failed: {error.message}"))

        self._thread.post(job, done)

    def _on_refused(self, ready: Ready, error: ShoalError, again: Callable[[], None]) -> None:
        """The disk takes nothing now. Nothing of it is saved."""
        if self.core.give_up(ready):
            _log.error("saving to catalog.db failed: %s", error.message)
            self._saving = False
            self._on_given_up(self.core.log.last_index, error)
            self._pump()
            return
        _log.error("saving to catalog.db failed, and is tried again: %s", error.message)
        self._refusing = error
        if self.is_leader:
            # Whoever can't apply leads badly. Another may have space.
            others = sorted(self.caught_up() & {*self.core.membership.voters} - {self.core.id})
            if others:
                self.transfer_leadership(others[0])
        self._loop.call_later(_AGAIN_SECONDS, again)

    def _on_done(self, ready: Ready, saved: Saved) -> None:
        self._saving = False
        self.core.advance(ready)
        self._deliver(ready.messages)
        if saved.installed is not None:
            _log.info("caught up by a snapshot of entry %s", saved.installed.index)
        if saved.installed is not None or saved.applied:
            self._on_saved(saved)
            self._compact_if_long()
        self._pump()

    # --- the log's length, snapshots -------------------------------------------------------------

    def _compact_if_long(self) -> None:
        """Past a bound, half of the log goes: the other half saves those who were away for a moment a snapshot."""
        db, settings = self._thread.db, self._settings()
        if db.log_count <= settings.raft_wal_count_max and db.log_bytes <= settings.raft_wal_size_max:
            return
        log = self.core.log
        kept = min(settings.raft_wal_count_max // 2, db.log_count // 2)
        index = Index(min(log.applied, log.last_index - kept))
        if index <= log.mark.index or self._saving:
            return
        self._saving = True

        def done(result: Result[None]) -> None:
            self._saving = False
            if isinstance(result.error, Fault):
                self._fail(result.error)
                return
            if result.error is not None:
                _log.warning("compacting the log failed: %s", result.error.message)
            else:
                self.core.compact(index)
            self.wake()

        self._thread.post(lambda db: db.compact(index), done)

    def _make_snapshot(self) -> None:
        self._making_snapshot = True

        async def make() -> None:
            chunk_bytes = self._settings().raft_snapshot_chunk_size_max
            try:
                # On another thread: it reads in a transaction of its own, and the log goes on.
                mark: SnapshotMark = await self._loop.run_in_executor(
                    None, lambda: self._thread.db.make_snapshot(chunk_bytes)
                )
            except Exception as error:
                _log.error("making a snapshot failed: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                if not self._stopped:
                    _log.info("made a snapshot of entry %s, for a member that lacks entries", mark.index)
                    self.core.snapshot_made(mark)
            finally:
                self._making_snapshot = False
                self.wake()

        self._in_background(make())

    def _answer_chunk(self, request: ChunkRequest) -> None:
        term = self.core.term

        async def answer() -> None:
            found = await self._loop.run_in_executor(
                None, self._thread.db.read_chunk, request.mark, request.offset
            )
            if found is None:
                chunk = Chunk(term, request.mark, request.offset, b"", last=False, gone=True)
            else:
                chunk = Chunk(term, request.mark, request.offset, *found)
            if not self._stopped:
                self._deliver([Envelope(self.core.id, request.member, chunk)])

        self._in_background(answer())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
