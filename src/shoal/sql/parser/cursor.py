"""The place in the tokens, and what every part of the grammar asks of it.

Here: looking, taking and demanding tokens, names, refusals, the bound on nesting, and telling the words
that are keywords only in their context from names.
Not here: any rule of the grammar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from shoal.errors import FeatureNotSupported, SqlSyntaxError, StatementTooComplex
from shoal.sql.ast import Literal, LiteralKind, Name, Wait
from shoal.sql.lexer import RESERVED, Token, TokenKind, tokenize, words

T = TypeVar("T")

# How deep brackets, operands and subqueries nest: the parser calls itself for each level.
NESTING_MAX: Final = 200

NUMBERS: Final = {
    TokenKind.INTEGER: LiteralKind.INTEGER,
    TokenKind.DECIMAL: LiteralKind.DECIMAL,
    TokenKind.DOUBLE: LiteralKind.DOUBLE,
}

_JOINS: Final = frozenset(("join", "outer"))
_QUERY_STARTS: Final = frozenset(("select", "values", "with"))
# Behind an alias or a column one of these follows, and no expression begins with it.
_ITEM_ENDS: Final = words(
    """, ) ] ; from where group having order limit union except on join left inner set window option as
    then when else end using and or is in not between asc desc with
    offset fetch intersect right cross full natural returning like ilike"""
)


class Cursor:
    """Where the parser is. Each method looks at, or moves behind, the tokens in front."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.token = self.tokens[0]
        self.nesting = 0
        self.literals = 0  # nodes of literals so far

    # --- looking and taking ---

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[self.index + ahead]

    def advance(self) -> Token:
        token = self.token
        self.index += 1
        self.token = self.tokens[self.index]
        return token

    def accept(self, key: str) -> bool:
        """Takes the word or symbol if it is next."""
        if self.token.key == key:
            self.index += 1
            self.token = self.tokens[self.index]
            return True
        return False

    def ahead(self, *keys: str) -> bool:
        """Whether these words and symbols are next, in this order."""
        return self.token.key == keys[0] and all(
            self.tokens[self.index + offset].key == key for offset, key in enumerate(keys)
        )

    def accept_all(self, *keys: str) -> bool:
        """Takes all of these words and symbols, or none."""
        if not self.ahead(*keys):
            return False
        self.index += len(keys)
        self.token = self.tokens[self.index]
        return True

    def expect(self, *keys: str) -> Token:
        """Takes these words and symbols, or refuses the first that isn't there. Gives the first."""
        first = self.token
        for key in keys:
            if self.token.key != key:
                raise self.unexpected(key.upper() if key.isalpha() else f'"{key}"')
            self.advance()
        return first

    def one_of(self, *keys: str) -> str:
        if self.token.key not in keys:
            raise self.unexpected(" or ".join(key.upper() for key in keys))
        return self.advance().key

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """item, item, …"""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return tuple(items)

    def bracketed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """(item, item, …)"""
        self.expect("(")
        items = self.listed(item)
        self.expect(")")
        return items

    # --- names ---

    def is_name(self, token: Token) -> bool:
        return (token.kind is TokenKind.WORD and token.key not in RESERVED) or token.kind is TokenKind.QUOTED

    def name(self, what: str = "a name") -> Name:
        token = self.token
        if not self.is_name(token):
            raise self.unexpected(what)
        self.advance()
        return Name(token.value, token.at)

    def label(self, what: str = "a name") -> Name:
        """A name where no keyword can stand: behind AS or a dot."""
        token = self.token
        if token.kind is not TokenKind.WORD and token.kind is not TokenKind.QUOTED:
            raise self.unexpected(what)
        self.advance()
        return Name(token.value, token.at)

    def names(self) -> tuple[Name, ...]:
        """(a, b, …)"""
        return self.bracketed(self.name)

    def bare_alias(self) -> Name | None:
        """An alias without AS: any name but a word that goes on with the statement."""
        token = self.token
        if token.kind is TokenKind.QUOTED or (
            token.kind is TokenKind.WORD and token.key not in RESERVED and not self.is_clause()
        ):
            self.advance()
            return Name(token.value, token.at)
        return None

    def is_clause(self) -> bool:
        """Whether the word in front, which isn't reserved, begins a clause rather than being a name."""
        following = self.tokens[self.index + 1].key
        match self.token.key:
            case "right" | "full" | "cross":
                return following in _JOINS
            case "natural":
                return following in ("join", "left", "inner", "right", "full")
            case "intersect":
                return following in _QUERY_STARTS or following in ("(", "all", "distinct")
            case "fetch":
                return following in ("first", "next")
            case "for":
                return following in ("update", "share", "no", "key")
            case "indexed":
                return following == "by"
            case "offset" | "returning" | "like" | "ilike" | "escape" | "collate":
                return not self.ends_item(1)
            case "at":
                return following == "time"
            case _:
                return False

    def ends_item(self, ahead: int) -> bool:
        """Whether an item of a list may end before that token: no expression can begin with it."""
        token = self.tokens[self.index + ahead]
        return token.kind is TokenKind.END or token.key in _ITEM_ENDS

    def starts_query(self, ahead: int = 0) -> bool:
        return self.tokens[self.index + ahead].key in _QUERY_STARTS

    # --- literals ---

    def literal(self, kind: LiteralKind, sign: Token | None = None) -> Literal:
        """The literal in front; the sign that belongs to it has been taken."""
        token = self.advance()
        self.literals += 1
        if sign is None:
            return Literal(kind, token.value, False, token.number, token.at)
        return Literal(kind, token.value, sign.key == "-", token.number, sign.at)

    def unsigned_integer(self) -> int:
        """A small number that is no expression."""
        if self.token.kind is not TokenKind.INTEGER or len(self.token.value) > 9:
            raise self.unexpected("a small number")
        return int(self.advance().value)

    def string(self) -> str:
        """A string that is no expression."""
        if self.token.kind is not TokenKind.STRING:
            raise self.unexpected("a string")
        return self.advance().value

    def timeout(self) -> str | None:
        """[OPTION (TIMEOUT = seconds)], of a statement that waits for other instances."""
        if not self.accept("option"):
            return None
        self.expect("(", "timeout", "=")
        if self.token.kind not in NUMBERS:
            raise self.unexpected("a number of seconds")
        seconds = self.advance().value
        self.expect(")")
        return seconds

    def _wait(self) -> Wait:
        """[WAIT APPLIED {GLOBALLY | LOCALLY}] [OPTION (TIMEOUT = seconds)]"""
        globally = True
        if self.accept("wait"):
            self.expect("applied")
            globally = self.one_of("globally", "locally") == "globally"
        return Wait(globally, self.timeout())

    # --- refusing ---

    def unexpected(self, expected: str = "", *, hint: str | None = None) -> SqlSyntaxError:
        """The token in front is none that can stand here."""
        token = self.token
        detail = f"rule parsing error: expected {expected}" if expected else "rule parsing error"
        if token.kind is TokenKind.END:
            message = "syntax error at end of input"
        else:
            message = f'syntax error at or near "{self.text[token.at : min(token.end, token.at + 100)]}"'
        return SqlSyntaxError(message, position=token.at + 1, detail=detail, hint=hint)

    def unsupported(self, what: str, token: Token | None = None) -> FeatureNotSupported:
        """Understood, and refused."""
        return FeatureNotSupported(f"{what} is not supported yet", position=(token or self.token).at + 1)

    def enter(self, levels: int = 1) -> None:
        """One level deeper. Who leaves it subtracts; an error ends the parse, so nothing is undone then."""
        self.nesting += levels
        if self.nesting > NESTING_MAX:
            raise StatementTooComplex(
                f"the statement nests more than {NESTING_MAX} levels deep", position=self.token.at + 1
            )
