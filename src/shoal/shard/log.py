"""What an instance knows of its own log without reading it: where it begins and ends, and what isn't saved yet.

Here: Log.
Not here: the entries that are saved (store.py), what is appended and cut when (member.py, master.py).

The last mastership of the history is the one that the log is known to be matched with: taking over another's history and
cutting what it doesn't have is one step, and one transaction of the store.

Invariants: first - 1 <= applied <= applying <= whole <= last, saved <= last.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.shard.messages import LogEntry, SnapshotMark
from shoal.shard.positions import ConfigVersion, History, Lsn, Mastership, Position
from shoal.shard.store import Save, Stored


class Log:
    def __init__(self, stored: Stored) -> None:
        self.history = stored.history
        self.first = stored.first
        self.last = stored.last
        self.whole = stored.whole  # up to here, the log consists of whole transactions
        self.applied = stored.applied
        self.applying = (
            stored.applied
        )  # up to here something may be applied by the time that one looks; >= applied
        self.saved = stored.last  # up to here the disk has what is here
        self._unsaved: list[LogEntry] = []
        self._cut: Lsn | None = None  # to be done on the disk before anything else
        self._saved_history = stored.history
        self._saving: Lsn | None = None  # a save is under way, and its entries end here
        assert self.first - 1 <= self.applied <= self.whole <= self.last, stored

    @property
    def matched_with(self) -> ConfigVersion:
        """All of this log is in the log of this mastership's master. 0: of none yet."""
        masterships = self.history.masterships
        return masterships[-1].version if masterships else ConfigVersion(0)

    @property
    def position(self) -> Position:
        """Of what is saved, as far as it is whole transactions."""
        return self.history.position(min(self.saved, self.whole))

    @property
    def is_unsaved(self) -> bool:
        return bool(self._unsaved) or self._cut is not None or self.history is not self._saved_history

    # --- changing it -----------------------------------------------------------------------------

    def match(self, history: History, last: Lsn) -> None:
        """This is the history of a master whose log is the same up to `last`; what is behind that isn't in it."""
        self._cut_behind(last)
        self.history = history

    def begin(self, version: ConfigVersion) -> None:
        """A mastership of its own. A transaction that isn't whole was never acknowledged, and never can be."""
        self._cut_behind(self.whole)
        self.history = self.history.then(Mastership(version, Lsn(self.last + 1)))

    def append(self, entries: Sequence[LogEntry]) -> None:
        """What a master sent; the first of them is the next one."""
        for entry in entries:
            assert entry.lsn == self.last + 1, (entry.lsn, self.last)
            assert self.history.version_at(entry.lsn) == entry.version, (entry.lsn, entry.version)
            self._unsaved.append(entry)
            self.last = entry.lsn
            if not entry.continues:
                self.whole = entry.lsn

    def write(self, last: Lsn) -> None:
        """The master's own group is being committed, and ends here; its entries are on the disk when that is done."""
        assert self.whole == self.last == self.saved, (self.whole, self.last, self.saved)
        self.last = self.whole = self.applying = last

    def written(self, last: Lsn) -> None:
        self.saved = max(self.saved, last)
        self.applied = max(self.applied, last)

    def not_written(self) -> None:
        """The commit has failed: whatever was put behind that group meanwhile has nothing to stand on."""
        self.last = self.whole = self.saved
        self.applying = self.applied
        self.history = self.history.cut(self.last)
        self._unsaved.clear()

    def restore(self, mark: SnapshotMark) -> None:
        """A snapshot takes the place of everything."""
        self.history = self._saved_history = mark.history
        self.first = Lsn(mark.lsn + 1)
        self.last = self.whole = self.applied = self.applying = self.saved = mark.lsn
        self._unsaved.clear()
        self._cut = None
        if self._saving is not None:
            self._saving = Lsn(0)  # of a log that is no more

    def trimmed(self, first: Lsn, masterships_max: int) -> None:
        """The store has forgotten what is before it."""
        assert first <= self.applied + 1, (first, self.applied)
        self.first = max(self.first, first)  # a snapshot that isn't installed yet may be further
        if len(self.history.masterships) > masterships_max:
            self.history = self.history.trimmed(first)

    def _cut_behind(self, last: Lsn) -> None:
        if last >= self.last:
            return
        assert self.applying <= last, (self.applying, last)
        self._unsaved = [entry for entry in self._unsaved if entry.lsn <= last]
        if self._saving is not None:
            self._saving = min(self._saving, last)
        if self.saved > last or self._saving is not None:
            self._cut = last if self._cut is None else min(self._cut, last)
        self.last = last
        self.whole = min(self.whole, last)  # logs never part in the middle of a transaction
        self.saved = min(self.saved, last)

    # --- applying it -----------------------------------------------------------------------------

    def apply(self, to: Lsn) -> None:
        assert self.applied < to <= self.whole, (self.applied, to, self.whole)
        self.applying = to

    def was_applied(self, to: Lsn) -> None:
        """So far it came; the rest is to be asked for again."""
        if to > self.applied:  # else a snapshot has come between
            assert to <= self.applying, (to, self.applying)
            self.applied = self.applying = to

    # --- saving it -------------------------------------------------------------------------------

    def take(self, acted: ConfigVersion | None) -> Save:
        """All that isn't saved."""
        assert self._saving is None
        history = None if self.history is self._saved_history else self.history
        save = Save(acted, self._cut, history, tuple(self._unsaved))
        self._saving = self.last
        self._saved_history = self.history
        self._cut = None
        self._unsaved.clear()
        return save

    def was_saved(self) -> None:
        assert self._saving is not None
        self.saved = max(self.saved, self._saving)
        self._saving = None
