"""The phases of a connection: which message may come when, and what it leads to.

Here: Phase, the table NEXT, step(); the same table by type byte for the hot path; its diagram.
Not here: doing what a message asks, or choosing an answer (the server, which steps through this table).

The table is the server's view: frontend messages as it takes them, in order, and of its own messages those
that lead to another phase; the rest change nothing. Each message is answered before the next one is
taken, so Query and Sync need no phase of their own for their answers: who leads to IDLE is answered with
ReadyForQuery last, failed or not. A pair that is absent is a mistake of
the peer when the message is the client's (ProtocolViolation, 08P01), and a bug when it is ours.

Copying is not here yet: COPY is refused before it begins.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from shoal.pgwire.messages import (
    FRONTEND_MESSAGES,
    AuthenticationCleartextPassword,
    AuthenticationMD5Password,
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    Bind,
    CancelRequest,
    Close,
    CopyData,
    CopyDone,
    CopyFail,
    Describe,
    EncryptionAccepted,
    EncryptionRefused,
    ErrorResponse,
    Execute,
    Flush,
    FrontendMessage,
    FunctionCall,
    GSSENCRequest,
    Message,
    Parse,
    PasswordMessage,
    Query,
    ReadyForQuery,
    SASLInitialResponse,
    SASLResponse,
    SSLRequest,
    StartupMessage,
    Sync,
    Terminate,
    violated,
)


class Phase(enum.IntEnum):
    STARTUP = 0  # nothing is known; in the clear
    ENCRYPTION_ASKED = 1  # the client waits for our S or N
    STARTUP_ENCRYPTED = 2
    AUTHENTICATING = 3  # we know who it claims to be; the next word is ours
    PASSWORD_ASKED = 4
    SASL_ASKED = 5
    SASL_BEGUN = 6  # the next word is ours
    SASL_CHALLENGED = 7
    SASL_ANSWERED = 8  # the next word is ours
    STARTING = 9  # authenticated; we tell settings and key
    IDLE = 10
    EXTENDED = 11  # amid extended messages, up to Sync
    SKIPPING = 12  # one of them failed; all is skipped up to Sync
    CLOSED = 13


STARTUP: Final = Phase.STARTUP
ENCRYPTION_ASKED: Final = Phase.ENCRYPTION_ASKED
STARTUP_ENCRYPTED: Final = Phase.STARTUP_ENCRYPTED
AUTHENTICATING: Final = Phase.AUTHENTICATING
PASSWORD_ASKED: Final = Phase.PASSWORD_ASKED
SASL_ASKED: Final = Phase.SASL_ASKED
SASL_BEGUN: Final = Phase.SASL_BEGUN
SASL_CHALLENGED: Final = Phase.SASL_CHALLENGED
SASL_ANSWERED: Final = Phase.SASL_ANSWERED
STARTING: Final = Phase.STARTING
IDLE: Final = Phase.IDLE
EXTENDED: Final = Phase.EXTENDED
SKIPPING: Final = Phase.SKIPPING
CLOSED: Final = Phase.CLOSED

NEXT: Final[Mapping[tuple[Phase, type[Message]], Phase]] = {
    # Clients that try several ways of encryption ask once for each.
    (STARTUP, SSLRequest): ENCRYPTION_ASKED,
    (STARTUP, GSSENCRequest): ENCRYPTION_ASKED,
    (STARTUP, CancelRequest): CLOSED,
    (STARTUP, StartupMessage): AUTHENTICATING,
    (STARTUP, ErrorResponse): CLOSED,
    (ENCRYPTION_ASKED, EncryptionAccepted): STARTUP_ENCRYPTED,
    (ENCRYPTION_ASKED, EncryptionRefused): STARTUP,
    (STARTUP_ENCRYPTED, CancelRequest): CLOSED,
    (STARTUP_ENCRYPTED, StartupMessage): AUTHENTICATING,
    (STARTUP_ENCRYPTED, ErrorResponse): CLOSED,
    # Before the session every error is the end: a stranger gets one attempt per connection.
    (AUTHENTICATING, AuthenticationOk): STARTING,
    (AUTHENTICATING, AuthenticationCleartextPassword): PASSWORD_ASKED,
    (AUTHENTICATING, AuthenticationMD5Password): PASSWORD_ASKED,
    (AUTHENTICATING, AuthenticationSASL): SASL_ASKED,
    (AUTHENTICATING, ErrorResponse): CLOSED,
    (PASSWORD_ASKED, PasswordMessage): AUTHENTICATING,
    (PASSWORD_ASKED, Terminate): CLOSED,
    (PASSWORD_ASKED, ErrorResponse): CLOSED,
    (SASL_ASKED, SASLInitialResponse): SASL_BEGUN,
    (SASL_ASKED, Terminate): CLOSED,
    (SASL_ASKED, ErrorResponse): CLOSED,
    (SASL_BEGUN, AuthenticationSASLContinue): SASL_CHALLENGED,
    (SASL_BEGUN, ErrorResponse): CLOSED,
    (SASL_CHALLENGED, SASLResponse): SASL_ANSWERED,
    (SASL_CHALLENGED, Terminate): CLOSED,
    (SASL_CHALLENGED, ErrorResponse): CLOSED,
    (SASL_ANSWERED, AuthenticationSASLFinal): AUTHENTICATING,
    (SASL_ANSWERED, ErrorResponse): CLOSED,
    (STARTING, ReadyForQuery): IDLE,
    (STARTING, ErrorResponse): CLOSED,
    (IDLE, Query): IDLE,
    (IDLE, FunctionCall): IDLE,
    (IDLE, Parse): EXTENDED,
    (IDLE, Bind): EXTENDED,
    (IDLE, Describe): EXTENDED,
    (IDLE, Execute): EXTENDED,
    (IDLE, Close): EXTENDED,
    (IDLE, Flush): IDLE,
    (IDLE, Sync): IDLE,
    # What a client sent before it heard that its COPY was refused. Nobody waits for an answer.
    (IDLE, CopyData): IDLE,
    (IDLE, CopyDone): IDLE,
    (IDLE, CopyFail): IDLE,
    (IDLE, ErrorResponse): IDLE,
    (IDLE, Terminate): CLOSED,
    (EXTENDED, Parse): EXTENDED,
    (EXTENDED, Bind): EXTENDED,
    (EXTENDED, Describe): EXTENDED,
    (EXTENDED, Execute): EXTENDED,
    (EXTENDED, Close): EXTENDED,
    (EXTENDED, Flush): EXTENDED,
    (EXTENDED, CopyData): EXTENDED,
    (EXTENDED, CopyDone): EXTENDED,
    (EXTENDED, CopyFail): EXTENDED,
    # A simple message ends with ReadyForQuery, and so ends the row that nobody synced.
    (EXTENDED, Query): IDLE,
    (EXTENDED, FunctionCall): IDLE,
    (EXTENDED, Sync): IDLE,
    (EXTENDED, Terminate): CLOSED,
    # All is skipped up to Sync: what the client pipelined assumed that the failed step had worked.
    (EXTENDED, ErrorResponse): SKIPPING,
    (SKIPPING, Parse): SKIPPING,
    (SKIPPING, Bind): SKIPPING,
    (SKIPPING, Describe): SKIPPING,
    (SKIPPING, Execute): SKIPPING,
    (SKIPPING, Close): SKIPPING,
    (SKIPPING, Flush): SKIPPING,
    (SKIPPING, Query): SKIPPING,
    (SKIPPING, FunctionCall): SKIPPING,
    (SKIPPING, CopyData): SKIPPING,
    (SKIPPING, CopyDone): SKIPPING,
    (SKIPPING, CopyFail): SKIPPING,
    (SKIPPING, Sync): IDLE,
    (SKIPPING, Terminate): CLOSED,
}


# The table for the hot path: STEPS[phase][type byte], None where a pair is absent. The byte p stands for three
# messages, of which each phase expects one at most.
STEPS: Final[Sequence[Sequence[Phase | None]]] = tuple(
    tuple(
        next(
            (
                NEXT[phase, message]
                for message in FRONTEND_MESSAGES
                if message.kind == kind and (phase, message) in NEXT
            ),
            None,
        )
        for kind in range(256)
    )
    for phase in Phase
)


def step(phase: Phase, message: type[Message]) -> Phase:
    """The phase that a message leads to."""
    following = NEXT.get((phase, message))
    if following is None:
        raise violated(f"{message.__name__} cannot come in phase {phase.name}")
    return following


def frontend_type(phase: Phase, kind: int) -> type[FrontendMessage]:
    """The message that a type byte stands for, if it may come in this phase."""
    known = [message for message in FRONTEND_MESSAGES if message.kind == kind]
    if not known:
        raise violated(f"unknown message type {chr(kind)!r}")
    for message in known:
        if (phase, message) in NEXT:
            return message
    raise violated(f"{known[0].__name__} cannot come in phase {phase.name}")


def diagram() -> str:
    """The table as a Mermaid diagram, for the docs."""
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for (phase, message), following in NEXT.items():
        arrows.setdefault((phase, following), []).append(message.__name__)
    return "\n".join(
        (
            "stateDiagram-v2",
            f"    [*] --> {STARTUP.name}",
            *(
                f"    {start.name} --> {end.name} : {', '.join(names)}"
                for (start, end), names in arrows.items()
            ),
            f"    {CLOSED.name} --> [*]",
        )
    )
