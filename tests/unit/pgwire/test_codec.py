"""Frames come out whole, however the network cuts them."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolViolation
from shoal.pgwire import BackendFrames, Frames, codec, encode_all, messages
from shoal.pgwire.messages import (
    Bind,
    Describe,
    Execute,
    Message,
    Parse,
    PasswordMessage,
    Query,
    SSLRequest,
    StartupMessage,
    Sync,
    Terminate,
)
from tests.unit.pgwire.test_messages import backend_messages, calm, frontend_messages


def session(frame_bytes_max: int = codec.FRAME_BYTES_MAX) -> Frames:
    frames = Frames(frame_bytes_max)
    frames.open_session()
    return frames


def expected(sent: list[Message]) -> list[tuple[int, bytes]]:
    return [(message.kind, message.payload()) for message in sent]


@pytest.mark.parametrize("module", [codec, messages])
def test_the_examples_of_the_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(st.lists(frontend_messages, max_size=8), st.data())
@calm
def test_chunks_may_be_cut_anywhere(sent: list[Message], data: st.DataObject) -> None:
    stream = encode_all(*sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    kind = data.draw(st.sampled_from((bytes, bytearray, memoryview)))
    frames = session()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames.feed(kind(stream[start:end]))
        received += list(frames)
    assert received == expected(sent)
    assert frames.held_bytes == 0


@given(st.lists(backend_messages, max_size=8))
@calm
def test_the_other_direction(sent: list[Message]) -> None:
    frames = BackendFrames()
    frames.feed(encode_all(*sent))
    assert list(frames) == expected(sent)


def test_a_memoryview_may_be_reused_after_feeding() -> None:
    buffer = bytearray(Query("first").encode())
    frames = session()
    frames.feed(memoryview(buffer)[:5])
    frames.feed(memoryview(buffer)[5:])
    buffer[:] = bytes(len(buffer))
    assert list(frames) == expected([Query("first")])


def test_byte_by_byte() -> None:
    sent: list[Message] = [Parse("s", "SELECT $1", (20,)), Sync()]
    frames = session()
    received = []
    for byte in encode_all(*sent):
        frames.feed(bytes((byte,)))
        received += list(frames)
    assert received == expected(sent)


def test_frames_can_be_taken_one_at_a_time() -> None:
    frames = session()
    frames.feed(encode_all(Execute("", 0), Sync(), Describe("portal", "")))
    for frame in frames:
        assert frame == (Execute.kind, Execute("", 0).payload())
        break  # a statement that must wait
    frames.feed(Terminate().encode())
    assert [kind for kind, _ in frames] == [Sync.kind, Describe.kind, Terminate.kind]


def test_feeding_while_iterating() -> None:
    frames = session()
    frames.feed(encode_all(Execute("", 0), Sync()))
    kinds = []
    for kind, _ in frames:
        kinds.append(kind)
        if len(kinds) == 1:
            frames.feed(Terminate().encode())
    assert kinds == [Execute.kind, Sync.kind, Terminate.kind]


def test_a_long_frame_is_gathered_once() -> None:
    query = Query("x" * 5_000_000)
    stream = query.encode() + Sync().encode()
    frames = session()
    chunks = 0
    for start in range(0, len(stream), 65_536):
        assert list(frames) == []
        frames.feed(stream[start : start + 65_536])
        chunks += 1
    assert chunks > 70
    assert list(frames) == expected([query, Sync()])
    assert frames.held_bytes == 0


def test_bounds() -> None:
    longest = Query("x" * (100_000 - 5))
    frames = session(frame_bytes_max=100_000)
    frames.feed(longest.encode())
    assert list(frames) == expected([longest])
    frames.feed(Bind("", "", (), (b"x" * 100_000,), ()).encode()[:20])
    with pytest.raises(ProtocolViolation):
        list(frames)


@pytest.mark.parametrize(
    "head", [b"E\0\0\x27\x11", b"S\xff\xff\xff\xff", b"Q\x80\0\0\0", b"Q\0\0\0\3", b"\0\0\0\0\4"]
)
def test_a_wrong_head_is_refused_before_its_payload_comes(head: bytes) -> None:
    frames = session()
    frames.feed(Sync().encode() + head)
    taken = []
    with pytest.raises(ProtocolViolation):
        for kind, _ in frames:
            taken.append(kind)
    assert taken == [Sync.kind]  # what came before counts
    with pytest.raises(ProtocolViolation):
        list(frames)  # and nothing after does
    frames.feed(Sync().encode())
    with pytest.raises(ProtocolViolation):
        list(frames)


def test_strangers_may_send_little() -> None:
    frames = Frames()
    frames.open_authentication()
    frames.feed(PasswordMessage(b"x").encode())
    assert len(list(frames)) == 1
    frames.feed(Query("SELECT 1").encode())
    with pytest.raises(ProtocolViolation, match="out of place"):
        list(frames)
    frames = Frames()
    frames.open_authentication()
    frames.feed(PasswordMessage(b"x" * 10_000).encode()[:10])
    with pytest.raises(ProtocolViolation):
        list(frames)


def test_startup_and_what_follows_in_the_same_chunk() -> None:
    startup = StartupMessage(3, 0, (("user", "ann"),))
    frames = Frames()
    assert frames.startup() is None
    frames.feed(startup.encode() + PasswordMessage(b"x").encode())
    packet = frames.startup()
    assert packet is not None
    assert messages.decode_startup(packet) == startup
    frames.open_authentication()
    assert list(frames) == expected([PasswordMessage(b"x")])


@pytest.mark.parametrize("cut", range(1, 18))
def test_startup_in_two_chunks(cut: int) -> None:
    stream = StartupMessage(3, 0, (("user", "ann"),)).encode()
    frames = Frames()
    frames.feed(stream[:cut])
    assert frames.startup() is None
    frames.feed(stream[cut:])
    assert frames.startup() == stream[4:]


def test_startup_again_after_a_request_for_encryption() -> None:
    frames = Frames()
    frames.feed(SSLRequest().encode())
    assert frames.startup() == SSLRequest().encode()[4:]
    startup = StartupMessage(3, 0, ()).encode()
    frames.feed(startup)
    assert frames.startup() == startup[4:]


def test_nothing_may_follow_a_request_for_encryption_unheard() -> None:
    frames = Frames()
    frames.feed(SSLRequest().encode() + StartupMessage(3, 0, ()).encode())
    with pytest.raises(ProtocolViolation, match="in the clear"):
        frames.startup()
