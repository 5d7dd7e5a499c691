"""Whatever is stuck, what has nothing to do with it is planned all the same: each pair of the two."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.governor.notation import Notation

BASE = """\
tier other: buckets 10
i1: leads
i2: Online
i3: Online
i4: tier other, learns
i5: tier other, learns
sql CREATE TABLE a (id INT PRIMARY KEY)
sql CREATE TABLE b (id INT PRIMARY KEY)
sql CREATE TABLE o (id INT PRIMARY KEY) DISTRIBUTED BY (id) IN TIER other
"""

# What goes no further; and a step that is under way in its lane, and doesn't end.
STUCK = {
    "a leader that is expelled, and nobody to hand over to": """\
i1: Online → Expelled
i2: behind
i3: behind
busy raft""",
    "an expelled one that isn't removed from the group": "i3: Expelled\nreplicaset r3: expelled\nbusy raft",
    "a newcomer that doesn't follow the log": "i9: joined, Offline(0) → Online(1)\nbusy raft",
    "a change that waits for a dead master": "i3: Offline\nprepare ALTER TABLE a ADD COLUMN v INT",
    "a master that doesn't answer": "prepare ALTER TABLE a ADD COLUMN v INT\nbusy schema change 7 at i2",
    "a change that fails to be committed": """\
prepare DROP TABLE a
busy schema change 7""",
    "an instance whose state can't be written": "i3: silent 3\nbusy instance i3",
    "a replicaset that isn't ready": "tier default: copies 2\nreplicaset r2: not-ready",
}

# What is to be done beside it, and the step that does it.
WORK = {
    "a dead instance is given up": ("i5: silent 3", "instance i5: Write, i5 is given up"),
    "an instance comes Online": ("i5: Offline(1) → Online(2)", "instance i5: Write, i5 becomes Online(2)"),
    "an instance goes": ("i5: Online(1) → Offline(1)", "instance i5: Write, i5 becomes Offline(1)"),
    "an instance is expelled": ("i5: Offline → Expelled", "instance i5: Write, i5 is expelled"),
    "a change is applied": ("prepare CREATE INDEX x ON o (id)", "at i4: ApplyChange"),
    "a change is committed": ("prepare DROP TABLE b", "is committed"),
    "a change is aborted": (
        "prepare CREATE INDEX x ON o (id)\nverdict {version} i4: 53100 no space",
        "is aborted: i4 says: no space",
    ),
    "a global table is made": (
        "prepare CREATE TABLE g (id INT PRIMARY KEY) DISTRIBUTED GLOBALLY",
        "CheckChange",
    ),
    "buckets get an owner": ("", "tier other: Write, the buckets of other go to"),
}


@pytest.mark.parametrize("stuck, work", list(itertools.product(STUCK, WORK)))
def test_pair(stuck: str, work: str) -> None:
    notation = Notation()
    for line in (BASE + STUCK[stuck]).splitlines():
        notation.read(line)
    lines, expected = WORK[work]
    version = 7 + len(notation.catalog.pending)
    for line in lines.format(version=version).splitlines():
        notation.read(line)
    assert expected in notation.plan()
