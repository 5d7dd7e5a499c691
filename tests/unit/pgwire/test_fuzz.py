"""Mutated streams: whatever arrives, what comes out is messages or a ShoalError, and it comes out at once.

The seeds are fixed, so a failure found once is found again: its message names the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from shoal.errors import ShoalError
from shoal.pgwire import (
    BackendFrames,
    Frames,
    Method,
    Phase,
    authenticate,
    encode_all,
    frontend_type,
    make_secret,
    messages,
    negotiate,
    read_startup,
    row_encoder,
    step,
)
from shoal.pgwire.messages import (
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    BackendKeyData,
    Bind,
    CancelRequest,
    Close,
    Column,
    CommandComplete,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    EncryptionRefused,
    ErrorResponse,
    Execute,
    Flush,
    FunctionCall,
    GSSENCRequest,
    NegotiateProtocolVersion,
    NoticeResponse,
    ParameterDescription,
    ParameterStatus,
    Parse,
    PasswordMessage,
    Query,
    ReadyForQuery,
    RowDescription,
    SASLInitialResponse,
    SASLResponse,
    SSLRequest,
    StartupMessage,
    Sync,
    Terminate,
)

FRAME_BYTES_MAX: Final = 100_000
SECRETS: Final[Mapping[Method, str]] = {
    "md5": make_secret("md5", "ann", "secret", b""),
    "scram-sha256": make_secret("scram-sha256", "ann", "secret", bytes(16)),
}

OPTIONS: Final = (
    ("user", "ann"),
    ("database", "shop"),
    ("options", "-c sql_motion_row_max=1 --forward=off pico_query_metadata=true,read_preference=any"),
    ("client_encoding", "UTF8"),
)

# What honest clients send, as one stream per connection.
CONVERSATIONS: Final = tuple(
    encode_all(*sent)
    for sent in (
        (StartupMessage(3, 0, OPTIONS), PasswordMessage(b"md5" + b"0" * 32), Query("SELECT 1"), Terminate()),
        (
            StartupMessage(3, 2, (*OPTIONS, ("_pq_.wish", "1"))),
            SASLInitialResponse("SCRAM-SHA-256", b"n,,n=,r=abcdefghijkl"),
            SASLResponse(b"c=biws,r=abcdefghijkl,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            Sync(),
        ),
        (GSSENCRequest(),),
        (SSLRequest(),),
        (CancelRequest(7, 258),),
        (
            StartupMessage(3, 0, OPTIONS[:1]),
            PasswordMessage(b"x"),
            Parse("by_id", "SELECT name FROM t WHERE id = $1 AND б = $2", (20, 25)),
            Describe("statement", "by_id"),
            Bind("", "by_id", (1, 0), (bytes(8), "привет".encode()), (0,)),
            Describe("portal", ""),
            Execute("", 0),
            Sync(),
            Bind("p", "by_id", (), (None, b""), (0, 1, 1, 0, 1)),
            Execute("p", 10),
            Flush(),
            Close("portal", "p"),
            Close("statement", "by_id"),
            Sync(),
        ),
        (
            StartupMessage(3, 0, OPTIONS[:1]),
            PasswordMessage(b"x"),
            Query("COPY t FROM STDIN"),
            CopyData(b"1\t2\n"),
            CopyDone(),
            CopyFail("no more"),
            FunctionCall(1598, (0,), (b"1", None), 0),
            Query("x" * 3000),
            Terminate(),
        ),
    )
)

# What a server sends.
ANSWERS: Final = tuple(
    encode_all(*sent)
    for sent in (
        (
            AuthenticationSASL(("SCRAM-SHA-256",)),
            AuthenticationSASLContinue(b"r=abc,s=AAAA,i=4096"),
            AuthenticationSASLFinal(b"v=AAAA"),
            AuthenticationOk(),
            NegotiateProtocolVersion(0, ("_pq_.wish",)),
            ParameterStatus("server_version", "15.0 (Shoal 0.1)"),
            BackendKeyData(7, 258),
            ReadyForQuery("I"),
        ),
        (
            ParameterDescription((20, 25)),
            RowDescription((Column("id", 20), Column("name", 25, format=1))),
            messages.DataRow((b"7", None, b"")),
            CommandComplete("SELECT 1"),
            NoticeResponse("NOTICE", "00000", "by the way"),
            ErrorResponse("ERROR", "42601", "syntax error", detail="d", hint="h", position=8),
            messages.CopyInResponse(0, (0, 1)),
            messages.CopyOutResponse(0, (0, 1)),
            ReadyForQuery("E"),
        ),
    )
)

BYTES_WORTH_TRYING: Final = (0, 1, 2, 4, 5, 0x7F, 0x80, 0xC3, 0xFE, 0xFF, *b"QPBDECHSXFdcfpR")
LENGTHS_WORTH_TRYING: Final = (0, 1, 3, 4, 5, 8, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def flip_bits(stream: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        stream[chance.randrange(len(stream))] ^= 1 << chance.randrange(8)


def set_bytes(stream: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        stream[chance.randrange(len(stream))] = chance.choice(BYTES_WORTH_TRYING)


def truncate(stream: bytearray, chance: random.Random) -> None:
    del stream[chance.randrange(1, len(stream) + 1) :]


def edit_a_length(stream: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(stream))
    if chance.random() < 0.5:
        length = chance.choice(LENGTHS_WORTH_TRYING)
    else:
        length = max(0, int.from_bytes(stream[at : at + 4]) + chance.randint(-3, 3)) % 2**32
    size = chance.choice((2, 4))
    stream[at : at + size] = (length % 256**size).to_bytes(size)


def cut_out(stream: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(stream))
    del stream[at : at + chance.randint(1, 20)]


def splice(stream: bytearray, chance: random.Random) -> None:
    other = chance.choice(CONVERSATIONS + ANSWERS)
    start = chance.randrange(len(other))
    at = chance.randrange(len(stream))
    stream[at:at] = other[start : start + chance.randint(1, 60)]


def repeat(stream: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(stream))
    stream[at:at] = stream[at : at + chance.randint(1, 40)]


MUTATIONS: Final = (flip_bits, set_bytes, truncate, edit_a_length, cut_out, splice, repeat)


def mutated(streams: Sequence[bytes], chance: random.Random) -> bytes:
    stream = bytearray(chance.choice(streams))
    for _ in range(chance.randint(1, 3)):
        if stream:
            chance.choice(MUTATIONS)(stream, chance)
    return bytes(stream)


def serve(stream: bytes, chance: random.Random) -> str:
    """A server without a database: takes a stream in chunks, up to its end or to an error that ends it."""
    frames = Frames(FRAME_BYTES_MAX)
    phase = Phase.STARTUP
    exchange = None
    at = 0
    while at < len(stream):
        size = chance.choice((1, 7, 64, 65_536))
        frames.feed(stream[at : at + size])
        at += size
        while phase is Phase.STARTUP and (packet := frames.startup()):
            message = messages.decode_startup(packet)
            phase = step(phase, type(message))
            if isinstance(message, StartupMessage):
                negotiate(message)
                user = read_startup(message).user
                method: Method = "scram-sha256" if b"SCRAM" in stream else "md5"
                secret = chance.choice((SECRETS[method], None))
                exchange = authenticate(user, secret, chance=bytes(18), mock_key=b"", mock_method=method)
                phase = step(phase, type(next(exchange)))
                frames.open_authentication()
            elif phase is Phase.ENCRYPTION_ASKED:
                phase = step(phase, EncryptionRefused)
        if phase is Phase.STARTUP:
            continue
        if phase is Phase.CLOSED:
            return "closed"
        for kind, payload in frames:
            expected = frontend_type(phase, kind)
            if phase is Phase.SKIPPING and expected is not Sync:
                continue
            phase = step(phase, expected)
            if phase is Phase.CLOSED:
                return "closed"
            try:
                said = expected.decode(payload)
            except ShoalError:
                if phase < Phase.IDLE:
                    raise
                phase = step(phase, ErrorResponse)
                continue
            if isinstance(said, Bind):
                messages.spread_formats(said.result_formats, len(said.result_formats))
            elif isinstance(said, PasswordMessage | SASLInitialResponse | SASLResponse):
                assert exchange is not None
                try:
                    phase = step(phase, type(exchange.send(said)))
                except (StopIteration, ShoalError):
                    # Whatever it said: without this no mutation would ever come to the session.
                    phase = Phase.IDLE
                    frames.open_session()
    assert frames.held_bytes <= max(FRAME_BYTES_MAX, len(stream))
    return "served"


def listen(stream: bytes, chance: random.Random) -> str:
    """A client: reads whatever a server seems to send."""
    frames = BackendFrames(FRAME_BYTES_MAX)
    at = 0
    while at < len(stream):
        size = chance.choice((1, 7, 64, 65_536))
        frames.feed(stream[at : at + size])
        at += size
        for kind, payload in frames:
            messages.BACKEND_DECODERS[kind](payload)
    return "heard"


def decode_any(stream: bytes, chance: random.Random) -> str:
    """A decoder, given a payload that was never meant for it."""
    decoders = (
        *messages.FRONTEND_DECODERS.values(),
        *messages.BACKEND_DECODERS.values(),
        messages.decode_startup,
    )
    chance.choice(decoders)(stream[chance.randrange(6) :])
    return "decoded"


def fuzz(seeds: range) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    for seed in seeds:
        chance = random.Random(seed)
        take: Callable[[bytes, random.Random], str] = chance.choices((serve, listen, decode_any), (6, 1, 3))[
            0
        ]
        stream = mutated(ANSWERS if take is listen else CONVERSATIONS, chance)
        try:
            outcome = take(stream, chance)
        except ShoalError as error:
            outcome = error.sqlstate
        except Exception as error:
            error.add_note(f"seed {seed}, {take.__name__}: {stream!r}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def check(outcomes: dict[str, int]) -> None:
    # A run counts only if it came to all the places that it is there for.
    assert outcomes.keys() >= {"served", "closed", "heard", "decoded", "08P01", "22021", "0A000", "28000"}, (
        outcomes
    )
    assert outcomes["08P01"] > outcomes["served"] / 10, outcomes


def test_honest_streams_are_served() -> None:
    chance = random.Random(1)
    for stream in CONVERSATIONS:
        assert serve(stream, chance) in ("served", "closed")
    for stream in ANSWERS:
        assert listen(stream, chance) == "heard"


def test_mutated_streams() -> None:
    check(fuzz(range(20_000)))


@pytest.mark.slow
def test_many_mutated_streams() -> None:
    check(fuzz(range(20_000, 220_000)))


def test_rows_survive_whatever_text_there_is() -> None:
    encode = row_encoder((None,))
    for code in (0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF):
        raw = encode((chr(code),))
        assert messages.DataRow.decode(raw[5:]).values == (chr(code).encode(),)
