"""What an instance has of its replicaset whether it is the master or not, and how both roles speak.

Here: Own, Limits.
Not here: the roles (master.py, member.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.shard.lease import Promises
from shoal.shard.log import Log
from shoal.shard.messages import Envelope, Message
from shoal.shard.positions import ConfigVersion, Lsn, MemberId
from shoal.shard.store import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in µs, sizes in bytes."""

    lease_us: int = 400_000  # the same on all members
    drift: float = 0.01  # how fast or slow a clock may go, at the most
    beat_us: int = 80_000
    silent_us: int = 500_000  # without an answer for so long: reported
    stuck_us: int = 2_000_000  # it answers, and its log gets no further
    hand_over_us: int = 200_000  # for so long, writes are held back for the sake of another master
    contact_us: int = 30_000_000  # without the cluster for so long: nothing is answered any more
    append_bytes: int = 1 << 20  # of entries in one message
    inflight_bytes: int = 16 << 20  # not acknowledged by one member
    recent_bytes: int = 16 << 20  # of the latest entries, kept at hand for members
    admit_lag: int = 1  # a member that lacks less than so many committed entries has nearly everything
    masterships_max: int = 100  # that are remembered though their entries are gone


class Own:
    def __init__(self, id: MemberId, stored: Stored, limits: Limits, now_us: int, run: int) -> None:
        self.id = id
        self.limits = limits
        self.log = Log(stored)
        self.acted = (
            stored.acted
        )  # the greatest version that it has acted in; `saved_acted` is what the disk knows
        self.saved_acted = stored.acted
        self.commit = (
            stored.applied
        )  # up to here all is acknowledged by all who were required, and in this log
        self.run = run  # a large number by chance: no other run of this instance has one that is near to it
        self.installing = False  # a snapshot takes the place of everything, and isn't on the disk yet
        self.contact_us = now_us  # when it was surely connected to the cluster, the last time
        self.promises = Promises(now_us, limits.lease_us)
        self.at_once: list[Envelope] = []  # depends on nothing that must be saved first
        self.after_save: list[Envelope] = []

    @property
    def is_unsaved(self) -> bool:
        return self.acted != self.saved_acted or self.installing or self.log.is_unsaved

    def act_in(self, version: ConfigVersion) -> None:
        """From now on all older masterships are refused."""
        assert version > self.acted, (version, self.acted)
        self.acted = version
        # They speak of a log that may have been cut by the time that it is saved.
        self.after_save.clear()

    def committed(self, lsn: Lsn) -> None:
        self.commit = max(self.commit, lsn)
        assert self.commit <= self.log.last, (self.commit, self.log.last)

    def send(self, to: MemberId, message: Message) -> None:
        """As soon as all that is known now is on the disk."""
        (self.after_save if self.is_unsaved else self.at_once).append(Envelope(self.id, to, message))

    def send_at_once(self, to: MemberId, message: Message) -> None:
        self.at_once.append(Envelope(self.id, to, message))
