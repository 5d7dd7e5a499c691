"""Key → bucket: which of a tier's hash buckets a row belongs to.

Here: bucket_of() and its compiled forms. The server, the smart client and Spark all ask here.
Not here: bucket → replicaset (the bucket map), the bytes of a value (types/msgpack.py).

The rule (adr/000): murmur3_x86_32, seed 13, over the bytes of the key's values one after another, modulo the
tier's number of buckets, plus one. A text counts as its UTF-8 bytes, everything else as its MessagePack. A value
is hashed as its column's type in canonical form, so equal keys have equal buckets however they were written.

Buckets are numbered from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NewType

import mmh3
import msgspec

from shoal.types.msgpack import hash_function
from shoal.types.sqltype import Kind, SqlType
from shoal.types.values import Stored

__all__ = ["BucketId", "bucket_function", "bucket_of", "bucket_of_key"]

BucketId = NewType("BucketId", int)

SEED: Final = 13


def bucket_of(parts: Iterable[bytes], bucket_count: int) -> BucketId:
    """The bucket of a key whose values are given as bytes, each as hash_part() makes them."""
    return BucketId(mmh3.hash(b"".join(parts), SEED, False) % bucket_count + 1)


def bucket_of_key(types: Sequence[SqlType], key: Sequence[Stored], bucket_count: int) -> BucketId:
    """The bucket of a key in its storage form; the types are those of the distribution key's columns."""
    return BucketId(bucket_function(types, bucket_count)(*key))


def bucket_function(types: Sequence[SqlType], bucket_count: int) -> Callable[..., int]:
    """The same, compiled once for a table and called per row with the key's values as arguments."""
    assert bucket_count > 0 and types, (types, bucket_count)
    if len(types) == 1 and not types[0].is_array:
        if types[0].kind is Kind.INT:
            return _int_bucket(bucket_count)
        if types[0].kind is Kind.TEXT:
            return _text_bucket(bucket_count)
    functions = tuple(hash_function(t) for t in types)

    def bucket(*key: Stored) -> int:
        parts = [function(value) for function, value in zip(functions, key, strict=True)]
        return mmh3.hash(b"".join(parts), SEED, False) % bucket_count + 1

    return bucket


# The two keys that most tables have. Default arguments make the functions local names, the fastest there are.


def _int_bucket(bucket_count: int) -> Callable[..., int]:
    encode = msgspec.msgpack.Encoder().encode

    def bucket(
        value: int | None,
        _hash: Callable[[bytes, int, bool], int] = mmh3.hash,
        _encode: Callable[[int | None], bytes] = encode,
    ) -> int:
        return _hash(_encode(value), 13, False) % bucket_count + 1

    return bucket


def _text_bucket(bucket_count: int) -> Callable[..., int]:
    def bucket(value: str | None, _hash: Callable[[str | bytes, int, bool], int] = mmh3.hash) -> int:
        # mmh3 hashes a str as its UTF-8 bytes.
        return _hash(b"\xc0" if value is None else value, 13, False) % bucket_count + 1

    return bucket
