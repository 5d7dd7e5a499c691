"""Handshakes: of honest sides, and of sides that would like to be taken for one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from shoal.errors import ProtocolViolation
from shoal.protocol.frames import STRANGER_FRAME_BYTES_MAX
from shoal.protocol.handshake import (
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Answering,
    Hello,
    Introduction,
    Proof,
    Refusal,
    Refused,
    Scram,
    Welcome,
    answer,
    dial,
    refused,
)

SECRET = b"6e1bd9f26a-not-to-be-seen-by-anybody"
UUID = "4f1c5d6e-0000-4000-8000-000000000001"
ONE = Introduction("shop", UUID, "4f1c5d6e-0000-4000-8000-0000000000a1", "i1", 1)
TWO = Introduction("shop", UUID, "4f1c5d6e-0000-4000-8000-0000000000a2", "i2", 2)
NEW = Introduction("shop", "", "4f1c5d6e-0000-4000-8000-0000000000a3", "i3", 0)
NONCE_1 = bytes(range(NONCE_BYTES))
NONCE_2 = bytes(range(NONCE_BYTES, 2 * NONCE_BYTES))

encode = msgspec.msgpack.encode


def nobody(user: str, client_first: bytes) -> Generator[bytes, bytes, bytes]:
    yield b"never"
    raise Refusal("login", f"authentication failed for user '{user}'")


def listening(
    first: bytes, ours: Introduction = TWO, *, nonce: bytes = NONCE_2, secret: bytes = SECRET
) -> Answering:
    return answer(first, ours, nonce, secret, nobody)


def ended(exchange: Generator[bytes, bytes, Any], said: bytes) -> Any:
    with pytest.raises(StopIteration) as stop:
        exchange.send(said)
    return stop.value.value


def shake(
    ours: Introduction, theirs: Introduction, our_secret: bytes = SECRET, their_secret: bytes = SECRET
) -> None:
    dialler = dial(ours, NONCE_1, our_secret)
    hello = next(dialler)
    listener = listening(hello, theirs, secret=their_secret)
    told, proof = ended(listener, dialler.send(next(listener)))
    assert (told.role, told.introduction, told.version) == ("peer", ours, PROTOCOL_VERSION)
    assert ended(dialler, proof) == theirs


@pytest.mark.parametrize("ours, theirs", [(ONE, TWO), (NEW, TWO), (ONE, NEW), (NEW, NEW)])
def test_two_of_one_cluster(ours: Introduction, theirs: Introduction) -> None:
    shake(ours, theirs)


def test_hello_is_in_clear_and_short() -> None:
    longest = Introduction("c" * 255, "u" * 36, "i" * 36, "ы" * 255, 2**63)
    hello = next(dial(longest, NONCE_1, SECRET))
    assert len(hello) <= STRANGER_FRAME_BYTES_MAX
    assert msgspec.msgpack.decode(hello, type=Hello).introduction == longest
    assert SECRET not in hello


def test_the_secret_must_be_the_same() -> None:
    with pytest.raises(Refusal, match="have the same secret") as refusal:
        shake(ONE, TWO, their_secret=b"another")
    assert (refusal.value.reason, refusal.value.by_them) == ("secret", False)


def test_a_listener_that_does_not_know_the_secret() -> None:
    dialler = dial(ONE, NONCE_1, SECRET)
    next(dialler)
    dialler.send(encode(Welcome(PROTOCOL_VERSION, TWO, NONCE_2)))
    with pytest.raises(Refusal, match="have the same secret"):
        dialler.send(encode(Proof(bytes(32))))


def test_another_clusters_name() -> None:
    other = Introduction("bank", "", "x", "i9", 9)
    with pytest.raises(
        Refusal, match="instance 'i2' belongs to cluster 'shop', instance 'i9' to 'bank'"
    ) as refusal:
        next(listening(next(dial(other, NONCE_1, SECRET))))
    assert refusal.value.reason == "cluster"
    dialler = dial(ONE, NONCE_1, SECRET)
    next(dialler)
    with pytest.raises(Refusal, match="instance 'i1' belongs to cluster 'shop', instance 'i9' to 'bank'"):
        dialler.send(encode(Welcome(PROTOCOL_VERSION, other, NONCE_2)))


def test_another_cluster_of_the_same_name() -> None:
    other = Introduction("shop", UUID[:-1] + "2", "x", "i9", 9)
    with pytest.raises(Refusal, match="two clusters named 'shop'"):
        shake(other, TWO)
    with pytest.raises(Refusal, match="two clusters named 'shop'"):
        dialler = dial(ONE, NONCE_1, SECRET)
        next(dialler)
        dialler.send(encode(Welcome(PROTOCOL_VERSION, other, NONCE_2)))
    shake(other, NEW)  # who doesn't know its cluster's uuid yet can't tell


def test_another_version_is_told_so_whatever_else_it_says() -> None:
    with pytest.raises(Refusal, match="speaks version 1 of the protocol, not 2") as refusal:
        next(listening(encode(["hello", 2, {"anything": "else"}])))
    assert refusal.value.reason == "version"
    dialler = dial(ONE, NONCE_1, SECRET)
    next(dialler)
    with pytest.raises(Refusal, match="speaks version 1 of the protocol, not 7"):
        dialler.send(encode(["welcome", 7]))


def test_a_refusal_reaches_the_other_side() -> None:
    other = Introduction("bank", "", "x", "i9", 9)
    dialler = dial(other, NONCE_1, SECRET)
    try:
        next(listening(next(dialler)))
    except Refusal as refusal:
        told = refused(refusal)
    with pytest.raises(Refusal, match="belongs to cluster 'shop'") as refusal_heard:
        dialler.send(told)
    assert refusal_heard.value.by_them
    assert refusal_heard.value.reason == "cluster"


def test_a_refusal_of_a_later_version_and_one_meant_for_a_terminal() -> None:
    dialler = dial(ONE, NONCE_1, SECRET)
    next(dialler)
    with pytest.raises(Refusal) as refusal:
        dialler.send(encode(["refused", "full moon", "28000", "a\x1b[2Jb\nc" + "d" * 4000, "more", 1]))
    assert refusal.value.reason == "full moon"
    assert refusal.value.message.startswith("a?[2Jb?cd")
    assert len(refusal.value.message) == 500


def test_what_breaks_the_protocol_is_told_as_malformed() -> None:
    told = msgspec.msgpack.decode(refused(ProtocolViolation("frame of 0 bytes")), type=Refused)
    assert told == Refused("malformed", "08P01", "frame of 0 bytes")


# --- attackers -----------------------------------------------------------------------------------


def test_a_recorded_handshake_is_worth_nothing() -> None:
    dialler = dial(ONE, NONCE_1, SECRET)
    hello = next(dialler)
    listener = listening(hello)
    proof = dialler.send(next(listener))
    ended(listener, proof)
    # The listener's nonce is another each time.
    again = listening(hello, nonce=bytes(NONCE_BYTES))
    next(again)
    with pytest.raises(Refusal, match="secret"):
        again.send(proof)


def test_recorded_answers_of_a_listener_are_worth_nothing() -> None:
    dialler = dial(ONE, NONCE_1, SECRET)
    listener = listening(next(dialler))
    welcome = next(listener)
    _, listener_proof = ended(listener, dialler.send(welcome))
    later = dial(ONE, NONCE_2, SECRET)
    next(later)
    later.send(welcome)
    with pytest.raises(Refusal, match="secret"):
        later.send(listener_proof)


def test_a_proof_sent_back_proves_nothing() -> None:
    dialler = dial(ONE, NONCE_1, SECRET)
    next(dialler)
    proof = dialler.send(encode(Welcome(PROTOCOL_VERSION, TWO, NONCE_2)))
    with pytest.raises(Refusal, match="secret"):
        dialler.send(proof)


def test_a_dialler_used_to_prove_to_another_listener() -> None:
    """Somebody without the secret is dialled, and would like to be let in elsewhere: he shows the victim's hello
    there, but the welcome that he gets back isn't the one that the victim proves on."""
    victim = dial(ONE, NONCE_1, SECRET)
    target = listening(next(victim), nonce=bytes(NONCE_BYTES))
    next(target)
    proof_on_his_own_welcome = victim.send(encode(Welcome(PROTOCOL_VERSION, TWO, NONCE_2)))
    with pytest.raises(Refusal, match="secret"):
        target.send(proof_on_his_own_welcome)


