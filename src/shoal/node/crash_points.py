"""Where a test may have an instance killed: just before and just after the disk has what Raft promises.

Here: crash_point(), and how one is chosen.
Not here: power cuts, which lose what wasn't synced (tests/unit/storage), simulated crashes (sim/).

An instance that was started with SHOAL_CRASH_POINTS=NAME ends by SIGKILL when it comes by a point with an entry in whose bytes
is written `crash NAME POINT`. The points are:

    before_persist   the entry is on its way to the others, and not on our disk
    after_persist    it is on our disk, and nobody has heard of that
    before_apply     it is committed, and not applied
    after_apply      it is applied, and nobody has heard of that

Without that variable this does nothing.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Final, Literal, TypeAlias

from shoal.raft.store import Save

CRASH_POINTS_VARIABLE: Final = "SHOAL_CRASH_POINTS"

When: TypeAlias = Literal["before", "after"]

_NAME: Final = os.environ.get(CRASH_POINTS_VARIABLE)
_SENT_SECONDS: Final = 0.05  # the event loop sends meanwhile what it has been given to send


def crash_point(when: When, save: Save) -> None:
    """On the catalog's thread, before and after a save."""
    if _NAME is None:
        return
    for what, entries in (("persist", save.entries), ("apply", save.committed)):
        mark = f"crash {_NAME} {when}_{what}".encode()
        if any(mark in entry.data for entry in entries):
            if when == "before":
                time.sleep(_SENT_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal is on its way
