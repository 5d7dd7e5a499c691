"""Streams of frames with faults in them, for the tests that read them and those that send them.

Here: mutated(), from a seeded source of chance.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

# Heads of MessagePack, and the letters of our tags.
_BYTES: Final = (0, 1, 2, 3, 0x7F, 0x80, 0x90, 0x94, 0xA0, 0xC0, 0xC4, 0xC6, 0xCF, 0xD9, 0xDD, 0xDF, 0xFF)
_LENGTHS: Final = (0, 1, 3, 5, 0xFFFF, 4097, 67_108_864, 67_108_865, 0x7FFFFFFF, 0xFFFFFFFF)


def _flip_bits(stream: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        stream[chance.randrange(len(stream))] ^= 1 << chance.randrange(8)


def _set_bytes(stream: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        stream[chance.randrange(len(stream))] = chance.choice(_BYTES)


def _truncate(stream: bytearray, chance: random.Random) -> None:
    del stream[chance.randrange(1, len(stream) + 1) :]


def _edit_the_length(stream: bytearray, chance: random.Random) -> None:
    length = int.from_bytes(stream[:4], "big") + chance.randint(-3, 3)
    stream[:4] = (chance.choice((length, chance.choice(_LENGTHS))) % 2**32).to_bytes(4, "big")


def _cut_out(stream: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(stream))
    del stream[at : at + chance.randint(1, 20)]


def _repeat(stream: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(stream))
    stream[at:at] = stream[at : at + chance.randint(1, 40)]


def _nest(stream: bytearray, chance: random.Random) -> None:
    """The last element becomes very deep; the length says so."""
    bomb = chance.choice((b"\x91", b"\x81\xa1a", b"\xdd\x00\x00\x00\x01")) * chance.randint(100, 3000)
    payload = stream[4 : chance.randrange(5, max(6, len(stream)))] + bomb
    stream[:] = len(payload).to_bytes(4, "big") + payload


def _garbage(stream: bytearray, chance: random.Random) -> None:
    payload = chance.randbytes(chance.randint(1, 200))
    stream[:0] = len(payload).to_bytes(4, "big") + payload


_MUTATIONS: Final = (
    _flip_bits,
    _set_bytes,
    _truncate,
    _edit_the_length,
    _cut_out,
    _repeat,
    _nest,
    _garbage,
)


def mutated(streams: Sequence[bytes], chance: random.Random) -> bytes:
    stream = bytearray(chance.choice(streams))
    for _ in range(chance.randint(1, 3)):
        if len(stream) > 4:
            chance.choice(_MUTATIONS)(stream, chance)
    return bytes(stream)