def test_a_changed_hello_is_noticed() -> None:
    """Somebody in between makes another instance of the dialler."""
    dialler = dial(ONE, NONCE_1, SECRET)
    hello = msgspec.msgpack.decode(next(dialler), type=Hello)
    forged = encode(Hello(hello.version, hello.role, NEW, hello.nonce))
    listener = listening(forged)
    with pytest.raises(Refusal, match="secret"):
        listener.send(dialler.send(next(listener)))


def test_roles_cannot_be_mixed() -> None:
    hello = encode(Hello(PROTOCOL_VERSION, "client", ONE, NONCE_1, "ann"))
    listener = listening(hello)
    next(listener)
    with pytest.raises(Refusal, match="expected Scram"):
        listener.send(encode(Proof(bytes(32))))
    listener = listening(next(dial(ONE, NONCE_1, SECRET)))
    next(listener)
    with pytest.raises(Refusal, match="expected Proof"):
        listener.send(encode(Scram(b"n,,n=,r=abc")))


def test_a_client_whatever_its_cluster_is_asked_for_its_password() -> None:
    hello = encode(Hello(PROTOCOL_VERSION, "client", Introduction("", "", "", "loader"), NONCE_1, "ann"))
    listener = listening(hello)
    assert msgspec.msgpack.decode(next(listener), type=Welcome).introduction == TWO
    assert listener.send(encode(Scram(b"client-first"))) == encode(Scram(b"never"))
    with pytest.raises(Refusal, match="authentication failed for user 'ann'") as refusal:
        listener.send(encode(Scram(b"client-final")))
    assert refusal.value.reason == "login"


