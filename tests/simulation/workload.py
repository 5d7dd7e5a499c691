"""What clients ask for, and what must come of it.

Here: the kinds of operation, each with its SQL and, apart from our own code, what it does to rows; Workload, which draws
them.
Not here: sending them (clients.py), comparing (history.py).

Few names, few keys, few values: so that statements get in each other's way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

GLOBAL_TABLES: Final = ("g1", "g2", "g3")
SHARDED_TABLES: Final = ("s1", "s2", "s3")
USERS: Final = ("u1", "u2", "u3")
ROLES: Final = ("r1", "r2")
_KEYS: Final = 6
_VALUES: Final = 5
SETTINGS: Final = ("pg_statement_max", "pg_portal_max", "sql_vdbe_opcode_max")

# The rows of a table, as far as operations know them: k → (n, u).
Rows: TypeAlias = Mapping[int, tuple[int, int]]


class Duplicate(Exception):
    """23505."""


@dataclass(frozen=True)
class Op:
    sql: str
    table: str = ""


@dataclass(frozen=True)
class Ddl(Op):
    """A schema change. What it asks of a catalog, the binder says."""


@dataclass(frozen=True)
class Acl(Op):
    """A change of users, roles or rights. What it asks of a catalog, the binder says."""


@dataclass(frozen=True)
class Dml(Op):
    """On a global table."""

    def after(self, rows: Rows, unique: bool) -> Mapping[int, tuple[int, int] | None]:
        """The rows that it changes, as they become. `unique`: u is. Raises Duplicate."""
        raise NotImplementedError


@dataclass(frozen=True)
class Insert(Dml):
    rows: tuple[tuple[int, int, int], ...] = ()
    or_nothing: bool = False

    def after(self, rows: Rows, unique: bool) -> Mapping[int, tuple[int, int] | None]:
        becomes = dict(rows)
        made: dict[int, tuple[int, int] | None] = {}
        for k, n, u in self.rows:
            if k in becomes or (unique and any(other[1] == u for other in becomes.values())):
                if self.or_nothing:
                    continue
                raise Duplicate
            becomes[k] = made[k] = n, u
        return made


@dataclass(frozen=True)
class Add(Dml):
    """UPDATE … SET n = n + 1, of one row or of all up to a key."""

    key: int = 0
    up_to: bool = False

    def after(self, rows: Rows, unique: bool) -> Mapping[int, tuple[int, int] | None]:
        return {
            k: (n + 1, u) for k, (n, u) in rows.items() if (k <= self.key if self.up_to else k == self.key)
        }


@dataclass(frozen=True)
class SetU(Dml):
    key: int = 0
    u: int = 0

    def after(self, rows: Rows, unique: bool) -> Mapping[int, tuple[int, int] | None]:
        if self.key not in rows:
            return {}
        if unique and any(k != self.key and u == self.u for k, (_, u) in rows.items()):
            raise Duplicate
        return {self.key: (rows[self.key][0], self.u)}


@dataclass(frozen=True)
class Delete(Dml):
    key: int = 0
    from_n: int | None = None  # else by the key

    def after(self, rows: Rows, unique: bool) -> Mapping[int, tuple[int, int] | None]:
        return {
            k: None
            for k, (n, _) in rows.items()
            if (k == self.key if self.from_n is None else n >= self.from_n)
        }


@dataclass(frozen=True)
class Read(Op):
    """SELECT k, n, u of a global table."""


@dataclass(frozen=True)
class ShardedInsert(Op):
    key: int = 0
    u: int = 0


@dataclass(frozen=True)
class Setting(Op):
    name: str = ""
    value: int = 0


@dataclass(frozen=True)
class Expel(Op):
    uuid: str = ""


class Workload:
    """Draws operations. Chances are relative to each other."""

    def __init__(self, rng: Random, *, ddl: float, acl: float, dml: float, sharded: float) -> None:
        self._rng = rng
        self._ddl = ddl
        self._acl = acl
        self._dml = dml
        self._sharded = sharded
        self._count = 0

    def next(self) -> Op:
        self._count += 1
        what = self._rng.choices(
            ("ddl", "acl", "dml", "sharded", "read", "setting"),
            (self._ddl, self._acl, self._dml, self._sharded, 0.5, 0.2),
        )[0]
        match what:
            case "ddl":
                return self._draw_ddl()
            case "acl":
                return self._draw_acl()
            case "dml":
                return self._draw_dml()
            case "sharded":
                return self._draw_sharded()
            case "read":
                table = self._rng.choice(GLOBAL_TABLES)
                return Read(f"SELECT k, n, u FROM {table}", table)
            case _:
                name = self._rng.choice(SETTINGS)
                value = 100_000 + self._count
                return Setting(f'ALTER SYSTEM SET "{name}" TO {value}', "", name, value)

    def _draw_dml(self) -> Dml:
        pick, number = self._rng.choice, self._rng.randint
        table, key = pick(GLOBAL_TABLES), number(1, _KEYS)
        match self._rng.choices(("insert", "add", "set", "delete"), (4, 4, 1.5, 1))[0]:
            case "insert":
                count = pick((1, 1, 1, 2, 3))
                rows = tuple((k, 0, number(1, _VALUES)) for k in self._rng.sample(range(1, _KEYS + 1), count))
                values = ", ".join(str(row) for row in rows)
                nothing = self._rng.random() < 0.3
                tail = " ON CONFLICT DO NOTHING" if nothing else ""
                return Insert(f"INSERT INTO {table} (k, n, u) VALUES {values}{tail}", table, rows, nothing)
            case "add":
                up_to = self._rng.random() < 0.25
                sign = "<=" if up_to else "="
                return Add(f"UPDATE {table} SET n = n + 1 WHERE k {sign} {key}", table, key, up_to)
            case "set":
                u = number(1, _VALUES)
                return SetU(f"UPDATE {table} SET u = {u} WHERE k = {key}", table, key, u)
            case _:
                if self._rng.random() < 0.3:
                    n = number(2, 6)
                    return Delete(f"DELETE FROM {table} WHERE n >= {n}", table, 0, n)
                return Delete(f"DELETE FROM {table} WHERE k = {key}", table, key)

    def _draw_sharded(self) -> ShardedInsert:
        table = self._rng.choice(SHARDED_TABLES)
        # Keys are never used twice, values are: so unique indexes meet duplicates.
        key, u = self._count * 1000 + self._rng.randint(0, 999), self._rng.randint(1, 30)
        return ShardedInsert(f"INSERT INTO {table} (k, n, u) VALUES ({key}, 0, {u})", table, key, u)

    def _draw_acl(self) -> Acl:
        pick = self._rng.choice
        user, role, table = pick(USERS), pick(ROLES), pick((*GLOBAL_TABLES, *SHARDED_TABLES))
        kind = self._rng.choices(
            ("user", "drop user", "role", "drop role", "grant", "revoke", "give role", "take role", "login"),
            (3, 0.7, 1, 0.3, 6, 3, 1, 1, 1),
        )[0]
        right = f"{pick(('READ', 'WRITE', 'WRITE', 'ALTER', 'DROP', 'CREATE'))} ON TABLE {table}"
        if self._rng.random() < 0.2:
            right = "CREATE TABLE"
        grantee = pick((user, user, role))
        sql = {
            "user": f"CREATE USER {pick(('', 'IF NOT EXISTS '))}{user} WITH PASSWORD 'Passw0rd-{self._count}' USING md5",
            "drop user": f"DROP USER {pick(('', 'IF EXISTS '))}{user}",
            "role": f"CREATE ROLE {pick(('', 'IF NOT EXISTS '))}{role}",
            "drop role": f"DROP ROLE {pick(('', 'IF EXISTS '))}{role}",
            "grant": f"GRANT {right} TO {grantee}",
            "revoke": f"REVOKE {right} FROM {grantee}",
            "give role": f"GRANT {role} TO {user}",
            "take role": f"REVOKE {role} FROM {user}",
            "login": f"ALTER USER {user} {pick(('LOGIN', 'NOLOGIN'))}",
        }[kind]
        return Acl(sql)

    def _draw_ddl(self) -> Ddl:
        pick = self._rng.choice
        names = pick((GLOBAL_TABLES, SHARDED_TABLES))
        table = pick(names)
        kind = self._rng.choices(
            (
                "create",
                "drop",
                "truncate",
                "rename",
                "add",
                "rename column",
                "index",
                "drop index",
                "rename index",
            ),
            (8, 1.5, 1.5, 1, 2, 1, 4, 1.5, 1),
        )[0]
        index = f"{table}_{pick(('u', 'n', 'm'))}"
        sql = {
            "create": create_table(table, if_not_exists=self._rng.random() < 0.3),
            "drop": f"DROP TABLE {pick(('', 'IF EXISTS '))}{table}",
            "truncate": f"TRUNCATE TABLE {table}",
            "rename": f"ALTER TABLE {table} RENAME TO {pick(names)}",
            "add": f"ALTER TABLE {table} ADD COLUMN {pick('abc')} INT{pick(('', '', '', '', ' NOT NULL'))}",
            "rename column": f"ALTER TABLE {table} RENAME COLUMN {pick('abc')} TO {pick('abc')}",
            "index": f"CREATE {pick(('', 'UNIQUE ', 'UNIQUE '))}INDEX {pick(('', 'IF NOT EXISTS '))}{index}"
            f" ON {table} (u)",
            "drop index": f"DROP INDEX {pick(('', 'IF EXISTS '))}{index}",
            "rename index": f"ALTER INDEX {index} RENAME TO {table}_{pick(('u', 'n', 'm'))}",
        }[kind]
        return Ddl(sql, table)


def create_table(name: str, *, if_not_exists: bool = False) -> str:
    how = "DISTRIBUTED GLOBALLY" if name in GLOBAL_TABLES else "DISTRIBUTED BY (u)"
    maybe = "IF NOT EXISTS " if if_not_exists else ""
    return (
        f"CREATE TABLE {maybe}{name} (k INT NOT NULL, n INT NOT NULL, u INT NOT NULL, PRIMARY KEY (k)) {how}"
    )
