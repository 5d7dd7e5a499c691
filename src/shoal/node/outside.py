"""What an instance takes from outside, besides its loop, its files and its sockets: the clock, chance, and threads.

Here: Outside, and REAL, the one of a process.
Not here: the loop's clock and its timers, which count from nowhere.

Whatever decides asks here, never the modules time, random and secrets: who hands in another Outside can have the same
run twice.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shoal.node.aside import Aside
from shoal.node.catalog_thread import CatalogThread
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.readers import ReaderPool
from shoal.storage.writer import Writer


def _microseconds() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    now: Callable[[], int] = _microseconds  # since 1970, by the wall clock
    # The operating system's: secrets are made of it, too.
    chance: random.Random = field(default_factory=random.SystemRandom)
    aside: Callable[[asyncio.AbstractEventLoop], Aside] = Aside
    catalog_thread: Callable[[CatalogDb, asyncio.AbstractEventLoop], CatalogThread] = CatalogThread
    writer: Callable[..., Writer] = Writer
    readers: Callable[..., ReaderPool] = ReaderPool

    def new_uuid(self) -> str:
        return str(uuid.UUID(bytes=self.chance.randbytes(16), version=4))


REAL: Final = Outside()
