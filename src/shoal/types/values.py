"""The storage form: the one representation of a value that flows through the engine.

Here: Stored, and the shapes of the functions that make it and read it.
Not here: the functions themselves (text.py, binary.py, msgpack.py), the forms of single types
(decimals.py, datetimes.py, json.py, arrays.py).

| type | storage form |
|---|---|
| INT | int, -2^63 … 2^63-1 |
| DOUBLE | float; never NaN, never -0.0 |
| TEXT | str without NUL |
| BOOLEAN | int, 0 or 1 |
| DECIMAL | bytes, ordered as the numbers are, one spelling per number (decimals.py) |
| UUID | 16 bytes |
| DATETIME | int, microseconds since 1970-01-01 UTC |
| JSON, ANY, untyped array | str: compact JSON text |
| T[] | bytes: MessagePack array of the elements' storage forms |

Whatever SQLite compares, sorts or indexes is therefore compared as SQL means it, without a callback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Stored: TypeAlias = int | float | str | bytes | None

# From the wire into the storage form: wire text arrives as str, binary values as bytes. Never called for NULL.
TextDecoder: TypeAlias = Callable[[str], Stored]
BinaryDecoder: TypeAlias = Callable[[bytes], Stored]
Decoder: TypeAlias = BinaryDecoder

# From the storage form onto the wire. Never called for NULL.
Encoder: TypeAlias = Callable[[Stored], bytes]

# From one type's storage form into another's. Never called for NULL, may answer it (JSON's null).
Cast: TypeAlias = Callable[[Stored], Stored]

__all__ = ["BinaryDecoder", "Cast", "Decoder", "Encoder", "Stored", "TextDecoder"]
