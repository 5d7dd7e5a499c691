"""Runs test scripts: input and expected output side by side, in one text file.

A script is a row of blocks. A block is input lines, a line `---`, and the expected output; an empty line
ends it, so an empty line of the output is shown as `·`. Lines that start with `#` before a block's input
are comments and stay where they are. To write a new script, write only the inputs, with an empty line
between them, run `pytest --rewrite`, and read what it filled in.

    # Nobody hears 1 any more.
    cut 1
    tick 2
    ---
    2 term 2 candidate

Here: parsing, running and rewriting such a file.
Not here: what the commands mean, which is the test's `execute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
EMPTY_LINE = "·"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One step of a script."""

    line: int  # of its first input line, 1-based
    preface: tuple[str, ...]  # comments and empty lines before it, kept as they are
    input: tuple[str, ...]
    expected: tuple[str, ...] | None  # None: no `---` yet, --rewrite fills it in

    @property
    def text(self) -> str:
        return "\n".join(self.input)


def script_paths(package: str) -> list[Path]:
    """All scripts of a package, for `pytest.mark.parametrize(..., ids=lambda path: path.stem)`."""
    paths = sorted((SCRIPTS / package).rglob("*.txt"))
    assert paths, f"no scripts in {SCRIPTS / package}"
    return paths


def run_script(path: Path, execute: Callable[[str], str], rewrite: bool) -> None:
    """Gives the input of each block to `execute`, and compares what it returns.

    What `execute` raises fails the test: a command that is expected to fail returns the error as text.
    All blocks are run even if one differs, so that the report shows everything at once.
    """
    blocks, epilogue = parse_script(path.read_text(encoding="utf-8"))
    assert blocks, f"{path}: no blocks"
    results: list[tuple[str, ...]] = []
    for block in blocks:
        try:
            output = execute(block.text)
        except Exception as error:
            error.add_note(f"{path}:{block.line}")
            raise
        results.append(output_lines(output))
    if rewrite:
        text = format_script(blocks, results, epilogue)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
        return
    differences = [
        _difference(path, block, result)
        for block, result in zip(blocks, results, strict=True)
        if block.expected != result
    ]
    if differences:
        pytest.fail("\n\n".join(differences) + "\n\n(--rewrite writes the new output)", pytrace=False)


def parse_script(text: str) -> tuple[list[Block], tuple[str, ...]]:
    """The blocks of a script, and the comments and empty lines after the last one."""
    blocks: list[Block] = []
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    at = 0
    while True:
        start = at
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith("#")):
            at += 1
        preface = tuple(lines[start:at])
        if at == len(lines):
            return blocks, preface
        first = at
        while at < len(lines) and lines[at] not in ("---", ""):
            at += 1
        source = tuple(lines[first:at])
        expected: tuple[str, ...] | None = None
        if at < len(lines) and lines[at] == "---":
            at += 1
            start = at
            while at < len(lines) and lines[at] != "":
                at += 1
            expected = tuple(lines[start:at])
        blocks.append(
            Block(
                line=first + 1,
                preface=preface,
                input=source,
                expected=expected,
            )
        )


def output_lines(output: str) -> tuple[str, ...]:
    """An output as it stands in a script: no spaces at the ends of lines, no line that is empty."""
    stripped = output.rstrip("\n")
    if not stripped:
        return ()
    return tuple(line.rstrip() or EMPTY_LINE for line in stripped.split("\n"))


def format_script(blocks: list[Block], results: list[tuple[str, ...]], epilogue: tuple[str, ...]) -> str:
    lines: list[str] = []
    for block, result in zip(blocks, results, strict=True):
        lines += [*block.preface, *block.input, "---", *result]
    lines += epilogue
    return "\n".join(lines).rstrip("\n") + "\n"


def _difference(path: Path, block: Block, result: tuple[str, ...]) -> str:
    def indented(lines: tuple[str, ...] | None) -> Iterator[str]:
        return (f"    {line}" for line in (lines or ("(nothing)",)))

    return "\n".join(
        (
            f"{path}:{block.line}",
            *indented(block.input),
            "expected:",
            *indented(block.expected),
            "got:",
            *indented(result),
        )
    )
