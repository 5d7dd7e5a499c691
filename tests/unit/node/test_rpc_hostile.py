"""RPC among strangers: what they send ends at most their own connection."""

from __future__ import annotations

import asyncio
import base64
import random
import resource
import time

import msgspec
import pytest
from scramp import ScramClient

from shoal.node.rpc import Caller, LinkEvent, NotSent, Rejected, ReplyLost, Rpc, TimedOut
from shoal.node.rpc.connection import Timing
from shoal.node.rpc.rpc import STRANGERS_MAX
from shoal.pgwire.auth import NONCE_BYTES, Exchange, authenticate, make_secret
from shoal.protocol.envelope import Ping, Pong
from shoal.protocol.frames import FRAME_BYTES_MAX, STRANGER_FRAME_BYTES_MAX, frame
from shoal.protocol.handshake import PROTOCOL_VERSION, Hello, Introduction, Proof, Welcome, dial
from tests.unit.node.rpc_ground import SECRET, Ground, Told, Wire, run, who
from tests.unit.protocol.streams import mutated

encode = msgspec.msgpack.encode
NONCE = b"n" * 32


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Answered never."""


class Fill(msgspec.Struct, frozen=True, array_like=True, tag="fill"):
    """Answered with so many bytes."""

    size: int


class Filled(msgspec.Struct, frozen=True, array_like=True, tag="filled"):
    data: bytes


async def hold(caller: Caller, asked: Hold, deadline: float) -> Pong:
    await asyncio.Event().wait()
    raise AssertionError


def fill(caller: Caller, asked: Fill, deadline: float) -> Filled:
    return Filled(bytes(asked.size))


async def victim(ground: Ground, **options: object) -> tuple[Rpc, str]:
    made, at = await ground.listening("victim", **options)
    made.handle(Hold, hold)
    made.handle(Fill, fill)
    return made, at


async def is_well(ground: Ground, at: str) -> None:
    honest = ground.end("honest")
    assert await honest.call(at, Ping(b"well?"), Pong, 10) == Pong(b"well?")
    await honest.close()


# --- before the handshake ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "opening",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        (STRANGER_FRAME_BYTES_MAX + 1).to_bytes(4, "big") + b"x",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),  # TLS
        frame(b"\xc1"),
        frame(b"\x91" * 4000),
        frame(b"\xdd\xff\xff\xff\xff\xa5hello\x01"),
        frame(encode(["proof", bytes(32)])),
        frame(encode(["scram", b"n,,n=,r=abc"])),
        frame(encode([0, 1, 1000, ["ping"]])),
        frame(encode(["hello", PROTOCOL_VERSION + 1])),
    ],
)
def test_openings_that_are_none(opening: bytes) -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.wire(at)
        wire.say_raw(opening)
        await wire.ends()  # at once, or when the time for the handshake is over
        await is_well(ground, at)

    run(scenario)


def test_a_stranger_is_told_what_is_wrong() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        for opening, reason in (
            (b"\xff\xff\xff\xff", "malformed"),
            (frame(b"\xc0"), "malformed"),
            (frame(encode(["hello", 9])), "version"),
            (frame(encode(Hello(1, "peer", who("x", cluster="bank"), NONCE))), "cluster"),
        ):
            wire = await ground.wire(at)
            wire.say_raw(opening)
            kind, told, *_ = await wire.heard()
            assert (kind, told) == ("refused", reason)
            await wire.ends()

    run(scenario)


def test_an_end_that_says_one_byte_at_a_time_has_no_more_time_than_others() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.wire(at)
        before = ground.loop.time()
        ended = asyncio.create_task(wire.ends())
        for byte in frame(next(dial(who("slow"), NONCE, SECRET))) * 10:
            if ended.done():
                break
            wire.say_raw(bytes((byte,)))
            await asyncio.sleep(0.02)
        await ended
        assert ground.loop.time() - before < 8

    run(scenario)


def test_slow_bytes_of_a_peer_are_fine() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.admitted(at)
        for byte in frame(encode([0, 1, 10_000, ["ping", b"slow"]])):
            wire.say_raw(bytes((byte,)))
            await asyncio.sleep(0.002)
        assert await wire.heard() == [1, 1, ["pong", b"slow"]]

    run(scenario)


def test_silent_strangers_do_not_keep_others_out() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim(ground, timing=Timing(handshake_seconds=60))
        wires = [await ground.wire(at) for _ in range(STRANGERS_MAX + 20)]
        await is_well(ground, at)
        # The first ones made room.
        for wire in wires[:20]:
            await wire.ends()
        assert not wires[-1].reader.at_eof()
        await made.close()

    run(scenario)


def test_peers_are_no_strangers() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground, timing=Timing(handshake_seconds=60))
        peer = await ground.admitted(at)
        for _ in range(STRANGERS_MAX + 20):
            await ground.wire(at)
        peer.put(0, 1, 10_000, ["ping", b"still here"])
        assert await peer.heard() == [1, 1, ["pong", b"still here"]]

    run(scenario)


def test_a_recorded_handshake_is_worth_nothing() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        honest = await ground.wire(at)
        exchange = dial(who("i1"), NONCE, SECRET)
        said = [next(exchange)]
        honest.say(said[0])
        said.append(exchange.send(await honest.hear()))
        honest.say(said[1])
        assert (await honest.heard())[0] == "proof"
        thief = await ground.wire(at)
        thief.say(said[0])
        await thief.hear()
        thief.say(said[1])
        assert (await thief.heard())[:2] == ["refused", "secret"]
        await thief.ends()

    run(scenario)


def test_the_listeners_own_words_sent_back() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.wire(at)
        wire.say(encode(Hello(PROTOCOL_VERSION, "peer", who("mirror"), NONCE)))
        welcome = await wire.hear()
        wire.say(welcome)
        assert (await wire.heard())[:2] == ["refused", "malformed"]

    run(scenario)


def test_requests_before_the_proof() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.wire(at)
        wire.say(next(dial(who("eager"), NONCE, SECRET)))
        wire.put(0, 1, 1000, ["ping", b""])
        assert (await wire.heard())[0] == "welcome"
        assert (await wire.heard())[:2] == ["refused", "malformed"]
        await wire.ends()

    run(scenario)


# --- after it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stream",
    [
        b"\x00\x00\x00\x00",
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        frame(b"\xc1"),
        frame(b"\x94\x00\x01\x01" + b"\x91" * 1_000_000),
        frame(b"\x92\x03\xc6\xff\xff\xff\xff"),
        frame(encode([1, 1, ["pong", b""]])),  # answers, to a listener that asked nothing
        frame(encode([2, 1, "40001", "no"])),
        frame(encode([4, 1])),
        frame(encode([0, -1, 1000, ["ping"]])),
        frame(encode([0, 1, -1, ["ping"]])),
        frame(encode([0, 1, 10_000, ["hold"]])) * 2,  # one id, twice at a time
    ],
)
def test_envelopes_that_are_none_end_the_connection(stream: bytes) -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.admitted(at)
        wire.say_raw(stream)
        await wire.ends()
        await is_well(ground, at)

    run(scenario)


@pytest.mark.parametrize(
    "payload, sqlstate",
    [
        (None, "08P01"),
        ([], "08P01"),
        (["ping", "text where bytes must be"], "08P01"),
        ([7], "08P01"),
        (["fill"], "08P01"),
        (["of another version", 1, 2], "0A000"),
        (["x" * 100_000], "0A000"),
        ({"a": 1}, "08P01"),
    ],
)
def test_requests_that_are_none_are_answered(payload: object, sqlstate: str) -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground)
        wire = await ground.admitted(at)
        wire.put(0, 5, 1000, payload)
        kind, request, told, message, *_ = await wire.heard()
        assert (kind, request, told) == (2, 5, sqlstate)
        assert len(message) < 300
        wire.put(0, 6, 1000, ["ping", b"on"])
        assert await wire.heard() == [1, 6, ["pong", b"on"]]

    run(scenario)


def test_an_answer_to_nobody_ends_the_link_and_it_comes_back() -> None:
    async def scenario(ground: Ground) -> None:
        connections = 0

        async def serve(wire: Wire) -> None:
            nonlocal connections
            connections += 1
            await wire.admit("liar")
            while True:
                _, request, _, payload = await wire.heard()
                wire.put(1, request + (1000 if connections == 1 else 0), ["pong", payload[1]])

        at = await ground.pretending(serve)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        with pytest.raises(ReplyLost, match="which was not asked"):
            await dialler.call(at, Ping(), Pong, 10)
        assert await dialler.call(at, Ping(b"x"), Pong, 10) == Pong(b"x")
        assert told.of(at) == [LinkEvent.UP, LinkEvent.LOST, LinkEvent.UP]

    run(scenario)


def test_listeners_that_do_not_speak_our_protocol() -> None:
    async def scenario(ground: Ground) -> None:
        for said in (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            frame(b"\xc0"),
            frame(b"\x91" * 4000),
            b"\xff" * 5000,
        ):

            async def serve(wire: Wire, said: bytes = said) -> None:
                wire.say_raw(said)
                await wire.ends()

            at = await ground.pretending(serve)
            dialler, told = ground.end("i1"), Told()
            dialler.on_link(told)
            with pytest.raises(Rejected) as rejected:
                await dialler.call(at, Ping(), Pong, 10)
            assert rejected.value.reason == "malformed"
            assert told.of(at)[0] is LinkEvent.REJECTED

    run(scenario)


def test_a_listener_that_does_not_know_the_secret() -> None:
    async def scenario(ground: Ground) -> None:
        told_it: list[object] = []

        async def serve(wire: Wire) -> None:
            await wire.hear()
            wire.say(encode(Welcome(PROTOCOL_VERSION, who("fraud"), NONCE)))
            proof = await wire.hear()
            wire.say(proof)  # the dialler's own, sent back
            told_it.append(await wire.heard())

        at = await ground.pretending(serve)
        with pytest.raises(Rejected, match="secret"):
            await ground.end("i1").call(at, Ping(), Pong, 10)
        await ground.until(lambda: told_it)
        assert told_it[0][:2] == ["refused", "secret"]  # type: ignore[index]

    run(scenario)


def test_a_listener_that_accepts_and_says_nothing() -> None:
    async def scenario(ground: Ground) -> None:
        async def serve(wire: Wire) -> None:
            await wire.ends()

        at = await ground.pretending(serve)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        before = ground.loop.time()
        with pytest.raises(NotSent, match="gives no answer"):
            await dialler.call(at, Ping(), Pong, 20)
        assert 1.9 < ground.loop.time() - before < 15
        assert told.of(at) == [LinkEvent.UNREACHABLE]

    run(scenario)


def test_a_listener_that_closes_at_once() -> None:
    async def scenario(ground: Ground) -> None:
        async def serve(wire: Wire) -> None:
            pass

        at = await ground.pretending(serve)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        with pytest.raises(NotSent):
            await dialler.call(at, Ping(), Pong, 20)
        assert told.of(at) == [LinkEvent.UNREACHABLE]

    run(scenario)


def test_a_call_that_waits_for_a_silent_listener_has_its_own_deadline() -> None:
    async def scenario(ground: Ground) -> None:
        async def serve(wire: Wire) -> None:
            await wire.ends()

        at = await ground.pretending(serve)
        dialler = ground.end("i1", timing=Timing(handshake_seconds=20))
        with pytest.raises(NotSent, match="in time"):
            await dialler.call(at, Ping(), Pong, 0.2)

    run(scenario)


def test_a_link_that_falls_silent_is_made_anew() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await ground.listening("i2")
        cut = await ground.cut(at)
        dialler, told = ground.end("i1"), Told()
        dialler.on_link(told)
        await dialler.call(cut.address, Ping(), Pong, 5)
        cut.freeze()
        with pytest.raises(TimedOut):
            await dialler.call(cut.address, Ping(), Pong, 0.1)
        await ground.until(lambda: LinkEvent.LOST in told.of(cut.address))
        assert dialler.trouble(cut.address) == "it gives no sign of life"
        cut.thaw()
        await ground.until(lambda: dialler.is_up(cut.address))
        assert await dialler.call(cut.address, Ping(b"x"), Pong, 5) == Pong(b"x")

    run(scenario)


def test_nothing_that_listeners_send_stops_a_dialler() -> None:
    async def scenario(ground: Ground) -> None:
        chance = random.Random(11)
        answers = [
            frame(encode([1, 1, ["pong", b"x"]])) + frame(encode([1, 1, ["pong", b"x"]])),
            frame(encode([2, 1, "40001", "conflict", None, None, {"leader": 3}])),
            frame(encode([1, 2, ["pong", b"y" * 500]])) + frame(encode([1, 1, ["pong", b"x"]])),
        ]
        connections = 0

        async def serve(wire: Wire) -> None:
            nonlocal connections
            connections += 1
            if chance.random() < 0.2:
                wire.say_raw(mutated([frame(encode(Welcome(1, who("odd"), NONCE)))], chance))
            await wire.admit("odd")
            await wire.hear()
            wire.say_raw(mutated(answers, chance))
            if chance.random() < 0.5:
                wire.writer.transport.abort()
            await wire.ends()

        at = await ground.pretending(serve)
        timing = Timing(handshake_seconds=0.2, probe_seconds=0.02, backoff_seconds_max=0.002)
        dialler = ground.end("i1", timing=timing)
        outcomes: dict[str, int] = {}
        deadline = time.monotonic() + 20
        while connections < 300 and time.monotonic() < deadline:
            for outcome in await asyncio.gather(
                *(dialler.call(at, Ping(), Pong, 0.05) for _ in range(2)), return_exceptions=True
            ):
                name = type(outcome).__name__
                assert not isinstance(outcome, AssertionError | TypeError | KeyError), outcome
                outcomes[name] = outcomes.get(name, 0) + 1
        assert connections >= 50, outcomes
        assert {"Pong", "ReplyLost"} <= set(outcomes), outcomes

    run(scenario)


def test_nothing_that_diallers_send_stops_a_listener() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim(ground, timing=Timing(handshake_seconds=1))
        exchange = dial(who("odd"), NONCE, SECRET)
        hello = next(exchange)
        strangers = [
            frame(hello) + frame(encode(Proof(NONCE))),
            frame(encode(Hello(1, "client", Introduction("", "", "", ""), NONCE, "ann")))
            + frame(encode(["scram", b"n,,n=,r=abcdefgh"]))
            + frame(encode(["scram", b"c=biws,r=abcdefgh,p=AAAA"])),
        ]
        peers = [
            frame(encode([0, 1, 1000, ["ping", b"x"]])) + frame(encode([3, b"raft"])),
            frame(encode([0, 2, 50, ["hold"]])) + frame(encode([0, 3, 1000, ["fill", 5000]])),
            frame(encode([0, 4, 1000, ["ping", b"y" * 300]])) * 3,
        ]
        chance = random.Random(7)

        async def one(seed: int) -> None:
            wire = await ground.wire(at) if seed % 2 else await ground.admitted(at)
            try:
                wire.say_raw(mutated(strangers if seed % 2 else peers, chance))
                if chance.random() < 0.3:
                    await wire.writer.drain()
                    wire.writer.transport.abort()
                else:
                    wire.writer.write_eof()
                    await wire.ends()
            except ConnectionError:
                pass
            wire.writer.transport.abort()
            ground.wires.remove(wire)

        for first in range(0, 2_000, 20):
            await asyncio.gather(*(one(first + number) for number in range(20)))
        await is_well(ground, at)

    run(scenario)


# --- growth --------------------------------------------------------------------------------------


def test_a_peer_that_does_not_read_its_answers_is_not_read() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim(ground)
        wire = await ground.admitted(at)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        asked = b"".join(frame(encode([0, number, 10_000, ["fill", 60_000]])) for number in range(1, 2_001))
        wire.say_raw(asked)  # 120 MB of answers
        wire.writer.transport.pause_reading()
        (served,) = made._served
        await ground.until(lambda: served.paused, "the answers pile up")
        await asyncio.sleep(0.1)
        assert len(served.out) < 2_000_000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KiB
        # It reads after all, and gets every answer.
        wire.writer.transport.resume_reading()
        for number in range(1, 2_001):
            kind, request, _ = await wire.heard()
            assert (kind, request) == (1, number)
        wire.put(0, 1, 1000, ["ping", b""])
        assert await wire.heard() == [1, 1, ["pong", b""]]

    run(scenario)


def test_answers_that_come_late_for_a_peer_that_does_not_read_end_its_connection() -> None:
    class Wait(msgspec.Struct, frozen=True, array_like=True, tag="wait"):
        pass

    async def scenario(ground: Ground) -> None:
        made, at = await victim(ground, timing=Timing(unacknowledged_seconds=300))
        go = asyncio.Event()

        async def wait(caller: Caller, asked: Wait, deadline: float) -> Filled:
            await go.wait()
            return Filled(bytes(1_000_000))

        made.handle(Wait, wait)
        wire = await ground.admitted(at)
        wire.writer.transport.pause_reading()
        for number in range(100):
            wire.put(0, number, 60_000, ["wait"])
        (served,) = made._served
        await ground.until(lambda: len(served._running) == 100)
        go.set()
        await ground.until(lambda: not made._served, "the connection ends")
        await is_well(ground, at)

    run(scenario)


def test_handlers_of_a_caller_that_is_gone_are_ended() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim(ground)
        wire = await ground.admitted(at)
        for number in range(50):
            wire.put(0, number, 60_000, ["hold"])
        (served,) = made._served
        await ground.until(lambda: len(served._running) == 50)
        tasks = len(asyncio.all_tasks())
        wire.writer.transport.abort()
        await ground.until(lambda: len(asyncio.all_tasks()) <= tasks - 50)
        assert not made._served

    run(scenario)


# --- clients -------------------------------------------------------------------------------------

ANN = make_secret("scram-sha256", "ann", "open sesame", bytes(range(16)))
BOB = make_secret("md5", "bob", "old", b"")


class TurnedAway(Exception):
    pass


async def client(ground: Ground, at: str, user: str, password: str) -> Wire:
    """A wire of a client that has said its last word of SCRAM."""
    wire = await ground.wire(at)
    wire.say(encode(Hello(PROTOCOL_VERSION, "client", Introduction("", "", "", "loader"), NONCE, user)))
    assert (await wire.heard())[0] == "welcome"
    scram = ScramClient(["SCRAM-SHA-256"], user, password)
    wire.say(encode(["scram", scram.get_client_first().encode()]))
    kind, first = await wire.heard()
    assert kind == "scram"
    scram.set_server_first(first.decode())
    wire.say(encode(["scram", scram.get_client_final().encode()]))
    kind, last, *rest = await wire.heard()
    if kind != "scram":
        raise TurnedAway(last, *rest)
    scram.set_server_final(last.decode())  # raises if the instance didn't know the password
    return wire


def begin(user: str) -> Exchange:
    kept = {"ann": ANN, "bob": BOB, "odd": "no secret"}.get(user)
    return authenticate(user, kept, chance=b"c" * NONCE_BYTES, mock_key=b"mock", scram_only=True)


async def victim_with_users(ground: Ground) -> tuple[Rpc, str]:
    made, at = await victim(ground)
    made.admit_clients(begin)
    return made, at


def test_a_client_logs_in_and_asks_what_is_for_clients() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim_with_users(ground)
        seen: list[Caller] = []

        class Count(msgspec.Struct, frozen=True, array_like=True, tag="count"):
            pass

        def count(caller: Caller, asked: Count, deadline: float) -> Pong:
            seen.append(caller)
            return Pong(b"3")

        made.handle(Count, count, roles=("peer", "client"))
        wire = await client(ground, at, "ann", "open sesame")
        wire.put(0, 1, 1000, ["ping", b"x"])
        assert await wire.heard() == [1, 1, ["pong", b"x"]]
        wire.put(0, 2, 1000, ["hold"])
        told = await wire.heard()
        assert told[:3] == [2, 2, "42501"]
        assert told[3] == "request 'hold' is not for connections of role 'client'"
        wire.put(0, 3, 1000, ["fill", "not even well formed"])
        assert (await wire.heard())[:3] == [2, 3, "42501"]
        wire.put(0, 4, 1000, ["count"])
        assert await wire.heard() == [1, 4, ["pong", b"3"]]
        assert (seen[0].role, seen[0].user, seen[0].introduction.instance) == ("client", "ann", "loader")

    run(scenario)


@pytest.mark.parametrize(
    "user, password", [("ann", "open sesam"), ("bob", "old"), ("nobody", ""), ("odd", "")]
)
def test_a_client_that_does_not_know_the_password(user: str, password: str) -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim_with_users(ground)
        with pytest.raises(TurnedAway) as refused:
            await client(ground, at, user, password)
        assert refused.value.args == ("login", "28P01", f"authentication failed for user '{user}'")

    run(scenario)


def test_a_client_that_may_not_stay() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim_with_users(ground)
        wire = await client(ground, at, "ann", "open sesame")
        peer = await ground.admitted(at)
        made.end_clients(lambda user: user == "ann")
        wire.put(0, 1, 1000, ["ping", b"x"])
        assert await wire.heard() == [1, 1, ["pong", b"x"]]
        made.end_clients(lambda user: user != "ann")
        await wire.ends()
        peer.put(0, 1, 1000, ["ping", b"y"])
        assert await peer.heard() == [1, 1, ["pong", b"y"]]

    run(scenario)


def test_a_client_cannot_send_what_only_peers_send() -> None:
    async def scenario(ground: Ground) -> None:
        made, at = await victim_with_users(ground)
        received: list[bytes] = []
        made.on_one_way(lambda caller, payload: received.append(payload))
        wire = await client(ground, at, "ann", "open sesame")
        wire.put(3, b"vote for me")
        await wire.ends()
        assert received == []

    run(scenario)


def test_malformed_scram() -> None:
    async def scenario(ground: Ground) -> None:
        _, at = await victim_with_users(ground)
        for first in (b"", b"\xff", b"p=tls,,n=,r=abc", base64.b64encode(bytes(100))):
            wire = await ground.wire(at)
            wire.say(encode(Hello(PROTOCOL_VERSION, "client", Introduction("", "", "", ""), NONCE, "ann")))
            await wire.hear()
            wire.say(encode(["scram", first]))
            assert (await wire.heard())[0] == "refused"
            await wire.ends()

    run(scenario)
