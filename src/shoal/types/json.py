"""JSON values as compact text."""

from __future__ import annotations

from collections.abc import Sequence


def canonical(text: str) -> str: raise NotImplementedError
def extract(stored: str, path: Sequence[str | int]) -> str | None: raise NotImplementedError
