"""Who may import whom: reads every import of the package with `ast`, and fails on any other arrow.

Here: the table of the layers, and what a core may not touch of the standard library.
Not here: the reasons (docs/architecture.md tells them).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

SRC: Final = Path(__file__).parent.parent / "src" / "shoal"

CORES: Final = ("types", "topology", "catalog", "raft", "shard", "governor", "sql", "protocol", "pgwire")

# Besides `errors`, which is a leaf that all may import, and the package itself (its version).
MAY_IMPORT: Final[Mapping[str, tuple[str, ...]]] = {
    "errors": (),
    "types": (),
    "topology": ("types",),
    "catalog": ("types", "topology"),
    "raft": (),
    "shard": ("types", "topology", "catalog"),
    "governor": ("topology", "catalog"),
    "sql": ("types", "topology", "catalog"),
    "protocol": ("types",),
    "pgwire": ("types",),
    "storage": ("raft", "shard", "catalog", "types", "topology"),
    "node": (*CORES, "storage"),
    "sim": (*CORES, "storage"),
    "cli": ("node", "sim"),
}

# A core knows no socket, file, clock, task or thread.
NOT_IN_A_CORE: Final = frozenset(
    {
        "apsw", "asyncio", "concurrent", "ctypes", "glob", "http", "multiprocessing", "os", "pathlib",
        "psycopg", "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3",
        "ssl", "starlette", "subprocess", "tempfile", "threading", "time", "typer", "uvicorn", "uvloop",
    }
)  # fmt: skip


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def layer_of(path: Path) -> str:
    """The package (or, for errors.py, the module) right under shoal."""
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports_of(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of every import, inside functions and TYPE_CHECKING too."""
    package = ("shoal", *path.relative_to(SRC).parts[:-1])
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_imports_follow_the_layers(path: Path) -> None:
    layer = layer_of(path)
    if layer in ("__init__", "__main__"):
        allowed = frozenset(("cli", "errors")) if layer == "__main__" else frozenset[str]()
    else:
        assert layer in MAY_IMPORT, f"{layer} is not in the table of the layers yet"
        allowed = frozenset((layer, "errors", *MAY_IMPORT[layer]))
    for line, name in imports_of(path, path.read_text(encoding="utf-8")):
        parts = name.split(".")
        where = f"{path.relative_to(SRC.parent)}:{line}"
        if parts[0] == "shoal":
            target = parts[1] if len(parts) > 1 else ""
            assert target in allowed or target == "__version__", f"{where}: {layer} may not import {name}"
        elif layer in CORES:
            assert parts[0] not in NOT_IN_A_CORE, f"{where}: {layer} is a core, it may not import {name}"


def test_the_table_has_no_cycles() -> None:
    def reaches(start: str, goal: str) -> bool:
        return any(step == goal or reaches(step, goal) for step in MAY_IMPORT[start])

    assert not [layer for layer in MAY_IMPORT if reaches(layer, layer)]


def test_imports_are_found_in_every_form() -> None:
    source = "import time\nfrom ..storage import writer\ndef f():\n    from shoal.node import config as c\n"
    found = list(imports_of(SRC / "types" / "imagined.py", source))
    assert found == [(1, "time"), (2, "shoal.storage.writer"), (4, "shoal.node.config")]
