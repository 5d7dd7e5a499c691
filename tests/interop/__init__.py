"""Real clients against a real instance: what they say is what the protocol is.

Each module brings one client, and starts one instance (conftest.py) that its tests share: a test makes its
own tables. Afterwards the instance must have stopped cleanly, and its log must tell of no bug.

The modules for Go and Java build a program first, so they run in CI, or when asked for: `-m toolchain`.
"""
