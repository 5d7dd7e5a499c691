"""A member that isn't the master: it keeps the master's log, and applies what is committed.

Here: Member: refusing who is deposed, finding where the logs meet, appending, acknowledging, fetching a snapshot, how old
its state may be.
Not here: what the master makes of its answers (master.py).

A member follows whoever speaks for the greatest mastership that it has heard of: one version has one master, so it need not
ask its catalog. From then on it refuses all older ones, also after a restart: the version is on the disk before it
answers.

It acknowledges what is on its disk **and in this mastership's log**. What an earlier master had left behind, and nobody
had acknowledged, is cut where the logs part; nothing applied is ever undone, for it applies only what the master
says is committed and what it has matched. If something applied isn't in the master's log, someone was made master by
force: then only a snapshot helps.

| the master sends | the member |
|---|---|
| Announce | cuts its log where it parts from the master's, and takes over its history |
| Append | appends, if the log is matched with this mastership; otherwise it asks for an Announce |
| Offer, Chunk | fetches a snapshot, part by part |
| Release | forgets what it has promised to that mastership |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from shoal.shard.messages import (
    Ack,
    Announce,
    Append,
    Chunk,
    FetchChunk,
    Offer,
    Refused,
    SnapshotMark,
)
from shoal.shard.own import Own
from shoal.shard.positions import ConfigVersion, Lsn, MemberId, meet

_REMEMBERED: Final = 64  # answers, and what masters said of them


@dataclass(frozen=True, slots=True)
class KeptChunk:
    mark: SnapshotMark
    offset: int
    data: bytes


@dataclass(slots=True)
class _Fetching:
    """A snapshot on its way here."""

    version: ConfigVersion
    source: MemberId
    mark: SnapshotMark
    offset: int = 0


class Member:
    def __init__(self, own: Own) -> None:
        self._own = own
        self._fetching: _Fetching | None = None
        self.chunks: list[KeptChunk] = []  # to be kept
        self.install: SnapshotMark | None = None  # to be installed when they are
        self._number = own.run  # of its last answer
        self._answered: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # numbers, and when
        # If this is applied, it has all that was answered to anybody until then.
        self._fresh_then: deque[tuple[Lsn, int]] = deque(maxlen=_REMEMBERED)
        self._fresh_us: int | None = None

    # --- the master's messages -------------------------------------------------------------------

    def follows(self, sender: MemberId, version: ConfigVersion, now_us: int) -> bool:
        """Is this a message to be listened to? Listening is a promise, too."""
        own = self._own
        if version < own.acted:
            own.send(sender, Refused(own.acted))
            return False
        if version > own.acted:
            own.act_in(version)
            self._fetching = None
        own.promises.give(version, now_us)
        return True

    def on_announce(self, sender: MemberId, message: Announce, now_us: int) -> None:
        own = self._own
        log = own.log
        lost = False
        # Once they are matched, the log may have more than the master had when it sent this.
        if log.matched_with != message.version:
            lsn = meet(log.history, log.last, message.history, message.last)
            lost = lsn is None or lsn < log.applying
            if lsn is not None and not lost:
                log.match(message.history, lsn)
                own.commit = min(own.commit, log.last)  # lower only after a promotion by force
        self._answer(sender, message.version, message.sent_us, now_us, lost=lost)

    def on_append(self, sender: MemberId, message: Append, now_us: int) -> None:
        own = self._own
        log = own.log
        gap = False
        if log.matched_with == message.version:
            gap = message.after > log.last
            if not gap:
                log.append([entry for entry in message.entries if entry.lsn > log.last])
            own.committed(min(message.commit, log.whole))
            self._heard(message)
        self._answer(sender, message.version, message.sent_us, now_us, gap=gap)

    def _answer(
        self,
        master: MemberId,
        version: ConfigVersion,
        echo_us: int,
        now_us: int,
        *,
        gap: bool = False,
        lost: bool = False,
    ) -> None:
        """What it says is on the disk by the time that it leaves."""
        own = self._own
        log = own.log
        matched = log.last if own.is_unsaved else log.saved
        self._number += 1
        self._answered.append((self._number, now_us))
        known = log.matched_with == version
        own.send(master, Ack(version, echo_us, self._number, matched if known else None, gap, lost))

    # --- how old its state may be ----------------------------------------------------------------

    def _heard(self, message: Append) -> None:
        if message.heard is None:
            return
        for number, answered_us in self._answered:
            if number == message.heard:
                self._fresh_then.append((message.commit, answered_us))
                self.was_applied()

    def was_applied(self) -> None:
        applied = self._own.log.applied
        if self._own.installing:
            return
        while self._fresh_then and self._fresh_then[0][0] <= applied:
            fresh_us = self._fresh_then.popleft()[1]
            self._fresh_us = max(fresh_us, self._fresh_us or 0)

    @property
    def fresh_us(self) -> int | None:
        """What is applied has all that any master had answered by then. None: that isn't known of any time."""
        return self._fresh_us

    # --- snapshots -------------------------------------------------------------------------------

    def on_offer(self, sender: MemberId, message: Offer, now_us: int) -> None:
        if self._needs(message.version, message.mark):
            fetching = self._fetching
            if fetching is None or fetching.mark != message.mark or fetching.version != message.version:
                self._fetching = fetching = _Fetching(message.version, sender, message.mark)
            self._fetch(fetching, message.sent_us)
        else:
            self._answer(sender, message.version, message.sent_us, now_us)

    def _needs(self, version: ConfigVersion, mark: SnapshotMark) -> bool:
        """Where appends were quicker, what is behind the mark may have been acknowledged, so it must stay."""
        log = self._own.log
        return log.matched_with != version or log.last < mark.lsn

    def _fetch(self, fetching: _Fetching, echo_us: int) -> None:
        ask = FetchChunk(fetching.version, echo_us, fetching.mark.lsn, fetching.offset)
        self._own.send(fetching.source, ask)

    def on_chunk(self, sender: MemberId, message: Chunk, now_us: int) -> None:
        fetching = self._fetching
        if fetching is None or (fetching.version, fetching.mark.lsn) != (message.version, message.lsn):
            return
        if message.gone or not self._needs(message.version, fetching.mark):
            self._fetching = None  # the master will offer another, if it is still needed
            return
        if message.offset != fetching.offset:
            return  # it came twice
        self.chunks.append(KeptChunk(fetching.mark, fetching.offset, message.data))
        if not message.last:
            fetching.offset += 1
            self._fetch(fetching, message.sent_us)
            return
        self._fetching = None
        self.install = fetching.mark
        own = self._own
        own.log.restore(fetching.mark)
        own.commit = fetching.mark.lsn
        own.installing = True
        self._fresh_then.clear()
        self._fresh_us = None
        self._answer(sender, message.version, message.sent_us, now_us)
