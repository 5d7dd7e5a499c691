"""INSERT, UPDATE and DELETE, as SQLite's text.

Here: insert(), update(), delete(), and how a value gets into a column.
Not here: which connection runs them (node/), the physical tables (storage/tables.py).

What SQLite would get wrong, and how the text avoids it:
- NULL for a key that is the rowid makes up a number: the value is checked on its way in.
- `bucket_id` follows the sharding key, in every statement that sets it.
- An UPDATE whose new values read the table again would see its own first changes: a FROM of one row makes
  SQLite collect all new values before it writes any.
- RETURNING knows the table by its own name only, not by an alias, and its DOUBLEs may be integers.
"""

from __future__ import annotations

from collections.abc import Mapping

from shoal.catalog.schema import BUCKET_ID, Sharded, Table
from shoal.errors import FeatureNotSupported
from shoal.sql import plan
from shoal.sql.ast import ConflictAction
from shoal.sql.local import arithmetic, expressions, queries
from shoal.sql.local.casts import narrowed
from shoal.sql.local.cheap import is_cheap
from shoal.sql.local.draft import ColumnText, Draft, constant, quoted, table_columns
from shoal.sql.optimise.buckets import bucket_code
from shoal.sql.walk import scans_of_expression, walk
from shoal.types.sqltype import SqlType

# --- INSERT --------------------------------------------------------------------------------------


def insert(change: plan.Insert, draft: Draft) -> str:
    table = change.table
    draft.name_columns(change.relation, table_columns(table, f"r{change.relation}"))
    values = _plain_values(change)
    source = _inserted_values(change, values, draft) if values is not None else _selected(change, draft)
    columns = [table.by_number[number].physical for number in _target_columns(change)]
    text = f"INSERT INTO {draft.table(table)} AS r{change.relation} ({', '.join(columns)}) {source}"
    return text + _on_conflict(change, draft) + _returning(change.returning, change.relation, table, draft)


def _target_columns(change: plan.Insert) -> tuple[int, ...]:
    return (*change.columns, BUCKET_ID) if _has_own_bucket(change) else change.columns


def _has_own_bucket(change: plan.Insert) -> bool:
    """Whether the statement leaves bucket_id to us, as all do but those that copy rows with theirs."""
    return change.table.is_sharded and BUCKET_ID not in change.columns


def _plain_values(change: plan.Insert) -> plan.ValuesRows | None:
    """VALUES that can be inserted as they stand: none of them has to be written twice, or only cheap ones."""
    query = change.source
    body = query.body
    if query.ctes or query.order_by or query.limit is not None or query.offset is not None:
        return None
    if not isinstance(body, plan.ValuesRows) or _may_meet_a_row_twice(change, len(body.rows)):
        return None
    key = _sharding_key(change.table)
    repeated = [n for n, number in enumerate(change.columns) if number in key]
    return body if all(is_cheap(row[n]) for row in body.rows for n in repeated) else None


def _sharding_key(table: Table) -> tuple[int, ...]:
    return table.distribution.key if isinstance(table.distribution, Sharded) else ()


def _inserted_values(change: plan.Insert, values: plan.ValuesRows, draft: Draft) -> str:
    rows = []
    for row in values.rows:
        texts = [
            column_value(value, change.table, number, draft, inserting=True)
            for value, number in zip(row, change.columns, strict=True)
        ]
        if _has_own_bucket(change):
            by_number = {
                number: expressions.expression(value, draft)
                for value, number in zip(row, change.columns, strict=True)
                if number in _sharding_key(change.table)
            }
            texts.append(bucket(change.table, by_number, draft))
        rows.append(f"({', '.join(texts)})")
    return f"VALUES {', '.join(rows)}"


