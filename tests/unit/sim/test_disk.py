"""The simulation's disk does what every LogStore does, and loses what it must lose."""

from __future__ import annotations

import pytest

from shoal.raft.messages import Entry, EntryKind, HardState, Index, RaftId, Term
from shoal.raft.store import Save
from shoal.sim.disk import Disk
from tests.unit.raft.store_conformance import Make, StoreConformance, applied, entries, hard_state


class Machine:
    def __init__(self) -> None:
        self.store = Disk(chunk_bytes=8)

    def data(self, number: int) -> bytes:
        return str(number).encode()

    def state(self) -> object:
        return self.store.state.copy()

    def crash(self) -> None:
        self.store.restart()


class TestConformance(StoreConformance):
    @pytest.fixture
    def make(self) -> Make:
        return Machine

    def test_a_leaders_first_entry_changes_nothing(self, machine: Machine) -> None:  # type: ignore[override]
        """Here it does: this state is the whole history, so that nothing of it can be missed unnoticed."""
        applied(machine, 2)
        first = Entry(Index(3), Term(2), EntryKind.NORMAL, b"")
        machine.store.save(Save(hard_state(2, 1, 3), (first,), (first,)))
        machine.crash()
        assert machine.store.load().applied == 3


@pytest.mark.parametrize("parts", range(7))
def test_a_torn_save_never_was(parts: int) -> None:
    machine = Machine()
    first = entries(machine, 1, 3)
    machine.store.save(Save(hard_state(1, 1, 3), first, first))
    before, state = machine.store.load(), machine.state()
    second = entries(machine, 4, 6, term=2)
    machine.store.tear(Save(HardState(Term(2), RaftId(2), Index(6)), second, second), parts)
    machine.crash()
    assert (machine.store.load(), machine.state()) == (before, state)
    machine.store.save(Save(hard_state(2, 2, 4), second[:1], second[:1]))
    machine.crash()
    assert machine.store.load().applied == 4


def test_an_entry_that_is_not_there_is_not_applied() -> None:
    machine = Machine()
    with pytest.raises(AssertionError):
        machine.store.save(Save(committed=(Entry(Index(1), Term(1), EntryKind.NORMAL, b"x"),)))
