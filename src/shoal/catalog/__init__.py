"""The catalog: what the cluster knows of itself, and how one log changes it.

A schema change, a new password, a row of a global table: each is an entry of one log. apply() says what an
entry does to the rows of the system tables and to the schema that follows from them; it depends on nothing
else, so whoever applies the same log has the same catalog. The schema is an immutable value: statements are
bound against one, and notice by a comparison of objects that there is another.

- schema.py: tables, columns, indexes, tiers, versions;
- system.py: the system tables, and the way between objects and rows;
- entries.py: the log's entries and their bytes;
- apply.py: what an entry does, and which schema changes are refused before they become one;
- settings.py: what ALTER SYSTEM knows.

No I/O: storage/catalog_db.py makes it durable, node/ddl.py carries schema changes out.

Not here yet: roles and privileges, the governor's queue at work, conflicts between proposals (compare-and-swap
comes with Raft).
"""
