"""TCP between simulated machines: bytes in order, late, held up, or lost together with their connection.

Here: Machine, what of a computer the others notice; Network: who can reach whom; connections and their transports.
Not here: what is said (node/rpc, as it is), the faults' timetable (run.py).

It behaves as kernels do, since that is what the instances' decisions rest on: nobody listens (a refusal, at once), a machine
is gone (silence), a process died (its kernel ends the connections, if the other side can be reached), a frozen process
(connections are accepted and nobody answers), a cut (bytes wait, and arrive when it heals; or the sender gives up).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulation.loop import Handle, InstanceLoop, Scheduler

_HIGH_BYTES: Final = 4 << 20  # what the kernels on both sides hold before a sender has to wait
_SYN_AGAIN_SECONDS: Final = 1.0


@dataclass(slots=True)
class Delays:
    """Seconds. `tail`: the chance of being late, by up to `late`."""

    least: float
    spread: float
    tail: float = 0.0
    late: float = 0.0

    def draw(self, rng: Random) -> float:
        seconds = self.least + self.spread * rng.random()
        if self.tail and rng.random() < self.tail:
            seconds += self.late * rng.random()
        return seconds


class Machine:
    """A computer with one instance on it, as the network and its own threads know it."""

    def __init__(self, number: int, rng: Random, threads: Delays) -> None:
        self.number = number
        self.address = f"10.0.0.{number}:3301"
        self.dark = False  # without power: its kernel says nothing either
        self.loop: InstanceLoop | None = None  # of the process that runs on it
        self.accept: Callable[[], Any] | None = (
            None  # makes the protocol of a connection, while somebody listens
        )
        self._rng = rng
        self.threads = threads

    def thread_delay(self) -> float:
        return self.threads.draw(self._rng)


class Network:
    def __init__(self, scheduler: Scheduler, rng: Random, delays: Delays) -> None:
        self.scheduler = scheduler
        self.delays = delays
        self.machines: dict[str, Machine] = {}  # by address
        self.cuts: set[tuple[int, int]] = set()  # from, to: machines
        self.connections: dict[Connection, None] = {}
        self._rng = rng

    def add(self, machine: Machine) -> None:
        self.machines[machine.address] = machine

    # --- who can reach whom ----------------------------------------------------------------------

    def reaches(self, source: Machine, target: Machine) -> bool:
        return not (source.dark or target.dark or (source.number, target.number) in self.cuts)

    def cut(self, source: int, target: int) -> None:
        self.cuts.add((source, target))

    def heal(self) -> None:
        self.cuts.clear()
        self.release()

    def release(self) -> None:
        """What was held up gets through where it can, when it is sent again."""
        for connection in list(self.connections):
            for pipe in connection.pipes:
                pipe.retry()

    def reset(self, connection: Connection) -> None:
        """Both sides lose it, and all that was under way."""
        for pipe in connection.pipes:
            pipe.drop()
        for end in connection.ends:
            end.lose(ConnectionResetError("reset"))

    # --- listening and connecting ----------------------------------------------------------------

    def listen(self, loop: InstanceLoop, factory: Callable[[], Any], listener: Any) -> Server:
        assert loop.machine.address == listener.address
        loop.machine.accept = factory
        return Server(loop)

    async def connect(self, loop: InstanceLoop, factory: Callable[[], Any], address: str) -> Any:
        made: asyncio.Future[Transport] = loop.create_future()
        source, target = loop.machine, self.machines.get(address)
        if target is None:
            raise OSError("no route to host")
        self._syn(loop, source, target, made)
        try:
            transport = await made
        except asyncio.CancelledError:
            if made.done() and not made.cancelled() and made.exception() is None:
                made.result().abort()
            raise
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def _later(self, callback: Callable[..., object], *args: Any) -> None:
        self.scheduler.call_later(self.delays.draw(self._rng), callback, *args)

    def _syn(
        self, loop: InstanceLoop, source: Machine, target: Machine, made: asyncio.Future[Transport]
    ) -> None:
        if made.done() or loop.dead:
            return  # whoever dialled has given up
        if self.reaches(source, target):
            self._later(self._arrived, loop, source, target, made)
        else:
            self.scheduler.call_later(_SYN_AGAIN_SECONDS, self._syn, loop, source, target, made)

    def _arrived(
        self, loop: InstanceLoop, source: Machine, target: Machine, made: asyncio.Future[Transport]
    ) -> None:
        if not (self.reaches(source, target) and self.reaches(target, source)):
            self.scheduler.call_later(_SYN_AGAIN_SECONDS, self._syn, loop, source, target, made)
            return
        if target.loop is None or target.loop.dead or target.accept is None:
            self._later(self._tell, loop, made, None)
            return
        connection = Connection(self, loop, target.loop)
        self.connections[connection] = None
        served = connection.ends[1]
        # The kernel accepts; the process, when it gets to it.
        self.scheduler.soon(Handle(target.loop, 0.0, self._accept, (target, served), None))
        self._later(self._tell, loop, made, connection.ends[0])

    def _accept(self, target: Machine, served: Transport) -> None:
        if target.accept is None:
            served.abort()
        else:
            served.begin(target.accept())

    def _tell(self, loop: InstanceLoop, made: asyncio.Future[Transport], transport: Transport | None) -> None:
        def tell() -> None:
            if made.done():
                if transport is not None:
                    transport.abort()
            elif transport is None:
                made.set_exception(ConnectionRefusedError())
            else:
                made.set_result(transport)

        if loop.dead:
            if transport is not None:
                transport.process_died()
            return
        self.scheduler.soon(Handle(loop, 0.0, tell, (), None))

    def process_died(self, machine: Machine) -> None:
        """Its kernel ends what it had; a machine without power says nothing."""
        machine.loop = None
        machine.accept = None
        for connection in list(self.connections):
            for end in connection.ends:
                if end.loop.machine is machine and end.loop.dead:
                    end.process_died()


class Server:
    """What create_server() returns."""

    def __init__(self, loop: InstanceLoop) -> None:
        self._loop = loop

    def close(self) -> None:
        if not self._loop.dead:
            self._loop.machine.accept = None


class Listener:
    """Stands for the socket that an instance listens on."""

    def __init__(self, address: str) -> None:
        self.address = address


# --- a connection --------------------------------------------------------------------------------


class Connection:
    def __init__(self, network: Network, source: InstanceLoop, target: InstanceLoop) -> None:
        self.network = network
        self.ends = (Transport(self, source), Transport(self, target))
        self.pipes = (Pipe(network, *self.ends), Pipe(network, *reversed(self.ends)))
        self.ends[0].out, self.ends[1].out = self.pipes

    def forget_if_over(self) -> None:
        if all(end.over for end in self.ends):
            self.network.connections.pop(self, None)


@dataclass(frozen=True, slots=True)
class End:
    """Instead of bytes: nothing comes after it. An error: what came before may be lost, too."""

    error: bool


class Pipe:
    """One direction."""

    def __init__(self, network: Network, source: Transport, target: Transport) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._last = 0.0  # when what was sent last arrives
        self._under_way: dict[Handle, None] = {}
        self._held: list[bytes | End] = []
        self._held_since: float | None = None
        self.bytes = 0  # sent, and not taken by the process on the other side

    def put(self, item: bytes | End) -> None:
        if isinstance(item, bytes):
            self.bytes += len(item)
        if self._held or not self._open:
            self._hold(item)
        else:
            self._send(item)

    @property
    def _open(self) -> bool:
        return self._network.reaches(self._source.loop.machine, self._target.loop.machine)

    def _send(self, item: bytes | End) -> None:
        scheduler = self._network.scheduler
        self._last = max(self._last, scheduler.now + self._network.delays.draw(self._network._rng))
        handle = Handle(None, self._last, self._arrive, (), None)
        handle.args = (handle, item)
        self._under_way[handle] = None
        scheduler.at(handle)

    def _arrive(self, handle: Handle, item: bytes | End) -> None:
        del self._under_way[handle]
        if self._held or not self._open:
            self._hold(item)
            return
        if not self._target.arrive(item, self) and isinstance(item, bytes):
            # Nobody is there any more: that kernel says so.
            self._target.out.put(End(error=True))

    def _hold(self, item: bytes | End) -> None:
        self._held.append(item)
        if self._held_since is None:
            now = self._network.scheduler.now
            self._held_since = now
            self._network.scheduler.call_later(self._source.patience, self._give_up, now)

    def _give_up(self, since: float) -> None:
        if self._held_since == since and self._held:
            self.drop()
            self._source.lose(TimeoutError("the other side's kernel takes nothing"))

    def retry(self) -> None:
        """The way may be free again: the kernel tries so, now and then."""
        if self._held and self._open:
            rng = self._network._rng
            since = self._held_since
            self._network.scheduler.call_later(rng.random() * 0.5, self._send_held, since)

    def _send_held(self, since: float | None) -> None:
        if self._held_since != since or not self._open:
            return
        held, self._held, self._held_since = self._held, [], None
        for item in held:
            self._send(item)

    def drop(self) -> None:
        for handle in self._under_way:
            handle.cancel()
        self._under_way.clear()
        self._held.clear()
        self._held_since = None


class Transport(asyncio.Transport):
    """One side of a connection, as asyncio's protocols know it."""

    def __init__(self, connection: Connection, loop: InstanceLoop) -> None:
        super().__init__()
        self.loop = loop
        self.out: Pipe  # set by the connection
        self.over = False  # nothing of it is left on this side
        self.patience = 15.0 * 60  # how long the kernel sends again what isn't acknowledged
        self._connection = connection
        self._protocol: Any = None
        self._closing = False
        self._reading = True
        self._waiting: list[tuple[bytes | End, Pipe]] = []  # arrived and not read
        self._full = False
        self._high = 64 << 10

    def begin(self, protocol: Any) -> None:
        if self.over:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        self._read()

    # --- what protocols call ---------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return _Socket(self)
        if name == "peername":
            other = next(end for end in self._connection.ends if end is not self)
            host, _, port = other.loop.machine.address.rpartition(":")
            return host, int(port)
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self.out.bytes - _HIGH_BYTES)

    def is_closing(self) -> bool:
        return self._closing or self.over

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.over or self.loop.dead or not data:
            return
        self.out.put(bytes(data))
        if not self._full and self.get_write_buffer_size() > self._high:
            self._full = True
            self._protocol.pause_writing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.loop.call_soon(self._read)

    def close(self) -> None:
        self._end(End(error=False))

    def abort(self) -> None:
        self._end(End(error=True))

    def _end(self, end: End) -> None:
        if self._closing or self.over or self.loop.dead:
            return
        self._closing = True
        self.out.put(end)
        self.loop.call_soon(self._lost, None)

    # --- what comes ------------------------------------------------------------------------------

    def arrive(self, item: bytes | End, pipe: Pipe) -> bool:
        """False: there is nobody to take it."""
        if self.over or self.loop.dead:
            return False
        self._connection.network.scheduler.note(item if isinstance(item, bytes) else repr(item))
        self._waiting.append((item, pipe))
        self._connection.network.scheduler.soon(Handle(self.loop, 0.0, self._read, (), None))
        return True

    def _read(self) -> None:
        while self._waiting and self._reading and self._protocol is not None and not self.over:
            item, pipe = self._waiting.pop(0)
            if isinstance(item, End):
                if self._closing:
                    continue
                if item.error:
                    self.lose(ConnectionResetError("connection reset by peer"))
                elif not self._protocol.eof_received():
                    self.close()
                continue
            pipe.bytes -= len(item)
            self._make_room(pipe)
            if self._closing:
                continue
            view = memoryview(item)
            while view and not self.over:
                buffer = self._protocol.get_buffer(-1)
                count = min(len(view), len(buffer))
                buffer[:count] = view[:count]
                self._protocol.buffer_updated(count)
                view = view[count:]

    def _make_room(self, pipe: Pipe) -> None:
        sender = pipe._source
        if sender._full and sender.get_write_buffer_size() <= sender._high // 2 and not sender.loop.dead:
            sender._full = False
            sender.loop.call_soon(sender._resume)

    def _resume(self) -> None:
        if not self.over and not self._full:
            self._protocol.resume_writing()

    def lose(self, error: Exception) -> None:
        """The kernel tells the process that the connection is no more."""
        if not self.over and not self.loop.dead:
            scheduler = self._connection.network.scheduler
            scheduler.soon(Handle(self.loop, 0.0, self._lost, (error,), None))

    def _lost(self, error: Exception | None) -> None:
        if self.over:
            return
        self.over = True
        self._waiting.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        self._connection.forget_if_over()

    def process_died(self) -> None:
        if self.over:
            return
        self.over = True
        if not self.loop.machine.dark:
            self.out.put(End(error=bool(self._waiting)))
        self._waiting.clear()
        self._connection.forget_if_over()


class _Socket:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if option == socket.TCP_USER_TIMEOUT:
            self._transport.patience = value / 1000
