"""Consensus: one log that all instances agree on, whoever dies.

A core without I/O, in the shape of etcd/raft: it is told what came in (step), that time passes (tick), what is to be
agreed on (propose), and says what is to be done: what to save, then what to send, then what to apply (Ready). So the
same code runs behind real sockets and disks (node/raft_loop.py), and in the simulation (sim/), where a cluster of seven
lives through a thousand crashes in a second.

- messages.py: ids, entries, membership, and what members tell each other;
- quorum.py: how many are enough;
- membership.py: which changes of the members are allowed, and what they lead to;
- log.py: the entries since the last compaction;
- progress.py: what the leader knows of a follower, and how much it sends it at a time;
- node.py: the protocol itself;
- store.py: what is asked of a disk.
"""
