"""Coming into the cluster and leaving it: the requests of instances, on either side.

Here: Membership: joining, Online, Offline and expelling, asked of the leader, and answered where this instance leads.
Not here: who may (governor/admission.py), what follows from it (governor/rules/), finding a cluster (discovery.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar, cast

import msgspec

from shoal.catalog.entries import Dml, RowChange
from shoal.catalog.members import TABLES, topology_of_rows
from shoal.catalog.rights import ADMIN_ID
from shoal.catalog.system import PICO_PROPERTY
from shoal.errors import (
    InvalidConfiguration,
    NotLeader,
    OutcomeUnknown,
    RetryableError,
    ShoalError,
    UndefinedObject,
)
from shoal.governor import admission
from shoal.governor.admission import InstanceExpelled, Joiner, Seen
from shoal.node.catalog_log import CatalogLog, Decision
from shoal.node.outside import Outside
from shoal.node.rpc import Caller, Rpc
from shoal.protocol.cluster import (
    Addresses,
    Done,
    Expel,
    GoOffline,
    GoOnline,
    Join,
    Joined,
    Member,
    Standing,
    StandingReply,
)
from shoal.storage.catalog_db import CatalogDb
from shoal.topology.cluster import HTTP, PG, RPC, Topology, Variant

R = TypeVar("R", bound=msgspec.Struct)

_AGAIN_SECONDS: Final = 0.1
_CALL_SECONDS: Final = 5.0


def by_kind(addresses: Addresses) -> Mapping[str, str]:
    return {RPC: addresses.rpc, PG: addresses.pg, HTTP: addresses.http}


async def ask_to_join(
    rpc: Rpc, members: Sequence[Member], request: Join, seconds: float, scale: float
) -> Joined:
    """Of whoever of them leads. Raises why it is refused."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    known = [member.rpc for member in members]
    leaders: dict[int, str] = {member.raft_id: member.rpc for member in members}
    last: ShoalError | None = None
    while True:
        for address in known:
            try:
                return await rpc.call(address, request, Joined, _CALL_SECONDS * scale)
            except (RetryableError, OutcomeUnknown) as error:
                # Asking again is the same join.
                last = error
                leader = error.extra.get("leader_address") or leaders.get(int(error.extra.get("leader", 0)))
                if leader is not None and leader != known[0]:
                    known = [str(leader), *(other for other in known if other != leader)]
                    break
            if clock() > deadline:
                raise InvalidConfiguration(f"joining the cluster: no answer in time: {last}")
        if clock() > deadline:
            raise InvalidConfiguration(f"joining the cluster: no answer in time: {last}")
        await asyncio.sleep(_AGAIN_SECONDS)


