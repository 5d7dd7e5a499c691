"""An end of RPC in a process of its own, to be killed and frozen: `python -m tests.unit.node.rpc_process PORT`.

It says its address on stdout, answers Ping, and never answers Hold.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import msgspec
import uvloop

import shoal
from shoal.node.rpc import Caller, Rpc
from shoal.protocol.envelope import Pong
from tests.unit.node.rpc_ground import SECRET, address_of, listener, who

ROOT = Path(__file__).parents[3]


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    pass


async def hold(caller: Caller, asked: Hold, deadline: float) -> Pong:
    await asyncio.Event().wait()
    raise AssertionError


class Process:
    """Ended by its own pid."""

    def __init__(self, port: int = 0) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.unit.node.rpc_process", str(port)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(Path(shoal.__file__).parents[1])},
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        assert self.address, "it did not start"
        self.port = int(self.address.rpartition(":")[2])

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    end = Rpc(loop, introduction=lambda: who("apart"), secret=SECRET)
    end.handle(Hold, hold)
    bound = listener(port)
    await end.listen(bound)
    print(address_of(bound), flush=True)
    # Whoever started us holds the other end of stdin: when that is gone, so is our reason to be.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
