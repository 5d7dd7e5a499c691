"""A cluster in one process, from one seed: the real consensus core on a simulated clock, network and disk.

A run draws its knobs from its seed: how many members, how much is lost, doubled and late, how often who crashes, how
slow the disks are, how small every limit is. A safety phase of faults follows, then everything heals, and the cluster
has to get going again. After every step the invariants are checked, so a failure names the first event that broke one.
Time is simulated: nothing sleeps, and the same seed is the same run on every machine.

- knobs.py: what a seed draws;
- network.py: late, lost, doubled and reordered messages, partitions of all shapes;
- disk.py: a LogStore that forgets what wasn't completed when it crashed;
- member.py: one member, driven exactly as node.py asks for;
- invariants.py: what must hold after every step;
- cluster.py: the members, their clients, and who does them harm;
- trace.py: the story of a run, readable, and its hash;
- planted.py: mutations of the core that the simulation has to find, or it isn't good enough;
- campaign.py: many seeds.

Not here yet: SQL, storage and shards (they come with what is distributed of them).
"""

from shoal.sim.cluster import Cluster, Outcome, run_seed

__all__ = ["Cluster", "Outcome", "run_seed"]
