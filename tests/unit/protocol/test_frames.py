"""Frames, however the network cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolViolation
from shoal.protocol.frames import FRAME_BYTES_MAX, STRANGER_FRAME_BYTES_MAX, Frames, frame


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=8), st.lists(st.integers(1, 60)))
def test_whatever_the_cuts_the_payloads_are_the_same(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    frames = Frames()
    taken: list[bytes] = []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        frames.feed(stream[:size])
        stream = stream[size:]
        taken += frames
    assert taken == payloads
    assert frames.held_bytes == 0


def test_taking_may_stop_and_go_on() -> None:
    frames = Frames()
    frames.feed(frame(b"one") + frame(b"two") + frame(b"three")[:5])
    assert next(iter(frames)) == b"one"
    frames.feed(frame(b"three")[5:])
    assert list(frames) == [b"two", b"three"]


@pytest.mark.parametrize("length", [0, STRANGER_FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_of_strangers_only_short_frames_are_taken(length: int) -> None:
    frames = Frames()
    frames.feed(length.to_bytes(4, "big"))
    with pytest.raises(ProtocolViolation, match=f"frame of {length} bytes"):
        list(frames)


def test_the_longest_frame_of_a_stranger() -> None:
    frames = Frames()
    payload = bytes(STRANGER_FRAME_BYTES_MAX)
    frames.feed(frame(payload))
    assert list(frames) == [payload]


def test_after_the_handshake_frames_may_be_long() -> None:
    frames = Frames()
    frames.trust()
    payload = bytes(3_000_000)
    stream = frame(payload)
    for at in range(0, len(stream), 65_536):
        frames.feed(stream[at : at + 65_536])
        assert list(frames) == ([payload] if at + 65_536 >= len(stream) else [])
    assert frames.held_bytes == 0
    frames.feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolViolation):
        list(frames)


def test_a_long_frame_announced_costs_nothing_before_it_comes() -> None:
    frames = Frames()
    frames.trust()
    frames.feed(FRAME_BYTES_MAX.to_bytes(4, "big") + b"x")
    assert list(frames) == []
    assert frames.held_bytes == 5


def test_frames_of_a_stranger_that_came_along_with_the_last_word_of_the_handshake() -> None:
    frames = Frames()
    long = bytes(STRANGER_FRAME_BYTES_MAX + 1)
    frames.feed(frame(b"proof") + frame(long))
    taken = []
    for payload in frames:
        taken.append(payload)
        frames.trust()  # takes effect for the very next one
    assert taken == [b"proof", long]
