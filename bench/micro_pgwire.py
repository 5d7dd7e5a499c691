"""How long the protocol alone takes for a prepared point SELECT: no socket, no SQL, no disk.

Decodes Bind, Describe, Execute and Sync as one chunk, and encodes the answer, as the hot path in
shoal/pgwire/codec.py does; then its parts one by one. Prints CPU µs per request, the best of several rounds: noise
only ever adds. Run it with `PYTHONPATH=src python bench/micro_pgwire.py`.
"""

from __future__ import annotations

import struct
import time
import timeit
from collections.abc import Callable

from shoal.pgwire import STEPS, Frames, Phase, encode_all, row_encoder, rows_encoder
from shoal.pgwire import messages as m

ROUNDS = 9


def microseconds(act: Callable[[], object], calls: int = 50_000) -> float:
    return min(timeit.repeat(act, timer=time.process_time, number=calls, repeat=ROUNDS)) / calls * 1e6


class PointSelect:
    """The server's loop, with a row from nowhere."""

    def __init__(self, columns: tuple[m.Column, ...], row: tuple[int | str, ...]) -> None:
        formats = (m.TEXT_FORMAT,) * len(columns)
        self.frames = Frames()
        self.frames.open_session()
        self.description = m.row_description(columns, formats)
        self.encode_row = row_encoder(
            [b"%d".__mod__ if column.type_oid == 20 else None for column in columns]
        )
        self.row = row
        self.phase = Phase.IDLE
        self.answers: list[bytes] = []
        self.by_kind: list[Callable[[bytes], None]] = [self.unexpected] * 256
        self.by_kind[m.Bind.kind] = self.bind
        self.by_kind[m.Describe.kind] = self.describe
        self.by_kind[m.Execute.kind] = self.execute
        self.by_kind[m.Sync.kind] = self.sync

    def take(self, chunk: bytes) -> bytes:
        self.frames.feed(chunk)
        self.answers = []
        by_kind = self.by_kind
        for kind, payload in self.frames:
            phase = STEPS[self.phase][kind]
            assert phase is not None
            self.phase = phase
            by_kind[kind](payload)
        return b"".join(self.answers)

    def unexpected(self, payload: bytes) -> None:
        raise AssertionError(payload)

    def bind(self, payload: bytes) -> None:
        self.bound = m.Bind.decode(payload)
        self.answers.append(m.BIND_COMPLETE)

    def describe(self, payload: bytes) -> None:
        assert m.Describe.decode(payload).target == "portal"
        self.answers.append(self.description)

    def execute(self, payload: bytes) -> None:
        assert m.Execute.decode(payload).max_rows == 0
        self.answers += (self.encode_row(self.row), m.command_complete("SELECT 1"))

    def sync(self, payload: bytes) -> None:
        m.Sync.decode(payload)
        self.answers.append(m.READY_FOR_QUERY["I"])


def main() -> None:
    binary_key = struct.pack(">q", 4242)
    bind = m.Bind("", "P_0", (1,), (binary_key,), (0,))
    request = encode_all(bind, m.Describe("portal", ""), m.Execute("", 0), m.Sync())
    narrow = PointSelect((m.Column("abalance", 20),), (-1234,))
    columns = (m.Column("id", 20), m.Column("name", 25), m.Column("city", 25), m.Column("age", 20))
    row = (4242, "Ann Smith", "Copenhagen", 42)
    wide = PointSelect(columns, row)
    print(f"prepared point SELECT, 1 column    {microseconds(lambda: narrow.take(request)):6.2f} µs")
    print(f"prepared point SELECT, 4 columns   {microseconds(lambda: wide.take(request)):6.2f} µs")

    frames = Frames()
    frames.open_session()

    def cut() -> None:
        frames.feed(request)
        for _ in frames:
            pass

    bind_payload, many = bind.payload(), m.Bind("", "P_0", (), (b"1", b"2", b"3", b"4"), ()).payload()
    decode_bind = m.Bind.decode
    encoders = [b"%d".__mod__, None, None, b"%d".__mod__]
    encode_row, encode_rows, rows = row_encoder(encoders), rows_encoder(encoders), [row] * 1000
    decode_describe, decode_execute = m.Describe.decode, m.Execute.decode
    for name, act in (
        ("  cutting 4 frames", cut),
        ("  Bind, 1 parameter", lambda: decode_bind(bind_payload)),
        ("  Bind, 4 parameters", lambda: decode_bind(many)),
        ("  Describe", lambda: decode_describe(b"P\0")),
        ("  Execute", lambda: decode_execute(b"\0\0\0\0\0")),
        ("  row of 1 column", lambda: narrow.encode_row((-1234,))),
        ("  row of 4 columns", lambda: encode_row(row)),
    ):
        print(f"{name:<35}{microseconds(act):6.2f} µs")
    in_batch = microseconds(lambda: encode_rows(rows), calls=50) / len(rows)
    print(f"{'  row of 4 columns, in a batch':<35}{in_batch:6.2f} µs")


if __name__ == "__main__":
    main()
