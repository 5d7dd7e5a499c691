"""Statements, prepared once and run many times: from a text to what can be executed.

Here: Prepared, and Statements, the instance's cache of them.
Not here: parsing, binding and compiling (sql/), executing (node/session.py).

Two texts that differ only in their literals share one Prepared in the simple protocol (sql/normalise.py).
A Prepared is bound to the versions of the tables that it names, and to the rights of one user: before each execution
`current()` proves with one comparison that the catalog, which both are parts of, is still the one it knows. If it isn't, the
tables and the rights are looked at, and it is bound anew or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, Generic, TypeVar

from shoal.catalog.apply import Catalog
from shoal.catalog.rights import Privilege, Rights
from shoal.catalog.schema import Schema, Table
from shoal.errors import ShoalError, StalePlan
from shoal.node.settings import SessionSettings
from shoal.pgwire.messages import (
    BINARY_FORMAT,
    NO_DATA,
    Column,
    ParameterDescription,
    row_description,
    spread_formats,
    text_of,
)
from shoal.pgwire.rows import RowEncoder, RowsEncoder, row_encoder, rows_encoder
from shoal.sql import ast, plan
from shoal.sql.bind import bind
from shoal.sql.introspection import known_question
from shoal.sql.local import compile_program
from shoal.sql.normalise import normalise
from shoal.sql.parser import Parsed, parse_one, parse_script
from shoal.sql.plan import Bound
from shoal.sql.program import Bind, FillIn, LiteralBind, Program, Route, SessionBind, bindings
from shoal.sql.rows import rows_of
from shoal.types.binary import binary_decoder, binary_encoder
from shoal.types.sqltype import TEXT, SqlType
from shoal.types.text import text_decoder, text_encoder
from shoal.types.values import Stored
from shoal.types.zones import Zone

CACHED_MAX: Final = 10_000
# A plan takes some hundred bytes per character of its text.
CACHED_CHARACTERS_MAX: Final = 2_000_000
# Bulk inserts as one long text come once: keeping them would push everything else out.
CACHED_TEXT_MAX: Final = 16_384
# A longer text is read by a thread, so that nobody else waits for it.
LONG_TEXT: Final = 8_192

K = TypeVar("K")
V = TypeVar("V")

# Choices of formats that a statement is kept ready for.
_FORMATS_MAX: Final = 16

_NO_CATALOG: Final = Catalog(Schema(-1))
_NO_PARAMETERS: Final = ParameterDescription(()).encode()

_TYPE_SIZES: Final = {16: 1, 20: 8, 701: 8, 1184: 8, 2950: 16}


@dataclass(frozen=True, slots=True)
class ResultShape:
    """How a statement's rows go out in one choice of formats."""

    description: bytes  # RowDescription, or NoData
    encode_row: RowEncoder
    encode_rows: RowsEncoder


