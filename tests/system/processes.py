"""What the kernel knows of a process."""

from __future__ import annotations

import re
from pathlib import Path


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """VmRSS is what it has now, VmHWM the most that it had since forget_peak()."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
