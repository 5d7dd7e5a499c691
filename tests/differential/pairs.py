"""One expression, spelled for Shoal and for PostgreSQL.

Here: Pair, and how literals and operators are put into both texts at once.
Not here: which expressions there are (expressions.py), queries of them (queries.py).

The dialects mean the same by most texts. Where they don't, each is told exactly: PostgreSQL's integer
literals are int4 and its `1e5` is a numeric; Shoal's casts to INT truncate, and its texts of booleans are in
capitals.

A Pair also says how large its value can be. So we know which operations may overflow, and which sums are exact
whatever the order of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

# How strongly the outermost operator binds, where both dialects agree. They don't about predicates, so an
# operand of one never is one without parentheses.
OR, AND, NOT, PREDICATE, CONCAT, ADD, MULTIPLY, SIGN, ATOM = range(1, 10)

INT, DECIMAL, DOUBLE, TEXT, BOOL, UUID, DATETIME = (
    "int",
    "decimal",
    "double",
    "text",
    "bool",
    "uuid",
    "datetime",
)
KINDS: Final = (INT, DECIMAL, DOUBLE, TEXT, BOOL, UUID, DATETIME)
NUMBERS: Final = (INT, DECIMAL, DOUBLE)
THEIR_TYPES: Final = {
    INT: "int8",
    DECIMAL: "numeric",
    DOUBLE: "float8",
    TEXT: "text",
    BOOL: "bool",
    UUID: "uuid",
    DATETIME: "timestamptz",
}


@dataclass(frozen=True, slots=True)
class Pair:
    ours: str
    theirs: str
    kind: str
    level: int = ATOM
    # Of numbers: digits before and after the point; binary ones, but for DECIMAL.
    size: int = 0
    scale: int = 0
    exact: bool = True  # False: the last digits may differ

    def at(self, level: int) -> tuple[str, str]:
        """The texts as an operand of an operator that binds that strongly."""
        if self.level >= level:
            return self.ours, self.theirs
        return f"({self.ours})", f"({self.theirs})"


def same(text: str, kind: str, level: int = ATOM, **sizes: int) -> Pair:
    return Pair(text, text, kind, level, **sizes)


def infix(left: Pair, op: str, right: Pair, kind: str, level: int) -> Pair:
    """left op right; what stands to the right of an operator of its own level is in parentheses."""
    a, x = left.at(level)
    b, y = right.at(level + 1)
    return Pair(f"{a} {op} {b}", f"{x} {op} {y}", kind, level)


def call(name: str, *args: Pair, kind: str, theirs: str = "{}") -> Pair:
    """A function with one name; `theirs` is what goes around PostgreSQL's call."""
    ours = f"{name}({', '.join(arg.ours for arg in args)})"
    other = f"{name}({', '.join(arg.theirs for arg in args)})"
    return Pair(ours, theirs.format(other), kind)


def filled(ours: str, theirs: str, *args: Pair, kind: str, level: int = ATOM) -> Pair:
    """Two texts with a place {} for each argument, which is put there as an atom."""
    atoms = [arg.at(ATOM) for arg in args]
    return Pair(
        ours.format(*(atom[0] for atom in atoms)),
        theirs.format(*(atom[1] for atom in atoms)),
        kind,
        level,
    )


def sized(pair: Pair, size: int, scale: int = 0, exact: bool = True) -> Pair:
    return replace(pair, size=size, scale=scale, exact=exact)


# --- literals ------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def int_literal(value: int) -> Pair:
    size = abs(value).bit_length()
    return Pair(str(value), f"'{value}'::int8", INT, SIGN if value < 0 else ATOM, size)


def decimal_literal(text: str) -> Pair:
    whole, _, fraction = text.lstrip("-").partition(".")
    pair = Pair(text, f"'{text}'::numeric", DECIMAL, SIGN if text.startswith("-") else ATOM)
    return sized(pair, len(whole.lstrip("0")), len(fraction))


def double_literal(value: float) -> Pair:
    """A number with few binary digits after the point."""
    scale = 0
    while value * 2**scale != int(value * 2**scale):
        scale += 1
    text = f"{value!r}e0" if "e" not in repr(value) else repr(value)
    pair = Pair(text, f"'{text}'::float8", DOUBLE, SIGN if value < 0 else ATOM)
    return sized(pair, int(abs(value)).bit_length(), scale)


def text_literal(text: str) -> Pair:
    return Pair(quoted(text), f"{quoted(text)}::text", TEXT)


def typed_literal(text: str, kind: str) -> Pair:
    """One that is a string with a cast: uuid, datetime."""
    return Pair(f"{quoted(text)}::{kind}", f"{quoted(text)}::{THEIR_TYPES[kind]}", kind)


def null(kind: str) -> Pair:
    return Pair(f"NULL::{kind}", f"NULL::{THEIR_TYPES[kind]}", kind)
