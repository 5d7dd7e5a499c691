"""CREATE, ALTER, DROP and TRUNCATE of tables and indexes.

Here: their clauses, and the refusal of those that we know and don't have.
Not here: what a change does (bind/, catalog/), users and settings (session.py).
"""

from __future__ import annotations

from typing import Final

from shoal.errors import FeatureNotSupported, InvalidTableDefinition, SqlSyntaxError
from shoal.sql import ast
from shoal.sql.lexer import TokenKind
from shoal.sql.parser.cursor import NUMBERS
from shoal.sql.parser.queries import Queries

# What PostgreSQL lets follow a column's type, and we don't.
_COLUMN_EXTRAS: Final = frozenset(
    (
        "default",
        "check",
        "unique",
        "references",
        "generated",
        "collate",
        "constraint",
        "compression",
        "storage",
    )
)
_TABLE_EXTRAS: Final = {
    "partition": "PARTITION BY",
    "inherits": "INHERITS",
    "tablespace": "TABLESPACE",
    "on": "ON COMMIT",
}
_TABLE_KINDS: Final = frozenset(("temp", "temporary", "global", "local", "foreign", "external"))


class Ddl(Queries):
    # --- tables ---

    def create_table(self, at: int) -> ast.CreateTable:
        """Behind CREATE: [UNLOGGED] TABLE …"""
        unlogged = self.accept("unlogged")
        self.expect("table")
        if_not_exists = self.accept_all("if", "not", "exists")
        name = self.object_name("a table")
        if self.ahead("partition", "of"):
            raise FeatureNotSupported("PARTITION OF logic is not supported yet", position=self.token.at + 1)
        if self.token.key in ("as", "of"):
            raise self.unsupported(f"CREATE TABLE … {self.token.key.upper()}")
        columns, primary_key = self._table_elements()
        engine = self.name("an engine") if self.accept("using") else None
        with_options = self._with_options()
        if self.token.key == "as":
            raise self.unsupported("CREATE TABLE … AS")
        if self.token.key in _TABLE_EXTRAS:
            raise self.unsupported(_TABLE_EXTRAS[self.token.key])
        distribution = self._distribution()
        return ast.CreateTable(
            name,
            if_not_exists,
            unlogged,
            columns,
            primary_key,
            engine,
            with_options,
            distribution,
            self._wait(),
            at,
        )

    def is_table(self) -> bool:
        """Whether a kind of table follows CREATE; refuses the kinds that we don't have."""
        if self.token.key in _TABLE_KINDS and (self.peek().key == "table" or self.peek(2).key == "table"):
            raise self.unsupported(f"CREATE {self.token.key.upper()} TABLE")
        return self.token.key == "table" or self.ahead("unlogged", "table")

    def _table_elements(self) -> tuple[tuple[ast.ColumnDef, ...], tuple[ast.KeyPart, ...] | None]:
        columns: list[ast.ColumnDef] = []
        primary_key: tuple[ast.KeyPart, ...] | None = None
        self.expect("(")
        while True:
            if self.token.key == "primary":
                at = self.expect("primary", "key").at
                if primary_key is not None:
                    raise InvalidTableDefinition("Primary key has been already declared", position=at + 1)
                primary_key = self._key_parts()
            else:
                self._refuse_constraint()
                columns.append(self.column_definition())
            if not self.accept(","):
                break
        self.expect(")")
        return tuple(columns), primary_key

    def _refuse_constraint(self) -> None:
        """A constraint of the table that isn't its primary key. Its first word may be a column's name."""
        key = self.token.key
        following = self.peek()
        if (
            (key in ("unique", "check", "exclude") and following.key in ("(", "using"))
            or (key == "foreign" and following.key == "key")
            or (
                key == "constraint"
                and self.peek(2).key in ("primary", "unique", "check", "foreign", "exclude")
            )
        ):
            raise self.unsupported("FOREIGN KEY" if key == "foreign" else f"{key.upper()} in a table")

    def column_definition(self) -> ast.ColumnDef:
        name = self.name("a column")
        type_name = self.type_name(column=True)
        nullable: bool | None = None
        primary_key = descending = False
        while True:
            token = self.token
            if token.key in ("null", "not"):
                negated = self.accept("not")
                self.expect("null")
                if nullable is negated:
                    raise SqlSyntaxError(
                        f'conflicting NULL/NOT NULL declarations for column "{name.text}"',
                        position=token.at + 1,
                    )
                nullable = not negated
            elif token.key == "primary":
                self.expect("primary", "key")
                if primary_key:
                    raise InvalidTableDefinition(
                        "Primary key has been already declared", position=token.at + 1
                    )
                primary_key = True
                descending = self.descending()
            elif token.key in _COLUMN_EXTRAS:
                raise self.unsupported(f"{token.key.upper()} of a column")
            else:
                return ast.ColumnDef(name, type_name, nullable, primary_key, descending, name.at)

    def _key_parts(self) -> tuple[ast.KeyPart, ...]:
        return self.bracketed(self._key_part)

    def _key_part(self) -> ast.KeyPart:
        if self.token.key == "(" or self.peek().key == "(":
            raise self.unsupported("an index over an expression")
        column = self.name("a column")
        if self.token.key == "collate":
            raise self.unsupported("COLLATE")
        descending = self.descending()
        if self.token.key == "nulls":
            raise self.unsupported("NULLS FIRST and NULLS LAST in a key")
        return ast.KeyPart(column, descending)

    def _distribution(self) -> ast.DistributedBy | ast.DistributedGlobally | None:
        """[DISTRIBUTED {GLOBALLY | BY (columns)} [IN TIER tier]]"""
        columns: tuple[ast.Name, ...] = ()
        if self.accept("distributed"):
            if self.accept("globally"):
                return ast.DistributedGlobally()
            if self.token.key != "in":
                if self.token.key != "by":
                    raise self.unexpected("BY, GLOBALLY or IN TIER")
                self.advance()
                columns = self.names()
        elif self.token.key != "in":
            return None
        tier: ast.Name | None = None
        if self.accept("in"):
            self.expect("tier")
            tier = self.name("a tier")
        return ast.DistributedBy(columns, tier)

    def _with_options(self) -> tuple[tuple[ast.Name, str], ...]:
        """[WITH (name = value, …)]"""
        return self.bracketed(self._with_option) if self.accept("with") else ()

    def _with_option(self) -> tuple[ast.Name, str]:
        name = self.name("an option")
        self.expect("=")
        sign = "-" if self.accept("-") else ""
        token = self.token
        if token.kind in NUMBERS or (token.kind in (TokenKind.STRING, TokenKind.WORD) and not sign):
            self.advance()
            return name, sign + token.value
        raise self.unexpected("a value")

    def alter_table(self, at: int) -> ast.AlterTable:
        """Behind ALTER: TABLE …"""
        self.expect("table")
        if_exists = self.accept_all("if", "exists")
        table = self.object_name("a table")
        actions = self._alter_actions()
        return ast.AlterTable(table, if_exists, actions, self._wait(), at)

    def _alter_actions(self) -> tuple[ast.AlterAction, ...]:
        action = self.token.key
        match action:
            case "rename":
                return (self._rename(),)
            case "add":
                return self.listed(self._add_column)
            case "drop" | "alter":
                raise FeatureNotSupported(
                    f"sbroad: unsupported DDL: `ALTER TABLE _ {action.upper()} COLUMN` is not yet supported",
                    position=self.token.at + 1,
                )
            case (
                "owner" | "set" | "reset" | "enable" | "disable" | "attach" | "detach" | "cluster" | "inherit"
            ):
                raise self.unsupported(f"ALTER TABLE … {self.token.key.upper()}")
            case _:
                raise self.unexpected("RENAME or ADD")

    def _rename(self) -> ast.RenameTable | ast.RenameColumn:
        self.expect("rename")
        if self.accept("to"):
            return ast.RenameTable(self.name("a table"))
        # COLUMN may be left out, and may be the name of a column.
        first = self.token.key
        if first in ("column", "constraint") and self.peek().key != "to":
            if first == "constraint":
                raise self.unsupported("RENAME CONSTRAINT")
            self.advance()
        column = self.name("a column")
        self.expect("to")
        return ast.RenameColumn(column, self.name("a column"))

    def _add_column(self) -> ast.AddColumn:
        self.expect("add")
        if self.token.key == "primary":
            raise self.unsupported("ADD PRIMARY KEY")
        self._refuse_constraint()
        if self.token.key == "column":
            self.advance()
        if_not_exists = self.accept_all("if", "not", "exists")
        column = self.column_definition()
        if self.token.key == "," and self.peek().key in ("drop", "alter", "rename"):
            self.advance()
            raise self.unsupported(f"ADD together with {self.token.key.upper()}")
        return ast.AddColumn(column, if_not_exists)

    def drop_table(self, at: int) -> ast.DropTable:
        """Behind DROP: TABLE …"""
        self.expect("table")
        if_exists = self.accept_all("if", "exists")
        table = self.object_name("a table")
        self._one_object("DROP TABLE")
        # Nothing depends on a table, so both words ask for what happens anyway.
        self.accept("cascade") or self.accept("restrict")
        return ast.DropTable(table, if_exists, self._wait(), at)

    def truncate(self) -> ast.Truncate:
        at = self.expect("truncate").at
        self.accept("table")
        table = self.object_name("a table")
        self._one_object("TRUNCATE")
        if self.token.key in ("restart", "continue", "cascade"):
            raise self.unsupported(f"TRUNCATE … {self.token.key.upper()}")
        return ast.Truncate(table, self._wait(), at)

    # --- indexes ---

    def create_index(self, at: int) -> ast.CreateIndex:
        """Behind CREATE: [UNIQUE] INDEX …"""
        unique = self.accept("unique")
        self.expect("index")
        if self.token.key == "concurrently" and self.peek().key != "on":
            raise self.unsupported("CONCURRENTLY")
        if_not_exists = self.accept_all("if", "not", "exists")
        if self.token.key == "on":
            raise self.unsupported("an index without a name")
        name = self.name("an index")
        self.expect("on")
        table = self.object_name("a table")
        method = self.name("an index method") if self.accept("using") else None
        parts = self._key_parts()
        if self.token.key in ("where", "include", "tablespace"):
            raise self.unsupported(f"{self.token.key.upper()} of an index")
        with_options = self._with_options()
        if self.token.key == "where":
            raise self.unsupported("WHERE of an index")
        return ast.CreateIndex(
            name, table, unique, if_not_exists, method, parts, with_options, self._wait(), at
        )

    def alter_index(self, at: int) -> ast.RenameIndex:
        """Behind ALTER: INDEX …"""
        self.expect("index")
        if_exists = self.accept_all("if", "exists")
        name = self.object_name("an index")
        if self.token.key in ("set", "reset", "attach", "alter", "depends"):
            raise self.unsupported(f"ALTER INDEX … {self.token.key.upper()}")
        self.expect("rename", "to")
        return ast.RenameIndex(name, if_exists, self.name("an index"), self._wait(), at)

    def drop_index(self, at: int) -> ast.DropIndex:
        """Behind DROP: INDEX …"""
        self.expect("index")
        if self.token.key == "concurrently" and self.is_name(self.peek()):
            raise self.unsupported("CONCURRENTLY")
        if_exists = self.accept_all("if", "exists")
        name = self.object_name("an index")
        self._one_object("DROP INDEX")
        self.accept("cascade") or self.accept("restrict")
        return ast.DropIndex(name, if_exists, self._wait(), at)

    # --- what all of them end with ---

    def _one_object(self, statement: str) -> None:
        if self.token.key == ",":
            raise self.unsupported(f"{statement} of several at once")
