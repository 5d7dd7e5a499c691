"""What the members of a replicaset tell each other, and their bytes.

Here: the log's entries, every message between a master and the others, Envelope.
Not here: what is done about a message (master.py, member.py), carrying it (node/, sim/).

All but Refused name the mastership that they belong to. Whatever a master sends carries the time at which it did, by
its own clock; whoever answers says it back as `echo_us`. So a master knows since when, at the latest, a promise
counts. The other way round members number their answers, and a master says which it has heard. No two clocks
are ever compared.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from shoal.shard.positions import ConfigVersion, History, Lsn, MemberId


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """Changes of rows, made by one transaction; a large one has several entries, and all but the last say so."""

    lsn: Lsn
    version: ConfigVersion  # of the mastership that wrote it
    continues: bool  # the next entry is part of the same transaction
    payload: bytes


class SnapshotMark(msgspec.Struct, frozen=True, array_like=True):
    """Names a snapshot: all that the entries up to `lsn` have done, and who wrote them."""

    lsn: Lsn
    history: History


# --- from the master -----------------------------------------------------------------------------


class Announce(msgspec.Struct, frozen=True, array_like=True, tag="announce"):
    """How the master's log came about, to a member of which it doesn't know where the logs meet."""

    version: ConfigVersion
    sent_us: int
    history: History
    last: Lsn


class Append(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Entries behind `after`; without any it is a heartbeat.

    `commit`: so far all is acknowledged by all who were required. `heard` is the number of the member's latest answer;
    None if this master can't vouch for it that `commit` covers all that was answered to anybody until now.
    """

    version: ConfigVersion
    sent_us: int
    after: Lsn
    entries: tuple[LogEntry, ...]
    commit: Lsn
    heard: int | None = None


class Offer(msgspec.Struct, frozen=True, array_like=True, tag="offer"):
    """The entries that the member lacks are gone, or its log can't be mended: it should fetch this instead."""

    version: ConfigVersion
    sent_us: int
    mark: SnapshotMark


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """`last` tells that there is none after it. `gone`: the master has that snapshot no more."""

    version: ConfigVersion
    sent_us: int
    lsn: Lsn  # of the mark
    offset: int
    data: bytes
    last: bool
    gone: bool = False


class Release(msgspec.Struct, frozen=True, array_like=True, tag="release"):
    """This mastership is over and answers nobody any more: what was promised to it binds no longer."""

    version: ConfigVersion


# --- to the master -------------------------------------------------------------------------------


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """Durable: the member's log is the master's up to `matched`. None: it can't tell, and wants an Announce.

    It also promises: for a time that all know, its sender won't serve as a master.
    """

    version: ConfigVersion
    echo_us: int
    number: int  # of its sender's answers; two runs of a process don't have the same ones
    matched: Lsn | None
    gap: bool = False  # something before the append that this answers is missing
    lost: bool = False  # matched is None, and no Announce helps: only a snapshot


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """Its sender has acted in this later version."""

    acted: ConfigVersion


class FetchChunk(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Pulled by the member, so it can go on where it stopped. `offset` counts chunks. Promises as an Ack does."""

    version: ConfigVersion
    echo_us: int
    lsn: Lsn  # of the mark
    offset: int


FromMaster: TypeAlias = Announce | Append | Offer | Chunk | Release
ToMaster: TypeAlias = Ack | FetchChunk
Message: TypeAlias = FromMaster | ToMaster | Refused


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    sender: MemberId
    receiver: MemberId
    message: Message


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def decode(data: bytes) -> Envelope:
    """Raises msgspec.DecodeError on anything that isn't one."""
    return _decoder.decode(data)
