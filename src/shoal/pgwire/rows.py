"""Rows onto the wire: a function made for each shape of row, which writes DataRow from storage forms.

Here: row_encoder() for the one row of a point statement, rows_encoder() for batches.
Not here: how a single value is written (types/text.py, types/binary.py), RowDescription
(messages/backend.py).

A row is the hottest thing that a database writes, and most of its time would go into looping over columns
that are the same for every row. So the loop is unrolled: for two columns the generated function reads

    def encode_row(row):
        c0, c1, = row
        v0 = NULL if c0 is None else size(len(v := encode0(c0))) + v
        v1 = NULL if c1 is None else size(len(v := encode1(c1))) + v
        body = v0 + v1
        return header(68, 6 + len(body), 2) + body

Ask for an encoder once per statement and result formats, and keep it with the plan.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from shoal.pgwire.messages import DataRow
from shoal.types import Encoder, Stored

Row: TypeAlias = tuple[Stored, ...]
RowEncoder: TypeAlias = Callable[[Row], bytes]
RowsEncoder: TypeAlias = Callable[[Iterable[Row]], bytes]

_Shape: TypeAlias = Callable[[Sequence[Callable[..., bytes]]], tuple[RowEncoder, RowsEncoder]]

# Adding up to a few bytes objects beats joining them; beyond that each sum copies what is there already.
_SUM_COLUMNS_MAX: Final = 6

_NAMES: Final[Mapping[str, object]] = {
    "NULL": b"\xff\xff\xff\xff",
    "size": struct.Struct(">i").pack,
    "header": struct.Struct(">BIH").pack,
    "join": b"".join,
}


def row_encoder(encoders: Sequence[Encoder | None]) -> RowEncoder:
    """One row → its DataRow. An encoder per column; None says: the storage form is the text itself.

    Encoders never see None, which is NULL in every type. C functions (str.encode, b"%d".__mod__,
    Struct(">q").pack) are called without an interpreter frame, at half the price.
    """
    return _functions(encoders)[0]


def rows_encoder(encoders: Sequence[Encoder | None]) -> RowsEncoder:
    """Rows → their DataRows in one piece, a little cheaper per row than row_encoder()."""
    return _functions(encoders)[1]


def _functions(encoders: Sequence[Encoder | None]) -> tuple[RowEncoder, RowsEncoder]:
    return _shape(len(encoders))([str.encode if encoder is None else encoder for encoder in encoders])


@functools.cache
def _shape(column_count: int) -> _Shape:
    """Makes the encoders of all rows with so many columns; compiling is paid once, not per statement."""
    columns = range(column_count)
    steps = [
        f"{''.join(f'c{n}, ' for n in columns) or '()'} = row",
        *(f"v{n} = NULL if c{n} is None else size(len(v := encode{n}(c{n}))) + v" for n in columns),
        f"body = {_sum([f'v{n}' for n in columns])}",
    ]
    # 6: the frame's length counts itself and the number of columns, not the type byte.
    data_row = f"header({DataRow.kind}, 6 + len(body), {column_count}) + body"
    lines = [
        "def shape(encoders):",
        f"    {''.join(f'encode{n}, ' for n in columns) or '()'} = encoders",
        "    def encode_row(row):",
        *(f"        {step}" for step in steps),
        f"        return {data_row}",
        "    def encode_rows(rows):",
        "        messages = []",
        "        for row in rows:",
        *(f"            {step}" for step in steps),
        f"            messages.append({data_row})",
        "        return join(messages)",
        "    return encode_row, encode_rows",
    ]
    namespace: dict[str, object] = dict(_NAMES)
    exec(compile("\n".join(lines), f"<rows of {column_count} columns>", "exec"), namespace)
    shape: _Shape = namespace["shape"]  # type: ignore[assignment]  # exec() has no types
    return shape


def _sum(names: Sequence[str]) -> str:
    if not names:
        return 'b""'
    if len(names) <= _SUM_COLUMNS_MAX:
        return " + ".join(names)
    return f"join(({', '.join(names)}))"
