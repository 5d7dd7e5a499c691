"""What the cluster does next: decided on the Raft leader, from the catalog alone.

`plan()` looks at the state of the cluster and names steps; whoever runs them (node/governing.py) carries each out, and
plans anew. Each step that writes says which ranges it has read, and goes into the log by compare-and-swap on these: so
a governor that was deposed, or that looked at an old state, changes nothing.

- state.py: what the rules see;
- plan.py: the rules' order, and the steps;
- rules/: one rule in a file.

Not here yet: moving buckets and masters.
"""
