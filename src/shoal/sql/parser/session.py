"""Transactions, settings, prepared statements: what is about the session or the instance.

Here: their clauses.
Not here: which settings exist, what a transaction does (node/).
"""

from __future__ import annotations

from typing import Final

from shoal.sql import ast
from shoal.sql.lexer import TokenKind
from shoal.sql.parser.cursor import NUMBERS, Cursor

_ISOLATION_LEVELS: Final = (
    ("serializable",),
    ("repeatable", "read"),
    ("read", "committed"),
    ("read", "uncommitted"),
)


class Session(Cursor):
    # --- transactions ---

    def begin(self) -> ast.Begin:
        """BEGIN [WORK | TRANSACTION] …, START TRANSACTION …"""
        token = self.advance()
        if token.key == "start":
            self.expect("transaction")
        else:
            self.accept("work") or self.accept("transaction")
        return ast.Begin(self._transaction_modes(), token.at)

    def commit(self) -> ast.Commit:
        """COMMIT, END"""
        at = self.advance().at
        self._end_of_transaction("COMMIT")
        return ast.Commit(at)

    def rollback(self) -> ast.Rollback | ast.RollbackTo:
        """ROLLBACK, ABORT"""
        at = self.advance().at
        self._end_of_transaction("ROLLBACK")
        if self.accept("to"):
            self.accept("savepoint")
            return ast.RollbackTo(self.name("the name of a savepoint"), at)
        return ast.Rollback(at)

    def savepoint(self) -> ast.Savepoint:
        at = self.expect("savepoint").at
        return ast.Savepoint(self.name("the name of a savepoint"), at)

    def release(self) -> ast.ReleaseSavepoint:
        at = self.expect("release").at
        self.accept("savepoint")
        return ast.ReleaseSavepoint(self.name("the name of a savepoint"), at)

    def _end_of_transaction(self, statement: str) -> None:
        if self.token.key == "prepared":
            raise self.unsupported(f"{statement} PREPARED")
        self.accept("work") or self.accept("transaction")
        if self.token.key == "and":
            if self.accept_all("and", "no", "chain"):
                return
            raise self.unsupported(f"{statement} AND CHAIN")

    def _transaction_modes(self) -> bool | None:
        """ISOLATION LEVEL …, READ ONLY | READ WRITE, [NOT] DEFERRABLE: gives whether to only read."""
        read_only: bool | None = None
        while True:
            if self.accept_all("read", "only"):
                read_only = True
            elif self.accept_all("read", "write"):
                read_only = False
            elif self.ahead("isolation", "level"):
                self.expect("isolation", "level")
                if not any(self.accept_all(*level) for level in _ISOLATION_LEVELS):
                    if self.token.kind is TokenKind.WORD:
                        raise self.unsupported(f"ISOLATION LEVEL {self.token.key.upper()}")
                    raise self.unexpected("an isolation level")
            elif not self.accept("deferrable") and not self.accept_all("not", "deferrable"):
                return read_only
            if self.token.key == "," and self.peek().key in ("read", "isolation", "deferrable", "not"):
                self.advance()

    # --- settings ---

    def set(self) -> ast.SetVariable | ast.SetTransaction:
        at = self.expect("set").at
        if self.accept("transaction"):
            if self.token.key == "snapshot":
                raise self.unsupported("SET TRANSACTION SNAPSHOT")
            return self._set_transaction(False, at)
        if self.accept_all("session", "characteristics", "as", "transaction"):
            return self._set_transaction(True, at)
        if self.ahead("session", "authorization"):
            raise self.unsupported("SET SESSION AUTHORIZATION")
        local = False
        if self.token.key in ("session", "local") and self.is_name(self.peek()):
            local = self.advance().key == "local"
        if self.ahead("time", "zone"):
            name = ast.Name("timezone", self.expect("time", "zone").at)
            return ast.SetVariable(name, self._time_zone(), local, at)
        if self.token.key == "names" and self.peek().key not in ("=", "to", "."):
            name = ast.Name("client_encoding", self.advance().at)
            values = () if self.accept("default") else (self._setting(),)
            return ast.SetVariable(name, values, local, at)
        if self.token.key in ("role", "constraints", "schema") and self.peek().key not in ("=", "to", "."):
            raise self.unsupported(f"SET {self.token.key.upper()}")
        name = self.setting_name()
        if not self.accept("=") and not self.accept("to"):
            raise self.unexpected('"=" or TO')
        if self.accept("default"):
            return ast.SetVariable(name, (), local, at)
        return ast.SetVariable(name, self.listed(self._setting), local, at)

    def _set_transaction(self, session: bool, at: int) -> ast.SetTransaction:
        if self.token.key not in ("isolation", "read", "deferrable", "not"):
            raise self.unexpected("ISOLATION LEVEL, READ ONLY, READ WRITE or DEFERRABLE")
        return ast.SetTransaction(session, self._transaction_modes(), at)

    def _time_zone(self) -> tuple[str, ...]:
        if self.accept("local") or self.accept("default"):
            return ()
        if self.token.key == "interval":
            raise self.unsupported("SET TIME ZONE INTERVAL")
        return (self._setting(),)

    def setting_name(self) -> ast.Name:
        """a.b.c"""
        first = self.name("a setting")
        text = first.text
        while self.accept("."):
            text += "." + self.label("a setting").text
        return ast.Name(text, first.at)

    def _setting(self) -> str:
        """A value of a setting: a string, a number, a word."""
        sign = ""
        if self.token.key in ("-", "+"):
            sign = "-" if self.advance().key == "-" else ""
            if self.token.kind not in NUMBERS:
                raise self.unexpected("a number")
        kind = self.token.kind
        if kind in NUMBERS or kind in (TokenKind.STRING, TokenKind.WORD, TokenKind.QUOTED):
            return sign + self.advance().value
        raise self.unexpected("a value")

    def show(self) -> ast.Show:
        at = self.expect("show").at
        return ast.Show(self._shown() or ast.Name("all", self.tokens[self.index - 1].at), at)

    def reset(self) -> ast.Reset:
        at = self.expect("reset").at
        if self.ahead("session", "authorization") or self.token.key == "role":
            raise self.unsupported("RESET of the current user")
        return ast.Reset(self._shown(), at)

    def _shown(self) -> ast.Name | None:
        """What SHOW and RESET take: a name, words that stand for one, or ALL, which is None."""
        at = self.token.at
        if self.accept("all"):
            return None
        if self.accept_all("time", "zone"):
            return ast.Name("timezone", at)
        if self.accept_all("transaction", "isolation", "level"):
            return ast.Name("transaction_isolation", at)
        if self.accept_all("session", "authorization"):
            return ast.Name("session_authorization", at)
        return self.setting_name()

    # --- prepared statements, portals ---

    def deallocate(self) -> ast.Deallocate:
        at = self.expect("deallocate").at
        if self.token.key == "prepare" and (self.is_name(self.peek()) or self.peek().key == "all"):
            self.advance()
        return ast.Deallocate(None if self.accept("all") else self.name("a statement"), at)

    def discard(self) -> ast.Discard:
        at = self.expect("discard").at
        if self.token.key in ("sequences", "temp", "temporary"):
            raise self.unsupported(f"DISCARD {self.token.key.upper()}")
        return ast.Discard(self.one_of("all", "plans"), at)

    def close(self) -> ast.Discard:
        at = self.expect("close").at
        if self.is_name(self.token):
            raise self.unsupported("CLOSE of a cursor")
        self.expect("all")
        return ast.Discard("portals", at)

    def unlisten(self) -> ast.Discard:
        at = self.expect("unlisten").at
        if self.is_name(self.token):
            raise self.unsupported("UNLISTEN of a channel")
        self.expect("*")
        return ast.Discard("channels", at)

    # --- the instance ---

    def alter_system(self, at: int) -> ast.AlterSystem | ast.ExpelInstance | ast.AbortSchemaChange:
        """Behind ALTER: SYSTEM {SET name {= | TO} value | RESET {name | ALL}} [FOR {ALL TIERS | TIER t}]

        Or SYSTEM EXPEL INSTANCE 'uuid' [FORCE] [OPTION (TIMEOUT = seconds)], SYSTEM ABORT SCHEMA CHANGE version
        """
        self.expect("system")
        what = self.one_of("set", "reset", "expel", "abort")
        if what == "abort":
            self.expect("schema", "change")
            if self.token.kind is not TokenKind.INTEGER or len(self.token.value) > 18:
                raise self.unexpected("the version of a schema change")
            return ast.AbortSchemaChange(int(self.advance().value), at)
        if what == "expel":
            self.expect("instance")
            instance = self.string()
            return ast.ExpelInstance(instance, self.accept("force"), self.timeout(), at)
        if what == "reset":
            name = None if self.accept("all") else self.setting_name()
            return ast.AlterSystem(name, None, None, self._tier(), at)
        name = self.setting_name()
        if not self.accept("=") and not self.accept("to"):
            raise self.unexpected('"=" or TO')
        value, kind = self._system_value()
        return ast.AlterSystem(name, value, kind, self._tier(), at)

    def _system_value(self) -> tuple[str | int | bool | None, ast.LiteralKind | None]:
        if self.accept("default"):
            return None, None
        if self.token.key in ("true", "false"):
            return self.advance().key == "true", None
        if self.token.kind is TokenKind.STRING:
            return self.advance().value, ast.LiteralKind.STRING
        sign = "-" if self.token.key == "-" else ""
        if self.token.key in ("-", "+"):
            self.advance()
        kind = NUMBERS.get(self.token.kind)
        if kind is None:
            raise self.unexpected("a literal or DEFAULT")
        text = sign + self.advance().value
        # Python turns no text of more than 4300 digits into a number; nor is any that long a value here.
        if kind is ast.LiteralKind.INTEGER and len(text) <= 20:
            return int(text), kind
        return text, kind

    def _tier(self) -> ast.Name | None:
        if not self.accept("for"):
            return None
        if self.accept_all("all", "tiers"):
            return None
        self.expect("tier")
        return self.name("a tier")
