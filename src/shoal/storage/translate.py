"""SQLite's errors, said in Shoal's words, with the SQLSTATE that a driver acts on.

Here: translate(), and which errors leave nothing to trust (is_sync_failure).
Not here: errors that our own SQL functions raise (they come through apsw as they are), deciding what a
group of statements does about an error (writer.py).

SQLite names physical tables and columns; a Naming gives the table that has the users' names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, cast

import apsw

from shoal.catalog.schema import BUCKET_ID, BUCKET_ID_NAME, Column, Table
from shoal.errors import (
    CheckViolation,
    DataCorrupted,
    DatatypeMismatch,
    DiskFull,
    IntegrityError,
    InternalError,
    InvalidTextRepresentation,
    IoError,
    NotNullViolation,
    NumericOutOfRange,
    OutOfMemory,
    ProgramLimitExceeded,
    QueryCanceled,
    RetryableError,
    ShoalError,
    StatementTooComplex,
    UniqueViolation,
)
from shoal.storage.checksum import take_damaged_page

# A table by its id, as the schema of this moment has it. Asked only when there is an error to name.
Naming = Callable[[int], Table | None]

_PHYSICAL_TABLE: Final = re.compile(r"^t(\d+)_\d+$")
_PHYSICAL_COLUMN: Final = re.compile(r"^c(\d+)$")
_UNIQUE: Final = re.compile(r"^UNIQUE constraint failed: (.*)$")
_NOT_NULL: Final = re.compile(r"^NOT NULL constraint failed: ([^.]+)\.(.+)$")
_DATATYPE: Final = re.compile(r"^cannot store (\w+) value in (\w+) column ([^.]+)\.(.+)$")

# SQLite's texts for what is too much of something: its code for all of them is the general 1.
_TOO_MUCH: Final = (
    "too many",
    "Expression tree is too large",
    "parser stack overflow",
    "tables in a join",
    "nested too deep",
    "LIKE or GLOB pattern too complex",
    "statement too long",
)


def extended_code(error: apsw.Error) -> int:
    """SQLite's detailed result code."""
    return cast(int, getattr(error, "extendedresult", 0))


def is_sync_failure(error: apsw.Error) -> bool:
    """Whether an fsync failed. What the disk holds is unknown then, and asking again may lie: never retry."""
    return extended_code(error) in (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)


def translate(error: apsw.Error, naming: Naming | None = None, *, files: str = "the database") -> ShoalError:
    """What a client is told. `files` says where it happened, when SQLite doesn't."""
    text = str(error)
    if isinstance(error, apsw.ConstraintError):
        return _constraint(error, text, naming)
    if isinstance(error, apsw.IOError):
        if extended_code(error) == apsw.SQLITE_IOERR_DATA:
            page = take_damaged_page()
            return DataCorrupted(
                str(page) if page else f"a page of {files} is damaged: its checksum is wrong"
            )
        if extended_code(error) == apsw.SQLITE_IOERR_CORRUPTFS:
            return DataCorrupted(f"the file system that holds {files} is damaged")
        name = apsw.mapping_extended_result_codes.get(extended_code(error), "SQLITE_IOERR")
        return IoError(f"the disk failed on {files}: {text or 'I/O error'} ({name})")
    if isinstance(error, apsw.NotADBError):
        return DataCorrupted(f"page 1 of {files} is damaged: {text}")
    if isinstance(error, apsw.CorruptError):
        return DataCorrupted(f"{files} is damaged: {text}")
    if isinstance(error, apsw.FullError):
        return DiskFull(f"no space left for {files}")
    if isinstance(error, apsw.InterruptError):
        return QueryCanceled("canceling statement due to user request")
    if isinstance(error, apsw.MismatchError):
        # The plan is typed: the one thing that SQLite can still refuse as a rowid is an INT that overflowed.
        return NumericOutOfRange("value doesn't fit into integer range")
    if isinstance(error, apsw.TooBigError):
        return ProgramLimitExceeded("a value or a statement is longer than the storage can hold")
    if isinstance(error, apsw.NoMemError):
        return OutOfMemory("out of memory")
    if isinstance(error, apsw.ReadOnlyError):
        return IoError(f"{files} cannot be written: {text}")
    if isinstance(error, apsw.CantOpenError):
        return IoError(f"{files} cannot be opened: {text}")
    if isinstance(error, apsw.PermissionsError):
        return IoError(f"no permission for {files}: {text}")
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.SchemaChangeError):
        return RetryableError(f"{files} is in use by another operation: {text}")
    if isinstance(error, apsw.SQLError):
        if text == "integer overflow":
            return NumericOutOfRange("value doesn't fit into integer range")
        if text.startswith("malformed JSON"):
            return InvalidTextRepresentation("invalid input syntax for type json")
        if any(part in text for part in _TOO_MUCH):
            return StatementTooComplex(f"the statement is too complex for the storage: {text}")
    return InternalError(f"the storage refused a statement: {text}")


