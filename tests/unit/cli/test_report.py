"""What is wrong with a cluster: the verdict on what the catalog says and what instances say of themselves."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console

from shoal.cli.report import Heard, Known, Raft, ask_all, judge, needs_all
from shoal.cli.status import show


def known(raft_id: int, **more: Any) -> Known:
    said: dict[str, Any] = {
        "name": f"i{raft_id}", "uuid": f"00000000-0000-0000-0000-00000000000{raft_id}", "raft_id": raft_id,
        "state": "Online", "target_state": "Online", "reason": "join", "since": "2026-08-25T10:00:00.000Z",
        "replicaset": f"default_{raft_id}", "tier": "default", "failure_domain": {}, "version": "1.0.0",
        "pg": f"127.0.0.1:{4326 + raft_id}", "rpc": f"127.0.0.1:{3300 + raft_id}",
        "http": f"127.0.0.1:{5326 + raft_id}",
    }  # fmt: skip
    return Known(**{**said, **more})


def raft(state: str = "follower", **more: Any) -> Raft:
    said: dict[str, Any] = {
        "term": 5, "leader_id": 1, "state": state, "applied": 100, "commit": 100, "voters": (1, 2, 3), "learners": (),
    }  # fmt: skip
    return Raft(**{**said, **more})


def running(state: str = "follower", **more: Any) -> Heard:
    return Heard(state="running", version="1.0.0", raft=raft(state, **more))


SILENT = Heard(silence="connection refused")
THREE = [known(1), known(2), known(3)]
WELL = {"i1": running("leader"), "i2": running(), "i3": running()}


def problems(instances: list[Known], heard: dict[str, Heard]) -> tuple[str, ...]:
    return judge(instances, heard).problems


def test_all_is_well() -> None:
    verdict = judge(THREE, WELL)
    assert verdict.problems == verdict.notes == ()
    assert verdict.leader is THREE[0]
    assert verdict.roles == {1: "voter", 2: "voter", 3: "voter"}


def test_learners_are_told_from_voters() -> None:
    view = {"voters": (1, 2, 3), "learners": (4,)}
    heard = {f"i{i}": running("leader" if i == 1 else "follower", **view) for i in (1, 2, 3, 4)}
    assert judge([*THREE, known(4)], heard).roles[4] == "learner"


def test_the_leader_is_the_one_of_the_newest_term() -> None:
    heard = {
        "i1": running("leader", term=5, voters=(1, 2)),  # it has been asleep
        "i2": running("leader", term=7, leader_id=2),
        "i3": running(term=7, leader_id=2),
    }
    verdict = judge(THREE, heard)
    assert verdict.leader is THREE[1]
    assert verdict.roles[3] == "voter"


def test_one_that_hears_no_leader() -> None:
    """We reach it, and the others don't."""
    assert problems(THREE, {**WELL, "i3": running("pre-candidate", leader_id=0)}) == (
        "i3 hears no leader: it may be cut off from the others",
    )


def test_one_that_is_silent() -> None:
    assert problems(THREE, {**WELL, "i3": SILENT}) == (
        "i3 does not answer at 127.0.0.1:5329: connection refused",
    )


def test_a_leader_that_cannot_be_heard() -> None:
    assert problems(THREE, {**WELL, "i1": SILENT}) == (
        "the others follow i1 as their leader, which is not to be heard from here",
        "i1 does not answer at 127.0.0.1:5327: connection refused",
    )


def test_an_election_that_is_not_over() -> None:
    heard = {f"i{i}": running("candidate", leader_id=0) for i in (1, 2, 3)}
    assert problems(THREE, heard) == ("there is no leader",)


def test_no_majority() -> None:
    heard = {"i1": SILENT, "i2": running("pre-candidate", leader_id=0), "i3": SILENT}
    first, second, *silent = problems(THREE, heard)
    assert first == "there is no leader"
    assert second == "1 of 3 voters answers, and 2 are needed to change the catalog"
    assert len(silent) == 2
    assert problems(THREE, dict.fromkeys(heard, SILENT))[0] == "nobody answers who knows the leader"


