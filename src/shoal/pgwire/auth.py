"""Passwords: what is kept of them, and how a client proves that it knows one.

Here: make_secret() and the two forms of secrets, authenticate() for md5 and SCRAM-SHA-256 (RFC 5802, RFC 7677),
SASLprep (RFC 4013).
Not here: where secrets are kept (the catalog), counting failed attempts, chance (the caller hands it in).

A secret is text in PostgreSQL's own format, so a dump of users can be carried over:

    md5<md5(password + user) in hex>
    SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>    (salt and keys in base64)

Neither holds the password. From an md5 secret one can log in all the same, from a SCRAM secret one can't.

A user that does not exist goes through an exchange like any other and fails at its end, with the same salt
on each attempt, so nobody learns from us which names exist.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from shoal.errors import InvalidAuthorization, InvalidPassword
from shoal.pgwire.messages import (
    AuthenticationMD5Password,
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    BackendMessage,
    PasswordMessage,
    SASLInitialResponse,
    SASLResponse,
    violated,
)

Method: TypeAlias = Literal["md5", "scram-sha256"]  # as SQL's USING spells it

SCRAM_MECHANISM: Final = "SCRAM-SHA-256"
SCRAM_ITERATIONS: Final = 4096
SALT_BYTES: Final = 16
NONCE_BYTES: Final = 18  # no padding in base64
MD5_SALT_BYTES: Final = 4

_Reply: TypeAlias = PasswordMessage | SASLInitialResponse | SASLResponse
# Yields what the client must answer; returns what ends it well, AuthenticationOk last.
Exchange: TypeAlias = Generator[BackendMessage, _Reply, tuple[BackendMessage, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramSecret:
    """What a server needs to check a proof and to give its own, but not to make the client's."""

    iterations: int
    salt: bytes
    stored_key: bytes  # hash of the client key
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = map(_base64, (self.salt, self.stored_key, self.server_key))
        return f"{SCRAM_MECHANISM}${self.iterations}:{salt}${stored}:{server}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Md5Secret:
    digest: str  # 32 hex digits

    def __str__(self) -> str:
        return f"md5{self.digest}"


Secret: TypeAlias = ScramSecret | Md5Secret

_SCRAM_SECRET: Final = re.compile(r"SCRAM-SHA-256\$([1-9][0-9]{0,8}):([^$:]+)\$([^$:]+):([^$:]+)")
_MD5_SECRET: Final = re.compile(r"md5([0-9a-f]{32})")


def make_secret(method: Method, user: str, password: str, salt: bytes) -> str:
    """What to keep of a password. The salt is chance, SALT_BYTES of it; md5 salts with the user's name."""
    if method == "md5":
        digest = hashlib.md5((password + user).encode(), usedforsecurity=False).hexdigest()
        return str(Md5Secret(digest=digest))
    return str(_scram_secret(saslprep(password).encode(), salt))


def parse_secret(text: str) -> Secret | None:
    """A kept secret, or None for a text that is none: nobody can log in with that."""
    if matched := _MD5_SECRET.fullmatch(text):
        return Md5Secret(digest=matched[1])
    if matched := _SCRAM_SECRET.fullmatch(text):
        try:
            salt, stored_key, server_key = (
                base64.b64decode(part, validate=True) for part in matched.group(2, 3, 4)
            )
        except binascii.Error:
            return None
        if len(stored_key) == len(server_key) == hashlib.sha256().digest_size:
            return ScramSecret(
                iterations=int(matched[1]), salt=salt, stored_key=stored_key, server_key=server_key
            )
    return None


def authenticate(
    user: str,
    secret: str | None,
    *,
    chance: bytes,
    mock_key: bytes,
    mock_method: Method = "scram-sha256",
    scram_only: bool = False,
    may: Callable[[], bool] = lambda: True,
) -> Exchange:
    """Asks a client for the proof that it knows the password, and fails with InvalidPassword if it doesn't.

    `secret` is None for a user that does not exist or has no password: it is asked by `mock_method`, which
    should be the one that most users have. `mock_key` is a secret of the cluster that never changes, for its
    salt. `chance` is NONCE_BYTES of chance that nobody could guess. With `scram_only` a user that has an md5 secret is
    one without a password; which users those are is nobody's business. `may` is asked when the proof has come: a user
    that may not log in hears the same as one with a wrong password.

        exchange = authenticate(...)
        question = next(exchange)            # to the client; then for each answer:
        question = exchange.send(answer)     # StopIteration: its value holds the last messages
    """
    assert len(chance) == NONCE_BYTES
    kept = parse_secret(secret) if secret is not None else None
    if scram_only and isinstance(kept, Md5Secret):
        kept = None
    asked_by = kept or _mock_secret(mock_method, user, mock_key)
    if isinstance(asked_by, Md5Secret):
        return _md5(user, asked_by, kept is not None, chance[:MD5_SALT_BYTES], may)
    return _scram(user, asked_by, kept is not None, _base64(chance), may)


def trust() -> Exchange:
    """The exchange that asks nothing."""
    yield from ()
    return (AuthenticationOk(),)


def _refused(user: str) -> InvalidPassword:
    # One text for all reasons: which one it was is nobody's business.
    return InvalidPassword(f"authentication failed for user '{user}'")


# md5


def _md5(user: str, secret: Md5Secret, known: bool, salt: bytes, may: Callable[[], bool]) -> Exchange:
    reply = yield AuthenticationMD5Password(salt)
    if not isinstance(reply, PasswordMessage):
        raise violated("a password was asked for")
    expected = hashlib.md5(secret.digest.encode() + salt, usedforsecurity=False).hexdigest()
    proved = hmac.compare_digest(reply.password, b"md5" + expected.encode())
    allowed = may()
    if not (proved and known and allowed):
        raise _refused(user)
    return (AuthenticationOk(),)


