"""Bugs on purpose: edits of a function's text that a test switches on for a while.

Here: Planted, and plant(), which reads a list of them.
Not here: which bugs there are (shard/planted.py), finding one (shard/campaign.py).

A bug is a name, its story, and edits of functions: what stands behind `-` becomes what stands behind `+`, which may happen in
several places. Where it isn't in the function exactly once, switching the bug on fails: so the list can't lag behind
the code.
"""

from __future__ import annotations
import __future__

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias, cast
from unittest.mock import patch

Owner: TypeAlias = type | ModuleType
_Function: TypeAlias = Callable[[object], object]


@dataclass(slots=True)
class Hunk:
    old: list[str]  # lines
    new: list[str]


@dataclass(frozen=True, slots=True)
class Edit:
    owner: Owner
    function: str  # or a property
    hunks: list[Hunk]

    @contextmanager
    def on(self) -> Iterator[None]:
        found = inspect.getattr_static(self.owner, self.function)
        getter = cast(_Function, found.fget if isinstance(found, property) else found)
        edited = self._edited(getter)
        with patch.object(self.owner, self.function, property(edited) if found is not getter else edited):
            yield

    def _edited(self, function: _Function) -> _Function:
        source = textwrap.dedent(inspect.getsource(function)).removeprefix("@property\n")
        for hunk in self.hunks:
            at = source.find(hunk.old[0])
            indent = re.match(" *", source[source.rfind("\n", 0, at) + 1 :])
            assert indent is not None
            old, new = (f"\n{indent[0]}".join(lines) for lines in (hunk.old, hunk.new))
            assert source.count(old) == 1, f"{self.function} has {old!r} {source.count(old)} times"
            source = source.replace(old, new)
        flags = __future__.annotations.compiler_flag
        code = compile(source, f"<{self.function}, with a bug>", "exec", flags, dont_inherit=True)
        made: dict[str, _Function] = {}
        exec(code, function.__globals__, made)
        return made[function.__name__]


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    story: str  # what it does wrong
    edits: tuple[Edit, ...]

    @contextmanager
    def on(self) -> Iterator[None]:
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(edit.on())
            yield


def plant(text: str, owners: Mapping[str, Owner]) -> dict[str, Planted]:
    """By name. Blocks are apart by an empty line; those that begin with # are headings."""
    bugs: dict[str, Planted] = {}
    for block in re.split(r"\n\n+", text.strip()):
        if block.startswith("#"):
            continue
        head, *lines = block.split("\n")
        name, story = head.split(": ", 1)
        assert name not in bugs, name
        edits: list[Edit] = []
        for line in lines:
            match line[:5]:
                case "    -":
                    hunks = edits[-1].hunks
                    if not hunks or hunks[-1].new:
                        hunks.append(Hunk([], []))
                    hunks[-1].old.append(line[6:])
                case "    +":
                    edits[-1].hunks[-1].new.append(line[6:])
                case _:
                    owner, function = line.split(".")
                    edits.append(Edit(owners[owner.strip()], function, []))
        bugs[name] = Planted(name, story, tuple(edits))
    return bugs
