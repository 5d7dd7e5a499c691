"""What a proposal is told when its instance catches up with a snapshot instead of seeing its entry."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.catalog.apply import Catalog, Ended, Pending
from shoal.catalog.entries import DropTable
from shoal.catalog.schema import Schema, TableId
from shoal.errors import OutcomeUnknown
from shoal.node.catalog_log import CatalogLog, _Proposal
from shoal.node.outside import REAL
from shoal.node.raft_loop import Saved
from shoal.protocol.cluster import Proposed
from shoal.raft.messages import Index
from shoal.storage.catalog_db import Installed

SINCE = Index(100)
TABLE = TableId(1025)


@pytest.mark.parametrize(
    "there, catalog, expected",
    [
        (Proposed(40, 3), Catalog(Schema(0), {40: Pending(40, 3, TABLE, (), DropTable(TABLE), 1)}), 40),
        (Proposed(40, 3), Catalog(Schema(0), ended={40: Ended(40, 3, TABLE, None, 41)}), 40),
        # Another leader's change stands there.
        (Proposed(40, 3), Catalog(Schema(0), ended={40: Ended(40, 4, TABLE, None, 41)}), None),
        # It was no schema change, or one that has ended long ago.
        (Proposed(40, 3), Catalog(Schema(0)), None),
    ],
    ids=["pending", "ended", "another", "nothing"],
)
def test_the_catalog_remembers_schema_changes(
    there: Proposed, catalog: Catalog, expected: int | None
) -> None:
    async def run() -> int | None:
        loop = asyncio.get_running_loop()
        thread = cast(Any, SimpleNamespace(db=SimpleNamespace(catalog=Catalog(Schema(0)), applied=30)))
        log = CatalogLog(thread, loop, REAL)
        proposal = log._proposals[7] = _Proposal(loop.create_future())
        waiting = loop.create_task(log._settled(proposal, 7, there, loop.time() + 10))
        await asyncio.sleep(0)
        log.on_saved(Saved(Installed(SINCE, log.catalog, catalog, ()), ()))
        assert not log._proposals and not log._placed
        return await waiting

    if expected is None:
        with pytest.raises(OutcomeUnknown, match="without seeing it"):
            asyncio.run(run())
    else:
        assert asyncio.run(run()) == expected
