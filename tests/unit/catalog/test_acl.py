"""Users, roles and rights as scripts: statements of somebody in, what the catalog becomes out.

STATEMENT                 by admin; a password is kept as its own text
NAME: STATEMENT           by that user
may NAME                  what the user may do, and who could see it
users, grants             the rows
needs QUERY               what a query needs of whom
NAME may QUERY            whether the user may run it
prepare STATEMENT         a schema change that stays pending; commit ends it
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from pathlib import Path

import pytest

from shoal.catalog.acl import acl_rows, loses_password, refuse_password
from shoal.catalog.apply import Catalog, apply, catalog_of_rows, check
from shoal.catalog.entries import (
    Acl,
    DdlCommit,
    DdlPrepare,
    Dml,
    Entry,
    RenameUser,
    decode,
    encode,
)
from shoal.catalog.rights import (
    ADMIN_ID,
    ANY,
    SUPER_ID,
    ObjectType,
    Privilege,
    founding_rows,
    refuse_schema_change,
)
from shoal.catalog.schema import DEFAULT_TIER, Schema, Table, Tier
from shoal.catalog.settings import ClusterSettings
from shoal.catalog.system import PICO_TIER, PICO_USER, SYSTEM_TABLES, tier_row
from shoal.errors import ShoalError
from shoal.sql import ast
from shoal.sql.bind import bind
from shoal.sql.bind.acl import bind_acl
from shoal.sql.bind.schema_changes import bind_schema_change
from shoal.sql.parser import parse_one
from tests.scripts_runner import run_script, script_paths

OF_TABLES = (Privilege.READ, Privilege.WRITE, Privilege.CREATE, Privilege.ALTER, Privilege.DROP)


class Cluster:
    """A log of one without a disk: the catalog's state, and the rows of its system tables."""

    def __init__(self) -> None:
        tiers = {DEFAULT_TIER: Tier(DEFAULT_TIER)}
        self.catalog = Catalog(Schema(0, {t.name: t for t in SYSTEM_TABLES}, tiers))
        self.rows: dict[int, dict[tuple, tuple]] = {t.id: {} for t in SYSTEM_TABLES}
        self.rows[PICO_TIER.id] = {(DEFAULT_TIER,): tier_row(Tier(DEFAULT_TIER))}
        self.index = 0
        self.append(Dml(founding_rows(("scram-sha256", "the first")), ADMIN_ID))

    def append(self, entry: Entry) -> int:
        self.index += 1
        applied = apply(self.catalog, decode(encode(entry)), self.index, term=1)
        for change in applied.changes:
            rows = self.rows[change.table_id]
            gone = rows.pop(change.key, None)
            assert change.row is not None or gone is not None, f"{change} deletes what isn't there"
            if change.row is not None:
                rows[change.key] = change.row
        self.catalog = applied.catalog
        reloaded = catalog_of_rows({t.id: list(self.rows[t.id].values()) for t in SYSTEM_TABLES})
        assert reloaded == self.catalog, "rows and state differ"
        return self.index

    # --- statements

    def execute(self, text: str) -> str:
        by = ADMIN_ID
        if found := re.match(r"(\w+): (.*)", text, re.DOTALL):
            name, text = found.groups()
            by = self.catalog.rights.by_name[name].id
        try:
            return self._execute(text, by)
        except ShoalError as error:
            at = f" @{error.position}" if error.position is not None else ""
            lines = [f"{error.sqlstate} {error.message}{at}"]
            lines += [f"detail: {error.detail}"] * (error.detail is not None)
            lines += [f"hint: {error.hint}"] * (error.hint is not None)
            return "\n".join(lines)

    def _execute(self, text: str, by: int) -> str:
        if text == "users":
            return self.users()
        if text == "grants":
            return self.grants()
        if text.startswith("may "):
            return self.may(text.removeprefix("may "))
        if text.startswith("needs "):
            return self.needs(text.removeprefix("needs "))
        if text == "commit":
            (version,) = self.catalog.pending
            return f"version {self.append(DdlCommit(version))}"
        prepare = text.startswith("prepare ")
        text = text.removeprefix("prepare ")
        if found := re.fullmatch(r"(\w+) may (.*)", text, re.DOTALL):
            self.needs(found[2], self.catalog.rights.by_name[found[1]].id)
            return "yes"
        statement = parse_one(text)
        if isinstance(statement, ast.DDL):
            return self._change_schema(statement, by, prepare)
        change = bind_acl(statement, self.catalog)  # type: ignore[arg-type]
        if change is None:
            return "nothing to do"
        secret = None
        if isinstance(statement, ast.CreateUser | ast.AlterUserPassword):
            refuse_password(statement.password.text, ClusterSettings())
            secret = f"kept of {statement.password.text}"
        told = ""
        if isinstance(change, RenameUser) and loses_password(self.catalog.rights.users[change.user_id]):
            told = ", password cleared"
        rows = acl_rows(self.catalog, change, by, secret)
        if not rows:
            return "nothing to do"
        return f"version {self.append(Acl(change, rows, by))}{told}"

    def _change_schema(self, statement: ast.Statement, by: int, prepare: bool = False) -> str:
        catalog = self.catalog
        change = bind_schema_change(statement, catalog.schema, by, catalog.next_table_id)  # type: ignore[arg-type]
        if change is not None:
            refuse_schema_change(catalog.rights, catalog.schema, change, by)
            check(catalog, change)
            version = self.append(DdlPrepare(change, by))
            if not prepare:
                self.append(DdlCommit(version))
        return "done" if change is not None else "nothing to do"

    # --- what is there

    def users(self) -> str:
        lines = []
        for user in sorted(self.catalog.rights.users.values(), key=lambda user: user.id):
            kept = "" if user.secret is None else f", {user.method} {user.secret!r}"
            owner = self.catalog.rights.name(user.owner)
            lines.append(f"{user.id} {user.kind} {user.name} of {owner}, version {user.version}{kept}")
        return "\n".join(lines)

    def grants(self) -> str:
        rights = self.catalog.rights
        return "\n".join(
            f"{rights.name(grantee)}: {', '.join(' '.join(map(str, held)) for held in sorted(all_held))}"
            for grantee, all_held in sorted(rights.grants.items())
        )

    def may(self, name: str) -> str:
        rights = self.catalog.rights
        user = rights.by_name[name]
        lines = [f"log in: {'yes' if rights.may_log_in(user.id) else 'no'}"]
        for table in sorted(self.catalog.schema.tables.values(), key=lambda table: table.id):
            allowed = [p.value for p in OF_TABLES if rights.allows(user.id, p, table)]
            if allowed:
                lines.append(f"{table.name}: {' '.join(allowed)}")
        return "\n".join(lines)

    def needs(self, query: str, user_id: int = ADMIN_ID) -> str:
        statement = parse_one(query)
        if isinstance(statement, ast.Explain):
            statement = statement.statement
        rights = self.catalog.rights

        def permit(privilege: Privilege, table: Table) -> None:
            rights.refuse(user_id, privilege, table)

        bound = bind(statement, self.catalog.schema, permit=permit)  # type: ignore[arg-type]
        return ", ".join(f"{privilege} {table.name}" for privilege, table in bound.needs) or "nothing"


