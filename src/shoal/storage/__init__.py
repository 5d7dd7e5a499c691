"""Storage: SQLite behind what the cores decide.

Three files (sqlite.py): the catalog, the sharded tables with their log, the unlogged tables. One thread owns every
write of the sharded data and commits in groups (writer.py); a pool of threads reads in batches (readers.py); a
point read runs right where it is asked. What is acknowledged is synced, every page carries a checksum
(checksum.py), and each group's changes are in the log that replicas and change feeds will read (log.py).

This package blocks: whoever calls it from an event loop does so through the threads here. It knows tables and
types, and nothing of SQL texts' meaning, sessions or sockets.

- directory.py, sqlite.py, translate.py: the files, connections, errors in the users' words;
- writer.py, checkpoint.py, log.py: writing;
- readers.py: reading;
- tables.py, table_versions.py, dropping.py: physical tables;
- catalog_db.py, catalog_rows.py, raft_log.py: the cluster's log and what it adds up to;
- catalog_snapshot.py, snapshot_files.py: the same for a member that the log no longer reaches;
- functions.py and its kin: the SQL functions that generated text calls.
"""
