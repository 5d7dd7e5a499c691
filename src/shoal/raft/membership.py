"""Which change of the members is allowed, and what it leads to.

Here: changed(), one change of one member.
Not here: when a change may be proposed, and when it takes effect (node.py).

One member at a time: any majority of the old voters and any majority of the new ones then have a member in common,
so there is no moment at which two groups could decide apart, and no need for a joint configuration.
"""

from __future__ import annotations

from shoal.raft.messages import NOBODY, ChangeKind, Membership, MembershipChange


class RefusedChange(ValueError):
    """The group must not become that."""


def changed(membership: Membership, change: MembershipChange) -> Membership:
    """Adding who is there and removing who isn't changes nothing, so a change can be repeated."""
    member = change.member
    if member == NOBODY:
        raise RefusedChange("0 is no member")
    voters = {voter for voter in membership.voters if voter != member}
    learners = {learner for learner in membership.learners if learner != member}
    match change.kind:
        case ChangeKind.ADD_VOTER:
            voters.add(member)
        case ChangeKind.ADD_LEARNER:
            learners.add(member)
        case ChangeKind.REMOVE:
            pass
    if not voters:
        raise RefusedChange("a group needs a voter")
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))
