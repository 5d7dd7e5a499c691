"""The story of a run: its last events, readable, and a hash over all of them.

Here: Trace, describe().
Not here: what is worth telling (who calls it). A run without a trace is the same run, only quicker.
"""

from __future__ import annotations

import hashlib
from collections import deque

from shoal.raft.messages import (
    Append,
    AppendReply,
    Chunk,
    Entry,
    EntryKind,
    Envelope,
    FetchChunk,
    Heartbeat,
    HeartbeatReply,
    Message,
    ReadIndex,
    ReadIndexReply,
    RequestVote,
    SnapshotMark,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    decode_change,
)


class Trace:
    def __init__(self, keep: int | None = 200) -> None:
        self.last: deque[str] = deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, now_us: int, text: str) -> None:
        line = f"{now_us / 1e6:10.6f}  {text}"
        self.last.append(line)
        self._hash.update(line.encode())
        self._hash.update(b"\n")

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()


def describe_envelope(envelope: Envelope) -> str:
    return f"{envelope.sender} → {envelope.receiver}  {describe(envelope.message)}"


def describe(message: Message) -> str:
    head = f"{type(message).__name__} t{message.term}"
    match message:
        case RequestVote():
            kind = " pre" * message.pre + " transfer" * message.transfer
            return f"{head}{kind} last {message.last_index}/t{message.last_term}"
        case VoteReply():
            return f"{head}{' pre' * message.pre} {'granted' if message.granted else 'refused'}"
        case Append():
            entries = describe_entries(message.entries)
            return f"{head} after {message.previous_index}/t{message.previous_term} [{entries}] commit {message.commit}"
        case AppendReply():
            if message.rejected:
                return f"{head} rejected {message.index} hint {message.hint_index}/t{message.hint_term}"
            return f"{head} up to {message.index}"
        case Heartbeat():
            return f"{head} commit {message.commit} round {message.round}"
        case HeartbeatReply():
            return f"{head} round {message.round}"
        case TimeoutNow():
            return head
        case ReadIndex():
            return f"{head} request {message.request}"
        case ReadIndexReply():
            return f"{head} request {message.request} at {message.index}"
        case SnapshotOffer():
            return f"{head} {describe_mark(message.mark)}"
        case FetchChunk():
            return f"{head} {describe_mark(message.mark)} part {message.offset}"
        case Chunk():
            end = " gone" * message.gone + " last" * message.last
            return f"{head} {describe_mark(message.mark)} part {message.offset}{end}"


def describe_mark(mark: SnapshotMark) -> str:
    return f"{mark.index}/t{mark.term} of {list(mark.membership.voters)}+{list(mark.membership.learners)}"


def describe_entries(entries: tuple[Entry, ...]) -> str:
    return ", ".join(describe_entry(entry) for entry in entries)


def describe_entry(entry: Entry) -> str:
    if entry.kind is EntryKind.MEMBERSHIP:
        change = decode_change(entry.data)
        return f"{entry.index}/t{entry.term} {change.kind.name} {change.member}"
    return f"{entry.index}/t{entry.term} {entry.data.decode()}".rstrip()
