"""Where rows live: which bucket a key falls into."""

from __future__ import annotations

from shoal.topology.buckets import BucketId, bucket_function, bucket_of, bucket_of_key

__all__ = ["BucketId", "bucket_function", "bucket_of", "bucket_of_key"]
