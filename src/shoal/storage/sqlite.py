"""Opening the database files of an instance: which there are, and how a connection is set up.

Here: SqliteFiles, Settings, and one function per kind of connection.
Not here: what the tables are (tables.py, log.py), who may start on a directory (directory.py).

Three files. `catalog.db` has the catalog and the global tables, `data.db` the sharded tables and their
replication log, `unlogged.db` the UNLOGGED tables, which are gone after a restart. A transaction that must
be atomic never spans two of them.

| connection | main | attached | writes |
|---|---|---|---|
| catalog | catalog.db | – | catalog.db |
| catalog reader | catalog.db | – | nothing |
| writer | data.db | unlogged, catalog | data.db, unlogged.db |
| reader | data.db | unlogged, catalog | nothing |

So one text of SQL runs on a writer and on a reader alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote

import apsw

from shoal.errors import DataCorrupted, FeatureNotSupported, IoError
from shoal.storage.checksum import CHECKSUM_BYTES, PAGE_BYTES, load_checksums
from shoal.storage.translate import translate

_log: Final = logging.getLogger(__name__)

_APPLICATION_ID: Final = 0x53484F4C  # "SHOL"
_FORMAT: Final = 2  # of the files; raised when an older Shoal could not read them

_STATEMENT_CACHE: Final = 1000
_BUSY_TIMEOUT_MS: Final = 5_000
_SCAN_CACHE_BYTES: Final = 1 << 20  # for who reads every page once


class WalMode(Enum):
    """When an acknowledged write is on the disk. FSYNC: before the answer. WRITE: some time later."""

    FSYNC = "fsync"
    WRITE = "write"


def no_functions(_connection: apsw.Connection) -> None:
    """For connections whose statements call no function of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How connections are set up; the same for all files of an instance."""

    wal_mode: WalMode = WalMode.FSYNC
    functions: Callable[[apsw.Connection], None] = no_functions  # registers our SQL functions
    writer_cache_bytes: int = 128 << 20
    reader_cache_bytes: int = 32 << 20  # a connection of the pool gets an eighth
    checkpoint_pages: int = 8192  # in a write-ahead log, when copying it back begins: 32 MiB
    vfs: str = field(default_factory=load_checksums)


@dataclass(frozen=True, slots=True)
class SqliteFiles:
    directory: Path

    @property
    def catalog(self) -> Path:
        return self.directory / "catalog.db"

    @property
    def data(self) -> Path:
        return self.directory / "data.db"

    @property
    def unlogged(self) -> Path:
        return self.directory / "unlogged.db"

    def delete_unlogged(self) -> None:
        """UNLOGGED tables are written without any sync, so what a stopped instance left can't be trusted."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            try:
                Path(f"{self.unlogged}{suffix}").unlink(missing_ok=True)
            except OSError as error:
                raise IoError(f"{self.unlogged}{suffix} cannot be deleted: {error.strerror}") from error


def open_catalog(files: SqliteFiles, settings: Settings) -> apsw.Connection:
    """The one connection that writes catalog.db. Makes the file when there is none."""
    return _open_owned(files.catalog, settings)


def open_catalog_reader(files: SqliteFiles, settings: Settings) -> apsw.Connection:
    """Reads catalog.db beside its writer. It calls no function of ours, so any thread may have one."""
    connection = _connect(files.catalog, settings, apsw.SQLITE_OPEN_READONLY)
    try:
        _set_up(connection, replace(settings, functions=no_functions), _SCAN_CACHE_BYTES)
        connection.pragma("schema_version")  # opens the file
    except apsw.Error as error:
        close(connection)
        raise translate(error, files=str(files.catalog)) from error
    return connection


def open_writer(files: SqliteFiles, settings: Settings) -> apsw.Connection:
    """The one connection that writes data.db and unlogged.db. catalog.db must exist."""
    connection = _open_owned(files.data, settings)
    try:
        _attach(connection, files.unlogged, "unlogged", "rwc", settings)
        connection.reserve_bytes("unlogged", CHECKSUM_BYTES)
        connection.pragma("page_size", PAGE_BYTES, schema="unlogged")
        connection.pragma("journal_mode", "wal", schema="unlogged")
        # No crash needs these rows: they are deleted at the next start.
        connection.pragma("synchronous", "OFF", schema="unlogged")
        _attach(connection, files.catalog, "catalog", "ro", settings)
    except apsw.Error as error:
        close(connection)
        raise translate(error, files=str(files.unlogged)) from error
    except BaseException:
        close(connection)
        raise
    return connection


