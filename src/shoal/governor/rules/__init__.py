"""The governor's rules: each looks at the cluster, and names what it would have done. Their order is in plan.py."""
