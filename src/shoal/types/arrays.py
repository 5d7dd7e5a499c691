"""Typed arrays: MessagePack arrays of the elements' storage forms."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.types.values import Stored


def pack(elements: Sequence[Stored]) -> bytes: raise NotImplementedError
def unpack(stored: bytes) -> list[Stored]: raise NotImplementedError
def item(stored: bytes, index: int) -> Stored: raise NotImplementedError
