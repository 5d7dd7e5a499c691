"""Schema changes as scripts: statements in, what the catalog becomes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.catalog.apply import ENDED_MAX, Catalog, after, apply, catalog_of_rows, check
from shoal.catalog.entries import (
    DdlAbort,
    DdlCommit,
    DdlPrepare,
    Entry,
    ProcedureChange,
    decode,
    encode,
)
from shoal.catalog.schema import BUCKET_ID_NAME, DEFAULT_TIER, Schema, Sharded, Table, Tier, TierName
from shoal.catalog.system import (
    PICO_ENDED_SCHEMA_CHANGE,
    PICO_PROPERTY,
    PICO_ROUTINE,
    PICO_TIER,
    SYSTEM_TABLES,
    tier_row,
)
from shoal.errors import InvalidTableDefinition, ShoalError
from shoal.sql.bind.schema_changes import bind_schema_change
from shoal.sql.parser import parse_one
from tests.scripts_runner import run_script, script_paths


class Log:
    """A log of one without a disk: the catalog's state, and the rows of its system tables."""

    def __init__(self) -> None:
        tiers = {DEFAULT_TIER: Tier(DEFAULT_TIER)}
        self.catalog = Catalog(Schema(0, {t.name: t for t in SYSTEM_TABLES}, tiers))
        self.rows: dict[int, dict[tuple, tuple]] = {t.id: {} for t in SYSTEM_TABLES}
        self.rows[PICO_TIER.id] = {(DEFAULT_TIER,): tier_row(Tier(DEFAULT_TIER))}
        self.index = 0

    def append(self, entry: Entry) -> int:
        self.index += 1
        applied = apply(self.catalog, decode(encode(entry)), self.index, term=1)
        for change in applied.changes:
            rows = self.rows[change.table_id]
            rows.pop(change.key, None)
            if change.row is not None:
                rows[change.key] = change.row
        self.catalog = applied.catalog
        return self.index

    def reloaded(self) -> Catalog:
        return catalog_of_rows({t.id: list(self.rows[t.id].values()) for t in SYSTEM_TABLES})


def describe(table: Table) -> list[str]:
    lines = [f"{table.name} id {table.id} version {table.version} in {table.file}.{table.physical}"]
    for column in table.columns:
        null = "" if column.nullable else " not null"
        lines.append(f"  {column.physical} {column.name} {column.type.sql_name}{null}")
    names = {c.number: c.name for c in table.columns} | {-1: BUCKET_ID_NAME}
    key = ", ".join(names[p.column] + " desc" * p.descending for p in table.primary_key)
    lines.append(f"  key ({key})" + (" rowid" if table.rowid_column else ""))
    if table.physical_key != table.primary_key:
        lines.append(f"  physical key ({', '.join(names[p.column] for p in table.physical_key)})")
    if isinstance(table.distribution, Sharded):
        by = ", ".join(names[number] for number in table.distribution.key)
        lines.append(f"  sharded by ({by}) in {table.distribution.tier}")
    else:
        lines.append("  global")
    for index in table.indexes:
        unique = "unique " * index.unique
        parts = ", ".join(names[p.column] + " desc" * p.descending for p in index.parts)
        lines.append(f"  {unique}index {index.name} ({parts}) version {index.version}")
    if not table.operable:
        lines.append("  not operable")
    return lines


def user_tables(catalog: Catalog) -> list[Table]:
    return [table for _, table in sorted(catalog.schema.tables.items()) if not table.system]


@pytest.mark.parametrize("path", script_paths("catalog"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    log = Log()

    def execute(text: str) -> str:
        ending = "commit"
        if text.startswith(("prepare ", "abort ")):
            ending, _, text = text.partition(" ")
        if text == "properties":
            return "\n".join(f"{row[0]} {row[1]}" for _, row in sorted(log.rows[PICO_PROPERTY.id].items()))
        if text == "procedures":
            found = log.rows[PICO_ROUTINE.id]
            return "\n".join(" ".join(map(str, row)) for _, row in sorted(found.items())) or "none"
        if text == "ended":
            found = log.rows[PICO_ENDED_SCHEMA_CHANGE.id]
            return "\n".join(" ".join(map(str, row)) for _, row in sorted(found.items()))
        if text == "tables":
            return "\n".join(line for t in user_tables(log.catalog) for line in describe(t)) or "none"
        if text.startswith("commit "):
            log.append(DdlCommit(int(text.split()[1])))
            return "ok"
        before = log.catalog.schema
        try:
            statement = parse_one(text)
            change = bind_schema_change(statement, before, 1, log.catalog.next_table_id)  # type: ignore[arg-type]
            changes = () if change is None else (change,)
            if not changes:
                return "nothing to do"
            lines = []
            for change in changes:
                check(log.catalog, change)
                version = log.append(DdlPrepare(change, 1))
                assert log.reloaded() == log.catalog, "rows and state differ after DdlPrepare"
                if ending == "prepare":
                    lines.append(f"prepared {version}")
                    continue
                becomes = after(log.catalog.schema, change, version)
                log.append(
                    DdlCommit(version) if ending == "commit" else DdlAbort(version, "XX000", "told to")
                )
                if ending == "abort":
                    assert log.catalog.schema == before
                    lines.append("aborted")
                else:
                    if isinstance(change, ProcedureChange):
                        lines.append("ok")
                    else:
                        lines += describe(becomes) if becomes is not None else ["dropped"]
        except ShoalError as error:
            at = f" @{error.position}" if error.position is not None else ""
            return f"{error.sqlstate} {error.message}{at}"
        assert log.reloaded() == log.catalog, "rows and state differ"
        return "\n".join(lines)

    run_script(path, execute, rewrite)


def test_of_the_changes_that_have_ended_the_latest_are_remembered() -> None:
    log = Log()
    versions: list[int] = []

    def prepare(sql: str) -> int:
        change = bind_schema_change(parse_one(sql), log.catalog.schema, 1, log.catalog.next_table_id)  # type: ignore[arg-type]
        assert change is not None
        return log.append(DdlPrepare(change, 1))

    waits = prepare("CREATE TABLE waits (id INT PRIMARY KEY)")
    for number in range(ENDED_MAX + 10):
        versions.append(prepare(f"CREATE TABLE t{number} (id INT PRIMARY KEY)"))
        log.append(DdlAbort(versions[-1], "XX000", "told to"))
    log.append(DdlCommit(waits))
    assert list(log.catalog.ended) == [*versions[-ENDED_MAX + 1 :], waits]
    assert list(log.reloaded().ended) == list(log.catalog.ended), "the oldest is the first to be forgotten"
    assert log.reloaded() == log.catalog


def test_a_tier_without_buckets_holds_no_sharded_tables() -> None:
    votes = Tier(TierName("votes"), bucket_count=0, is_default=False)
    schema = Schema(0, {}, {DEFAULT_TIER: Tier(DEFAULT_TIER), votes.name: votes})
    create = parse_one("CREATE TABLE t (id INT PRIMARY KEY) DISTRIBUTED BY (id) IN TIER votes")
    with pytest.raises(InvalidTableDefinition, match="tier votes has no buckets"):
        bind_schema_change(create, schema, 1, 1025)  # type: ignore[arg-type]
