"""PostgreSQL's binary format, in and out of the storage form."""

from __future__ import annotations

from shoal.types.sqltype import SqlType
from shoal.types.values import BinaryDecoder, Encoder


def binary_decoder(oid: int, t: SqlType | None = None) -> BinaryDecoder: raise NotImplementedError
def binary_encoder(t: SqlType) -> Encoder: raise NotImplementedError
