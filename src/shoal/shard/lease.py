"""Who may believe that nobody else serves: promises, from the side that gives them and from the side that counts on them.

Here: Promises, a member's own; Lease, the master's view of those of others.
Not here: when a message carries one (messages.py), when the master serves (master.py).

A member that answers a master promises not to serve as a master itself for `lease_us`. The master serves as long as the
promises of all whom it requires stand: whoever takes over is one of them, so it has waited. Nobody's clock is
compared with another's: the member counts from when it gives its promise, the master from when it sent what
was answered, which is earlier, and less by what clocks may go wrong meanwhile. Both count on a clock that goes on
while the machine is suspended (CLOCK_BOOTTIME).

A process that has just started doesn't know what it had promised before, so it counts as having promised at its start.
A master whose mastership is over, and that has said so to everybody, needs no promise any more: it releases those of
that mastership, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal.shard.positions import ConfigVersion, MemberId

FOREVER: Final = 1 << 62
BEFORE_ITS_START: Final = ConfigVersion(0)  # the mastership to which a process that starts may have promised


class Promises:
    def __init__(self, started_us: int, lease_us: int) -> None:
        self._lease_us = lease_us
        self._until = {BEFORE_ITS_START: started_us + lease_us}

    def give(self, version: ConfigVersion, now_us: int) -> None:
        if len(self._until) > 8:
            self._until = {each: until for each, until in self._until.items() if until > now_us}
        self._until[version] = now_us + self._lease_us

    def release(self, version: ConfigVersion) -> None:
        self._until.pop(version, None)

    @property
    def until_us(self) -> int:
        """From then on it may serve."""
        return max(self._until.values(), default=0)


class Lease:
    def __init__(self, lease_us: int, drift: float) -> None:
        # If clocks may be fast or slow by `drift`, the member's lease_us last at least so long here.
        self._counted_us = int(lease_us * (1 - drift) / (1 + drift))
        self._until: dict[MemberId, int] = {}

    def promised(self, member: MemberId, sent_us: int) -> None:
        """It has answered what was sent then."""
        self._until[member] = max(self._until.get(member, 0), sent_us + self._counted_us)

    def until_us(self, members: Iterable[MemberId]) -> int:
        """Until then none of them serves."""
        return min((self._until.get(member, 0) for member in members), default=FOREVER)
