"""The catalog's log without Raft: a group of one, for tests of what is behind the log."""

from __future__ import annotations

from shoal.catalog.apply import Applied
from shoal.catalog.entries import Entry, Record, encode_record
from shoal.raft import messages as m
from shoal.raft.store import Save
from shoal.storage.catalog_db import CatalogDb


def append(db: CatalogDb, entry: Entry, time: int = 0) -> tuple[m.Index, Applied]:
    state = db.load().hard_state
    index, term = m.Index(db.last_index + 1), m.Term(max(state.term, 1))
    made = m.Entry(index, term, m.EntryKind.NORMAL, encode_record(Record(time, (0, 0), entry)))
    (done,) = db.save(Save(m.HardState(term, state.vote, index), (made,), (made,)))
    return index, done.applied
