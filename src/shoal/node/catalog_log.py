"""The cluster's log as the rest of an instance sees it: the catalog that it adds up to, and putting entries into it.

Here: CatalogLog: deciding on an entry, bringing it to the leader, trying again where another was quicker, and learning what
became of it; on the leader, whether a proposal may join the log.
Not here: agreement (raft/, raft_loop.py), what entries do (catalog/apply.py), what conflicts (catalog/cas.py).

Whoever proposes decides on the state that this instance has applied, which may be old. So the leader compares before it
swaps: an entry whose decision rests on rows that have changed since is refused, and decided anew. A decision to do nothing,
or to refuse, is as old as the state: it counts only if that state has all that was acknowledged before the statement
began.

What became of a proposal is told by the log itself. Each entry names its origin, and every instance applies every
entry: so an answer that was lost on the way back makes nothing uncertain, as long as this instance goes on. And the
answer comes after the loop has the catalog that follows: who is told that a table was created can use it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from shoal.catalog.apply import Catalog
from shoal.catalog.cas import Predicate, Range, Tail, conflict
from shoal.catalog.entries import (
    Entry,
    Nop,
    Record,
    RowChange,
    decode,
    decode_record,
    encode,
    encode_record,
)
from shoal.errors import (
    NotLeader,
    OutcomeUnknown,
    ProgramLimitExceeded,
    QueryCanceled,
    RetryableError,
    ShoalError,
)
from shoal.node.catalog_thread import CatalogThread
from shoal.node.outside import Outside
from shoal.node.raft_loop import RaftLoop, Saved
from shoal.protocol.cluster import Propose, Proposed
from shoal.raft.messages import Entry as RaftEntry
from shoal.raft.messages import EntryKind, Index
from shoal.storage.catalog_db import CatalogDb

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

# An entry travels as a whole, and every instance holds it in memory until the log is compacted.
ENTRY_BYTES_MAX: Final = 16 << 20
DEADLINE_SECONDS: Final = 60.0  # of a proposal for which nobody has said less
_RETRY_SECONDS: Final = 0.05  # between two questions to a leader that may be there by now
# How far back a proposal's decision may lie. Whoever is further behind decides anew.
_TAIL_AT_FIRST: Final = 2_000
_TAIL_MAX: Final = 20_000

_encode_predicate: Final = msgspec.msgpack.Encoder().encode
_decode_predicate: Final = msgspec.msgpack.Decoder(Predicate).decode


@dataclass(frozen=True, slots=True)
class Decision:
    """An entry to propose, and what the decision has read besides the rows that the entry writes."""

    entry: Entry
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What an entry, or a snapshot, has made of the catalog. `record`: of an entry of the catalog's."""

    before: Catalog
    after: Catalog
    rows: Sequence[RowChange]
    record: Record | None
    index: int
    by_snapshot: bool = False


class Leader(Protocol):
    """How proposals reach the instance that leads."""

    async def propose(self, leader: int, request: Propose, timeout: float) -> Proposed: ...


class _Lost(Exception):
    """The entry never joined the log, and never will."""


class _Proposal:
    """One entry on its way. `index` and `term` are where the leader has put it, once that is known."""

    __slots__ = ("fate", "index", "term")

    def __init__(self, fate: asyncio.Future[int]) -> None:
        self.fate = fate
        self.index: int | None = None
        self.term = 0


