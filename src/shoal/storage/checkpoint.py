"""Checkpoints: copying the write-ahead log back into data.db, so that the log doesn't grow.

Here: when it is done, and on which thread.
Not here: what SQLite does then (it copies the newest version of each page, and syncs both files).

SQLite alone would checkpoint inside the COMMIT that passes a limit, and everybody would wait for it: 35 ms for
32 MB. So a thread with a connection of its own copies most of it, beside the writer. But the log starts anew
only when a transaction begins and finds all of it copied; with steady writes a thread beside never gets there. So
the writer itself copies what has come meanwhile, a few milliseconds' worth, when the answers of a
group have left.

A checkpoint can't pass a page that an open snapshot still needs: a portal that stays open makes the log grow
until it is closed.
"""

from __future__ import annotations

import threading

import apsw

from shoal.storage.sqlite import Settings, SqliteFiles, close, open_checkpointer


class Checkpointer:
    """Belongs to the writer: all but the thread's own work is called on the writer thread."""

    def __init__(
        self,
        connection: apsw.Connection,
        files: SqliteFiles,
        settings: Settings,
    ) -> None:
        self._connection = connection
        self._files = str(files.data)
        self._beside = open_checkpointer(files, settings)
        self._pages = {"main": 0, "unlogged": 0}  # of each log, as of the last commit that wrote there
        self._start_pages = settings.checkpoint_pages
        self._next_start = self._start_pages
        self._wanted = threading.Semaphore(0)
        self._running = False  # the thread is at work
        self._copied = False  # the thread has copied what there was, and nobody finished it yet
        self._failed: apsw.Error | None = None
        self._stopping = False
        connection.set_wal_hook(self._on_commit)
        self._thread = threading.Thread(target=self._run, name="shoal-checkpoint", daemon=True)
        self._thread.start()

    def _on_commit(self, _connection: apsw.Connection, schema: str, pages: int) -> int:
        if schema == "main" and pages < self._pages["main"]:
            self._next_start = self._start_pages  # the log has started anew
        self._pages[schema] = pages
        return apsw.SQLITE_OK

    def after_commit(self) -> None:
        """Raises what SQLite raises. A failed sync among it: the caller must stop."""
        pages = self._pages
        if pages["main"] >= self._next_start and not self._running:
            if self._failed is not None:
                failed, self._failed = self._failed, None
                # Not at every commit while the disk fails or is full.
                self._next_start = pages["main"] + self._start_pages
                raise failed
            if self._copied:
                self._copied = False
                self._finish()
            else:
                self._running = True
                self._wanted.release()
        if pages["unlogged"] >= self._start_pages:
            # Never synced, so it takes no time to speak of.
            self._connection.wal_checkpoint("unlogged", apsw.SQLITE_CHECKPOINT_PASSIVE)
            pages["unlogged"] = 0

    def _finish(self) -> None:
        in_log, copied = self._connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
        # All copied: the next transaction starts at the log's beginning. Otherwise a snapshot is in the way,
        # and asking at every commit would only cost time.
        self._next_start = self._start_pages if copied >= in_log else in_log + self._start_pages

    def stop(self) -> None:
        self._stopping = True
        self._wanted.release()
        self._thread.join()
        close(self._beside)

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stopping:
                return
            try:
                self._beside.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._copied = True
            except apsw.Error as error:
                self._failed = error
            self._running = False
