"""One member of the simulated cluster: drives the core as node.py asks for, on a disk that takes its time.

Here: Member.
Not here: the protocol (raft/node.py), who harms it (cluster.py).

A pass of its loop: take in some messages, send what depends on nothing, and if there is a Ready, keep, install and save,
then advance and send. While a slow save runs, the loop goes on with messages and ticks. The power may go at any of the
boundaries: before a save, in the middle of it, after it and before anyone hears of it, after half of the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from shoal.raft.messages import Chunk, Envelope, Index, RaftId, Term
from shoal.raft.node import Node, Ready
from shoal.sim.disk import Disk
from shoal.sim.invariants import Asked, Seen
from shoal.sim.knobs import TICK_US
from shoal.sim.trace import describe_entries, describe_envelope, describe_mark

if TYPE_CHECKING:
    from shoal.sim.cluster import Cluster

PASS_US: Final = 1_000  # how long messages are collected, where they come in batches
_AGAIN_US: Final = 250_000  # until a save that the disk has refused is tried again
_INBOX_MAX: Final = 200  # of a member that stands still; what comes then is lost

Request: TypeAlias = Callable[[Node], None]  # a client's


class Timeouts:
    """What a member draws its election timeouts from."""

    def __init__(self, rng: Random, collide: float) -> None:
        self._rng = rng
        self.collide = collide

    def randint(self, a: int, b: int) -> int:
        if self.collide and self._rng.random() < self.collide:
            return a
        return self._rng.randint(a, b)


class Member:
    def __init__(self, cluster: Cluster, id: RaftId, disk: Disk) -> None:
        self.id = id
        self.disk = disk
        self.node: Node | None = None  # None: it is down
        self.incarnation = 0
        self.paused_until_us = 0
        self.expelled = False  # removed, and switched off for good
        self.lost_in_flight = False  # the last crash took along what it had sent
        self._cluster = cluster
        self._rng = cluster.rng
        self._knobs = cluster.knobs
        self.timeouts = Timeouts(cluster.rng, cluster.knobs.collide)
        self.tick_us = int(TICK_US * (1 + cluster.knobs.drift * (cluster.rng.random() - 0.5)))
        self._slowness = cluster.rng.choice((0.1, 1.0, 4.0)) if cluster.knobs.uneven_disks else 1.0
        self._full_until_us = 0
        self._inbox: list[Envelope | Request] = []
        self._pass_comes = False
        self._saving: Ready | None = None
        self._makes_snapshot = False
        self.reads: dict[int, Asked] = {}  # by request
        self._confirmed_reads: list[tuple[Index, Asked]] = []  # wait for the index to be applied
        self._led_term = Term(0)
        self.ticks = 0  # that it has lived through
        self.seen = Seen()

    @property
    def is_up(self) -> bool:
        return self.node is not None

    def disk_of(self, member: RaftId) -> Disk:
        return self._cluster.members[member].disk

    # --- life and death --------------------------------------------------------------------------

    def start(self) -> None:
        assert self.node is None and not self.expelled
        self.incarnation += 1
        self.disk.restart()
        stored = self.disk.load()
        if self._cluster.trace is not None:
            log = f"log {stored.mark.index + 1}..{stored.mark.index + len(stored.entries)} applied {stored.applied}"
            self._cluster.tell(f"{self.id} starts: {stored.hard_state}, {log}, {stored.membership}")
        self.node = Node(self.id, stored, self._knobs.limits, self.timeouts)
        self._cluster.invariants.restarted(self)
        self._cluster.in_us(int(self._rng.random() * self.tick_us) + 1, self._tick, self.incarnation)

    def crash(self, why: str) -> None:
        assert self.node is not None
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} crashes {why}")
        self.node = None
        self._inbox.clear()
        self._pass_comes = False
        self._saving = None
        self._makes_snapshot = False
        self.paused_until_us = 0
        self.reads.clear()
        self._confirmed_reads.clear()
        self.lost_in_flight = self._rng.random() < self._knobs.lose_in_flight
        self._cluster.crashed(self)

    def _dies(self, chance: float, why: str) -> bool:
        if chance and self._cluster.harmful and self._rng.random() < chance:
            self.crash(why)
            return True
        return False

    def pause(self, us: int) -> None:
        self.paused_until_us = self._cluster.now_us + us

    @property
    def _is_paused(self) -> bool:
        return self.paused_until_us > self._cluster.now_us

    # --- events ----------------------------------------------------------------------------------

    def _tick(self, incarnation: object) -> None:
        if self.node is None or incarnation != self.incarnation:
            return
        if self._is_paused:
            self._cluster.at_us(self.paused_until_us + 1, self._tick, incarnation)
            return
        self._cluster.in_us(self.tick_us, self._tick, incarnation)
        # What came while it stood still is handled now, or after this tick.
        wakes = bool(self._inbox) and not self._pass_comes
        late = wakes and self._rng.random() < 0.5
        if wakes and not late:
            self._pass(incarnation)
        if (node := self._alive(incarnation)) is not None:
            self.ticks += 1
            node.tick()
            self._cluster.invariants.ticked(self)
            self.pump()
        if late:
            self._pass(incarnation)

    def _alive(self, incarnation: object) -> Node | None:
        return self.node if incarnation == self.incarnation else None

    def deliver(self, envelope: Envelope) -> None:
        """A message has arrived."""
        if self.node is None:
            return
        if self._is_paused:
            if len(self._inbox) < _INBOX_MAX:
                self._inbox.append(envelope)
            return
        if self._knobs.batch == 1:
            self._step(envelope)
            return
        self._inbox.append(envelope)
        if len(self._inbox) >= self._knobs.batch:
            self._pass(self.incarnation)
        elif not self._pass_comes:
            self._pass_comes = True
            self._cluster.in_us(PASS_US, self._pass, self.incarnation)

    def ask(self, request: Request) -> None:
        """A client's request has arrived. If the member stands still, it waits among the messages."""
        if self.node is None:
            return
        if self._is_paused:
            self._inbox.insert(self._rng.randint(0, len(self._inbox)), request)
            return
        request(self.node)
        self.pump()

    def _pass(self, incarnation: object) -> None:
        if self.node is None or incarnation != self.incarnation or self._is_paused:
            return
        self._pass_comes = False
        inbox, self._inbox = self._inbox, []
        for item in inbox[:-1]:
            self._take_in(self.node, item)
        for item in inbox[-1:]:
            self._step(item)

    def _step(self, item: Envelope | Request) -> None:
        node, chance = self.node, self._knobs.crash_at_message
        assert node is not None
        if self._dies(chance, "before a message"):
            return
        self._take_in(node, item)
        if self._dies(chance, "with a message in its hands"):
            return
        self.pump()

    def _take_in(self, node: Node, item: Envelope | Request) -> None:
        if not isinstance(item, Envelope):
            item(node)
            return
        if self._cluster.trace is not None:
            self._cluster.tell(describe_envelope(item))
        self._cluster.invariants.takes_in(self, item)
        self._cluster.invariants.after_step(self)

    # --- the loop --------------------------------------------------------------------------------

    def pump(self) -> None:
        """Does what the core wants done, as far as it can be done now."""
        invariants = self._cluster.invariants
        while self.node is not None:
            node = self.node
            invariants.after_step(self)
            if node.is_leader and self._led_term != node.term:
                self._led_term = node.term
                self._cluster.elected(self)
            if not self._send(node.take_messages()):
                return
            for answer in node.take_reads():
                asked = self.reads.pop(answer.request, None)
                if asked is not None:
                    invariants.confirmed(self.id, answer, asked)
                    self._confirmed_reads.append((answer.index, asked))
            if self._confirmed_reads:
                self._return_reads(self.disk.applied)
            if not self._send(self._chunks(node)):
                return
            if node.wants_snapshot and not self._makes_snapshot:
                self._makes_snapshot = True
                self._cluster.in_us(self._save_us() + 1, self._snapshot, self.incarnation)
            if self._saving is not None:
                return
            self._compact(node)
            ready = node.take_ready()
            if ready is None:
                return
            self._saving = ready
            save_us = self._save_us()
            if save_us:
                self._cluster.in_us(save_us, self._save_ends, (self.incarnation, ready))
                return
            self._complete(ready)

    def _return_reads(self, applied: Index) -> None:
        waiting: list[tuple[Index, Asked]] = []
        for index, asked in self._confirmed_reads:
            if index > applied:
                waiting.append((index, asked))
                continue
            self._cluster.invariants.returned(self, asked)
            self._cluster.reads_answered += 1
        self._confirmed_reads = waiting

    def _save_us(self) -> int:
        usual_us = self._knobs.save_us if self._cluster.harmful else min(self._knobs.save_us, 1_000)
        return int(self._rng.expovariate(1.0) * usual_us * self._slowness) if usual_us else 0

    def _save_ends(self, what: object) -> None:
        assert isinstance(what, tuple)
        incarnation, ready = what
        if self.node is None or incarnation != self.incarnation:
            return
        if self._is_paused:
            self._cluster.at_us(self.paused_until_us + 1, self._save_ends, what)
            return
        self._complete(ready)
        self.pump()

    def _refuses(self) -> bool:
        """The disk is full, and takes nothing."""
        chance, cluster = self._knobs.full, self._cluster
        if not chance or not cluster.harmful:
            return False
        if self._rng.random() < chance:
            self._full_until_us = cluster.now_us + int(self._rng.expovariate(1.0) * 5 * TICK_US)
        return cluster.now_us < self._full_until_us

    def _complete(self, ready: Ready) -> None:
        """Makes it durable, and tells the core and the others."""
        node, disk, chance = self.node, self.disk, self._knobs.crash_at_save
        invariants = self._cluster.invariants
        assert node is not None
        if self._refuses():
            if node.give_up(ready):
                self._cluster.tell(f"{self.id} can't save, and gives up what it alone knows")
                self._saving = None
            else:
                self._cluster.tell(f"{self.id} can't save, and will try again")
                self._cluster.in_us(_AGAIN_US, self._save_ends, (self.incarnation, ready))
            return
        for chunk in ready.chunks:
            disk.keep_chunk(chunk.mark, chunk.offset, chunk.data)
        if self._dies(chance, "before a save"):
            return
        if ready.install is not None:
            if self._cluster.trace is not None:
                self._cluster.tell(f"{self.id} installs {describe_mark(ready.install)}")
            invariants.about_to_install(self, ready.install)
            disk.install(ready.install, ready.hard_state)
            invariants.installed(self, ready.install, ready.hard_state)
            if self._dies(chance, "after a snapshot was installed"):
                return
        if (save := ready.save) is not None:
            if chance and self._cluster.harmful and self._rng.random() < chance:
                disk.tear(save, self._rng.randint(0, len(save.entries) + len(save.committed)))
                self.crash("in the middle of a save")
                return
            if self._cluster.trace is not None:
                applies = f", applies [{describe_entries(save.committed)}]" * bool(save.committed)
                self._cluster.tell(
                    f"{self.id} saves {save.hard_state or ''} [{describe_entries(save.entries)}]{applies}"
                )
            disk.save(save)
            invariants.saved(self, save, ready.hard_state)
        if self._dies(chance, "after a save"):
            return
        self._saving = None
        node.advance(ready)
        invariants.after_step(self)
        if not self._dies(chance, "before anyone hears of a save"):
            self._send(ready.messages)

    def _send(self, messages: Sequence[Envelope]) -> bool:
        """False: it has crashed over it."""
        if not messages:
            return True
        self._cluster.invariants.sends(self, messages)
        chance = self._knobs.crash_at_send
        for envelope in messages:
            if self._dies(chance, f"before it sends {envelope.message}"):
                return False
            self._cluster.network.send(envelope)
        return True

    def _chunks(self, node: Node) -> list[Envelope]:
        answers: list[Envelope] = []
        for request in node.take_chunk_requests():
            mark, offset = request.mark, request.offset
            data, last = self.disk.read_chunk(mark, offset) or (b"", None)
            chunk = Chunk(self.disk.hard_state.term, mark, offset, data, bool(last), last is None)
            answers.append(Envelope(self.id, request.member, chunk))
        return answers

    def _snapshot(self, incarnation: object) -> None:
        if self.node is None or incarnation != self.incarnation:
            return
        self._makes_snapshot = False
        mark = self.disk.make_snapshot()
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} makes a snapshot at {describe_mark(mark)}")
        if self._dies(self._knobs.crash_at_save, "after it made a snapshot"):
            return
        self.node.snapshot_made(mark)
        self.pump()

    def _compact(self, node: Node) -> None:
        knobs, disk = self._knobs, self.disk
        if (
            not knobs.compact_after
            or disk.applied - disk.mark.index < knobs.compact_after + knobs.compact_keep
        ):
            return
        index = Index(disk.applied - knobs.compact_keep)
        if self._cluster.trace is not None:
            self._cluster.tell(f"{self.id} compacts up to {index}")
        disk.compact(index)
        node.compact(index)
