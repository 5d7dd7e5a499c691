"""PostgreSQL's text format, in and out of the storage form."""

from __future__ import annotations

from collections.abc import Callable

from shoal.types.datetimes import UTC, Zone
from shoal.types.sqltype import SqlType
from shoal.types.values import Encoder, Stored, TextDecoder


def text_decoder(t: SqlType, zone: Zone = UTC) -> TextDecoder: raise NotImplementedError
def text_encoder(t: SqlType, zone: Zone = UTC) -> Encoder: raise NotImplementedError
def cast_text(t: SqlType, zone: Zone = UTC) -> Callable[[Stored], str]: raise NotImplementedError