@pytest.mark.parametrize("path", script_paths("acl"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    run_script(path, Cluster().execute, rewrite)


def test_there_are_128_at_most() -> None:
    cluster = Cluster()
    for number in range(122):
        kind = "ROLE" if number % 2 else "USER"
        password = "" if number % 2 else " PASSWORD 'Passw0rd'"
        assert cluster.execute(f"CREATE {kind} u{number}{password}").startswith("version")
    for text in ("CREATE ROLE more", "CREATE USER more PASSWORD 'Passw0rd'"):
        assert cluster.execute(text) == "54000 a limit on the total number of users has been reached: 128"
    cluster.execute("DROP USER u0")
    assert cluster.execute("CREATE ROLE more").startswith("version")
    # An id is never used twice.
    assert cluster.catalog.rights.by_name["more"].id == 33 + 122


def test_whoever_holds_no_right_to_it_finds_no_secret() -> None:
    cluster = Cluster()
    cluster.execute("CREATE USER ann PASSWORD 'Passw0rd'")
    ann = cluster.catalog.rights.by_name["ann"]
    assert ann.secret is not None and ann.secret not in repr(ann)
    assert "Passw0rd" not in repr(parse_one("CREATE USER ann PASSWORD 'Passw0rd'"))
    cluster.execute("GRANT super TO ann")
    for privilege in Privilege:
        assert not cluster.catalog.rights.allows(ann.id, privilege, PICO_USER)


def test_what_an_entry_says_of_itself_holds_no_secret() -> None:
    cluster = Cluster()
    for text in ("CREATE USER ann PASSWORD 'Passw0rd'", "ALTER USER admin PASSWORD 'Passw0rd'"):
        change = bind_acl(parse_one(text), cluster.catalog)  # type: ignore[arg-type]
        assert change is not None and "Passw0rd" not in repr(change)


@pytest.mark.parametrize(
    "password, missing",
    [
        ("", "too short (expected at least 8 characters, got 0); missing uppercase letter; missing lowercase letter;"
             " missing digit; missing special character"),
        ("T3st!", "too short (expected at least 8 characters, got 5)"),
        ("passw0rd!", "missing uppercase letter"),
        ("PASSW0RD!", "missing lowercase letter"),
        ("Password!", "missing digit"),
        ("Passw0rd", "missing special character"),
        ("Passw0rd ", "missing special character"),
        ("Passw0rd!", None),
        ("Пароль12-", None),
    ],
)  # fmt: skip
def test_the_rules_for_passwords(password: str, missing: str | None) -> None:
    settings = ClusterSettings(auth_password_enforce_specialchars=True)
    if missing is None:
        refuse_password(password, settings)
        return
    with pytest.raises(ShoalError) as refused:
        refuse_password(password, settings)
    assert refused.value.sqlstate == "22023"
    assert refused.value.message == f"invalid password: {missing}"


def test_rules_can_be_turned_off_but_no_password_is_empty() -> None:
    settings = ClusterSettings(
        auth_password_length_min=0,
        auth_password_enforce_uppercase=False,
        auth_password_enforce_lowercase=False,
        auth_password_enforce_digits=False,
    )
    refuse_password(" ", settings)
    for password in ("", "a\0b"):
        with pytest.raises(ShoalError, match="password must not"):
            refuse_password(password, settings)


# --- by chance -----------------------------------------------------------------------------------


def a_statement(rng: random.Random) -> str:
    names = ["ann", "bob", "carl", "mia", "r1", "r2", "r3", "public", "admin", "super"]
    one, other, table = rng.choice(names), rng.choice(names), rng.choice(["t1", "t2", "_pico_user"])
    privilege = rng.choice(["CREATE", "ALTER", "DROP", "READ", "WRITE", "EXECUTE"])
    object_type = rng.choice(["TABLE", "USER", "ROLE"])
    on = table if object_type == "TABLE" else other
    return rng.choice(
        (
            f"CREATE USER {one} PASSWORD 'Passw0rd'",
            f"CREATE USER {one} PASSWORD 'Passw0rd' USING md5",
            f"CREATE ROLE {one}",
            f"ALTER USER {one} PASSWORD 'Passw1rd'",
            f"ALTER USER {one} {rng.choice(('LOGIN', 'NOLOGIN'))}",
            f"ALTER USER {one} RENAME TO {other}",
            f"DROP USER {one}",
            f"DROP ROLE {one}",
            f"GRANT {one} TO {other}",
            f"REVOKE {one} FROM {other}",
            f"GRANT {privilege} {object_type} TO {one}",
            f"REVOKE {privilege} {object_type} FROM {one}",
            f"GRANT {privilege} ON {object_type} {on} TO {one}",
            f"REVOKE {privilege} ON {object_type} {on} FROM {one}",
            f"CREATE TABLE {table} (id INT PRIMARY KEY)",
            f"DROP TABLE {table}",
        )
    )


def has(cluster: Cluster, grantee: int, role: int, on_the_way: frozenset[int] = frozenset()) -> bool:
    """Is it a member, by any detour? Asserts that there are no circles."""
    assert grantee not in on_the_way, "a circle"
    return grantee == role or any(
        has(cluster, held.object_id, role, on_the_way | {grantee})
        for held in cluster.catalog.rights.grants.get(grantee, ())
        if held.object_type == ObjectType.ROLE and held.privilege == Privilege.EXECUTE
    )


@pytest.mark.parametrize("seed", range(8))
def test_whoever_does_what(seed: int) -> None:
    """Statements of anybody: rows and state agree (append() looks), nothing dangles, and nobody touches what is built in."""
    rng = random.Random(seed)
    cluster = Cluster()
    built_in = {user.id for user in cluster.catalog.rights.users.values()}
    super_holds = cluster.catalog.rights.grants[SUPER_ID]
    done = 0
    for _ in range(800):
        rights = cluster.catalog.rights
        users = [user for user in rights.users.values() if not user.is_role]
        by = rng.choice(users) if rng.random() < 0.6 else rights.users[ADMIN_ID]
        before = cluster.catalog
        said = cluster.execute(f"{by.name}: {a_statement(rng)}")
        done += said.startswith("version") or said == "done"
        rights = cluster.catalog.rights
        assert built_in <= set(rights.users)
        assert rights.grants[SUPER_ID] == super_holds
        assert rights.users[ADMIN_ID].secret == before.rights.users[ADMIN_ID].secret or by.id == ADMIN_ID
        assert len({user.name for user in rights.users.values()}) == len(rights.users)
        tables = cluster.catalog.schema.tables_by_id
        for user in rights.users.values():
            assert user.owner in rights.users
            roles = {other.id for other in rights.users.values() if has(cluster, user.id, other.id)}
            assert rights.roles(user.id) == roles
        assert all(table.owner in rights.users for table in tables.values())
        for grantee, all_held in rights.grants.items():
            assert grantee in rights.users
            for held in all_held:
                if held.object_id == ANY or held.object_type == ObjectType.UNIVERSE:
                    continue
                known: Collection[int] = tables if held.object_type == ObjectType.TABLE else rights.users
                assert held.object_id in known, held
                assert held.object_id != PICO_USER.id
    assert done > 80
