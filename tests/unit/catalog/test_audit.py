"""What an audit tells of entries, as scripts: statements of somebody in, events out. See test_acl.py for the statements."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.catalog.apply import Catalog
from shoal.catalog.audit import Event, events_of_entry, events_of_members
from shoal.catalog.entries import Acl, DdlAbort, Dml, Entry, RowChange, SetLogin
from shoal.catalog.settings import alter_system
from shoal.catalog.system import PICO_PROPERTY
from shoal.topology.cluster import Instance, State, Topology, Variant
from tests.scripts_runner import run_script, script_paths
from tests.unit.catalog.test_acl import Cluster


def shown(event: Event) -> str:
    fields = ", ".join(f"{key}={value}" for key, value in event.fields.items())
    return f"{event.severity} {event.title} by {event.initiator}: {event.message} ({fields})"


class Audited(Cluster):
    def __init__(self) -> None:
        self.events: list[Event] = []
        super().__init__()

    def append(self, entry: Entry) -> int:
        before: Catalog = self.catalog
        index = super().append(entry)
        self.events += events_of_entry(before, entry, index)
        return index

    def execute(self, text: str) -> str:
        self.events.clear()
        if text.startswith("abort"):
            (version,) = self.catalog.pending
            self.append(DdlAbort(version, "23505", text.removeprefix("abort ")))
            said = ""
        else:
            said = super().execute(text)
        return "\n".join(map(shown, self.events)) or said


@pytest.mark.parametrize("path", script_paths("audit"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    run_script(path, Audited().execute, rewrite)


def test_settings() -> None:
    cluster = Audited()
    for value, told in ((5, "5"), (None, "its default")):
        cluster.append(alter_system("auth_login_attempt_max", value, None, 1))
        (event,) = cluster.events
        cluster.events.clear()
        assert shown(event) == (
            f"medium change_db_config by admin: setting auth_login_attempt_max was set to {told}"
            f" (key=auth_login_attempt_max, value={told}, index={cluster.index})"
        )


def test_a_lock_says_why() -> None:
    cluster = Audited()
    cluster.append(Acl(SetLogin(1, "admin", False, 4), (), 1))
    (event,) = cluster.events
    assert event.message == "user 'admin' may not log in any more: 4 wrong passwords"
    assert event.title == "block_user"


def test_rows_of_users_are_no_event() -> None:
    cluster = Audited()
    cluster.events.clear()
    cluster.append(Dml((RowChange(PICO_PROPERTY.id, ("x",), ("x", "1")),), 1))
    assert cluster.events == []


def test_instances() -> None:
    def instance(current: State, target: State, reason: str | None = None) -> Instance:
        return Instance(
            name="i1",
            uuid="u1",
            raft_id=7,
            replicaset="r",
            replicaset_uuid="r",
            current=current,
            target=target,
            failure_domain={},
            tier="default",
            version="1",
            reason=reason,
        )

    offline, online = State(Variant.OFFLINE, 0), State(Variant.ONLINE, 1)
    expelled = State(Variant.EXPELLED, 1)
    steps = [
        Topology(),
        *(
            Topology({"i1": made})
            for made in (
                instance(offline, offline, "join"),
                instance(offline, online, "wakeup"),
                instance(online, online, "wakeup"),
                replace(instance(online, online, "wakeup"), tier="other"),
                instance(online, expelled, "expel"),
                instance(expelled, expelled, "expel"),
            )
        ),
    ]
    told = [
        [shown(event) for event in events_of_members(before, after, 9)] for before, after in pairwise(steps)
    ]
    who = "instance=i1, instance_uuid=u1, raft_id=7, index=9"
    assert told == [
        [f"low join_instance by admin: instance i1 joined the cluster ({who})"],
        [
            "low change_target_state by admin: target state of instance i1 is now Online(1): wakeup"
            f" ({who}, new_state=Online(1), reason=wakeup)"
        ],
        [
            "medium change_current_state by admin: current state of instance i1 is now Online(1)"
            f" ({who}, new_state=Online(1), reason=wakeup)"
        ],
        [],
        [
            "low change_target_state by admin: target state of instance i1 is now Expelled(1): expel"
            f" ({who}, new_state=Expelled(1), reason=expel)"
        ],
        [
            "medium change_current_state by admin: current state of instance i1 is now Expelled(1)"
            f" ({who}, new_state=Expelled(1), reason=expel)",
            f"low expel_instance by admin: instance i1 was expelled from the cluster ({who})",
        ],
    ]
