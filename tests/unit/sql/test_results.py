"""SQL in, rows out: the whole way from a statement's text through SQLite.

Blocks of a script may begin with `params 1 | NULL | x` (the parameters' texts), `zone Asia/Tokyo`, and
`limit 10` (the guard stops the statement at its 11th row).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scripts_runner import run_script, script_paths
from tests.unit.sql.database import Database

SCRIPTS = [*script_paths("sql/results"), *script_paths("sql/explain")]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path)
    yield database
    database.close()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scripts(path: Path, database: Database, rewrite: bool) -> None:
    run_script(path, database.script, rewrite)
