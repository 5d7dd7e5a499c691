"""An instance: its files, its threads, its listeners, from start to stop.

Here: Node, what sessions share; opened(), a node on its directory; serve(), the life of an instance in order;
run(), with a loop of its own.
Not here: what each part does (storage/, catalog_log.py, pg_server.py, http.py).

The order of starting: the directory is ours, the files are sound, the catalog is read, what a crash
interrupted is finished, and only then does anybody listen. Stopping goes the other way round, and what was
acknowledged is on the disk long before.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

import apsw
import uvloop

from shoal import __version__
from shoal.catalog.apply import Catalog
from shoal.catalog.schema import Schema, Sharded, Table, TableId, TierName
from shoal.catalog.settings import ClusterSettings, changed, settings_of_rows
from shoal.catalog.system import PICO_DB_CONFIG
from shoal.errors import ConfigurationLimitExceeded, Fault, InsufficientPrivilege, ShoalError
from shoal.node.about import facts_of
from shoal.node.accounts import Accounts
from shoal.node.applied import Applied
from shoal.node.audit import Audit
from shoal.node.bootstrap import FIRST_ID
from shoal.node.catalog_log import Change
from shoal.node.cluster import Cluster, Place, found_or_joined, open_rpc
from shoal.node.config import Address, Config, Running
from shoal.node.ddl import SchemaChanges
from shoal.node.execute import Guard, Turn, write
from shoal.node.http import Health, HttpServer
from shoal.node.listen import bind, bound_address
from shoal.node.metrics import Metrics
from shoal.node.outside import REAL, Outside
from shoal.node.own_tables import OwnTables
from shoal.node.pg_server import PgServer
from shoal.node.statements import Statements
from shoal.protocol.cluster import Addresses
from shoal.protocol.handshake import Introduction
from shoal.storage.catalog_db import CatalogDb
from shoal.storage.directory import InstanceDirectory
from shoal.storage.functions import register, register_guard
from shoal.storage.readers import PointReader
from shoal.storage.sqlite import Settings, SqliteFiles, WalMode

_log: Final = logging.getLogger(__name__)


class Limits:
    """How many statements and portals are open, of how many. Shared by all clients of the instance."""

    __slots__ = ("_settings", "portals", "statements")

    def __init__(self, settings: Callable[[], ClusterSettings]) -> None:
        self._settings = settings
        self.statements = 0
        self.portals = 0

    def open_statement(self) -> None:
        most = self._settings().pg_statement_max
        if most and self.statements >= most:
            raise _full("Statement", "pg_statement_max", most)
        self.statements += 1

    def open_portal(self) -> None:
        most = self._settings().pg_portal_max
        if most and self.portals >= most:
            raise _full("Portal", "pg_portal_max", most)
        self.portals += 1


def _full(what: str, setting: str, most: int) -> ShoalError:
    return ConfigurationLimitExceeded(
        f"{what} storage is full. Current size limit: {most}. Please, increase storage limit using: "
        f'ALTER SYSTEM SET "{setting}" TO <new-limit>'
    )


@dataclass(frozen=True, slots=True)
class Listeners:
    pg: socket.socket
    http: socket.socket
    rpc: socket.socket
    addresses: Addresses


class Node:
    """What the sessions of an instance share. Lives on the event loop."""

    def __init__(
        self,
        config: Config,
        files: SqliteFiles,
        settings: Settings,
        db: CatalogDb,
        guard: Guard,
        catalog_guard: Guard,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        outside: Outside,
        audit: Audit,
    ) -> None:
        self.config = config
        self.outside = outside
        self.audit = audit
        self.loop = loop
        self.metrics = metrics
        self.stopping = asyncio.Event()
        self.fault: Fault | None = None
        self.cluster_settings = settings_of_rows(db.rows(PICO_DB_CONFIG))
        self.guard = guard  # of the writer
        self.catalog_guard = catalog_guard

        def post(call: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(call)

        self.writer = outside.writer(
            files, settings, post=post, on_fault=self.fail, naming=self._naming, counts=self.metrics
        )
        self.readers = outside.readers(
            files, settings, post=post, naming=self._naming, threads=config.reader_threads
        )
        self.point_reader = PointReader(files, settings, naming=self._naming, cache_bytes=config.cache_bytes)
        self.writer.start()
        self.aside = outside.aside(loop)
        self.tasks: set[asyncio.Task[None]] = set()  # of sessions, for statements that take several steps
        self.limits = Limits(lambda: self.cluster_settings)

    def join(self, cluster: Cluster) -> None:
        """From now on it is a member."""
        self.cluster = cluster
        self.log = cluster.log
        self.log.on_change(self._on_change)
        self.own_tables = OwnTables(
            cluster.log,
            self.writer,
            cluster.rpc,
            self.loop,
            is_master=cluster.is_master,
            fail=self.fail,
        )
        self.statements = Statements(lambda: self.log.catalog, self._refuse_out_of_reach)
        self.schema_changes = SchemaChanges(cluster.log, lambda: cluster.topology)
        self.applied = Applied(
            cluster.log,
            cluster.rpc,
            self.loop,
            self_uuid=cluster.identity.instance_uuid,
            topology=lambda: cluster.topology,
            address=cluster.address,
            settled=lambda: write(self.writer, Turn()),
            scale=self.config.timing_scale,
        )
        self.accounts = Accounts(
            cluster.log,
            cluster.rpc,
            self.loop,
            self_uuid=cluster.identity.instance_uuid,
            topology=lambda: cluster.topology,
            address=cluster.address,
            settings=lambda: self.cluster_settings,
            chance=self.outside.chance,
            # The same on every instance and after every start: what doesn't change doesn't tell.
            mock_key=hmac.digest(cluster.rpc.secret, b"salts of users that do not exist", "sha256"),
            audit=self.audit,
            scale=self.config.timing_scale,
        )
        cluster.rpc.admit_clients(lambda name: self.accounts.exchange(name, "RPC", scram_only=True))
        self.facts = facts_of(self.config, cluster)
        cluster.on_topology.append(self._on_mastership)
        cluster.on_topology.append(self.applied.on_topology)
        self.applied.on_topology()
        self._masters_in: frozenset[TierName] = frozenset()

    def _on_mastership(self) -> None:
        before, tiers = self._masters_in, self.schema.tiers
        self._masters_in = frozenset(tier for tier in tiers if self.cluster.is_master(tier))
        if not self._masters_in <= before:
            self.own_tables.follow_all()

    def _refuse_out_of_reach(self, table: Table) -> None:
        """Raises if a statement can't have the rows of a sharded table: not here, or not now."""
        assert isinstance(table.distribution, Sharded), table
        self.cluster.refuse_foreign(table.distribution.tier)
        self.own_tables.refuse_unread(table)

    @property
    def catalog(self) -> Catalog:
        return self.log.catalog

    @property
    def schema(self) -> Schema:
        return self.log.catalog.schema

    def fail(self, fault: Fault) -> None:
        """The instance can no longer be trusted, and stops."""
        _log.critical("the instance stops: %s", fault)
        if self.fault is None:
            self.fault = fault
        self.stopping.set()

    def _naming(self, table_id: int) -> Table | None:
        return self.log.catalog.schema.tables_by_id.get(TableId(table_id))

    def _on_change(self, change: Change) -> None:
        self.cluster_settings = changed(self.cluster_settings, change.rows)
        self.audit.on_change(change, self.cluster.topology)
        rights = change.after.rights
        if rights is not change.before.rights:
            self.cluster.rpc.end_clients(
                lambda name: (user := rights.by_name.get(name)) is not None and rights.may_log_in(user.id)
            )

    def check_global_write(self, table: Table) -> None:
        if not table.system:
            return
        # What this instance and the others know of themselves must not be pulled away under them.
        raise InsufficientPrivilege(
            f"{table.name} is a system table: it is changed by schema statements, ALTER SYSTEM, ALTER USER and the"
            " instances themselves, not by INSERT, UPDATE or DELETE"
        )

    def query_plan(self, sql: str) -> list[str]:
        """SQLite's own plan of a text, for EXPLAIN (RAW). It only compiles, so the loop may do it."""
        rows = self.point_reader.rows(f"EXPLAIN QUERY PLAN {sql}", ())
        return [str(row[3]) for row in rows]

    async def close(self) -> None:
        await self.accounts.stop()
        await self.own_tables.stop()
        # The last one to close a file copies its write-ahead log back, and readers can't.
        await self.loop.run_in_executor(None, self.readers.stop)
        self.point_reader.close()
        await self.loop.run_in_executor(None, self.writer.stop)


