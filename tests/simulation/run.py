"""One seed: a cluster comes up, clients and faults have their time, everything heals, and all is checked.

Here: run_seed(), Outcome, the faults.
Not here: many seeds (__main__.py, test_seeds.py).
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from shoal.node.instance import Node
from tests.simulation.clients import SimClient, Statement, follow_origins
from tests.simulation.cluster import SimCluster
from tests.simulation.history import Disagreement, Log, check
from tests.simulation.instance import SimInstance
from tests.simulation.knobs import FAULTS, Knobs, draw
from tests.simulation.loop import Handle
from tests.simulation.network import Delays
from tests.simulation.workload import (
    GLOBAL_TABLES,
    SHARDED_TABLES,
    USERS,
    Acl,
    Ddl,
    Op,
    Workload,
    create_table,
)

HEAL_SECONDS: Final = 200.0
ENOUGH: Final = 20  # statements that succeeded


@dataclass(slots=True)
class Outcome:
    seed: int
    trace: str = ""
    failure: str | None = None
    simulated: float = 0.0
    steps: int = 0
    entries: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of statements that succeeded
    faults: Counter[str] = field(default_factory=Counter)
    snapshots: int = 0

    @property
    def is_lively(self) -> bool:
        return self.answers["ok"] >= ENOUGH


def run_seed(seed: int, instances: int | None = None, knobs: Knobs | None = None) -> Outcome:
    shm = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="shoal-", dir=shm if shm.is_dir() else None))
    outcome = Outcome(seed)
    run = Run(seed, knobs or draw(Random(seed), instances), directory, outcome)
    try:
        run.whole()
    except AssertionError as error:
        outcome.failure = f"{type(error).__name__}: {error}"
    finally:
        run.cluster.close()
        shutil.rmtree(directory)
    outcome.trace = run.cluster.scheduler.trace
    return outcome


class Run:
    def __init__(self, seed: int, knobs: Knobs, directory: Path, outcome: Outcome) -> None:
        rng = self.rng = Random(seed * 7 + 1)
        self.knobs = knobs
        self.outcome = outcome
        self.log = Log()
        self.cluster = SimCluster(
            rng.getrandbits(64),
            directory,
            knobs.instances,
            network=knobs.network,
            threads=knobs.threads,
            flags=knobs.flags,
            watch=self.log.watch,
        )
        self.scheduler = self.cluster.scheduler
        self.workload = Workload(
            Random(rng.getrandbits(64)),
            ddl=knobs.ddl,
            acl=knobs.acl,
            dml=knobs.dml,
            sharded=knobs.sharded,
        )
        self.clients = [
            SimClient(self.cluster, self.log, number, Random(rng.getrandbits(64)))
            for number in range(1, knobs.clients + 1)
        ]
        self.active = False  # clients send
        self.hostile = False  # faults happen
        for instance in self.cluster.instances:
            self._look_after(instance)

    def whole(self) -> None:
        cluster, knobs = self.cluster, self.knobs
        cluster.start()
        if knobs.early:
            self._begin_faults()
        else:
            self._until_whole("at the beginning")
            self._begin_faults()
        self.active = True
        if knobs.wal_count_max is not None:
            self.scheduler.call_later(0.0, self._shorten_log)
        self.scheduler.call_later(0.0, self._make_tables)
        for client in self.clients:
            self.scheduler.call_later(self.rng.random(), self._next, client)
        for _ in range(knobs.late):
            self.scheduler.call_later(self.rng.uniform(0, knobs.seconds), self._add)
        if knobs.expel:
            self.scheduler.call_later(self.rng.uniform(0, knobs.seconds), self._expel)
        cluster.run(knobs.seconds)
        self._end_faults()
        cluster.run(0.0)
        self.active = False
        self._until_whole("after healing")
        self._until_idle()
        self._still_works()
        self._until_whole("at the end")
        cluster.run(2.0)  # what was dropped is cleared when nobody waits for it
        self._check()

    # --- instances -------------------------------------------------------------------------------

    def _look_after(self, instance: SimInstance) -> None:
        instance.on_node = follow_origins
        instance.on_end = self._on_end

    def _on_end(self, instance: SimInstance) -> None:
        for client in self.clients:
            client.instance_died(instance)
        if not instance.expelled:
            again = self.rng.uniform(0.01, self.knobs.fault_seconds) if self.hostile else 0.1
            self.scheduler.call_later(again, self._start, instance)

    def _start(self, instance: SimInstance) -> None:
        if not instance.is_up and not instance.expelled:
            instance.start()

    def _add(self) -> None:
        late = self.cluster.add()
        self.outcome.faults["join"] += 1
        self._look_after(late)
        self._start(late)

    def _expel(self) -> None:
        """Somebody other than the first, which has all the buckets."""
        victim = self.rng.choice(self.cluster.instances[1:])
        asked = self.cluster.instances[0]
        client = SimClient(self.cluster, self.log, 99, Random(0))
        if not self.active or victim.expelled or len(self.cluster.members) < 3:
            return
        if victim.node is None or not client.connect(asked):
            self.scheduler.call_later(0.5, self._expel)
            return
        self.outcome.faults["expel"] += 1
        uuid = victim.node.cluster.identity.instance_uuid
        client.ask(Op(f"ALTER SYSTEM EXPEL INSTANCE '{uuid}' FORCE"))

    # --- clients ---------------------------------------------------------------------------------

    def _next(self, client: SimClient) -> None:
        if not self.active or client.statement is not None:
            return
        rng = self.rng
        if client.instance is not None and rng.random() < 0.05:
            client.disconnect()
        user = rng.choice((*USERS, *["admin"] * 4)) if self.knobs.acl else "admin"
        if client.instance is None and not client.connect(rng.choice(self.cluster.instances), user):
            self.scheduler.call_later(rng.uniform(0.05, 0.3), self._next, client)
            return
        statement = client.ask(self._draw(), lambda: self._later(client))
        self.scheduler.call_later(
            self.knobs.patience * rng.uniform(0.5, 1), self._lose_patience, client, statement
        )
        if rng.random() < self.knobs.cancels:
            self.scheduler.call_later(rng.uniform(0.0, 0.1), client.cancel)

    def _later(self, client: SimClient) -> None:
        self.scheduler.call_later(self.rng.uniform(0, 2 * self.knobs.think), self._next, client)

    def _lose_patience(self, client: SimClient, statement: Statement) -> None:
        if client.statement is statement:
            client.disconnect()

    def _draw(self) -> Op:
        return self.workload.next()

    def _make_tables(self) -> None:
        """So that most statements find theirs."""
        missing = [*GLOBAL_TABLES, *SHARDED_TABLES]
        client = SimClient(self.cluster, self.log, 0, Random(0))

        def make() -> None:
            if missing and self.active and client.instance is not None:
                client.ask(Op(create_table(missing.pop(), if_not_exists=True)), make)

        if any(client.connect(instance) for instance in self.cluster.instances):
            make()

    def _shorten_log(self) -> None:
        """So that whoever is away for a moment gets a snapshot."""
        client = SimClient(self.cluster, self.log, 0, Random(0))
        if not any(client.connect(instance) for instance in self.cluster.instances):
            self.scheduler.call_later(0.5, self._shorten_log)
            return
        client.ask(Op(f'ALTER SYSTEM SET "raft_wal_count_max" TO {self.knobs.wal_count_max}'))

    # --- faults ----------------------------------------------------------------------------------

    def _begin_faults(self) -> None:
        self.hostile = True
        self.scheduler.call_later(self.rng.uniform(0, self.knobs.fault_pause), self._fault)
        if self.knobs.sudden:
            self.scheduler.before = self._suddenly

    def _fault(self) -> None:
        if not self.hostile:
            return
        (kind,) = self.rng.choices(FAULTS, self.knobs.fault_weights)
        self._do(kind, self._victim())
        self.scheduler.call_later(self.rng.uniform(0, 2 * self.knobs.fault_pause), self._fault)

    def _victim(self) -> SimInstance:
        leader = self.cluster.leader()
        if leader is not None and self.rng.random() < self.knobs.on_leader:
            return leader
        return self.rng.choice(self.cluster.instances)

    def _suddenly(self, handle: Handle) -> None:
        loop = handle.loop
        if loop is None or not self.hostile or self.rng.random() >= self.knobs.sudden / 10:
            return
        victim = next((i for i in self.cluster.instances if i.loop is loop), None)
        if victim is not None:
            self._do(self.rng.choice(("kill", "freeze", "isolate", "reset")), victim)

    def _do(self, kind: str, victim: SimInstance) -> None:
        self.outcome.faults[kind] += 1
        self.scheduler.note(f"{kind} {victim.name}")
        cluster, network, rng = self.cluster, self.cluster.network, self.rng
        seconds = rng.uniform(0.01, 2 * self.knobs.fault_seconds)
        numbers = [instance.machine.number for instance in cluster.instances]
        number = victim.machine.number
        others = [other for other in numbers if other != number]
        match kind:
            case "kill":
                victim.kill()
            case "dark":
                victim.kill(dark=True)
            case "stop":
                victim.stop()
            case "freeze":
                victim.freeze()
                loop = victim.loop
                self.scheduler.call_later(seconds, lambda: loop.thaw() if loop is not None else None)
            case "isolate" | "one way":
                out, into = (True, True) if kind == "isolate" else rng.choice(((True, False), (False, True)))
                pairs = [(number, other) for other in others if out] + [
                    (other, number) for other in others if into
                ]
                self._cut(pairs, seconds)
            case "split":
                side = rng.sample(numbers, rng.randint(1, len(numbers) - 1))
                self._cut([(a, b) for a in numbers for b in numbers if (a in side) != (b in side)], seconds)
            case "reset":
                for connection in list(network.connections):
                    if any(end.loop.machine is victim.machine for end in connection.ends):
                        if rng.random() < 0.7:
                            network.reset(connection)
            case "transfer":
                self._on_leader(lambda node: node.cluster.raft.transfer_leadership(rng.choice(numbers)))
            case "campaign":
                if victim.node is not None and victim.loop is not None:
                    node = victim.node
                    self.scheduler.soon(Handle(victim.loop, 0.0, lambda: _campaign(node), (), None))
            case "slow network":
                before = network.delays
                network.delays = Delays(before.least, before.spread * 5, 0.1, 0.5)
                self.scheduler.call_later(seconds, setattr, network, "delays", self.knobs.network)
            case "slow threads":
                machine = victim.machine
                machine.threads = Delays(0.0, 0.3, 0.1, 3.0)
                self.scheduler.call_later(seconds, setattr, machine, "threads", self.knobs.threads)

    def _on_leader(self, do: object) -> None:
        leader = self.cluster.leader()
        if leader is not None and leader.node is not None and leader.loop is not None:
            self.scheduler.soon(Handle(leader.loop, 0.0, do, (leader.node,), None))  # type: ignore[arg-type]

    def _cut(self, pairs: list[tuple[int, int]], seconds: float) -> None:
        network = self.cluster.network
        network.cuts.update(pairs)

        def heal() -> None:
            network.cuts.difference_update(pairs)
            network.release()

        self.scheduler.call_later(seconds, heal)

    def _end_faults(self) -> None:
        self.hostile = False
        self.scheduler.before = None
        network = self.cluster.network
        network.delays = self.knobs.network
        for instance in self.cluster.instances:
            instance.machine.threads = self.knobs.threads
            instance.thaw()
            self._start(instance)
        network.heal()

    # --- healing ---------------------------------------------------------------------------------

    def _until_whole(self, when: str) -> None:
        try:
            self.cluster.until(self.cluster.is_whole, HEAL_SECONDS)
        except AssertionError as error:
            if self.scheduler.problems:
                raise
            raise Disagreement(f"not whole {when}: {error}\n{self.cluster.standing()}") from None

    def _until_idle(self) -> None:
        """Every statement is answered."""
        try:
            self.cluster.until(lambda: all(client.statement is None for client in self.clients), HEAL_SECONDS)
        except AssertionError:
            if self.scheduler.problems:
                raise
            waits = [str(client.statement) for client in self.clients if client.statement is not None]
            raise Disagreement("never answered:\n" + "\n".join(waits)) from None

    def _still_works(self) -> None:
        for instance in self.cluster.instances:
            if not instance.expelled:
                self._works_at(instance)

    def _works_at(self, instance: SimInstance) -> None:
        """Soon."""
        client = SimClient(self.cluster, self.log, 100 + instance.machine.number, Random(1))
        assert client.connect(instance), f"{instance.name} lets nobody in"
        for sql in (
            "DROP TABLE IF EXISTS g1",
            create_table("g1"),
            "INSERT INTO g1 (k, n, u) VALUES (1, 0, 1), (2, 0, 2)",
            "UPDATE g1 SET n = n + 1",
            create_table("s1", if_not_exists=True),
            "TRUNCATE TABLE s1",
            "DROP TABLE s1",
        ):
            statement = client.ask(Op(sql))
            try:
                self.cluster.until(lambda: client.statement is None, 20, sql)
            except AssertionError as error:
                if self.scheduler.problems:
                    raise
                raise Disagreement(f"{error}\n{self.cluster.standing()}") from None
            if statement.outcome != "ok":
                raise Disagreement(f"it should have worked: {statement}")
        client.disconnect()

    # --- the end ---------------------------------------------------------------------------------

    def _check(self) -> None:
        said = [statement for client in self.clients for statement in client.said]
        outcome = self.outcome
        outcome.simulated, outcome.steps = self.scheduler.now, self.scheduler.steps
        outcome.entries, outcome.snapshots = self.log.last, self.log.installed
        for statement in said:
            unknown = statement.is_unknown
            outcome.answers["unknown" if unknown else statement.sqlstate or statement.outcome] += 1
            if statement.outcome == "ok":
                name = " ".join(statement.tag.split()[:2]) if isinstance(statement.op, Ddl | Acl) else ""
                outcome.kinds[name or type(statement.op).__name__] += 1
        self.cluster.check()
        self.cluster.check_files()
        replay = check(self.log, said)
        for instance in self.cluster.members:
            assert instance.node is not None
            if instance.node.catalog != replay.catalogs[instance.node.log.applied]:
                raise Disagreement(f"the catalog of {instance.name} isn't what the log adds up to")


def _campaign(node: Node) -> None:
    node.cluster.raft.core.campaign()
    node.cluster.raft.wake()
