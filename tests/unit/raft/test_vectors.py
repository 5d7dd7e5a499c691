"""Replays the cases of etcd/raft that lie in ../shared/vectors/etcd-raft, where that directory is there.

Here: quorums, simple changes of the members, and the interaction scripts that fit our core: their commands are given to our
nodes, and roles, logs, terms, commits and progress are compared with what the script says. The text of logs and messages isn't.
Not here: our own scripts (test_scripts.py).

A core whose options differ is imitated where that is possible: it campaigns at once where theirs has no pre-vote, and as if
the leader had asked for it where theirs doesn't check its quorum, since our members ignore others while they hear a leader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shoal.errors import ShoalError
from shoal.raft.membership import RefusedChange, changed
from shoal.raft.messages import (
    Append,
    ChangeKind,
    Chunk,
    Entry,
    EntryKind,
    Envelope,
    FetchChunk,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    SnapshotMark,
    SnapshotOffer,
    Term,
    decode_change,
)
from shoal.raft.node import Limits, Role
from shoal.raft.progress import State
from shoal.raft.quorum import UNBOUNDED, committed, vote_result
from shoal.raft.store import Stored
from tests.unit.raft.group import Disk, Group, Member

VECTORS = Path(__file__).resolve().parents[3].parent / "shared" / "vectors" / "etcd-raft"

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="../shared/vectors/etcd-raft isn't there")

NO_JOINT = "needs a joint configuration: our members change one at a time"

# Of quorum/ and confchange/.
NOT_OURS = {
    "quorum/joint_commit": NO_JOINT + " (its cases with an empty second half are replayed)",
    "quorum/joint_vote": NO_JOINT + " (its cases with an empty second half are replayed)",
    "confchange/joint_autoleave": NO_JOINT,
    "confchange/joint_idempotency": NO_JOINT,
    "confchange/joint_learners_next": NO_JOINT,
    "confchange/joint_safety": NO_JOINT,
    "confchange/update": "a change that changes no member is none of ours",
    "confchange/zero": "member 0 is ignored there; here it is refused",
}

# Of interaction/. All others are replayed.
DOES_NOT_FIT = {
    "async_storage_writes": "saves and applies are done by threads that answer with messages",
    "async_storage_writes_append_aba_race": "the same; the race itself is what log.was_saved() guards against",
    "confchange_disable_validation": NO_JOINT,
    "confchange_v1_remove_leader": "a leader that is removed leads on there; ours steps down",
    "confchange_v2_add_double_auto": NO_JOINT,
    "confchange_v2_add_double_implicit": NO_JOINT,
    "confchange_v2_add_single_explicit": NO_JOINT,
    "confchange_v2_replace_leader": NO_JOINT,
    "confchange_v2_replace_leader_stepdown": NO_JOINT,
    "forget_leader": "a follower can't be told to forget its leader and nothing else",
    "forget_leader_prevote_checkquorum": "the same",
    "forget_leader_read_only_lease_based": "the same, and no read rests on a lease here",
    "snapshot_succeed_via_app_resp_behind": "a snapshot is pushed in one message, at any time; ours is pulled in parts",
}


@dataclass(frozen=True)
class Case:
    line: int
    command: str
    arguments: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]

    def option(self, name: str) -> str | None:
        for argument in self.arguments:
            key, _, value = argument.partition("=")
            if key == name:
                return value
        return None

    def ids(self, name: str | None = None) -> list[RaftId]:
        """Of an option, or all arguments that are numbers."""
        if name is None:
            return [RaftId(int(each)) for each in self.arguments if each.isdigit()]
        return [RaftId(int(each)) for each in re.findall(r"\d+", self.option(name) or "")]


def cases(name: str) -> Iterator[Case]:
    lines = (VECTORS / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    at = 0
    while at < len(lines):
        if not lines[at] or lines[at].startswith("#"):
            at += 1
            continue
        first = at
        end = lines.index("----", at)
        at = end + 1
        while at < len(lines) and lines[at]:
            at += 1
        # A value in parentheses may have spaces in it.
        command, *arguments = re.findall(r"(?:[^\s(]|\([^)]*\))+", lines[first])
        yield Case(
            first + 1, command, tuple(arguments), tuple(lines[first + 1 : end]), tuple(lines[end + 1 : at])
        )


def names(package: str) -> list[str]:
    return sorted(path.stem for path in (VECTORS / package).glob("*.txt"))


def test_the_tables_name_what_is_there() -> None:
    there = {f"{package}/{name}" for package in ("quorum", "confchange") for name in names(package)}
    assert set(NOT_OURS) <= there
    assert set(DOES_NOT_FIT) <= set(names("interaction"))


@pytest.mark.parametrize("name", NOT_OURS)
def test_not_ours(name: str) -> None:
    pytest.skip(NOT_OURS[name])


# --- quorums ---------------------------------------------------------------------------------------


def quorum_cases(name: str) -> Iterator[Case]:
    for case in cases(name):
        if case.option("cfgj") in (None, "zero"):
            yield case


@pytest.mark.parametrize("name", ["majority_commit", "joint_commit"])
def test_commit_of_a_quorum(name: str) -> None:
    for case in quorum_cases(f"quorum/{name}"):
        voters = case.ids("cfg")
        known = re.findall(r"[\d_]+", case.option("idx") or "")
        match = {
            voter: Index(int(index)) for voter, index in zip(voters, known, strict=False) if index != "_"
        }
        index = committed(voters, match)
        shown = "∞" if index == UNBOUNDED else str(index)
        assert case.output[-1].removeprefix("<empty majority quorum>") == shown, case


@pytest.mark.parametrize("name", ["majority_vote", "joint_vote"])
def test_votes_of_a_quorum(name: str) -> None:
    for case in quorum_cases(f"quorum/{name}"):
        voters = case.ids("cfg")
        known = re.findall(r"[yn_]", case.option("votes") or "")
        votes = {voter: vote == "y" for voter, vote in zip(voters, known, strict=False) if vote != "_"}
        assert case.output == (f"Vote{vote_result(voters, votes).value.capitalize()}",), case


# --- changes of the members ------------------------------------------------------------------------

KINDS = {"v": ChangeKind.ADD_VOTER, "l": ChangeKind.ADD_LEARNER, "r": ChangeKind.REMOVE}


def changes(text: str) -> list[MembershipChange]:
    return [MembershipChange(KINDS[word[0]], RaftId(int(word[1:]))) for word in text.split()]


def show_members(membership: Membership) -> str:
    def ids(members: tuple[RaftId, ...]) -> str:
        return f"({' '.join(map(str, members))})"

    return f"voters={ids(membership.voters)}" + f" learners={ids(membership.learners)}" * bool(
        membership.learners
    )


@pytest.mark.parametrize("name", ["simple_idempotency", "simple_promote_demote", "simple_safety"])
def test_simple_changes(name: str) -> None:
    """Several at once are there one after the other here; what may not be one step there takes several of ours."""
    membership = Membership()
    for case in cases(f"confchange/{name}"):
        after = membership
        try:
            for change in changes(" ".join(case.input)):
                after = changed(after, change)
        except RefusedChange:
            assert case.output == ("removed all voters",), case
            continue
        if case.output == ("more than one voter changed without entering joint config",):
            assert len({*after.voters} ^ {*membership.voters}) > 1, case
            continue
        assert case.output[0] == show_members(after), case
        assert [line.split(":")[0] for line in case.output[1:]] == [
            str(id) for id in sorted((*after.voters, *after.learners))
        ], case
        membership = after


# --- interaction -----------------------------------------------------------------------------------

ROLES = {
    "StateFollower": Role.FOLLOWER,
    "StatePreCandidate": Role.PRE_CANDIDATE,
    "StateCandidate": Role.CANDIDATE,
    "StateLeader": Role.LEADER,
}
STATES = {"StateProbe": State.PROBE, "StateReplicate": State.REPLICATE, "StateSnapshot": State.SNAPSHOT}
ELECTION_TICKS = 3


class Replay:
    """Our nodes, moved by the commands of a script."""

    def __init__(self) -> None:
        self.group = Group()
        self.prevote = self.checkquorum = False

    def run(self, case: Case) -> None:
        getattr(self, "do_" + case.command.replace("-", "_"))(case)

    def member(self, id: int) -> Member:
        return self.group.members[RaftId(id)]

    def do_log_level(self, case: Case) -> None:
        pass

    def do_add_nodes(self, case: Case) -> None:
        self.prevote = case.option("prevote") == "true"
        self.checkquorum = case.option("checkquorum") == "true"
        start = int(case.option("index") or 0)
        limits = Limits(
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=1,
            inflight_messages=int(case.option("inflight") or 256),
        )
        members = Membership(tuple(case.ids("voters")), tuple(case.ids("learners")))
        mark = SnapshotMark(Index(start), Term(min(start, 1)), members)
        for _ in range(case.ids()[0]):
            id = RaftId(len(self.group.members) + 1)
            found = Stored(HardState(commit=Index(start)), mark, (), Index(start), members)
            self.group.add(Member(id, Disk(found), limits))

    # --- what a node is told ---------------------------------------------------------------------

    def do_campaign(self, case: Case) -> None:
        node = self.member(case.ids()[0]).node
        if self.prevote:
            if not self.checkquorum:
                for member in self.group.members.values():
                    member.node.leader_lost()
            node.campaign()
        elif not node.is_leader and node.may_campaign:
            node._campaign(pre=False, transfer=not self.checkquorum)

    def do_propose(self, case: Case) -> None:
        node = self.member(case.ids()[0]).node
        try:
            node.propose([case.arguments[1].strip('"').encode()])
        except ShoalError:
            assert case.output[-1] == "raft proposal dropped", case

    def do_propose_conf_change(self, case: Case) -> None:
        """Our leader takes none before it has committed its first entry, so that comes first."""
        member = self.member(case.ids()[0])
        while not member.node.has_committed_in_its_term and self.process(member):
            pass
        (change,) = changes(" ".join(case.input))
        member.node.propose_change(change)

    def do_tick_heartbeat(self, case: Case) -> None:
        self.member(case.ids()[0]).node.tick()

    def do_tick_election(self, case: Case) -> None:
        for _ in range(ELECTION_TICKS):
            self.member(case.ids()[0]).node.tick()

    def do_set_randomized_election_timeout(self, case: Case) -> None:
        timeout = case.option("timeout")
        assert timeout is not None
        self.member(case.ids()[0]).node._election_timeout = int(timeout)

    def do_report_unreachable(self, case: Case) -> None:
        who, whom = case.ids()
        self.member(who).node.unreachable(whom)

    def do_compact(self, case: Case) -> None:
        id, index = case.ids()
        member = self.member(id)
        member.disk.compact(Index(index))
        member.node.compact(Index(index))

    # --- what nodes do ---------------------------------------------------------------------------

    def process(self, member: Member) -> bool:
        """One Ready. Was there anything to do?"""
        messages = self.group.send(member.node.take_messages())
        messages += self.group.answer_chunk_requests(member)
        if member.node.wants_snapshot:
            member.node.snapshot_made(member.disk.make_snapshot())
            messages += self.group.send(member.node.take_messages())
        if member.take() is None:
            return bool(messages)
        member.save()
        self.group.send(member.advance())
        return True

    def deliver(self, ids: list[RaftId], *, only: type | None = None) -> bool:
        def wanted(envelope: Envelope) -> bool:
            return envelope.receiver in ids and (only is None or isinstance(envelope.message, only))

        arriving = self.group.take(wanted)
        for envelope in arriving:
            self.member(envelope.receiver).node.step(envelope)
            if isinstance(envelope.message, SnapshotOffer):
                self.carry_parts(self.member(envelope.receiver))
        return bool(arriving)

    def carry_parts(self, member: Member) -> None:
        """A snapshot is one message there."""
        self.group.send(member.node.take_messages())
        while asking := self.group.take(lambda envelope: isinstance(envelope.message, FetchChunk)):
            for envelope in asking:
                source = self.member(envelope.receiver)
                source.node.step(envelope)
                self.group.answer_chunk_requests(source)
            for part in self.group.take(lambda envelope: isinstance(envelope.message, Chunk)):
                member.node.step(part)
            self.group.send(member.node.take_messages())

    def do_process_ready(self, case: Case) -> None:
        for id in case.ids():
            self.process(self.member(id))

    def do_stabilize(self, case: Case) -> None:
        ids = case.ids() or list(self.group.members)
        for _ in range(1000):
            busy = [self.process(self.member(id)) for id in ids]
            busy += [self.deliver([id]) for id in ids]
            if not any(busy):
                return
        raise AssertionError(f"line {case.line}: they never come to an end")

    def do_deliver_msgs(self, case: Case) -> None:
        dropped = case.ids("drop")
        self.deliver(case.ids(), only=Append if case.option("type") == "MsgApp" else None)
        self.group.take(lambda envelope: envelope.receiver in dropped)

    def do_raft_log(self, case: Case) -> None:
        pass

    def do_raft_state(self, case: Case) -> None:
        pass

    def do_status(self, case: Case) -> None:
        pass

    # --- what the script says of it --------------------------------------------------------------

    def check(self, case: Case) -> None:
        match case.command:
            case "raft-log":
                self.check_log(case)
            case "raft-state":
                for line in case.output:
                    id, role, voter, term, leader = re.findall(
                        r"(\d+): (\w+) \(([-\w]+)\) Term:(\d+) Lead:(\d+)", line
                    )[0]
                    node = self.member(int(id)).node
                    assert (node.role, node.term, node.leader) == (ROLES[role], int(term), int(leader)), line
                    assert (node.id in node.membership.voters) == (voter == "Voter"), line
            case "status":
                self.check_progress(case)
            case "stabilize" | "process-ready":
                self.check_readies(case)
            case _:
                pass

    def check_log(self, case: Case) -> None:
        log = self.member(case.ids()[0]).node.log
        assert [show_entry(entry) for entry in log.entries(log.first_index)] == list(case.output)

    def check_progress(self, case: Case) -> None:
        node = self.member(case.ids()[0]).node
        for line in case.output:
            id, state, match, next = re.findall(r"(\d+): (\w+) match=(\d+) next=(\d+)", line)[0]
            progress = node.progress[RaftId(int(id))]
            assert (progress.state, progress.match) == (STATES[state], int(match)), line
            if int(id) == node.id:
                continue
            assert (progress.next, progress.is_paused) == (int(next), "paused" in line), line
            inflight = re.search(r"inflight=(\d+)", line)
            assert len(progress.inflight) == (int(inflight[1]) if inflight else 0), line

    def check_readies(self, case: Case) -> None:
        """The last that it says of each node's hard state and role holds for ours, at the end of the command."""
        id = case.ids()[0] if case.command == "process-ready" else 0
        if id and self.member(id).node.membership.voters == (id,):
            return  # a group of one elects, saves and applies in one Ready here
        hard_states: dict[int, tuple[int, int]] = {}
        roles: dict[int, str] = {}
        for line in case.output:
            if handling := re.search(r"> (\d+) handling Ready", line):
                id = int(handling[1])
            elif hard_state := re.search(r"HardState Term:(\d+) (?:Vote:\d+ )?Commit:(\d+)", line):
                hard_states[id] = (int(hard_state[1]), int(hard_state[2]))
            elif soft_state := re.search(r"Lead:\d+ State:(\w+)", line):
                roles[id] = soft_state[1]
            elif became := re.search(r"INFO (\d+) became (\w+) at term", line):
                roles[int(became[1])] = "State" + became[2].capitalize().replace(
                    "Pre-candidate", "PreCandidate"
                )
        for id, (term, commit) in hard_states.items():
            node = self.member(id).node
            assert (id, node.term, node.log.commit) == (id, term, commit), case
        for id, role in roles.items():
            assert (id, self.member(id).node.role) == (id, ROLES[role]), case


def show_entry(entry: Entry) -> str:
    if entry.kind is EntryKind.NORMAL:
        return f'{entry.term}/{entry.index} EntryNormal "{entry.data.decode()}"'
    change = decode_change(entry.data)
    letter = next(letter for letter, kind in KINDS.items() if kind is change.kind)
    return f"{entry.term}/{entry.index} EntryConfChange {letter}{change.member}"


@pytest.mark.parametrize("name", names("interaction") if VECTORS.is_dir() else [])
def test_interaction(name: str) -> None:
    if name in DOES_NOT_FIT:
        pytest.skip(DOES_NOT_FIT[name])
    replay = Replay()
    for case in cases(f"interaction/{name}"):
        try:
            replay.run(case)
            replay.check(case)
        except (AssertionError, LookupError, ValueError, TypeError, AttributeError) as error:
            error.add_note(f"{name}.txt:{case.line}")
            raise
