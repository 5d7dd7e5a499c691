"""Whole instances in one process, from one seed: what surrounds the Raft core, under crashes, partitions and new leaders.

shoal.sim runs the cores alone. Here the real classes of node/ run: catalog log, governor, schema changes, membership, RPC,
sessions, on real SQLite files. Only what is below them is computed: the event loop and its clock (loop.py), TCP
(network.py), threads (threads.py), chance. So a run is a function of its seed, and a failure found once can be
watched twice.

    python -m tests.simulation --seeds 100            # many seeds
    python -m tests.simulation --seed 42 --log        # one, with what the instances said

- instance.py, cluster.py: machines that start, freeze, crash and come back;
- clients.py, workload.py: sessions that send statements, and what they were told;
- history.py: the log that the instances agreed on, and what it must be in harmony with;
- run.py: one seed: faults, healing, checks;
- moves.py: the same short story again and again, leadership taken away at another moment each time;
- planted.py: bugs that must be found.

A crash loses nothing that was committed: power cuts are tests/unit/storage/power_cuts.py's affair.
"""
