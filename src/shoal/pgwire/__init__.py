"""The PostgreSQL protocol, version 3.0, without sockets: bytes in, bytes out.

A connection is a stream of bytes in each direction. codec.py cuts the client's stream into frames, messages/
reads what a frame says, and phases.py knows whether it may come now. At the start there are questions of
who (auth.py) and how (startup.py), and an answer that tells the settings (settings.py). Then come statements,
whose answers are mostly rows (rows.py). All of it can be watched without a network: the tests hold
conversations as text.

A server steps through it like this; the docstring of codec.py runs the middle part.

    frames.startup()            bytes → the untyped packet → decode_startup() → read_startup()
    authenticate()              asks and checks, until it returns the last messages
    for kind, payload in frames:
        STEPS[phase][kind]      the next phase, or None: frontend_type() says why not
        Bind.decode(payload)    and so on; answers are appended, and written once per chunk

Three kinds of mistakes are told apart. A frame that is malformed or out of phase ends the connection, for the
stream is out of step. A payload that is malformed is an error like that of a wrong statement. And what breaks an
assertion is ours.

Not here yet: COPY's phases, GSSAPI, channel binding, protocol 3.2.
"""

from __future__ import annotations

from shoal.pgwire.auth import Exchange, Method, authenticate, make_secret, parse_secret, trust
from shoal.pgwire.codec import FRAME_BYTES_MAX, BackendFrames, Frame, Frames, encode_all
from shoal.pgwire.phases import NEXT, STEPS, Phase, diagram, frontend_type, step
from shoal.pgwire.rows import Row, RowEncoder, RowsEncoder, row_encoder, rows_encoder
from shoal.pgwire.settings import REPORTED, server_version, statuses_after_login
from shoal.pgwire.startup import StartupParameters, negotiate, read_options, read_startup

__all__ = [
    "FRAME_BYTES_MAX",
    "NEXT",
    "REPORTED",
    "STEPS",
    "BackendFrames",
    "Exchange",
    "Frame",
    "Frames",
    "Method",
    "Phase",
    "Row",
    "RowEncoder",
    "RowsEncoder",
    "StartupParameters",
    "authenticate",
    "diagram",
    "encode_all",
    "frontend_type",
    "make_secret",
    "negotiate",
    "parse_secret",
    "read_options",
    "read_startup",
    "row_encoder",
    "rows_encoder",
    "server_version",
    "statuses_after_login",
    "step",
    "trust",
]
