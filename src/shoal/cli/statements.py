"""Where one SQL statement ends and the next begins.

Here: a scanner that knows just enough of SQL to find the semicolons: quotes, comments, dollar quotes.
Not here: whether the statement is right, which the server says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# In the order in which they are tried: anything in which a semicolon doesn't count, then the semicolon.
_PIECE = re.compile(
    r"""
      (?P<comment> --[^\n]* )
    | (?P<block> /\* )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" )
    | (?P<dollar> \$(?P<tag>(?:[A-Za-z_][A-Za-z0-9_]*)?)\$ .*? \$(?P=tag)\$ )
    | (?P<open> ['"] | \$(?:[A-Za-z_][A-Za-z0-9_]*)?\$ )
    | (?P<end> ; )
    | (?P<space> \s+ )
    | (?P<word> [^\W\d][\w$]* | \d\w* | \$\d+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")


class Unfinished(Exception):
    """A quote or a comment that the text doesn't close."""


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that a semicolon ends (without it), and what comes after the last one.

    The rest is "" when nothing but spaces and comments is left.
    """
    statements: list[str] = []
    start = 0
    says_something = False
    try:
        for kind, begin, end in _pieces(text):
            if kind == "end":
                if says_something:
                    statements.append(text[start:begin].strip())
                start, says_something = end, False
            elif kind not in ("space", "comment", "block"):
                says_something = True
    except Unfinished:
        return statements, text[start:].strip()
    return statements, text[start:].strip() if says_something else ""


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        assert match is not None  # `other` takes any character
        kind, end = str(match.lastgroup), match.end()
        if kind == "tag":  # the last group to close, inside `dollar`
            kind = "dollar"
        if kind == "open":
            raise Unfinished
        if kind == "block":
            end = _end_of_block(text, end)
        yield kind, at, end
        at = end


def _end_of_block(text: str, at: int) -> int:
    """Block comments nest, as in PostgreSQL."""
    depth = 1
    while depth:
        edge = _BLOCK_EDGE.search(text, at)
        if edge is None:
            raise Unfinished
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at
