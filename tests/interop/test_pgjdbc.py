"""pgJDBC, Java's driver: the checks of pgjdbc/ as tests here."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster import Instance
from tests.interop.toolchain import BUILD_SECONDS, built_once

SOURCE = Path(__file__).parent / "pgjdbc"
MAVEN, JAVA = shutil.which("mvn"), shutil.which("java")
CHECKS = re.findall(
    r"@Check\s+void (\w+)\(", (SOURCE / "src/main/java/shoal/Checks.java").read_text(encoding="utf-8")
)

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.timeout(BUILD_SECONDS + 300),
    pytest.mark.skipif(
        MAVEN is None or JAVA is None, reason="Java 17 or Maven is not installed: apt-get install maven"
    ),
]


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A class path."""

    def build(place: Path) -> None:
        assert MAVEN is not None
        done = subprocess.run(
            [MAVEN, "-q", "-B", "-f", str(SOURCE / "pom.xml"), f"-Dbuilt={place}", "compile"],
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    place = built_once(tmp_path_factory, "pgjdbc", build)
    return f"{place / 'classes'}:{place / 'lib'}/*"


@pytest.fixture(scope="module")
def answers(instance: Instance, classes: str) -> Mapping[str, str]:
    """Check → what it printed, "" if all was well. They run in one go: a JVM takes a while to start."""
    assert JAVA is not None
    done = subprocess.run(
        [JAVA, "-cp", classes, "shoal.Checks", f"jdbc:postgresql://{instance.host}:{instance.port}/shoal"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = re.split(r"^(ok|failed) (\w+)$", done.stdout, flags=re.MULTILINE)
    return {
        name: "" if verdict == "ok" else f"failed{trace}"
        for verdict, name, trace in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


@pytest.mark.parametrize("check", CHECKS)
def test_pgjdbc(answers: Mapping[str, str], check: str) -> None:
    assert answers[check] == ""
