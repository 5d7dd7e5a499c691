"""Clients prove with SCRAM that they know a user's password, as they do on the PostgreSQL side.

Here: login(), which puts the exchange of pgwire/auth.py into the handshake's messages.
Not here: the proof (pgwire/auth.py), the order of the handshake (protocol/handshake.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random

from shoal.pgwire.auth import NONCE_BYTES, SCRAM_MECHANISM, Exchange, authenticate
from shoal.pgwire.messages import (
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    SASLInitialResponse,
    SASLResponse,
)
from shoal.protocol.handshake import LogIn


def login(begin: Callable[[str], Exchange]) -> LogIn:
    """`begin` gives the exchange with a user, which must be one of SCRAM."""

    def exchange(user: str, client_first: bytes) -> Generator[bytes, bytes, bytes]:
        steps = begin(user)
        next(steps)
        challenge = steps.send(SASLInitialResponse(SCRAM_MECHANISM, client_first))
        assert isinstance(challenge, AuthenticationSASLContinue)
        client_final = yield challenge.challenge
        try:
            steps.send(SASLResponse(client_final))
        except StopIteration as end:
            final = end.value[0]
            assert isinstance(final, AuthenticationSASLFinal)
            return final.outcome
        raise AssertionError("SCRAM has two rounds")

    return exchange


def nobody(chance: Random) -> LogIn:
    """While nothing is known of users: none of them gets in."""
    mock_key = chance.randbytes(32)
    return login(
        lambda user: authenticate(user, None, chance=chance.randbytes(NONCE_BYTES), mock_key=mock_key)
    )