class Prepared:
    """One statement, ready to run. Shared by sessions of one user that have the same time zone."""

    __slots__ = (
        "_decoders",
        "_shapes",
        "bound",
        "catalog",
        "direct",
        "facts_needed",
        "fill",
        "is_point_read",
        "names",
        "parameter_description",
        "parameter_oids",
        "parameter_types",
        "program",
        "sql",
        "statement",
        "tag",
        "text",
        "types",
        "user_id",
        "zone",
    )

    def __init__(
        self, text: str, statement: ast.Statement | None, catalog: Catalog, user_id: int, zone: Zone
    ) -> None:
        self.text = text
        self.statement = statement  # None: an empty text
        self.catalog = catalog  # whose tables and rights it was found to be right for, last
        self.user_id = user_id
        self.zone = zone
        self.bound: Bound | None = None
        self.program: Program | None = None
        self.fill: FillIn | None = None
        self.sql = ""
        self.direct = False  # SQLite's parameters are the statement's, as they come
        self.is_point_read = False
        self.facts_needed = False
        self.tag = ""
        self.parameter_types: tuple[SqlType, ...] = ()
        self.parameter_oids: tuple[int, ...] = ()
        self.names: tuple[str, ...] = ()
        self.types: tuple[SqlType, ...] = ()
        self.parameter_description = _NO_PARAMETERS
        self._shapes: dict[tuple[int, ...], ResultShape] = {}
        self._decoders: dict[tuple[int, ...], tuple[Callable[[bytes], Stored], ...]] = {}

    @property
    def is_private(self) -> bool:
        return self.bound is not None and self.bound.private

    def run_program(self, bound: Bound, program: Program) -> None:
        self.bound = bound
        self.program = program
        self.fill = bindings(program)
        self.sql = program.sql
        # A limit of its own is looked at where steps are counted. Those of the session are above what this one takes.
        self.is_point_read = program.route is Route.POINT_READ and program.options.vdbe_opcode_max is None
        self.facts_needed = any(_asks_session(source) for source in program.binds)
        self.tag = program.tag
        self.take(program.parameters, program.parameter_oids)
        self.give(program.names, program.types)

    def take(self, types: tuple[SqlType, ...], oids: tuple[int, ...]) -> None:
        self.parameter_types = types
        self.parameter_oids = oids
        self.parameter_description = ParameterDescription(oids).encode()

    def give(self, names: tuple[str, ...], types: tuple[SqlType, ...]) -> None:
        self.names = names
        self.types = types

    def outdated(self) -> Prepared:
        """The same, but known to hold for no moment: whoever executes it asks for the one that does."""
        twin = copy(self)
        twin.catalog = _NO_CATALOG
        return twin

    def shape(self, formats: tuple[int, ...]) -> ResultShape:
        """For the formats that a Bind asked for: none (all text), one for all, or one a column."""
        found = self._shapes.get(formats)
        if found is None:
            found = self._make_shape(formats)
            _remember(self._shapes, formats, found)
        return found

    def _make_shape(self, formats: tuple[int, ...]) -> ResultShape:
        if not self.types:
            return ResultShape(NO_DATA, row_encoder(()), rows_encoder(()))
        spread = _spread(formats, len(self.types))
        columns = [
            Column(name, t.oid, _TYPE_SIZES.get(t.oid, -1), _modifier(t))
            for name, t in zip(self.names, self.types, strict=True)
        ]
        encoders = [
            binary_encoder(t) if chosen == BINARY_FORMAT else text_encoder(t, self.zone)
            for chosen, t in zip(spread, self.types, strict=True)
        ]
        return ResultShape(row_description(columns, spread), row_encoder(encoders), rows_encoder(encoders))

    def decoders(self, formats: tuple[int, ...]) -> tuple[Callable[[bytes], Stored], ...]:
        """What turns each parameter from the wire into its storage form."""
        found = self._decoders.get(formats)
        if found is None:
            spread = _spread(formats, len(self.parameter_oids))
            found = tuple(
                binary_decoder(oid, t) if chosen == BINARY_FORMAT else _text(text_decoder(t, self.zone))
                for chosen, oid, t in zip(spread, self.parameter_oids, self.parameter_types, strict=True)
            )
            _remember(self._decoders, formats, found)
        return found


def refuse_unless_allowed(prepared: Prepared, rights: Rights) -> None:
    """Raises if its user may not do all of it."""
    if prepared.bound is not None:
        for privilege, table in prepared.bound.needs:
            rights.refuse(prepared.user_id, privilege, table)


def _remember(known: dict[tuple[int, ...], V], formats: tuple[int, ...], made: V) -> None:
    """Drivers use one or two choices of formats for a statement; whoever uses all gets no memory for them."""
    if len(known) < _FORMATS_MAX:
        known[formats] = made


def _asks_session(source: Bind) -> bool:
    """The clock, the user, or the time zone that a literal's text is read in."""
    return isinstance(source, SessionBind) or (isinstance(source, LiteralBind) and source.type.is_datetime)


def _modifier(t: SqlType) -> int:
    """PostgreSQL's way to say numeric(p, s); -1 where there is nothing to say."""
    if t.precision is None or t.is_array:
        return -1
    return ((t.precision << 16) | (t.scale or 0)) + 4


def _spread(formats: tuple[int, ...], count: int) -> tuple[int, ...]:
    return spread_formats(formats, count)


def _text(decode: Callable[[str], Stored]) -> Callable[[bytes], Stored]:
    return lambda raw: decode(text_of(raw))


@dataclass(frozen=True, slots=True)
class ManyRows:
    """The rows of one long INSERT, ready for SQLite: a text, and its values for each row."""

    table: Table
    needs: tuple[tuple[Privilege, Table], ...]
    groups: Sequence[tuple[str, Sequence[Sequence[Stored]]]]

    def is_current(self, schema: Schema) -> bool | None:
        """May it run against this schema: yes, not before a change that is under way has ended, or never (None)."""
        table = schema.tables_by_id.get(self.table.id)
        if table is None or table.version != self.table.version:
            return None
        return table.operable


