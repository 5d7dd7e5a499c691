"""Bugs on purpose: mutations of the core, of the disk and of who drives them, that the simulation has to find.

Here: PLANTED, all of them, and Planted.on(), which switches one on for a while.
Not here: looking for one (campaign.py), which of them a test looks for (tests/unit/sim/test_planted.py), how long each
took to find is what `pytest -m slow tests/unit/sim -s` prints.

A simulation that finds nothing may mean that there is nothing to find, or that it looks badly. These say which.

A bug is a name, its story, and edits: in this function what stands behind `-` becomes what stands behind `+`. So it
can't lag behind the code: where the text isn't there any more, exactly once, switching it on fails.
"""

from __future__ import annotations
import __future__

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Final, cast
from unittest.mock import patch

from shoal.raft import node
from shoal.raft.log import Log
from shoal.raft.node import Node
from shoal.raft.progress import Inflight, Progress
from shoal.sim.disk import Disk
from shoal.sim.member import Member

_OWNERS: Final[dict[str, type | ModuleType]] = {
    "Disk": Disk,
    "Inflight": Inflight,
    "Log": Log,
    "Member": Member,
    "Node": Node,
    "Progress": Progress,
    "node": node,
}

_BUGS: Final = """
# what is remembered

vote-in-a-known-term-not-saved: a vote in a term that is saved already isn't
    Node._hard_state_is_unsaved
    - self.term != saved.term or self.vote != saved.vote
    + self.term != saved.term

vote-not-saved: the disk keeps the term, and forgets the vote
    Disk._replay
    - image.hard_state = record.hard_state
    + image.hard_state = HardState(record.hard_state.term, commit=record.hard_state.commit)

term-not-saved: a term without a vote isn't saved
    Node._hard_state_is_unsaved
    - self.term != saved.term or self.vote != saved.vote
    + self.vote != saved.vote

vote-forgotten-by-snapshot: installing a snapshot clears the vote
    Node.take_ready
    - HardState(self.term, self.vote, self._install.index)
    + HardState(self.term, NOBODY, self._install.index)

leads-before-its-term-is-saved: what needs no entry on the disk is sent before the term is
    Node.take_messages
    - self._hard_state_is_unsaved or not self._at_once
    + not self._at_once

change-forgotten-at-restart: a committed change of the members isn't saved as committed before it is applied
    Node.take_ready
    - if dirty or leaves_committed else
    + if dirty else

# elections

votes-twice: a vote is given although another has it
    Node._on_request_vote
    - self.vote == NOBODY and self.leader == NOBODY
    + self.leader == NOBODY

longest-log-wins: logs are compared by length only
    Log.is_up_to_date
    - (last_term, last_index) >= (self.last_term, self.last_index)
    + last_index >= self.last_index

latest-term-wins: logs are compared by their last term only
    Log.is_up_to_date
    - (last_term, last_index) >= (self.last_term, self.last_index)
    + last_term >= self.last_term

stale-vote-counted: a vote of an earlier campaign counts in this one
    Node._answer_late
    - self._learn_commit(message)
    + self._on_vote(sender, message)

pre-vote-counted: a pre-vote counts as a vote
    Node._on_vote
    - if self.role is not role:
    + if self.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):

pre-vote-raises-the-term: who is asked for a pre-vote moves to the term that it is about
    node._is_about_a_future_term
    - case RequestVote(pre=True):
    -     return True
    + case RequestVote(pre=True):
    +     return False

no-pre-vote: a member that was cut off campaigns without asking first
    Node.campaign
    - pre=True
    + pre=False

ignores-the-leader: a vote is given against a leader that is heard
    Node._hears_a_leader
    - return self.leader != NOBODY and
    + return False and

half-elects: half of the voters elect a leader
    node.vote_result
    - needed = len(voters) // 2 + 1
    + needed = (len(voters) + 1) // 2

learner-elects: learners are asked for votes, and counted
    Node._count_votes
    - self.membership.voters
    + (*self.membership.voters, *self.membership.learners)
    Node._campaign
    - for voter in self.membership.voters:
    + for voter in (*self.membership.voters, *self.membership.learners):

leads-for-ever: a leader that hears no quorum goes on
    Node.tick
    - if not self._hears_a_quorum():
    + if False:

hears-nobody: answers to heartbeats don't tell a leader that it is heard
    Node._on_heartbeat_reply
    - progress.recently_active = True
    + pass

patience-goes-on: hearing the leader doesn't renew a member's patience
    Node._follow
    - self._election_elapsed = 0
    + pass

deaf-to-late-leaders: a leader of an earlier term isn't told of a later one
    Node._answer_late
    - self._send_after_save(sender, AppendReply(self.term, Index(0), rejected=True))
    + pass

believes-an-earlier-leader: an append of an earlier term is taken
    Node.step
    - elif message.term < self.term:
    + elif message.term < self.term and not (isinstance(message, Append) and not self.is_leader):

# replication

acknowledged-before-durable: an append is acknowledged before it is saved
    Node._on_append
    - self._send_after_save(leader, AppendReply(self.term, last))
    + self._send(leader, AppendReply(self.term, last))

leader-counts-itself-early: a leader counts its own copy before it is saved
    Node._append_own
    - self._broadcast_append()
    + self.progress[self.id].matched(self.log.last_index)
    + self._commit()
    + self._broadcast_append()

saved-by-index-only: an entry that took the place of one being saved passes for saved
    Log.was_saved
    - if self.term_at(entry.index) == entry.term:
    + if entry.index > self.saved:

truncates-on-every-append: an old append cuts off what came after it
    Log.merge
    - if self.term_at(entry.index) != entry.term:
    + if entry.index > self.commit:

keeps-a-conflicting-tail: an entry that conflicts is replaced, what is behind it stays
    Log.append
    - del self._entries[first - self.mark.index - 1 :]
    - self._entries += entries
    + at = first - self.mark.index - 1
    + self._entries[at : at + len(entries)] = entries

never-truncates: an entry that is there stays, whatever the leader says
    Log.merge
    - if self.term_at(entry.index) != entry.term:
    + if self.term_at(entry.index) is None:

no-consistency-check: an append is taken wherever the log is long enough
    Node._on_append
    - if log.term_at(message.previous_index) != message.previous_term:
    + if log.term_at(message.previous_index) is None:

late-append-reply-counted: an answer to a leader's earlier term counts in its new one
    Node._answer_late
    - case _:
    -     pass
    + case AppendReply() if self.is_leader:
    +     self._on_append_reply(sender, message)

hint-taken-for-a-match: where logs could match, they do
    Node._on_append_reply
    - if progress.rejected(
    + progress.matched(min(could_match, self.log.last_index))
    + if progress.rejected(

one-answer-for-all: an answer counts for everything that was sent
    Node._on_append_reply
    - if not progress.matched(message.index)
    + if not progress.matched(Index(progress.next - 1))

newcomer-counts: a member that was just added is believed to have the log
    Node._track
    - Index(self.log.last_index + 1))
    + Index(self.log.last_index + 1), self.log.last_index)

hint-skips-too-little: a rejected probe is repeated one too high
    Progress.rejected
    - min(index, Index(could_match + 1))
    + min(self.next, Index(could_match + 2))

window-never-empties: answers don't make room in the window
    Inflight.answered
    - while self._sent and
    + while False and

lost-probe-waits-for-ever: a heartbeat's answer doesn't end the wait for that of an append
    Node._on_heartbeat_reply
    - progress.waits = False
    + pass

# commit

commits-an-earlier-term: an entry of an earlier term is committed because a majority has it
    Node._commit
    - index <= log.commit or log.term_at(index) != self.term
    + index <= log.commit

commits-by-heartbeat-beyond-the-match: a heartbeat tells all that is committed, whoever has it
    Node._broadcast_heartbeat
    - min(progress.match, self.log.commit)
    + self.log.commit
    Node._commit_up_to
    - if index > self.log.commit:
    + index = min(index, self.log.last_index)
    + if index > self.log.commit:

half-commits: half of the voters commit
    node.committed
    - indexes[len(voters) // 2]
    + indexes[(len(voters) - 1) // 2]

learner-commits: learners are counted for what is committed
    Node._commit
    - committed(self.membership.voters, match)
    + committed((*self.membership.voters, *self.membership.learners), match)

applies-what-is-saved: a leader applies what only it has
    Node.take_ready
    - alone = self.is_leader and self.membership.voters == (self.id,)
    + alone = self.is_leader

all-is-committed-at-restart: what is found on the disk passes for committed
    Log.__init__
    - max(stored.hard_state.commit, stored.applied)
    + self.last_index

# members

two-changes-at-once: a change of the members is accepted while another isn't applied
    Node.propose_change
    - or self.log.applied < self._last_change
    +

inherited-change-overlooked: a new leader doesn't ask whether its log has a change that isn't applied
    Node._become_leader
    - self._last_change = self.log.last_index
    + self._last_change = Index(0)

change-takes-effect-at-once: a leader goes by a change of the members that is only proposed
    Node.propose_change
    - self._append_own([entry])
    + self.membership = changed(self.membership, change)
    + self._append_own([entry])

campaigns-with-an-unapplied-change: a member campaigns among members who are about to be others
    Node.may_campaign
    -  and not self._unapplied_change()
    +

campaigns-on-though-it-knows-better: a candidate hears that its members are about to be others, and goes on
    Node._learn_commit
    - if self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE) and self._unapplied_change():
    + if False:

removed-and-leads-on: a leader that is removed goes on
    Node._switch
    - if self.id not in membership.voters:
    + if False:

last-commit-kept-secret: who refuses a vote doesn't say what is committed
    Node._refuse_vote
    - commit, commit_term)
    + Index(0), Term(0))

snapshot-without-its-members: a snapshot's state is installed, its members aren't
    Node._on_chunk
    - self.membership = mark.membership
    + pass

# snapshots

snapshot-keeps-the-log: a snapshot is installed, and the old log stays behind it
    Log.restore
    - self._entries.clear()
    + pass

snapshot-cuts-what-follows-it: a snapshot takes the place of a log that has all of it, and more
    Node._on_chunk
    - if self.log.term_at(mark.index) == mark.term:
    + if False:

old-snapshot-installed: a snapshot is installed whatever is here already
    Node._on_chunk
    - if message.gone or message.mark.index <= self.log.commit:
    + if message.gone:
    - if self.log.term_at(mark.index) == mark.term:
    + if False:
    Log.restore
    - assert mark.index > self.commit, (mark, self.commit)
    + pass

snapshot-acknowledged-early: a snapshot is acknowledged before it is installed
    Node._on_chunk
    - self._send_after_save(sender, AppendReply(self.term, mark.index))
    + self._send(sender, AppendReply(self.term, mark.index))

part-twice: a part of a snapshot that comes twice is taken twice
    Node._on_chunk
    - if message.offset != fetching.offset:
    + if message.offset > fetching.offset:
    Disk.keep_chunk
    - or len(self._parts[1]) != offset
    +
    Disk.install
    - if len(state) != _STATE.size:
    + state = state[: _STATE.size]
    + if len(state) != _STATE.size:

parts-mixed: a snapshot that waits to be installed gets the first parts of the next one
    Node.take_ready
    - chunks = self._chunks if self._install is None else self._install_chunks
    + chunks = self._chunks
    Node._on_chunk
    - self._install_chunks += self._chunks
    - self._chunks.clear()
    + pass

lost-offer: a snapshot that was offered is never offered again
    Node._offer_again
    - if progress.quiet_beats > 2:
    + if False:

offers-an-old-snapshot: a snapshot is offered though the log doesn't go on from it
    Node._offer_snapshot
    - self._snapshot is None or self._snapshot.index < self.log.mark.index
    + self._snapshot is None

# reads

reads-without-a-quorum: a leader answers reads without asking whether it still leads
    Node._confirm_reads
    - if read.round > confirmed:
    + if False:

reads-by-an-earlier-round: a read is confirmed by heartbeats that left before it came
    Node._read
    - self._round + 1))
    - return
    + self._round))
    + return

reads-before-first-commit: a new leader answers reads before it knows what is committed
    Node._read
    - if not self.has_committed_in_its_term:
    + if False:

reads-survive-their-leader: a read that wasn't confirmed is, when its leader leads again
    Node._reset
    - self._reads.clear()
    + pass

late-heartbeat-reply-counted: an answer to a leader's earlier term confirms reads in its new one
    Node._answer_late
    - case _:
    -     pass
    + case HeartbeatReply() if self.is_leader:
    +     self._on_heartbeat_reply(sender, message)

learner-confirms-reads: learners are counted for whether a leader still leads
    Node._confirm_reads
    - committed(self.membership.voters, rounds)
    + committed((*self.membership.voters, *self.membership.learners), rounds)

read-at-applied: a read is answered with what the leader has applied
    Node._read
    - request, self.log.commit, self._round))
    - self._confirm_reads()
    + request, self.log.applied, self._round))
    + self._confirm_reads()

# handing over

hands-over-too-early: a leader hands over to a member that lacks entries
    Node.transfer_leadership
    - if self.progress[to].match == self.log.last_index:
    + if True:

handing-over-never-ends: a handing over that fails blocks proposals for good
    Node.tick
    - self.transferring_to = NOBODY  # it had time enough
    + pass

# the disk, and who drives the core

handing-over-puts-off-the-quorum: a leader that is asked to hand over checks its quorum later
    Node.transfer_leadership
    - self._transfer_elapsed = 0
    + self._transfer_elapsed = self._election_elapsed = 0

torn-save-taken-for-whole: a save that was cut off is found after a restart as far as it got
    Disk.tear
    - self._journal.append((torn, False))
    + self._journal.append((torn, True))

save-lost: a disk says that a save is durable, and forgets it
    Disk.restart
    - self._image = self._base.copy()
    + self._image = self._base.copy()
    + del self._journal[-1:]

applied-twice: how far the state is applied is found one too low
    Disk.load
    - image = self._image
    + image = self._image
    + image.applied = max(image.mark.index, Index(image.applied - 1))

gives-up-what-others-have: a leader whose disk is full forgets what it has proposed, whoever has it by now
    Node.give_up
    - alone = self.is_leader and self.membership == Membership((self.id,), ())
    + alone = self.is_leader and log.commit <= log.saved

install-keeps-the-log: a disk installs a snapshot, and keeps the entries that it had
    Disk._replay
    - image.entries.clear()
    + pass

disk-keeps-a-conflicting-tail: a disk replaces an entry that conflicts, and keeps what is behind it
    Disk._replay
    - del image.entries[first - image.mark.index - 1 :]
    - image.entries += record.entries
    + at = first - image.mark.index - 1
    + image.entries[at : at + len(record.entries)] = record.entries

compacts-what-is-not-applied: the log is forgotten up to its end
    Member._compact
    - Index(disk.applied - knobs.compact_keep)
    + disk.last_index
    Disk._replay
    - assert image.mark.index <= index <= image.applied, (image.mark, index, image.applied)
    + pass
    Log.compact
    - assert self.mark.index <= index <= self.applied, (self.mark, index, self.applied)
    + pass

sends-before-it-saves: messages that promise what is saved leave before it is
    Member._complete
    - for chunk in ready.chunks:
    + self._send(ready.messages)
    + for chunk in ready.chunks:

snapshot-of-what-is-not-applied: a snapshot is named by an index that its state hasn't reached
    Disk.make_snapshot
    - mark = SnapshotMark(image.applied, term
    + mark = SnapshotMark(image.last_index, term

reads-before-applied: a member reads before it has applied the index that it was told
    Member._return_reads
    - if index > applied:
    + if False:
"""


