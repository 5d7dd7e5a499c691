"""What members of a Raft group tell each other, and the values that they speak of.

Here: ids, terms, entries, the membership, every message, their bytes.
Not here: what is done about a message (node.py), carrying it (node/peers.py, sim/network.py).

A message is for one receiver and names its sender's term; Envelope adds who sends it to whom.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NewType, TypeAlias

import msgspec

RaftId = NewType("RaftId", int)  # of an instance, in its cluster; never used twice, never 0
Term = NewType("Term", int)
Index = NewType("Index", int)  # the first entry has 1

NOBODY: Final = RaftId(0)


class EntryKind(IntEnum):
    NORMAL = 0  # the state machine's; empty data: a new leader's first entry
    MEMBERSHIP = 1  # a MembershipChange


class Entry(msgspec.Struct, frozen=True, array_like=True):
    index: Index
    term: Term
    kind: EntryKind
    data: bytes


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What a member must not forget. `commit` is a convenience: a lower one is safe."""

    term: Term = Term(0)
    vote: RaftId = NOBODY
    commit: Index = Index(0)


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """Sorted, and no id is in both."""

    voters: tuple[RaftId, ...] = ()
    learners: tuple[RaftId, ...] = ()


class ChangeKind(IntEnum):
    ADD_LEARNER = 0  # also turns a voter into a learner
    ADD_VOTER = 1
    REMOVE = 2


class MembershipChange(msgspec.Struct, frozen=True, array_like=True):
    """One change of one member. `context` is the proposer's, and comes back with the applied entry."""

    kind: ChangeKind
    member: RaftId
    context: bytes = b""


class SnapshotMark(msgspec.Struct, frozen=True, array_like=True):
    """Names a snapshot: the state after all entries up to `index`."""

    index: Index
    term: Term
    membership: Membership


# --- messages ------------------------------------------------------------------------------------


class RequestVote(msgspec.Struct, frozen=True, array_like=True, tag="vote?"):
    """`term` is the one that the candidate campaigns for; with `pre` it hasn't moved there yet."""

    term: Term
    last_index: Index
    last_term: Term
    pre: bool = False
    transfer: bool = False  # the leader asked for it: members that hear from the leader must not ignore it


class VoteReply(msgspec.Struct, frozen=True, array_like=True, tag="vote"):
    """A refusal tells what is known to be committed: that may be news to the candidate, and may change its voters."""

    term: Term
    granted: bool
    pre: bool = False
    commit: Index = Index(0)
    commit_term: Term = Term(0)


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    term: Term
    previous_index: Index
    previous_term: Term
    entries: tuple[Entry, ...]
    commit: Index


class AppendReply(msgspec.Struct, frozen=True, array_like=True, tag="appended"):
    """Not rejected: the log matches the leader's up to `index`. Rejected: it doesn't at `index`, and could at most
    match at `hint_index`, where the term is `hint_term`."""

    term: Term
    index: Index
    rejected: bool = False
    hint_index: Index = Index(0)
    hint_term: Term = Term(0)


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="beat"):
    """`round` numbers the leader's heartbeats: a quorum of answers to one confirms the reads that wait for it."""

    term: Term
    commit: Index
    round: int


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, tag="beaten"):
    term: Term
    round: int


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag="now"):
    """The leader hands over: campaign at once."""

    term: Term


class ReadIndex(msgspec.Struct, frozen=True, array_like=True, tag="read?"):
    """A follower asks the leader for an index that includes all that was committed up to now."""

    term: Term
    request: int


class ReadIndexReply(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    term: Term
    request: int
    index: Index


class SnapshotOffer(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """The entries that the follower lacks are gone; it should fetch this instead."""

    term: Term
    mark: SnapshotMark


class FetchChunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk?"):
    """Pulled by the follower, so it can go on where it stopped. `offset` counts chunks."""

    term: Term
    mark: SnapshotMark
    offset: int


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """`last` tells that there is none after it. `gone`: the leader has that snapshot no more."""

    term: Term
    mark: SnapshotMark
    offset: int
    data: bytes
    last: bool
    gone: bool = False


Message: TypeAlias = (
    RequestVote
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | TimeoutNow
    | ReadIndex
    | ReadIndexReply
    | SnapshotOffer
    | FetchChunk
    | Chunk
)


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    sender: RaftId
    receiver: RaftId
    message: Message


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Envelope)
_change_decoder: Final = msgspec.msgpack.Decoder(MembershipChange)


def encode(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def decode(data: bytes) -> Envelope:
    """Raises msgspec.DecodeError on anything that isn't one."""
    return _decoder.decode(data)


def encode_change(change: MembershipChange) -> bytes:
    return _encoder.encode(change)


def decode_change(data: bytes) -> MembershipChange:
    return _change_decoder.decode(data)
