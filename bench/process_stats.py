"""What the kernel knows of a server's processes: CPU time and memory."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes, and of their children that have ended and been waited for."""
    ticks = 0
    for pid in pids:
        try:
            # The command's name, in parentheses, may hold spaces: the fields begin behind it.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / TICKS_PER_SECOND


def memory_mib(pid: int, what: str) -> float:
    """VmRSS, now, or VmHWM, the most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(what)