@dataclass(frozen=True, slots=True)
class Edit:
    owner: type | ModuleType
    function: str  # or a property
    # What stands there, and what takes its place: a part of a line, and lines after it, indented relative to it.
    changes: Sequence[tuple[list[str], list[str]]]

    @contextmanager
    def on(self) -> Iterator[None]:
        found = inspect.getattr_static(self.owner, self.function)
        edited: object
        if isinstance(found, property):
            edited = property(self._edited(cast("Callable[[object], object]", found.fget)))
        else:
            edited = self._edited(cast("Callable[[object], object]", found))
        with patch.object(self.owner, self.function, edited):
            yield

    def _edited(self, function: Callable[[object], object]) -> Callable[[object], object]:
        source = textwrap.dedent(inspect.getsource(function)).removeprefix("@property\n")
        for change in self.changes:
            at = source.find(change[0][0])
            indent = re.match(" *", source[source.rfind("\n", 0, at) + 1 :])
            assert indent is not None
            old, new = (f"\n{indent[0]}".join(lines) for lines in change)
            assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {self.function}"
            source = source.replace(old, new)
        flags = __future__.annotations.compiler_flag
        code = compile(source, f"<{self.function} with a bug>", "exec", flags, dont_inherit=True)
        made: dict[str, Callable[[object], object]] = {}
        exec(code, function.__globals__, made)
        return made[function.__name__]


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    story: str  # what it does wrong
    edits: tuple[Edit, ...]

    @contextmanager
    def on(self) -> Iterator[None]:
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.on())
            yield


def _parse(text: str) -> dict[str, Planted]:
    bugs: dict[str, Planted] = {}
    for block in re.split(r"\n\n+", text.strip()):
        if block.startswith("#"):
            continue
        head, *lines = block.split("\n")
        name, story = head.split(": ", 1)
        assert name not in bugs, name
        edits: list[Edit] = []
        changes: list[tuple[list[str], list[str]]] = []
        for line in lines:
            match line[:5]:
                case "    -":
                    if not changes or changes[-1][1]:
                        changes.append(([], []))
                    changes[-1][0].append(line[6:])
                case "    +":
                    changes[-1][1].append(line[6:])
                case _:
                    owner, function = line.strip().split(".")
                    changes = []
                    edits.append(Edit(_OWNERS[owner], function, changes))
        bugs[name] = Planted(name, story, tuple(edits))
    return bugs


PLANTED: Final = _parse(_BUGS)  # by name
