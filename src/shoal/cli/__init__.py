"""The command `shoal`."""

from __future__ import annotations


def main() -> None:
    raise SystemExit("not built yet")
