"""Checkpoints: copying the write-ahead log back into the database files, so that it doesn't grow.

Here: when, and on which thread.
Not here: what SQLite does then (it copies the newest version of each page, and syncs both files).

SQLite would do it inside the COMMIT that passes a limit; here it is done after the answers have left.
A checkpoint can't pass a page that an open snapshot still needs: a long-lived portal makes the log grow.
"""

from __future__ import annotations

from typing import Final

import apsw

from shoal.storage.sqlite import Settings, SqliteFiles

# Pages in the log that start a checkpoint: 4 KiB each.
_PAGES: Final = 8192


class Checkpointer:
    """Watches how long the logs of one connection's files are."""

    def __init__(self, connection: apsw.Connection, files: SqliteFiles, settings: Settings) -> None:
        self._connection = connection
        self._pages = 0
        self._schemas: dict[str, int] = {}
        connection.set_wal_hook(self._on_commit)

    def _on_commit(self, _connection: apsw.Connection, schema: str, pages: int) -> int:
        self._pages = pages
        self._schemas[schema] = pages
        return apsw.SQLITE_OK

    def after_commit(self) -> None:
        if self._pages < _PAGES:
            return
        for schema, pages in self._schemas.items():
            if pages >= _PAGES:
                self._connection.wal_checkpoint(schema, apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._pages = 0
        self._schemas.clear()

    def stop(self) -> None:
        pass
