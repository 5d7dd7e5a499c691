"""Clients prove with SCRAM that they know a user's password, as they do on the PostgreSQL side.

Here: login(), which puts the exchange of pgwire/auth.py into the handshake's messages.
Not here: the proof (pgwire/auth.py), the order of the handshake (protocol/handshake.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator

from shoal.errors import ProtocolViolation, ShoalError
from shoal.pgwire.auth import NONCE_BYTES, SCRAM_MECHANISM, ScramSecret, authenticate, parse_secret
from shoal.pgwire.messages import (
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    SASLInitialResponse,
    SASLResponse,
)
from shoal.protocol.handshake import LogIn, Refusal


def login(user_secret: Callable[[str], str | None], mock_key: bytes) -> LogIn:
    """`user_secret` gives what is kept of a user's password, None where nobody can log in."""

    def exchange(user: str, client_first: bytes) -> Generator[bytes, bytes, bytes]:
        kept = user_secret(user)
        if kept is not None and not isinstance(parse_secret(kept), ScramSecret):
            kept = None  # an md5 secret proves nothing here; which users have one is nobody's business
        steps = authenticate(user, kept, chance=secrets.token_bytes(NONCE_BYTES), mock_key=mock_key)
        try:
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
        except ProtocolViolation as error:
            raise Refusal("malformed", error.message) from None
        except ShoalError as error:
            raise Refusal("login", error.message) from None
        raise AssertionError("SCRAM has two rounds")

    return exchange