def _selected(change: plan.Insert, draft: Draft) -> str:
    """INSERT … SELECT: the source's columns, named, with what the table adds to them."""
    table = change.table
    twice = _may_meet_a_row_twice(change, None)
    inner = queries.query(change.source, draft, named=not twice)
    names = {number: f"s.f{n}" for n, number in enumerate(change.columns)}
    types = change.source.types
    texts = [_named_value(names[number], types[n], table, number) for n, number in enumerate(change.columns)]
    if _has_own_bucket(change):
        texts.append(bucket(table, names, draft))
    if not twice:
        # WHERE must not be missing: SQLite would read ON CONFLICT as a join's ON.
        return f"SELECT {', '.join(texts)} FROM ({inner}) AS s WHERE TRUE"
    # The rows are looked at as a whole before the first is written.
    upsert = change.on_conflict
    assert upsert is not None
    target = [number for number in upsert.target if number != BUCKET_ID]
    keys = ", ".join(names[number] for number in target)
    known = " AND ".join(f"{names[number]} IS NOT NULL" for number in target)
    if BUCKET_ID in _physical_target(table, upsert.target):
        keys += f", {bucket(table, names, draft)}"  # the same key in another bucket is another row
    columns = ", ".join(f"f{n}" for n in range(len(types)))
    again = f"EXISTS (SELECT 1 FROM s WHERE {known} GROUP BY {keys} HAVING count(*) > 1)"
    return (
        f"WITH s({columns}) AS MATERIALIZED ({inner})"
        f" SELECT {', '.join(texts)} FROM s WHERE iif({again}, shoal_row_met_twice(), TRUE)"
    )


def _named_value(text: str, type: SqlType, table: Table, number: int) -> str:
    column = plan.Column(0, 0, "", type, nullable=True)
    return _into_column(column, text, table, number, inserting=True)


# --- a value's way into a column ------------------------------------------------------------------


def column_value(value: plan.Expr, table: Table, number: int, draft: Draft, *, inserting: bool) -> str:
    if _is_refused_by_column(table, number):
        text = arithmetic.unchecked(value, lambda at: expressions.expression(at, draft))
    else:
        text = expressions.expression(value, draft)
    return _into_column(value, text, table, number, inserting=inserting)


def _is_refused_by_column(table: Table, number: int) -> bool:
    """Whether a column of a STRICT table refuses an overflowed integer by itself. A rowid does, too."""
    return table.by_number[number].type.is_int and not table.by_number[number].type.unsigned


def _into_column(value: plan.Expr, text: str, table: Table, number: int, *, inserting: bool) -> str:
    column = table.by_number[number]
    text = narrowed(value, text, column.type)
    rowid = table.rowid_column
    if inserting and rowid is not None and rowid.number == number and not _is_never_null(value):
        text = f"coalesce({text}, shoal_null_key({constant(column.name)}, {constant(table.name)}))"
    return text


def _is_never_null(value: plan.Expr) -> bool:
    return isinstance(value, plan.Const) and value.value is not None


def bucket(table: Table, values: Mapping[int, str], draft: Draft) -> str:
    """The bucket of a row whose sharding key has these values; a column without one is NULL."""
    key = _sharding_key(table)
    texts = [values.get(number, "NULL") for number in key]
    return f"shoal_bucket({', '.join((constant(bucket_code(table, draft.schema)), *texts))})"


# --- ON CONFLICT ---------------------------------------------------------------------------------


def _may_meet_a_row_twice(change: plan.Insert, rows: int | None) -> bool:
    """DO UPDATE may change a row once; two rows of one statement with the same key are an error (21000).

    SQLite would let the second update the first. For one row there is nothing to look at. Stricter than
    PostgreSQL in one case: two such rows are refused even where the statement's WHERE would spare the row.
    """
    upsert = change.on_conflict
    if upsert is None or upsert.action is not ConflictAction.UPDATE or not upsert.target:
        return False
    if not set(upsert.target) - {BUCKET_ID} <= set(change.columns):
        return False  # a key column that stays NULL conflicts with nothing
    if rows is None:
        body = change.source.body
        rows = len(body.rows) if isinstance(body, plan.ValuesRows) else 2
    return rows > 1


def _on_conflict(change: plan.Insert, draft: Draft) -> str:
    upsert, table = change.on_conflict, change.table
    if upsert is None or upsert.action is ConflictAction.FAIL:
        return ""
    target = upsert.target
    if upsert.action is ConflictAction.REPLACE:
        # The primary key's row gets all the new values; another unique index may still refuse it.
        target = tuple(part.column for part in table.physical_key)
        others = [column for column in table.by_number.values() if column.number not in target]
        columns = others or [table.by_number[target[0]]]
        sets = ", ".join(f"{column.physical} = excluded.{column.physical}" for column in columns)
        return f" ON CONFLICT ({_column_list(table, target)}) DO UPDATE SET {sets}"
    if upsert.action is ConflictAction.NOTHING:
        on = f" ({_column_list(table, _physical_target(table, target))})" if target else ""
        return f" ON CONFLICT{on} DO NOTHING"
    draft.name_columns(upsert.excluded, table_columns(table, "excluded"))
    sets = _assignments(upsert.sets, table, f"r{change.relation}", draft)
    text = f" ON CONFLICT ({_column_list(table, _physical_target(table, target))}) DO UPDATE SET {sets}"
    if upsert.where is not None:
        text += f" WHERE {expressions.condition(upsert.where, draft)}"
    return text


