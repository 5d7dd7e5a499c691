"""The audit log: what has happened, for those who must know who did it, one line of JSON each.

Here: Audit, the log of one instance: the events of the cluster's log as it applies them, and those that only it sees.
Not here: what an entry's events are (catalog/audit.py), the log for operators (logging).

Each event has an id, RAFT_ID.GEN.COUNT: the generation counts the starts of the instance, so no two events of a cluster have the
same, and a gap in the count shows. A line is written before whoever caused the event is answered, and outlives the process. An
entry is told of by each instance when it has applied it, once. An instance that was killed between the two, or whose disk
lost the last lines with its power, finds at its next start where its file ends in the log, and tells the rest.

What can't be written is counted, told to the operators, and named by the next line that can. An instance doesn't stop for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from shoal.catalog.audit import (
    HIGH,
    LOW,
    MEDIUM,
    Event,
    events_of_entry,
    events_of_members,
    events_told_late,
)
from shoal.catalog.entries import DdlAbort, DdlCommit, DdlPrepare
from shoal.errors import InvalidConfiguration, ShoalError
from shoal.node.catalog_log import CatalogLog, Change
from shoal.topology.cluster import Topology

_log: Final = logging.getLogger(__name__)

STDOUT: Final = "stdout"

# Where the last entry that was told of is looked for.
_TAIL_BYTES: Final = 1 << 20

_encode: Final = msgspec.json.Encoder().encode


class _Told(msgspec.Struct):
    """What of a line says how far it tells of the log."""

    id: str
    index: int | None = None


_decode: Final = msgspec.json.Decoder(_Told).decode


class Audit:
    """Without a target it writes nothing."""

    def __init__(self, target: str | None, now: Callable[[], int]) -> None:
        self._target = target
        self._now = now
        self._file = None if target is None else _opened(target)
        self._raft_id = self._gen = self._count = 0
        self._lost = 0
        self._topology = Topology()

    def begin(self, raft_id: int, gen: int, topology: Topology, log: CatalogLog) -> None:
        """From now on it is known who writes, and what has been applied."""
        self._raft_id, self._gen, self._topology = raft_id, gen, topology
        told = self._last_index()
        self.write(Event("init_audit", LOW, "the audit log is ready"))
        if told is not None:
            self._tell_late(log, told)

    def _last_index(self) -> int | None:
        """Of the last line that tells of an entry; None: there is none, or nobody can read what was written."""
        if self._target in (None, STDOUT):
            return None
        assert self._target is not None
        try:
            with Path(self._target).open("rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return None
        for line in reversed(lines):
            try:
                told = _decode(line)
            except msgspec.MsgspecError:
                continue  # cut off, or of somebody else
            if told.index is not None and told.id.startswith(f"{self._raft_id}."):
                return told.index
        return None

    def _tell_late(self, log: CatalogLog, told: int) -> None:
        """Changes of the schema, rights and settings. Which states of instances have changed, a later state doesn't show."""
        for index, record in log.applied_after(told):
            prepared: DdlPrepare | None = None
            if isinstance(record.entry, DdlCommit | DdlAbort):
                first, begun = next(log.applied_after(record.entry.version - 1), (0, record))
                if first == record.entry.version and isinstance(begun.entry, DdlPrepare):
                    prepared = begun.entry
            for event in events_told_late(log.catalog, record.entry, index, prepared):
                self.write(event, record.time)

    @property
    def is_on(self) -> bool:
        return self._file is not None

    # --- writing ---------------------------------------------------------------------------------

    def write(self, event: Event, time: int | None = None) -> None:
        """`time` is when it has happened, in µs since 1970, if not now."""
        if self._file is None:
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            told = Event("lost_events", HIGH, f"{lost} events could not be written", fields={"count": lost})
            if not self._put(told, None):
                self._lost += lost
        if not self._put(event, time):
            self._lost += 1

    def _put(self, event: Event, time: int | None) -> bool:
        assert self._file is not None
        self._count += 1
        line = {
            "id": f"{self._raft_id}.{self._gen}.{self._count}",
            "time": _iso(self._now() if time is None else time),
            "title": event.title,
            "severity": event.severity,
            "message": event.message,
            "initiator": event.initiator,
            **event.fields,
        }
        data = _encode(line) + b"\n"
        try:
            written = os.write(self._file, data)
        except OSError as error:
            if not self._lost:
                _log.error("the audit log %s can't be written: %s", self._target, error.strerror)
            return False
        return written == len(data)

    def reopen(self) -> None:
        """After somebody has moved the file away."""
        if self._file is None or self._target in (None, STDOUT):
            return
        assert self._target is not None
        try:
            opened = _opened(self._target)
        except InvalidConfiguration as error:
            _log.error("the old audit log goes on: %s", error.message)
            return
        os.close(self._file)
        self._file = opened
        _log.info("the audit log %s was opened anew", self._target)

    def close(self) -> None:
        if self._file is not None and self._target != STDOUT:
            os.close(self._file)
        self._file = None

    # --- what happens ----------------------------------------------------------------------------

    def on_change(self, change: Change, topology: Topology) -> None:
        """An entry or a snapshot was applied, and the topology is this now."""
        before, self._topology = self._topology, topology
        if self._file is None:
            return
        index = change.index
        if change.by_snapshot:
            message = (
                f"took over the catalog as of entry {index} from a snapshot: what led to it was not seen here"
            )
            self.write(Event("apply_snapshot", MEDIUM, message, fields={"index": index}))
            return
        record = change.record
        if record is None:
            return
        for event in events_of_entry(change.before, record.entry, index):
            self.write(event, record.time)
        if before is not topology:
            for event in events_of_members(before, topology, index):
                self.write(event, record.time)

    def logged_in(self, user: str, where: str) -> None:
        self.write(
            Event(
                "auth_ok", HIGH, f"user {user!r} logged in from {where}", user, {"user": user, "from": where}
            )
        )

    def login_refused(self, user: str, where: str, why: str) -> None:
        message = f"user {user!r} was refused from {where}: {why}"
        self.write(Event("auth_fail", HIGH, message, user, {"user": user, "from": where, "verdict": why}))

    def denied(self, user: str, error: ShoalError) -> None:
        self.write(Event("access_denied", MEDIUM, error.message, user, dict(error.extra)))

    def started(self, name: str, version: str, *, is_new: bool, is_first: bool) -> None:
        """`is_new`: this start has made what is in its directory. `is_first`: and the cluster."""
        if is_first:
            self.write(Event("new_database_created", LOW, "a new cluster was created"))
        if is_new:
            made = Event("create_local_db", LOW, "the local database was created", fields={"instance": name})
        else:
            made = Event(
                "recover_local_db", LOW, "the local database was recovered", fields={"instance": name}
            )
        self.write(made)
        message = f"instance {name} has started"
        self.write(Event("local_startup", LOW, message, fields={"instance": name, "version": version}))

    def stopping(self, fault: str | None) -> None:
        """`fault`: what has made it unfit, if that is the reason."""
        if fault is not None:
            self.write(Event("integrity_violation", HIGH, fault))
        self.write(Event("local_shutdown", HIGH, "the instance stops"))

    def damaged(self, error: ShoalError) -> None:
        self.write(Event("integrity_violation", HIGH, error.message))


def _opened(target: str) -> int:
    if target == STDOUT:
        return 1
    path = Path(target)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            # Of a pipe that nobody reads: what can't be written is lost, and nobody waits for it.
            flags |= os.O_NONBLOCK
    try:
        opened = os.open(path, flags, 0o600)
        if _ends_within_a_line(path):
            os.write(opened, b"\n")
        return opened
    except OSError as error:
        raise InvalidConfiguration(f"audit: {path} can't be opened: {error.strerror}") from None


def _ends_within_a_line(path: Path) -> bool:
    """As a power cut leaves it."""
    if not stat.S_ISREG(path.stat().st_mode) or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _iso(microseconds: int) -> str:
    return (
        datetime.fromtimestamp(microseconds / 1e6, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
