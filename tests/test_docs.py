"""The docs keep their promises: links lead somewhere, commands exist, options are real."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from shoal.node.config import OPTIONS

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("https://", "#")):
            path, _, anchor = target.partition("#")
            there = page.parent / path
            assert there.exists(), f"{page.name}: no {target}"
            if anchor:
                assert anchor in anchors(there), f"{page.name}: no {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """A path in backquotes that begins with a directory of ours is one of ours."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:src|docs|tests|bench|tools)/[\w./-]+|(?:[a-z]+/)+[a-z_0-9]+\.py)`", text):
        assert (ROOT / name).exists() or (ROOT / "src" / "shoal" / name).exists(), f"{page.name}: no {name}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for option in re.findall(r"SHOAL_([A-Z_]+)", text):
        assert option in {known.key.upper() for known in OPTIONS}, option


def test_the_glossary_is_in_order() -> None:
    words = re.findall(
        r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert words == sorted(words)
    assert len(words) == len(set(words))


def test_every_dependency_says_what_it_saves() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    needed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in needed:
        name = re.split(r"[\[<>=]", requirement)[0]
        assert f"`{name}" in text, name
