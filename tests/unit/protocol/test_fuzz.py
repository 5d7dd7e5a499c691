"""Mutated streams: whatever arrives, at whichever side, ends as a message or as a ShoalError.

The seeds are fixed, so a failure found once is found again: its message names the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from shoal.errors import ProtocolViolation, RetryableError, ShoalError
from shoal.protocol import envelope as e
from shoal.protocol.frames import Frames, frame
from shoal.protocol.handshake import Introduction, Proof, Refused, Scram, answer, dial
from tests.unit.protocol.streams import mutated

SECRET: Final = b"the secret of this cluster"
ONE: Final = Introduction("shop", "u", "a1", "i1", 1)
TWO: Final = Introduction("shop", "u", "a2", "i2", 2)
NONCE: Final = bytes(range(32))


def handshakes() -> tuple[list[bytes], list[bytes]]:
    """What dialers say, what listeners say."""

    def log_in(user: str, first: bytes):  # type: ignore[no-untyped-def]
        yield b"server-first"
        return b"server-final"

    dialler = dial(ONE, NONCE, SECRET)
    hello = next(dialler)
    listener = answer(hello, TWO, NONCE, SECRET, log_in)
    welcome = next(listener)
    proof = dialler.send(welcome)
    with pytest.raises(StopIteration) as stop:
        listener.send(proof)
    encode = msgspec.msgpack.encode
    client_hello = encode(["hello", 1, "client", ["", "", "", "loader"], NONCE, "ann"])
    scram = encode(Scram(b"client"))
    refused = encode(Refused("cluster", "28000", "belongs to cluster 'bank'"))
    return (
        [frame(hello) + frame(proof), frame(client_hello) + frame(scram) + frame(scram), frame(refused)],
        [
            frame(welcome) + frame(stop.value.value[1]),
            frame(welcome) + frame(encode(Proof(NONCE))),
            frame(refused),
        ],
    )


def envelopes() -> tuple[list[bytes], list[bytes]]:
    asked, answered = bytearray(), bytearray()
    e.append_frame(asked, (e.REQUEST, 1, 1000, e.Ping(b"x")))
    e.append_frame(asked, (e.ONE_WAY, b"raft"))
    e.append_frame(asked, (e.REQUEST, 2, 2**32 - 1, e.Ping(b"y" * 300)))
    e.append_frame(answered, (e.ANSWER, 1, e.Pong(b"x")))
    e.append_frame(answered, e.failure(2, RetryableError("conflict", detail="d", extra={"leader": 3})))
    return [bytes(asked)], [bytes(answered)]


def chunks(stream: bytes, chance: random.Random) -> list[bytes]:
    size = chance.choice((1, 7, 64, 65_536))
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def take(frames: Frames, stream: bytes, chance: random.Random) -> list[bytes]:
    taken: list[bytes] = []
    for chunk in chunks(stream, chance):
        frames.feed(chunk)
        taken += frames
    return taken


def as_listener(stream: bytes, chance: random.Random) -> None:
    def log_in(user: str, first: bytes):  # type: ignore[no-untyped-def]
        yield b"server-first"
        return b"server-final"

    payloads = take(Frames(), stream, chance)
    if payloads:
        exchange = answer(payloads[0], TWO, NONCE, SECRET, log_in)
        next(exchange)
        for payload in payloads[1:]:
            exchange.send(payload)


def as_dialler(stream: bytes, chance: random.Random) -> None:
    exchange = dial(ONE, NONCE, SECRET)
    next(exchange)
    for payload in take(Frames(), stream, chance):
        exchange.send(payload)


def as_asked(stream: bytes, chance: random.Random) -> None:
    frames = Frames()
    frames.trust()
    for payload in take(frames, stream, chance):
        e.read_from_dialer(payload)
    assert frames.held_bytes <= len(stream)


def as_asker(stream: bytes, chance: random.Random) -> None:
    frames = Frames()
    frames.trust()
    for payload in take(frames, stream, chance):
        message = e.read_from_listener(payload)
        if isinstance(message, e.Failure):
            assert len(e.error_of(message).sqlstate) == 5


SIDES: Final = {"listener": as_listener, "dialler": as_dialler, "asked": as_asked, "asker": as_asker}


def streams_for(side: str) -> Sequence[bytes]:
    return {
        "dialler": handshakes()[1],
        "listener": handshakes()[0],
        "asked": envelopes()[0],
        "asker": envelopes()[1],
    }[side]


@pytest.mark.parametrize("side", SIDES)
def test_mutated_streams(side: str) -> None:
    streams = streams_for(side)
    ends = {"well": 0, "refused": 0}
    for seed in range(4_000):
        chance = random.Random(f"{side} {seed}")
        stream = mutated(streams, chance)
        try:
            SIDES[side](stream, chance)
        except (ShoalError, StopIteration) as error:
            ends["well" if isinstance(error, StopIteration) else "refused"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed} of {side}: {stream!r}") from error
        else:
            ends["well"] += 1
    assert min(ends.values()) > 100, ends


def test_the_mutations_start_from_what_is_right() -> None:
    for side, do in SIDES.items():
        stream = streams_for(side)[0]
        try:
            do(stream, random.Random(0))
        except StopIteration:
            assert side in ("listener", "dialler")
        except ProtocolViolation as error:
            raise AssertionError(side) from error