def test_states_of_the_catalog() -> None:
    offline = replace(THREE[2], state="Offline", target_state="Offline", reason="shutdown")
    since = "(shutdown, 2026-08-25T10:00:00.000Z)"
    assert problems([*THREE[:2], offline], {**WELL, "i3": SILENT}) == (f"i3 is Offline {since}",)
    assert problems([*THREE[:2], offline], WELL) == (f"i3 is Offline {since}, though it answers: running",)
    coming = replace(offline, target_state="Online", reason="wakeup", since=None)
    assert problems([*THREE[:2], coming], {**WELL, "i3": replace(WELL["i3"], state="starting")}) == (
        "i3 is Offline and is to be Online (wakeup)",
    )
    going = replace(THREE[2], target_state="Expelled", reason=None, since=None)
    assert problems([*THREE[:2], going], {**WELL, "i3": SILENT}) == (
        "i3 is Online and is to be Expelled, and does not answer: connection refused",
    )
    stopping = {**WELL, "i3": replace(WELL["i3"], state="stopping")}
    assert problems(THREE, stopping) == ("i3 is stopping",)


def test_the_expelled_are_missed_by_nobody() -> None:
    gone = known(4, state="Expelled", target_state="Expelled", version="0.9.0")
    assert problems([*THREE, gone], {**WELL, "i4": Heard(silence="it was expelled")}) == ()


def test_versions_that_differ() -> None:
    # What runs counts; of one that is silent, what it said last.
    heard = {**WELL, "i2": replace(WELL["i2"], version="1.1.0"), "i3": SILENT}
    assert problems(THREE, heard)[-1] == "the instances' versions differ: 1.0.0 (i1, i3), 1.1.0 (i2)"


def test_two_voters_need_each_other() -> None:
    heard = {"i1": running("leader", voters=(1, 2)), "i2": running(voters=(1, 2))}
    verdict = judge(THREE[:2], heard)
    assert verdict.problems == ()
    (note,) = verdict.notes
    assert note == needs_all(2)
    assert "third instance" in note
    assert [needs_all(voters) for voters in (1, 3, 5)] == [None] * 3


# --- asking --------------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(status: int, body: bytes, *, delay: float = 0) -> Iterator[str]:
    """Something that answers to whatever is asked. Gives its address."""
    leave = threading.Event()

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            leave.wait(delay)
            self.send_response(status if self.path == "/health" else 404)
            self.send_header("content-length", str(len(body)))
            with contextlib.suppress(ConnectionError):  # who asked has not waited
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            leave.set()
            server.shutdown()
            serving.join()


def health(name: str, **more: Any) -> bytes:
    view = {
        "id": 1, "term": 5, "leader_id": 1, "state": "leader", "applied": 7, "commit": 8, "voters": [1], "learners": [2],
    }  # fmt: skip
    body = {"state": "running", "instance": name, "version": "1.0.0", "uptime_seconds": 1.0, "raft": view}
    return json.dumps({**body, **more}).encode()


def test_what_an_instance_says() -> None:
    with (
        answering(200, health("i1")) as first,
        answering(503, health("i2", state="starting", raft=None)) as second,
    ):
        heard = ask_all([known(1, http=first), known(2, http=second)])
    assert heard["i1"] == Heard(
        state="running", version="1.0.0", raft=raft("leader", applied=7, commit=8, voters=(1,), learners=(2,))
    )
    assert heard["i2"] == Heard(state="starting", version="1.0.0")


