"""Runs tests/scripts/raft: a group moved by hand, and what each member does and says.

A script begins with the members, with `limits NAME=VALUE …` before them if they aren't the usual ones:

    voters 1 2 3 [learners 4] [from 10]  all with an empty log, which begins after that index
    disk 1: 1 1 4 4 [applied 2] [term 5] instead: a log with entries of these terms
    blank 4                              a process that knows nobody yet

Then, one command per line (ids in a row: for each; `all`: for all):

    tick 1 2 3             time passes for 1 2 3: one tick; `tick 1 x10` ten of them
    campaign 1             as if its patience was over
    lost 1                 it is told that the leader's process is gone, and campaigns
    propose 1 x y          in one batch
    change 1 add-voter 4   or add-learner, remove
    transfer 1 2           1 is to hand over to 2
    read 1 7               a read index is asked of 1; 7 is its number
    unreachable 1 2        1 is told that a message to 2 could not be sent
    compact 1 5            1 forgets its entries up to 5
    snapshot 1             1 makes a snapshot;  no-snapshot 1: and has it no more

    deliver                what is in flight arrives; what is said about it is in flight then
    deliver 2 3            only what is for them
    settle                 deliver, again and again, until nobody says anything;  settle 1 2: between these
    drop 2 3               what is in flight for them is lost;  drop 1→2: from 1 to 2;  drop: all of it
    late 1→2               … is on its way for longer, until `arrives`; then it is in flight again
    twice 1→2              … arrives twice;  again 1→2: the second time after `arrives`
    cut 1                  nobody hears 1, nor does 1 hear anybody;  cut 1→2: 2 doesn't hear 1;  heal

    slow 1                 a save that 1 begins from now on lasts until `saved 1`;  saved 1 once: the next is slow, too
    refused 1              the disk is full: it gives up what it proposed, or begins the save again
    crash 1                it forgets what isn't saved;  crash 1 saved: the save under way is done, nothing is sent;
                           crash 1 installed: of the save under way only the snapshot
    restart 1
    mute                   no output until `unmute`: for what leads up to the story

    log 1 2                1@1 is the entry with index 1 and term 1; those before `|` are committed, the member says
    disk 1                 the same, of what a restart would find
    status 1               what 1 thinks, and what it knows of the others if it leads

An output line tells what changed (`2 term 2 candidate`), what is sent (`2 → 1 3  PreVote? …`), what is lost on a link that
is cut (`2 ✗ 1  …`), or what was applied (`1 applies 4@2 x`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.raft import messages as m
from shoal.raft.membership import RefusedChange
from shoal.raft.node import Limits, Role
from shoal.raft.progress import State
from tests.scripts_runner import run_script, script_paths
from tests.unit.raft.group import Disk, Group, Member, stored

CHANGES = {
    "add-voter": m.ChangeKind.ADD_VOTER,
    "add-learner": m.ChangeKind.ADD_LEARNER,
    "remove": m.ChangeKind.REMOVE,
}


def show_entry(entry: m.Entry) -> str:
    return f"{entry.index}@{entry.term} {show_data(entry)}".rstrip()


def show_data(entry: m.Entry) -> str:
    if entry.kind is m.EntryKind.NORMAL:
        return entry.data.decode()
    change = m.decode_change(entry.data)
    return f"{change.kind.name.lower().replace('_', '-')} {change.member}"


def show_members(membership: m.Membership) -> str:
    voters = " ".join(map(str, membership.voters)) or "nobody"
    return voters + "".join(f" +{learner}" for learner in membership.learners)


def show_message(message: m.Message) -> str:
    match message:
        case m.RequestVote(term, last_index, last_term, pre, transfer):
            kind = "PreVote?" if pre else "Vote?"
            return f"{kind} term {term}, log ends {last_index}@{last_term}{' (handed over)' * transfer}"
        case m.VoteReply(_, granted, pre):
            return f"{'PreVote' if pre else 'Vote'} {'granted' if granted else 'refused'}"
        case m.Append(_, index, term, entries, commit):
            shown = ", ".join(map(show_entry, entries)) or "nothing"
            return f"Append after {index}@{term}: {shown}; commit {commit}"
        case m.AppendReply(_, index, True, hint_index, hint_term):
            return f"No match at {index}, perhaps {hint_index}@{hint_term}"
        case m.AppendReply(_, index):
            return f"Appended {index}"
        case m.Heartbeat(_, commit, number):
            return f"Heartbeat {number}, commit {commit}"
        case m.HeartbeatReply(_, number):
            return f"Heartbeat {number} heard"
        case m.TimeoutNow():
            return "Campaign now"
        case m.ReadIndex(_, request):
            return f"Read {request}?"
        case m.ReadIndexReply(_, request, index):
            return f"Read {request} at {index}"
        case m.SnapshotOffer(_, mark):
            return f"Snapshot {mark.index}@{mark.term} of {show_members(mark.membership)}"
        case m.FetchChunk(_, mark, offset):
            return f"Chunk {offset} of {mark.index}@{mark.term}?"
        case m.Chunk(_, mark, offset, _, last, gone):
            end = ", gone" if gone else ", the last" if last else ""
            return f"Chunk {offset} of {mark.index}@{mark.term}{end}"


class Script:
    """A group, and a line for everything that happens in it."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.group = Group()
        self.lines: list[str] = []
        self.muted = False
        self.down: set[m.RaftId] = set()
        self.slow: set[m.RaftId] = set()
        self.cut: set[tuple[m.RaftId, m.RaftId]] = set()
        self.late: list[m.Envelope] = []
        self._seen: dict[m.RaftId, tuple[object, ...]] = {}

    def execute(self, text: str) -> str:
        self.lines = []
        for line in text.split("\n"):
            name, _, rest = line.partition(" ")
            getattr(self, "do_" + name.replace("-", "_"))(*rest.split())
            self.run()
        return "\n".join(self.lines)

    def say(self, line: str) -> None:
        if not self.muted:
            self.lines.append(line)

    # --- what happens by itself ------------------------------------------------------------------

    def ups(self) -> list[Member]:
        return [member for id, member in sorted(self.group.members.items()) if id not in self.down]

    def run(self) -> None:
        """Everybody saves and sends, until there is nothing to do but to wait for messages and time."""
        busy = True
        while busy:
            busy = False
            for member in self.ups():
                self.look(member)
                self.send(member.node.take_messages())
                self.told(member)
                if member.ready is None and member.take() is not None and member.id not in self.slow:
                    self.finish(member)
                    busy = True

    def finish(self, member: Member) -> None:
        ready = member.save()
        envelopes = member.advance()
        if ready.install is not None:
            self.say(f"{member.id} installs {ready.install.index}@{ready.install.term}")
        if ready.save is not None and ready.save.committed:
            self.say(f"{member.id} applies {', '.join(map(show_entry, ready.save.committed))}")
        self.look(member)
        self.send(envelopes)

    def look(self, member: Member) -> None:
        """Says what has changed."""
        node = member.node
        role, members = (node.term, node.role), node.membership
        was_role, was_members, wanted = self._seen.get(member.id, (None, None, False))
        if role != was_role and (was_role is not None or node.role is not Role.FOLLOWER):
            self.say(f"{member.id} term {node.term} {node.role.value}")
        if members != was_members and was_role is not None:
            self.say(f"{member.id} members {show_members(members)}")
        if node.wants_snapshot and not wanted:
            self.say(f"{member.id} wants a snapshot")
        self._seen[member.id] = (role, members, node.wants_snapshot)

    def told(self, member: Member) -> None:
        for read in member.node.take_reads():
            self.say(f"{member.id} may read {read.request} at {read.index}")
        chunks = self.group.answer_chunk_requests(member)
        self.show_sent(chunks)

    def send(self, envelopes: Iterable[m.Envelope]) -> None:
        self.show_sent(self.group.send(envelopes))

    def show_sent(self, envelopes: Iterable[m.Envelope]) -> None:
        rows: list[tuple[m.RaftId, list[m.RaftId], str]] = []
        for envelope in envelopes:
            text = show_message(envelope.message)
            for sender, receivers, shown in rows:
                if (sender, shown) == (envelope.sender, text) and envelope.receiver not in receivers:
                    receivers.append(envelope.receiver)
                    break
            else:
                rows.append((envelope.sender, [envelope.receiver], text))
        for sender, receivers, shown in rows:
            self.say(f"{sender} → {' '.join(map(str, receivers))}  {shown}")

    def arrive(self, envelopes: Iterable[m.Envelope]) -> None:
        for envelope in envelopes:
            sender, receiver = envelope.sender, envelope.receiver
            if (sender, receiver) in self.cut or receiver in self.down or receiver not in self.group.members:
                self.say(f"{sender} ✗ {receiver}  {show_message(envelope.message)}")
                continue
            member = self.group.members[receiver]
            member.node.step(envelope)
            self.look(member)
            self.told(member)

    # --- who is there ----------------------------------------------------------------------------

    def do_limits(self, *pairs: str) -> None:
        self.limits = Limits(
            **{name: int(value) for name, _, value in (pair.partition("=") for pair in pairs)}
        )

    def do_voters(self, *words: str) -> None:
        rest = list(words)
        start = 0
        if "from" in rest:
            start = int(rest.pop())
            rest.remove("from")
        at = rest.index("learners") if "learners" in rest else len(rest)
        voters = tuple(m.RaftId(int(word)) for word in rest[:at])
        learners = tuple(m.RaftId(int(word)) for word in rest[at + 1 :])
        self.membership = m.Membership(voters, learners)
        for id in (*voters, *learners):
            self.add(id, Disk(stored(self.membership, start=start)))

    def do_blank(self, id: str) -> None:
        self.add(m.RaftId(int(id)), Disk(stored(m.Membership())))

    def add(self, id: m.RaftId, disk: Disk) -> None:
        member = self.group.add(Member(id, disk, self.limits))
        self._seen[id] = ((member.node.term, member.node.role), member.node.membership, False)

    def do_disk(self, *words: str) -> None:
        if not words[0].endswith(":"):
            for member in self.those(*words):
                disk = member.disk
                self.say(
                    f"{member.id} term {disk.hard_state.term} vote {disk.hard_state.vote or 'none'} "
                    f"commit {disk.hard_state.commit} applied {disk.applied} after {disk.mark.index}: "
                    + (", ".join(map(show_entry, disk.entries)) or "nothing")
                )
            return
        rest = list(words[1:])
        options = {}
        while len(rest) > 1 and rest[-2] in ("applied", "term"):
            options[rest[-2]] = int(rest[-1])
            del rest[-2:]
        terms = [int(word) for word in rest]
        disk = Disk(stored(self.membership, terms=terms, **options))
        disk.state = disk.entries[: disk.applied]
        self.add(m.RaftId(int(words[0][:-1])), disk)

    def those(self, *ids: str) -> list[Member]:
        if ids == ("all",):
            return self.ups()
        return [self.group.members[m.RaftId(int(id))] for id in ids]

    # --- what is done to a member ----------------------------------------------------------------

    def do_tick(self, *words: str) -> None:
        times = 1
        if words[-1].startswith("x"):
            times, words = int(words[-1][1:]), words[:-1]
        for _ in range(times):
            for member in self.those(*words):
                member.node.tick()
                self.look(member)
            self.run()

    def do_campaign(self, id: str) -> None:
        self.those(id)[0].node.campaign()

    def do_lost(self, *ids: str) -> None:
        for member in self.those(*ids):
            member.node.leader_lost()
        for member in self.those(*ids):
            member.node.campaign()

    def do_propose(self, id: str, *data: str) -> None:
        member = self.those(id)[0]
        self.try_to(lambda: member.node.propose([each.encode() for each in data]))

    def do_change(self, id: str, kind: str, member: str) -> None:
        change = m.MembershipChange(CHANGES[kind], m.RaftId(int(member)))
        node = self.those(id)[0].node
        self.try_to(lambda: node.propose_change(change))

    def do_read(self, id: str, number: str) -> None:
        node = self.those(id)[0].node
        self.try_to(lambda: node.read_index(int(number)))

    def try_to(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (ShoalError, RefusedChange) as error:
            self.say(f"{type(error).__name__}: {error}")

    def do_transfer(self, id: str, to: str) -> None:
        self.those(id)[0].node.transfer_leadership(m.RaftId(int(to)))

    def do_unreachable(self, id: str, member: str) -> None:
        self.those(id)[0].node.unreachable(m.RaftId(int(member)))

    def do_compact(self, id: str, index: str) -> None:
        member = self.those(id)[0]
        member.disk.compact(m.Index(int(index)))
        member.node.compact(m.Index(int(index)))

    def do_snapshot(self, id: str) -> None:
        member = self.those(id)[0]
        mark = member.disk.make_snapshot()
        self.say(f"{member.id} has a snapshot {mark.index}@{mark.term}")
        member.node.snapshot_made(mark)
        self.look(member)

    def do_no_snapshot(self, id: str) -> None:
        self.those(id)[0].disk.forget_snapshot()

    # --- messages --------------------------------------------------------------------------------

    def do_deliver(self, *ids: str) -> None:
        self.arrive(self.group.take(self.wanted(*ids)))

    def do_settle(self, *ids: str) -> None:
        among = {member.id for member in (self.those(*ids) if ids else self.ups())}
        for _ in range(100):
            wanted = self.group.take(lambda envelope: {envelope.sender, envelope.receiver} <= among)
            if not wanted:
                if not ids:
                    self.do_deliver()  # to nobody who is there
                return
            self.arrive(wanted)
            self.run()
        raise AssertionError("they never come to an end")

    def do_drop(self, *ids: str) -> None:
        self.group.take(self.wanted(*ids))

    def do_late(self, *ids: str) -> None:
        self.late += self.group.take(self.wanted(*ids))

    def do_again(self, *ids: str) -> None:
        wanted = self.wanted(*ids)
        self.late += [envelope for envelope in self.group.in_flight if wanted(envelope)]

    def do_arrives(self) -> None:
        self.group.in_flight += self.late
        self.late = []

    def do_twice(self, *ids: str) -> None:
        wanted = self.wanted(*ids)
        self.group.in_flight = [
            envelope for envelope in self.group.in_flight for _ in range(2 if wanted(envelope) else 1)
        ]

    def wanted(self, *words: str) -> Callable[[m.Envelope], bool]:
        if not words:
            return lambda envelope: True
        links = {self.link(word) for word in words if "→" in word}
        receivers = {m.RaftId(int(word)) for word in words if "→" not in word}
        return lambda envelope: (
            envelope.receiver in receivers or (envelope.sender, envelope.receiver) in links
        )

    def link(self, word: str) -> tuple[m.RaftId, m.RaftId]:
        sender, receiver = word.split("→")
        return m.RaftId(int(sender)), m.RaftId(int(receiver))

    def do_cut(self, *words: str) -> None:
        for word in words:
            if "→" in word:
                self.cut.add(self.link(word))
            else:
                one = m.RaftId(int(word))
                self.cut |= {
                    pair
                    for other in self.group.members
                    if other != one
                    for pair in ((one, other), (other, one))
                }

    def do_heal(self) -> None:
        self.cut.clear()

    # --- disks and power -------------------------------------------------------------------------

    def do_slow(self, *ids: str) -> None:
        self.slow |= {member.id for member in self.those(*ids)}

    def do_saved(self, *words: str) -> None:
        once = words[-1] == "once"
        for member in self.those(*words[: len(words) - once]):
            if not once:
                self.slow.discard(member.id)
            if member.ready is not None:
                self.finish(member)

    def do_refused(self, *ids: str) -> None:
        for member in self.those(*ids):
            assert member.ready is not None
            last = member.node.log.last_index
            if member.node.give_up(member.ready):
                member.ready = None
                self.say(f"{member.id} gives up {last - member.node.log.last_index} entries")
            else:
                self.say(f"{member.id} tries again")

    def do_crash(self, id: str, when: str = "") -> None:
        member = self.those(id)[0]
        if when == "saved":
            member.save()
        elif when == "installed":
            member.install()
        self.slow.discard(member.id)
        self.down.add(member.id)

    def do_restart(self, *ids: str) -> None:
        for member in self.those(*ids):
            self.down.discard(member.id)
            member.start()
            node = member.node
            self._seen[member.id] = ((node.term, node.role), node.membership, False)
            self.say(f"{member.id} term {node.term} {node.role.value}")

    # --- looking ---------------------------------------------------------------------------------

    def do_mute(self) -> None:
        self.muted = True

    def do_unmute(self) -> None:
        self.run()
        self.muted = False

    def do_log(self, *ids: str) -> None:
        for member in self.those(*ids):
            log = member.node.log
            entries = log.entries(log.first_index)
            certain = ", ".join(show_entry(entry) for entry in entries if entry.index <= log.commit)
            open_ = ", ".join(show_entry(entry) for entry in entries if entry.index > log.commit)
            before = f"(after {log.mark.index}@{log.mark.term}) " if log.mark.index else ""
            self.say(f"{member.id}: {before}{certain} | {open_}".rstrip())

    def do_status(self, *ids: str) -> None:
        for member in self.those(*ids):
            node, log = member.node, member.node.log
            self.say(
                f"{member.id} term {node.term} {node.role.value}, vote {node.vote or 'none'}, "
                f"leader {node.leader or 'none'}, members {show_members(node.membership)}, "
                f"log {log.last_index}@{log.last_term}, commit {log.commit}, applied {log.applied}"
            )
            for id, progress in sorted(node.progress.items()):
                if id != member.id:
                    flags = [
                        *(["paused"] if progress.is_paused else []),
                        *([f"{len(progress.inflight)} in flight"] if len(progress.inflight) else []),
                        *([f"snapshot {progress.snapshot}"] if progress.state is State.SNAPSHOT else []),
                        *([] if progress.recently_active else ["quiet"]),
                    ]
                    self.say(
                        f"  {id} {progress.state.value} match {progress.match} next {progress.next}"
                        + "".join(f", {flag}" for flag in flags)
                    )


@pytest.mark.parametrize("path", script_paths("raft"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    run_script(path, Script().execute, rewrite)