# SCRAM


def _scram(
    user: str, secret: ScramSecret, known: bool, server_nonce: str, may: Callable[[], bool]
) -> Exchange:
    """The server's side. In the words of RFC 5802: client-first, server-first, client-final, server-final."""
    reply = yield AuthenticationSASL((SCRAM_MECHANISM,))
    if not isinstance(reply, SASLInitialResponse):
        raise violated("a SASL mechanism was asked for")
    if reply.mechanism != SCRAM_MECHANISM:
        raise InvalidAuthorization(f"SASL mechanism {reply.mechanism!r} was not offered")
    first = _read_client_first(reply.response or b"")
    nonce = first.nonce + server_nonce
    server_first = f"r={nonce},s={_base64(secret.salt)},i={secret.iterations}"

    answer = yield AuthenticationSASLContinue(server_first.encode())
    if not isinstance(answer, SASLResponse):
        raise violated("a SASL response was asked for")
    final = _read_client_final(answer.response)
    # Binding and nonce repeat what was agreed on: otherwise somebody stands between us.
    if final.binding != base64.b64encode(first.header.encode()).decode():
        raise violated("SCRAM channel binding does not match")
    if not hmac.compare_digest(final.nonce, nonce):
        raise violated("SCRAM nonce does not match")
    transcript = f"{first.bare},{server_first},{final.without_proof}".encode()
    client_signature = _hmac(secret.stored_key, transcript)
    client_key = bytes(a ^ b for a, b in zip(client_signature, final.proof, strict=True))
    proved = hmac.compare_digest(hashlib.sha256(client_key).digest(), secret.stored_key)
    allowed = may()
    if not (proved and known and allowed):
        raise _refused(user)
    server_final = f"v={_base64(_hmac(secret.server_key, transcript))}"
    return (AuthenticationSASLFinal(server_final.encode()), AuthenticationOk())


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientFirst:
    header: str  # what the client says of channel binding
    bare: str  # all behind it
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientFinal:
    binding: str
    nonce: str
    proof: bytes
    without_proof: str


_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"  # printable ASCII without the comma
# The user's name is said here too, and ignored: the startup message has it. An m= before it would be an
# extension that must be understood. Extensions behind the nonce may be ignored.
_CLIENT_FIRST: Final = re.compile(rf"([^,]*),([^,]*),(n=[^,]*,r=({_NONCE})(?:,.*)?)", re.DOTALL)
_CLIENT_FINAL: Final = re.compile(
    rf"(c=([A-Za-z0-9+/=]+),r=({_NONCE})(?:,.*)?),p=([A-Za-z0-9+/=]+)", re.DOTALL
)


def _read_client_first(message: bytes) -> _ClientFirst:
    matched = _CLIENT_FIRST.fullmatch(_scram_text(message))
    if matched is None:
        raise violated("malformed SCRAM message")
    binding, authorized_as, bare, nonce = matched.groups()
    if binding.startswith("p="):
        raise InvalidAuthorization("SCRAM channel binding was not offered")
    if binding not in ("n", "y"):  # n: the client has no binding; y: it thinks that we have none, rightly
        raise violated("malformed SCRAM message")
    if authorized_as:
        raise InvalidAuthorization("SCRAM authorization as another user is not supported")
    return _ClientFirst(header=f"{binding},,", bare=bare, nonce=nonce)


def _read_client_final(message: bytes) -> _ClientFinal:
    matched = _CLIENT_FINAL.fullmatch(_scram_text(message))
    if matched is None:
        raise violated("malformed SCRAM message")
    without_proof, binding, nonce, proof_text = matched.groups()
    try:
        proof = base64.b64decode(proof_text, validate=True)
    except binascii.Error:
        raise violated("malformed SCRAM proof") from None
    if len(proof) != hashlib.sha256().digest_size:
        raise violated("malformed SCRAM proof")
    return _ClientFinal(binding=binding, nonce=nonce, proof=proof, without_proof=without_proof)


def _scram_text(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise violated("malformed SCRAM message") from None
    if "\0" in text:
        raise violated("malformed SCRAM message")
    return text


def _scram_secret(password: bytes, salt: bytes) -> ScramSecret:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, SCRAM_ITERATIONS)
    return ScramSecret(
        iterations=SCRAM_ITERATIONS,
        salt=salt,
        stored_key=hashlib.sha256(_hmac(salted, b"Client Key")).digest(),
        server_key=_hmac(salted, b"Server Key"),
    )


def _mock_secret(method: Method, user: str, mock_key: bytes) -> Secret:
    """Looks like a secret, and is the same each time."""
    if method == "md5":
        return Md5Secret(digest="0" * 32)
    salt = _hmac(mock_key, user.encode())[:SALT_BYTES]
    return ScramSecret(iterations=SCRAM_ITERATIONS, salt=salt, stored_key=bytes(32), server_key=bytes(32))


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# SASLprep

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(password: str) -> str:
    """One spelling for passwords that look alike, as RFC 4013 says.

    A password that the RFC prohibits is taken as it is, on PostgreSQL's servers and clients and so here.
    """
    spaced = "".join(" " if stringprep.in_table_c12(letter) else letter for letter in password)
    mapped = "".join(letter for letter in spaced if not stringprep.in_table_b1(letter))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared or any(prohibited(letter) for letter in prepared for prohibited in _PROHIBITED):
        return password
    # Letters written from right to left may not be mixed with others, and stand at both ends.
    if any(map(stringprep.in_table_d1, prepared)):
        at_ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not at_ends or any(map(stringprep.in_table_d2, prepared)):
            return password
    return prepared