def test_what_keeps_an_instance_from_answering() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{nobody.getsockname()[1]}"
        with (
            answering(200, health("other")) as other,
            answering(200, b"<html>") as foreign,
            answering(200, b'{"instance": "i4"}') as short,
            answering(200, b"[1]") as listed,
        ):
            heard = ask_all(
                [
                    known(1, http=closed),
                    known(2, http=other),
                    known(3, http=foreign),
                    known(4, http=short),
                    known(5, http=listed),
                    known(6, http=None),
                    known(7, state="Expelled", http=closed),
                ]
            )
    assert {name: said.silence for name, said in heard.items()} == {
        "i1": "connection refused",
        "i2": "instance other answers there",
        "i3": "something answers that is no instance of Shoal",
        "i4": "something answers that is no instance of Shoal",
        "i5": "something answers that is no instance of Shoal",
        "i6": "its HTTP address is not known",
        "i7": "it was expelled",
    }
    assert not any(said.answers for said in heard.values())


def test_silent_ones_are_waited_for_together() -> None:
    with answering(200, health("i1"), delay=60) as frozen:
        before = time.monotonic()
        heard = ask_all([known(i, http=frozen) for i in range(1, 8)])
        took = time.monotonic() - before
    assert {said.silence for said in heard.values()} == {"no answer in 2 s"}
    assert 1.9 < took < 6  # not 14


# --- showing -------------------------------------------------------------------------------------


def report(instances: list[Known], heard: dict[str, Heard]) -> dict[str, Any]:
    """As read_report() puts it together, with a catalog that holds little."""
    verdict = judge(instances, heard)
    return {
        "cluster_name": "demo", "cluster_uuid": "0c4bb9ab-7b4e-4b4c-b1d4-1a2b3c4d5e6f", "version": "1.0.0",
        "schema_version": 3, "replicasets": [], "tiers": [], "tables": [], "limits": [],
        "leader": verdict.leader and verdict.leader.name, "degraded": bool(verdict.problems),
        "problems": list(verdict.problems), "notes": list(verdict.notes),
        "instances": [
            {
                **asdict(each), "reachable": heard[each.name].answers, "health": heard[each.name].state,
                "leader": each is verdict.leader, "role": verdict.roles.get(each.raft_id),
                "term": view and view.term, "applied": view and view.applied,
            }
            for each in instances
            for view in [heard[each.name].raft]
        ],
    }  # fmt: skip


def shown(instances: list[Known], heard: dict[str, Heard], width: int) -> str:
    console = Console(width=width, highlight=False, force_terminal=False)
    with console.capture() as capture:
        show(report(instances, heard), console)
    return capture.get()


def test_it_fits_into_80_columns() -> None:
    instances = [replace(each, name=f"default_{each.raft_id}_1") for each in THREE]
    heard = {each.name: WELL[f"i{each.raft_id}"] for each in instances}
    text = shown(instances, heard, 80)
    assert max(map(len, text.splitlines())) <= 80
    (line,) = (line for line in text.splitlines() if line.startswith("default_1_1") and "Online" in line)
    assert line.split() == [
        "default_1_1",
        "Online",
        "leader",
        "1",
        "5",
        "100",
        "1.0.0",
        "default",
        "default_1",
    ]
    assert "all is well: 3 instances are Online, and default_1_1 leads" in text
    assert "127.0.0.1:5327" in text


def test_what_is_degraded_stands_at_the_end() -> None:
    gone = known(4, state="Expelled", target_state="Expelled")
    offline = replace(THREE[1], state="Offline", target_state="Online", reason="wakeup")
    heard = {**WELL, "i3": SILENT, "i4": Heard(silence="it was expelled")}
    text = shown([THREE[0], offline, THREE[2], gone], heard, 100)
    assert "Offline → Online" in text
    assert "Online, silent" in text
    assert "expelled: i4" in text
    assert text.splitlines()[-3:] == [
        "degraded:",
        "- i2 is Offline and is to be Online (wakeup, 2026-08-25T10:00:00.000Z)",
        "- i3 does not answer at 127.0.0.1:5329: connection refused",
    ]
