"""Logging in with a password: SCRAM-SHA-256, md5, and the ways in which it fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import asyncpg
import pg8000.native
import psycopg
import pytest
from psycopg import errors

from tests.cluster import Instance

FIRST_PASSWORD = "Shoal-of-herring-1"

# Each opens a connection with a password, and says what SELECT 1 gives.
Login = Callable[[Instance, str, str], object]


def _psycopg(instance: Instance, user: str, password: str) -> object:
    with psycopg.connect(instance.url(user=user, password=password), autocommit=True) as conn:
        return (conn.execute("SELECT 1").fetchone() or (None,))[0]


def _asyncpg(instance: Instance, user: str, password: str) -> object:
    async def main() -> object:
        conn = await asyncpg.connect(
            host=instance.host, port=instance.port, user=user, password=password, database="shoal", timeout=60
        )
        try:
            return await conn.fetchval("SELECT 1")
        finally:
            await conn.close()

    return asyncio.run(main())


def _pg8000(instance: Instance, user: str, password: str) -> object:
    conn = pg8000.native.Connection(user, host=instance.host, port=instance.port, password=password)
    try:
        return conn.run("SELECT 1")[0][0]
    finally:
        conn.close()


LOGINS = pytest.mark.parametrize("login", [_psycopg, _asyncpg, _pg8000], ids=["psycopg", "asyncpg", "pg8000"])
WRONG = (psycopg.OperationalError, asyncpg.InvalidPasswordError, pg8000.native.DatabaseError)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> Iterator[Instance]:
    """An instance that asks for passwords; admin's was set when it first started."""
    running = Instance(
        tmp_path_factory.mktemp("guarded") / "i",
        trust=False,
        environment={"SHOAL_ADMIN_PASSWORD": FIRST_PASSWORD},
        timing_scale=timing_scale,
    )
    running.start()
    try:
        yield running
        assert running.stop() == 0
        assert not running.bugs(), running.bugs()
        assert FIRST_PASSWORD not in running.log()
    finally:
        running.kill()


@pytest.fixture
def method(guarded: Instance, request: pytest.FixtureRequest) -> str:
    """Sets admin's password anew, kept by this method."""
    chosen: str = request.param
    with psycopg.connect(
        host=str(guarded.socket_directory), port=guarded.port, user="admin", autocommit=True
    ) as conn:
        conn.execute(f"ALTER USER admin WITH PASSWORD 'Pass-{chosen}' USING {chosen}".encode())
    return chosen


METHODS = pytest.mark.parametrize("method", ["md5", "scram-sha-256"], indirect=True)


@LOGINS
@METHODS
def test_the_right_password(guarded: Instance, method: str, login: Login) -> None:
    assert login(guarded, "admin", f"Pass-{method}") == 1


@LOGINS
@METHODS
@pytest.mark.parametrize("password", ["", "wrong", "pass-md5"], ids=["empty", "wrong", "case"])
def test_a_wrong_password(guarded: Instance, method: str, login: Login, password: str) -> None:
    with pytest.raises((*WRONG, pg8000.native.InterfaceError)):
        login(guarded, "admin", password)


@METHODS
def test_the_sqlstate_of_a_wrong_password(guarded: Instance, method: str) -> None:
    for user in ("admin", "nobody"):  # a stranger doesn't learn whether the user exists
        with pytest.raises(psycopg.OperationalError, match=f"authentication failed for user '{user}'"):
            psycopg.connect(guarded.url(user=user, password="wrong"))
        with pytest.raises(pg8000.native.DatabaseError) as caught:
            _pg8000(guarded, user, "wrong")
        assert caught.value.args[0]["C"] == errors.InvalidPassword.sqlstate
        assert caught.value.args[0]["S"] == "FATAL"


@METHODS
def test_what_libpq_is_asked_for(guarded: Instance, method: str) -> None:
    """libpq refuses by itself what it was told not to use."""
    other = "md5" if method == "scram-sha-256" else "scram-sha-256"
    url = guarded.url(password=f"Pass-{method}")
    assert psycopg.connect(f"{url}?require_auth={method}").execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="require_auth|authentication method requirement"):
        psycopg.connect(f"{url}?require_auth={other}")


def test_the_password_of_the_first_start(
    tmp_path_factory: pytest.TempPathFactory, timing_scale: float
) -> None:
    """It sets the password once: a later start with another one changes nothing."""
    directory = tmp_path_factory.mktemp("first") / "i"
    environment = {"SHOAL_ADMIN_PASSWORD": FIRST_PASSWORD}
    running = Instance(directory, trust=False, environment=environment, timing_scale=timing_scale)
    try:
        running.start()
        assert _psycopg(running, "admin", FIRST_PASSWORD) == 1
        running.kill()
        running = Instance(directory, trust=False, environment={}, timing_scale=timing_scale)
        running.start()
        assert _psycopg(running, "admin", FIRST_PASSWORD) == 1
        assert running.stop() == 0
        assert FIRST_PASSWORD not in running.log()
    finally:
        running.kill()


def test_no_password_was_ever_set(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> None:
    """Then none fits, and the admin socket is the way in."""
    running = Instance(tmp_path_factory.mktemp("none") / "i", trust=False, timing_scale=timing_scale)
    try:
        running.start()
        for password in ("x", ""):
            with pytest.raises(psycopg.OperationalError):
                _psycopg(running, "admin", password)
        with psycopg.connect(host=str(running.socket_directory), port=running.port, user="admin") as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        running.kill()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
@METHODS
def test_psql_with_a_password(guarded: Instance, method: str) -> None:
    def run(password: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["psql", "-X", "-A", "-t", "-w", "-d", guarded.url(), "-c", "SELECT 'in'"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PGPASSWORD": password},
        )

    assert run(f"Pass-{method}").stdout == "in\n"
    refused = run("wrong")
    assert refused.returncode == 2
    assert "authentication failed for user 'admin'" in refused.stderr


def test_passwords_that_are_refused(guarded: Instance) -> None:
    with psycopg.connect(
        host=str(guarded.socket_directory), port=guarded.port, user="admin", autocommit=True
    ) as conn:
        with pytest.raises(errors.FeatureNotSupported):
            conn.execute("ALTER USER admin WITH PASSWORD 'Some-password-1' USING ldap")
        with pytest.raises(errors.InvalidParameterValue):
            conn.execute("ALTER USER admin WITH PASSWORD ''")
        with pytest.raises(errors.UndefinedObject):
            conn.execute("ALTER USER nobody WITH PASSWORD 'Some-password-1'")
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_trust_is_for_admin_alone(tmp_path_factory: pytest.TempPathFactory, timing_scale: float) -> None:
    """Others are asked for their password, as ever."""
    running = Instance(tmp_path_factory.mktemp("trust") / "i", trust=True, timing_scale=timing_scale)
    try:
        running.start()
        running.execute(f"CREATE USER somebody WITH PASSWORD '{FIRST_PASSWORD}'")
        for password in ("", "wrong"):
            with pytest.raises(psycopg.OperationalError):
                _psycopg(running, "somebody", password)
        assert _psycopg(running, "somebody", FIRST_PASSWORD) == 1
        with pytest.raises(psycopg.OperationalError, match="the admin socket is for"):
            psycopg.connect(host=str(running.socket_directory), port=running.port, user="somebody")
    finally:
        running.kill()
