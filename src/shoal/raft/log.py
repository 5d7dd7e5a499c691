"""The entries since the last compaction, in memory, and how far they are saved, committed and applied.

Here: Log.
Not here: the copy on disk (store.py says what is asked of it), when something is committed (node.py).

Invariant: mark.index <= applied <= commit <= last_index, and what is committed is never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.raft.messages import Entry, Index, Membership, SnapshotMark, Term
from shoal.raft.store import Stored

ENTRY_OVERHEAD_BYTES: Final = 16  # index, term and kind on the wire


def size_of(entry: Entry) -> int:
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


class Log:
    def __init__(self, stored: Stored) -> None:
        self.mark = stored.mark
        self._entries = list(stored.entries)
        self.saved = self.last_index  # up to here the disk has what is here
        self.applied = stored.applied
        self.commit = max(stored.hard_state.commit, stored.applied)
        assert self.mark.index <= self.applied <= self.commit, stored
        assert self.commit <= self.last_index, stored

    @property
    def first_index(self) -> Index:
        """Of the entries that are still here; one past the end if there are none."""
        return Index(self.mark.index + 1)

    @property
    def last_index(self) -> Index:
        return Index(self.mark.index + len(self._entries))

    @property
    def last_term(self) -> Term:
        return self._entries[-1].term if self._entries else self.mark.term

    def term_at(self, index: Index) -> Term | None:
        """None: compacted, or not there yet."""
        at = index - self.mark.index - 1
        if at == -1:
            return self.mark.term
        if 0 <= at < len(self._entries):
            return self._entries[at].term
        return None

    def entries(
        self, first: Index, last: Index | None = None, max_bytes: int | None = None
    ) -> tuple[Entry, ...]:
        """From first to last, as many as max_bytes allow, but at least one where there is one."""
        assert first > self.mark.index, (first, self.mark)
        start = first - self.mark.index - 1
        end = len(self._entries) if last is None else last - self.mark.index
        if max_bytes is None:
            return tuple(self._entries[start:end])
        found: list[Entry] = []
        for at in range(start, end):
            entry = self._entries[at]
            max_bytes -= size_of(entry)
            if max_bytes < 0 and found:
                break
            found.append(entry)
        return tuple(found)

    def is_up_to_date(self, last_index: Index, last_term: Term) -> bool:
        """Is a log that ends so at least as good as this one?"""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def append(self, entries: Sequence[Entry]) -> None:
        """At the end; replaces the tail from the first of them on."""
        if not entries:
            return
        first = entries[0].index
        assert self.commit < first <= self.last_index + 1, (self.commit, first, self.last_index)
        del self._entries[first - self.mark.index - 1 :]
        self._entries += entries
        self.saved = min(self.saved, Index(first - 1))

    def merge(self, entries: Sequence[Entry]) -> None:
        """What a leader sent. Entries that are here already stay: it may be an old message, and newer ones are behind."""
        for at, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                self.append(entries[at:])
                return

    def unsaved(self) -> tuple[Entry, ...]:
        return self.entries(Index(self.saved + 1))

    def forget_unsaved(self) -> None:
        assert self.commit <= self.saved, (self.commit, self.saved)
        del self._entries[self.saved - self.mark.index :]

    def was_saved(self, entries: Sequence[Entry]) -> None:
        """The disk has these, and all before them. Their tail may have been replaced here meanwhile."""
        for entry in reversed(entries):
            if entry.index <= self.saved:
                break
            if self.term_at(entry.index) == entry.term:
                self.saved = entry.index
                break

    def conflict_hint(self, index: Index, term: Term) -> Index:
        """The greatest index up to `index` whose term is at most `term`: above it nothing can match a log that has
        `term` at `index`. So a probe skips whole terms instead of going back one by one."""
        index = min(index, self.last_index)
        while index > self.mark.index:
            found = self.term_at(index)
            assert found is not None
            if found <= term:
                break
            index = Index(index - 1)
        return index

    def compact(self, index: Index, membership: Membership) -> None:
        """Forgets up to this index."""
        assert self.mark.index <= index <= self.applied, (self.mark, index, self.applied)
        term = self.term_at(index)
        assert term is not None
        del self._entries[: index - self.mark.index]
        self.mark = SnapshotMark(index, term, membership)

    def restore(self, mark: SnapshotMark) -> None:
        """A snapshot takes the place of everything."""
        assert mark.index > self.commit, (mark, self.commit)
        self.mark = mark
        self._entries.clear()
        self.saved = self.applied = self.commit = mark.index
