"""Peers that break the rules, vanish, or don't read: each loses its own connection, nobody else anything."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from shoal.pgwire.messages import (
    Bind,
    DataRow,
    Describe,
    Execute,
    Parse,
    Query,
    ReadyForQuery,
    SSLRequest,
    StartupMessage,
    Sync,
)
from tests.cluster import Instance, eventually
from tests.interop.conftest import DIGITS, DIGITS_ROWS, LONG_SELECT, numbers
from tests.interop.raw_client import RawClient

FRAME_BYTES_MAX = 256 * 1024 * 1024


@pytest.fixture(scope="module")
def witness(instance: Instance) -> Iterator[psycopg.Connection[Any]]:
    """Connected all the while: whatever the others do, it is served."""
    with instance.connect() as conn:
        yield conn


@pytest.fixture(autouse=True)
def others_are_served(witness: psycopg.Connection[Any]) -> Iterator[None]:
    yield
    assert witness.execute("SELECT count(*) FROM digits").fetchone() == (10,)
    assert witness.execute("SELECT n FROM digits WHERE n = 7").fetchone() == (7,)


def open_connections(instance: Instance) -> int:
    return int(instance.metrics()["shoal_open_connections"])


# --- before a session ----------------------------------------------------------------------------

STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "length-0": struct.pack(">II", 0, 196608),
    "length-4": struct.pack(">I", 4),
    "length-max": struct.pack(">II", 0x7FFFFFFF, 196608),
    "version-2": struct.pack(">II", 296, 2 << 16) + bytes(288),
    "version-4": struct.pack(">II", 9, 4 << 16) + b"\0",
    "no-user": struct.pack(">II", 9, 3 << 16) + b"\0",
    "odd-parameters": struct.pack(">II", 14, 3 << 16) + b"user\0\0",
    "not-terminated": struct.pack(">II", 17, 3 << 16) + b"user\0admi",
    "not-utf8": struct.pack(">II", 17, 3 << 16) + b"user\0\xff\xfe\0\0",
    "query-first": b"Q" + struct.pack(">I", 13) + b"SELECT 1\0",
}


@pytest.mark.parametrize("data", STRANGERS.values(), ids=STRANGERS.keys())
def test_strangers(instance: Instance, data: bytes) -> None:
    with RawClient(instance) as stranger:
        stranger.send(data)
        if data == STRANGERS["length-max"] or data == STRANGERS["length-4"]:
            pass  # refused for its length alone
        error = stranger.error_then_end()
        assert error is None or (error.severity == "FATAL" and error.sqlstate[:2] in ("08", "0A", "28", "22"))


def test_garbage(instance: Instance) -> None:
    chance = random.Random(20_240_701)
    for _ in range(200):
        with RawClient(instance) as stranger:
            stranger.send(chance.randbytes(chance.randint(8, 400)))
            stranger.socket.shutdown(socket.SHUT_WR)
            error = stranger.error_then_end()
            assert error is None or error.severity == "FATAL"


def test_half_open(instance: Instance) -> None:
    """Connections on which nothing, or half a word, was said: they cost a socket, no more."""
    before = open_connections(instance)
    silent = [RawClient(instance) for _ in range(50)]
    for i, client in enumerate(silent):
        client.send(StartupMessage(3, 0, (("user", "admin"),)).encode()[: i % 9])
    with instance.connect() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
    eventually(lambda: open_connections(instance) == before + 50, 30)
    for client in silent:
        client.socket.close()
    eventually(lambda: open_connections(instance) == before, 30)


def test_a_startup_packet_in_single_bytes(instance: Instance) -> None:
    with RawClient(instance) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in StartupMessage(3, 0, (("user", "admin"), ("database", "shoal"))).encode():
            client.send(bytes([byte]))
        client.until(ReadyForQuery)
        for byte in Query("SELECT n FROM digits WHERE n = 3").encode():
            client.send(bytes([byte]))
        assert client.until(DataRow).values == (b"3",)


def test_encryption_is_declined_once_each(instance: Instance) -> None:
    with RawClient(instance) as client:
        client.say(SSLRequest())
        assert client.socket.recv(1) == b"N"
        client.log_in()
    with RawClient(instance) as client:  # what stands behind the request would pass for encrypted
        client.send(SSLRequest().encode() + StartupMessage(3, 0, (("user", "admin"),)).encode())
        error = client.error_then_end()
        assert error is None or error.sqlstate == "08P01"


def test_a_newer_minor_version_is_negotiated(instance: Instance) -> None:
    with RawClient(instance) as client:
        client.say(StartupMessage(3, 2, (("user", "admin"), ("_pq_.future", "1"))))
        client.until(ReadyForQuery)


# --- in a session --------------------------------------------------------------------------------


def frame(kind: bytes, length: int, payload: bytes = b"") -> bytes:
    return kind + struct.pack(">I", length) + payload


BAD_FRAMES = {
    "unknown-type": frame(b"!", 4),
    "too-long-query": frame(b"Q", FRAME_BYTES_MAX + 1),
    "too-long-sync": frame(b"S", 20_000),
    "length-max": frame(b"P", 0xFFFFFFFF),
    "length-0": frame(b"Q", 0),
    "length-3": frame(b"Q", 3),
    "password-in-session": frame(b"p", 6, b"x\0"),
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_frames_that_end_the_connection(instance: Instance, data: bytes) -> None:
    """Nobody knows where the next frame begins, so there is no way on."""
    with RawClient(instance) as client:
        client.log_in()
        client.send(data)
        error = client.error_then_end()
        assert error is not None
        assert (error.severity, error.sqlstate) == ("FATAL", "08P01")


BAD_PAYLOADS = {
    "query-not-terminated": frame(b"Q", 12, b"SELECT 1"),
    "query-with-rest": frame(b"Q", 15, b"SELECT 1\0xy"),
    "query-empty-payload": frame(b"Q", 4),
}
BAD_EXTENDED = {
    "parse-count": frame(b"P", 16, b"\0SELECT 1\0\x7f\xff"),
    "bind-negative-length": frame(b"B", 16, b"\0\0\0\0\0\1\xff\xff\xff\xf0\0\0") + b"",
    "bind-truncated": frame(b"B", 10, b"\0\0\0\1\0\7"),
    "bind-format-7": frame(b"B", 14, b"\0\0\0\1\0\7\0\0\0\0"),
    "describe-target": frame(b"D", 6, b"X\0"),
    "execute-short": frame(b"E", 6, b"\0\0"),
    "close-target": frame(b"C", 6, b"?\0"),
}


@pytest.mark.parametrize("data", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS.keys())
def test_simple_messages_that_fail_alone(instance: Instance, data: bytes) -> None:
    with RawClient(instance) as client:
        client.log_in()
        client.send(data)
        error = _error(client)
        assert (error.severity, error.sqlstate) == ("ERROR", "08P01")
        assert client.until(ReadyForQuery).status == "I"
        client.say(Query("SELECT n FROM digits WHERE n = 5"))
        assert client.until(DataRow).values == (b"5",)


@pytest.mark.parametrize("data", BAD_EXTENDED.values(), ids=BAD_EXTENDED.keys())
def test_extended_messages_that_fail_alone(instance: Instance, data: bytes) -> None:
    """All is skipped up to Sync, then the session goes on."""
    with RawClient(instance) as client:
        client.log_in()
        client.send(data)
        client.say(Parse("", "SELECT 1", ()), Bind("", "", (), (), ()), Execute("", 0), Sync())
        error = _error(client)
        assert (error.severity, error.sqlstate) == ("ERROR", "08P01")
        kinds = []
        for kind, _ in client.frames():
            kinds.append(chr(kind))
            if kind == ReadyForQuery.kind:
                break
        assert kinds == ["Z"]
        client.say(Query("SELECT n FROM digits WHERE n = 5"))
        assert client.until(DataRow).values == (b"5",)


def _error(client: RawClient) -> Any:
    from shoal.pgwire.messages import ErrorResponse

    for kind, payload in client.frames():
        if kind == ErrorResponse.kind:
            return ErrorResponse.decode(payload)
    raise AssertionError("closed without an error")


def test_frames_that_break_off(instance: Instance) -> None:
    before = open_connections(instance)
    for data in (frame(b"Q", 100, b"SELECT"), b"Q", b"P\0\0", frame(b"B", 1_000_000, bytes(70_000))):
        for vanish in (False, True):
            client = RawClient(instance)
            client.log_in()
            client.send(data)
            if vanish:
                client.vanish()
            else:
                client.socket.shutdown(socket.SHUT_WR)
                assert client.error_then_end() is None
                client.socket.close()
    eventually(lambda: open_connections(instance) == before, 30)


def test_a_large_statement_is_fine(instance: Instance) -> None:
    text = "x" * (12 * 1024 * 1024)
    with instance.connect() as conn:
        assert conn.execute("SELECT length(%s::text)", (text * 2,)).fetchone() == (2 * len(text),)
        assert conn.execute(f"SELECT length('{text}')".encode()).fetchone() == (len(text),)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            conn.execute(f"SELECT length('{text}{text}')".encode())


def test_the_same_query_over_and_over_before_reading(instance: Instance) -> None:
    """A client that only writes is stopped by the pause of its socket, not by the end of our memory."""
    count = 20_000
    with RawClient(instance) as client:
        client.log_in()
        data = Query("SELECT a.n, b.n FROM digits a, digits b").encode() * 100
        writer = threading.Thread(target=lambda: [client.send(data) for _ in range(count // 100)])
        writer.start()
        ready = sum(1 for kind, _ in _take(client, ReadyForQuery.kind, count) if kind == ReadyForQuery.kind)
        writer.join()
        assert ready == count


def _take(client: RawClient, kind: int, count: int) -> Iterator[tuple[int, bytes]]:
    for found in client.frames():
        yield found
        if found[0] == kind:
            count -= 1
            if count == 0:
                return


# --- many, and those that vanish -----------------------------------------------------------------


def test_200_connections_at_once(instance: Instance) -> None:
    async def main() -> None:
        connections = await asyncio.gather(
            *(asyncpg.connect(instance.url(), timeout=120) for _ in range(200))
        )
        try:
            for _ in range(3):
                found = await asyncio.gather(
                    *(
                        conn.fetchval("SELECT count(*) + $1 FROM digits", i)
                        for i, conn in enumerate(connections)
                    )
                )
                assert found == [10 + i for i in range(200)]
        finally:
            await asyncio.gather(*(conn.close() for conn in connections))

    before = open_connections(instance)
    asyncio.run(main())
    eventually(lambda: open_connections(instance) == before, 30)


def test_clients_killed_amid_long_selects_free_the_readers(instance: Instance, timing_scale: float) -> None:
    """There are two reader threads: if one of ten vanished clients kept one, others would soon wait forever."""
    before = open_connections(instance)
    for vanish in (False, True):
        clients = [RawClient(instance) for _ in range(10)]
        for client in clients:
            client.log_in()
            client.say(Query(LONG_SELECT))
        for client in clients:
            if vanish:
                client.vanish()
            else:
                client.socket.close()
        eventually(lambda: open_connections(instance) == before, 30 * timing_scale)
        with instance.connect(options="-c statement_timeout=60s") as conn:
            assert conn.execute("SELECT count(*) FROM digits").fetchone() == (10,)


def test_clients_killed_amid_large_answers(instance: Instance, timing_scale: float) -> None:
    before = open_connections(instance)
    clients = [RawClient(instance) for _ in range(6)]
    for client in clients:
        client.log_in()
        client.say(Query(f"{numbers(6)}"))
    for client in clients:
        client.until(DataRow)  # it is under way
        client.vanish()
    eventually(lambda: open_connections(instance) == before, 30 * timing_scale)


def test_clients_killed_amid_writes(instance: Instance, timing_scale: float) -> None:
    """The statement is done or not done, whole."""
    instance.execute("CREATE TABLE left_amid (id INT PRIMARY KEY, writer INT)")
    before = open_connections(instance)
    for writer in range(5):
        client = RawClient(instance)
        client.log_in()
        client.say(
            Query(
                f"INSERT INTO left_amid SELECT {writer * 10_000} + n, {writer} FROM ({numbers(4)}) AS numbers"
            )
        )
        client.vanish()
    eventually(lambda: open_connections(instance) == before, 30 * timing_scale)
    with instance.connect() as conn:
        conn.execute("INSERT INTO left_amid VALUES (-1, -1)")  # goes behind whatever was still in line
        counts = conn.execute("SELECT writer, count(*) FROM left_amid GROUP BY writer").fetchall()
        assert {count for writer, count in counts if writer >= 0} <= {10_000}


def test_portals_left_open_in_a_block(instance: Instance, timing_scale: float) -> None:
    before = open_connections(instance)
    clients = [RawClient(instance) for _ in range(5)]
    for client in clients:
        client.log_in()
        client.say(Query("BEGIN"))
        client.until(ReadyForQuery)
        for name in ("a", "b"):
            client.say(Parse("", numbers(5), ()), Bind(name, "", (), (), ()), Describe("portal", name))
            client.say(Execute(name, 5))
        client.say(Sync())
        assert client.until(ReadyForQuery).status == "T"
    with instance.connect() as conn:
        assert conn.execute("SELECT count(*) FROM digits").fetchone() == (10,)
    for client in clients:
        client.vanish()
    eventually(lambda: open_connections(instance) == before, 30 * timing_scale)


def resident_bytes(instance: Instance, what: str) -> int:
    for line in Path(f"/proc/{instance.pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(what)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_client_that_reads_slowly(instance: Instance, witness: psycopg.Connection[Any]) -> None:
    """The answer of some 150 MB waits on the disk, not in memory."""
    witness.execute("SELECT count(*) FROM digits")
    before = resident_bytes(instance, "VmHWM")
    with RawClient(instance) as client:
        client.log_in()
        client.say(Query(f"SELECT n, '{'x' * 140}' FROM ({numbers(6)}) AS numbers"))
        rows = 0
        for kind, _ in client.frames():
            if kind == DataRow.kind:
                rows += 1
                if rows % 250_000 == 1:
                    assert witness.execute("SELECT count(*) FROM digits").fetchone() == (10,)
            elif kind == ReadyForQuery.kind:
                break
        assert rows == 1_000_000
    assert resident_bytes(instance, "VmHWM") - before < 64 * 1024 * 1024


# --- limits, the end -----------------------------------------------------------------------------


def test_too_many_connections(tmp_path: Path, timing_scale: float) -> None:
    few = Instance(tmp_path / "i", options=("-c", "max_connections=3"), timing_scale=timing_scale)
    try:
        few.start()
        held = [few.connect() for _ in range(3)]
        with RawClient(few) as client:
            client.say(StartupMessage(3, 0, (("user", "admin"),)))
            error = client.error_then_end()
            assert error is not None
            assert (error.severity, error.sqlstate) == ("FATAL", "53300")
        # The administrator still gets in.
        with psycopg.connect(host=str(few.socket_directory), port=few.port, user="admin") as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        held.pop().close()
        eventually(lambda: open_connections(few) == 2, 30)
        few.connect().close()
        for conn in held:
            conn.close()
        assert few.stop() == 0
    finally:
        few.kill()


def test_stopping_with_clients(tmp_path: Path, timing_scale: float) -> None:
    """They are told, and what is under way doesn't keep it from stopping."""
    stopping = Instance(tmp_path / "i", timing_scale=timing_scale)
    try:
        stopping.start()
        stopping.execute(DIGITS, DIGITS_ROWS)
        idle = stopping.connect()
        busy = RawClient(stopping)
        busy.log_in()
        busy.say(Query(LONG_SELECT))
        deaf = RawClient(stopping)
        deaf.log_in()
        deaf.say(Query(LONG_SELECT.replace("count(*)", "d0.n, d1.n, d2.n").replace("< 0", ">= 0")))
        deaf.until(DataRow)
        assert stopping.stop() == 0
        with pytest.raises(psycopg.errors.AdminShutdown):
            idle.execute("SELECT 1")
        error = busy.error_then_end()
        assert error is not None
        assert error.sqlstate == "57P01"
        deaf.socket.close()
        busy.socket.close()
        assert not stopping.bugs(), stopping.bugs()
    finally:
        stopping.kill()
