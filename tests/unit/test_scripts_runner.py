"""The runner of test scripts: what it reads, what it reports, what it rewrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts_runner import parse_script, run_script

SCRIPT = """\
# A comment.

first
second
---
FIRST
·
SECOND

# Nothing comes out of this one.
silent
---

last
---
LAST
"""


def execute(text: str) -> str:
    return "" if text == "silent" else text.upper().replace("\n", "\n\n") + "\n"


def test_a_script_that_agrees(tmp_path: Path) -> None:
    path = tmp_path / "agrees.txt"
    path.write_text(SCRIPT)
    run_script(path, execute, rewrite=False)
    run_script(path, execute, rewrite=True)
    assert path.read_text() == SCRIPT


def test_all_differences_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "differs.txt"
    path.write_text(SCRIPT.replace("FIRST", "1ST").replace("LAST", "2ND"))
    with pytest.raises(pytest.fail.Exception) as failure:
        run_script(path, execute, rewrite=False)
    assert "differs.txt:3" in str(failure.value)
    assert "differs.txt:14" in str(failure.value)
    assert "differs.txt:11" not in str(failure.value)


def test_rewrite_fills_in_new_blocks(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("# why\na\n\nb\nc\n\n# the end\n")
    run_script(path, execute, rewrite=True)
    assert path.read_text() == "# why\na\n---\nA\n\nb\nc\n---\nB\n·\nC\n\n# the end\n"
    run_script(path, execute, rewrite=False)


def test_a_block_without_output_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    path.write_text("silent\n")
    with pytest.raises(pytest.fail.Exception):
        run_script(path, execute, rewrite=False)


def test_an_exception_names_the_block() -> None:
    blocks, epilogue = parse_script(SCRIPT)
    assert [block.line for block in blocks] == [3, 11, 14]
    assert blocks[1].expected == ()
    assert epilogue == ()
