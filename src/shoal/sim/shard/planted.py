"""Bugs planted in the core of a replicaset, in its simulated disk, and in who drives it: the simulation has to find each.

Here: PLANTED, by name.
Not here: how an edit works (sim/mutations.py), which of them a test looks for (tests/unit/sim/test_shard_planted.py), how
long each took to find (docs/simulation.md).
"""

from __future__ import annotations

from typing import Final

from shoal.shard import config
from shoal.shard.config import Config
from shoal.shard.follower import Follower
from shoal.shard.lease import Lease, Promises
from shoal.shard.log import Log
from shoal.shard.master import Master
from shoal.shard.member import Member
from shoal.shard.own import Own
from shoal.shard.replica import Replica
from shoal.sim.mutations import Owner, plant
from shoal.sim.shard.disk import ShardDisk
from shoal.sim.shard.member import Member as Shell

_OWNERS: Final[dict[str, Owner]] = {
    "Config": Config,
    "Follower": Follower,
    "Lease": Lease,
    "Log": Log,
    "Master": Master,
    "Member": Member,
    "Own": Own,
    "Promises": Promises,
    "Replica": Replica,
    "ShardDisk": ShardDisk,
    "Shell": Shell,
    "config": config,
}

_BUGS: Final = """
# who is required

lease-without-pending: whoever is being let in is not required for answers
    Master.stands
    - until_us = min(self.lease.until_us(self.required)
    + until_us = min(self.lease.until_us([m for m in self.config.in_sync if m != self._own.id])

commit-without-pending: whoever is being let in is not required for commits
    Master._acknowledged
    - for member in self.required
    + for member in self.config.in_sync if member != self._own.id

admitted-without-being-required: the catalog is asked to let somebody in who isn't waited for
    Master._require
    - required.add(self.pending)
    + pass

admitted-with-less: the catalog is asked before the member has everything
    Master._consider
    - elif self.followers[self.pending].match >= self._own.log.last:
    + elif True:

admitted-behind-a-commit: a commit that is under way, and that the member wasn't required for, is overlooked
    Master._consider
    - elif self.followers[self.pending].match >= self._own.log.last:
    + elif self.followers[self.pending].match >= self._own.commit:

admitted-before-it-serves: a master lets somebody in while it still waits for its own promises to be over
    Master._consider
    - if not self.serves(now_us):
    + if self.phase is not Phase.SERVING:

pending-given-up-alone: a member that is being let in and falls silent is required no more, without asking
    Master._report
    - if self._asked:
    + if False:

silent-dropped-alone: a master stops waiting for a silent member before the catalog says so
    Master._report
    - self.report = Report
    + self.required = tuple(m for m in self.required if m not in silent)
    + self.report = Report

# who becomes master

promotes-anybody: a member that isn't in_sync is made the master
    config.failed_over
    - for member in config.in_sync if member in reachable
    + for member in config.members if member in reachable

no-raise-at-restart: an instance that starts again goes on in the version in which it was the master
    Replica._begin
    - or config.version <= own.acted
    + or config.version < own.acted
    Own.act_in
    - assert version > self.acted, (version, self.acted)
    + pass
    Log.begin
    - self.history = self.history.then(Mastership(version, Lsn(self.last + 1)))
    + self.history = self.history if self.matched_with == version else self.history.then(Mastership(version, Lsn(self.last + 1)))

asks-in-a-version-it-has-not-saved: after a restart, nobody knows that an admission was asked for in this version
    Master.reconfigured
    - self._own.act_in(config.version)
    + pass
    Master._consider
    - if self._own.saved_acted < self.config.version:
    + if False:

tail-committed-alone: a master takes its tail as committed before others have it
    Master._advance
    - if self.phase is Phase.MATCHING and self._acknowledged >= self.tail:
    + if self.phase is Phase.MATCHING:

half-a-transaction: a master keeps the beginning of a transaction whose end it never got
    Log.begin
    - self._cut_behind(self.whole)
    + pass

commit-fails-and-goes-on: a mastership survives a commit that failed
    Replica.commit_failed
    - self._end_mastership(rolled_back=True)
    + self.master.group = None
    + self.master._recent.clear()
    + for follower in self.master.followers.values(): follower.rewind(follower.match, now_us)

# a member's log

old-tail-not-cut: a member takes over a history, and keeps what isn't in it
    Log.match
    - self._cut_behind(last)
    + pass

takes-its-own-end-as-matched: a member doesn't look where the logs part
    Member.on_announce
    - lsn = meet(log.history, log.last, message.history, message.last)
    + lsn = log.last

old-acknowledgements-count: what was said to an earlier mastership counts in this one
    Master._heard
    - if version != self.version or follower is None:
    + if follower is None:

applies-what-is-not-matched: a member applies up to the commit point, whatever it has there
    Member.on_append
    - gap = False
    + gap = False
    + own.committed(min(message.commit, log.whole))

half-a-transaction-applied: a commit point is taken in the middle of a transaction
    Member.on_append
    - own.committed(min(message.commit, log.whole))
    + own.committed(min(message.commit, log.last))

announce-heard-twice: an Announce that comes late cuts what came after it
    Member.on_announce
    - if log.matched_with != message.version:
    + if True:

snapshot-over-newer-entries: a snapshot is installed though appends were quicker
    Member._needs
    - return log.matched_with != version or log.last < mark.lsn
    + return True

accepts-the-deposed: a member listens to a master that is older than one it has listened to
    Member.follows
    - if version < own.acted:
    + if False:

version-not-saved-first: a member answers before its disk knows in which version
    Own.is_unsaved
    - return self.acted != self.saved_acted or self.installing or self.log.is_unsaved
    + return self.installing or self.log.is_unsaved

version-never-saved: … or its disk never knows
    Replica._ready
    - save = own.log.take(own.acted if own.acted != own.saved_acted else None)
    + save = own.log.take(None)
    + own.saved_acted = own.acted

acknowledged-before-saved: an acknowledgement leaves before the entries are on the disk
    Member._answer
    - matched = log.last if own.is_unsaved else log.saved
    + matched = log.last
    - own.send(master
    + own.send_at_once(master

acknowledged-during-install: a snapshot counts before it is on the disk
    Own.is_unsaved
    - return self.acted != self.saved_acted or self.installing or self.log.is_unsaved
    + return self.acted != self.saved_acted or self.log.is_unsaved

# the commit point

commit-point-too-early: others hear of a commit before it has returned
    Master.commit
    - self._own.log.write(last)
    + self._own.log.write(last)
    + self._own.committed(last)

shipped-is-nothing: clients hear that nothing has happened, when only this instance didn't commit it
    Master.end
    - surely_nothing = group.progress is Progress.RUNNING or group.is_empty
    + surely_nothing = group.progress is not Progress.COMMITTING

answers-before-the-commit: clients are answered when everybody has the group, and the master doesn't yet
    Master.commit
    - group.progress = Progress.COMMITTING
    + group.progress = Progress.COMMITTING
    + self._committed.append(group.number)
    Master.committed
    - self._committed.append(group.number)
    + pass

# promises

promise-counts-from-its-arrival: a promise counts from when it is heard
    Master._heard
    - self.lease.promised(sender, echo_us)
    + self.lease.promised(sender, now_us)

no-drift: clocks are taken to agree
    Lease.__init__
    - int(lease_us * (1 - drift) / (1 + drift))
    + lease_us

started-without-a-promise: a process that starts takes itself as free
    Promises.__init__
    - self._until = {BEFORE_ITS_START: started_us + lease_us}
    + self._until: dict[ConfigVersion, int] = {}

own-promise-forgotten: a member that becomes master doesn't wait for what it has promised
    Master.serves
    - return self.phase is Phase.SERVING and self._own.promises.until_us <= now_us
    + return self.phase is Phase.SERVING

releases-everything: one master's release frees of what was promised to others
    Promises.release
    - self._until.pop(version, None)
    + self._until.clear()

release-while-it-answers: a master that is about to hand over releases promises, and goes on answering
    Master._hold
    - elif wanted and now_us >= self._held_until_us:
    + elif wanted and now_us >= self._held_until_us:
    +     for member in self.followers: self._own.send_at_once(member, Release(self.version))

answers-without-a-lease: what was committed is answered whenever
    Master.take_committed
    - if not self._committed or not self.stands(now_us):
    + if not self._committed:

reads-without-a-lease: a read is answered though the lease has lapsed since it began
    Shell._answer_reads
    - if version is None:
    + if False:

read-of-an-older-mastership: a read that began in one mastership is answered in another
    Shell._answer_reads
    - if replica.master is None or replica.master.version != operation.version:
    + if replica.master is None:

# reads on other members

fresh-before-applied: a member takes itself as fresh when it hears, not when it has applied
    Member._heard
    - self._fresh_then.append((message.commit, answered_us))
    + self._fresh_then.append((Lsn(0), answered_us))

fresh-before-installed: … or has installed
    Member.was_applied
    - if self._own.installing:
    + if False:

fresh-by-the-deposed: a master without a lease vouches for how fresh its commit point is
    Master._send
    - heard = follower.number if self.stands(now_us) else None
    + heard = follower.number
"""

PLANTED: Final = plant(_BUGS, _OWNERS)