class CatalogLog:
    """All methods are for the event loop."""

    def __init__(self, thread: CatalogThread, loop: asyncio.AbstractEventLoop, outside: Outside) -> None:
        self._thread = thread
        self._loop = loop
        self._now = outside.now
        self.catalog: Catalog = thread.db.catalog
        self.applied: int = thread.db.applied
        self._changed: list[Callable[[Change], None]] = []
        self._next_change: list[asyncio.Future[None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # for an index to be applied
        self._process = outside.chance.getrandbits(
            63
        )  # names this run of the instance in the origins of its entries
        self._counter = 0
        self._proposals: dict[int, _Proposal] = {}  # by the origin's counter
        self._placed: dict[int, int] = {}  # index → counter, of proposals whose index is known
        self._tail: Tail | None = None
        self._tail_term = 0
        self._raft: RaftLoop
        self._leader: Leader

    def attach(self, raft: RaftLoop, leader: Leader) -> None:
        self._raft = raft
        self._leader = leader

    def on_change(self, changed: Callable[[Change], None]) -> None:
        """Calls it on the loop after each entry, before whoever proposed the entry is answered."""
        self._changed.append(changed)

    # --- what was applied ------------------------------------------------------------------------

    def on_saved(self, saved: Saved) -> None:
        before = self.catalog
        changes: list[Change] = []
        if saved.installed is not None:
            installed = saved.installed
            changes.append(Change(before, installed.after, installed.changes, None, installed.index, True))
            before = installed.after
        for entry in saved.applied:
            after = entry.applied.catalog
            changes.append(Change(before, after, entry.applied.changes, entry.record, entry.index))
            before = after
        for change in changes:
            self.catalog = change.after
            self.applied = change.index
            for changed in self._changed:
                changed(change)
            self._settle(change)
        self._wake()

    def _settle(self, change: Change) -> None:
        """Tells who waits for the entry what became of it."""
        if change.by_snapshot:
            self._settle_by_snapshot(change)
            return
        mine = change.record is not None and change.record.origin[0] == self._process
        if mine and change.record is not None:
            proposal = self._proposals.pop(change.record.origin[1], None)
            if proposal is not None:
                if proposal.index is not None:
                    self._placed.pop(proposal.index, None)
                if not proposal.fate.done():
                    proposal.fate.set_result(change.index)
        counter = self._placed.pop(change.index, None)
        if counter is not None:
            # Another entry stands where it was to be: that leader's log was overwritten.
            self._end(counter, _Lost())

    def _settle_by_snapshot(self, change: Change) -> None:
        """Its entries can't be seen any more. Of schema changes the catalog remembers what became."""
        error = "the write may have happened: this instance has caught up with the cluster without seeing it"
        for counter, proposal in list(self._proposals.items()):
            index = proposal.index
            if index is not None and change.after.was_prepared(index, proposal.term):
                del self._proposals[counter], self._placed[index]
                if not proposal.fate.done():
                    proposal.fate.set_result(index)
            elif index is None or index <= change.index:
                self._end(counter, OutcomeUnknown(error))

    def on_given_up(self, last: int, error: ShoalError) -> None:
        """The leader has forgotten what came after `last`: it joined no log, and never will."""
        self._tail = None
        for counter in [counter for index, counter in self._placed.items() if index > last]:
            self._end(counter, error)

    def _end(self, counter: int, error: Exception) -> None:
        proposal = self._proposals.pop(counter, None)
        if proposal is not None:
            if proposal.index is not None:
                self._placed.pop(proposal.index, None)
            if not proposal.fate.done():
                proposal.fate.set_exception(error)
                proposal.fate.exception()  # who waits may still be asking the leader, and hear there what it needs

    def _wake(self) -> None:
        waiting, self._next_change = self._next_change, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        if self._waiting:
            there = [future for index, future in self._waiting if index <= self.applied]
            self._waiting = [(index, future) for index, future in self._waiting if index > self.applied]
            for future in there:
                if not future.done():
                    future.set_result(None)

    async def next_change(self) -> None:
        """Returns when another entry has been applied."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._next_change.append(future)
        await future

    async def wait_applied(self, index: int, deadline: float) -> None:
        """Raises TimeoutError."""
        if self.applied < index:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((index, future))
            await asyncio.wait_for(future, max(0.0, deadline - self._loop.time()))

    def applied_after(self, index: int) -> Iterator[tuple[int, Record]]:
        """What the log still has of the entries behind that one, up to the last that is applied."""
        log = self._raft.core.log
        first = Index(max(index, log.mark.index) + 1)
        if first <= self.applied:
            for entry in log.entries(first, Index(self.applied)):
                if entry.kind is EntryKind.NORMAL and entry.data:
                    yield entry.index, decode_record(entry.data)

    async def catch_up(self, deadline: float) -> int:
        """Returns when all that was acknowledged before the call is applied here, and up to where that is. Raises
        NotLeader if nobody leads until then."""
        index, _ = await self._read_index(deadline)
        try:
            await self.wait_applied(index, deadline)
        except TimeoutError:
            raise NotLeader(self._raft.leader) from None
        return index

    async def _read_index(self, deadline: float) -> tuple[int, int]:
        while True:
            left = deadline - self._loop.time()
            try:
                return await self._raft.read_index(left)
            except (NotLeader, TimeoutError):
                if self._loop.time() + _RETRY_SECONDS >= deadline:
                    raise NotLeader(self._raft.leader) from None
            await asyncio.sleep(_RETRY_SECONDS)

    async def tidy(self) -> None:
        """Drops physical tables that no catalog names: of global tables that were dropped or truncated."""
        await self._thread.run(lambda db: db.drop_unnamed())

    async def on_thread(self, job: Callable[[CatalogDb], T]) -> T:
        """For what reads the database at its last applied entry."""
        return await self._thread.run(job)

    # --- proposing -------------------------------------------------------------------------------

    async def propose(self, entry: Entry, *, seconds: float = DEADLINE_SECONDS) -> int:
        """An entry that rests on nothing but the rows that it writes. Returns its index, when it is applied here."""
        index = await self.propose_after(lambda db: Decision(entry), seconds=seconds)
        assert index is not None
        return index

    async def propose_after(
        self, decide: Callable[[CatalogDb], Decision | None], *, seconds: float = DEADLINE_SECONDS
    ) -> int | None:
        """Decides, on the catalog's thread, with the state that the entry is to follow; None proposes nothing. What
        `decide` raises is the answer. It may be asked several times.

        Being cancelled before the entry is on its way is the end of it; after that it is OutcomeUnknown.
        """
        deadline = self._loop.time() + seconds
        needed: int | None = None  # the state must have this to be no older than the statement
        while True:
            at, term, decision, error = await self._thread.run(lambda db: _decided(db, decide))
            if decision is not None:
                index = await self._bring(decision, Predicate(term, at, decision.ranges), deadline)
                if index is not None:
                    return index
                continue
            if isinstance(error, QueryCanceled):
                raise error
            if needed is None:
                needed, _ = await self._read_index(deadline)
            if at >= needed:
                if error is not None:
                    raise error
                return None
            await self._wait(needed, deadline)

    async def propose_at(self, decision: Decision, at: int) -> bool:
        """On the leader, for the governor: what was decided on the state after that entry goes into the log. False: other
        entries came between, which are applied by now. There it is planned anew, so nothing is tried twice."""
        term = self._raft.term
        predicate = Predicate(self._raft.core.log.term_at(Index(at)) or 0, at, decision.ranges)
        self._counter += 1
        counter = self._counter
        proposal = self._proposals[counter] = _Proposal(self._loop.create_future())
        try:
            reply = self.accept(term, predicate, (self._process, counter), decision.entry)
            deadline = self._loop.time() + DEADLINE_SECONDS
            if reply.conflict is not None:
                _log.debug("not proposed: %s", reply.conflict)
                await self._wait(reply.index, deadline)
                return False
            return await self._settled(proposal, counter, reply, deadline) is not None
        finally:
            if self._proposals.pop(counter, None) is not None and proposal.index is not None:
                self._placed.pop(proposal.index, None)

    async def _wait(self, index: int, deadline: float) -> None:
        try:
            await self.wait_applied(index, deadline)
        except TimeoutError:
            raise NotLeader(self._raft.leader) from None

    async def _bring(self, decision: Decision, predicate: Predicate, deadline: float) -> int | None:
        """To the leader, and waits until it is applied here. None: it must be decided anew."""
        self._counter += 1
        counter = self._counter
        proposal = self._proposals[counter] = _Proposal(self._loop.create_future())
        on_its_way = False
        try:
            while True:
                term = self._raft.term
                try:
                    on_its_way = True
                    reply = await self._ask(decision.entry, predicate, counter, term, deadline)
                except RetryableError:
                    on_its_way = False
                    await self._pause(deadline)
                    continue
                except OutcomeUnknown:
                    return await self._find_out(proposal, term, deadline)
                if reply.conflict is not None:
                    on_its_way = False
                    await self._wait(reply.index, deadline)
                    return None
                return await self._settled(proposal, counter, reply, deadline)
        except asyncio.CancelledError:
            if on_its_way:
                raise OutcomeUnknown(
                    "canceling statement", detail="It is on its way into the log, and may happen."
                ) from None
            raise
        finally:
            if self._proposals.pop(counter, None) is not None and proposal.index is not None:
                self._placed.pop(proposal.index, None)

    async def _ask(
        self, entry: Entry, predicate: Predicate, counter: int, term: int, deadline: float
    ) -> Proposed:
        origin = (self._process, counter)
        raft = self._raft
        if raft.is_leader:
            return self.accept(term, predicate, origin, entry)
        if not raft.leader:
            raise NotLeader
        request = Propose(term, _encode_predicate(predicate), origin, encode(entry))
        return await self._leader.propose(raft.leader, request, max(0.0, deadline - self._loop.time()))

    async def _pause(self, deadline: float) -> None:
        """Nobody leads, or nobody who can be reached: until somebody does."""
        if self._loop.time() + _RETRY_SECONDS >= deadline:
            raise NotLeader(self._raft.leader)
        await asyncio.sleep(_RETRY_SECONDS)

    async def _settled(
        self, proposal: _Proposal, counter: int, there: Proposed, deadline: float
    ) -> int | None:
        """The leader has it in its log."""
        if not proposal.fate.done():
            if self.applied >= there.index:
                return None  # something else was applied there, or we had been told
            proposal.index, proposal.term = there.index, there.term
            self._placed[there.index] = counter
        try:
            return await asyncio.wait_for(
                asyncio.shield(proposal.fate), max(0.0, deadline - self._loop.time())
            )
        except _Lost:
            return None
        except TimeoutError:
            raise OutcomeUnknown(
                "timeout", detail="It is in the leader's log, and may be committed later."
            ) from None

    async def _find_out(self, proposal: _Proposal, term: int, deadline: float) -> int | None:
        """The answer was lost. A leader of a later term has committed an entry of its own: what an earlier one has
        put into its log is before that, or nowhere."""
        while True:
            wait = min(_RETRY_SECONDS * 4, max(0.0, deadline - self._loop.time()))
            try:
                return await asyncio.wait_for(asyncio.shield(proposal.fate), wait)
            except TimeoutError:
                pass
            try:
                index, later = await self._read_index(deadline)
                await self.wait_applied(index, deadline)
            except (NotLeader, TimeoutError):
                later = term
            if proposal.fate.done():
                return proposal.fate.result()
            if later > term:
                return None
            if self._loop.time() >= deadline:
                raise OutcomeUnknown("timeout", detail="The leader was lost; the write may have happened.")

    # --- on the leader ---------------------------------------------------------------------------

    def on_propose(self, request: Propose) -> Proposed:
        """Another instance's proposal."""
        try:
            predicate, entry = _decode_predicate(request.predicate), decode(request.entry)
        except msgspec.MsgspecError as error:
            raise RetryableError(f"a proposal that can't be read: {error}") from None
        return self.accept(request.term, predicate, request.origin, entry)

    def accept(self, term: int, predicate: Predicate, origin: tuple[int, int], entry: Entry) -> Proposed:
        """Compares, and appends. Raises NotLeader or ProposalDropped.

        `term` is the one in which the proposer knew this leader: were it another by now, a proposer that has lost
        the answer could not tell when to give up.
        """
        raft = self._raft
        if not raft.is_leader or raft.term != term:
            raise NotLeader(raft.leader if not raft.is_leader else 0)
        tail = self._fed_tail()
        known = raft.core.log.term_at(Index(predicate.index))
        if known is not None and known != predicate.term:
            return Proposed(self.applied, term, f"entry {predicate.index} is of another term here")
        why = conflict(predicate, entry, tail, self.catalog.schema, self.applied)
        if why is not None:
            return Proposed(tail.last, term, why)
        data = encode_record(Record(self._now(), origin, entry))
        if len(data) > ENTRY_BYTES_MAX:
            raise ProgramLimitExceeded(
                f"one statement changes {len(data)} bytes of global tables, the most is {ENTRY_BYTES_MAX}",
                hint="Change the rows in several statements.",
            )
        index = raft.propose([data])
        tail.append(index, entry)
        if tail.last - tail.first > _TAIL_MAX:
            tail.trim(min(self.applied, tail.last - _TAIL_MAX // 2) + 1)
        return Proposed(index, term)

    def _fed_tail(self) -> Tail:
        """With everything that is in the log by now: also what came without accept()."""
        raft = self._raft
        log = raft.core.log
        tail = self._tail
        if tail is None or self._tail_term != raft.term:
            # What isn't applied here must be in it: the schema that is compared is that of the last applied entry.
            first = max(log.mark.index, min(self.applied, log.last_index - _TAIL_AT_FIRST))
            tail = self._tail = Tail(first)
            self._tail_term = raft.term
        if tail.last < log.last_index:
            for entry in log.entries(Index(tail.last + 1)):
                tail.append(entry.index, _entry_of(entry))
        return tail


def _decided(
    db: CatalogDb, decide: Callable[[CatalogDb], Decision | None]
) -> tuple[int, int, Decision | None, ShoalError | None]:
    """On which state, by its last entry and that one's term, and what."""
    try:
        return db.applied, db.applied_term, decide(db), None
    except ShoalError as error:
        return db.applied, db.applied_term, None, error


def _entry_of(entry: RaftEntry) -> Entry:
    if entry.kind != 0 or not entry.data:
        return Nop()
    return decode_record(entry.data).entry
