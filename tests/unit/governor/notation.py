"""A cluster in a few words, for scripts of the governor, and what it does with it, in words again.

    i1: leads                     an Online voter, the master of a replicaset of its own
    i2: in r1, learns, Offline    a member of r1 that isn't Online and doesn't vote
    i3: Online → Offline          what it is, and what it is asked to become
    i3: silent 2.5                what was heard of it: also "stalled 11" and "nobody listens", or "well" again
    i4: joined                    in the catalog, and not in Raft's group
    tier votes: buckets 0         replication factor 1, votes and has 3000 buckets unless something else is said
    replicaset r1: not-ready      "ready" unless something else is said; its first member is its master
    owned: r1                     who has the buckets of the tier default; nobody: `owned: nobody`
    sql CREATE TABLE t (…)        a schema change that is committed
    prepare CREATE INDEX …        one that is pending; it is named by its number
    verdict 3 i2: ok              what i2 has answered about change 3; or: 23505 why not
    busy tier default             a lane with a step under way

Lines of later blocks change what earlier ones have said; `new` begins again.

Here: Notation, which reads such lines, and described(), which writes steps and changed rows.
Not here: the commands of a script (test_scripts.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from shoal.catalog.apply import Catalog, apply, check
from shoal.catalog.cas import Range
from shoal.catalog.entries import DdlAbort, DdlCommit, DdlPrepare, Entry, RowChange
from shoal.catalog.members import TABLES, address_change, bucket_change, instance_change, replicaset_change
from shoal.catalog.schema import DEFAULT_TIER, Schema, Tier, TierName
from shoal.catalog.system import SYSTEM_TABLES, Row
from shoal.governor.plan import plan
from shoal.governor.state import (
    AddLearner,
    AddVoter,
    ApplyChange,
    CheckChange,
    Cluster,
    EndChange,
    HandOver,
    Heard,
    Lane,
    Refusal,
    Remove,
    Step,
    Verdict,
    Write,
)
from shoal.sql.bind.ddl import bind_ddl
from shoal.sql.parser import parse_one
from shoal.topology.cluster import BucketRange, Instance, Replicaset, State, Topology, Variant

_VARIANTS = {variant.value: variant for variant in Variant}
_STATE = re.compile(r"(Online|Offline|Expelled)(?:\((\d+)\))?")
_ONLINE = State(Variant.ONLINE, 1)
NOW = 1_700_000_000_000_000


@dataclass
class _Member:
    name: str
    number: int
    replicaset: str
    tier: str = "default"
    current: State = _ONLINE
    target: State = _ONLINE
    role: str = "votes"
    leads: bool = False
    behind: bool = False
    domain: dict[str, str] = field(default_factory=dict)


class Notation:
    def __init__(self) -> None:
        self.members: dict[str, _Member] = {}
        self._last = 0
        self._heard: dict[int, Heard] = {}
        self._without_row: list[int] = []  # these vote
        self.tiers: dict[TierName, Tier] = {DEFAULT_TIER: Tier(DEFAULT_TIER)}
        self._states: dict[str, str] = {}  # of replicasets
        self._masters: dict[str, str] = {}
        self._owned: str | None = ""  # "": the first replicaset
        self.catalog = Catalog(Schema(0, {table.name: table for table in SYSTEM_TABLES}, self.tiers))
        self._index = 0
        self._verdicts: dict[tuple[int, int], Verdict] = {}
        self._busy: frozenset[Lane] = frozenset()

    def read(self, line: str) -> None:
        what, _, rest = line.partition(":")
        words = [word.strip() for word in rest.split(",") if word.strip()]
        if line.startswith(("sql ", "prepare ", "commit ", "abort ")):
            self._schema_change(line)
        elif line.startswith("busy"):
            self._busy = frozenset(Lane(lane.strip()) for lane in line.removeprefix("busy").split(","))
        elif what.startswith("verdict "):
            version, name = what.removeprefix("verdict ").split()
            sqlstate, _, cause = rest.strip().partition(" ")
            key = (int(version), self.members[name].number)
            self._verdicts[key] = None if sqlstate == "ok" else Refusal(sqlstate, cause)
        elif what == "owned":
            self._owned = None if rest.strip() == "nobody" else rest.strip()
        elif what.startswith("tier "):
            self._tier(what.removeprefix("tier "), words)
        elif what.startswith("replicaset "):
            self._replicaset(what.removeprefix("replicaset "), words)
        else:
            self._instance(what, words)

    def _tier(self, name: str, words: list[str]) -> None:
        tier = replace(self.tiers.get(TierName(name), Tier(TierName(name), is_default=False)))
        for word in words:
            match word.split():
                case ["copies", number]:
                    tier = replace(tier, replication_factor=int(number))
                case ["buckets", number]:
                    tier = replace(tier, bucket_count=int(number))
                case ["doesn't", "vote"]:
                    tier = replace(tier, can_vote=False)
                case _:
                    raise ValueError(word)
        self.tiers = {**self.tiers, tier.name: tier}
        self.catalog = replace(self.catalog, schema=replace(self.catalog.schema, tiers=self.tiers))

    def _replicaset(self, name: str, words: list[str]) -> None:
        for word in words:
            if word.startswith("master "):
                self._masters[name] = word.removeprefix("master ")
            else:
                self._states[name] = word

    def _instance(self, name: str, words: list[str]) -> None:
        member = self.members.get(name)
        if member is None:
            self._last += 1
            member = self.members[name] = _Member(name, self._last, f"r{self._last}")
        for word in words:
            if word == "gone":
                del self.members[name]
            elif word == "row gone":
                del self.members[name]
                self._without_row.append(member.number)
            elif word in ("votes", "learns", "joined"):
                member.role = word
            elif word == "leads":
                for other in self.members.values():
                    other.leads = False
                member.leads = True
            elif word in ("behind", "caught up"):
                member.behind = word == "behind"
            elif word == "well":
                self._heard.pop(member.number, None)
            elif word == "nobody listens":
                self._heard[member.number] = Heard(0.3, True, 0.0)
            elif word.startswith("silent "):
                self._heard[member.number] = Heard(float(word.removeprefix("silent ")), False, 0.0)
            elif word.startswith("stalled "):
                self._heard[member.number] = Heard(0.1, False, float(word.removeprefix("stalled ")))
            elif word.startswith("in "):
                member.replicaset = word.removeprefix("in ")
            elif word.startswith("tier "):
                member.tier = word.removeprefix("tier ")
            elif "=" in word:
                key, _, value = word.partition("=")
                member.domain[key] = value
            else:
                states = [_state(part.strip(), member) for part in word.split("→")]
                member.current, member.target = states[0], states[-1]

    def _schema_change(self, line: str) -> None:
        how, _, text = line.partition(" ")
        if how in ("commit", "abort"):
            version = int(text)
            self._append(DdlCommit(version) if how == "commit" else DdlAbort(version, "57014", "told to"))
            return
        for change in bind_ddl(parse_one(text), self.catalog.schema, 1, self.catalog.next_table_id):  # type: ignore[arg-type]
            check(self.catalog, change)
            version = self._append(DdlPrepare(change, 1))
            if how == "sql":
                self._append(DdlCommit(version))

    def _append(self, entry: Entry) -> int:
        self._index += 1
        self.catalog = apply(self.catalog, entry, self._index, term=1).catalog
        return self._index

    # --- what it comes to

    @property
    def topology(self) -> Topology:
        instances = {member.name: self._made(member) for member in self.members.values()}
        replicasets: dict[str, Replicaset] = {}
        for member in self.members.values():
            name = member.replicaset
            if name in replicasets:
                continue
            master = self._masters.get(name, member.name)
            replicasets[name] = Replicaset(
                name=name,
                uuid=f"u-{name}",
                current_master=master,
                target_master=master,
                tier=member.tier,
                state=self._states.get(name, "ready"),
                in_sync=(master,),
            )
        owner = self._owned or min(replicasets, default=None)
        buckets = () if self._owned is None or owner is None else (_all_of_default(owner),)
        addresses = {
            (member.number, kind): f"{member.name}:{kind}"
            for member in self.members.values()
            for kind in ("iproto", "pgproto", "http")
        }
        return Topology(instances, replicasets, addresses, buckets)

    def _made(self, member: _Member) -> Instance:
        return Instance(
            name=member.name,
            uuid=f"u-{member.name}",
            raft_id=member.number,
            replicaset=member.replicaset,
            replicaset_uuid=f"u-{member.replicaset}",
            current=member.current,
            target=member.target,
            failure_domain=member.domain,
            tier=member.tier,
            version="0.1.0",
        )

    @property
    def cluster(self) -> Cluster:
        members = self.members.values()
        return Cluster(
            topology=self.topology,
            catalog=self.catalog,
            leader=next(member.number for member in members if member.leads),
            voters=(*(member.number for member in members if member.role == "votes"), *self._without_row),
            learners=tuple(member.number for member in members if member.role == "learns"),
            caught_up=frozenset(member.number for member in members if not member.behind),
            verdicts=self._verdicts,
            heard=self._heard,
            now=NOW,
        )

    def plan(self) -> str:
        steps = plan(self.cluster, self._busy)
        return "\n".join(line for step in steps for line in described(step, self.topology)) or "nothing to do"


def _state(text: str, member: _Member) -> State:
    found = _STATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    number = member.current.incarnation if found[2] is None else int(found[2])
    return State(_VARIANTS[found[1]], number)


def _all_of_default(owner: str) -> BucketRange:
    return BucketRange(tier="default", start=1, end=3000, state="active", owner=owner, target=owner)


# --- in words --------------------------------------------------------------------------------------


def described(step: Step, topology: Topology) -> Iterator[str]:
    yield f"{step.lane}: {type(step).__name__}, {step.why}"
    match step:
        case Write():
            yield from changed_rows(step.changes, topology)
            yield f"  read {', '.join(map(_range, step.ranges))}"
        case EndChange():
            yield f"  {step.entry}"
            yield f"  read {', '.join(map(_range, step.ranges))}"
        case AddLearner() | AddVoter() | Remove() | HandOver():
            yield f"  raft id {step.raft_id}"
        case ApplyChange() | CheckChange():
            pass  # the words of `why` say all of it


def _range(range_: Range) -> str:
    name = next(table.name for table in SYSTEM_TABLES if table.id == range_.table_id)
    key = range_.one_key
    return name if key is None else f"{name} {', '.join(map(str, key))}"


def changed_rows(changes: Iterable[RowChange], topology: Topology) -> Iterator[str]:
    """Column by column, where there was a row before."""
    before = _rows(topology)
    for change in changes:
        table = next(table for table in SYSTEM_TABLES if table.id == change.table_id)
        name = f"{table.name} {', '.join(map(str, change.key))}"
        was = before.get((change.table_id, tuple(change.key)))
        if change.row is None:
            yield f"  {name}: deleted"
            continue
        columns = [column.name for column in table.columns]
        if was is None:
            values = (
                f"{column} {_short(value)}"
                for column, value in zip(columns, change.row, strict=True)
                if column in _TOLD
            )
            yield f"  {name} is new: {', '.join(values)}"
            continue
        differing = [
            f"{column} {_short(old)} → {_short(new)}"
            for column, old, new in zip(columns, was, change.row, strict=True)
            if old != new
        ]
        yield f"  {name}: {', '.join(differing) or 'as it was'}"


# Of rows that are new: not what the key says, or what is the same in all of them.
_TOLD = frozenset(
    (
        "address",
        "bucket_id_end",
        "current_master_name",
        "current_replicaset_name",
        "current_state",
        "failure_domain",
        "in_sync",
        "picodata_version",
        "raft_id",
        "replicaset_name",
        "state",
        "target_state",
        "target_state_reason",
        "tier",
        "uuid",
    )
)


def _rows(topology: Topology) -> dict[tuple[int, tuple[object, ...]], Row]:
    changes = [instance_change(instance) for instance in topology.instances.values()]
    changes += [replicaset_change(replicaset) for replicaset in topology.replicasets.values()]
    changes += [address_change(raft_id, kind, where) for (raft_id, kind), where in topology.addresses.items()]
    changes += [bucket_change(buckets) for buckets in topology.buckets]
    assert {change.table_id for change in changes} <= {table.id for table in TABLES}
    return {(change.table_id, tuple(change.key)): change.row for change in changes if change.row is not None}


def _short(value: object) -> str:
    if value == NOW:
        return "now"
    return "-" if value is None else str(value)
