"""What instances ask each other about the cluster: finding it, joining it, changing its catalog.

Here: the requests and their answers. Each request is answered by one kind of answer, or by an error with a SQLSTATE.
Not here: how they travel (frames.py, handshake.py), Raft's own messages (raft/messages.py; they travel one way, in
frames of their own), statements (they come with the execution protocol).

What only the leader can do is sent to the leader; another instance answers NotLeader, and says who leads.
"""

from __future__ import annotations

import msgspec


class Addresses(msgspec.Struct, frozen=True, array_like=True):
    """Where an instance is found."""

    rpc: str
    pg: str
    http: str


class Member(msgspec.Struct, frozen=True, array_like=True):
    raft_id: int
    rpc: str


# --- finding a cluster ---------------------------------------------------------------------------


class Found(msgspec.Struct, frozen=True, array_like=True):
    """A cluster that exists."""

    cluster_name: str
    cluster_uuid: str
    members: tuple[Member, ...]


class Discover(msgspec.Struct, frozen=True, array_like=True, tag="discover"):
    """From one that looks for a cluster, to whomever it knows of."""

    uuid: str
    address: str
    can_vote: bool
    known: tuple[str, ...]


class Discovered(msgspec.Struct, frozen=True, array_like=True, tag="discovered"):
    """`found`: look no further. None: this one is looking, too."""

    uuid: str
    address: str
    can_vote: bool
    known: tuple[str, ...]
    found: Found | None


# --- joining and leaving -------------------------------------------------------------------------


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    cluster_name: str
    uuid: str  # made once, and kept: asking again is the same join
    version: str
    tier: str
    name: str | None
    replicaset: str | None
    failure_domain: dict[str, str]
    addresses: Addresses


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    raft_id: int
    name: str
    cluster_uuid: str
    members: tuple[Member, ...]


class GoOnline(msgspec.Struct, frozen=True, array_like=True, tag="online"):
    """An instance has started, and has applied the log."""

    uuid: str
    version: str
    addresses: Addresses
    failure_domain: dict[str, str]
    reason: str


class GoOffline(msgspec.Struct, frozen=True, array_like=True, tag="offline"):
    uuid: str
    incarnation: int
    reason: str


class Expel(msgspec.Struct, frozen=True, array_like=True, tag="expel"):
    uuid: str
    force: bool


class Standing(msgspec.Struct, frozen=True, array_like=True, tag="standing"):
    """From an instance that hears no leader, to any other: is it that nobody talks to it any more?"""

    uuid: str


class StandingReply(msgspec.Struct, frozen=True, array_like=True, tag="stands"):
    leader: int  # raft id, as far as the one that was asked knows; 0: nobody
    expelled: bool


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """It is in the log: the index of its entry, or of the last one applied if there was nothing to do."""

    index: int


# --- changing the catalog ------------------------------------------------------------------------


class Propose(msgspec.Struct, frozen=True, array_like=True, tag="cas"):
    """Compare and swap: the entry goes into the log if nothing that the predicate names has changed, and the receiver
    leads in this term."""

    term: int
    predicate: bytes  # catalog/cas.py
    origin: tuple[int, int]
    entry: bytes  # catalog/entries.py


class Proposed(msgspec.Struct, frozen=True, array_like=True, tag="proposed"):
    """In the leader's log, and not committed yet. Or, with `conflict`, refused: what changed, and at which index."""

    index: int
    term: int
    conflict: str | None = None


class HasApplied(msgspec.Struct, frozen=True, array_like=True, tag="applied"):
    """To the instance of that uuid: answer when you have applied the entry, and all that you let in before is done."""

    index: int
    uuid: str


class News(msgspec.Struct, frozen=True, array_like=True):
    """What an instance has seen of one user's logins since it told the last time."""

    user_id: int
    succeeded: bool  # before the failures, which are all since then
    failures: int


class LoginAttempts(msgspec.Struct, frozen=True, array_like=True, tag="attempts"):
    """To all that are Online, at a bounded rate. It may get lost."""

    news: tuple[News, ...]


class ApplySchemaChange(msgspec.Struct, frozen=True, array_like=True, tag="ddl"):
    """From the leader to a master of the table's tier: make it so, as far as your catalog shows it pending."""

    version: int
