"""Where a replicaset's log stands: lsns, the masterships that wrote it, and where two logs meet.

Here: ConfigVersion, Lsn, Mastership, History (which mastership wrote which part of a log), Position, meet().
Not here: the entries (messages.py, store.py), who becomes master (config.py).

An entry is named by (config version, lsn): the version of the mastership that wrote it, and its place. One version
has one master, and an instance never begins two masterships in one version, so **no name ever means two
entries**. An entry is only taken behind the one that its master had there. So two logs that have the same
version at an lsn are the same up to it, and two histories tell where the logs part: no entry needs to be read.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NewType

import msgspec

__all__ = ["ConfigVersion", "History", "Lsn", "MemberId", "Mastership", "Position", "meet"]

MemberId = NewType("MemberId", int)  # the raft id of an instance: never used twice, never 0
ConfigVersion = NewType("ConfigVersion", int)  # of a replicaset's row in the catalog; the first is 1
Lsn = NewType("Lsn", int)  # the first entry of a log has 1


class Mastership(msgspec.Struct, frozen=True, array_like=True):
    """Began in this config version, with this lsn as the next one to write."""

    version: ConfigVersion
    first: Lsn


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Of a log's last entry. Of the members that may become master, the one with the greatest has the most."""

    version: ConfigVersion
    lsn: Lsn


class History(msgspec.Struct, frozen=True, array_like=True):
    """The masterships that wrote a log, oldest first; versions and first lsns rise."""

    masterships: tuple[Mastership, ...] = ()

    def version_at(self, lsn: Lsn) -> ConfigVersion:
        """Which mastership wrote the entry there. 0: before the first entry, or before what is remembered."""
        at = bisect_right(self.masterships, lsn, key=lambda each: each.first)
        return self.masterships[at - 1].version if at else ConfigVersion(0)

    def position(self, last: Lsn) -> Position:
        """Of a log that ends there."""
        return Position(self.version_at(last), last)

    def began(self, version: ConfigVersion) -> Lsn:
        """The first lsn of the run of this version, which version_at() has named."""
        return next((each.first for each in self.masterships if each.version == version), Lsn(1))

    def cut(self, last: Lsn) -> History:
        """Of the log up to there, and nothing behind it."""
        return History(tuple(each for each in self.masterships if each.first <= last))

    def then(self, mastership: Mastership) -> History:
        """Goes on with it: whatever began at the same lsn or behind it has written nothing."""
        before = self.cut(Lsn(mastership.first - 1)).masterships
        assert not before or before[-1].version < mastership.version, (self, mastership)
        return History((*before, mastership))

    def trimmed(self, first: Lsn) -> History:
        """Of a log that begins with `first`; its predecessor's version is remembered, too: others may end there."""
        kept = self.masterships
        at = bisect_right(kept, first - 1, key=lambda each: each.first)
        return History(kept[max(at - 1, 0) :])


def meet(one: History, one_last: Lsn, other: History, other_last: Lsn) -> Lsn | None:
    """Up to which lsn two logs are the same. None: it can't be told, what is remembered of them doesn't overlap.

    0 is a meeting, too: both logs are known from their first entry on, and already differ there.
    """
    lsn = min(one_last, other_last)
    while lsn > 0:
        ours, theirs = one.version_at(lsn), other.version_at(lsn)
        if ours == theirs:
            return lsn if ours else None
        # Below the start of the newer run, nothing of it can be in the way.
        newer, history = max((ours, one), (theirs, other), key=lambda each: each[0])
        lsn = Lsn(history.began(newer) - 1)
    known_from_the_start = (_knows_its_first(one, one_last), _knows_its_first(other, other_last))
    return lsn if all(known_from_the_start) else None


def _knows_its_first(history: History, last: Lsn) -> bool:
    return last == 0 or history.version_at(Lsn(1)) != 0
