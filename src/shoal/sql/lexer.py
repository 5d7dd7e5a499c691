"""From a text to tokens, each with its place.

Here: what a word, a name in quotes, a literal, a parameter and a symbol look like, and the words that
need quotes when they are names.
Not here: what the tokens mean together (parser/), a text's template (normalise.py, which agrees with
this module on what a literal is, and numbers them alike).

A character that begins no token is a symbol of its own that no rule of the grammar takes: so it is the
parser who refuses it, in the order in which a reader meets the mistakes.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from shoal.errors import (
    FeatureNotSupported,
    InvalidCharacter,
    NameTooLong,
    ProgramLimitExceeded,
    SqlSyntaxError,
    StatementTooComplex,
    UndefinedParameter,
)

TEXT_CHARACTERS_MAX: Final = 16 * 1024 * 1024
# A token costs some 150 bytes, a node of the tree as much again.
TOKENS_MAX: Final = 2_000_000
NAME_BYTES_MAX: Final = 65_000
PARAMETER_MAX: Final = 65_535  # Bind counts parameters in 16 bits


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# These need quotes to be names. The words of what goes beyond this list (OFFSET, FETCH, INTERSECT, RIGHT,
# CROSS, RETURNING, ANY, LIKE, …) are told from names by what follows them: see parser/cursor.py.
RESERVED: Final = words(
    """all and array as asc begin between by case cast current_date current_time current_timestamp desc
    distinct else end except exists false filter from group having in inner into is join left limit
    localtime localtimestamp not null on option or order outer over primary select set similar substring
    table then to true union using values when where window with"""
)


class TokenKind(Enum):
    WORD = "word"  # a keyword or an unquoted name
    QUOTED = "quoted name"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"
    STRING = "string"
    PARAMETER = "parameter"
    SYMBOL = "symbol"
    END = "end of input"


class Token(NamedTuple):
    kind: TokenKind
    key: str  # what the grammar compares: a word in lower case or a symbol; "" for all others
    value: str  # a name folded or unquoted, a number's digits, a string's value
    at: int
    end: int
    number: int  # a literal's slot, a parameter's number, else -1


# What a word may begin with and go on with: everything but ASCII's symbols, controls and white space.
_WORD_START: Final = r"[^\x00-\x40\x5b-\x5e\x60\x7b-\x9f\s\d]"
WORD_REST: Final = r"[^\x00-\x23\x25-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\s]"

_TOKEN: Final = re.compile(
    rf"""\s*+(?:
      (?P<prefixed>[eEbBxXnN]'|[uU]&['"])
    | (?P<word>{_WORD_START}{WORD_REST}*+)
    | (?P<double>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)[eE][+-]?[0-9]++)
    | (?P<decimal>[0-9]++\.[0-9]*+|\.[0-9]++)
    | (?P<integer>[0-9]++)
    | (?P<string>'[^']*+(?:''[^']*+)*+')
    | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    | (?P<parameter>\$[0-9]++|\?)
    | (?P<comment>--[^\r\n]*+|/\*)
    | (?P<dollar>\$(?:{_WORD_START}[^\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\s]*+)?\$)
    | (?P<symbol><>|!=|<=|>=|\|\||::|:=|=>|->>?|\+\+|\*\*|//|.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_JUNK: Final = re.compile(rf"(?:{_WORD_START}|\$){WORD_REST}*+")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")

_NUMBER_KINDS: Final = {kind.value: kind for kind in (TokenKind.INTEGER, TokenKind.DECIMAL, TokenKind.DOUBLE)}
# The parser looks at most this far ahead, and needs no bounds check for it.
LOOKAHEAD: Final = 6


def tokenize(text: str) -> list[Token]:
    """All tokens of the text, and LOOKAHEAD times the end behind them."""
    _check_characters(text)
    tokens: list[Token] = []
    slot = 0  # of the next literal
    marks = 0  # `?` so far
    position = 0
    match_token = _TOKEN.match
    word_kind, symbol_kind, string_kind = TokenKind.WORD, TokenKind.SYMBOL, TokenKind.STRING
    while match := match_token(text, position):
        group = match.lastgroup
        assert group is not None
        raw = match[group]
        position = end = match.end()
        at = end - len(raw)
        if group == "word":
            word = raw.lower()
            if len(word) > NAME_BYTES_MAX // 4:
                _check_name_length(word, at)
            tokens.append(Token(word_kind, word, word, at, end, -1))
        elif group == "symbol":
            if raw in ("'", '"'):
                raise _unterminated(text, at, "quoted string" if raw == "'" else "quoted identifier")
            tokens.append(Token(symbol_kind, raw, raw, at, end, -1))
        elif group == "string":
            tokens.append(Token(string_kind, "", raw[1:-1].replace("''", "'"), at, end, slot))
            slot += 1
        elif group in _NUMBER_KINDS:
            _check_junk(text, at, end, "numeric literal")
            tokens.append(Token(_NUMBER_KINDS[group], "", raw, at, end, slot))
            slot += 1
        elif group == "quoted":
            name = raw[1:-1].replace('""', '"')
            _check_name_length(name, at)
            tokens.append(Token(TokenKind.QUOTED, "", name, at, end, -1))
        elif group == "parameter":
            if raw == "?":
                marks += 1
                number = marks
            else:
                _check_junk(text, at, end, "parameter")
                number = _parameter_number(raw, at)
            tokens.append(Token(TokenKind.PARAMETER, "", raw, at, end, number))
        elif group == "comment":
            if raw == "/*":
                position = _comment_end(text, at)
        else:
            read = _dollar_string if group == "dollar" else _escape_string
            value, position = read(text, at, raw)
            tokens.append(Token(string_kind, "", value, at, position, slot))
            slot += 1
        if len(tokens) > TOKENS_MAX:
            raise StatementTooComplex(f"the text has more than {TOKENS_MAX} words and symbols")
    if marks:
        _check_marks(tokens, marks)
    length = len(text.rstrip())
    tokens += [Token(TokenKind.END, "", "", length, length, -1)] * LOOKAHEAD
    return tokens


def _check_name_length(name: str, at: int) -> None:
    if not name:
        raise SqlSyntaxError("zero-length delimited identifier: expected non empty name", position=at + 1)
    size = len(name.encode("utf-8"))
    if size > NAME_BYTES_MAX:
        raise NameTooLong(f"a name of {size} bytes, the most is {NAME_BYTES_MAX}", position=at + 1)


def _check_characters(text: str) -> None:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ProgramLimitExceeded(f"a text of {len(text)} characters, the most is {TEXT_CHARACTERS_MAX}")
    if "\0" in text:
        raise InvalidCharacter("the text holds a NUL character", position=text.index("\0") + 1)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidCharacter(
                "the text holds half a surrogate pair, which is no character", position=error.start + 1
            ) from None


def _check_junk(text: str, at: int, end: int, what: str) -> None:
    if junk := _JUNK.match(text, end):
        raise SqlSyntaxError(
            f'trailing junk after {what} at or near "{text[at : junk.end()]}"',
            position=at + 1,
            detail="rule parsing error",
        )


def _check_marks(tokens: list[Token], marks: int) -> None:
    for token in tokens:
        if token.kind is TokenKind.PARAMETER and token.value != "?":
            raise SqlSyntaxError(
                "invalid parameters usage. Got $n and ? parameters in one query!", position=token.at + 1
            )
    if marks > PARAMETER_MAX:
        raise SqlSyntaxError(f"more than {PARAMETER_MAX} parameters")


def _parameter_number(text: str, at: int) -> int:
    digits = text[1:].lstrip("0")
    if len(digits) > 5 or (digits and int(digits) > PARAMETER_MAX):
        raise SqlSyntaxError(
            f'parameter number too large at or near "{text[:20]}": the most is {PARAMETER_MAX}',
            position=at + 1,
        )
    if not digits:
        raise UndefinedParameter(f"there is no parameter {text}: they are numbered from 1", position=at + 1)
    return int(digits)


def _comment_end(text: str, at: int) -> int:
    """The place behind the comment that begins at `at`. Comments nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise _unterminated(text, at, "/* comment")


_ESCAPE: Final = re.compile(
    r"""(?P<plain>[^'\\]++)
    | ''
    | \\(?:
        (?P<octal>[0-7]{1,3})
      | x(?P<hex>[0-9a-fA-F]{1,2})
      | u(?P<short>[0-9a-fA-F]{4})
      | U(?P<long>[0-9a-fA-F]{8})
      | (?P<wrong>[uU])
      | (?P<letter>.)
      )""",
    re.VERBOSE | re.DOTALL,
)
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _dollar_string(text: str, at: int, quote: str) -> tuple[str, int]:
    """The value of $tag$…$tag$ and the place behind it."""
    start = at + len(quote)
    close = text.find(quote, start)
    if close < 0:
        raise _unterminated(text, at, "dollar-quoted string")
    return text[start:close], close + len(quote)


def _escape_string(text: str, at: int, quote: str) -> tuple[str, int]:
    r"""The value of E'…' and the place behind it.

    \x and octal escapes name bytes, as in PostgreSQL: several may make one UTF-8 character. So the value
    is put together as bytes.
    """
    if quote not in ("e'", "E'"):
        raise FeatureNotSupported(
            f"literals with the prefix {quote[:-1]} are not supported yet", position=at + 1
        )
    value = bytearray()
    position = at + len(quote)
    while match := _ESCAPE.match(text, position):
        group = match.lastgroup
        if group is None:
            value += b"'"
        elif group == "plain":
            value += match["plain"].encode("utf-8")
        elif group == "letter":
            value += _LETTERS.get(match["letter"], match["letter"]).encode("utf-8")
        elif group == "octal":
            value.append(int(match["octal"], 8) & 0xFF)
        elif group == "hex":
            value.append(int(match["hex"], 16))
        else:
            position = _unicode_escape(text, position, value)
            continue
        position = match.end()
    if text[position : position + 1] != "'":
        raise _unterminated(text, at, "quoted string")
    try:
        decoded = value.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidCharacter("the escapes of the string are not valid UTF-8", position=at + 1) from None
    if "\0" in decoded:
        raise InvalidCharacter("a string can't hold a NUL character", position=at + 1)
    return decoded, position + 1


_SURROGATES: Final = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)


def _unicode_escape(text: str, position: int, value: bytearray) -> int:
    r"""Adds \uXXXX or \UXXXXXXXX to the value; a surrogate pair is two \uXXXX. Gives the place behind."""
    if pair := _SURROGATES.match(text, position):
        high, low = int(pair[1], 16), int(pair[2], 16)
        value += chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)).encode("utf-8")
        return pair.end()
    match = _ESCAPE.match(text, position)
    assert match is not None
    code = int(match["short"] or match["long"] or "110000", 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise SqlSyntaxError("invalid Unicode escape in a string", position=position + 1)
    value += chr(code).encode("utf-8")
    return match.end()


def _unterminated(text: str, at: int, what: str) -> SqlSyntaxError:
    return SqlSyntaxError(
        f'unterminated {what} at or near "{text[at : at + 40]}"',
        position=at + 1,
        detail="rule parsing error",
    )
