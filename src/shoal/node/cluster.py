"""An instance as a member of its cluster: the log, who is there, who leads, and coming and going.

Here: Cluster, which ties Raft, RPC, the catalog's log and the governor together; found_or_joined(), by which a new
directory becomes a member's.
Not here: what each of them does (raft_loop.py, rpc/, catalog_log.py, governing.py, membership.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from shoal import __version__
from shoal.catalog.entries import RowChange
from shoal.catalog.members import TABLE_IDS, TABLES, topology_of_rows
from shoal.catalog.schema import Table, TierName
from shoal.catalog.settings import ClusterSettings
from shoal.catalog.system import Row
from shoal.errors import CannotConnectNow, Fault, FeatureNotSupported, InvalidConfiguration, ShoalError
from shoal.governor.admission import InstanceExpelled
from shoal.node.bootstrap import boot
from shoal.node.catalog_log import CatalogLog, Change
from shoal.node.config import Config
from shoal.node.discovery import Discovery
from shoal.node.governing import Governing
from shoal.node.hearing import Hearing
from shoal.node.membership import Membership, ask_to_join
from shoal.node.outside import Outside
from shoal.node.presence import Presence
from shoal.node.raft_loop import RaftLoop
from shoal.node.rpc import Caller, LinkEvent, Rpc
from shoal.node.rpc.connection import Timing
from shoal.node.secret import make_cluster_secret
from shoal.protocol.cluster import (
    Addresses,
    Found,
    GoOffline,
    GoOnline,
    Join,
    Member,
    Propose,
    Proposed,
    Standing,
    StandingReply,
)
from shoal.protocol.handshake import Introduction
from shoal.raft.messages import RaftId
from shoal.raft.node import Limits, Node
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.raft_log import MemberIdentity
from shoal.topology.cluster import PG, RPC, Instance, Topology, Variant
from shoal.topology.search import Seeker

_log: Final = logging.getLogger(__name__)

_STOP_SECONDS: Final = 3.0  # for saying good-bye
_STANDING_SECONDS: Final = 1.0
# When the leader's process is gone its followers campaign one after another, the first of them at once: two at the same
# time would only divide the votes.
_TURN_SECONDS: Final = 0.06
_CALL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """What an instance has to have before it can be a member."""

    config: Config
    addresses: Addresses
    rpc: Rpc
    listener: socket.socket  # of the RPC
    db: CatalogDb
    introduced: list[Introduction]  # who we say we are; the last counts
    outside: Outside


def open_rpc(
    config: Config, loop: asyncio.AbstractEventLoop, introduced: list[Introduction], outside: Outside
) -> Rpc:
    return Rpc(
        loop,
        introduction=lambda: introduced[-1],
        secret=make_cluster_secret(config.secret_file),
        timing=Timing(scale=config.timing_scale),
        chance=outside.chance,
    )


# --- becoming a member ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrival:
    """Who this instance is, and who else it knows before it has the log."""

    identity: MemberIdentity
    members: tuple[Member, ...]
    discovery: Discovery  # answers those who look for the cluster


async def found_or_joined(place: Place) -> Arrival:
    """After a restart it is told by the directory, else found out."""
    config, db = place.config, place.db
    identity = db.identity()
    if identity is None:
        # Kept before anybody hears of it: an instance that crashes while it joins asks again under the same uuid.
        identity = MemberIdentity(RaftId(0), place.outside.new_uuid(), "", config.cluster_name)
        db.save_identity(identity)
    check_identity(db, identity, config)
    _introduce(place, identity)
    me = Seeker(identity.instance_uuid, place.addresses.rpc, _can_vote(config))
    discovery = Discovery(place.rpc, me, (str(peer) for peer in config.peer), config.timing_scale)
    members: tuple[Member, ...] = ()
    if identity.raft_id:
        discovery.found = _found(identity, place.addresses, _topology_of(db), members)
    await place.rpc.listen(place.listener)
    if identity.raft_id:
        return Arrival(identity, members, discovery)
    try:
        async with asyncio.timeout(config.boot_timeout):
            there = await discovery.run()
    except TimeoutError:
        raise InvalidConfiguration(
            f"no cluster was found in {config.boot_timeout:g} s: each of the peers must answer once"
        ) from None
    if there is None:
        if not _can_vote(config):
            raise InvalidConfiguration(
                f"tier: a cluster can't begin with tier {config.tier!r}, which doesn't vote"
            )
        identity = boot(db, config, identity.instance_uuid, place.addresses, place.outside)
        _log.info("this instance begins cluster %r, %s", config.cluster_name, identity.cluster_uuid)
    else:
        identity, members = await _join(place, identity, there)
    _introduce(place, identity)
    discovery.found = _found(identity, place.addresses, _topology_of(db), members)
    return Arrival(identity, members, discovery)


async def _join(
    place: Place, identity: MemberIdentity, found: Found
) -> tuple[MemberIdentity, tuple[Member, ...]]:
    config = place.config
    request = Join(
        config.cluster_name,
        identity.instance_uuid,
        __version__,
        config.tier,
        config.instance_name,
        config.replicaset,
        dict(config.failure_domain),
        place.addresses,
    )
    seconds = config.join_timeout * config.timing_scale
    joined = await ask_to_join(place.rpc, found.members, request, seconds, config.timing_scale)
    identity = MemberIdentity(
        RaftId(joined.raft_id), identity.instance_uuid, joined.cluster_uuid, config.cluster_name
    )
    place.db.save_identity(identity)
    _log.info("joined cluster %r as %s, raft id %s", config.cluster_name, joined.name, joined.raft_id)
    return identity, joined.members


def _found(
    identity: MemberIdentity, own: Addresses, topology: Topology, joined_through: Iterable[Member]
) -> Found:
    """What those are told who look for a cluster: all that we know of are as good to be asked."""
    members = {member.raft_id: member.rpc for member in joined_through}
    for (raft_id, kind), address in topology.addresses.items():
        if kind == RPC:
            members[raft_id] = address
    gone = [raft_id for raft_id, instance in topology.by_raft_id.items() if instance.is_expelled]
    for raft_id in gone:
        members.pop(raft_id, None)
    members[identity.raft_id] = own.rpc
    return Found(
        identity.cluster_name,
        identity.cluster_uuid,
        tuple(Member(raft_id, address) for raft_id, address in sorted(members.items())),
    )


def _topology_of(db: CatalogDb) -> Topology:
    return topology_of_rows({table.id: db.rows(table) for table in TABLES})


def _introduce(place: Place, identity: MemberIdentity) -> None:
    place.introduced.append(
        Introduction(
            identity.cluster_name,
            identity.cluster_uuid,
            identity.instance_uuid,
            place.config.instance_name or "",
            identity.raft_id,
            place.addresses.rpc,
        )
    )


def _can_vote(config: Config) -> bool:
    return any(tier.name == config.tier and tier.can_vote for tier in config.founding_tiers)


def check_identity(db: CatalogDb, identity: MemberIdentity, config: Config) -> None:
    """A directory belongs to one instance for good: a changed name is a mistake, never a renaming."""
    known = {"cluster_name": identity.cluster_name}
    instance = _topology_of(db).by_uuid.get(identity.instance_uuid)
    if instance is not None:
        known |= {
            "instance_name": instance.name,
            "replicaset": instance.replicaset,
            "tier": instance.tier,
        }
    for key, value in known.items():
        asked = getattr(config, key)
        if asked is not None and asked != value:
            raise InvalidConfiguration(
                f"{key}: {config.instance_dir} belongs to an instance with {key} {value!r}, not {asked!r}"
            )


# --- being one -----------------------------------------------------------------------------------


class Cluster:
    """Lives on the event loop."""

    def __init__(
        self,
        place: Place,
        arrival: Arrival,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Callable[[], ClusterSettings],
        apply: Callable[[int], Awaitable[None]],
        up_to_date: Callable[[], Awaitable[None]],
        fail: Callable[[Fault], None],
    ) -> None:
        """`apply` a pending schema change to our own tables; `up_to_date`: until they are what the catalog shows."""
        config = place.config
        self._config = config
        self._place = place
        self._loop = loop
        self._fail = fail
        self._up_to_date = up_to_date
        self.identity = identity = arrival.identity
        self.rpc = place.rpc
        self._scale = scale = config.timing_scale
        self._rows: dict[tuple[int, tuple[object, ...]], Row] = {}
        self._arrival = arrival
        # Where they were found, in spite of what the catalog says, or before it says anything.
        self._met = {member.raft_id: member.rpc for member in arrival.members}
        for table in TABLES:
            for row in place.db.rows(table):
                self._put(RowChange(table.id, _key_of(table, row), row))
        self.topology = self._topology()
        self._tell_seekers()
        limits = Limits(
            election_ticks=config.raft_election_ticks, heartbeat_ticks=config.raft_heartbeat_ticks
        )
        outside = place.outside
        core = Node(identity.raft_id, place.db.load(), limits, outside.chance)
        self.thread = outside.catalog_thread(place.db, loop)
        self.log = CatalogLog(self.thread, loop, outside)
        self.raft = RaftLoop(
            core,
            self.thread,
            loop,
            tick_seconds=config.raft_tick_ms / 1000 * scale,
            send=self._send,
            on_saved=self.log.on_saved,
            on_given_up=self.log.on_given_up,
            settings=settings,
            fail=fail,
        )
        self.log.attach(self.raft, self)
        self.log.on_change(self._on_change)
        self._membership = Membership(
            self.log,
            self.rpc,
            leader=lambda: self.raft.leader,
            self_id=identity.raft_id,
            cluster_uuid=identity.cluster_uuid,
            topology=lambda: self.topology,
            address=self.address,
            scale=scale,
            outside=outside,
        )
        self._presence = Presence(
            loop,
            instance=lambda: self.instance,
            catch_up=self._catch_up,
            ask=self._ask_to_be_online,
            chance=outside.chance.random,
            scale=scale,
        )

        def offline_seconds() -> float:
            return settings().governor_auto_offline_timeout * scale

        self._hearing = Hearing(
            core,
            loop,
            seconds=offline_seconds,
            should_be_online=self._should_be_online,
            lost=lambda: self._governing.wake(),
            scale=scale,
        )
        self.raft.on_heard(self._hearing.heard)
        self.raft.on_role(self._hearing.on_role)
        self._governing = Governing(
            self.raft,
            self.log,
            self.rpc,
            loop,
            topology=lambda: self.topology,
            address=self.address,
            apply=apply,
            hearing=self._hearing,
            offline_seconds=offline_seconds,
            now=outside.now,
            scale=scale,
        )
        self.rpc.handle(Propose, lambda caller, request, deadline: self.log.on_propose(request))
        self.rpc.on_one_way(self._receive)
        self.rpc.on_link(self._on_link)
        self.rpc.on_peer(self._on_peer)
        self.on_topology: list[Callable[[], None]] = [self._presence.on_topology]
        self._turn: asyncio.TimerHandle | None = None
        self._standing: asyncio.Task[None] | None = None

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.raft.start()
        self._governing.start()
        self._standing = self._loop.create_task(self._ask_where_we_stand())

    async def come_online(self) -> None:
        """Returns when the cluster counts this instance as Online, and it has applied that. From then on it comes back by
        itself whenever it is made Offline."""
        try:
            await self._presence.begin(self._config.boot_timeout)
        except TimeoutError:
            raise CannotConnectNow(
                f"the instance did not come Online in {self._config.boot_timeout:g} s: is a majority of the voters there?"
            ) from None

    async def _ask_to_be_online(self, reason: str) -> None:
        request = GoOnline(
            self.identity.instance_uuid,
            __version__,
            self._place.addresses,
            dict(self._config.failure_domain),
            reason,
        )
        await self._membership.go_online(request, self._config.boot_timeout)

    async def _catch_up(self, seconds: float) -> None:
        """With the log, and with what it asks of our tables."""
        await self.log.catch_up(self._loop.time() + seconds)
        await self._up_to_date()

    async def leave(self) -> None:
        """Says good-bye: hands leadership over, and is Offline. All of it in a bounded time, or not."""
        await self._presence.stop()
        instance = self.instance
        if instance is None or instance.is_expelled:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS * self._scale):
                others = [
                    raft_id
                    for raft_id in self.raft.core.membership.voters
                    if raft_id != self.identity.raft_id
                ]
                if self.raft.is_leader:
                    await self._hand_over(others)
                request = GoOffline(instance.uuid, instance.target.incarnation, "shutdown")
                await self._membership.go_offline(request, _STOP_SECONDS * self._scale)
                while self.instance is not None and self.instance.current.variant is Variant.ONLINE:
                    await self.log.next_change()
                if len(others) == 1:
                    # Of two voters this one is still needed for as long as it votes.
                    await self.raft.until(
                        lambda: self.identity.raft_id not in self.raft.core.membership.voters
                    )
        except (TimeoutError, ShoalError, Fault) as error:
            _log.info("leaving without a good-bye: %s", str(error) or "not in time")

    async def _hand_over(self, others: Iterable[int]) -> None:
        caught_up = self.raft.caught_up()
        to = next((other for other in others if other in caught_up), None)
        if to is None:
            return
        self.raft.transfer_leadership(to)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS * self._scale / 3):
                await self.raft.until(lambda: not self.raft.is_leader)

    async def close(self) -> None:
        if self._standing is not None:
            self._standing.cancel()
        if self._turn is not None:
            self._turn.cancel()
        await self._presence.stop()
        self._hearing.stop()
        await self._governing.stop()
        self.raft.stop()
        await self.rpc.close()
        await self.thread.close()

    async def expel(self, instance_uuid: str, *, force: bool, seconds: float) -> None:
        await self._membership.expel(instance_uuid, force=force, seconds=seconds)

    # --- who is there ----------------------------------------------------------------------------

    @property
    def instance(self) -> Instance | None:
        """Our own row, as far as we have applied it."""
        return self.topology.by_uuid.get(self.identity.instance_uuid)

    def address(self, raft_id: int) -> str | None:
        return self._met.get(raft_id) or self.topology.address(raft_id, RPC)

    def is_master(self, tier: TierName) -> bool:
        """Does this instance hold a master's tables of that tier, as far as it has applied the log?"""
        instance = self.instance
        if instance is None or instance.is_expelled or instance.tier != tier:
            return False
        replicaset = self.topology.replicasets[instance.replicaset]
        return replicaset.current_master == instance.name and replicaset.state != "expelled"

    def _should_be_online(self, raft_id: int) -> bool:
        instance = self.topology.by_raft_id.get(raft_id)
        return instance is not None and instance.target.variant is Variant.ONLINE

    def refuse_foreign(self, tier: TierName) -> None:
        """Raises if another instance has the rows of the tier's tables."""
        owners = self.topology.owners(tier)
        if [owner.uuid for owner in owners] == [self.identity.instance_uuid]:
            return
        where = ", ".join(f"{owner.name} ({self.topology.address(owner.raft_id, PG)})" for owner in owners)
        raise FeatureNotSupported(
            "sharded tables can't be reached through every instance yet",
            detail=f"The rows of tier {tier} are at {where}."
            if where
            else f"Nobody owns the buckets of tier {tier}.",
            hint="Connect there. Global tables (DISTRIBUTED GLOBALLY) can be used anywhere.",
        )

    def _on_change(self, change: Change) -> None:
        touched = [row for row in change.rows if row.table_id in TABLE_IDS]
        if not touched:
            return
        before = self.topology
        for row in touched:
            self._put(row)
        self.topology = self._topology()
        self._tell_seekers()
        for key, address in self.topology.addresses.items():
            if key[1] == RPC and before.addresses.get(key) != address:
                self._met.pop(key[0], None)
        for key, address in before.addresses.items():
            if key[1] == RPC and address not in self.topology.addresses.values():
                self.rpc.forget(address)
        for uuid_, other in self.topology.by_uuid.items():
            was = before.by_uuid.get(uuid_)
            if was is None or was.target.incarnation < other.target.incarnation:
                self._hearing.began_anew(other.raft_id)
        instance = self.instance
        if instance is not None and instance.is_expelled:
            self._fail(Fault(f"instance {instance.name} was expelled from the cluster"))
        for changed in self.on_topology:
            changed()

    def _tell_seekers(self) -> None:
        arrival = self._arrival
        arrival.discovery.found = _found(
            arrival.identity, self._place.addresses, self.topology, arrival.members
        )

    def _put(self, change: RowChange) -> None:
        key = (change.table_id, tuple(change.key))
        if change.row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = tuple(change.row)

    def _topology(self) -> Topology:
        rows: dict[int, list[Row]] = {table.id: [] for table in TABLES}
        for (table_id, _), row in self._rows.items():
            rows[table_id].append(row)
        return topology_of_rows(rows)  # type: ignore[arg-type]

    # --- messages --------------------------------------------------------------------------------

    async def propose(self, leader: int, request: Propose, timeout: float) -> Proposed:
        address = self.address(leader)
        if address is None:
            raise CannotConnectNow(f"nobody knows where the instance with raft id {leader} is")
        return await self.rpc.call(address, request, Proposed, timeout)

    def _send(self, raft_id: int, message: bytes) -> None:
        address = self.address(raft_id)
        if address is None or not self.rpc.send(address, message):
            self.raft.core.unreachable(RaftId(raft_id))

    def _receive(self, caller: Caller, message: bytes) -> None:
        self.raft.receive(message)

    def _on_link(self, address: str, event: LinkEvent) -> None:
        raft = self.raft
        member = next(
            (each for each in self.topology.by_raft_id if self.address(each) == address),
            None,
        )
        if member is None:
            return
        if event is LinkEvent.UP:
            self._hearing.heard(member)
        elif event is LinkEvent.REFUSED:
            self._hearing.refused(member)
        if event is LinkEvent.LOST:
            raft.unreachable(member)
        elif event is LinkEvent.REFUSED and member == raft.leader and not raft.is_leader:
            # Nobody listens there any more: its process is gone.
            _log.info("the leader's process is gone")
            raft.leader_lost()
            self._succeed(member, raft.term)

    def _on_peer(self, peer: Introduction) -> None:
        """It may have moved since the catalog was told where it is: after a start nobody hears of it otherwise."""
        # Without a row of our own we know nobody: we have joined, and died before we had the log.
        if peer.address and (self.instance is None or peer.raft_id in self.topology.by_raft_id):
            if peer.address != self.topology.address(peer.raft_id, RPC):
                self._met[peer.raft_id] = peer.address
            else:
                self._met.pop(peer.raft_id, None)

    def _succeed(self, gone: int, term: int, *, rounds: int = 0) -> None:
        """Campaigns when it is this voter's turn; if that leads to nobody, in the next round again."""
        voters = [voter for voter in self.raft.core.membership.voters if voter != gone]
        if self.identity.raft_id not in voters:
            return
        if self._turn is not None:
            self._turn.cancel()
        turn = (
            voters.index(self.identity.raft_id)
            + self._place.outside.chance.random() / 4
            + rounds * (len(voters) + 1)
        )
        self._turn = self._loop.call_later(_TURN_SECONDS * self._scale * turn, self._take_turn, gone, term)

    def _take_turn(self, gone: int, term: int) -> None:
        self._turn = None
        if self.raft.leader:
            return
        if self.raft.term == term:
            self.raft.campaign()
        # Else somebody has begun to: it gets the time of a round.
        self._succeed(gone, self.raft.term, rounds=1)

    async def _ask_where_we_stand(self) -> None:
        """Who was expelled while it was away hears of no leader ever again: so it asks the others. These hear by it where
        it is now, if it has moved."""
        quiet = 0
        while True:
            await asyncio.sleep(_STANDING_SECONDS * self._scale)
            quiet = 0 if self.raft.leader else quiet + 1
            if quiet < 2:
                continue
            known = {self.address(raft_id) or "" for raft_id in self.topology.by_raft_id}
            known |= {str(peer) for peer in self._config.peer}  # where they may have moved to
            for address in sorted(known - {"", self._place.addresses.rpc}):
                try:
                    request = Standing(self.identity.instance_uuid)
                    reply = await self.rpc.call(address, request, StandingReply, _CALL_SECONDS * self._scale)
                except ShoalError:
                    continue
                if reply.expelled:
                    self._fail(Fault(str(InstanceExpelled(self.identity.instance_uuid))))
                    return


def _key_of(table: Table, row: Row) -> tuple[object, ...]:
    return tuple(row[table.columns.index(table.by_number[part.column])] for part in table.primary_key)
