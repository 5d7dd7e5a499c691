"""A Raft group in one process, moved by hand: no message arrives and no time passes unless a test says so.

Here: Disk, a LogStore in memory; Member, a node with its disk; Group, members and the messages between them.
Not here: the words that scripts say it in (test_scripts.py), chance and faults of their own (sim/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from shoal.raft.messages import (
    Chunk,
    Entry,
    EntryKind,
    Envelope,
    HardState,
    Index,
    Membership,
    RaftId,
    SnapshotMark,
    Term,
    decode,
    encode,
)
from shoal.raft.node import Limits, Node, Ready
from shoal.raft.store import LogStore, Save, Stored

NOTHING = SnapshotMark(Index(0), Term(0), Membership())
ENTRIES_PER_CHUNK = 2


class Disk:
    """A LogStore whose state machine is the list of the entries that were applied."""

    def __init__(self, stored: Stored, state: Sequence[Entry] = ()) -> None:
        self.hard_state = stored.hard_state
        self.mark = stored.mark
        self.entries = list(stored.entries)
        self.applied = stored.applied
        self.membership = stored.membership
        self.state = list(state)
        self.is_full = False
        self._snapshot: tuple[SnapshotMark, list[Entry]] | None = None
        self._parts: tuple[SnapshotMark, list[Entry]] | None = None

    def load(self) -> Stored:
        return Stored(self.hard_state, self.mark, tuple(self.entries), self.applied, self.membership)

    def save(self, save: Save) -> None:
        if save.hard_state is not None:
            self.hard_state = save.hard_state
        if save.entries:
            first = save.entries[0].index
            assert self.applied < first <= self.mark.index + len(self.entries) + 1, (self.applied, first)
            del self.entries[first - self.mark.index - 1 :]
            self.entries += save.entries
        for entry in save.committed:
            assert entry.index == self.applied + 1, (entry, self.applied)
            assert self.entries[entry.index - self.mark.index - 1] == entry
            self.state.append(entry)
            self.applied = entry.index
        if save.membership is not None:
            self.membership = save.membership
        self._check()

    def compact(self, index: Index) -> None:
        assert self.mark.index <= index <= self.applied
        if index == self.mark.index:
            return
        term = self.entries[index - self.mark.index - 1].term
        del self.entries[: index - self.mark.index]
        self.mark = SnapshotMark(index, term, self.membership)

    def make_snapshot(self) -> SnapshotMark:
        at = self.applied - self.mark.index
        term = self.entries[at - 1].term if at else self.mark.term
        mark = SnapshotMark(self.applied, term, self.membership)
        self._snapshot = (mark, list(self.state))
        return mark

    def forget_snapshot(self) -> None:
        self._snapshot = None

    def read_chunk(self, mark: SnapshotMark, offset: int) -> tuple[bytes, bool] | None:
        if self._snapshot is None or self._snapshot[0] != mark:
            return None
        state = self._snapshot[1]
        first = offset * ENTRIES_PER_CHUNK
        part = state[first : first + ENTRIES_PER_CHUNK]
        return msgspec.msgpack.encode(part), first + ENTRIES_PER_CHUNK >= len(state)

    def keep_chunk(self, mark: SnapshotMark, offset: int, data: bytes) -> None:
        if offset == 0:
            self._parts = (mark, [])
        assert self._parts is not None and self._parts[0] == mark, (self._parts, mark, offset)
        assert len(self._parts[1]) == offset * ENTRIES_PER_CHUNK, (self._parts, mark, offset)
        self._parts[1].extend(msgspec.msgpack.decode(data, type=list[Entry]))

    def install(self, mark: SnapshotMark, hard_state: HardState) -> None:
        assert self._parts is not None and self._parts[0] == mark, (self._parts, mark)
        self.state = self._parts[1]
        self._parts = None
        self.mark = mark
        self.entries.clear()
        self.applied = mark.index
        self.membership = mark.membership
        self.hard_state = hard_state
        self._check()

    def _check(self) -> None:
        """What load() promises holds after each transaction, for the power may go after any."""
        last = self.mark.index + len(self.entries)
        assert self.mark.index <= self.applied <= last, (self.mark, self.applied, last)
        assert self.hard_state.commit <= last, (self.hard_state, last)


_: type[LogStore] = Disk


class Order:
    """Instead of chance: member 1 loses patience first, then 2, and so on."""

    def __init__(self, id: RaftId) -> None:
        self._id = id

    def randint(self, a: int, b: int) -> int:
        return min(a + self._id - 1, b)


@dataclass(slots=True)
class Member:
    """A node with its disk. `ready` is out: its save is under way."""

    id: RaftId
    disk: Disk
    limits: Limits
    node: Node = field(init=False)
    ready: Ready | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.node = Node(self.id, self.disk.load(), self.limits, Order(self.id))
        self.ready = None

    def take(self) -> Ready | None:
        assert self.ready is None
        self.ready = self.node.take_ready()
        return self.ready

    def save(self) -> Ready:
        """What was taken becomes durable; after this the power may go."""
        ready = self.ready
        assert ready is not None
        for chunk in ready.chunks:
            self.disk.keep_chunk(chunk.mark, chunk.offset, chunk.data)
        if ready.install is not None:
            self.disk.install(ready.install, ready.hard_state)
        if ready.save is not None:
            self.disk.save(ready.save)
        return ready

    def install(self) -> None:
        """Only the snapshot of what was taken: the power goes before the rest."""
        ready = self.ready
        assert ready is not None
        assert ready.install is not None
        for chunk in ready.chunks:
            self.disk.keep_chunk(chunk.mark, chunk.offset, chunk.data)
        self.disk.install(ready.install, ready.hard_state)

    def advance(self) -> tuple[Envelope, ...]:
        ready = self.ready
        assert ready is not None
        self.ready = None
        self.node.advance(ready)
        return ready.messages


class Group:
    def __init__(self) -> None:
        self.members: dict[RaftId, Member] = {}
        self.in_flight: list[Envelope] = []

    def add(self, member: Member) -> Member:
        self.members[member.id] = member
        return member

    def send(self, envelopes: Iterable[Envelope]) -> list[Envelope]:
        """Through their bytes, as between processes."""
        sent = [decode(encode(envelope)) for envelope in envelopes]
        self.in_flight += sent
        return sent

    def take(self, wanted: Callable[[Envelope], bool]) -> list[Envelope]:
        """Out of what is in flight, in order."""
        taken = [envelope for envelope in self.in_flight if wanted(envelope)]
        self.in_flight = [envelope for envelope in self.in_flight if not wanted(envelope)]
        return taken

    def answer_chunk_requests(self, member: Member) -> list[Envelope]:
        answers: list[Envelope] = []
        for request in member.node.take_chunk_requests():
            found = member.disk.read_chunk(request.mark, request.offset)
            data, last = found or (b"", False)
            chunk = Chunk(member.node.term, request.mark, request.offset, data, last, gone=found is None)
            answers.append(Envelope(member.id, request.member, chunk))
        return self.send(answers)


def stored(
    membership: Membership,
    *,
    terms: Sequence[int] = (),
    start: int = 0,
    applied: int | None = None,
    term: int | None = None,
) -> Stored:
    """A disk as a test wants to find it: entries of these terms after index `start`, of which nothing is known to be
    committed."""
    first = start + 1
    entries = tuple(
        Entry(Index(first + at), Term(term), EntryKind.NORMAL, b"") for at, term in enumerate(terms)
    )
    if term is None:
        term = terms[-1] if terms else min(start, 1)
    mark = SnapshotMark(Index(start), Term(min(start, 1)), membership if start else Membership())
    at = Index(start if applied is None else applied)
    return Stored(HardState(Term(term), RaftId(0), at), mark, entries, at, membership)
