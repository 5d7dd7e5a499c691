"""A statement of sql/ast.py as SQL again: every operand in brackets, nothing abbreviated.

What the scripts of the parser show, since brackets tell what bound to what; and it parses to the same
tree, which test_parser.py checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from shoal.sql import ast
from shoal.sql.lexer import RESERVED

# Words that name() takes, but whose meaning depends on the words behind: in quotes they are names surely.
CONTEXTUAL = frozenset(
    """right full cross natural intersect fetch for indexed offset returning like ilike escape collate at
    any some row trim position extract overlay current_user session_user current_role current_catalog
    current_schema column constraint check unique foreign exclude only lateral do wait conflict
    both leading trailing symmetric asymmetric session local time transaction names
    timestamp double char character bit rollup cube grouping default partition all""".split()  # noqa: SIM905
)


BARE_CALLS = frozenset(
    """current_date current_time current_timestamp localtime localtimestamp current_user session_user
    current_role current_catalog current_schema""".split()  # noqa: SIM905
)


def canonical(node: object) -> str:
    """The text of any statement, expression, or part of one."""
    return _TEXTS[type(node)](node)


def name(node: ast.Name | None) -> str:
    if node is None:
        return ""
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", node.text) and node.text not in RESERVED | CONTEXTUAL
    return node.text if plain else '"' + node.text.replace('"', '""') + '"'


def string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def commas(nodes: Iterable[object], text: Callable[..., str] = canonical) -> str:
    return ", ".join(text(node) for node in nodes)


def words(*parts: str | bool) -> str:
    """The parts that say something, with blanks between them."""
    return " ".join(part for part in parts if isinstance(part, str) and part)


def clause(keyword: str, node: object) -> str:
    """keyword node, or nothing."""
    if node is None or node == ():
        return ""
    return f"{keyword} {commas(node) if isinstance(node, tuple) else canonical(node)}"


# --- expressions ---


def _literal(node: ast.Literal) -> str:
    text = string(node.text) if node.kind is ast.LiteralKind.STRING else node.text
    return "-" + text if node.negative else text


def _unary(node: ast.Unary) -> str:
    arg = canonical(node.arg)
    # Without brackets the sign would become the number's own.
    return f"({node.op} ({arg}))" if isinstance(node.arg, ast.Literal) else f"({node.op} {arg})"


def _column(node: ast.ColumnRef) -> str:
    return f"{name(node.table)}.{name(node.column)}" if node.table else name(node.column)


def _like(node: ast.Like) -> str:
    operator = "similar to" if node.kind is ast.LikeKind.SIMILAR else node.kind.value
    parts = words(canonical(node.arg), node.negated and "not", operator, canonical(node.pattern))
    return f"({words(parts, clause('escape', node.escape))})"


def _case(node: ast.Case) -> str:
    branches = " ".join(f"when {canonical(when)} then {canonical(then)}" for when, then in node.branches)
    return words(clause("case", node.operand) or "case", branches, clause("else", node.otherwise), "end")


def _call(node: ast.Call) -> str:
    bare = node.name.text
    filtered = f" filter (where {canonical(node.filter)})" if node.filter else ""
    if bare == "position":
        return f"position({' in '.join(canonical(arg) for arg in node.args)})"
    if bare in BARE_CALLS:
        return bare + (f"({commas(node.args)})" if node.args else "") + filtered
    inside = "*" if node.star else words(node.distinct and "distinct", commas(node.args))
    over = " over (…)" if node.over else ""
    return f"{bare if bare == 'substring' else name(node.name)}({inside}){filtered}{over}"


def _trim(node: ast.Trim) -> str:
    chars = canonical(node.chars) if node.chars else ""
    return f"trim({words(node.side, chars, 'from', canonical(node.arg))})"


def _substring(node: ast.Substring) -> str:
    forms = words(
        clause("from", node.start),
        clause("for", node.length),
        clause("similar", node.pattern),
        clause("escape", node.escape),
    )
    return f"substring({canonical(node.arg)} {forms})"


def _type(node: ast.TypeName) -> str:
    arguments = f"({commas(node.arguments, str)})" if node.arguments else ""
    first, _, rest = node.name.partition(" ")
    known = rest in ("precision", "varying", "with time zone", "without time zone")
    plain = re.fullmatch(r"[a-z_][a-z0-9_]*", node.name) and node.name not in RESERVED
    spelled = node.name if known or plain else name(ast.Name(node.name, 0))
    if rest.endswith("time zone") and known:
        spelled, arguments = f"{first}{arguments} {rest}", ""
    return spelled + arguments + ("[]" if node.is_array else "")


# --- queries ---


def _named(text: str, alias: ast.Name | None, columns: tuple[ast.Name, ...] = ()) -> str:
    return words(text, alias is not None and f"as {name(alias)}") + (
        f"({commas(columns, name)})" if columns else ""
    )


def _table(node: ast.TableRef) -> str:
    text = f"{name(node.schema)}.{name(node.name)}" if node.schema else name(node.name)
    indexed_by = f"indexed by {name(node.indexed_by)}" if node.indexed_by else ""
    return words(_named(text, node.alias, node.column_aliases), indexed_by)


def _join(node: ast.Join) -> str:
    return f"({words(canonical(node.left), node.kind.value, 'join', canonical(node.right), clause('on', node.on))})"


def _select(node: ast.Select) -> str:
    return words(
        "select",
        node.distinct and "distinct",
        commas(node.items),
        _source("from", node.source),
        clause("where", node.where),
        clause("group by", node.group_by),
        clause("having", node.having),
    )


def _source(keyword: str, node: ast.FromItem | None) -> str:
    text = clause(keyword, node)
    # The brackets of the outermost join are only in the way.
    return f"{keyword} {text[len(keyword) + 2 : -1]}" if isinstance(node, ast.Join) else text


def _set_operation(node: ast.SetOperation) -> str:
    def operand(body: object) -> str:
        return canonical(body) if isinstance(body, ast.Select | ast.Values) else f"({canonical(body)})"

    return words(operand(node.left), node.kind.value, node.all and "all", operand(node.right))


def _sort_key(node: ast.SortKey) -> str:
    nulls = {None: "", True: "nulls first", False: "nulls last"}[node.nulls_first]
    return words(canonical(node.expr), node.descending and "desc", nulls)


def _cte(node: ast.Cte) -> str:
    columns = f" ({commas(node.columns, name)})" if node.columns else ""
    return f"{name(node.name)}{columns} as ({canonical(node.query)})"


def _query(node: ast.Query) -> str:
    body = canonical(node.body)
    return words(
        clause("with", node.ctes),
        f"({body})" if isinstance(node.body, ast.Query) else body,
        clause("order by", node.order_by),
        clause("limit", node.limit),
        clause("offset", node.offset),
        _options(node.options),
    )


def _options(options: tuple[ast.Option, ...]) -> str:
    def value(node: ast.Option) -> str:
        return node.value.text if isinstance(node.value, ast.Name) else canonical(node.value)

    settings = commas(options, lambda node: f"{name(node.name)} = {value(node)}")
    return f"option ({settings})" if options else ""


# --- DML ---


def _insert(node: ast.Insert) -> str:
    return words(
        "insert into",
        _named(name(node.table), node.alias),
        node.columns != () and f"({commas(node.columns, name)})",
        canonical(node.source),
        node.on_conflict is not None and canonical(node.on_conflict),
        clause("returning", node.returning),
        _options(node.options),
    )


def _on_conflict(node: ast.OnConflict) -> str:
    return words(
        "on conflict",
        node.target != () and f"({commas(node.target, name)})",
        f"do {node.action.value}",
        clause("set", node.assignments),
        clause("where", node.where),
    )


def _target(node: ast.Update | ast.Delete) -> str:
    indexed_by = f"indexed by {name(node.indexed_by)}" if node.indexed_by else ""
    return words(_named(name(node.table), node.alias), indexed_by)


def _update(node: ast.Update) -> str:
    return words(
        "update",
        _target(node),
        clause("set", node.assignments),
        _source("from", node.source),
        clause("where", node.where),
        clause("returning", node.returning),
        _options(node.options),
    )


def _delete(node: ast.Delete) -> str:
    return words(
        "delete from",
        _target(node),
        clause("where", node.where),
        clause("returning", node.returning),
        _options(node.options),
    )


# --- DDL ---


def _column_def(node: ast.ColumnDef) -> str:
    nullable = {None: "", True: "null", False: "not null"}[node.nullable]
    key = node.primary_key and ("primary key desc" if node.descending else "primary key")
    return words(name(node.name), canonical(node.type), nullable, key)


def _settings(options: tuple[tuple[ast.Name, str], ...]) -> str:
    return f"with ({commas(options, lambda item: f'{name(item[0])} = {string(item[1])}')})" if options else ""


def _distribution(node: ast.DistributedBy | ast.DistributedGlobally | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.DistributedGlobally):
        return "distributed globally"
    by = f"by ({commas(node.columns, name)})" if node.columns else ""
    return words("distributed", by, node.tier is not None and f"in tier {name(node.tier)}")


def _password(node: ast.Password) -> str:
    return words(f"password {string(node.text)}", node.method is not None and f"using {node.method}")


def _granted(node: ast.PrivilegeOn | ast.Name) -> str:
    if isinstance(node, ast.Name):
        return name(node)
    return words(node.privilege, node.object is not None and "on", node.object_type, name(node.object))


def _wait(node: ast.Wait) -> str:
    return words(
        not node.globally and "wait applied locally",
        node.timeout is not None and f"option (timeout = {node.timeout})",
    )


def _create_table(node: ast.CreateTable) -> str:
    elements = [canonical(column) for column in node.columns]
    if node.primary_key is not None:
        elements.append(f"primary key ({commas(node.primary_key)})")
    return words(
        "create",
        node.unlogged and "unlogged",
        "table",
        node.if_not_exists and "if not exists",
        name(node.name),
        f"({', '.join(elements)})",
        node.engine is not None and f"using {name(node.engine)}",
        _settings(node.with_options),
        _distribution(node.distribution),
        _wait(node.wait),
    )


def _alter_table(node: ast.AlterTable) -> str:
    return words(
        "alter table",
        node.if_exists and "if exists",
        name(node.table),
        commas(node.actions),
        _wait(node.wait),
    )


def _create_index(node: ast.CreateIndex) -> str:
    return words(
        "create",
        node.unique and "unique",
        "index",
        node.if_not_exists and "if not exists",
        name(node.name),
        f"on {name(node.table)}",
        node.method is not None and f"using {name(node.method)}",
        f"({commas(node.parts)})",
        _settings(node.with_options),
        _wait(node.wait),
    )


# --- the rest ---


def _modes(read_only: bool | None) -> str:
    return {None: "", True: "read only", False: "read write"}[read_only]


def _set_transaction(node: ast.SetTransaction) -> str:
    # Isolation levels are dropped, but one of the modes must stand there.
    start = "set session characteristics as transaction" if node.session else "set transaction"
    return words(start, _modes(node.read_only) or "deferrable")


def _setting_name(node: ast.Name) -> str:
    return ".".join(name(ast.Name(part, 0)) for part in node.text.split("."))


def _set(node: ast.SetVariable) -> str:
    values = commas(node.values, string) if node.values else "default"
    return words("set", node.local and "local", _setting_name(node.name), "=", values)


def _alter_system(node: ast.AlterSystem) -> str:
    tier = f"for tier {name(node.tier)}" if node.tier else ""
    if node.value is None:
        return words("alter system reset", _setting_name(node.name) if node.name else "all", tier)
    assert node.name is not None
    text = string(str(node.value)) if node.value_kind is ast.LiteralKind.STRING else str(node.value).lower()
    return words(f"alter system set {_setting_name(node.name)} = {text}", tier)


def _expel(node: ast.ExpelInstance) -> str:
    timeout = node.timeout is not None and f"option (timeout = {node.timeout})"
    return words("alter system expel instance", string(node.uuid), node.force and "force", timeout)


def _routine(node: ast.RenameProcedure | ast.DropProcedure) -> str:
    types = "" if node.parameters is None else f" ({', '.join(map(_type, node.parameters))})"
    return name(node.name) + types


def _explain(node: ast.Explain) -> str:
    facets = [*node.facets, *(["fmt"] * node.fmt), *(["analyze"] * node.analyze)]
    return words("explain", f"({', '.join(facets)})" if facets else "", canonical(node.statement))


def _discard(node: ast.Discard) -> str:
    return {"portals": "close all", "channels": "unlisten *"}.get(node.what, f"discard {node.what}")


_TEXTS: dict[type, Callable[..., str]] = {
    ast.Name: name,
    ast.TypeName: _type,
    ast.Literal: _literal,
    ast.NullLiteral: lambda node: "null",
    ast.BooleanLiteral: lambda node: str(node.value).lower(),
    ast.Parameter: lambda node: f"${node.number}",
    ast.ColumnRef: _column,
    ast.Star: lambda node: f"{name(node.table)}.*" if node.table else "*",
    ast.Unary: _unary,
    ast.Binary: lambda node: f"({canonical(node.left)} {node.op} {canonical(node.right)})",
    ast.IsTest: lambda node: f"({words(canonical(node.arg), 'is', node.negated and 'not', node.test)})",
    ast.IsDistinct: lambda node: (
        f"({words(canonical(node.left), 'is', node.negated and 'not', 'distinct from', canonical(node.right))})"
    ),
    ast.Between: lambda node: (
        f"({words(canonical(node.arg), node.negated and 'not', 'between')}"
        f" {canonical(node.low)} and {canonical(node.high)})"
    ),
    ast.InList: lambda node: (
        f"({words(canonical(node.arg), node.negated and 'not', 'in')} ({commas(node.items)}))"
    ),
    ast.InQuery: lambda node: (
        f"({words(canonical(node.arg), node.negated and 'not', 'in')} ({canonical(node.query)}))"
    ),
    ast.Quantified: lambda node: (
        f"({canonical(node.arg)} {node.op} {'all' if node.every else 'any'} ({canonical(node.array)}))"
    ),
    ast.Like: _like,
    ast.Case: _case,
    ast.Cast: lambda node: f"cast({canonical(node.arg)} as {canonical(node.type)})",
    ast.Call: _call,
    ast.Trim: _trim,
    ast.Substring: _substring,
    ast.Exists: lambda node: f"exists ({canonical(node.query)})",
    ast.ScalarQuery: lambda node: f"({canonical(node.query)})",
    ast.RowExpr: lambda node: f"row({commas(node.items)})",
    ast.ArrayExpr: lambda node: f"array[{commas(node.items)}]",
    ast.IndexExpr: lambda node: f"({canonical(node.arg)})[{canonical(node.index)}]",
    ast.Default: lambda node: "default",
    ast.SelectItem: lambda node: _named(canonical(node.expr), node.alias),
    ast.TableRef: _table,
    ast.SubqueryRef: lambda node: _named(f"({canonical(node.query)})", node.alias, node.column_aliases),
    ast.Join: _join,
    ast.Select: _select,
    ast.Values: lambda node: "values " + commas(node.rows, lambda row: f"({commas(row)})"),
    ast.SetOperation: _set_operation,
    ast.SortKey: _sort_key,
    ast.Cte: _cte,
    ast.Query: _query,
    ast.Assignment: lambda node: f"{name(node.column)} = {canonical(node.value)}",
    ast.Insert: _insert,
    ast.OnConflict: _on_conflict,
    ast.Update: _update,
    ast.Delete: _delete,
    ast.ColumnDef: _column_def,
    ast.KeyPart: lambda node: words(name(node.column), node.descending and "desc"),
    ast.CreateTable: _create_table,
    ast.AlterTable: _alter_table,
    ast.RenameTable: lambda node: f"rename to {name(node.new_name)}",
    ast.RenameColumn: lambda node: f"rename column {name(node.column)} to {name(node.new_name)}",
    ast.AddColumn: lambda node: words(
        "add column", node.if_not_exists and "if not exists", canonical(node.column)
    ),
    ast.DropTable: lambda node: words(
        "drop table", node.if_exists and "if exists", name(node.table), _wait(node.wait)
    ),
    ast.Truncate: lambda node: words("truncate table", name(node.table), _wait(node.wait)),
    ast.CreateIndex: _create_index,
    ast.DropIndex: lambda node: words(
        "drop index", node.if_exists and "if exists", name(node.name), _wait(node.wait)
    ),
    ast.RenameIndex: lambda node: words(
        "alter index",
        node.if_exists and "if exists",
        f"{name(node.name)} rename to {name(node.new_name)}",
        _wait(node.wait),
    ),
    ast.Begin: lambda node: words("begin", _modes(node.read_only)),
    ast.Commit: lambda node: "commit",
    ast.Rollback: lambda node: "rollback",
    ast.Savepoint: lambda node: f"savepoint {name(node.name)}",
    ast.ReleaseSavepoint: lambda node: f"release savepoint {name(node.name)}",
    ast.RollbackTo: lambda node: f"rollback to savepoint {name(node.name)}",
    ast.SetVariable: _set,
    ast.SetTransaction: _set_transaction,
    ast.Show: lambda node: f"show {_setting_name(node.name) if node.name.text != 'all' else 'all'}",
    ast.Reset: lambda node: f"reset {_setting_name(node.name) if node.name else 'all'}",
    ast.Deallocate: lambda node: f"deallocate {name(node.name) if node.name else 'all'}",
    ast.Discard: _discard,
    ast.AlterSystem: _alter_system,
    ast.CreateProcedure: lambda node: words(
        "create procedure",
        node.if_not_exists and "if not exists",
        name(node.name) + f" ({', '.join(map(_type, node.parameters))})",
        f"as {string(node.body)}",
        _wait(node.wait),
    ),
    ast.RenameProcedure: lambda node: words(
        "alter procedure", _routine(node), f"rename to {name(node.new_name)}", _wait(node.wait)
    ),
    ast.DropProcedure: lambda node: words(
        "drop procedure", node.if_exists and "if exists", _routine(node), _wait(node.wait)
    ),
    ast.ExpelInstance: _expel,
    ast.AbortSchemaChange: lambda node: f"alter system abort schema change {node.version}",
    ast.CreateUser: lambda node: words(
        "create user",
        node.if_not_exists and "if not exists",
        name(node.user),
        _password(node.password),
        _wait(node.wait),
    ),
    ast.AlterUserPassword: lambda node: words(
        f"alter user {name(node.user)} with", _password(node.password), _wait(node.wait)
    ),
    ast.AlterUserLogin: lambda node: words(
        f"alter user {name(node.user)} with", "login" if node.login else "nologin", _wait(node.wait)
    ),
    ast.RenameUser: lambda node: words(
        f"alter user {name(node.user)} with rename to {name(node.new_name)}", _wait(node.wait)
    ),
    ast.DropUser: lambda node: words(
        "drop user", node.if_exists and "if exists", name(node.user), _wait(node.wait)
    ),
    ast.CreateRole: lambda node: words(
        "create role", node.if_not_exists and "if not exists", name(node.role), _wait(node.wait)
    ),
    ast.DropRole: lambda node: words(
        "drop role", node.if_exists and "if exists", name(node.role), _wait(node.wait)
    ),
    ast.Grant: lambda node: words("grant", _granted(node.what), f"to {name(node.grantee)}", _wait(node.wait)),
    ast.Revoke: lambda node: words(
        "revoke", _granted(node.what), f"from {name(node.grantee)}", _wait(node.wait)
    ),
    ast.Explain: _explain,
}