# --- the life of an instance ---------------------------------------------------------------------


@contextlib.asynccontextmanager
async def opened(
    directory: InstanceDirectory,
    config: Config,
    addresses: Addresses,
    rpc_listener: socket.socket,
    *,
    admitting: Callable[[Node], AbstractAsyncContextManager[None]] | None = None,
    metrics: Metrics | None = None,
    outside: Outside = REAL,
) -> AsyncIterator[Node]:
    """The node of a directory that is ours, a member of its cluster and Online; no client can come in yet, but for
    whom `admitting` lets in, from before it is Online. Closed at the end."""
    loop = asyncio.get_running_loop()
    guard, catalog_guard = Guard(), Guard()
    settings = Settings(
        wal_mode=WalMode(config.wal_mode),
        functions=_functions(guard),
        writer_cache_bytes=config.cache_bytes,
        reader_cache_bytes=config.cache_bytes,
    )
    directory.prepare_files(settings)
    # Whatever wal_mode says of rows: the catalog is small, and always synced.
    synced = replace(settings, wal_mode=WalMode.FSYNC, functions=_functions(catalog_guard))
    introduced: list[Introduction] = []
    async with contextlib.AsyncExitStack() as audited, contextlib.AsyncExitStack() as stack:
        audit = Audit(config.audit, outside.now)
        audited.callback(audit.close)
        db = CatalogDb(directory.files, synced)
        stack.callback(db.close)
        rpc = open_rpc(config, loop, introduced, outside)
        stack.push_async_callback(rpc.close)
        place = Place(config, addresses, rpc, rpc_listener, db, introduced, outside)
        is_new = (identity := db.identity()) is None or not identity.raft_id
        arrival = await found_or_joined(place)
        gen = db.next_generation() if audit.is_on else 0
        metrics = metrics or Metrics()
        node = Node(
            config, directory.files, settings, db, guard, catalog_guard, loop, metrics, outside, audit
        )
        cluster = Cluster(
            place,
            arrival,
            loop,
            settings=lambda: node.cluster_settings,
            apply=lambda version: node.own_tables.apply(version),
            up_to_date=lambda: node.own_tables.until_none_is_behind(),
            fail=node.fail,
        )
        stack.pop_all()  # from now on they are the cluster's
        node.join(cluster)
        audit.begin(cluster.identity.raft_id, gen, cluster.topology, cluster.log)
        try:
            await _unless_stopped(node, node.own_tables.recover())
            cluster.start()
            async with admitting(node) if admitting is not None else contextlib.nullcontext():
                await _unless_stopped(node, cluster.come_online())
                is_first = is_new and cluster.identity.raft_id == FIRST_ID
                audit.started(_name_of(node) or "", __version__, is_new=is_new, is_first=is_first)
                yield node
        finally:
            audit.stopping(None if node.fault is None else str(node.fault))
            if node.fault is None:
                await cluster.leave()
            await node.close()
            await cluster.close()


