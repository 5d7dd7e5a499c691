"""One replicaset's data: what its master has acknowledged survives, and nobody reads what could still vanish.

The scheme is that of PacificA: **replicate, then commit**, with the catalog, which Raft keeps, as the configuration
manager. It says in numbered versions who the master is and which members have everything (`in_sync`). The master runs
a group of statements in one transaction, sends the changes to all members of in_sync, and commits when each has
them on its disk. No majority is asked: the catalog's majority decides who belongs to it, and the replicaset needs only
those. Any one of them may therefore become the master, and no other.

Four things keep that safe, whatever crashes, stands still or is cut off:

- **in_sync shrinks in the catalog first.** A master waits for a member until it has applied that the member is out, and lets
  one in only when all that it commits needs that member already. (config.py, master.py)
- **Versions fence.** A member that has listened to the master of one version refuses all older ones, for good. So a
  deposed master can't get another acknowledgement from whoever took its place. (member.py)
- **Names are used once.** An entry is named by the version of the mastership that wrote it, and its lsn. Logs that have an
  entry of the same name in common are the same up to there; where they part, what was never acknowledged is cut. (positions.py)
- **A lease of promises** lets the master answer reads from its own state: whoever acknowledges promises not to serve for a
  while, and whoever takes over was one of those. (lease.py)

All of it is a core without I/O: replica.py is told what happens and says what is to be done. node/ does it with real
sockets and SQLite, sim/shard/ with simulated ones, thousands of times from thousands of seeds, and with bugs
planted to see that it would notice.

- positions.py: lsns, masterships, histories, and where two logs meet;
- messages.py: log entries, and what members tell each other;
- config.py: the replicaset as the catalog has it, how it may change, and what the governor chooses;
- lease.py: promises, given and counted on;
- log.py: what an instance knows of its own log;
- follower.py: what a master knows of another member;
- master.py, member.py: the two roles; own.py: what they share;
- replica.py: the whole, and the contract with whoever drives it;
- store.py: what is asked of a disk.

Not here yet: buckets that move between replicasets, and refs.
"""