def _is_plain_insert(program: Program, prepared: Prepared) -> bool:
    return (
        program.templatable
        and program.tag == "INSERT"
        and program.writes is not None
        and program.writes.is_sharded
        and not program.names
        and not program.guarded
        and not program.parameters
        and not prepared.facts_needed
    )


class BoundedCache(Generic[K, V]):
    """Keeps the latest entries, up to a number of them and a sum of their weights. Dropping the oldest is
    cheaper per look-up than keeping count of use. get() and put() may be called from any thread."""

    def __init__(self, most: int, weight_most: int) -> None:
        self._most = most
        self._weight_most = weight_most
        self._kept: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._weight = 0
        self._lock = Lock()
        self.get = self._kept.get

    def put(self, key: K, value: V, weight: int) -> None:
        with self._lock:
            self._weight += weight - self._weights.pop(key, 0)
            self._weights[key] = weight
            self._kept[key] = value
            while len(self._weights) > self._most or self._weight > self._weight_most:
                oldest = next(iter(self._weights))
                self._weight -= self._weights.pop(oldest)
                del self._kept[oldest]


@contextmanager
def _hinting(text: str) -> Iterator[None]:
    """What psql's \\d and its kin ask isn't there yet: their users should hear what to type instead."""
    try:
        yield
    except ShoalError as error:
        if error.hint is None and "pg_catalog." in text:
            error.hint = (
                "pg_catalog isn't there yet. SELECT name FROM _pico_table WHERE id > 1024 lists the tables."
            )
        raise


