"""Envelopes and errors, there and back."""

from __future__ import annotations

import msgspec
import pytest

from shoal import errors
from shoal.errors import OutcomeUnknown, ProgramLimitExceeded, ProtocolViolation, RetryableError, ShoalError
from shoal.protocol import envelope as e
from shoal.protocol.frames import FRAME_BYTES_MAX, Frames


def sent(message: tuple[object, ...]) -> bytes:
    """The payload, as the other side takes it."""
    out = bytearray()
    e.append_frame(out, message)
    frames = Frames(FRAME_BYTES_MAX)
    frames.feed(out)
    (payload,) = frames
    return payload


def test_a_request_and_its_answer() -> None:
    request = e.read_from_dialer(sent((e.REQUEST, 7, 1500, e.Ping(b"x"))))
    assert isinstance(request, e.Request)
    assert (request.request_id, request.deadline_ms_left) == (7, 1500)
    assert msgspec.msgpack.decode(request.payload, type=e.Ping) == e.Ping(b"x")
    answer = e.read_from_listener(sent((e.ANSWER, 7, e.Pong(b"x"))))
    assert isinstance(answer, e.Answer)
    assert msgspec.msgpack.decode(answer.payload, type=e.Pong) == e.Pong(b"x")


def test_one_way() -> None:
    assert e.read_from_dialer(sent((e.ONE_WAY, b"\x00raft"))) == e.OneWay(b"\x00raft")


def every_error() -> list[type[ShoalError]]:
    found = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ShoalError)
    ]
    assert len(found) > 50
    return found


@pytest.mark.parametrize("kind", every_error())
def test_errors_come_back_with_their_sqlstate(kind: type[ShoalError]) -> None:
    raised = kind.__new__(kind)
    ShoalError.__init__(
        raised, "it went wrong", detail="so", hint="try", extra={"leader": 3, "at": "127.0.0.1:3301"}
    )
    failed = e.read_from_listener(sent(e.failure(1, raised)))
    assert isinstance(failed, e.Failure)
    error = e.error_of(failed)
    assert (error.sqlstate, error.message, error.detail, error.hint) == (
        kind.sqlstate,
        "it went wrong",
        "so",
        "try",
    )
    assert error.extra == {"leader": 3, "at": "127.0.0.1:3301"}
    assert str(error) == "it went wrong"


def test_who_may_retry_can_tell() -> None:
    for raised in (RetryableError("conflict"), OutcomeUnknown("lost")):
        failed = e.read_from_listener(sent(e.failure(1, raised)))
        assert isinstance(failed, e.Failure)
        assert type(e.error_of(failed)) is type(raised)


def test_a_sqlstate_that_we_have_no_class_for() -> None:
    error = e.error_of(e.Failure(1, "ZZ123", "of a later version"))
    assert type(error) is e.ForeignError
    assert error.sqlstate == "ZZ123"
    assert e.ForeignError.sqlstate == "XX000"  # of the next one nothing has changed


def test_a_failure_without_its_last_elements() -> None:
    failed = e.read_from_listener(msgspec.msgpack.encode([2, 1, "40001", "conflict"]))
    assert isinstance(failed, e.Failure)
    assert (failed.detail, failed.hint, failed.extra) == (None, None, {})


def test_elements_that_a_later_version_adds_are_ignored() -> None:
    request = e.read_from_dialer(msgspec.msgpack.encode([0, 7, 10, ["ping", b"x", 1], {"ref": 5}]))
    assert isinstance(request, e.Request)
    assert request.request_id == 7


class Odd(msgspec.Struct, array_like=True, tag="odd"):
    text: str


@pytest.mark.parametrize("message", [(e.ANSWER, 1, Odd("\ud800")), (e.ANSWER, 1, object())])
def test_what_cannot_be_encoded_leaves_the_others_as_they_were(message: tuple[object, ...]) -> None:
    out = bytearray()
    e.append_frame(out, (e.ONE_WAY, b"before"))
    before = bytes(out)
    with pytest.raises((TypeError, UnicodeEncodeError)):
        e.append_frame(out, message)
    assert out == before


def test_what_is_too_long_is_not_sent() -> None:
    out = bytearray(b"before")
    e.append_frame(out, (e.ONE_WAY, bytes(FRAME_BYTES_MAX - 7)))  # array, tag, bin 32: 7 bytes
    assert len(out) == len(b"before") + 4 + FRAME_BYTES_MAX
    del out[6:]
    with pytest.raises(ProgramLimitExceeded):
        e.append_frame(out, (e.ONE_WAY, bytes(FRAME_BYTES_MAX - 6)))
    assert out == b"before"


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc0",
        b"\x90",
        b"\x91\x00",
        b"\x93\x01\x01\xc0",  # an answer, from the side that asks
        b"\x94\x00\x01\xff\xc0",
        b"\x94\x00\xff\x01\xc0",
        b"\x94\x00\x01\x01\xc0\xc0",
        b"\x94\x00\x01\x01" + b"\x91" * 100_000,
        b"\x92\x03\xc6\xff\xff\xff\xff",
        b"\x92\x03\xa1x",
        b"\x94\x00\x01\x01\xdd\xff\xff\xff\xff",
        b"\x92\x09\x01",
        b"\x92\xa1x\x01",
        b"\xdd\xff\xff\xff\xff\x00",
    ],
)
def test_malformed_envelopes(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="malformed envelope"):
        e.read_from_dialer(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x94\x00\x01\x01\xc0",
        b"\x92\x03\xc4\x00",
        b"\x93\x01\xff\xc0",
        b"\x94\x02\x01\xa5abcde\xa0",
        b"\x94\x02\x01\xa440001\xa0",
        b"\x94\x02\x01\xa540001\xa2\xff\xfe",
        b"\x97\x02\x01\xa540001\xa0\xc0\xc0\x81\xa1x\x90",
    ],
)
def test_malformed_answers(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="malformed envelope"):
        e.read_from_listener(payload)
