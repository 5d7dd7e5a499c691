"""Shoal: a distributed SQL database that speaks the PostgreSQL protocol.

Many instances act as one: tables are sharded into hash buckets over replicasets, the catalog is
replicated, and any PostgreSQL client can connect to any instance. The packages, from the inside out:

- `types`, `topology`, `catalog`, `sql` and `pgwire` are cores: they take values and return values,
  and know no socket, file, clock, task or thread;
- `storage` puts what they decide into SQLite;
- `node` is the instance: the event loop, the listeners and the threads around the cores;
- `cli` is the command `shoal`.

docs/architecture.md follows one query through all of them. tests/test_layers.py holds the table of who
may import whom.

Not here yet: several instances (the catalog is a log of one), `client`, `spark`, `web`.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
