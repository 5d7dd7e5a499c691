"""One member of the simulated replicaset: drives the core as replica.py asks for, on a disk that takes its time.

Here: Clock, Member, and what a client's operation goes through on it.
Not here: the protocol (shard/), who harms it (cluster.py).

There is one writer, as there is one in an instance: a save, an application, a group's statements and its commit take turns.
A group that is shipped keeps it. The power may go at any of the boundaries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from shoal.shard.config import Change, Config
from shoal.shard.master import ChunkRead, GroupNumber, LogRead, Verdict
from shoal.shard.messages import Envelope
from shoal.shard.positions import ConfigVersion, Lsn, MemberId
from shoal.shard.replica import End, Ready, Replica
from shoal.sim.shard.catalog import CATALOG, Status
from shoal.sim.shard.disk import Key, ShardDisk, Value
from shoal.sim.shard.knobs import MS
from shoal.sim.shard.trace import describe_entries, describe_envelope, describe_save

if TYPE_CHECKING:
    from shoal.sim.shard.cluster import Cluster

_ASK_AGAIN_US = 60 * MS
_QUEUE_MAX = 30


@dataclass(slots=True, kw_only=True)
class Operation:
    """What a client wants, and what is known since it was asked."""

    number: int
    reads: bool
    keys: tuple[Key, ...]
    values: tuple[Value, ...] = ()  # to be written
    only_if_absent: bool = False  # otherwise it fails, and says what is there
    floors: dict[Key, int] = field(default_factory=dict)  # what was known of the keys when it was asked
    replica_ok: bool = False  # it may be read from any member
    found: dict[Key, Value] = field(default_factory=dict)
    failed: bool = False
    version: ConfigVersion | None = None  # a read began in this mastership


class Clock:
    """A member's own. It goes a little wrong, and begins anew when the machine does."""

    def __init__(self, real_us: Callable[[], int], rate: float, origin_us: int) -> None:
        self._real_us = real_us
        self.rate = rate
        self._origin_us = origin_us  # real time at which it was 0

    def now_us(self) -> int:
        return int((self._real_us() - self._origin_us) * self.rate)

    def real_us(self, own_us: int) -> float:
        """When it showed that."""
        return own_us / self.rate + self._origin_us

    def in_real_us(self, own_us: int) -> int:
        return int(own_us / self.rate) + 1

    def reboot(self) -> None:
        self._origin_us = self._real_us()


