"""A cluster as data: what its catalog says, what each instance says of itself, and what is wrong with it.

Here: reading the system tables over SQL, as any client could; asking every instance's /health, all at once;
judge(), which turns both into a verdict in words.
Not here: showing it (status.py), finding an instance (target.py).

The catalog is read from one instance as that instance has applied it. So there is an answer even without a
majority; but an instance that was cut off may know old things, and /health is what shows it.
"""

from __future__ import annotations

import datetime
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg

USER_TABLES_FROM: Final = 1025  # ids below are the system's
HEALTH_SECONDS: Final = 2.0
_HEALTH_BYTES_MAX: Final = 1 << 20
_ASKED_AT_ONCE: Final = 32

# Whatever limit ALTER SYSTEM has set for statements: the status is there to show it.
NO_LIMITS: Final = "OPTION (SQL_MOTION_ROW_MAX = 0, SQL_VDBE_OPCODE_MAX = 0)"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An instance as the catalog knows it."""

    name: str
    uuid: str
    raft_id: int
    state: str  # "Online" | "Offline" | "Expelled"
    target_state: str
    reason: str | None  # of the last change of the target
    since: str | None
    replicaset: str
    tier: str
    failure_domain: Mapping[str, str]
    version: str
    pg: str | None
    rpc: str | None
    http: str | None

    @property
    def belongs(self) -> bool:
        return self.state != "Expelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raft:
    """An instance's own view of the cluster's log."""

    term: int
    leader_id: int  # 0: it knows of none
    state: str
    applied: int
    commit: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What an instance says of itself, or why it says nothing."""

    state: str | None = None  # "starting" | "running" | "stopping" | "failed"
    version: str | None = None
    raft: Raft | None = None
    silence: str | None = None

    @property
    def answers(self) -> bool:
        return self.silence is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    leader: Known | None
    roles: Mapping[int, str]  # raft id → "voter" | "learner"
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # what is as it was asked for, and worth knowing


# --- asking --------------------------------------------------------------------------------------


def read_report(connection: psycopg.Connection) -> dict[str, Any]:
    """Everything that `shoal status --json` prints."""
    catalog = read_catalog(connection)
    known = read_instances(connection)
    heard = ask_all(known)
    verdict = judge(known, heard)
    instances = []
    for instance in known:
        said = heard[instance.name]
        raft = said.raft
        instances.append(
            {
                **asdict(instance),
                "reachable": said.answers,
                "silence": said.silence,
                "health": said.state,
                "leader": instance is verdict.leader,
                "role": verdict.roles.get(instance.raft_id),
                "term": raft and raft.term,
                "applied": raft and raft.applied,
                "commit": raft and raft.commit,
            }
        )
    return {
        **catalog,
        "leader": verdict.leader and verdict.leader.name,
        "degraded": bool(verdict.problems),
        "problems": list(verdict.problems),
        "notes": list(verdict.notes),
        "instances": instances,
    }


def read_catalog(connection: psycopg.Connection) -> dict[str, Any]:
    """What the catalog says, the instances aside."""
    properties = {
        row["key"]: _plain(row["value"])
        for row in _rows(connection, "SELECT key, value FROM _pico_property ORDER BY key")
    }
    tables = _rows(
        connection,
        "SELECT name, distribution, engine, operable, schema_version FROM _pico_table "
        f"WHERE id >= {USER_TABLES_FROM} ORDER BY name",
    )
    return {
        "cluster_name": properties.get("cluster_name"),
        "cluster_uuid": properties.get("cluster_uuid"),
        "version": properties.get("cluster_version"),
        "schema_version": properties.get("global_schema_version"),
        "replicasets": _rows(
            connection,
            "SELECT name, uuid, tier, state, current_master_name AS master FROM _pico_replicaset "
            "ORDER BY name",
        ),
        "tiers": _rows(
            connection,
            "SELECT name, replication_factor, bucket_count, can_vote FROM _pico_tier ORDER BY name",
        ),
        "tables": [{**row, "distribution": _distribution(_plain(row["distribution"]))} for row in tables],
        "limits": [
            {**row, "value": _plain(row["value"])}
            for row in _rows(connection, "SELECT key, scope, value FROM _pico_db_config ORDER BY key, scope")
        ],
    }


