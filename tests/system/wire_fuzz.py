"""Mutated conversations over real sockets, many at a time.

Here: what is sent, and Fuzz, which sends it and notices a server that hangs, falls, or forgets to hang up.
Not here: the mutations (tests/unit/pgwire/test_fuzz.py), what is checked meanwhile (test_wire_fuzz.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final

from shoal.pgwire import encode_all
from shoal.pgwire.messages import (
    Bind,
    CancelRequest,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    Execute,
    Flush,
    FunctionCall,
    GSSENCRequest,
    Parse,
    PasswordMessage,
    Query,
    SSLRequest,
    StartupMessage,
    Sync,
    Terminate,
)
from tests.cluster import Instance
from tests.unit.pgwire.test_fuzz import mutated

SCHEMA: Final = (
    "CREATE TABLE fuzzed (id INT PRIMARY KEY, t TEXT, d DECIMAL, b BOOLEAN, u UUID, w DATETIME)",
    "INSERT INTO fuzzed VALUES (1, 'one', 1.5, true, '6f2ba4c4-0f99-4d79-ae17-36f2b3d0a3b4',"
    " '2024-02-29T12:00:00Z'), (2, 'two', -2, false, NULL, NULL)",
)

_OPENINGS: Final = tuple(
    encode_all(*sent)
    for sent in (
        (StartupMessage(3, 0, (("user", "admin"), ("database", "shoal"))),),
        (SSLRequest(), StartupMessage(3, 0, (("user", "admin"), ("options", "-c statement_timeout=5000")))),
        (
            GSSENCRequest(),
            SSLRequest(),
            StartupMessage(3, 2, (("user", "admin"), ("_pq_.wish", "1"), ("timezone", "Europe/Paris"))),
        ),
        (CancelRequest(1, 258),),
        (StartupMessage(3, 0, (("user", "nobody"),)), PasswordMessage(b"x")),
    )
)

_ROW: Final = (
    None,
    "dû".encode(),
    b"1.25",
    b"t",
    b"6f2ba4c4-0f99-4d79-ae17-36f2b3d0a3b4",
    b"2024-01-01T00:00:00Z",
)

_BODIES: Final = tuple(
    encode_all(*sent)
    for sent in (
        (Query("SELECT * FROM fuzzed ORDER BY id"), Query("SELECT 1; SELECT 2"), Query(""), Query(" ; ")),
        (
            Parse("by_id", "SELECT t, d, b, u, w FROM fuzzed WHERE id = $1", (20,)),
            Describe("statement", "by_id"),
            Bind("", "by_id", (1,), (bytes(7) + b"\1",), (1,)),
            Describe("portal", ""),
            Execute("", 0),
            Sync(),
            Bind("p", "by_id", (0,), (b"2",), (0, 1, 0, 1, 0)),
            Execute("p", 1),
            Flush(),
            Close("portal", "p"),
            Close("statement", "by_id"),
            Sync(),
        ),
        (
            Query("BEGIN"),
            Parse("", "SELECT a.id, b.t FROM fuzzed AS a CROSS JOIN fuzzed AS b", ()),
            Bind("cursor", "", (), (), ()),
            Execute("cursor", 1),
            Execute("cursor", 2),
            Sync(),
            Execute("cursor", 0),
            Sync(),
            Query("ROLLBACK"),
        ),
        (
            Parse("put", "INSERT INTO fuzzed VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO REPLACE", ()),
            *(
                message
                for number in (b"3", b"4", b"5")
                for message in (Bind("", "put", (), (number, *_ROW[1:]), ()), Execute("", 0))
            ),
            Sync(),
            Query("DELETE FROM fuzzed WHERE id > 2"),
            Query("UPDATE fuzzed SET t = t WHERE id = 1 RETURNING id, t"),
        ),
        (
            Query("COPY fuzzed FROM STDIN"),
            CopyData(b"1\t2\n"),
            CopyDone(),
            CopyFail("no more"),
            FunctionCall(1598, (0,), (b"1", None), 0),
            Sync(),
        ),
        (
            Query("SET TimeZone = 'Asia/Tokyo'; SHOW TimeZone; RESET ALL; DISCARD ALL"),
            Query("EXPLAIN SELECT count(*) FROM fuzzed GROUP BY b"),
            Query("TRUNCATE fuzzed_not_there"),
            Query("SELECT id, count(*) OVER () FROM fuzzed"),
            Query("SELECT d / 0 FROM fuzzed"),
        ),
        (
            Parse("", "SELECT $1::int + $2::decimal, $3::text, $4::datetime, $5::uuid, $6::bool", ()),
            Describe("statement", ""),
            Bind("", "", (), (b"1", b"2.5", b"x", *_ROW[5:3:-1], b"f"), (0,)),
            Execute("", 0),
            Sync(),
        ),
    )
)

# Nobody answers for so long: the server waits for more, and hears that there is none.
_QUIET_SECONDS: Final = 0.05
_ANSWERED_SECONDS: Final = 30.0


def stream_of(seed: int) -> bytes:
    """Most openings are honest, so that most mutations meet a session."""
    chance = random.Random(seed)
    opening = chance.choices(_OPENINGS, (20, 4, 2, 1, 1))[0]
    body = b"".join(chance.choice(_BODIES) for _ in range(chance.randint(1, 3)))
    if chance.random() < 0.2:
        return mutated((opening + body,), chance)
    stream = opening + mutated((body,), chance)
    return stream + encode_all(Terminate()) if chance.random() < 0.5 else stream


class Fuzz:
    def __init__(self, instance: Instance, timing_scale: float) -> None:
        self.outcomes: Counter[str] = Counter()
        self._address = (instance.host, instance.port)
        self._timing_scale = timing_scale

    def send(self, seeds: Iterable[int], at_once: int = 32) -> None:
        asyncio.run(self._all(seeds, at_once))

    async def _all(self, seeds: Iterable[int], at_once: int) -> None:
        room = asyncio.Semaphore(at_once)

        async def one(seed: int) -> None:
            try:
                self.outcomes[await self._one(seed)] += 1
            except Exception as error:
                error.add_note(f"seed {seed}: {stream_of(seed)!r}")
                raise
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for seed in seeds:
                await room.acquire()
                group.create_task(one(seed))

    async def _one(self, seed: int) -> str:
        chance = random.Random(-seed - 1)
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await loop.sock_connect(client, self._address)
                for piece in _pieces(stream_of(seed), chance):
                    await loop.sock_sendall(client, piece)
                if chance.random() < 0.1:
                    # It hangs up without waiting for anything: the server gets a reset if it has answered.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return "reset"
                return _outcome(await self._answer(client))
            except ConnectionError:
                return "cut off"

    async def _answer(self, client: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        received = bytearray()
        deadline = loop.time() + _ANSWERED_SECONDS * self._timing_scale
        waits = _QUIET_SECONDS
        while True:
            try:
                data = await asyncio.wait_for(loop.sock_recv(client, 65536), waits)
            except TimeoutError:
                if loop.time() > deadline:
                    raise AssertionError(f"the connection stays open; so far: {bytes(received)!r}") from None
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
                waits = 1.0
                continue
            if not data:
                return bytes(received)
            received += data


def _pieces(stream: bytes, chance: random.Random) -> list[bytes]:
    size = chance.choice((1, 7, 64, 65_536, 65_536, 65_536))
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def _outcome(answer: bytes) -> str:
    """The last SQLSTATE in the answer; whole conversations end in many ways."""
    at = answer.rfind(b"\0C")
    if at < 0 or (b"SERROR" not in answer and b"SFATAL" not in answer):
        return "answered" if answer else "nothing"
    sqlstate = answer[at + 2 : at + 7].decode("latin-1")
    assert not sqlstate.startswith("XX"), answer
    return sqlstate