def _constraint(error: apsw.ConstraintError, text: str, naming: Naming | None) -> ShoalError:
    if (unique := _UNIQUE.match(text)) is not None:
        return UniqueViolation(_duplicate_key(unique[1], naming))
    if (not_null := _NOT_NULL.match(text)) is not None:
        table, column = _resolve(not_null[1], not_null[2], naming)
        return NotNullViolation(
            f'null value in column "{column}" of table "{table}" violates not-null constraint'
        )
    if (datatype := _DATATYPE.match(text)) is not None:
        table, column = _resolve(datatype[3], datatype[4], naming)
        if (datatype[1], datatype[2]) == ("REAL", "INTEGER"):
            # SQLite turned the result of an overflowing integer operation into a float.
            return NumericOutOfRange(
                f'value doesn\'t fit into integer range of column "{column}" of table "{table}"'
            )
        return DatatypeMismatch(
            f'column "{column}" of table "{table}" stores {datatype[2]}, but the value is {datatype[1]}'
        )
    if extended_code(error) == apsw.SQLITE_CONSTRAINT_CHECK:
        return CheckViolation(text)
    return IntegrityError(text)


def _duplicate_key(where: str, naming: Naming | None) -> str:
    """`where` is "t7_1.c2, t7_1.c3": the key's columns, or "index 'name'" where one is an expression."""
    pairs = [part.split(".", 1) for part in where.split(", ")]
    table = _table_of(pairs[0][0], naming) if all(len(pair) == 2 for pair in pairs) else None
    if table is None:
        return f"Duplicate key exists in unique index ({where})"
    numbers = tuple(_number_of(pair[1]) for pair in pairs)
    index = next(
        (i.name for i in table.indexes if i.unique and tuple(part.column for part in i.parts) == numbers),
        f"{table.name}_pkey",
    )
    return f'Duplicate key exists in unique index "{index}" of table "{table.name}"'


def duplicate_in_new_index(table: Table, index_name: str) -> UniqueViolation:
    return UniqueViolation(
        f'Duplicate key exists in unique index "{index_name}" of table "{table.name}"',
        detail="The index was not created: its key is not unique.",
    )


def statement_timeout() -> QueryCanceled:
    return QueryCanceled("canceling statement due to statement timeout")


def _table_of(physical: str, naming: Naming | None) -> Table | None:
    match = _PHYSICAL_TABLE.match(physical)
    return naming(int(match[1])) if match is not None and naming is not None else None


def _number_of(physical: str) -> int | None:
    if physical == BUCKET_ID_NAME:
        return BUCKET_ID
    match = _PHYSICAL_COLUMN.match(physical)
    return int(match[1]) if match is not None else None


def _resolve(physical_table: str, physical_column: str, naming: Naming | None) -> tuple[str, str]:
    """The users' names; the physical ones where the schema doesn't know them."""
    table = _table_of(physical_table, naming)
    if table is None:
        return physical_table, physical_column
    number = _number_of(physical_column)
    column: Column | None = table.by_number.get(number) if number is not None else None
    return table.name, column.name if column is not None else physical_column
