"""How a connection begins: each side says who it is, and proves that it may.

Here: the messages, dial() and answer(), the exchange as either side sees it; Refusal.
Not here: chance and sockets (node/rpc/), how a client's password is checked (node/rpc/login.py).

    dialer                        listener
    Hello (in clear)      →
                          ←       Welcome
    Proof                 →
                          ←       Proof            from here on: envelopes

A proof is an HMAC with the cluster's secret over both openings, byte for byte, and over which side gives it:
so it can be neither replayed (both sides' nonces are in it) nor sent back (the sides differ). The secret itself
never travels. A client proves with SCRAM instead, in Scram messages where the proofs are here.

What isn't promised: connections are authenticated, not encrypted. Who can change the packets of a connection
can change what is said after the handshake.

Refused, and the first two elements of Hello and Welcome, stay as they are in every version of the protocol:
so that two versions can tell each other what is wrong.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Generator
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from shoal.errors import InvalidAuthorization, ProtocolViolation, ShoalError

PROTOCOL_VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

Role: TypeAlias = Literal["peer", "client"]

# Why we refuse a connection; a later version may know more.
Reason: TypeAlias = Literal["version", "cluster", "secret", "login", "malformed"]

_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
_Address: TypeAlias = Annotated[str, msgspec.Meta(max_length=300)]
_Uuid: TypeAlias = Annotated[str, msgspec.Meta(max_length=36)]
_Nonce: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Mac: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """Who an instance is, or says it is. A client that is no instance leaves empty what doesn't fit."""

    cluster: _Name
    cluster_uuid: _Uuid  # "": not known yet
    instance_uuid: _Uuid
    instance: _Name
    raft_id: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: has none yet
    address: _Address = ""  # where it is dialled; it may have been elsewhere the last time


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    version: int
    role: Role
    introduction: Introduction
    nonce: _Nonce
    user: _Name = ""  # of a client: who logs in


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    version: int
    introduction: Introduction
    nonce: _Nonce


class Proof(msgspec.Struct, frozen=True, array_like=True, tag="proof"):
    mac: _Mac


class Scram(msgspec.Struct, frozen=True, array_like=True, tag="scram"):
    """client-first, server-first, client-final or server-final of RFC 5802."""

    text: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    reason: str  # a Reason
    sqlstate: Annotated[str, msgspec.Meta(max_length=5)]
    message: str


class Refusal(InvalidAuthorization):
    """The connection is refused, by us or (`by_them`) by the other side."""

    def __init__(self, reason: str, message: str, *, by_them: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.by_them = by_them


# Yields what to send, takes what has arrived; returns who is there. In answer() also what to send last.
Dialling: TypeAlias = Generator[bytes, bytes, Introduction]
Answering: TypeAlias = Generator[bytes, bytes, tuple[Hello, bytes]]
# Given user and client-first: yields server-first, takes client-final, returns server-final.
LogIn: TypeAlias = Callable[[str, bytes], Generator[bytes, bytes, bytes]]

_DIALER: Final = b"shoal rpc: the dialer's proof\0"
_LISTENER: Final = b"shoal rpc: the listener's proof\0"

_SAID_LETTERS_MAX: Final = 500

_Opening = TypeVar("_Opening", Hello, Welcome)
_T = TypeVar("_T")

_encode: Final = msgspec.msgpack.Encoder().encode


def dial(ours: Introduction, nonce: bytes, secret: bytes) -> Dialling:
    """The side of the instance that opens the connection."""
    hello = _encode(Hello(PROTOCOL_VERSION, "peer", ours, nonce))
    answer = yield hello
    theirs = _opening(answer, Welcome)
    check(ours, theirs.introduction)
    reply = yield _encode(Proof(_mac(secret, _DIALER, hello, answer)))
    if not _proves(reply, _mac(secret, _LISTENER, hello, answer)):
        raise _no_secret(ours, theirs.introduction)
    return theirs.introduction


def answer(first: bytes, ours: Introduction, nonce: bytes, secret: bytes, log_in: LogIn) -> Answering:
    """The side that is dialled; `first` is the first frame."""
    hello = _opening(first, Hello)
    if hello.role == "peer":
        check(ours, hello.introduction)
    welcome = _encode(Welcome(PROTOCOL_VERSION, ours, nonce))
    reply = yield welcome
    if hello.role == "client":
        exchange = log_in(hello.user, _read(reply, Scram).text)
        final = yield _encode(Scram(next(exchange)))
        try:
            exchange.send(_read(final, Scram).text)
        except StopIteration as end:
            return hello, _encode(Scram(end.value))
        raise AssertionError("SCRAM has two rounds")
    if not _proves(reply, _mac(secret, _DIALER, first, welcome)):
        raise _no_secret(ours, hello.introduction)
    return hello, _encode(Proof(_mac(secret, _LISTENER, first, welcome)))


def check(ours: Introduction, theirs: Introduction) -> None:
    """Whether we are of one cluster, as far as both know theirs."""
    if ours.cluster != theirs.cluster:
        raise Refusal(
            "cluster",
            f"instance {ours.instance!r} belongs to cluster {ours.cluster!r},"
            f" instance {theirs.instance!r} to {theirs.cluster!r}",
        )
    if ours.cluster_uuid and theirs.cluster_uuid and ours.cluster_uuid != theirs.cluster_uuid:
        raise Refusal(
            "cluster",
            f"instances {ours.instance!r} and {theirs.instance!r} belong to two clusters named {ours.cluster!r}:"
            f" {ours.cluster_uuid!r} and {theirs.cluster_uuid!r}",
        )


def _no_secret(ours: Introduction, theirs: Introduction) -> Refusal:
    return Refusal(
        "secret",
        f"instances {ours.instance!r} and {theirs.instance!r} don't have the same secret of cluster {ours.cluster!r}",
    )


def refused(error: ShoalError) -> bytes:
    """What the other side is told."""
    if isinstance(error, Refusal):
        reason = error.reason
    else:
        reason = "malformed" if isinstance(error, ProtocolViolation) else "login"
    return _encode(Refused(reason, error.sqlstate, error.message))


def _mac(secret: bytes, side: bytes, hello: bytes, welcome: bytes) -> bytes:
    both = b"".join(len(opening).to_bytes(4, "big") + opening for opening in (hello, welcome))
    return hmac.digest(secret, side + both, "sha256")


def _proves(reply: bytes, expected: bytes) -> bool:
    return hmac.compare_digest(_read(reply, Proof).mac, expected)


class _Prefix(msgspec.Struct, frozen=True, array_like=True):
    """What every version of Hello and Welcome begins with."""

    kind: Literal["hello", "welcome"]
    version: int


def _opening(payload: bytes, kind: type[_Opening]) -> _Opening:
    try:
        prefix = msgspec.msgpack.decode(payload, type=_Prefix)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _read(payload, kind)
    if prefix.version != PROTOCOL_VERSION:
        raise Refusal(
            "version",
            f"this instance speaks version {PROTOCOL_VERSION} of the protocol, not {prefix.version}",
        )
    return _read(payload, kind)


def _read(payload: bytes, kind: type[_T]) -> _T:
    try:
        message: _T | Refused = msgspec.msgpack.decode(payload, type=kind | Refused)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Refusal("malformed", f"malformed handshake: expected {kind.__name__}") from None
    if isinstance(message, Refused):
        raise Refusal(message.reason, _printable(message.message), by_them=True)
    return message


def _printable(text: str) -> str:
    """What a stranger says goes into our log: as one line, and not a long one."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_SAID_LETTERS_MAX])
