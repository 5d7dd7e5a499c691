"""Events of a simulated replicaset, readable.

Here: describe_envelope() and the like.
Not here: the trace that they go into (sim/trace.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.shard.messages import (
    Ack,
    Announce,
    Append,
    Chunk,
    Envelope,
    FetchChunk,
    LogEntry,
    Message,
    Offer,
    Refused,
    Release,
)
from shoal.shard.positions import History
from shoal.shard.store import Save


def describe_envelope(envelope: Envelope) -> str:
    return f"{envelope.sender} → {envelope.receiver}  {describe(envelope.message)}"


def describe(message: Message) -> str:
    match message:
        case Announce(version, _, history, last):
            return f"Announce v{version}: {describe_history(history)}, ends at {last}"
        case Append(version, _, after, (), commit):
            return f"Beat v{version} after {after}, commit {commit}"
        case Append(version, _, after, entries, commit):
            return f"Append v{version} after {after}: {describe_entries(entries)}; commit {commit}"
        case Offer(version, _, mark):
            return f"Offer v{version}: snapshot {mark.lsn} of {describe_history(mark.history)}"
        case Chunk(version, _, lsn, offset, _, last, gone):
            return f"Chunk v{version}: {offset} of {lsn}{', the last' * last}{', gone' * gone}"
        case Release(version):
            return f"Release v{version}"
        case Ack(version, _, _, matched, gap, lost):
            text = "no match known" if matched is None else f"matched {matched}"
            return f"Ack v{version} {text}{', a gap' * gap}{', a snapshot is needed' * lost}"
        case Refused(acted):
            return f"Refused, acted in v{acted}"
        case FetchChunk(version, _, lsn, offset):
            return f"Chunk? v{version}: {offset} of {lsn}"


def describe_history(history: History) -> str:
    return " ".join(f"v{each.version} from {each.first}" for each in history.masterships) or "nothing"


def describe_entries(entries: Sequence[LogEntry]) -> str:
    return ", ".join(f"{entry.lsn}@{entry.version}{'+' * entry.continues}" for entry in entries)


def describe_save(save: Save) -> str:
    parts = []
    if save.acted is not None:
        parts.append(f"acted v{save.acted}")
    if save.cut is not None:
        parts.append(f"cut behind {save.cut}")
    if save.history is not None:
        parts.append(f"history {describe_history(save.history)}")
    if save.entries:
        parts.append(describe_entries(save.entries))
    return ", ".join(parts)
