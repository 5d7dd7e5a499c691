"""The Raft log and what a member must not forget, as tables of catalog.db.

Here: RaftLog: the rows of `_raft_log` and `_raft_state`, and how much there is of them.
Not here: transactions, and what committed entries do (catalog_db.py); what is saved when (raft/node.py).

`_raft_state` has a row per fact:

| key | what |
|---|---|
| term, vote, commit | the hard state |
| applied, applied_term | up to which entry the other tables of this file have everything, and its term |
| membership | as of `applied`, in MessagePack |
| mark_index, mark_term, mark_membership | where the log begins: all before was compacted |
| raft_id, instance_uuid, cluster_uuid, cluster_name | whose directory this is |
| gen | how many times an instance that keeps an audit log has started |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final, cast

import apsw
import msgspec

from shoal.raft.messages import (
    ChangeKind,
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    SnapshotMark,
    Term,
    decode_change,
)
from shoal.raft.store import Stored

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS _raft_log (
    "index" INTEGER PRIMARY KEY, term INTEGER NOT NULL, kind INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS _raft_state (key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
"""

Value = int | str | bytes | None

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_membership: Final = msgspec.msgpack.Decoder(Membership).decode

_NOBODY_YET: Final = _encode(Membership())
_AT_FIRST: Final[dict[str, Value]] = {
    "term": 0,
    "vote": 0,
    "commit": 0,
    "applied": 0,
    "applied_term": 0,
    "membership": _NOBODY_YET,
    "mark_index": 0,
    "mark_term": 0,
    "mark_membership": _NOBODY_YET,
    "raft_id": None,
    "instance_uuid": None,
    "cluster_uuid": None,
    "cluster_name": None,
    "gen": 0,
}


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who the owner of a directory is, in which cluster: for good."""

    raft_id: RaftId
    instance_uuid: str
    cluster_uuid: str
    cluster_name: str


class RaftLog:
    """Writes inside its caller's transaction. What it remembers of that is valid after keep(); after a transaction
    that came to nothing, forget() brings back what was."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        with connection:
            connection.execute(_TABLES)
            connection.executemany("INSERT OR IGNORE INTO _raft_state VALUES (?, ?)", _AT_FIRST.items())
        self._values = state_values(connection)
        self._unsaved: dict[str, Value] = {}
        sizes = connection.execute('SELECT length(data) FROM _raft_log ORDER BY "index"').fetchall()
        self._sizes = [cast(int, size) for (size,) in sizes]  # of the entries' data
        self._bytes = sum(self._sizes)
        self._unsaved_sizes: tuple[int, list[int]] | None = None  # from which position on they change

    # --- what there is ---------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """Of the entries' data: what the log costs besides is about the same for each of them."""
        return self._bytes

    @property
    def hard_state(self) -> HardState:
        values = cast("dict[str, int]", self._values)
        return HardState(Term(values["term"]), RaftId(values["vote"]), Index(values["commit"]))

    @property
    def mark(self) -> SnapshotMark:
        values = cast("dict[str, int]", self._values)
        membership = _decode_membership(cast(bytes, self._values["mark_membership"]))
        return SnapshotMark(Index(values["mark_index"]), Term(values["mark_term"]), membership)

    @property
    def applied(self) -> Index:
        return Index(cast(int, self._values["applied"]))

    @property
    def applied_term(self) -> Term:
        return Term(cast(int, self._values["applied_term"]))

    @property
    def last_index(self) -> Index:
        return Index(cast(int, self._values["mark_index"]) + len(self._sizes))

    def load(self) -> Stored:
        rows = cast(
            "list[tuple[int, int, int, bytes]]",
            self._connection.execute(
                'SELECT "index", term, kind, data FROM _raft_log ORDER BY "index"'
            ).fetchall(),
        )
        mark = self.mark
        entries = tuple(
            Entry(Index(index), Term(term), EntryKind(kind), data) for index, term, kind, data in rows
        )
        assert [entry.index for entry in entries] == list(range(mark.index + 1, self.last_index + 1))
        membership = _decode_membership(cast(bytes, self._values["membership"]))
        return Stored(self.hard_state, mark, entries, self.applied, membership)

    def identity(self) -> MemberIdentity | None:
        values = self._values
        if values["raft_id"] is None:
            return None
        return MemberIdentity(
            RaftId(cast(int, values["raft_id"])),
            cast(str, values["instance_uuid"]),
            cast(str, values["cluster_uuid"]),
            cast(str, values["cluster_name"]),
        )

    # --- writing, in a transaction ---------------------------------------------------------------

    def put_hard_state(self, state: HardState) -> None:
        self._put("term", state.term)
        self._put("vote", state.vote)
        self._put("commit", state.commit)

    def put_applied(self, entry: Entry) -> None:
        self._put("applied", entry.index)
        self._put("applied_term", entry.term)

    def put_membership(self, membership: Membership) -> None:
        self._put("membership", _encode(membership))

    def put_identity(self, identity: MemberIdentity) -> None:
        for key, value in zip(MemberIdentity.__slots__, astuple(identity), strict=True):
            self._put(key, value)

    def next_generation(self) -> int:
        generation = cast(int, self._values["gen"]) + 1
        self._put("gen", generation)
        return generation

    def append(self, entries: Sequence[Entry]) -> None:
        """They replace what the log has from the first of them on."""
        first, last = entries[0].index, self.last_index
        assert self.applied < first <= last + 1, (self.applied, first, last)
        assert entries[-1].index == first + len(entries) - 1, entries
        if first <= last:
            self._connection.execute('DELETE FROM _raft_log WHERE "index" >= ?', (first,))
        self._connection.executemany(
            "INSERT INTO _raft_log VALUES (?, ?, ?, ?)",
            [(entry.index, entry.term, entry.kind, entry.data) for entry in entries],
        )
        start = first - cast(int, self._values["mark_index"]) - 1
        self._unsaved_sizes = (start, [len(entry.data) for entry in entries])

    def compact(self, index: Index) -> None:
        connection, mark = self._connection, self.mark
        assert mark.index < index <= self.applied, (mark, index, self.applied)
        membership = mark.membership
        for (data,) in connection.execute(
            'SELECT data FROM _raft_log WHERE "index" <= ? AND kind = ? ORDER BY "index"',
            (index, EntryKind.MEMBERSHIP),
        ).fetchall():
            membership = _changed(membership, decode_change(cast(bytes, data)))
        term = cast(int, connection.execute('SELECT term FROM _raft_log WHERE "index" = ?', (index,)).get)
        connection.execute('DELETE FROM _raft_log WHERE "index" <= ?', (index,))
        self._put("mark_index", index)
        self._put("mark_term", term)
        self._put("mark_membership", _encode(membership))
        self._unsaved_sizes = (0, self._sizes[index - mark.index :])

    def start_after(self, mark: SnapshotMark) -> None:
        """Of a snapshot: it has all up to `mark`, and the log is empty."""
        self._connection.execute("DELETE FROM _raft_log")
        membership = _encode(mark.membership)
        for prefix in ("mark_index", "applied"):
            self._put(prefix, mark.index)
        for prefix in ("mark_term", "applied_term"):
            self._put(prefix, mark.term)
        for prefix in ("mark_membership", "membership"):
            self._put(prefix, membership)
        self._unsaved_sizes = (0, [])

    def _put(self, key: str, value: Value) -> None:
        if self._values[key] != value:
            self._connection.execute("UPDATE _raft_state SET value = ? WHERE key = ?", (value, key))
            self._unsaved[key] = value

    # --- after the transaction -------------------------------------------------------------------

    def keep(self) -> None:
        self._values.update(self._unsaved)
        if self._unsaved_sizes is not None:
            start, added = self._unsaved_sizes
            self._bytes += sum(added) - sum(self._sizes[start:])
            self._sizes[start:] = added
        self.forget()

    def forget(self) -> None:
        self._unsaved.clear()
        self._unsaved_sizes = None


def state_values(connection: apsw.Connection) -> dict[str, Value]:
    return dict(
        cast("list[tuple[str, Value]]", connection.execute("SELECT key, value FROM _raft_state").fetchall())
    )


def applied_mark(connection: apsw.Connection) -> SnapshotMark:
    """What a read transaction of any connection sees as applied."""
    values = state_values(connection)
    return SnapshotMark(
        Index(cast(int, values["applied"])),
        Term(cast(int, values["applied_term"])),
        _decode_membership(cast(bytes, values["membership"])),
    )


def _changed(membership: Membership, change: MembershipChange) -> Membership:
    voters = set(membership.voters) - {change.member}
    learners = set(membership.learners) - {change.member}
    if change.kind is ChangeKind.ADD_VOTER:
        voters.add(change.member)
    elif change.kind is ChangeKind.ADD_LEARNER:
        learners.add(change.member)
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))
