"""A client's part of a schema change: prepare, and wait for the end.

Here: SchemaChanges.
Not here: what a change does to the catalog (catalog/apply.py), deciding how it ends (governor/rules/schema_changes.py), the
masters' part (own_tables.py).

The order makes a crash harmless at every point. DdlPrepare is in the log before anything happens to data.db; the change
of data.db can be repeated; only DdlCommit makes it visible. Whoever leads goes on with what is prepared: so neither
the client's instance nor the leader is needed to the end. The old physical table of a DROP or TRUNCATE goes after
DdlCommit, when no statement can name it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.catalog.apply import Catalog, check
from shoal.catalog.entries import DdlPrepare, SchemaChange
from shoal.catalog.rights import refuse_schema_change
from shoal.errors import ObjectInUse, OutcomeUnknown
from shoal.node.catalog_log import CatalogLog, Decision
from shoal.protocol.envelope import Failure, error_of
from shoal.storage.catalog_db import CatalogDb

# What a statement asks of a catalog; None: nothing, since IF [NOT] EXISTS was said. Raises what is wrong with it.
BindChange = Callable[[Catalog], SchemaChange | None]


class SchemaChanges:
    def __init__(self, log: CatalogLog) -> None:
        self._log = log

    async def carry_out(self, bind: BindChange, user_id: int) -> bool:
        """Returns when it is committed, False if there was nothing to do; raises why it was refused or aborted.

        Once prepared it comes to an end, whoever waits for it: a client that loses its patience stops nothing,
        and hears OutcomeUnknown. Before that, being cancelled is the end of it.
        """

        def prepare(db: CatalogDb) -> Decision | None:
            # Bound here once more: only the catalog that the entry follows tells which table a name means by
            # now, and which id a new table gets.
            change = bind(db.catalog)
            if change is None:
                return None
            rights = db.catalog.rights
            refuse_schema_change(rights, db.catalog.schema, change, user_id)
            check(db.catalog, change)
            return Decision(DdlPrepare(change, user_id), rights.basis(user_id))

        while True:
            seen = self._log.applied
            try:
                version = await self._log.propose_after(prepare)
            except ObjectInUse:
                # By a change of the same table. It may have ended since that was found.
                if self._log.applied == seen:
                    await self._log.next_change()
                continue
            if version is None:
                return False
            try:
                await self._until_ended(version)
            except asyncio.CancelledError:
                raise OutcomeUnknown(
                    "canceling statement",
                    detail="The schema change goes on, and will be committed or aborted.",
                ) from None
            return True

    async def _until_ended(self, version: int) -> None:
        while version in self._log.catalog.pending:
            await self._log.next_change()
        ended = self._log.catalog.ended.get(version)
        if ended is None:
            raise OutcomeUnknown(
                f"schema change {version} has ended so long ago that nobody knows how",
                detail="This instance was away, and more changes have ended since than the cluster remembers.",
            )
        if ended.aborted is not None:
            aborted = ended.aborted
            raise error_of(Failure(0, aborted.sqlstate, aborted.cause, aborted.detail))
