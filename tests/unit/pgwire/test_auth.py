"""Passwords are proved, never told, and what goes wrong tells nothing."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq
from scramp import ScramClient  # type: ignore[import-untyped]

from shoal.errors import InvalidAuthorization, InvalidPassword, ProtocolViolation, ShoalError
from shoal.pgwire import auth, authenticate, make_secret, parse_secret, trust
from shoal.pgwire.auth import Exchange, Method, ScramSecret, saslprep
from shoal.pgwire.messages import (
    AuthenticationMD5Password,
    AuthenticationOk,
    AuthenticationSASL,
    AuthenticationSASLContinue,
    AuthenticationSASLFinal,
    PasswordMessage,
    SASLInitialResponse,
    SASLResponse,
)
from tests.unit.pgwire.test_messages import calm

CHANCE = bytes(range(18))
SALT = bytes(range(16))
MOCK_KEY = b"a secret of the cluster"


def begin(user: str, secret: str | None, mock_method: Method = "scram-sha256") -> Exchange:
    return authenticate(user, secret, chance=CHANCE, mock_key=MOCK_KEY, mock_method=mock_method)


def log_in(user: str, password: str, secret: str | None, mock_method: Method = "scram-sha256") -> None:
    """Does what an honest client does, and checks what the server proves."""
    exchange = begin(user, secret, mock_method)
    question = next(exchange)
    if isinstance(question, AuthenticationMD5Password):
        inner = hashlib.md5((password + user).encode()).hexdigest()
        answer = b"md5" + hashlib.md5(inner.encode() + question.salt).hexdigest().encode()
        with pytest.raises(StopIteration) as stop:
            exchange.send(PasswordMessage(answer))
        assert stop.value.value == (AuthenticationOk(),)
        return
    assert question == AuthenticationSASL(("SCRAM-SHA-256",))
    client = ScramClient(["SCRAM-SHA-256"], user, password)
    challenge = exchange.send(SASLInitialResponse("SCRAM-SHA-256", client.get_client_first().encode()))
    assert isinstance(challenge, AuthenticationSASLContinue)
    client.set_server_first(challenge.challenge.decode())
    with pytest.raises(StopIteration) as stop:
        exchange.send(SASLResponse(client.get_client_final().encode()))
    final, ok = stop.value.value
    assert isinstance(final, AuthenticationSASLFinal)
    client.set_server_final(final.outcome.decode())  # raises if the server didn't know the password
    assert ok == AuthenticationOk()


@pytest.mark.parametrize("method", ["md5", "scram-sha256"])
@pytest.mark.parametrize("password", ["secret", "", "пароль", "a,b=c", "\u00aa\u2168", "na\u00efve"])
def test_the_right_password(method: Method, password: str) -> None:
    log_in("ann", password, make_secret(method, "ann", password, SALT))


@pytest.mark.parametrize("method", ["md5", "scram-sha256"])
def test_the_wrong_password(method: Method) -> None:
    with pytest.raises(InvalidPassword) as refused:
        log_in("ann", "wrong", make_secret(method, "ann", "right", SALT))
    assert refused.value.message == "authentication failed for user 'ann'"
    assert refused.value.sqlstate == "28P01"


@pytest.mark.parametrize("mock_method", ["md5", "scram-sha256"])
@pytest.mark.parametrize(
    "secret", [None, "", "rubbish", "md5", "SCRAM-SHA-256$4096:c2FsdA==$c2hvcnQ=:c2hvcnQ="]
)
def test_who_has_no_secret_is_asked_all_the_same(mock_method: Method, secret: str | None) -> None:
    with pytest.raises(InvalidPassword) as refused:
        log_in("nobody", "", secret, mock_method)
    assert refused.value.message == "authentication failed for user 'nobody'"


def test_unknown_users_have_a_salt_that_stays() -> None:
    def salt_of(user: str) -> bytes:
        exchange = begin(user, None)
        next(exchange)
        challenge = exchange.send(SASLInitialResponse("SCRAM-SHA-256", b"n,,n=,r=abc"))
        assert isinstance(challenge, AuthenticationSASLContinue)
        salt = challenge.challenge.decode().split(",")[1].removeprefix("s=")
        assert len(base64.b64decode(salt)) == auth.SALT_BYTES
        return salt.encode()

    assert salt_of("eve") == salt_of("eve")
    assert salt_of("eve") != salt_of("mallory")


def test_a_proof_of_all_zeros_opens_no_mock() -> None:
    exchange = begin("nobody", None)
    next(exchange)
    challenge = exchange.send(SASLInitialResponse("SCRAM-SHA-256", b"n,,n=,r=abc"))
    assert isinstance(challenge, AuthenticationSASLContinue)
    nonce = challenge.challenge.split(b",")[0]
    proof = base64.b64encode(bytes(32))
    with pytest.raises(InvalidPassword):
        exchange.send(SASLResponse(b"c=biws," + nonce + b",p=" + proof))


def test_trust_asks_nothing() -> None:
    with pytest.raises(StopIteration) as stop:
        next(trust())
    assert stop.value.value == (AuthenticationOk(),)


def test_the_example_of_rfc_7677() -> None:
    secret = parse_secret(
        make_secret("scram-sha256", "user", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    )
    assert isinstance(secret, ScramSecret)
    exchange = auth._scram("user", secret, True, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", lambda: True)
    next(exchange)
    challenge = exchange.send(SASLInitialResponse("SCRAM-SHA-256", b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"))
    assert challenge == AuthenticationSASLContinue(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    with pytest.raises(StopIteration) as stop:
        exchange.send(
            SASLResponse(
                b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
            )
        )
    assert stop.value.value == (
        AuthenticationSASLFinal(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        AuthenticationOk(),
    )


FIRST = b"n,,n=,r=abc"
NONCE = b"abc" + base64.b64encode(CHANCE)
PROOF = base64.b64encode(bytes(32))


@pytest.mark.parametrize(
    ("first", "sqlstate"),
    [
        (b"", "08P01"),
        (b"n", "08P01"),
        (b"n,,", "08P01"),
        (b"n,,n=ann", "08P01"),
        (b"n,,n=ann,r=", "08P01"),
        (b"n,,r=abc,n=ann", "08P01"),
        (b"n,,m=must,n=ann,r=abc", "08P01"),
        (b"x,,n=,r=abc", "08P01"),
        (b"n,,n=\xff,r=abc", "08P01"),
        (b"n,,n=\0,r=abc", "08P01"),
        (b"n,a=eve,n=,r=abc", "28000"),
        (b"p=tls-server-end-point,,n=,r=abc", "28000"),
    ],
)
def test_first_messages_that_are_refused(first: bytes, sqlstate: str) -> None:
    exchange = begin("ann", make_secret("scram-sha256", "ann", "secret", SALT))
    next(exchange)
    with pytest.raises(ShoalError) as refused:
        exchange.send(SASLInitialResponse("SCRAM-SHA-256", first))
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,r=" + NONCE,
        b"c=biws,r=abc,p=" + PROOF,
        b"c=biws,r=" + NONCE + b"x,p=" + PROOF,
        b"c=eSws,r=" + NONCE + b",p=" + PROOF,
        b"c=biws,r=" + NONCE + b",p=AAA",
        b"c=biws,r=" + NONCE + b",p=" + base64.b64encode(bytes(31)),
        b"c=biws,r=" + NONCE + b",p=" + PROOF + b",x=more",
        b"\xff",
    ],
)
def test_final_messages_that_are_refused(final: bytes) -> None:
    exchange = begin("ann", make_secret("scram-sha256", "ann", "secret", SALT))
    next(exchange)
    exchange.send(SASLInitialResponse("SCRAM-SHA-256", FIRST))
    with pytest.raises(ProtocolViolation):
        exchange.send(SASLResponse(final))


def test_a_client_that_thinks_we_have_no_channel_binding_is_right() -> None:
    exchange = begin("ann", make_secret("scram-sha256", "ann", "secret", SALT))
    next(exchange)
    exchange.send(SASLInitialResponse("SCRAM-SHA-256", b"y,,n=,r=abc"))
    with pytest.raises(InvalidPassword):  # the binding matched, the proof of zeros did not
        exchange.send(SASLResponse(b"c=eSws,r=" + NONCE + b",p=" + PROOF))


def test_a_mechanism_that_was_not_offered() -> None:
    exchange = begin("ann", make_secret("scram-sha256", "ann", "secret", SALT))
    next(exchange)
    with pytest.raises(InvalidAuthorization):
        exchange.send(SASLInitialResponse("SCRAM-SHA-256-PLUS", FIRST))


@given(
    first=st.binary(max_size=60) | st.text("np,=rcya1/+\0é", max_size=60).map(str.encode), final=st.binary()
)
@calm
def test_whatever_clients_say_is_an_answer(first: bytes, final: bytes) -> None:
    exchange = begin("ann", make_secret("md5", "bob", "x", SALT) if first[:1] == b"m" else None)
    next(exchange)
    with pytest.raises(ShoalError):
        exchange.send(SASLInitialResponse("SCRAM-SHA-256", first))
        exchange.send(SASLResponse(final))


# Secrets are PostgreSQL's


@pytest.mark.parametrize(
    "password", ["secret", "пароль", "\u00aa\u2168", "a\u00adb", "a\u2003b", "\u0627\u0031", "💧"]
)
def test_secrets_are_what_libpq_makes(password: str) -> None:
    connection = pq.PGconn.connect_start(b"host=/nowhere")
    theirs = connection.encrypt_password(password.encode(), b"ann", b"scram-sha-256").decode()
    salt = base64.b64decode(theirs.split("$")[1].split(":")[1])
    assert make_secret("scram-sha256", "ann", password, salt) == theirs
    theirs = connection.encrypt_password(password.encode(), b"ann", b"md5").decode()
    assert make_secret("md5", "ann", password, b"") == theirs


@pytest.mark.parametrize("method", ["md5", "scram-sha256"])
def test_secrets_are_read_back(method: Method) -> None:
    text = make_secret(method, "ann", "secret", SALT)
    secret = parse_secret(text)
    assert secret is not None
    assert str(secret) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "md5" + "g" * 32,
        "md5" + "A" * 32,
        "SCRAM-SHA-256$4096:c2FsdA==",
        "SCRAM-SHA-256$0:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:?$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$4096:c2FsdA==$" + "A" * 43 + "=:AAAA",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    assert parse_secret(text) is None


@pytest.mark.parametrize(
    ("password", "prepared"),
    [
        ("user", "user"),
        ("I\u00adX", "IX"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007", "\u0007"),  # prohibited, so taken as it is
        ("\u0627\u0031", "\u0627\u0031"),
        ("\u00ad", "\u00ad"),  # nothing would be left
        ("", ""),
    ],
)
def test_saslprep(password: str, prepared: str) -> None:
    assert saslprep(password) == prepared