def read_instances(connection: psycopg.Connection) -> list[Known]:
    addresses: dict[int, dict[str, str]] = {}
    for row in _rows(connection, "SELECT raft_id, connection_type, address FROM _pico_peer_address"):
        addresses.setdefault(row["raft_id"], {})[row["connection_type"]] = row["address"]
    rows = _rows(
        connection,
        "SELECT name, uuid, raft_id, replicaset_name, tier, current_state, target_state, failure_domain, "
        "picodata_version, target_state_reason, target_state_change_time FROM _pico_instance ORDER BY raft_id",
    )
    return [
        Known(
            name=row["name"],
            uuid=row["uuid"],
            raft_id=row["raft_id"],
            state=_plain(row["current_state"])[0],
            target_state=_plain(row["target_state"])[0],
            reason=row["target_state_reason"],
            since=_time(row["target_state_change_time"]),
            replicaset=row["replicaset_name"],
            tier=row["tier"],
            failure_domain=_plain(row["failure_domain"]),
            version=row["picodata_version"],
            pg=addresses.get(row["raft_id"], {}).get("pgproto"),
            rpc=addresses.get(row["raft_id"], {}).get("iproto"),
            http=addresses.get(row["raft_id"], {}).get("http"),
        )
        for row in rows
    ]


def _rows(connection: psycopg.Connection, sql: str) -> Rows:
    cursor = connection.execute(f"{sql} {NO_LIMITS}".encode())
    names = [column.name for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _plain(value: Any) -> Any:
    """A value of type ANY or MAP: drivers get its JSON as text, or decoded."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _time(value: object) -> str | None:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return None if value is None else str(value)


def _distribution(value: dict[str, Any]) -> str:
    """From {"Global": null} or {"ShardedBy…": [keys, …, tier]}."""
    (kind, details), *_ = value.items()
    if details is None:
        return kind.lower()
    keys, *_, tier = details
    return f"sharded by {', '.join(keys) if isinstance(keys, list) else keys} in {tier}"


def ask_all(instances: Sequence[Known]) -> dict[str, Heard]:
    """By name. All at once: a silent one costs its timeout, and many silent ones no more than that."""
    heard = {each.name: Heard(silence="it was expelled") for each in instances if not each.belongs}
    asked = [each for each in instances if each.belongs]
    if asked:
        with ThreadPoolExecutor(min(len(asked), _ASKED_AT_ONCE)) as pool:
            heard |= zip((each.name for each in asked), pool.map(_ask, asked), strict=True)
    return heard


def _ask(instance: Known) -> Heard:
    if instance.http is None:
        return Heard(silence="its HTTP address is not known")
    # Straight to it, whatever proxies the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        try:
            with opener.open(f"http://{instance.http}/health", timeout=HEALTH_SECONDS) as response:
                text = response.read(_HEALTH_BYTES_MAX)
        except urllib.error.HTTPError as error:  # one that is starting or stopping says so with a 503
            with error:
                text = error.read(_HEALTH_BYTES_MAX)
        return _heard(instance, json.loads(text))
    except TimeoutError:
        return Heard(silence=f"no answer in {HEALTH_SECONDS:g} s")
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            return Heard(silence=f"no answer in {HEALTH_SECONDS:g} s")
        said = error.reason.strerror if isinstance(error.reason, OSError) else None
        return Heard(silence=(said or str(error.reason)).lower())
    except OSError as error:
        return Heard(silence=(error.strerror or type(error).__name__).lower())
    except (ValueError, KeyError, TypeError, http.client.HTTPException):
        return Heard(silence="something answers that is no instance of Shoal")


def _heard(instance: Known, body: dict[str, Any]) -> Heard:
    if body["instance"] != instance.name:
        return Heard(silence=f"instance {body['instance']} answers there")
    raft = body.get("raft")
    return Heard(
        state=str(body["state"]),
        version=str(body["version"]),
        raft=raft
        and Raft(
            term=int(raft["term"]),
            leader_id=int(raft["leader_id"]),
            state=str(raft["state"]),
            applied=int(raft["applied"]),
            commit=int(raft["commit"]),
            voters=tuple(raft["voters"]),
            learners=tuple(raft["learners"]),
        ),
    )


# --- judging -------------------------------------------------------------------------------------


def judge(instances: Sequence[Known], heard: Mapping[str, Heard]) -> Verdict:
    members = {each.raft_id: each for each in instances if each.belongs}
    views = {
        raft_id: raft for raft_id, each in members.items() if (raft := heard[each.name].raft) is not None
    }
    # A leader that was replaced, and hasn't noticed yet, has an older term.
    leaders = [raft_id for raft_id, raft in views.items() if raft.state == "leader"]
    leader_id = max(leaders, key=lambda raft_id: views[raft_id].term, default=None)
    # The leader knows best who votes; without one, whoever is furthest.
    newest = leader_id or max(
        views, key=lambda raft_id: (views[raft_id].term, views[raft_id].applied), default=None
    )
    view = None if newest is None else views[newest]
    problems: list[str] = []
    if view is None:
        problems.append("nobody answers who knows the leader")
    else:
        if leader_id is None:
            followed = members.get(view.leader_id)
            problems.append(
                "there is no leader"
                if followed is None
                else f"the others follow {followed.name} as their leader, which is not to be heard from here"
            )
        majority = len(view.voters) // 2 + 1
        answering = sum(raft_id in views for raft_id in view.voters)
        if answering < majority:
            problems.append(
                f"{answering} of {len(view.voters)} voters {'answers' if answering == 1 else 'answer'}, "
                f"and {majority} are needed to change the catalog"
            )
    for raft_id, each in members.items():
        problems += _problems_of(each, heard[each.name])
        if leader_id is not None and raft_id in views and not views[raft_id].leader_id:
            problems.append(f"{each.name} hears no leader: it may be cut off from the others")
    problems += _different_versions(members.values(), heard)
    roles: dict[int, str] = {}
    if view is not None:
        roles = {**dict.fromkeys(view.learners, "learner"), **dict.fromkeys(view.voters, "voter")}
    notes = [] if view is None or not (note := needs_all(len(view.voters))) else [note]
    leader = None if leader_id is None else members[leader_id]
    return Verdict(leader=leader, roles=roles, problems=tuple(problems), notes=tuple(notes))


def needs_all(voters: int) -> str | None:
    """What a cluster of two can't do, which is easily taken for twice as safe as one."""
    if voters != 2:
        return None
    return (
        "A majority of 2 voters is both: if either instance fails, the catalog can't be changed and no other "
        "master be chosen until it is back. A third instance would change that."
    )


def _problems_of(instance: Known, heard: Heard) -> list[str]:
    name, state, target = instance.name, instance.state, instance.target_state
    changed = ", ".join(filter(None, (instance.reason, instance.since)))
    why = f" ({changed})" if changed else ""
    if state != target:
        return [f"{name} is {state} and is to be {target}{why}{_also(heard)}"]
    if state != "Online":
        return [f"{name} is {state}{why}" + (f", though it answers: {heard.state}" if heard.answers else "")]
    if not heard.answers:
        return [f"{name} does not answer at {instance.http}: {heard.silence}"]
    return [] if heard.state == "running" else [f"{name} is {heard.state}"]


def _also(heard: Heard) -> str:
    return "" if heard.answers else f", and does not answer: {heard.silence}"


def _different_versions(instances: Iterable[Known], heard: Mapping[str, Heard]) -> list[str]:
    by_version: dict[str, list[str]] = {}
    for each in instances:
        by_version.setdefault(heard[each.name].version or each.version, []).append(each.name)
    if len(by_version) <= 1:
        return []
    parts = (f"{version} ({', '.join(names)})" for version, names in sorted(by_version.items()))
    return [f"the instances' versions differ: {', '.join(parts)}"]
