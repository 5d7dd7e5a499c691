"""Every pair of phase and message: where it leads, or that it is refused."""

from __future__ import annotations

import pytest

from shoal.errors import ProtocolViolation
from shoal.pgwire import NEXT, STEPS, Phase, frontend_type, messages, step
from shoal.pgwire.messages import (
    FRONTEND_MESSAGES,
    CancelRequest,
    ErrorResponse,
    GSSENCRequest,
    Message,
    PasswordMessage,
    SASLInitialResponse,
    SASLResponse,
    SSLRequest,
    StartupMessage,
    Sync,
    Terminate,
)

ALL_MESSAGES = [
    message
    for name in messages.__all__
    if isinstance(message := getattr(messages, name), type)
    and issubclass(message, Message)
    and message is not Message
]
SESSION = {Phase.IDLE, Phase.EXTENDED, Phase.SKIPPING}
OF_STARTUP = {StartupMessage, SSLRequest, GSSENCRequest, CancelRequest}
OF_PASSWORDS = {PasswordMessage, SASLInitialResponse, SASLResponse}


@pytest.mark.parametrize("phase", Phase)
def test_every_pair(phase: Phase) -> None:
    for message in ALL_MESSAGES:
        if (phase, message) in NEXT:
            assert step(phase, message) is NEXT[phase, message]
        else:
            with pytest.raises(
                ProtocolViolation, match=f"{message.__name__} cannot come in phase {phase.name}"
            ):
                step(phase, message)


@pytest.mark.parametrize("phase", Phase)
def test_every_type_byte(phase: Phase) -> None:
    for kind in range(256):
        if (following := STEPS[phase][kind]) is None:
            with pytest.raises(ProtocolViolation):
                frontend_type(phase, kind)
        else:
            assert NEXT[phase, frontend_type(phase, kind)] is following


def test_the_byte_p_has_one_meaning_per_phase() -> None:
    for phase in Phase:
        assert sum((phase, message) in NEXT for message in OF_PASSWORDS) <= 1


@pytest.mark.parametrize("phase", sorted(SESSION))
def test_in_a_session_all_its_messages_may_come(phase: Phase) -> None:
    for message in FRONTEND_MESSAGES:
        assert ((phase, message) in NEXT) == (message not in OF_PASSWORDS), message


def test_before_the_session_an_error_is_the_end() -> None:
    for phase in Phase:
        if phase in SESSION or phase in (Phase.CLOSED, Phase.ENCRYPTION_ASKED):
            continue
        assert NEXT[phase, ErrorResponse] is Phase.CLOSED


def test_sync_always_leads_out() -> None:
    for phase in SESSION:
        assert NEXT[phase, Sync] is Phase.IDLE
        assert NEXT[phase, Terminate] is Phase.CLOSED


def test_every_phase_is_reached_and_left() -> None:
    reached = {Phase.STARTUP}
    while True:
        more = {following for (phase, _), following in NEXT.items() if phase in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(Phase)
    assert {phase for phase, _ in NEXT} == set(Phase) - {Phase.CLOSED}


def test_messages_of_startup_come_only_there() -> None:
    for phase, message in NEXT:
        if message in OF_STARTUP:
            assert phase in (Phase.STARTUP, Phase.STARTUP_ENCRYPTED)
