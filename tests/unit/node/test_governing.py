"""The governor's loop: what takes long, and what fails, slows nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import RetryableError
from shoal.node.governing import Governing
from shoal.node.own_tables import OwnTables
from shoal.pgwire import messages as m
from shoal.storage import table_versions
from tests.unit.node.in_process import in_process


def test_a_change_that_takes_long_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing rests after it, so the next ones don't wait longer for it."""
    real: Callable[..., None] = table_versions.apply_change

    def slow(*arguments: Any) -> None:
        time.sleep(0.15)
        real(*arguments)

    with in_process(tmp_path / "i") as inside:
        governing = inside.node.cluster._governing
        inside.client().rows("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        monkeypatch.setattr(table_versions, "apply_change", slow)
        for number in range(4):
            inside.client().rows(f"CREATE INDEX i{number} ON t (v)")
            assert not governing._failures


def test_one_that_fails_rests_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that can't be asked makes its change wait, and others go by."""
    real = OwnTables.apply
    tries: list[int] = []
    held = [True]

    async def apply(self: OwnTables, version: int) -> None:
        pending = self._log.catalog.pending.get(version)
        if pending is not None and getattr(pending.change, "name", "") == "stuck" and held:
            tries.append(version)
            raise RetryableError("not now")
        await real(self, version)

    monkeypatch.setattr(OwnTables, "apply", apply)
    with in_process(tmp_path / "i") as inside:
        governing = inside.node.cluster._governing
        waits = inside.client()
        waits.send(m.Query("CREATE TABLE stuck (id INT PRIMARY KEY)"))
        inside.until(lambda: len(tries) == 3, "it was tried again and again")
        for number in range(4):
            inside.client().rows(f"CREATE TABLE t{number} (id INT PRIMARY KEY)")
        assert not waits.is_idle
        ((lane, _),) = governing._failures.items()
        assert lane == f"schema change {tries[0]} at default_1_1"
        held.clear()
        waits.settle()
        assert inside.client().rows("SELECT count(*) FROM stuck") == [(b"0",)]
        assert not governing._failures


def test_a_step_that_was_made_needless_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that doesn't answer is asked no longer once the change has ended in another way."""
    governing: list[Governing] = []
    ask = Governing._ask_for_verdict

    async def never(self: Governing, step: Any) -> None:
        governing.append(self)
        if len(governing) > 1:
            await ask(self, step)
        else:
            await self._loop.create_future()

    monkeypatch.setattr(Governing, "_ask_for_verdict", never)
    with in_process(tmp_path / "i") as inside:
        waits = inside.client()
        waits.send(m.Query("CREATE TABLE t (id INT PRIMARY KEY)"))
        inside.until(lambda: bool(governing), "it is asked")
        ((version,),) = inside.client().rows("SELECT schema_version FROM _pico_pending_schema_change")
        assert version is not None
        inside.client().rows(f"ALTER SYSTEM ABORT SCHEMA CHANGE {version.decode()}")
        waits.settle()
        (error,) = [answer for answer in waits.answers() if isinstance(answer, m.ErrorResponse)]
        assert (error.sqlstate, error.message) == ("57014", "ddl operation was aborted")
        inside.until(lambda: not governing[0]._busy, "nothing is under way")
        inside.client().rows("CREATE TABLE t (id INT PRIMARY KEY)")
