"""Key → bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NewType

from shoal.types.sqltype import SqlType
from shoal.types.values import Stored

BucketId = NewType("BucketId", int)


def bucket_of(parts: Iterable[bytes], bucket_count: int) -> BucketId: raise NotImplementedError
def bucket_of_key(types: Sequence[SqlType], key: Sequence[Stored], bucket_count: int) -> BucketId: raise NotImplementedError
def bucket_function(types: Sequence[SqlType], bucket_count: int) -> Callable[..., int]: raise NotImplementedError
