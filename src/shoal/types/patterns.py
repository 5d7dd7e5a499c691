"""ILIKE, SIMILAR TO, and SUBSTRING by a pattern.

Here: what each pattern means, as functions of the text.
Not here: LIKE, which SQLite does itself; the machine behind these (regex.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from shoal.errors import InvalidEscape
from shoal.types.regex import compile_regex

__all__ = ["ilike", "similar", "substring_regex", "substring_similar"]


def _checked_escape(escape: str) -> str:
    if len(escape) > 1:
        raise InvalidEscape("ESCAPE expression must be a single character")
    return escape


def ilike(pattern: str, escape: str) -> Callable[[str], bool]:
    """LIKE without case. An empty escape means that nothing escapes."""
    _checked_escape(escape)
    parts: list[str] = [""]  # regular expressions between the %
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            literal = next(letters, None)
            if literal is None:
                raise InvalidEscape("LIKE pattern must not end with escape character")
            parts[-1] += re.escape(literal)
        elif letter == "%":
            parts.append("")
        else:
            parts[-1] += "." if letter == "_" else re.escape(letter)
    if len(parts) == 1:
        return _matcher(parts[0])
    # Each part is found as early as possible and never tried again: nothing is gained by a later place, so
    # the time is linear in the text.
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return _matcher(f"{parts[0]}{middle}(?=.*{parts[-1]}\\Z).*" if parts[-1] else f"{parts[0]}{middle}.*")


def _matcher(pattern: str) -> Callable[[str], bool]:
    match = re.compile(pattern, re.IGNORECASE | re.DOTALL).fullmatch
    return lambda text: match(text) is not None


# --- SIMILAR TO ----------------------------------------------------------------------------------

_LITERAL_HERE: Final = frozenset(".^$\\")  # what the other language has a meaning for


def similar(pattern: str, escape: str) -> Callable[[str], bool]:
    """SIMILAR TO: the whole text, % and _ as in LIKE, | * + ? {m,n} ( ) [ ] as in regular expressions."""
    parts = _similar_parts(pattern, escape)
    if len(parts) > 1:
        raise InvalidEscape("escape-double-quote separators are for SUBSTRING only")
    return compile_regex(parts[0]).fullmatch


def _similar_parts(pattern: str, escape: str) -> list[str]:
    """The pattern as regular expressions, cut at its escape-double-quote separators."""
    _checked_escape(escape)
    parts = [""]
    in_brackets = False
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            escaped = next(letters, None)
            if escaped is None:
                raise InvalidEscape("SIMILAR TO pattern must not end with escape character")
            if escaped == '"' and not in_brackets:
                parts.append("")
            else:
                parts[-1] += f"\\{escaped}"
        elif in_brackets:
            parts[-1] += "\\\\" if letter == "\\" else letter
            in_brackets = letter != "]"
        elif letter == "[":
            parts[-1] += letter
            in_brackets = True
        elif letter == "%":
            parts[-1] += ".*"
        elif letter == "_":
            parts[-1] += "."
        elif letter == "(":
            parts[-1] += "(?:"
        elif letter in _LITERAL_HERE:
            parts[-1] += f"\\{letter}"
        else:
            parts[-1] += letter
    if len(parts) > 3:
        raise InvalidEscape(
            "SQL regular expression may not contain more than two escape-double-quote separators"
        )
    return parts


# --- SUBSTRING -----------------------------------------------------------------------------------


def substring_regex(text: str, pattern: str) -> str | None:
    """SUBSTRING(text FROM pattern): the first match, or what its first group took."""
    regex = compile_regex(pattern)
    spans = regex.search(text)
    if spans is None:
        return None
    start, end = spans[2:4] if regex.groups else spans[0:2]
    return None if start is None or end is None else text[start:end]


def substring_similar(text: str, pattern: str, escape: str) -> str | None:
    """SUBSTRING(text SIMILAR pattern ESCAPE escape): what matches between the two separators.

    The part before takes as little as it can, the part between as much as it can.
    """
    if len(escape) != 1:
        raise InvalidEscape("invalid escape string")
    spans = compile_regex(_substring_pattern(pattern, escape)).search(text)
    if spans is None:
        return None
    start, end = spans[2], spans[3]
    return None if start is None or end is None else text[start:end]


@lru_cache(maxsize=500)
def _substring_pattern(pattern: str, escape: str) -> str:
    parts = _similar_parts(pattern, escape)
    if len(parts) == 1:
        return f"^({parts[0]})$"
    before, between, *behind = parts
    return f"^(?U:{before})({between})(?:{behind[0] if behind else ''})$"
