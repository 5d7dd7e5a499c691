"""Typed arrays: one-dimensional, 1-based, their elements in the storage form of the element's type.

Here: the packed form, which is a MessagePack array, and access to its elements.
Not here: `{1,2}` (text.py), PostgreSQL's binary arrays (binary.py), untyped arrays, which are JSON (json.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from shoal.types.values import Stored

__all__ = ["item", "pack", "unpack"]

_decode: Final = msgspec.msgpack.Decoder().decode

pack: Final[Callable[[Sequence[Stored]], bytes]] = msgspec.msgpack.Encoder().encode


def unpack(stored: bytes) -> list[Stored]:
    # Only pack() makes these bytes, so they need no check.
    elements: list[Stored] = _decode(stored)
    return elements


def item(stored: bytes, position: int) -> Stored:
    """a[i]: None where the array has no such position."""
    elements = unpack(stored)
    return elements[position - 1] if 1 <= position <= len(elements) else None