class Statements:
    """The instance's prepared statements, by text, the client's parameter types and time zone, and the user."""

    def __init__(self, catalog: Callable[[], Catalog], refuse_out_of_reach: Callable[[Table], None]) -> None:
        self._catalog = catalog
        self._refuse_out_of_reach = refuse_out_of_reach  # raises if a sharded table's rows can't be had
        self._by_text: BoundedCache[tuple[str, tuple[int, ...], Zone, int], Prepared] = BoundedCache(
            CACHED_MAX, CACHED_CHARACTERS_MAX
        )
        self._by_template: BoundedCache[tuple[str, Zone, int], Prepared] = BoundedCache(
            CACHED_MAX, CACHED_CHARACTERS_MAX
        )

    # --- the extended protocol -------------------------------------------------------------------

    def prepare(self, text: str, oids: tuple[int, ...], settings: SessionSettings, user_id: int) -> Prepared:
        key = (text, oids, settings.zone, user_id)
        found = self._by_text.get(key)
        if found is not None and self._is_current(found):
            return found
        with _hinting(text):
            try:
                prepared = self._bind(text, parse_one(text), oids, settings, user_id)
            except ShoalError:
                known = known_question(text)
                if known is None:
                    raise
                prepared = self._bind(text, parse_one(known.text), known.parameter_oids, settings, user_id)
        # What isn't bound costs little, and may hold a password.
        if len(text) <= CACHED_TEXT_MAX and prepared.bound is not None and not prepared.is_private:
            self._by_text.put(key, prepared, len(text))
        return prepared

    # --- the simple protocol ---------------------------------------------------------------------

    def simple(
        self, text: str, settings: SessionSettings, user_id: int
    ) -> tuple[Prepared, Sequence[str]] | None:
        """A statement of the same template that is known already, with this text's literals; or None."""
        normalised = normalise(text) if len(text) <= CACHED_TEXT_MAX else None
        if normalised is None:
            return None
        found = self._by_template.get((normalised.template, settings.zone, user_id))
        if found is None or not self._is_current(found):
            return None
        return found, normalised.literals

    def many_rows(self, text: str, settings: SessionSettings, user_id: int) -> ManyRows | None:
        """A long INSERT of literal rows; None: it is something else, or has an error to be told of."""
        found = rows_of(text)
        if found is None:
            return None
        groups: list[tuple[str, list[Sequence[Stored]]]] = []
        table: Table | None = None
        needs: tuple[tuple[Privilege, Table], ...] = ()
        columns: set[tuple[int, ...]] = set()
        try:
            for example, rows in found.shapes.items():
                known = self.simple(example, settings, user_id)
                if known is not None:
                    prepared = known[0]
                else:
                    (parsed,) = parse_script(example)
                    prepared = self.prepare_simple(parsed, example, True, settings, user_id)
                program, fill = prepared.program, prepared.fill
                if program is None or fill is None or not _is_plain_insert(program, prepared):
                    return None
                assert prepared.bound is not None and isinstance(prepared.bound.root, plan.Insert)
                columns.add(prepared.bound.root.columns)
                table, needs = program.writes, prepared.bound.needs
                groups.append((program.sql, [fill((), literals, {}) for literals in rows]))
        except ShoalError:
            return None
        assert table is not None
        # Rows of unequal length, each of which would do by itself, are an error of the statement.
        return ManyRows(table, needs, groups) if len(columns) == 1 else None

    def script(self, text: str) -> tuple[Parsed, ...]:
        with _hinting(text):
            return parse_script(text)

    def prepare_simple(
        self, parsed: Parsed, text: str, alone: bool, settings: SessionSettings, user_id: int
    ) -> Prepared:
        """One statement of a simple query's text."""
        with _hinting(text):
            try:
                prepared = self._bind(
                    text[parsed.start : parsed.end], parsed.statement, (), settings, user_id
                )
            except ShoalError:
                known = known_question(text)
                if known is None:
                    raise
                # Its literals are not those of the text at hand, so no other text may share its plan.
                return self._bind(known.text, parse_one(known.text), known.parameter_oids, settings, user_id)
        program = prepared.program
        shared = alone and parsed.literals_in_tree and program is not None and program.templatable
        if shared and len(text) <= CACHED_TEXT_MAX:
            normalised = normalise(text)
            if normalised is not None:
                self._by_template.put((normalised.template, settings.zone, user_id), prepared, len(text))
        return prepared

    def refuse_literals(self, text: str, settings: SessionSettings, user_id: int) -> None:
        """Raises what a literal of the text makes of it, with its place: a plan that is shared knows no places."""
        for parsed in self.script(text):
            self._bind(text[parsed.start : parsed.end], parsed.statement, (), settings, user_id)

    # --- versions --------------------------------------------------------------------------------

    def current(self, prepared: Prepared, settings: SessionSettings) -> Prepared:
        """The same statement, fit for the catalog of this moment. Its row shape stays, or it is refused; and so is
        what its user may not do any more."""
        if prepared.zone == settings.zone and self._is_current(prepared):
            return prepared
        again = self._bind(
            prepared.text, prepared.statement, prepared.parameter_oids, settings, prepared.user_id
        )
        if again.types != prepared.types or again.names != prepared.names:
            raise StalePlan
        return again

    def _is_current(self, prepared: Prepared) -> bool:
        """Does it hold for this moment? One comparison when nothing at all has changed."""
        catalog = self._catalog()
        if prepared.catalog is catalog or prepared.bound is None:
            return True
        if prepared.is_private or not self.knows_its_tables(prepared):
            return False
        refuse_unless_allowed(prepared, catalog.rights)
        prepared.catalog = catalog
        return True

    def knows_its_tables(self, prepared: Prepared) -> bool:
        """Are they still as they were when it was bound?"""
        now, bound = self._catalog().schema.tables_by_id, prepared.bound
        return bound is None or all(
            (table := now.get(known.id)) is not None and table.version == known.version
            for known in bound.tables
        )

    def _bind(
        self,
        text: str,
        statement: ast.Statement | None,
        oids: tuple[int, ...],
        settings: SessionSettings,
        user_id: int,
    ) -> Prepared:
        catalog = self._catalog()
        schema, permit = catalog.schema, partial(catalog.rights.refuse, user_id)
        prepared = Prepared(text, statement, catalog, user_id, settings.zone)
        match statement:
            case ast.Query() | ast.Insert() | ast.Update() | ast.Delete():
                bound = bind(statement, schema, oids, settings.for_binding(), permit)
                for table in bound.tables:
                    if table.is_sharded:
                        self._refuse_out_of_reach(table)
                prepared.run_program(bound, compile_program(bound, schema))
            case ast.Explain():
                bound = bind(statement.statement, schema, oids, settings.for_binding(), permit)
                prepared.bound = bound
                prepared.tag = "EXPLAIN"
                prepared.take(bound.parameters, bound.parameter_oids)
                prepared.give(("EXPLAIN",), (TEXT,))
            case ast.Show():
                prepared.tag = "SHOW"
                if statement.name.text == "all":
                    prepared.give(("name", "setting"), (TEXT, TEXT))
                else:
                    prepared.give((statement.name.text,), (TEXT,))
            case _:
                pass
        if prepared.is_private:
            # What a session has set is part of the plan: it holds for no other moment.
            prepared.catalog = _NO_CATALOG
        return prepared