class Member:
    def __init__(self, cluster: Cluster, id: MemberId, disk: ShardDisk, clock: Clock) -> None:
        self.id = id
        self.disk = disk
        self.clock = clock
        self.replica: Replica | None = None  # None: it is down
        self.incarnation = 0
        self.paused_until_us = 0
        self.disk_is_full = False
        self.catalog_index = 0  # what its catalog has applied; durable
        self._cluster = cluster
        self._rng = cluster.rng
        self._knobs = cluster.knobs
        self._inbox: list[Envelope] = []
        self._forget()
        self.seen_commit = Lsn(0)  # told and used by Invariants

    def _forget(self) -> None:
        self._busy = False  # the writer is
        self._queue: deque[Operation] = deque()
        self._groups: dict[GroupNumber, list[Operation]] = {}
        self._reads: list[Operation] = []  # done, and waiting for the lease
        self._index_asked: tuple[int, int] | None = None  # a number, and when
        self._index_waits: list[tuple[int, int]] = []  # a number, for an index
        self._asked: tuple[Change, int] | None = None
        self._inbox.clear()
        self.paused_until_us = 0

    @property
    def is_up(self) -> bool:
        return self.replica is not None

    @property
    def is_paused(self) -> bool:
        return self._cluster.now_us < self.paused_until_us

    # --- life and death --------------------------------------------------------------------------

    def start(self) -> None:
        assert self.replica is None
        self.incarnation += 1
        stored = self.disk.load()
        if self._cluster.trace is not None:
            self._cluster.tell(
                f"{self.id} starts: acted v{stored.acted}, log {stored.first}..{stored.last}, applied {stored.applied}"
            )
        run = self._rng.getrandbits(48)
        self.replica = Replica(self.id, stored, self._knobs.limits, now_us=self.clock.now_us(), run=run)
        self.seen_commit = stored.applied
        self._cluster.invariants.crashed(self)
        self.replica.configured(self._config(), self.clock.now_us())
        tick_us = self.clock.in_real_us(self._knobs.limits.beat_us // 3)
        self._later(int(self._rng.random() * tick_us), self._tick)
        self.pump()

    def restart(self) -> None:
        if self.replica is None:
            self.start()

    def _config(self) -> Config:
        return self._cluster.catalog.log[self.catalog_index]

    def crash(self, why: str) -> None:
        assert self.replica is not None
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} crashes {why}")
        self.replica = None
        self._forget()
        self.disk.crash(lambda n: self._rng.randint(0, n))
        if self._rng.random() < self._knobs.reboots:
            self.clock.reboot()
        self._cluster.crashed(self)

    def _dies(self, chance: float, why: str) -> bool:
        if chance and self._cluster.harmful and self._rng.random() < chance:
            self.crash(why)
            return True
        return False

    def pause(self, us: int) -> None:
        self.paused_until_us = self._cluster.now_us + us
        self._cluster.in_us(us + 1, self._wake)

    def _wake(self) -> None:
        if self.replica is None or self.is_paused:
            return
        inbox, self._inbox = self._inbox, []
        for envelope in inbox:
            self.deliver(envelope)
        if self.replica is not None:
            self.pump()

    def _later(self, us: int, call: Callable[[], None]) -> None:
        """In this life of the process, and not while it stands still."""
        incarnation = self.incarnation

        def happens() -> None:
            if self.replica is None or self.incarnation != incarnation:
                return
            if self.is_paused:
                self._cluster.at_us(self.paused_until_us + 1, happens)
                return
            call()

        self._cluster.in_us(us, happens)

    def _tick(self) -> None:
        replica = self.replica
        assert replica is not None
        now_us = self.clock.now_us()
        replica.tick(now_us)
        self._later(self.clock.in_real_us(self._knobs.limits.beat_us // 3), self._tick)
        self._cluster.to_catalog(self.id, Status(self.id, now_us, replica.position, replica.report))
        self._ask_for_index()
        self.pump()

    # --- messages --------------------------------------------------------------------------------

    def deliver(self, envelope: Envelope) -> None:
        if self.replica is None:
            return
        if self.is_paused:
            if len(self._inbox) < 200:
                self._inbox.append(envelope)
            return
        chance = self._knobs.crash_at_message
        if self._dies(chance, "before a message"):
            return
        if self._cluster.trace is not None:
            self._cluster.tell(describe_envelope(envelope))
        self.replica.step(envelope, self.clock.now_us())
        if self._dies(chance, "with a message in its hands"):
            return
        self.pump()

    def unreachable(self, other: MemberId) -> None:
        if self.replica is not None and not self.is_paused:
            self.replica.unreachable(other, self.clock.now_us())
            self.pump()

    # --- the catalog -----------------------------------------------------------------------------

    def catalog_at(self, index: int, echo_us: int | None) -> None:
        """The leader says how far it is; all of that may be applied now."""
        replica = self.replica
        if replica is None or self.is_paused:
            return
        now_us = self.clock.now_us()
        if echo_us is not None and echo_us <= now_us:
            replica.contact(echo_us)
        while self.catalog_index < index:
            self.catalog_index = index if self._knobs.skips else self.catalog_index + 1
            config = self._config()
            if self._cluster.trace is not None:
                self._cluster.tell(f"{self.id} applies v{config.version} target {config.target}")
            replica.configured(config, now_us)
        for number, wanted in self._index_waits:
            if wanted <= self.catalog_index:
                replica.index_applied(number, now_us)
        self._index_waits = [wait for wait in self._index_waits if wait[1] > self.catalog_index]
        self.pump()

    def _ask_for_index(self) -> None:
        assert self.replica is not None
        number = self.replica.index_wanted
        if not number:
            return
        now_us = self._cluster.now_us
        asked = self._index_asked
        if asked is not None and asked[0] == number and now_us - asked[1] < _ASK_AGAIN_US:
            return
        self._index_asked = (number, now_us)
        incarnation = self.incarnation

        def answered(index: int) -> None:
            if self.replica is not None and self.incarnation == incarnation and not self.is_paused:
                self._index_waits.append((number, index))
                self.catalog_at(self.catalog_index, None)

        self._cluster.ask_for_index(self.id, answered)

    def _ask_for_wish(self) -> None:
        assert self.replica is not None
        wish = self.replica.wish
        if wish is None:
            self._asked = None
            return
        now_us = self._cluster.now_us
        asked = self._asked
        if asked is not None and asked[0] == wish and now_us - asked[1] < _ASK_AGAIN_US:
            return
        self._asked = (wish, now_us)
        catalog = self._cluster.catalog
        harmful, rng, knobs = self._cluster.harmful, self._rng, self._knobs
        if harmful and rng.random() < knobs.crash_at_wish:
            # It is back before the proposal gets anywhere.
            self._cluster.in_us(self._time(200 * MS), lambda: catalog.propose(wish))
            self.crash("when it has asked the catalog")
            self._cluster.in_us(self._time(10 * MS), self.restart)
        elif harmful and rng.random() < knobs.late_wishes:
            self._cluster.in_us(self._time(200 * MS), lambda: catalog.propose(wish))
        else:
            self._cluster.network.send(self.id, CATALOG, lambda: catalog.propose(wish))

    # --- the loop --------------------------------------------------------------------------------

    def pump(self) -> None:
        """Does what the core wants done, as far as it can be done now."""
        cluster = self._cluster
        rounds = 0
        while (replica := self.replica) is not None:
            rounds += 1
            assert rounds < 10_000, "it never has enough"
            cluster.invariants.after_step(self)
            if not self._send(replica.take_messages()):
                return
            for number, verdict in replica.take_answers(self.clock.now_us()):
                self._answer(number, verdict)
            self._answer_reads()
            if replica.index_wanted and (
                self._index_asked is None or self._index_asked[0] != replica.index_wanted
            ):
                self._ask_for_index()
            self._ask_for_wish()
            if self.replica is None:
                return
            for read in replica.take_log_reads():
                self._later(self._time(self._knobs.save_us), partial(self._has_read, read))
            for part in replica.take_chunk_reads():
                self._later(self._time(self._knobs.save_us), partial(self._has_read_chunk, part))
            if self._busy:
                return
            if replica.wants_snapshot and not self.disk.group_is_open:
                mark = self.disk.make_snapshot()
                if cluster.trace is not None:
                    cluster.tell(f"{self.id} makes a snapshot at {mark.lsn}")
                replica.snapshot_made(mark)
            self._trim(replica)
            ready = replica.take_ready()
            if ready is None:
                if self._queue and not self._begin_group(replica):
                    self._refuse_if_not_master(replica)
                return
            if not self._start(ready):
                return

    def _time(self, usual_us: int) -> int:
        if not self._cluster.harmful:
            usual_us = min(usual_us, MS)
        return int(self._rng.expovariate(1.0) * usual_us) if usual_us else 0

    def _start(self, ready: Ready) -> bool:
        """Gives it to the writer. True: it is done already."""
        us = self._time(self._knobs.save_us)
        if us:
            self._busy = True

            def ends() -> None:
                self._busy = False
                if self._complete(ready):
                    self.pump()

            self._later(us, ends)
            return False
        return self._complete(ready)

    def _complete(self, ready: Ready, taken: Ready | None = None) -> bool:
        """False: it died, or goes on later. `taken`: what the core gave, if this is only the rest of it."""
        disk, replica, cluster = self.disk, self.replica, self._cluster
        chance, invariants = self._knobs.crash_at_save, cluster.invariants
        assert replica is not None
        if self._dies(chance, "before a save"):
            return False
        match ready.end:
            case End.COMMIT:
                if self.disk_is_full or (
                    cluster.harmful
                    and self._knobs.commit_fails
                    and self._rng.random() < self._knobs.commit_fails
                ):
                    cluster.tell(f"{self.id} can't commit")
                    disk.rollback()
                    replica.commit_failed(ready, self.clock.now_us())
                    return True
                entries = disk.prepared
                disk.commit()
                if cluster.trace is not None:
                    cluster.tell(f"{self.id} commits [{describe_entries(entries)}]")
                invariants.group_committed(self, entries)
            case End.ROLL_BACK:
                if cluster.trace is not None:
                    cluster.tell(f"{self.id} rolls back")
                disk.rollback()
        for chunk in ready.chunks:
            disk.keep_chunk(chunk.mark, chunk.offset, chunk.data)
        if ready.install is not None:
            disk.install(ready.install)
            if cluster.trace is not None:
                cluster.tell(f"{self.id} installs {ready.install.lsn}")
            invariants.installed(self, ready.install)
            if self._dies(chance, "after a snapshot was installed"):
                return False
        if ready.save is not None:
            if self.disk_is_full:
                self._retry(taken or ready)
                return False
            disk.save(ready.save)
            if cluster.trace is not None:
                cluster.tell(f"{self.id} saves {describe_save(ready.save)}")
            invariants.saved(self, ready.save)
        return self._saved(taken or ready)

    def _retry(self, ready: Ready) -> None:
        """The disk has refused to save it. What came before that is done."""
        assert self.replica is not None
        self.replica.unable()
        self._busy = True
        rest = Ready(save=ready.save, messages=ready.messages, apply_to=ready.apply_to)

        def again() -> None:
            self._busy = False
            if self._complete(rest, ready):
                self.pump()

        self._later(20 * MS, again)

    def _saved(self, ready: Ready) -> bool:
        replica, chance = self.replica, self._knobs.crash_at_save
        assert replica is not None
        if self._dies(chance, "after a save"):
            return False
        replica.advance(ready, self.clock.now_us())
        if self._dies(chance, "before anyone hears of a save"):
            return False
        if not self._send(ready.messages):
            return False
        if ready.apply_to is None:
            return True
        us = self._time(self._knobs.apply_us)
        apply_to = ready.apply_to
        if us:
            self._busy = True

            def ends() -> None:
                self._busy = False
                self._apply(apply_to)
                self.pump()

            self._later(us, ends)
            return False
        self._apply(apply_to)
        return True

    def _apply(self, to: Lsn) -> None:
        replica, disk, cluster = self.replica, self.disk, self._cluster
        assert replica is not None
        before = disk.applied
        lsn = disk.apply(to)
        if cluster.trace is not None:
            cluster.tell(f"{self.id} applies up to {lsn}")
        cluster.invariants.applied(self, Lsn(before + 1), lsn)
        replica.applied(lsn, self.clock.now_us())

    def _send(self, messages: Sequence[Envelope]) -> bool:
        """False: it has crashed over it."""
        if not messages:
            return True
        self._cluster.invariants.sends(self, messages)
        chance = self._knobs.crash_at_send
        for envelope in messages:
            if self._dies(chance, "before it sends"):
                return False
            self._cluster.send(envelope)
        return True

    def _has_read(self, read: LogRead) -> None:
        assert self.replica is not None
        entries = self.disk.entries(read.first, read.max_bytes)
        self.replica.has_read(read, entries, self.clock.now_us())
        self.pump()

    def _has_read_chunk(self, read: ChunkRead) -> None:
        assert self.replica is not None
        mark = self.disk.kept_mark
        found = None
        if mark is not None and mark.lsn == read.lsn:
            found = self.disk.read_chunk(mark, read.offset)
        self.replica.has_read_chunk(read, found, self.clock.now_us())
        self.pump()

    def _trim(self, replica: Replica) -> None:
        disk, knobs = self.disk, self._knobs
        if disk.last - disk.first < knobs.log_max or disk.group_is_open:
            return
        first = min(Lsn(disk.last - knobs.log_max // 2), Lsn(disk.applied + 1))
        if knobs.log_needed or not self._cluster.harmful:
            first = min(first, replica.needs_from(self.clock.now_us()))
        if first > disk.first:
            disk.trim(first)
            replica.trimmed(first)

    # --- clients ---------------------------------------------------------------------------------

    def ask(self, operation: Operation) -> None:
        """A client's operation has come."""
        replica = self.replica
        if replica is None or self.is_paused:
            return
        if operation.reads:
            operation.version = replica.stands(self.clock.now_us())
            if operation.version is not None:
                # A reader thread takes it up some time, and it sees what is committed then, however long it takes.
                self._later(self._time(self._knobs.read_us), lambda: self._read(operation))
            elif operation.replica_ok and self.look(operation.keys):
                self._cluster.answered(operation, stale=True)
            return
        if len(self._queue) < _QUEUE_MAX:
            self._queue.append(operation)
            self.pump()

    def _read(self, operation: Operation) -> None:
        operation.found = {key: self._committed_value(key) for key in operation.keys}
        self._later(self._time(self._knobs.read_us), lambda: self._has_run(operation))

    def _has_run(self, operation: Operation) -> None:
        self._reads.append(operation)
        self.pump()

    def _committed_value(self, key: Key) -> Value:
        return self.disk.committed(key)

    def _answer_reads(self) -> None:
        replica = self.replica
        if not self._reads or replica is None:
            return
        version = replica.stands(self.clock.now_us())
        waiting: list[Operation] = []
        for operation in self._reads:
            if replica.master is None or replica.master.version != operation.version:
                continue  # "another member is to be asked"
            if version is None:
                waiting.append(operation)
                continue
            invariants = self._cluster.invariants
            for key, value in operation.found.items():
                invariants.read(f"{self.id}, the master,", key, value, operation.floors[key])
            self._cluster.answered(operation)
        self._reads = waiting

    def look(self, keys: Sequence[Key]) -> bool:
        """Somebody reads what is here, and is told how old it may be. False: that isn't known."""
        replica = self.replica
        if replica is None or self.is_paused:
            return False
        fresh_us = replica.fresh_us(self.clock.now_us())
        if fresh_us is None:
            return False
        real_us = int(self.clock.real_us(fresh_us)) - 1
        for key in keys:
            self._cluster.invariants.stale_read(f"{self.id}", key, self._committed_value(key), real_us)
        return True

    def _begin_group(self, replica: Replica) -> bool:
        number = replica.begin_group(self.clock.now_us())
        if number is None:
            return False
        operations = list(self._queue)
        self._queue.clear()
        self._groups[number] = operations
        self.disk.begin()
        self._busy = True

        def ends() -> None:
            self._busy = False
            self._run_group(number, operations)
            self.pump()

        self._later(self._time(self._knobs.run_us), ends)
        return True

    def _run_group(self, number: GroupNumber, operations: Sequence[Operation]) -> None:
        replica, disk = self.replica, self.disk
        assert replica is not None
        for operation in operations:
            if operation.only_if_absent:
                operation.found = {key: disk.tables.get(key) for key in operation.keys}
                operation.failed = any(value is not None for value in operation.found.values())
            if not operation.failed:
                disk.write(zip(operation.keys, operation.values, strict=True))
        version = replica.master.version if replica.master is not None else ConfigVersion(0)
        entries = disk.prepare(version)
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} runs group {number}: [{describe_entries(entries)}]")
        replica.ran(number, entries, self.clock.now_us())

    def _refuse_if_not_master(self, replica: Replica) -> None:
        """Whoever waits for a master here asks elsewhere. If this is it, and it isn't ready yet, they wait."""
        config = replica.config
        if config is not None and config.master != self.id:
            for operation in self._queue:
                for value in operation.values:
                    self._cluster.invariants.nothing_happened(value)
            self._queue.clear()

    def _answer(self, number: GroupNumber, verdict: Verdict) -> None:
        invariants = self._cluster.invariants
        operations = self._groups.pop(number)
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} answers group {number}: {verdict.value}")
        for operation in operations:
            match verdict:
                case Verdict.COMMITTED:
                    self._tell(operation)
                    self._cluster.answered(operation)
                case Verdict.NOTHING:
                    for value in operation.values:
                        invariants.nothing_happened(value)
                case Verdict.UNKNOWN:
                    pass

    def _tell(self, operation: Operation) -> None:
        invariants = self._cluster.invariants
        for key, value in operation.found.items():
            invariants.read(f"{self.id}, in a statement,", key, value, operation.floors[key])
        if operation.failed:
            return
        for key, value in zip(operation.keys, operation.values, strict=True):
            invariants.wrote(key, value)
