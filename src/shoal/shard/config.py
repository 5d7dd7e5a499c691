"""A replicaset as the catalog has it, and the one kind of change that it knows.

Here: Config, Change, the changes that there are, and choose(), what the governor is to do about members that fail.
Not here: carrying a change through Raft (node/), what a member does when it applies one (replica.py).

A change is a compare-and-swap on the version: it sets the master and `in_sync`, and raises the version by one. Of
several that were asked for on one version, one happens, and whoever applies it knows which.

`in_sync` has every member that surely has all acknowledged writes. So only its members may become master, and only
whoever is the master may let somebody in (it knows who has what); anybody may leave but the last one. It says nothing of
who is Online: the last member stays in it, dead or not, and the replicaset waits for it.

| change | asked for by | when |
|---|---|---|
| raised | the master | it has started again, or its mastership has failed; or an admission is to be given up |
| admitted | the master | a member has everything, and the master already waits for it |
| handed_over | the master | another one is to be it, and nothing is under way |
| dropped | the governor | the master reports that a member doesn't answer |
| failed_over | the governor | the master doesn't answer, or says that it can't go on |
| forced | an admin | nobody who has everything will ever come back: what was acknowledged may be lost |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from shoal.shard.positions import ConfigVersion, MemberId, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    version: ConfigVersion
    master: MemberId
    in_sync: tuple[MemberId, ...]  # sorted; the master is one of them
    members: tuple[MemberId, ...]  # sorted; all that aren't expelled
    target: MemberId  # who should be the master

    def __post_init__(self) -> None:
        assert self.master in self.in_sync, self


@dataclass(frozen=True, slots=True)
class Change:
    """To be made if the version is still `base`."""

    base: ConfigVersion
    master: MemberId
    in_sync: tuple[MemberId, ...]
    why: str = field(compare=False)

    def applied_to(self, config: Config) -> Config | None:
        """None: something else came before it."""
        if config.version != self.base:
            return None
        version = ConfigVersion(self.base + 1)
        return replace(config, version=version, master=self.master, in_sync=self.in_sync)


def raised(config: Config, why: str) -> Change:
    return Change(config.version, config.master, config.in_sync, why)


def admitted(config: Config, member: MemberId) -> Change:
    in_sync = tuple(sorted({*config.in_sync, member}))
    return Change(config.version, config.master, in_sync, f"{member} has everything")


def handed_over(config: Config, to: MemberId) -> Change:
    assert to in config.in_sync, (config, to)
    return Change(config.version, to, config.in_sync, f"{to} is to be the master")


def dropped(config: Config, gone: Iterable[MemberId]) -> Change:
    left = tuple(member for member in config.in_sync if member not in set(gone))
    assert config.master in left, (config, gone)
    why = ", ".join(str(member) for member in config.in_sync if member not in left)
    return Change(config.version, config.master, left, f"{why} doesn't answer")


def failed_over(config: Config, reachable: Mapping[MemberId, Position]) -> Change | None:
    """None: nobody who could be the master is there; so the replicaset waits."""
    left = [member for member in config.in_sync if member in reachable and member != config.master]
    if not left:
        return None
    # Each of them has all that was acknowledged. The one with the most may also save what was about to be.
    best = max(left, key=lambda member: (reachable[member], -member))
    return Change(config.version, best, tuple(left), f"{config.master}, the master, doesn't answer")


def forced(config: Config, to: MemberId) -> Change:
    return Change(config.version, to, (to,), f"{to} is made the master by force")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a master says to the governor. Worth nothing when the version has changed."""

    version: ConfigVersion
    silent: frozenset[MemberId]  # whom it waits for, and who don't answer or don't get any further
    unable: bool = False  # its own disk refuses to go on


def choose(config: Config, reachable: Mapping[MemberId, Position], report: Report | None) -> Change | None:
    """What the governor is to do now. `reachable`: who has answered it lately, and where their logs end."""
    if report is not None and report.version != config.version:
        report = None
    able = report is None or not report.unable
    if config.master not in reachable or not able:
        return failed_over(config, reachable)
    gone = report.silent - {config.master} if report is not None else frozenset()
    gone &= frozenset(config.in_sync)
    return dropped(config, gone) if gone else None
