"""What every raft.store.LogStore does, whatever it lies on.

Here: Machine, what the suite must know of an implementation, and StoreConformance, the tests: a subclass gives the
fixture `make`.
Not here: power cuts in the middle of a call (tests/unit/storage/raft_walk.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import pytest

from shoal.errors import Fault
from shoal.raft.messages import (
    ChangeKind,
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    MembershipChange,
    RaftId,
    SnapshotMark,
    Term,
    encode_change,
)
from shoal.raft.store import LogStore, Save, Stored


class Machine(Protocol):
    """A store in a place of its own, and its state machine."""

    @property
    def store(self) -> LogStore: ...

    def data(self, number: int) -> bytes:
        """Of a NORMAL entry. Different numbers leave different states; 300 of them need several chunks."""
        ...

    def state(self) -> object:
        """What the applied entries added up to; to be compared."""
        ...

    def crash(self) -> None:
        """The process dies and comes back; `store` is another object now, on what the first one left."""
        ...


Make = Callable[[], Machine]

NOTHING = Stored(HardState(), SnapshotMark(Index(0), Term(0), Membership()), (), Index(0), Membership())


def entry(machine: Machine, index: int, term: int = 1, number: int | None = None) -> Entry:
    data = machine.data(index if number is None else number)
    return Entry(Index(index), Term(term), EntryKind.NORMAL, data)


def entries(machine: Machine, first: int, last: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(entry(machine, index, term) for index in range(first, last + 1))


def change(index: int, kind: ChangeKind, member: int, term: int = 1) -> Entry:
    data = encode_change(MembershipChange(kind, RaftId(member)))
    return Entry(Index(index), Term(term), EntryKind.MEMBERSHIP, data)


def membership(voters: str, learners: str = "") -> Membership:
    return Membership(tuple(RaftId(int(v)) for v in voters), tuple(RaftId(int(v)) for v in learners))


def hard_state(term: int, vote: int, commit: int) -> HardState:
    return HardState(Term(term), RaftId(vote), Index(commit))


def applied(machine: Machine, last: int, term: int = 1) -> tuple[Entry, ...]:
    """Saves and applies the first entries, in a few steps; returns them."""
    made = entries(machine, 1, last, term)
    for start in range(0, last, 7):
        part = made[start : start + 7]
        machine.store.save(Save(hard_state(term, 1, part[-1].index), part, part))
    return made


def chunks(machine: Machine, mark: SnapshotMark) -> list[bytes]:
    found: list[bytes] = []
    last = False
    while not last:
        chunk = machine.store.read_chunk(mark, len(found))
        assert chunk is not None
        data, last = chunk
        found.append(data)
    return found


def transfer(source: Machine, target: Machine) -> SnapshotMark:
    mark = source.store.make_snapshot()
    for offset, data in enumerate(chunks(source, mark)):
        target.store.keep_chunk(mark, offset, data)
    return mark


class StoreConformance:
    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    @pytest.fixture
    def machine(self, make: Make) -> Machine:
        return make()

    # --- save --------------------------------------------------------------------------------

    def test_a_new_store_is_empty(self, machine: Machine) -> None:
        assert machine.store.load() == NOTHING
        machine.crash()
        assert machine.store.load() == NOTHING

    def test_a_vote_survives(self, machine: Machine) -> None:
        machine.store.save(Save(hard_state(3, 2, 0)))
        machine.crash()
        assert machine.store.load().hard_state == hard_state(3, 2, 0)
        machine.store.save(Save(hard_state(4, 0, 0)))
        machine.crash()
        assert machine.store.load().hard_state == hard_state(4, 0, 0)

    def test_entries_survive_and_are_not_applied(self, machine: Machine) -> None:
        """The crash comes between persisting and sending."""
        before, made = machine.state(), entries(machine, 1, 5)
        machine.store.save(Save(hard_state(1, 1, 0), made))
        machine.crash()
        stored = machine.store.load()
        assert stored.entries == made
        assert stored.applied == 0
        assert machine.state() == before

    def test_a_commit_that_nothing_was_applied_of(self, machine: Machine, make: Make) -> None:
        """The crash comes between commit and apply: the entries are applied afterwards, once."""
        made = entries(machine, 1, 5)
        machine.store.save(Save(hard_state(1, 1, 5), made))
        machine.crash()
        assert machine.store.load().applied == 0
        machine.store.save(Save(committed=made))
        other = make()
        applied(other, 5)
        assert machine.state() == other.state()
        assert machine.store.load() == other.store.load()

    def test_what_was_applied_survives(self, machine: Machine) -> None:
        made = applied(machine, 5)
        state = machine.state()
        machine.crash()
        assert machine.store.load() == Stored(hard_state(1, 1, 5), NOTHING.mark, made, Index(5), Membership())
        assert machine.state() == state

    def test_each_entry_changes_the_state(self, machine: Machine) -> None:
        states = [machine.state()]
        for index in range(1, 6):
            one = entry(machine, index)
            machine.store.save(Save(entries=(one,), committed=(one,)))
            states.append(machine.state())
        assert all(a != b for a, b in pairwise(states))

    def test_a_leaders_first_entry_changes_nothing(self, machine: Machine) -> None:
        applied(machine, 2)
        before = machine.state()
        first = Entry(Index(3), Term(2), EntryKind.NORMAL, b"")
        machine.store.save(Save(hard_state(2, 1, 3), (first,), (first,)))
        assert machine.state() == before
        machine.crash()
        stored = machine.store.load()
        assert (stored.applied, stored.entries[-1]) == (3, first)

    def test_entries_replace_the_tail(self, machine: Machine) -> None:
        made = applied(machine, 2)
        machine.store.save(Save(entries=entries(machine, 3, 9)))
        other = entries(machine, 5, 6, term=2)
        machine.store.save(Save(hard_state(2, 2, 2), other))
        expected = made + entries(machine, 3, 4) + other
        assert machine.store.load().entries == expected
        machine.crash()
        assert machine.store.load().entries == expected
        machine.store.save(Save(committed=expected[2:]))
        assert machine.store.load().applied == 6

    def test_one_save_replaces_the_tail_and_applies_what_stays(self, machine: Machine) -> None:
        machine.store.save(Save(entries=entries(machine, 1, 9)))
        head, tail = entries(machine, 1, 4), entries(machine, 5, 5, term=3)
        machine.store.save(Save(hard_state(3, 1, 5), tail, head + tail))
        machine.crash()
        stored = machine.store.load()
        assert (stored.entries, stored.applied) == (head + tail, 5)

    # --- membership --------------------------------------------------------------------------

    def test_the_membership_is_that_of_the_applied_index(self, machine: Machine) -> None:
        made = (change(1, ChangeKind.ADD_VOTER, 1), change(2, ChangeKind.ADD_LEARNER, 2))
        machine.store.save(Save(entries=made, committed=made[:1], membership=membership("1")))
        assert machine.store.load().membership == membership("1")
        machine.store.save(Save(committed=made[1:], membership=membership("1", "2")))
        machine.crash()
        stored = machine.store.load()
        assert stored.membership == membership("1", "2")
        assert stored.entries == made

    def test_the_marks_membership_is_that_of_its_index(self, machine: Machine) -> None:
        made = (
            change(1, ChangeKind.ADD_VOTER, 1),
            change(2, ChangeKind.ADD_LEARNER, 2),
            entry(machine, 3),
            change(4, ChangeKind.ADD_VOTER, 2),
            change(5, ChangeKind.ADD_LEARNER, 1),
            change(6, ChangeKind.REMOVE, 1),
        )
        machine.store.save(Save(hard_state(1, 1, 6), made, made, membership("2")))
        for index, expected in ((1, ("1", "")), (3, ("1", "2")), (4, ("12", "")), (5, ("2", "1"))):
            machine.store.compact(Index(index))
            machine.crash()
            stored = machine.store.load()
            assert stored.mark == SnapshotMark(Index(index), Term(1), membership(*expected))
            assert stored.entries == made[index:]
            assert stored.membership == membership("2")

    # --- compaction --------------------------------------------------------------------------

    def test_compaction_keeps_the_rest(self, machine: Machine) -> None:
        first = applied(machine, 10)
        second = entries(machine, 11, 14, term=2)
        machine.store.save(Save(hard_state(2, 1, 12), second, second[:2]))
        state = machine.state()
        machine.store.compact(Index(4))
        for index in (11, 12):
            machine.store.compact(Index(index))
            machine.crash()
            stored = machine.store.load()
            assert stored.mark == SnapshotMark(Index(index), Term(2), Membership())
            assert stored.entries == (first + second)[index:]
            assert stored.applied == 12
            assert machine.state() == state
        third = entries(machine, 14, 16, term=3)
        machine.store.save(Save(hard_state(3, 1, 13), third, second[2:3]))
        machine.crash()
        assert machine.store.load().entries == second[2:3] + third

    def test_a_log_may_be_compacted_to_nothing(self, machine: Machine) -> None:
        applied(machine, 9)
        machine.store.compact(Index(9))
        machine.crash()
        assert machine.store.load().entries == ()
        more = entries(machine, 10, 11)
        machine.store.save(Save(entries=more, committed=more))
        assert machine.store.load().entries == more

    # --- snapshots ---------------------------------------------------------------------------

    def test_a_snapshot_makes_another_store_equal(self, make: Make) -> None:
        source, target = make(), make()
        applied(source, 300)
        changes = (change(301, ChangeKind.ADD_VOTER, 1), change(302, ChangeKind.ADD_LEARNER, 2))
        source.store.save(Save(hard_state(1, 1, 302), changes, changes, membership("1", "2")))
        source.store.save(Save(entries=entries(source, 303, 310)))  # not committed: not in the snapshot
        kept = source.store.load()
        mark = transfer(source, target)
        assert mark == SnapshotMark(Index(302), Term(1), membership("1", "2"))
        assert len(chunks(source, mark)) > 2
        assert source.store.load() == kept
        target.store.install(mark, hard_state(5, 3, 302))
        for _ in range(2):
            assert target.state() == source.state()
            assert target.store.load() == Stored(hard_state(5, 3, 302), mark, (), mark.index, mark.membership)
            target.crash()
        more = entries(source, 303, 305)
        for machine in (source, target):
            machine.store.save(Save(entries=more, committed=more))
        assert target.state() == source.state()

    def test_installing_forgets_what_was_there(self, make: Make) -> None:
        source, target = make(), make()
        applied(source, 40)
        applied(target, 12)
        target.store.compact(Index(3))
        wrong = tuple(entry(target, index, 2, number=index + 1000) for index in range(13, 60))
        target.store.save(Save(hard_state(2, 1, 12), wrong))
        mark = transfer(source, target)
        target.store.install(mark, hard_state(3, 0, 40))
        target.crash()
        assert target.state() == source.state()
        assert target.store.load() == Stored(hard_state(3, 0, 40), mark, (), Index(40), Membership())

    def test_a_snapshot_stays_as_it_was_made(self, make: Make) -> None:
        source, target = make(), make()
        applied(source, 20)
        state = source.state()
        mark = source.store.make_snapshot()
        before = chunks(source, mark)
        more = entries(source, 21, 30)
        source.store.save(Save(entries=more, committed=more))
        source.store.compact(Index(25))
        assert source.state() != state
        assert chunks(source, mark) == before
        for offset, data in enumerate(before):
            target.store.keep_chunk(mark, offset, data)
        target.store.install(mark, hard_state(1, 0, 20))
        assert target.state() == state

    def test_one_snapshot_is_kept(self, machine: Machine) -> None:
        applied(machine, 5)
        old = machine.store.make_snapshot()
        one = entry(machine, 6)
        machine.store.save(Save(entries=(one,), committed=(one,)))
        new = machine.store.make_snapshot()
        assert (old.index, new.index) == (5, 6)
        assert machine.store.read_chunk(old, 0) is None
        assert machine.store.read_chunk(new, 0) is not None
        foreign = SnapshotMark(Index(6), Term(9), Membership())
        assert machine.store.read_chunk(foreign, 0) is None

    def test_what_is_not_whole_is_refused(self, make: Make) -> None:
        source, target = make(), make()
        applied(source, 300)
        applied(target, 3)
        mark = source.store.make_snapshot()
        parts = chunks(source, mark)
        before, state = target.store.load(), target.state()

        def refused(attempt: Callable[[], object]) -> None:
            with pytest.raises(Exception) as error:
                attempt()
            assert not isinstance(error.value, Fault | AssertionError), error.value
            assert (target.store.load(), target.state()) == (before, state)

        refused(lambda: target.store.install(mark, hard_state(9, 9, 300)))
        refused(lambda: target.store.keep_chunk(mark, 1, parts[1]))
        for offset, data in enumerate(parts[:-1]):
            target.store.keep_chunk(mark, offset, data)
        refused(lambda: target.store.keep_chunk(mark, len(parts), parts[-1]))
        refused(lambda: target.store.install(mark, hard_state(9, 9, 300)))
        # It goes on where it stopped.
        target.store.keep_chunk(mark, len(parts) - 1, parts[-1])
        target.store.install(mark, hard_state(9, 9, 300))
        assert target.state() == source.state()

    def test_fetching_may_begin_anew(self, make: Make) -> None:
        source, target = make(), make()
        applied(source, 300)
        old = source.store.make_snapshot()
        target.store.keep_chunk(old, 0, chunks(source, old)[0])
        one = entry(source, 301, number=2)
        source.store.save(Save(entries=(one,), committed=(one,)))
        mark = transfer(source, target)
        target.store.install(mark, hard_state(1, 0, 301))
        assert target.state() == source.state()

    # --- all of it, at random ----------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(10))
    def test_a_random_walk(self, make: Make, seed: int) -> None:
        rng = random.Random(seed)
        machine, twin = make(), make()  # the twin never crashes, never truncates, never compacts
        stored = NOTHING
        number = 0
        for _ in range(60):
            last = stored.mark.index + len(stored.entries)
            match rng.choice(("append", "append", "truncate", "apply", "apply", "compact", "crash")):
                case "append" | "truncate" as kind:
                    first = last + 1 if kind == "append" else rng.randint(stored.applied + 1, last + 1)
                    term = stored.hard_state.term + (kind == "truncate")
                    new = []
                    for index in range(first, first + rng.randint(1, 4)):
                        number += 1
                        new.append(entry(machine, index, term, number))
                    state = HardState(Term(term), RaftId(rng.randint(0, 3)), stored.applied)
                    machine.store.save(Save(state, tuple(new)))
                    kept = stored.entries[: first - stored.mark.index - 1]
                    stored = Stored(state, stored.mark, kept + tuple(new), stored.applied, stored.membership)
                case "apply":
                    start = stored.applied - stored.mark.index
                    some = stored.entries[start : start + rng.randint(1, 5)]
                    if some:
                        machine.store.save(Save(committed=some))
                        twin.store.save(Save(entries=some, committed=some))
                        stored = Stored(
                            stored.hard_state,
                            stored.mark,
                            stored.entries,
                            some[-1].index,
                            stored.membership,
                        )
                case "compact" if stored.applied > stored.mark.index:
                    index = Index(rng.randint(stored.mark.index + 1, stored.applied))
                    machine.store.compact(index)
                    at = index - stored.mark.index
                    mark = SnapshotMark(index, stored.entries[at - 1].term, Membership())
                    stored = Stored(
                        stored.hard_state, mark, stored.entries[at:], stored.applied, stored.membership
                    )
                case "crash":
                    machine.crash()
            assert machine.store.load() == stored
            assert machine.state() == twin.state()
