"""How many are enough: a majority of the voters.

Here: the index that a majority has, and the result of a vote.
Not here: who the voters are (membership.py), what follows from a result (node.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from shoal.raft.messages import Index, RaftId

# What a majority of nobody has: it restricts nothing.
UNBOUNDED: Final = Index(2**64 - 1)


class VoteResult(Enum):
    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def committed(voters: Collection[RaftId], match: Mapping[RaftId, Index]) -> Index:
    """The greatest index that a majority has. Who isn't in `match` has nothing."""
    if not voters:
        return UNBOUNDED
    indexes = sorted((match.get(voter, Index(0)) for voter in voters), reverse=True)
    return indexes[len(voters) // 2]


def vote_result(voters: Collection[RaftId], votes: Mapping[RaftId, bool]) -> VoteResult:
    """Who isn't in `votes` may still answer. Votes of others don't count."""
    if not voters:
        return VoteResult.WON
    needed = len(voters) // 2 + 1
    granted = sum(votes.get(voter, False) for voter in voters)
    refused = sum(not votes.get(voter, True) for voter in voters)
    if granted >= needed:
        return VoteResult.WON
    if refused > len(voters) - needed:
        return VoteResult.LOST
    return VoteResult.PENDING
