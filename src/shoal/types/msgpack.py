"""MessagePack with Tarantool's extensions, in and out of the storage form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.types.sqltype import SqlType
from shoal.types.values import Stored


def row_encoder(types: Sequence[SqlType]) -> Callable[[Sequence[Stored]], bytes]: raise NotImplementedError
def row_decoder(types: Sequence[SqlType]) -> Callable[[bytes], tuple[Stored, ...]]: raise NotImplementedError
def hash_part(t: SqlType, stored: Stored) -> bytes: raise NotImplementedError
