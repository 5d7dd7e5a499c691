"""pgx v5, Go's driver: the tests of pgx/ as tests here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster import Instance
from tests.interop.toolchain import BUILD_SECONDS, built_once

SOURCE = Path(__file__).parent / "pgx"
GO = shutil.which("go")
TESTS = re.findall(r"^func (Test\w+)\(", (SOURCE / "pgx_test.go").read_text(encoding="utf-8"), re.MULTILINE)

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(BUILD_SECONDS + 300),
    pytest.mark.skipif(GO is None, reason="Go is not installed: https://go.dev/doc/install"),
]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(place: Path) -> None:
        assert GO is not None
        done = subprocess.run(
            # -mod=readonly: go.mod and go.sum say which versions, and stay as they are.
            [GO, "test", "-c", "-mod=readonly", "-o", str(place / "pgx.test"), "."],
            cwd=SOURCE,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
        assert done.returncode == 0, done.stderr

    return built_once(tmp_path_factory, "pgx", build) / "pgx.test"


@pytest.mark.parametrize("test", TESTS)
def test_pgx(instance: Instance, program: Path, test: str) -> None:
    done = subprocess.run(
        [str(program), "-test.run", f"^{test}$", "-test.timeout", "240s"],
        env={**os.environ, "SHOAL_TEST_URL": instance.url()},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
