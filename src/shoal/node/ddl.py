"""A client's part of a schema change: prepare, and wait for the end; or give up what somebody has prepared.

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
from typing import Final

from shoal.catalog.apply import Catalog, Ended, Pending, after, check
from shoal.catalog.cas import Range
from shoal.catalog.entries import DdlAbort, DdlPrepare, SchemaChange
from shoal.catalog.rights import refuse_schema_change
from shoal.catalog.schema import Sharded
from shoal.catalog.system import PICO_PENDING_SCHEMA_CHANGE
from shoal.errors import (
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    OutcomeUnknown,
    QueryCanceled,
    ShoalError,
    UndefinedObject,
)
from shoal.node.catalog_log import CatalogLog, Decision
from shoal.protocol.envelope import Failure, error_of
from shoal.storage.catalog_db import CatalogDb
from shoal.topology.cluster import Topology

ABORTED: Final = "ddl operation was aborted"

# What a statement asks of a catalog; None: nothing, since IF [NOT] EXISTS was said. Raises what is wrong with it.
BindChange = Callable[[Catalog], SchemaChange | None]


class SchemaChanges:
    def __init__(self, log: CatalogLog, topology: Callable[[], Topology]) -> None:
        self._log = log
        self._topology = topology

    async def carry_out(self, bind: BindChange, user_id: int) -> int | None:
        """Returns when it is committed, the index of the entry that says so; None if there was nothing to do. Raises why it
        was refused or aborted.

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
            pending = self._log.catalog.pending
            try:
                version = await self._log.propose_after(prepare)
            except ObjectInUse:
                # By a change of the same table. It may have ended since that was found.
                while self._log.catalog.pending is pending:
                    await self._log.next_change()
                continue
            return None if version is None else await self._until_ended(version)

    async def _until_ended(self, version: int) -> int:
        try:
            while version in self._log.catalog.pending:
                await self._log.next_change()
        except asyncio.CancelledError:
            if version in self._log.catalog.pending:
                raise OutcomeUnknown(
                    "canceling statement",
                    detail=f"{self.told(self._log.catalog.pending[version])} It will be committed or aborted.",
                    hint=f"_pico_ended_schema_change will show how it ended. ALTER SYSTEM ABORT SCHEMA CHANGE {version}"
                    " gives it up.",
                ) from None
        ended = self._log.catalog.ended.get(version)
        if ended is None:
            raise OutcomeUnknown(
                f"schema change {version} has ended so long ago that nobody knows how",
                detail="This instance was away, and more changes have ended since than the cluster remembers.",
            )
        if ended.aborted is not None:
            aborted = ended.aborted
            raise error_of(Failure(0, aborted.sqlstate, aborted.cause, aborted.detail))
        return ended.index

    def told(self, pending: Pending) -> str:
        """What it waits for, for people."""
        catalog = self._log.catalog
        becomes = after(catalog.schema, pending.change, pending.version)
        missing = []
        if becomes is not None and isinstance(becomes.distribution, Sharded):
            masters = self._topology().masters(becomes.distribution.tier)
            missing = [master.name for master in masters if not master.is_online]
        if not missing:
            return f"Schema change {pending.version} is still pending."
        are = "which is" if len(missing) == 1 else "which are"
        return f"Schema change {pending.version} waits for {', '.join(missing)}, {are} not Online."

    async def abort(self, version: int) -> None:
        """Returns when it is aborted. What it has done to tables is taken back by whoever has done it."""

        def decide(db: CatalogDb) -> Decision:
            pending = db.catalog.pending.get(version)
            if pending is None:
                raise _not_pending(version, db.catalog.ended.get(version))
            row = Range.of_key(PICO_PENDING_SCHEMA_CHANGE.id, (pending.table_id,))
            return Decision(
                DdlAbort(version, QueryCanceled.sqlstate, ABORTED, "An admin gave it up."), (row,)
            )

        await self._log.propose_after(decide)


def _not_pending(version: int, ended: Ended | None) -> ShoalError:
    if ended is None:
        return UndefinedObject(f"there is no schema change {version}, or it has ended long ago")
    how = "committed" if ended.aborted is None else "aborted"
    return ObjectNotInPrerequisiteState(f"schema change {version} has ended already: it was {how}")
