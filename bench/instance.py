"""One instance of Shoal to measure: `shoal run` as a user would start it, in a temporary directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src"


class Instance:
    """An instance with default settings, --trust, and ports of its own."""

    name = "Shoal"

    def __init__(self, *options: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="shoal-bench-"))
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self._log = self.directory / "log"
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://admin@127.0.0.1:{self.port}/shoal"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-P",
                        "-m",
                        "shoal",
                        "run",
                        "--trust",
                        "--json",
                        "--log-level",
                        "warning",
                    ),
                    *("--instance-dir", str(self.directory / "data"), "--pg-listen", "127.0.0.1:0"),
                    *("--http-listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0", *self._options),
                ],
                env={**environment, "PYTHONPATH": str(SOURCES)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(f"Shoal doesn't start:\n{self._log.read_text()[-3000:]}")
        self.port = int(json.loads(line)["pg"].rpartition(":")[2])

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            said = self._log.read_text()
            if said:
                print(f"the log of Shoal:\n{said[-3000:]}", file=sys.stderr)
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[int]:
        return [self.pid]