@pytest.mark.parametrize(
    "first",
    [
        b"\xc0",
        b"GET / HTTP/1.1\r\n\r\n",
        encode([]),
        encode(["hello"]),
        encode(["hello", 1]),
        encode(["hello", "1", "peer"]),
        encode(["hello", 1, "peer", ["shop", "", "", "", 0], NONCE_1[:-1]]),
        encode(["hello", 1, "peer", ["shop", "", "", "", -1], NONCE_1]),
        encode(["hello", 1, "peer", ["shop", "", "", "x" * 256, 0], NONCE_1]),
        encode(["hello", 1, "admin", ["shop", "", "", "", 0], NONCE_1]),
        encode(["welcome", 1, ["shop", "", "", "", 0], NONCE_1]),
        encode(["proof", bytes(32)]),
        b"\x92\xa5hello" + b"\x91" * 4000,
        b"\x95\xa5hello\x01\xa4peer" + b"\x91" * 4000,
        b"\xdd\xff\xff\xff\xff\xa5hello\x01",
        b"\x92\xa5hell\xff\x01",
    ],
)
def test_malformed_hellos(first: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        next(listening(first))
    assert refusal.value.reason == "malformed"
    assert not refusal.value.by_them


def test_nothing_that_is_told_or_raised_shows_the_secret() -> None:
    said: list[bytes] = []
    dialler = dial(ONE, NONCE_1, SECRET)
    said.append(next(dialler))
    listener = listening(said[0], secret=b"something else entirely")
    said.append(next(listener))
    said.append(dialler.send(said[1]))
    with pytest.raises(Refusal) as refusal:
        listener.send(said[2])
    said.append(refused(refusal.value))
    assert not any(SECRET in words or SECRET[:8] in words for words in said)
