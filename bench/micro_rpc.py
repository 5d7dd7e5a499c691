"""What a small call from one process to another costs: `python bench/micro_rpc.py`.

Each client is a coroutine that awaits one call after another, on one connection, as the instance does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import secrets
import socket
import time

import msgspec
import uvloop

from shoal.node.rpc import Caller, Rpc
from shoal.protocol.handshake import Introduction


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    number: int
    text: str


class Told(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    number: int


class AskCpu(msgspec.Struct, frozen=True, array_like=True, tag="cpu"):
    pass


class CpuTold(msgspec.Struct, frozen=True, array_like=True, tag="cpu told"):
    seconds: float


def at_once(caller: Caller, asked: Ask, deadline: float) -> Told:
    return Told(asked.number)


async def in_a_task(caller: Caller, asked: Ask, deadline: float) -> Told:
    return Told(asked.number)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def serve(listener: socket.socket, secret: bytes, tasks: bool) -> None:
    loop = asyncio.get_running_loop()
    made = Rpc(loop, introduction=lambda: Introduction("bench", "", "", "listener"), secret=secret)
    made.handle(Ask, in_a_task if tasks else at_once)
    made.handle(AskCpu, lambda caller, asked, deadline: CpuTold(cpu_seconds()))
    await made.listen(listener)
    await asyncio.Event().wait()


async def measure(address: str, secret: bytes, clients: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    made = Rpc(loop, introduction=lambda: Introduction("bench", "", "", "dialler"), secret=secret)
    calls = 0
    stop_at = 0.0

    async def client() -> None:
        nonlocal calls
        ask = Ask(7, "a short text")
        while loop.time() < stop_at:
            await made.call(address, ask, Told, 5.0)
            calls += 1

    stop_at = loop.time() + 0.3
    await asyncio.gather(*(client() for _ in range(clients)))
    theirs = (await made.call(address, AskCpu(), CpuTold, 5.0)).seconds
    ours, started, calls = cpu_seconds(), time.perf_counter(), 0
    stop_at = loop.time() + seconds
    await asyncio.gather(*(client() for _ in range(clients)))
    took, counted = time.perf_counter() - started, calls
    ours = cpu_seconds() - ours
    theirs = (await made.call(address, AskCpu(), CpuTold, 5.0)).seconds - theirs
    print(
        f"{clients:3} in flight: {counted / took:8,.0f} calls/s, CPU per call: dialler "
        f"{ours / counted * 1e6:.1f} µs, listener {theirs / counted * 1e6:.1f} µs"
    )
    await made.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--tasks", action="store_true", help="the handler is a coroutine")
    arguments = parser.parse_args()
    secret = secrets.token_bytes(32)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    pid = os.fork()
    if pid == 0:
        uvloop.run(serve(listener, secret, arguments.tasks))
    listener.close()
    try:
        for clients in arguments.clients:
            uvloop.run(measure(address, secret, clients, arguments.seconds))
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