async def _unless_stopped(node: Node, work: Coroutine[Any, Any, None]) -> None:
    """Whoever stops an instance that waits for its cluster need not wait with it."""
    task = node.loop.create_task(work)
    stopping = node.loop.create_task(node.stopping.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return
        if node.fault is not None:
            raise node.fault
        raise Stopped
    finally:
        task.cancel()
        stopping.cancel()


class Stopped(Exception):
    """The instance was told to stop before it was Online."""


async def serve(config: Config, ready: Callable[[Running], None]) -> None:
    """Until SIGTERM, SIGINT or a Fault. Raises what keeps it from starting, and the Fault."""
    loop = asyncio.get_running_loop()
    started = time.monotonic()
    state = "starting"
    nodes: list[Node] = []

    def health() -> Health:
        node = nodes[0] if nodes else None
        return Health(
            state="failed" if node is not None and node.fault is not None else state,
            instance=_name_of(node) or config.instance_name or "",
            uptime_seconds=time.monotonic() - started,
            raft=node.cluster.raft.status() if node is not None else None,
        )

    with InstanceDirectory.claim(config.instance_dir) as directory:
        listeners = _bind(config)
        metrics = Metrics()
        http = HttpServer(listeners.http, health, metrics)
        servers: list[PgServer] = []

        @contextlib.asynccontextmanager
        async def admitting(node: Node) -> AsyncIterator[None]:
            """The admin socket is open while the instance waits for its cluster: somebody may want to know why."""
            nodes.append(node)
            server = PgServer(node)
            servers.append(server)
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, node.stopping.set)
            if node.audit.is_on:
                loop.add_signal_handler(signal.SIGHUP, node.audit.reopen)
            try:
                await server.listen_admin(config.admin_socket(listeners.pg.getsockname()[1]))
                yield
            finally:
                await server.stop()

        try:
            await http.start()
            async with opened(
                directory, config, listeners.addresses, listeners.rpc, admitting=admitting, metrics=metrics
            ) as node:
                await servers[0].listen(listeners.pg)
                state = "running"
                ready(_running(config, node, listeners.addresses))
                await node.stopping.wait()
                state = "stopping"
        except Stopped:
            pass
        finally:
            await http.stop()
        for node in nodes:
            if node.fault is not None:
                raise node.fault


