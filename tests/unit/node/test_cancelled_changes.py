"""A schema change whose client cancels it at the worst moment: on its way into the log, and after that."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.pgwire import messages as m
from shoal.storage.catalog_db import CatalogDb
from tests.unit.node.in_process import PATIENCE_SECONDS, in_process


def _unretrieved(inside: Any) -> list[dict[str, Any]]:
    """What the loop will say of tasks whose errors nobody asked for."""
    said: list[dict[str, Any]] = []
    inside.node.loop.set_exception_handler(lambda _loop, context: said.append(context))
    return said


def test_cancelled_on_its_way_into_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saving, go = threading.Event(), threading.Event()
    save = CatalogDb.save

    def slow(db: CatalogDb, what: Any) -> Any:
        if any(b"CreateTable" in entry.data for entry in what.entries):
            saving.set()
            assert go.wait(PATIENCE_SECONDS)
        return save(db, what)

    with in_process(tmp_path / "i") as inside:
        said = _unretrieved(inside)
        client = inside.client()
        monkeypatch.setattr(CatalogDb, "save", slow)
        client.send(m.Query("CREATE TABLE t (a INT PRIMARY KEY)"))
        try:
            inside.until(saving.is_set)
            client.session.cancel()
            inside.turn()
            (error,) = [answer for answer in client.answers() if isinstance(answer, m.ErrorResponse)]
            assert error.sqlstate == "40003", error
        finally:
            go.set()
        inside.until(lambda: "t" in inside.node.catalog.schema.tables, "it goes on")
        gc.collect()
        inside.turn()
        assert not said


def test_refused_after_its_client_left(tmp_path: Path) -> None:
    with in_process(tmp_path / "i") as inside:
        said = _unretrieved(inside)
        client = inside.client()
        client.rows("CREATE TABLE t (a INT PRIMARY KEY, b INT) DISTRIBUTED BY (b)")
        client.rows("INSERT INTO t VALUES (1, 1), (2, 1)")
        inside.hold_writer()
        client.send(m.Query("CREATE UNIQUE INDEX i ON t (b)"))
        inside.until(lambda: inside.node.catalog.pending, "a prepared change")
        client.session.cancel()
        inside.turn()
        (error,) = [answer for answer in client.answers() if isinstance(answer, m.ErrorResponse)]
        assert error.sqlstate == "40003", error
        inside.release()
        inside.until(lambda: not inside.node.catalog.pending, "the change's end")
        gc.collect()
        inside.turn()
        assert not said
