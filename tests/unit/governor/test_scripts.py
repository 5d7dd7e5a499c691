"""What the governor does, and who is let in, as scripts: a cluster in a few words, and what follows from it.

Commands, besides the lines of notation.py, each alone in its block:

    plan                          at the end of a block: the steps
    join tier=default name=i9     who may join, and what that changes; more: replicaset, version, dc and so on
    online i1, offline i1 1       the same for an instance that has started, and one that stops
    expel i1, expel i1 force
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from shoal.catalog.entries import RowChange
from shoal.errors import ShoalError
from shoal.governor import admission
from shoal.governor.admission import Joiner, Seen
from tests.scripts_runner import run_script, script_paths
from tests.unit.governor.notation import NOW, Notation, changed_rows

_JOINER = ("tier", "name", "replicaset", "version", "uuid", "cluster")


class Script:
    def __init__(self) -> None:
        self.notation = Notation()

    def run(self, text: str) -> str:
        lines = text.split("\n")
        answer = ""
        for line in lines:
            word, _, rest = line.partition(" ")
            match word:
                case "new":
                    self.notation = Notation()
                case "plan":
                    answer = self.notation.plan()
                case "join" | "online" | "offline" | "expel":
                    answer = self._ask(word, rest.split())
                case _:
                    self.notation.read(line)
        return answer or "ok"

    def _ask(self, what: str, words: list[str]) -> str:
        topology = self.notation.topology
        seen = Seen(
            cluster_name="sea",
            cluster_version="0.1.0",
            topology=topology,
            tiers=self.notation.tiers,
            now=NOW,
        )
        try:
            changes = self._changes(what, words, seen)
        except ShoalError as error:
            return f"{error.sqlstate} {error.message}" + (f" ({error.hint})" if error.hint else "")
        return "\n".join(changed_rows(changes, topology)) or "nothing to do"

    def _changes(self, what: str, words: list[str], seen: Seen) -> Iterable[RowChange]:
        match what, words:
            case "join", _:
                return admission.join(seen, _joiner(words), "u-new").changes
            case "online", [name, *rest]:
                instance = seen.topology.instances[name]
                addresses = {kind: f"{name}:{kind}" for kind in ("iproto", "pgproto", "http")}
                version = rest[0] if rest else "0.1.0"
                return admission.go_online(
                    seen, instance.uuid, version, addresses, instance.failure_domain, "wakeup"
                )
            case "offline", [name, incarnation]:
                return admission.go_offline(seen, f"u-{name}", int(incarnation), "shutdown")
            case "expel", [name, *force]:
                return admission.expel(seen, f"u-{name}", force=force == ["force"])
        raise AssertionError((what, words))


def _joiner(words: list[str]) -> Joiner:
    said = dict(word.split("=", 1) for word in words)
    return Joiner(
        cluster_name=said.get("cluster", "sea"),
        uuid=said.get("uuid", "u-newcomer"),
        version=said.get("version", "0.1.0"),
        tier=said.get("tier", "default"),
        name=said.get("name"),
        replicaset=said.get("replicaset"),
        failure_domain={key: value for key, value in said.items() if key not in _JOINER},
        addresses={kind: f"new:{kind}" for kind in ("iproto", "pgproto", "http")},
    )


@pytest.mark.parametrize("path", script_paths("governor"), ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:
    run_script(path, Script().run, rewrite)
