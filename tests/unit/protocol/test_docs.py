"""The bytes of docs/protocol.md are those that we send, and those that we read."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from shoal.errors import RetryableError
from shoal.protocol import envelope as e
from shoal.protocol.frames import Frames, frame
from shoal.protocol.handshake import (
    Hello,
    Introduction,
    Proof,
    Refusal,
    Refused,
    Welcome,
    answer,
    dial,
    refused,
)

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
SECRET = b"0123456789abcdef0123456789abcdef"
ONE = Introduction("shop", "", "a1", "i1", 0, "h1:1")
TWO = Introduction("shop", "c7", "a2", "i2", 1, "h2:1")
NONCE_1, NONCE_2 = bytes(range(32)), bytes(range(32, 64))


def examples() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, block in re.findall(r"^```bytes (\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        found[name] = bytes.fromhex("".join(re.split("  +", line)[0] for line in block.splitlines()))
    return found


def nobody(user: str, client_first: bytes) -> Generator[bytes, bytes, bytes]:
    raise AssertionError
    yield


def sent() -> dict[str, bytes]:
    dialler = dial(ONE, NONCE_1, SECRET)
    hello = next(dialler)
    listener = answer(hello, TWO, NONCE_2, SECRET, nobody)
    welcome = next(listener)
    proof = dialler.send(welcome)
    with pytest.raises(StopIteration) as stop:
        listener.send(proof)
    with pytest.raises(Refusal) as refusal:
        next(answer(msgspec.msgpack.encode(["hello", 2]), TWO, NONCE_2, SECRET, nobody))
    frames = {
        "hello": frame(hello),
        "welcome": frame(welcome),
        "dialers-proof": frame(proof),
        "listeners-proof": frame(stop.value.value[1]),
        "refused": frame(refused(refusal.value)),
    }
    for name, envelope in {
        "request": (e.REQUEST, 1, 1500, e.Ping(b"hi")),
        "answer": (e.ANSWER, 1, e.Pong(b"hi")),
        "failure": e.failure(2, RetryableError("not the leader", extra={"leader": 3})),
        "one-way": (e.ONE_WAY, b"raft"),
    }.items():
        out = bytearray()
        e.append_frame(out, envelope)
        frames[name] = bytes(out)
    return frames


def test_every_example_is_what_we_send() -> None:
    assert examples() == sent()


def test_every_example_is_read() -> None:
    payloads: dict[str, bytes] = {}
    for name, stream in examples().items():
        frames = Frames()
        frames.feed(stream)
        (payloads[name],) = frames
    decode = msgspec.msgpack.decode
    assert decode(payloads["hello"], type=Hello) == Hello(1, "peer", ONE, NONCE_1)
    assert decode(payloads["welcome"], type=Welcome) == Welcome(1, TWO, NONCE_2)
    assert len(decode(payloads["dialers-proof"], type=Proof).mac) == 32
    assert decode(payloads["refused"], type=Refused).reason == "version"
    request = e.read_from_dialer(payloads["request"])
    assert isinstance(request, e.Request)
    assert (request.request_id, request.deadline_ms_left) == (1, 1500)
    assert decode(request.payload, type=e.Ping) == e.Ping(b"hi")
    failed = e.read_from_listener(payloads["failure"])
    assert isinstance(failed, e.Failure)
    assert e.error_of(failed).extra == {"leader": 3}
    assert e.read_from_dialer(payloads["one-way"]) == e.OneWay(b"raft")


def test_the_examples_shake_hands() -> None:
    given = {name: stream[4:] for name, stream in examples().items()}
    dialler = dial(ONE, NONCE_1, SECRET)
    assert next(dialler) == given["hello"]
    assert dialler.send(given["welcome"]) == given["dialers-proof"]
    with pytest.raises(StopIteration) as stop:
        dialler.send(given["listeners-proof"])
    assert stop.value.value == TWO
