"""The command `shoal`: runs an instance or a local cluster, and talks to one that runs.

- `run.py`: one instance, in this process;
- `demo.py`: a local cluster of child processes (`local_cluster.py`), in the foreground;
- `admin.py`: a REPL on the admin socket, with `statements.py` (where one statement ends) and `results.py`
  (rows as a table, JSON or CSV);
- `status.py`: what runs, who leads and what is wrong, as `report.py` finds it in the system tables and at /health;
- `expel.py`: takes an instance out of its cluster;
- `target.py`: which instance is meant.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """The entry point of `shoal` and of `python -m shoal`."""
    if not __debug__:
        # An assertion that fails means that this instance can no longer be trusted to agree with the others.
        # Without assertions it would go on.
        sys.stderr.write(
            "shoal: refusing to run without assertions: they guard the data. "
            "Start Python without -O and without PYTHONOPTIMIZE.\n"
        )
        raise SystemExit(1)
    from shoal.cli.app import app

    app()