def _physical_target(table: Table, target: tuple[int, ...]) -> tuple[int, ...]:
    """The columns of SQLite's index for a conflict target: of a primary key, bucket_id may be one more."""
    if set(target) == set(table.key_numbers) - {BUCKET_ID} or set(target) == set(table.key_numbers):
        return tuple(part.column for part in table.physical_key)
    return target


def _column_list(table: Table, numbers: tuple[int, ...]) -> str:
    return ", ".join(table.by_number[number].physical for number in numbers)


# --- UPDATE and DELETE ---------------------------------------------------------------------------


def update(change: plan.Update, draft: Draft) -> str:
    table, relation = change.table, change.relation
    draft.name_columns(relation, table_columns(table, f"r{relation}"))
    source = queries.source_text(change.source, draft) if change.source is not None else None
    target = queries.scan_text(table, relation, change.indexed_by, draft)
    text = f"UPDATE {target} SET {_assignments(change.sets, table, f'r{relation}', draft)}"
    if source is None and _reads_itself(change):
        source = "(SELECT 1)"
    if source is not None:
        text += f" FROM {source}"
        if change.returning and change.source is not None:
            _refuse_other_relations(change)
    guards: list[str] = []
    if draft.guarded:
        guards = queries.guards(change.source, (relation, table)) or ["shoal_guard()"]
    where = queries.condition(change.where, draft, guards)
    if where is not None:
        text += f" WHERE {where}"
    return text + _returning(change.returning, relation, table, draft)


def _assignments(sets: tuple[plan.Set, ...], table: Table, target: str, draft: Draft) -> str:
    texts = [
        f"{table.by_number[s.column].physical} = {column_value(s.value, table, s.column, draft, inserting=False)}"
        for s in sets
    ]
    key = _sharding_key(table)
    if any(s.column in key for s in sets):
        values = {number: f"{target}.{table.by_number[number].physical}" for number in key}
        values |= {s.column: expressions.expression(s.value, draft) for s in sets if s.column in key}
        texts.append(f"bucket_id = {bucket(table, values, draft)}")
    return ", ".join(texts)


def _reads_itself(change: plan.Update) -> bool:
    return any(scan.table.id == change.table.id for s in change.sets for scan in scans_of_expression(s.value))


def delete(change: plan.Delete, draft: Draft) -> str:
    table, relation = change.table, change.relation
    draft.name_columns(relation, table_columns(table, f"r{relation}"))
    text = f"DELETE FROM {queries.scan_text(table, relation, change.indexed_by, draft)}"
    where = queries.condition(change.where, draft, ["shoal_guard()"] if draft.guarded else [])
    if where is not None:
        text += f" WHERE {where}"
    return text + _returning(change.returning, relation, table, draft)


# --- RETURNING -----------------------------------------------------------------------------------


def _returning(outputs: tuple[plan.Output, ...], relation: int, table: Table, draft: Draft) -> str:
    if not outputs:
        return ""
    for output in outputs:
        if any(scan.table.id == table.id for scan in scans_of_expression(output.expr)):
            raise FeatureNotSupported("a subquery in RETURNING cannot read the table that is changed")
    draft.name_columns(relation, _written_columns(table))
    return f" RETURNING {', '.join(expressions.expression(output.expr, draft) for output in outputs)}"


def _written_columns(table: Table) -> ColumnText:
    """A REAL is an integer on its way into a row, if it can be: inside of an expression it would stay one."""
    plain = table_columns(table, quoted(table.physical))

    def name(column: plan.Column) -> str:
        return f"CAST({plain(column)} AS REAL)" if column.type.is_double else plain(column)

    return name


def _refuse_other_relations(change: plan.Update) -> None:
    for output in change.returning:
        for at in walk(output.expr):
            if isinstance(at, plan.Column) and at.relation != change.relation:
                raise FeatureNotSupported(
                    "RETURNING of UPDATE … FROM can name the updated table's columns only"
                )
