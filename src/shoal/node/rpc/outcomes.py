"""What becomes of a call that gets no answer.

Here: the errors that tell whether it may have happened.
Not here: the errors that the other side raised (protocol/envelope.py makes them anew).
"""

from __future__ import annotations

from shoal.errors import OutcomeUnknown, RetryableError


class NotSent(RetryableError):
    """It never left: asking again, here or elsewhere, repeats nothing."""


class Rejected(NotSent):
    """Somebody listens there and turns us away: `reason` is a Reason of protocol/handshake.py."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReplyLost(OutcomeUnknown):
    """It was sent, and the connection broke before the answer came."""


class TimedOut(OutcomeUnknown):
    """It was sent, and no answer came in time."""