def open_reader(files: SqliteFiles, settings: Settings, *, cache_bytes: int | None = None) -> apsw.Connection:
    """Reads all three files, each in a snapshot of its own. The writer's connection must be there before."""
    connection = _connect(files.data, settings, apsw.SQLITE_OPEN_READONLY)
    try:
        _set_up(connection, settings, cache_bytes or settings.reader_cache_bytes)
        connection.pragma("schema_version")  # opens the file
        _attach(connection, files.unlogged, "unlogged", "ro", settings)
        _attach(connection, files.catalog, "catalog", "ro", settings)
        for schema in ("unlogged", "catalog"):
            connection.pragma(
                "cache_size", -((cache_bytes or settings.reader_cache_bytes) >> 12), schema=schema
            )
    except apsw.Error as error:
        close(connection)
        raise translate(error, files=str(files.data)) from error
    except BaseException:
        close(connection)
        raise
    return connection


def copy_log_back(path: Path, settings: Settings) -> None:
    """All that a stopped instance left in the write-ahead log of this file goes into the file."""
    connection = _open_owned(path, settings)
    try:
        connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise translate(error, files=str(path)) from error
    finally:
        close(connection)


def close(connection: apsw.Connection) -> None:
    """Closing copies the log back. Where that fails, the next start does it: all of it is in the log."""
    try:
        connection.close(True)
    except apsw.Error as error:
        _log.warning("closing a database: %s", translate(error))


def open_checkpointer(files: SqliteFiles, settings: Settings) -> apsw.Connection:
    """For copying the write-ahead log of data.db back, beside its writer. It reads and writes no table."""
    connection = _connect(files.data, settings, apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        connection.pragma("synchronous", _synchronous(settings))
        connection.wal_autocheckpoint(0)
        connection.pragma("schema_version")  # opens the file
    except apsw.Error as error:
        close(connection)
        raise translate(error, files=str(files.data)) from error
    return connection


def _synchronous(settings: Settings) -> str:
    return "FULL" if settings.wal_mode is WalMode.FSYNC else "NORMAL"


def _connect(path: Path, settings: Settings, flags: int) -> apsw.Connection:
    try:
        return apsw.Connection(
            _uri(path),
            flags=flags | apsw.SQLITE_OPEN_URI,
            vfs=settings.vfs,
            statementcachesize=_STATEMENT_CACHE,
        )
    except apsw.Error as error:
        raise translate(error, files=str(path)) from error


def _open_owned(path: Path, settings: Settings) -> apsw.Connection:
    connection = _connect(path, settings, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    try:
        _set_up(connection, settings, settings.writer_cache_bytes)
        _claim_format(connection, path)
    except apsw.Error as error:
        close(connection)
        raise translate(error, files=str(path)) from error
    except BaseException:
        close(connection)
        raise
    return connection


def _set_up(connection: apsw.Connection, settings: Settings, cache_bytes: int) -> None:
    connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.pragma("case_sensitive_like", 1)
    connection.pragma("mmap_size", 0)  # a mapped page would not pass the checksum
    connection.pragma("cache_size", -(cache_bytes >> 10))
    connection.pragma("temp_store", "MEMORY")
    connection.pragma("synchronous", _synchronous(settings))
    settings.functions(connection)


def _claim_format(connection: apsw.Connection, path: Path) -> None:
    """A new file becomes ours; an old one must be ours, and of a format that we read."""
    if connection.pragma("schema_version") == 0 and connection.pragma("application_id") == 0:
        # Both must be said before the first page is written: they are part of every page's layout.
        connection.reserve_bytes("main", CHECKSUM_BYTES)
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("journal_mode", "wal")
        # Version last, in a transaction of its own: who finds both numbers finds a whole file.
        connection.pragma("application_id", _APPLICATION_ID)
        connection.pragma("user_version", _FORMAT)
    if connection.pragma("application_id") != _APPLICATION_ID:
        raise FeatureNotSupported(f"{path} is a database of another program, not of Shoal")
    version = cast(int, connection.pragma("user_version"))
    if version == 0:  # the crash came between the two
        connection.pragma("user_version", _FORMAT)
    elif version != _FORMAT:
        raise FeatureNotSupported(f"{path} has format {version}, this Shoal reads format {_FORMAT}")
    if connection.pragma("page_size") != PAGE_BYTES or connection.reserve_bytes("main") != CHECKSUM_BYTES:
        raise DataCorrupted(f"page 1 of {path} is damaged: its pages would carry no checksum")
    if connection.pragma("journal_mode", "wal") != "wal":
        raise IoError(f"{path} cannot be opened with a write-ahead log")


def _attach(connection: apsw.Connection, path: Path, schema: str, mode: str, settings: Settings) -> None:
    try:
        connection.execute(f"ATTACH ? AS {schema}", (f"{_uri(path)}?mode={mode}&vfs={settings.vfs}",))
        connection.pragma("schema_version", schema=schema)  # opens the file
    except apsw.Error as error:
        raise translate(error, files=str(path)) from error


def _uri(path: Path) -> str:
    return f"file:{quote(str(path.absolute()))}"
