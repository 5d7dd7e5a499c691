"""A bug of ours in the middle of a statement: an answer with XX000, and everything else goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.governor.state import ApplyChange
from shoal.node.governing import Governing
from shoal.pgwire import messages as m
from shoal.storage import tables
from shoal.storage.catalog_db import CatalogDb
from tests.unit.node.in_process import in_process


def _error(answers: list[m.Message]) -> m.ErrorResponse:
    (error,) = [answer for answer in answers if isinstance(answer, m.ErrorResponse)]
    return error


@pytest.mark.parametrize("distribution", ["DISTRIBUTED GLOBALLY", "DISTRIBUTED BY (a)"])
def test_in_a_schema_change_that_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distribution: str
) -> None:
    """It is aborted: a change that nobody can bring to an end would block its table for ever."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("planted")

    with in_process(tmp_path / "i") as inside:
        client = inside.client()
        with monkeypatch.context() as patched:
            patched.setattr(tables, "conform", broken)
            error = _error(client.ask(m.Query(f"CREATE TABLE t (a INT PRIMARY KEY) {distribution}")))
        assert error.sqlstate == "XX000" and "internal error" in error.message, error
        assert client.rows("SELECT count(*) FROM _pico_pending_schema_change") == [(b"0",)]
        client.rows(f"CREATE TABLE t (a INT PRIMARY KEY) {distribution}")
        assert client.rows("SELECT count(*) FROM t") == [(b"0",)]


def test_in_a_step_of_the_governor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lane rests like after any other failure: it neither spins nor stays as it is."""
    tries = []
    ask = Governing._ask_for_verdict

    async def broken(self: Governing, step: ApplyChange) -> None:
        tries.append(self._loop.time())
        if len(tries) <= 3:
            raise KeyError("planted")
        await ask(self, step)

    monkeypatch.setattr(Governing, "_ask_for_verdict", broken)
    with in_process(tmp_path / "i") as inside:
        inside.client().rows("CREATE TABLE t (a INT PRIMARY KEY)")
    assert len(tries) == 4
    assert tries[-1] - tries[0] > 3 * 0.1


def test_while_the_catalog_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was proposed, so the outcome isn't unknown."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("planted")

    with in_process(tmp_path / "i") as inside:
        client = inside.client()
        client.rows("CREATE TABLE g (a INT PRIMARY KEY) DISTRIBUTED GLOBALLY")
        with monkeypatch.context() as patched:
            patched.setattr(CatalogDb, "dry_run", broken)
            error = _error(client.ask(m.Query("INSERT INTO g VALUES (1)")))
        assert error.sqlstate == "XX000" and "internal error" in error.message, error
        client.rows("INSERT INTO g VALUES (2)")
        assert client.rows("SELECT a FROM g") == [(b"2",)]
