"""The facets of EXPLAIN and their headings.

Here: explain(), and the facets BUCKETS, RAW and CONTEXT.
Not here: the logical plan (nodes.py, expressions.py), what buckets are touched (optimise/buckets.py),
running SQLite's EXPLAIN QUERY PLAN (the caller's callback).

Nothing secret is shown: values stand nowhere but where the asker wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shoal.catalog.schema import Schema
from shoal.errors import FeatureNotSupported, ShoalError
from shoal.sql import plan
from shoal.sql.explain.nodes import logical_plan
from shoal.sql.local.draft import constant
from shoal.sql.optimise import optimise
from shoal.sql.optimise.buckets import infer_buckets
from shoal.sql.program import Facts, Program, SessionBind, bindings
from shoal.types.values import Stored

__all__ = ["explain"]

# In the order in which they are shown, whatever the order in which they were asked for.
_FACETS: Final[Mapping[str, str]] = {
    "logical": "Logical plan",
    "raw": "Raw plan",
    "forward": "Forward",
    "buckets": "Buckets",
    "context": "Context",
}
_DEFAULT_FACETS: Final = ("logical", "buckets")
_WIDTH: Final = 70

# What holds where OPTION (…) says nothing.
VDBE_OPCODE_MAX: Final = 45_000
MOTION_ROW_MAX: Final = 5_000


def explain(
    bound: plan.Bound,
    program: Program,
    schema: Schema,
    facets: Sequence[str],
    params: Sequence[Stored] | None,
    *,
    facts: Facts,
    query_plan: Callable[[str], list[str]],
    fmt: bool = False,
) -> list[str]:
    """The lines of EXPLAIN's answer. `params` is None where the statement is explained without values."""
    asked = set(facets or _DEFAULT_FACETS)
    if "forward" in asked:
        raise FeatureNotSupported("EXPLAIN (FORWARD) is not supported yet")
    sections = {
        "logical": lambda: logical_plan(bound, fmt=fmt),
        "raw": lambda: _raw(bound, program, schema, params, facts, query_plan),
        "buckets": lambda: [_buckets(bound, schema, params, facts)],
        "context": lambda: _context(bound.options, params),
    }
    shown = [facet for facet in _FACETS if facet in asked]
    if len(shown) == 1:
        return sections[shown[0]]()
    lines: list[str] = []
    for facet in shown:
        lines += [""] * bool(lines)
        lines += ["─" * _WIDTH, f" # {_FACETS[facet]}".ljust(_WIDTH), "─" * _WIDTH, ""]
        lines += sections[facet]()
    return lines


# --- buckets -------------------------------------------------------------------------------------


def _buckets(bound: plan.Bound, schema: Schema, params: Sequence[Stored] | None, facts: Facts) -> str:
    buckets = infer_buckets(optimise(bound, schema), schema)
    if buckets.is_any:
        return "buckets = any"
    found = buckets.evaluate(params, facts)
    sign = "=" if buckets.is_exact(found) else "<="
    everything = range(1, buckets.bucket_count + 1)
    return f"buckets {sign} [{bucket_ranges(everything if found is None else sorted(found))}]"


def bucket_ranges(numbers: Sequence[int]) -> str:
    """Neighbours as ranges: 1-3,7."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


# --- raw -----------------------------------------------------------------------------------------

# A value's place, or a text or name in quotes, in which there is none.
_PLACE: Final = re.compile(r"""\?(\d+)|'(?:[^']|'')*'|"(?:[^"]|"")*\"""")


def _raw(
    bound: plan.Bound,
    program: Program,
    schema: Schema,
    params: Sequence[Stored] | None,
    facts: Facts,
    query_plan: Callable[[str], list[str]],
) -> list[str]:
    """The one stage of a statement on one instance."""
    title = (
        f"1. {'Query' if program.tag == 'SELECT' else program.tag} ({_place(bound, schema, params, facts)})"
    )
    lines = [f"╭{'─' * (len(title) + 2)}╮", f"│ {title} │", f"╰{'─' * (len(title) + 2)}╯", ""]
    lines += [program.sql, "", "plan:"]
    try:
        steps = query_plan(_with_values(program, params, facts))
    except ShoalError as error:
        steps = [error.message]
    return lines + [f"    {step}" for step in steps]


def _place(bound: plan.Bound, schema: Schema, params: Sequence[Stored] | None, facts: Facts) -> str:
    buckets = infer_buckets(optimise(bound, schema), schema)
    if buckets.is_any:
        return "ROUTER"
    return "WHOLE STORAGE" if buckets.evaluate(params, facts) is None else "CONST-FILTERED STORAGE, 1/1"


def _with_values(program: Program, params: Sequence[Stored] | None, facts: Facts) -> str:
    """The text with constants for its values, so that nobody has to bind any to compile it."""
    known: Facts = {
        bind.fact: facts.get(bind.fact, lambda _: None)
        for bind in program.binds
        if isinstance(bind, SessionBind)
    }
    values = bindings(program)(
        params if params is not None else [None] * len(program.parameters), None, known
    )

    def value(found: re.Match[str]) -> str:
        return constant(values[int(found[1]) - 1]) if found[1] else found[0]

    text = _PLACE.sub(value, program.sql)
    if program.writes is not None and not program.writes.is_sharded:
        # The text is for the catalog's own connection; whoever explains has the catalog attached.
        text = text.replace('"main".', '"catalog".')
    return text


# --- context -------------------------------------------------------------------------------------


def _context(options: plan.Options, params: Sequence[Stored] | None) -> list[str]:
    lines = [
        f"sql_vdbe_opcode_max = {_limit(options.vdbe_opcode_max, VDBE_OPCODE_MAX, params)}",
        f"sql_motion_row_max = {_limit(options.motion_row_max, MOTION_ROW_MAX, params)}",
    ]
    if options.read_preference is not None:
        lines.append(f"read_preference = {options.read_preference}")
    if options.forward is not None:
        lines.append(f"forward = {options.forward}")
    return lines


def _limit(said: plan.Const | plan.Param | None, default: int, params: Sequence[Stored] | None) -> str:
    if said is None:
        return str(default)
    if isinstance(said, plan.Const):
        return str(said.value)
    return f"${said.number}" if params is None else str(params[said.number - 1])
