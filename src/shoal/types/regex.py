"""Regular expressions that take linear time, whatever the pattern.

Here: compile_regex(), the language, and the machine that runs it.
Not here: LIKE, SIMILAR TO and SUBSTRING's forms, which are translated into this language (patterns.py).

Why not `re`: it tries one way after the other, and (a*)*b over thirty letters takes hours, during which no
other thread of the process runs. This machine follows all ways at once, one step per letter of the text. It
is slower where `re` is fast, and it can't be stopped by a pattern.

The language is that of POSIX with the usual additions: . [a-z] [^a] [[:alpha:]] \\d \\w \\s \\b ^ $ ( ) (?: ) |
* + ? {m,n}, each also with a ? behind it, to take as little as possible; (?U: ) swaps the two inside. (?i) at
the beginning ignores case.
Of several matches the leftmost is meant, and there the one that a greedy reading finds first. No back
references: no linear machine has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from shoal.errors import InvalidRegularExpression

__all__ = ["Regex", "compile_regex"]

PROGRAM_MAX: Final = 20_000  # instructions; repetitions multiply
DEPTH_MAX: Final = 50
_STATES_MAX: Final = 500  # of one pattern, kept in memory

# --- the tree ------------------------------------------------------------------------------------

Test: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Letter:
    test: Test


@dataclass(frozen=True, slots=True)
class _Edge:
    """A place between letters: ^ $ \\b \\B."""

    kind: str


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    branches: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None
    greedy: bool


@dataclass(frozen=True, slots=True)
class _Group:
    part: _Node
    number: int  # 1-based


_Node: TypeAlias = "_Letter | _Edge | _Sequence | _Choice | _Repeat | _Group"

# --- reading -------------------------------------------------------------------------------------

_CLASSES: Final[dict[str, Test]] = {
    "alpha": str.isalpha,
    "digit": lambda c: "0" <= c <= "9",
    "alnum": str.isalnum,
    "upper": str.isupper,
    "lower": str.islower,
    "space": str.isspace,
    "blank": lambda c: c in " \t",
    "punct": lambda c: c.isprintable() and not c.isalnum() and not c.isspace(),
    "cntrl": lambda c: ord(c) < 32 or ord(c) == 127,
    "graph": lambda c: c.isprintable() and not c.isspace(),
    "print": str.isprintable,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "word": lambda c: c.isalnum() or c == "_",
}
_ESCAPED_CLASSES: Final = {"d": "digit", "w": "word", "s": "space"}
_ESCAPED_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_EDGES: Final = {"b": "word", "B": "not word", "A": "start", "z": "end", "Z": "end"}


def _not(test: Test) -> Test:
    return lambda c: not test(c)


def _any(c: str) -> bool:
    return True


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.depth = 0
        self.ignore_case = False
        self.greedy = True

    def read(self) -> _Node:
        if self.pattern.startswith("(?i)"):
            self.ignore_case, self.at = True, 4
        node = self._choice()
        if self.at < len(self.pattern):
            raise self._error("unopened group")
        return node

    def _error(self, what: str) -> InvalidRegularExpression:
        shown = self.pattern if len(self.pattern) <= 80 else self.pattern[:80] + "…"
        return InvalidRegularExpression(f"Invalid pattern: regex parse error: {what} in '{shown}'")

    def _peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self.at += len(text)
            return True
        return False

    def _next(self, what: str) -> str:
        if self.at >= len(self.pattern):
            raise self._error(what)
        self.at += 1
        return self.pattern[self.at - 1]

    def _choice(self) -> _Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _repeated(self) -> _Node:
        node = self._atom()
        for _ in range(DEPTH_MAX):
            counts = self._counts()
            if counts is None:
                return node
            if isinstance(node, _Edge):
                raise self._error("repetition operator missing expression")
            node = _Repeat(node, counts[0], counts[1], greedy=self.greedy is not self._take("?"))
        raise self._error("too many repetition operators")

    def _counts(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if not self._take("{"):
            return None
        least = self._number()
        most: int | None = least
        if self._take(","):
            most = None if self._peek("}") else self._number()
        if not self._take("}"):
            raise self._error("unclosed counted repetition")
        if most is not None and most < least:
            raise self._error("invalid repetition count range")
        return least, most

    def _number(self) -> int:
        start = self.at
        while self.at < len(self.pattern) and self.pattern[self.at] in "0123456789":
            self.at += 1
        if not 0 < self.at - start <= 5:
            raise self._error("invalid repetition count")
        return int(self.pattern[start : self.at])

    def _atom(self) -> _Node:
        letter = self._next("unexpected end")
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._bracket()
        if letter == ".":
            return _Letter(_any)
        if letter == "^":
            return _Edge("start")
        if letter == "$":
            return _Edge("end")
        if letter == "\\":
            return self._escape()
        if letter in "*+?{":
            raise self._error("repetition operator missing expression")
        return _Letter(self._exactly(letter))

    def _group(self) -> _Node:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._error("groups are nested too deeply")
        number, greedy = 0, self.greedy
        if self._take("?U:"):
            self.greedy = not greedy
        elif not self._take("?:"):
            if self._peek("?"):
                raise self._error("unrecognized group")
            self.groups += 1
            number = self.groups
        node = self._choice()
        if not self._take(")"):
            raise self._error("unclosed group")
        self.depth -= 1
        self.greedy = greedy
        return _Group(node, number) if number else node

    def _escape(self) -> _Node:
        letter = self._next("incomplete escape sequence")
        if letter in _EDGES:
            return _Edge(_EDGES[letter])
        return _Letter(self._escaped(letter))

    def _escaped(self, letter: str) -> Test:
        if letter in _ESCAPED_LETTERS:
            return self._exactly(_ESCAPED_LETTERS[letter])
        if letter in _ESCAPED_CLASSES:
            return _CLASSES[_ESCAPED_CLASSES[letter]]
        if letter.lower() in _ESCAPED_CLASSES:
            return _not(_CLASSES[_ESCAPED_CLASSES[letter.lower()]])
        if letter.isascii() and letter.isalnum():
            raise self._error("unrecognized escape sequence")
        return self._exactly(letter)

    def _exactly(self, letter: str) -> Test:
        return self._one_of(frozenset({letter}))

    def _one_of(self, letters: frozenset[str]) -> Test:
        if self.ignore_case:
            folded = frozenset(letter.lower() for letter in letters)
            return lambda c: c.lower() in folded
        return letters.__contains__

    def _bracket(self) -> _Node:
        negated = self._take("^")
        tests: list[Test] = []
        letters: set[str] = set()
        first = True
        while first or not self._peek("]"):
            first = False
            if self._take("[:"):
                end = self.pattern.find(":]", self.at)
                name = self.pattern[self.at : end]
                if end < 0 or name not in _CLASSES:
                    raise self._error("unknown character class")
                self.at = end + 2
                tests.append(_CLASSES[name])
                continue
            low = self._bracket_letter(tests)
            if low is None:
                continue
            if self._peek("-") and not self._peek("-]"):
                self.at += 1
                high = self._bracket_letter(tests)
                if high is None or high < low:
                    raise self._error("invalid character class range")
                tests.append(self._between(low, high))
            else:
                letters.add(low)
        self.at += 1
        if letters:
            tests.append(self._one_of(frozenset(letters)))
        return _Letter(_first_of(tests, negated))

    def _bracket_letter(self, tests: list[Test]) -> str | None:
        """A letter; None when it was a class, which has been added."""
        letter = self._next("unclosed character class")
        if letter != "\\":
            return letter
        letter = self._next("incomplete escape sequence")
        if letter in _ESCAPED_LETTERS:
            return _ESCAPED_LETTERS[letter]
        if letter.isascii() and letter.isalnum():
            tests.append(self._escaped(letter))
            return None
        return letter

    def _between(self, low: str, high: str) -> Test:
        if self.ignore_case:
            return lambda c: low <= c <= high or low <= c.lower() <= high or low <= c.upper() <= high
        return lambda c: low <= c <= high


def _first_of(tests: Sequence[Test], negated: bool) -> Test:
    return lambda c: any(test(c) for test in tests) is not negated


# --- the program ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Take:
    test: Test


@dataclass(slots=True)
class _Fork:
    """Both ways, the first one preferred."""

    first: int
    second: int


@dataclass(slots=True)
class _Jump:
    to: int


@dataclass(frozen=True, slots=True)
class _Save:
    slot: int


@dataclass(frozen=True, slots=True)
class _Match:
    pass


_Step: TypeAlias = "_Take | _Fork | _Jump | _Save | _Edge | _Match"


class _Builder:
    def __init__(self) -> None:
        self.steps: list[_Step] = []

    def add(self, step: _Step) -> int:
        if len(self.steps) >= PROGRAM_MAX:
            raise InvalidRegularExpression("Invalid pattern: the regular expression is too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def emit(self, node: _Node) -> None:
        match node:
            case _Letter(test):
                self.add(_Take(test))
            case _Edge():
                self.add(node)
            case _Sequence(parts):
                for part in parts:
                    self.emit(part)
            case _Choice(branches):
                self._emit_choice(branches)
            case _Group(part, number):
                self.add(_Save(2 * number))
                self.emit(part)
                self.add(_Save(2 * number + 1))
            case _Repeat(part, least, most, greedy):
                for _ in range(least):
                    self.emit(part)
                if most is None:
                    self._emit_star(part, greedy)
                else:
                    self._emit_optional(part, most - least, greedy)

    def _emit_choice(self, branches: tuple[_Node, ...]) -> None:
        jumps: list[_Jump] = []
        for branch in branches[:-1]:
            fork = _Fork(0, 0)
            at = self.add(fork)
            fork.first = at + 1
            self.emit(branch)
            jump = _Jump(0)
            self.add(jump)
            jumps.append(jump)
            fork.second = len(self.steps)
        self.emit(branches[-1])
        for jump in jumps:
            jump.to = len(self.steps)

    def _emit_star(self, part: _Node, greedy: bool) -> None:
        fork = _Fork(0, 0)
        at = self.add(fork)
        self.emit(part)
        self.add(_Jump(at))
        self._set(fork, at + 1, len(self.steps), greedy)

    def _emit_optional(self, part: _Node, times: int, greedy: bool) -> None:
        forks: list[tuple[_Fork, int]] = []
        for _ in range(times):
            fork = _Fork(0, 0)
            forks.append((fork, self.add(fork)))
            self.emit(part)
        for fork, at in forks:
            self._set(fork, at + 1, len(self.steps), greedy)

    @staticmethod
    def _set(fork: _Fork, inside: int, behind: int, greedy: bool) -> None:
        fork.first, fork.second = (inside, behind) if greedy else (behind, inside)


# --- the machine ---------------------------------------------------------------------------------

_Spans: TypeAlias = "tuple[int | None, ...]"


class Regex:
    """A compiled pattern. Threads may share it: what it remembers is only ever added to."""

    def __init__(self, pattern: str) -> None:
        reader = _Reader(pattern)
        builder = _Builder()
        builder.emit(reader.read())
        builder.add(_Match())
        self.groups = reader.groups
        self._steps = builder.steps
        self._has_edges = any(isinstance(step, _Edge) for step in builder.steps)
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._has_edges:
            # Edges depend on the letters around, which states that are remembered don't know.
            return self._run(text, 0, whole=True) is not None
        at_once = self._closure((0,))
        remembered = self._next
        for letter in text:
            after = remembered.get((at_once, letter))
            if after is None:
                after = self._closure(
                    [
                        n + 1
                        for n in at_once
                        if isinstance(step := self._steps[n], _Take) and step.test(letter)
                    ]
                )
                if len(remembered) > _STATES_MAX * 10:
                    remembered = self._next = {}
                remembered[at_once, letter] = after
            if not after:
                return False
            at_once = after
        return any(isinstance(self._steps[n], _Match) for n in at_once)

    def _closure(self, starts: Sequence[int]) -> frozenset[int]:
        """All that can be reached without a letter, where there are no edges."""
        reached: set[int] = set()
        waiting = list(starts)
        while waiting:
            at = waiting.pop()
            if at in reached:
                continue
            reached.add(at)
            match self._steps[at]:
                case _Fork(first, second):
                    waiting += (first, second)
                case _Jump(to):
                    waiting.append(to)
                case _Save():
                    waiting.append(at + 1)
                case _:
                    pass
        return frozenset(n for n in reached if isinstance(self._steps[n], _Take | _Match))

    def search(self, text: str) -> _Spans | None:
        """Where the leftmost match is: start and end of the whole, of group 1, of group 2, …"""
        return self._run(text, 0, whole=False)

    def _run(self, text: str, start: int, *, whole: bool) -> _Spans | None:
        steps = self._steps
        nothing: _Spans = (None,) * (2 * self.groups + 2)
        found: _Spans | None = None
        threads: dict[int, _Spans] = {}  # in the order of preference
        for at in range(start, len(text) + 1):
            if found is None and (at == start or not whole):
                # One more way: the match begins here. It is the least preferred.
                self._follow(threads, 0, (at, *nothing[1:]), text, at)
            letter = text[at] if at < len(text) else None
            after: dict[int, _Spans] = {}
            for n, spans in threads.items():
                step = steps[n]
                if isinstance(step, _Match):
                    if whole and letter is not None:
                        continue
                    found = (spans[0], at, *spans[2:])
                    break  # whatever is preferred less is forgotten
                if letter is not None and isinstance(step, _Take) and step.test(letter):
                    self._follow(after, n + 1, spans, text, at + 1)
            threads = after
            if not threads and (found is not None or whole):
                break
        return found

    def _follow(self, threads: dict[int, _Spans], start: int, spans: _Spans, text: str, at: int) -> None:
        """Adds what can be reached without a letter, the preferred ways first."""
        waiting: list[tuple[int, _Spans]] = [(start, spans)]
        while waiting:
            n, spans = waiting.pop()
            if n in threads:
                continue
            threads[n] = spans
            match self._steps[n]:
                case _Fork(first, second):
                    waiting.append((second, spans))
                    waiting.append((first, spans))
                case _Jump(to):
                    waiting.append((to, spans))
                case _Save(slot):
                    waiting.append((n + 1, (*spans[:slot], at, *spans[slot + 1 :])))
                case _Edge(kind) if _is_edge(kind, text, at):
                    waiting.append((n + 1, spans))
                case _:
                    pass


def _is_edge(kind: str, text: str, at: int) -> bool:
    if kind == "start":
        return at == 0
    if kind == "end":
        return at == len(text)
    is_word = _CLASSES["word"]
    before = at > 0 and is_word(text[at - 1])
    behind = at < len(text) and is_word(text[at])
    return (before != behind) is (kind == "word")


@lru_cache(maxsize=500)
def compile_regex(pattern: str) -> Regex:
    return Regex(pattern)
