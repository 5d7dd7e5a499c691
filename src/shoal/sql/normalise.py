"""A text without its literals: what the simple protocol looks up in the cache of plans.

`SELECT * FROM t WHERE id = 7` and `… = 8` are one statement with two values. normalise() takes the
literals out of a text, in a few microseconds and without parsing it; what is left, the template, says of
each literal only its kind. Two texts with one template have the same tree, but for places and the texts
of literals; the n-th literal is that of `slot` n in the tree.

This holds for texts that parse. A text that doesn't has a template, too, which is nobody else's: so its
statement is parsed, and refused, each time.

Here: normalise().
Not here: whether a plan holds for all values of its literals (bind/ knows which it looked at), values
(types/), tokens (lexer.py).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shoal.sql.lexer import WORD_REST

# Beyond that, a template costs more memory than a plan is worth, and no statement is so long twice.
TEXT_CHARACTERS_MAX: Final = 256 * 1024
# An integer of so many digits is an INT surely: one with more may not be, and so is another statement.
INTEGER_DIGITS_MAX: Final = 18
NUMBER_CHARACTERS_MAX: Final = 38

# What stands for a literal. No text that parses holds these characters outside of quotes.
INTEGER: Final = "\x01"
DECIMAL: Final = "\x02"
DOUBLE: Final = "\x03"
STRING: Final = "\x04"


class Normalised(NamedTuple):
    template: str
    literals: tuple[str, ...]  # as in ast.Literal.text: digits without a sign, a string's value


# One literal or name in quotes; or, as a single character or two, something that this can't be sure of:
# a comment, a dollar quote, E'…', an open quote, a character that marks a literal. The first character is
# taken before the alternatives look back at it: that lets the regex engine skip to it quickly.
_PIECE: Final = re.compile(
    rf"""(
      [0-9.'"$/\-\x00-\x04](?:
        (?<=[0-9])(?<!{WORD_REST}[0-9])[0-9]*+(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?
      | (?<=\.)[0-9]++(?:[eE][+-]?[0-9]++)?
      | (?<=')(?<!{WORD_REST}')(?<!&')[^'\x00\ud800-\udfff]*+(?:''[^'\x00\ud800-\udfff]*+)*+'
      | (?<=")(?<!&")[^"]*+(?:""[^"]*+)*+"
      | (?<=-)-
      | (?<=/)\*
      | (?<=\$)(?![0-9])
      | (?<=['"\x00-\x04])
      )
    )""",
    re.VERBOSE,
)


def normalise(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> Normalised | None:
    """The template and the literals of a text; None if a look without parsing can't be sure of them."""
    if len(text) > characters_max:
        return None
    pieces = _PIECE.split(text)
    literals = []
    for index in range(1, len(pieces), 2):
        piece = pieces[index]
        first = piece[0]
        if first == "'" and len(piece) > 1:
            literals.append(piece[1:-1].replace("''", "'"))
            pieces[index] = STRING
        elif piece.isdigit():
            if len(piece) > INTEGER_DIGITS_MAX:
                return None
            literals.append(piece)
            pieces[index] = INTEGER
        elif first in "0123456789.":
            if len(piece) > NUMBER_CHARACTERS_MAX:
                return None
            literals.append(piece)
            pieces[index] = DOUBLE if "e" in piece or "E" in piece else DECIMAL
        elif first != '"' or len(piece) == 1:
            return None
    return Normalised("".join(pieces), tuple(literals))
