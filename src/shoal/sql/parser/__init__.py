"""The parser: a text becomes the statements of sql/ast.py, or an error that names the place.

It is strict: what it doesn't know is a syntax error (42601), what it knows and we don't have is refused
by name (0A000), and nothing that was written is left out of the tree. The grammar is Picodata's, and the
plain PostgreSQL that people type daily.

The classes build on each other, one part of the grammar each: cursor.py (tokens in front), expressions.py
(operators by precedence), queries.py, then dml.py, ddl.py, session.py, and statements.py, which is the
parser as a whole.

Words: only those of lexer.RESERVED need quotes as names. All others are keywords where one can stand, and
names everywhere else: OFFSET, FETCH, INTERSECT, RIGHT, CROSS, RETURNING, LIKE, ESCAPE and their like by
what follows them (cursor.py, is_clause), ANY, TRIM, POSITION, ROW and EXTRACT by the bracket. The one
exception is CURRENT_USER and its kin, which mean a column only behind a table's name, or in quotes. Behind
AS and behind a dot every word is a name.

Depth: nothing in the tree is deeper than NESTING_MAX, so who walks it may call itself.

Not here: what names and types mean (bind/).
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import SqlSyntaxError, StatementTooComplex
from shoal.sql import ast
from shoal.sql.lexer import LOOKAHEAD, TokenKind
from shoal.sql.parser.cursor import NESTING_MAX
from shoal.sql.parser.statements import Parser

__all__ = ["NESTING_MAX", "Parsed", "parameter_count", "parse", "parse_one", "parse_script"]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement, and where in its text it stands: text[start:end]."""

    statement: ast.Statement
    start: int
    end: int
    # False: a literal of the text is no Literal in the tree, but the length in a type, or the value of a
    # setting. Then texts that differ in literals only (normalise.py) aren't one statement.
    literals_in_tree: bool


def parse_script(text: str) -> tuple[Parsed, ...]:
    """All statements of the text, which semicolons part. Empty ones are dropped."""
    try:
        return _statements(Parser(text))
    except RecursionError:
        # Our own bound comes first, unless the caller itself was deep already.
        raise StatementTooComplex("the statement nests too deep") from None


def parse(text: str) -> tuple[ast.Statement, ...]:
    return tuple(parsed.statement for parsed in parse_script(text))


def parse_one(text: str) -> ast.Statement | None:
    """The only statement of the text, as the extended protocol has it; None if there is none."""
    statements = parse_script(text)
    if len(statements) > 1:
        raise SqlSyntaxError("cannot insert multiple commands into a prepared statement")
    return statements[0].statement if statements else None


def parameter_count(statement: ast.Statement) -> int:
    """The highest parameter's number: gaps count."""
    return max((node.number for node in ast.walk(statement) if isinstance(node, ast.Parameter)), default=0)


def _statements(parser: Parser) -> tuple[Parsed, ...]:
    found: list[Parsed] = []
    while parser.token.kind is not TokenKind.END:
        if parser.accept(";"):
            continue
        first = parser.index
        literals = parser.literals
        statement = parser.statement()
        behind = parser.token
        if behind.key != ";" and behind.kind is not TokenKind.END:
            raise parser.unexpected()
        tokens = parser.tokens[first : parser.index]
        # A tree isn't twice as deep as it has tokens, so most need not be measured.
        if len(tokens) > NESTING_MAX // 2 and ast.depth(statement) > NESTING_MAX:
            raise StatementTooComplex(
                f"the statement is more than {NESTING_MAX} levels deep", position=tokens[0].at + 1
            )
        written = sum(token.number >= 0 and token.kind is not TokenKind.PARAMETER for token in tokens)
        found.append(Parsed(statement, tokens[0].at, tokens[-1].end, parser.literals - literals == written))
    assert len(parser.tokens) - LOOKAHEAD == parser.index
    return tuple(found)