class Membership:
    def __init__(
        self,
        log: CatalogLog,
        rpc: Rpc,
        *,
        leader: Callable[[], int],
        self_id: int,
        cluster_uuid: str,
        topology: Callable[[], Topology],
        address: Callable[[int], str | None],
        scale: float,
        outside: Outside,
    ) -> None:
        self._log = log
        self._rpc = rpc
        self._leader = leader
        self._self_id = self_id
        self._cluster_uuid = cluster_uuid
        self._topology = topology
        self._address = address
        self._scale = scale
        self._outside = outside
        self._joining = asyncio.Lock()
        rpc.handle(Join, self._on_join)
        rpc.handle(GoOnline, lambda caller, request, deadline: self._on_go_online(request))
        rpc.handle(GoOffline, lambda caller, request, deadline: self._on_go_offline(request))
        rpc.handle(Expel, lambda caller, request, deadline: self._on_expel(request))
        rpc.handle(Standing, self._on_standing)

    # --- asked of the leader ---------------------------------------------------------------------

    async def go_online(self, request: GoOnline, seconds: float) -> None:
        """Returns when it is in the log. Raises InstanceExpelled."""
        await self._of_leader(request, self._on_go_online, seconds)

    async def go_offline(self, request: GoOffline, seconds: float) -> None:
        await self._of_leader(request, self._on_go_offline, seconds)

    async def expel(self, instance: str, *, force: bool, seconds: float) -> None:
        """Returns when the instance is expelled. Raises why it can't be."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        await self._of_leader(Expel(instance, force), self._on_expel, seconds)
        try:
            async with asyncio.timeout(max(0.1, deadline - clock())):
                while not self._is_expelled(instance):
                    await self._log.next_change()
        except TimeoutError:
            raise OutcomeUnknown(
                "timeout", detail="The instance will be expelled; that has not come to its end yet."
            ) from None

    def _is_expelled(self, instance: str) -> bool:
        found = self._topology().by_uuid.get(instance)
        return found is None or found.is_expelled

    async def _of_leader(
        self, request: msgspec.Struct, here: Callable[[R], asyncio.Future[Done] | object], seconds: float
    ) -> Done:
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while True:
            leader = self._leader()
            try:
                if leader == self._self_id:
                    return await here(request)  # type: ignore[arg-type,misc,no-any-return]
                address = self._address(leader) if leader else None
                if address is None:
                    raise NotLeader
                return await self._rpc.call(address, request, Done, _CALL_SECONDS * self._scale)
            except (RetryableError, OutcomeUnknown):
                # Each of these requests may be said twice.
                if clock() + _AGAIN_SECONDS > deadline:
                    raise
            except UndefinedObject as error:
                if isinstance(request, GoOnline):
                    raise InstanceExpelled(request.uuid) from error
                raise
            except ShoalError as error:
                if error.extra.get("expelled"):
                    raise InstanceExpelled(str(error.extra["expelled"])) from error
                raise
            await asyncio.sleep(_AGAIN_SECONDS)

    # --- on the leader ---------------------------------------------------------------------------

    async def _on_join(self, caller: Caller, request: Join, deadline: float) -> Joined:
        self._check_leads()
        # One after another: each sees the ones before it, so conflicts are rare.
        async with self._joining:
            admitted: list[admission.Admitted] = []
            joiner = Joiner(
                cluster_name=request.cluster_name,
                uuid=request.uuid,
                version=request.version,
                tier=request.tier,
                name=request.name,
                replicaset=request.replicaset,
                failure_domain=request.failure_domain,
                addresses=by_kind(request.addresses),
            )
            replicaset_uuid = self._outside.new_uuid()

            def decide(seen: Seen) -> tuple[RowChange, ...]:
                admitted.append(admission.join(seen, joiner, replicaset_uuid))
                return admitted[-1].changes

            await self._decide(decide)
        instance = admitted[-1].instance
        topology = self._topology()
        members = [
            Member(raft_id, address)
            for (raft_id, kind), address in sorted(topology.addresses.items())
            if kind == RPC and not topology.by_raft_id[raft_id].is_expelled
        ]
        return Joined(instance.raft_id, instance.name, self._cluster_uuid, tuple(members))

    async def _on_go_online(self, request: GoOnline) -> Done:
        return await self._decide(
            lambda seen: admission.go_online(
                seen,
                request.uuid,
                request.version,
                by_kind(request.addresses),
                request.failure_domain,
                request.reason,
            )
        )

    async def _on_go_offline(self, request: GoOffline) -> Done:
        return await self._decide(
            lambda seen: admission.go_offline(seen, request.uuid, request.incarnation, request.reason)
        )

    async def _on_expel(self, request: Expel) -> Done:
        return await self._decide(lambda seen: admission.expel(seen, request.uuid, force=request.force))

    def _on_standing(self, caller: Caller, request: Standing, deadline: float) -> StandingReply:
        instance = self._topology().by_uuid.get(request.uuid)
        expelled = instance is not None and instance.current.variant is Variant.EXPELLED
        return StandingReply(self._leader(), expelled)

    async def _decide(self, decide: Callable[[Seen], tuple[RowChange, ...]]) -> Done:
        self._check_leads()

        def job(db: CatalogDb) -> Decision | None:
            changes = decide(_seen(db, self._outside.now()))
            return Decision(Dml(changes, ADMIN_ID), admission.RANGES) if changes else None

        index = await self._log.propose_after(job, seconds=_CALL_SECONDS * self._scale)
        return Done(index if index is not None else self._log.applied)

    def _check_leads(self) -> None:
        leader = self._leader()
        if leader != self._self_id:
            error = NotLeader(leader)
            address = self._address(leader) if leader else None
            if address is not None:
                # Who joins may never have heard of it.
                error.extra = {**error.extra, "leader_address": address}
            raise error


def _seen(db: CatalogDb, now: int) -> Seen:
    return Seen(
        cluster_name=_property(db, "cluster_name"),
        cluster_version=_property(db, "cluster_version"),
        topology=topology_of_rows({table.id: db.rows(table) for table in TABLES}),
        tiers=db.catalog.schema.tiers,
        now=now,
    )


def _property(db: CatalogDb, key: str) -> str:
    values = {row[0]: row[1] for row in db.rows(PICO_PROPERTY)}
    return msgspec.json.decode(cast(str, values[key]), type=str)
