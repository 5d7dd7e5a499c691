"""The README's examples, run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import Instance

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found, language
    return found


def test_the_first_five_minutes(instance: Instance) -> None:
    if shutil.which("psql") is None:
        pytest.skip("psql is not here")
    for sql in blocks("sql"):
        done = subprocess.run(
            ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-A", "-t", instance.url()],
            input=sql,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        assert "1|0.275" in done.stdout
        assert "tuna|412.500" in done.stdout
    for program in blocks("python"):
        program = program.replace("postgresql://admin@127.0.0.1:4327/shoal", instance.url())
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert done.stdout == "tuna 412.500\n"
