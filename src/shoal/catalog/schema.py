"""What the cluster knows of its tables: columns, keys, distribution, indexes, versions.

Here: Table, Column, Index and Schema, immutable values; a change makes a new Schema.
Not here: the system tables that hold all this durably (system.py), what a log entry changes in them
(apply.py), the physical tables of SQLite (storage/tables.py).

Invariant: a table's `version` is raised by every change of the table, and never used twice. A statement
remembers the versions that it was compiled against, and runs on no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NewType

from shoal.types.sqltype import INT, SqlType

TableId = NewType("TableId", int)
IndexId = NewType("IndexId", int)
TierName = NewType("TierName", str)

# The number of the hidden column, where a column's number is asked for.
BUCKET_ID: Final = -1
BUCKET_ID_NAME: Final = "bucket_id"

FIRST_USER_TABLE_ID: Final = 1025
DEFAULT_TIER: Final = TierName("default")
DEFAULT_BUCKET_COUNT: Final = 3000


@dataclass(frozen=True, slots=True)
class Column:
    number: int  # never reused in its table; names the physical column `c<number>`
    name: str
    type: SqlType
    nullable: bool

    @property
    def physical(self) -> str:
        return BUCKET_ID_NAME if self.number == BUCKET_ID else f"c{self.number}"


BUCKET_COLUMN: Final = Column(BUCKET_ID, BUCKET_ID_NAME, INT, nullable=False)


@dataclass(frozen=True, slots=True)
class KeyPart:
    column: int  # a column's number, or BUCKET_ID
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. The primary key is the table's own."""

    id: IndexId
    name: str
    unique: bool
    method: str  # "tree"
    parts: tuple[KeyPart, ...]
    version: int
    operable: bool = True


@dataclass(frozen=True, slots=True)
class Sharded:
    key: tuple[int, ...]  # column numbers, in the order they are hashed; (BUCKET_ID,) never
    tier: TierName
    implicit: bool  # by the primary key, since nobody said otherwise


@dataclass(frozen=True, slots=True)
class Global:
    """On every instance, through the Raft log."""


Distribution = Sharded | Global


@dataclass(frozen=True)
class Table:
    id: TableId
    name: str
    columns: tuple[Column, ...]  # in the order of SELECT *; without the hidden bucket_id
    primary_key: tuple[KeyPart, ...]
    distribution: Distribution
    version: int
    generation: int  # the version at which the physical table was made
    operable: bool = True
    engine: str = "memtx"  # said by the user, kept for SHOW; both live in SQLite
    owner: int = 1
    unlogged: bool = False
    description: str = ""
    indexes: tuple[Index, ...] = ()
    system: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """Columns by name, the hidden one included."""
        columns = {c.name: c for c in self.columns}
        if self.is_sharded:
            columns[BUCKET_ID_NAME] = BUCKET_COLUMN
        return columns

    @cached_property
    def by_number(self) -> Mapping[int, Column]:
        columns = {c.number: c for c in self.columns}
        if self.is_sharded:
            columns[BUCKET_ID] = BUCKET_COLUMN
        return columns

    @property
    def is_sharded(self) -> bool:
        return isinstance(self.distribution, Sharded)

    @property
    def physical(self) -> str:
        """The name of its table in SQLite, without the file."""
        return f"t{self.id}_{self.generation}"

    @property
    def file(self) -> str:
        """Which attached file of SQLite holds it, as the data connections name them."""
        if not self.is_sharded:
            return "catalog"
        return "unlogged" if self.unlogged else "main"

    def physical_index(self, index: Index) -> str:
        return f"{self.physical}_i{index.id}"

    @cached_property
    def key_numbers(self) -> tuple[int, ...]:
        """The numbers of the primary key's columns, in key order (BUCKET_ID may be the first)."""
        return tuple(part.column for part in self.primary_key)

    @cached_property
    def physical_key(self) -> tuple[KeyPart, ...]:
        """The primary key, and bucket_id behind it where it doesn't contain the sharding key.

        Such a key is unique per bucket only: two shards can't see each other's rows.
        """
        if isinstance(self.distribution, Sharded) and not self.key_has_bucket:
            if not set(self.distribution.key) <= set(self.key_numbers):
                return (*self.primary_key, KeyPart(BUCKET_ID))
        return self.primary_key

    @property
    def key_has_bucket(self) -> bool:
        return BUCKET_ID in self.key_numbers

    @cached_property
    def rowid_column(self) -> Column | None:
        """The one INT column that is the whole key, and so SQLite's rowid. DESC keys aren't."""
        if len(self.physical_key) != 1 or self.physical_key[0].descending:
            return None
        column = self.by_number[self.physical_key[0].column]
        return column if column.type.sqlite_type == "INTEGER" and column.type.kind.name == "INT" else None


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stored statement with parameters. Not here yet: calling it."""

    id: int  # no table has it
    name: str
    parameters: tuple[SqlType, ...]
    language: str
    body: str
    owner: int
    version: int
    operable: bool = True

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(parameter.error_name for parameter in self.parameters)})"


@dataclass(frozen=True, slots=True)
class Tier:
    name: TierName
    bucket_count: int = DEFAULT_BUCKET_COUNT
    replication_factor: int = 1
    can_vote: bool = True
    is_default: bool = True


@dataclass(frozen=True)
class Schema:
    """All of it, at one version. Statements are bound against one of these, and never see it change."""

    version: int
    tables: Mapping[str, Table] = field(default_factory=dict)
    tiers: Mapping[TierName, Tier] = field(default_factory=dict)
    procedures: Mapping[str, Procedure] = field(default_factory=dict)

    @cached_property
    def tables_by_id(self) -> Mapping[TableId, Table]:
        return {table.id: table for table in self.tables.values()}

    @cached_property
    def procedures_by_id(self) -> Mapping[int, Procedure]:
        return {procedure.id: procedure for procedure in self.procedures.values()}

    @cached_property
    def indexes(self) -> Mapping[str, tuple[Table, Index]]:
        return {index.name: (table, index) for table in self.tables.values() for index in table.indexes}

    @cached_property
    def default_tier(self) -> Tier:
        return next(tier for tier in self.tiers.values() if tier.is_default)

    def bucket_count(self, table: Table) -> int:
        assert isinstance(table.distribution, Sharded), table.name
        return self.tiers[table.distribution.tier].bucket_count

    def with_table(self, table: Table, version: int) -> Schema:
        kept = {name: other for name, other in self.tables.items() if other.id != table.id}
        return replace(self, version=version, tables={**kept, table.name: table})

    def without_table(self, table_id: TableId, version: int) -> Schema:
        kept = {name: other for name, other in self.tables.items() if other.id != table_id}
        return replace(self, version=version, tables=kept)

    def with_procedure(self, procedure: Procedure, version: int) -> Schema:
        kept = self.without_procedure(procedure.id, version)
        return replace(kept, procedures={**kept.procedures, procedure.name: procedure})

    def without_procedure(self, procedure_id: int, version: int) -> Schema:
        kept = {name: other for name, other in self.procedures.items() if other.id != procedure_id}
        return replace(self, version=version, procedures=kept)


def schema_of(version: int, tables: Iterable[Table], tiers: Iterable[Tier]) -> Schema:
    return Schema(version, {table.name: table for table in tables}, {tier.name: tier for tier in tiers})