def run(config: Config, ready: Callable[[Running], None]) -> None:
    """serve(), on an event loop of its own."""
    # A reader thread that encodes rows holds the GIL for so long at most while the loop waits for it.
    sys.setswitchinterval(0.001)
    work: Coroutine[Any, Any, None] = serve(config, ready)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def _functions(guard: Guard) -> Callable[[apsw.Connection], None]:
    def make(connection: apsw.Connection) -> None:
        register(connection)
        register_guard(connection, guard)

    return make


def _bind(config: Config) -> Listeners:
    pg = bind("pg_listen", config.pg_listen)
    http = bind("http_listen", config.http_listen)
    rpc = bind("rpc_listen", config.rpc_listen)
    addresses = Addresses(
        pg=_said(config.pg_advertise, bound_address(pg, config.pg_listen)),
        rpc=_said(config.rpc_advertise, bound_address(rpc, config.rpc_listen)),
        http=_said(config.http_advertise, bound_address(http, config.http_listen)),
    )
    return Listeners(pg, http, rpc, addresses)


def _said(advertised: Address | None, bound: Address) -> str:
    return str(advertised or bound)


def _name_of(node: Node | None) -> str | None:
    instance = node.cluster.instance if node is not None else None
    return None if instance is None else instance.name


def _running(config: Config, node: Node, addresses: Addresses) -> Running:
    instance = node.cluster.instance
    assert instance is not None
    return Running(
        name=instance.name,
        uuid=instance.uuid,
        pid=os.getpid(),
        pg=addresses.pg,
        rpc=addresses.rpc,
        http=addresses.http,
        tier=instance.tier,
        replicaset=instance.replicaset,
    )
