"""Expressions by chance, of a wanted type, over the columns that are in reach.

Here: Chance, what all of one statement shares; Expressions, over one scope.
Not here: subqueries' insides (queries.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from tests.differential.pairs import (
    ADD,
    AND,
    ATOM,
    BOOL,
    CONCAT,
    DATETIME,
    DECIMAL,
    DOUBLE,
    INT,
    KINDS,
    MULTIPLY,
    NOT,
    NUMBERS,
    OR,
    PREDICATE,
    SIGN,
    TEXT,
    UUID,
    Pair,
    call,
    decimal_literal,
    double_literal,
    filled,
    infix,
    int_literal,
    null,
    quoted,
    sized,
    text_literal,
    typed_literal,
)

TEXTS: Final = (
    "", "a", "b", "ab", "abc", "Abc", "ABC", "bca", "a%b", "a_b", "it's", "Ärger", "ärger", "жук", " pad ",
    "10", "-3", "2.5", "true", "f", "aXbXc", "😀x", "a\\b",
)  # fmt: skip
DECIMALS: Final = (
    "0.0",
    "1.0",
    "-1.5",
    "0.01",
    "123.456",
    "-99999.999",
    "2.50",
    "7.",
    "0.5",
    "1000000000.25",
)
DOUBLES: Final = (0.0, 1.0, -1.5, 0.25, 2.75, 100.0, -1024.5, 3.0, 1048576.125)
INTS: Final = (0, 1, 2, 3, 5, 7, 10, -1, -2, -10, 42, 100)
BIG_INTS: Final = (2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
UUIDS: Final = (
    "00000000-0000-0000-0000-000000000000",
    "6f2ba4c4-0a4c-4d79-86ae-43d4f84b70e1",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "7a2ba4c4-0a4c-4d79-86ae-43d4f84b70e1",
)
DATETIMES: Final = (
    "1970-01-01 00:00:00+00", "2024-02-29 12:34:56.789+00", "1999-12-31 23:59:59.999999+00",
    "2024-01-02 03:04:05+03:00", "2024-01-02", "0044-03-15 00:00:00+00", "1969-12-31 23:59:59.5+00",
)  # fmt: skip
PATTERNS: Final = ("%", "a%", "%b", "_b%", "a\\%b", "%\\_%", "", "abc", "A%", "%X%X%", "%ä%", "_", "😀%")
SIMILAR: Final = ("a|b", "(a|A)bc", "a%", "[a-c]+", "_*", "%(x|X)%", "a{2}", "(ab)*")
COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")

# An INT's bits, and a DECIMAL's and a DOUBLE's digits, up to which nothing can go wrong.
BITS_MAX: Final = 62
DIGITS_MAX: Final = 36
EXACT_BITS_MAX: Final = 48


class Subqueries(Protocol):
    def scalar(self, kind: str, depth: int) -> Pair: ...
    def exists(self, depth: int) -> Pair: ...
    def in_query(self, arg: Pair, depth: int) -> Pair: ...
    def row_in_query(self, args: Sequence[Pair], depth: int) -> Pair: ...


@dataclass
class Chance:
    """What one statement shares."""

    rng: random.Random
    safe: bool = True  # make nothing that may fail
    may_fail: bool = False  # something was made that may

    def fails(self) -> None:
        assert not self.safe
        self.may_fail = True

    def one_in(self, n: int) -> bool:
        return self.rng.randrange(n) == 0


Leaves = Callable[[str], Sequence[Pair]]


@dataclass
class Expressions:
    chance: Chance
    leaves: Leaves  # what a row, or a group, has of a kind
    subqueries: Subqueries | None = None
    _forms: dict[str, list[Callable[[int], Pair | None]]] = field(init=False)

    def __post_init__(self) -> None:
        self.rng = self.chance.rng
        self._forms = {
            INT: [self._int_arithmetic] * 4 + [self._division, self._int_function, self._to_int],
            DECIMAL: [self._decimal_arithmetic] * 3
            + [self._decimal_division, self._decimal_function, self._to_decimal],
            DOUBLE: [self._double_arithmetic] * 3
            + [self._double_division, self._double_function, self._to_double],
            TEXT: [self._concat, self._concat, self._text_function, self._text_function, self._to_text],
            BOOL: [self._comparison] * 4
            + [self._logic] * 4
            + [self._test, self._between, self._in_list, self._like, self._distinct]
            + [self._rows, self._text_test, self._to_bool, self._any],
            UUID: [],
            DATETIME: [self._to_datetime],
        }

    # --- the entrances ---

    def expression(self, kind: str, depth: int) -> Pair:
        if depth <= 0 or self.rng.random() < 0.15:
            return self.leaf(kind)
        forms = self._forms[kind]
        if not forms or self.rng.random() < 0.3:
            made = self._any_kind(kind, depth - 1)
        else:
            made = self.rng.choice(forms)(depth - 1)
        return self.leaf(kind) if made is None else made

    def exact(self, kind: str, depth: int) -> Pair:
        """One whose value both sides know to the last digit."""
        return exactly(self.expression(kind, depth))

    def leaf(self, kind: str) -> Pair:
        found = self.leaves(kind)
        if found and self.rng.random() < 0.75:
            return self.rng.choice(found)
        return self.literal(kind)

    def literal(self, kind: str) -> Pair:
        rng = self.rng
        if self.chance.one_in(12):
            return null(kind)
        match kind:
            case "int":
                if not self.chance.safe and self.chance.one_in(6):
                    return int_literal(rng.choice(BIG_INTS))
                return int_literal(rng.choice(INTS))
            case "decimal":
                return decimal_literal(rng.choice(DECIMALS))
            case "double":
                return double_literal(rng.choice(DOUBLES))
            case "text":
                return text_literal(rng.choice(TEXTS))
            case "bool":
                text = rng.choice(("TRUE", "FALSE"))
                return Pair(text, text, BOOL)
            case "uuid":
                return typed_literal(rng.choice(UUIDS), UUID)
            case _:
                return typed_literal(rng.choice(DATETIMES), DATETIME)

    def any_kind(self) -> str:
        return self.rng.choice(KINDS)

    def column(self, kind: str) -> Pair | None:
        found = self.leaves(kind)
        return self.rng.choice(found) if found else None

    # --- of every kind ---

    def _any_kind(self, kind: str, depth: int) -> Pair | None:
        rng = self.rng
        choice = rng.randrange(7)
        if choice == 0 and self.subqueries is not None and depth > 0:
            return self.subqueries.scalar(kind, depth)
        if choice <= 2:
            return self._case(kind, depth)
        if choice == 3:
            return self._simple_case(kind, depth)
        if choice == 4:
            a, b = self.expression(kind, depth), self.exact(kind, depth)
            a = exactly(a)
            return _sized_like(call("nullif", a, b, kind=kind), (a,))
        args = [self.exact(kind, depth), *(self._or_int(kind, depth) for _ in range(rng.randint(0, 2)))]
        rng.shuffle(args)
        if choice == 6 and kind != UUID:
            name = rng.choice(("greatest", "least"))
        else:
            name = "coalesce"
        made = call(name, *args, kind=kind)
        if self.chance.one_in(4) and not args[-1].ours.startswith(("NULL", "'")):
            made = call(name, _bare_null(kind), *args, kind=kind)
        return _sized_like(made, args)

    def _or_int(self, kind: str, depth: int) -> Pair:
        """A value beside others of that kind, which an INT can become by itself."""
        if kind in (DECIMAL, DOUBLE) and self.chance.one_in(4):
            found = self.expression(INT, depth)
            return replace(found, size=_digits_of_bits(found.size)) if kind == DECIMAL else found
        return self.exact(kind, depth)

    def _case(self, kind: str, depth: int) -> Pair:
        branches = [
            (self.expression(BOOL, depth), self.expression(kind, depth))
            for _ in range(self.rng.randint(1, 2))
        ]
        otherwise = self._or_int(kind, depth) if self.rng.random() < 0.7 else None
        return _case_text(kind, None, branches, otherwise)

    def _simple_case(self, kind: str, depth: int) -> Pair:
        compared = self.any_kind()
        operand = self.exact(compared, depth)
        branches = [
            (self.exact(compared, min(depth, 1)), self.expression(kind, depth))
            for _ in range(self.rng.randint(1, 3))
        ]
        otherwise = self.expression(kind, depth) if self.rng.random() < 0.5 else None
        return _case_text(kind, operand, branches, otherwise)

    # --- INT ---

    def _int_arithmetic(self, depth: int) -> Pair | None:
        a = self.expression(INT, depth)
        op = self.rng.choice("+-*-n")
        if op == "n":
            return self._fitting(_negated(a, INT), a.size)
        b = self.expression(INT, depth)
        size = a.size + b.size if op == "*" else max(a.size, b.size) + 1
        return self._fitting(infix(a, op, b, INT, MULTIPLY if op == "*" else ADD), size)

    def _fitting(self, pair: Pair, size: int) -> Pair | None:
        """The result of an INT operation, which has that many bits."""
        if size > BITS_MAX:
            if self.chance.safe:
                return None
            self.chance.fails()
        return sized(pair, min(size, 63))

    def _division(self, depth: int) -> Pair | None:
        a, b = self.expression(INT, depth), self._divisor(INT, depth)
        if a.size > BITS_MAX:
            return None if self.chance.safe else self._fitting(infix(a, "/", b, INT, MULTIPLY), a.size)
        return sized(infix(a, self.rng.choice("/%"), b, INT, MULTIPLY), a.size)

    def _divisor(self, kind: str, depth: int) -> Pair:
        if self.chance.safe or self.rng.random() < 0.5:
            if self.rng.random() < 0.5:
                zero = {INT: int_literal(0), DECIMAL: decimal_literal("0.0"), DOUBLE: double_literal(0.0)}
                b = self.exact(kind, depth)
                return _sized_like(call("nullif", b, zero[kind], kind=kind), (b,))
            literals = {
                INT: int_literal(self.rng.choice((2, 3, -7, 10))),
                DECIMAL: decimal_literal(self.rng.choice(("2.0", "0.3", "-7.5"))),
                DOUBLE: double_literal(self.rng.choice((2.0, 0.5, -4.0))),
            }
            return literals[kind]
        self.chance.fails()
        return self.expression(kind, depth)

    def _int_function(self, depth: int) -> Pair | None:
        match self.rng.randrange(8):
            case 0:
                a = self.expression(INT, depth)
                return self._fitting(call("abs", a, kind=INT), a.size)
            case 1:
                return sized(call("sign", self.expression(INT, depth), kind=INT, theirs="{}::int8"), 1)
            case 2:
                a = self.expression(INT, depth)
                return sized(call("mod", a, self._divisor(INT, depth), kind=INT), a.size)
            case 3:
                name = self.rng.choice(("length", "octet_length", "char_length"))
                return sized(call(name, self.expression(TEXT, depth), kind=INT, theirs="{}::int8"), 16)
            case 4:
                args = (self.expression(TEXT, depth), self.expression(TEXT, depth))
                return sized(call("strpos", *args, kind=INT, theirs="{}::int8"), 16)
            case 5:
                a, b = self.expression(TEXT, depth), self.expression(TEXT, depth)
                return sized(filled("position({} in {})", "position({} in {})::int8", a, b, kind=INT), 16)
            case 6:
                items = [self.expression(INT, depth) for _ in range(self.rng.randint(1, 3))]
                index = self.expression(INT, 0)
                if index.size > 30:
                    return None
                made = Pair(
                    f"(ARRAY[{', '.join(item.ours for item in items)}])[{index.ours}]",
                    f"(ARRAY[{', '.join(item.theirs for item in items)}])[({index.theirs})::int4]",
                    INT,
                )
                return _sized_like(made, items)
            case _:
                return None

    def _to_int(self, depth: int) -> Pair | None:
        kind = self.rng.choice((DECIMAL, DOUBLE, BOOL, TEXT, INT))
        if kind == BOOL:
            return sized(_cast(self.expression(BOOL, depth), INT, "({}::int4)::int8"), 1)
        if kind == TEXT:
            if self.chance.safe:
                return sized(_cast(_cast(self._small_int(depth), TEXT, "({}::text)"), INT, "{}::int8"), 63)
            self.chance.fails()
            return sized(_cast(self.expression(TEXT, depth), INT, "{}::int8"), 63)
        arg = self.exact(kind, depth)
        if kind == INT:
            return _sized_like(_cast(arg, INT, "{}::int8"), (arg,))
        bits = _bits_of_digits(arg.size) if kind == DECIMAL else arg.size
        return self._fitting(_cast(arg, INT, "trunc({})::int8"), bits + 1)

    def _small_int(self, depth: int) -> Pair:
        found = self.expression(INT, depth)
        return found if found.size <= BITS_MAX else int_literal(3)

    # --- DECIMAL ---

    def _decimal_arithmetic(self, depth: int) -> Pair | None:
        a = self.expression(DECIMAL, depth)
        op = self.rng.choice("+-*-n")
        if op == "n":
            return _sized_like(_negated(a, DECIMAL), (a,))
        b = self._number_beside_decimal(depth)
        if op == "*":
            size, scale = a.size + b.size, a.scale + b.scale
        else:
            size, scale = max(a.size, b.size) + 1, max(a.scale, b.scale)
        if self.rng.random() < 0.5 and b.kind == INT:
            a, b = b, a
        exact = a.exact and b.exact and size + scale <= DIGITS_MAX
        if size > DIGITS_MAX or (size > 10 and not exact):
            return None
        return sized(infix(a, op, b, DECIMAL, MULTIPLY if op == "*" else ADD), size, scale, exact)

    def _number_beside_decimal(self, depth: int) -> Pair:
        if self.chance.one_in(4):
            found = self.expression(INT, depth)
            return replace(found, size=_digits_of_bits(found.size))
        return self.expression(DECIMAL, depth)

    def _decimal_division(self, depth: int) -> Pair | None:
        a, b = self.expression(DECIMAL, depth), self._divisor(DECIMAL, depth)
        if a.size + b.scale > 20 or b.scale > 12:
            return None
        return sized(infix(a, "/", b, DECIMAL, MULTIPLY), a.size + b.scale, 20, exact=False)

    def _decimal_function(self, depth: int) -> Pair | None:
        a = self.expression(DECIMAL, depth)
        match self.rng.randrange(5):
            case 0:
                return _sized_like(call("abs", a, kind=DECIMAL), (a,))
            case 1:
                return sized(call("sign", exactly(a), kind=DECIMAL), 1)
            case 2:
                name = self.rng.choice(("ceil", "floor", "ceiling", "trunc", "round"))
                return sized(call(name, exactly(a), kind=DECIMAL), a.size + 1)
            case _:
                digits = self.rng.randint(-2, 3)
                name = self.rng.choice(("round", "trunc"))
                number = Pair(str(digits), str(digits), INT)
                return sized(call(name, exactly(a), number, kind=DECIMAL), a.size + 2, max(digits, 0))

    def _to_decimal(self, depth: int) -> Pair | None:
        kind = self.rng.choice((INT, DOUBLE, TEXT, DECIMAL))
        if kind == TEXT:
            if self.chance.safe:
                return None
            self.chance.fails()
            return sized(_cast(self.expression(TEXT, depth), DECIMAL, "{}::numeric"), 20, 20)
        arg = self.exact(kind, depth)
        made = _cast(arg, DECIMAL, "{}::numeric")
        if kind == DECIMAL:
            return _sized_like(made, (arg,))
        size, scale = _digits_of_bits(arg.size), arg.scale
        # PostgreSQL takes 15 digits of a double.
        return sized(made, size, scale, kind == INT or (arg.exact and size + scale <= 15))

    # --- DOUBLE ---

    def _double_arithmetic(self, depth: int) -> Pair | None:
        a = self.expression(DOUBLE, depth)
        op = self.rng.choice("+-*-n")
        if op == "n":
            return _sized_like(_negated(a, DOUBLE), (a,))
        b = self.expression(INT if self.chance.one_in(4) else DOUBLE, depth)
        if op == "*":
            size, scale = a.size + b.size, a.scale + b.scale
        else:
            size, scale = max(a.size, b.size) + 1, max(a.scale, b.scale)
        if size > 600:
            return None
        if self.rng.random() < 0.5 and b.kind == INT:
            a, b = b, a
        exact = a.exact and b.exact and size + scale <= EXACT_BITS_MAX
        return sized(infix(a, op, b, DOUBLE, MULTIPLY if op == "*" else ADD), size, scale, exact)

    def _double_division(self, depth: int) -> Pair | None:
        a, b = self.expression(DOUBLE, depth), self._divisor(DOUBLE, depth)
        if a.size + b.scale > 600:
            return None
        return sized(infix(a, "/", b, DOUBLE, MULTIPLY), a.size + b.scale + 20, 60, exact=False)

    def _double_function(self, depth: int) -> Pair | None:
        a = self.expression(DOUBLE, depth)
        match self.rng.randrange(5):
            case 0:
                return _sized_like(call("abs", a, kind=DOUBLE), (a,))
            case 1:
                name = self.rng.choice(("ceil", "floor", "trunc", "round"))
                return sized(call(name, a, kind=DOUBLE), a.size + 1, 0, a.exact)
            case 2:
                return sized(call("sign", a, kind=DOUBLE), 1)
            case 3:
                made = filled("sqrt(abs({}))", "sqrt(abs({}))", a, kind=DOUBLE)
                return sized(made, a.size // 2 + 1, 60, exact=False)
            case _:
                two = double_literal(2.0)
                return sized(call("power", a, two, kind=DOUBLE), 2 * a.size + 1, 60, exact=False)

    def _to_double(self, depth: int) -> Pair | None:
        kind = self.rng.choice((INT, DECIMAL, TEXT, DOUBLE))
        if kind == TEXT:
            if self.chance.safe:
                return None
            self.chance.fails()
            return sized(_cast(self.expression(TEXT, depth), DOUBLE, "{}::float8"), 60, 60, exact=False)
        arg = self.exact(kind, depth)
        made = _cast(arg, DOUBLE, "{}::float8")
        if kind == DECIMAL:
            return sized(made, _bits_of_digits(arg.size), 60, exact=False)
        return _sized_like(made, (arg,))

    # --- TEXT ---

    def _concat(self, depth: int) -> Pair:
        a = self.expression(TEXT, depth)
        kind = self.rng.choice((TEXT, TEXT, TEXT, INT, UUID, BOOL, DECIMAL, DOUBLE))
        b = self.exact(kind, depth)
        if kind == BOOL:
            b = Pair(b.at(CONCAT + 1)[0], f"upper(({b.theirs})::text)", BOOL)
        elif kind == DECIMAL:
            b = Pair(b.at(CONCAT + 1)[0], f"trim_scale({b.theirs})", DECIMAL)
        elif kind == DOUBLE:
            b = Pair(b.at(CONCAT + 1)[0], f"({b.at(ADD)[1]} + 0.0)", DOUBLE)  # we have no -0
        if self.rng.random() < 0.5 and kind != TEXT:
            a, b = b, a
        return infix(a, "||", b, TEXT, CONCAT)

    def _text_function(self, depth: int) -> Pair | None:
        a = self.expression(TEXT, depth)
        rng = self.rng
        n = rng.randint(-2, 5)
        match rng.randrange(14):
            case 0:
                return call(rng.choice(("lower", "upper", "reverse", "md5")), a, kind=TEXT)
            case 1:
                return filled(f"substr({{}}, {n})", f"substr({{}}, {n})", a, kind=TEXT)
            case 2:
                text = f"substring({{}} from {n} for {rng.randint(0, 4)})"
                return filled(text, text, a, kind=TEXT)
            case 3:
                b = self._small_int(min(depth, 1))
                if b.size > 20:
                    return None
                return filled("substr({}, {})", "substr({}, {}::int4)", a, b, kind=TEXT)
            case 4:
                return call(rng.choice(("btrim", "ltrim", "rtrim")), a, self.leaf(TEXT), kind=TEXT)
            case 5:
                side = rng.choice(("BOTH", "LEADING", "TRAILING"))
                text = f"trim({side} {{}} FROM {{}})"
                return filled(text, text, self.leaf(TEXT), a, kind=TEXT)
            case 6:
                return filled("trim({})", "trim({})", a, kind=TEXT)
            case 7:
                return call("replace", a, self.leaf(TEXT), self.leaf(TEXT), kind=TEXT)
            case 8:
                text = f"{rng.choice(('left', 'right'))}({{}}, {n})"
                return filled(text, text, a, kind=TEXT)
            case 9:
                text = f"repeat({{}}, {n})"
                return filled(text, text, a, kind=TEXT)
            case 10:
                text = f"split_part({{}}, {{}}, {n or 1})"
                return filled(text, text, a, self.leaf(TEXT), kind=TEXT)
            case 11:
                args = [self.leaf(TEXT), a, self._small_int(0)]
                return call("concat", *args[: rng.randint(1, 3)], kind=TEXT)
            case 12:
                ours, theirs = rng.choice(
                    (("%Y-%m-%d", "YYYY-MM-DD"), ("%H:%M:%S", "HH24:MI:SS"), ("%d.%m.%y", "DD.MM.YY"))
                )
                d = self.expression(DATETIME, 0)
                return Pair(
                    f"to_char({d.ours}, {quoted(ours)})", f"to_char({d.theirs}, {quoted(theirs)})", TEXT
                )
            case _:
                text = f"substring({{}} from {quoted(rng.choice(('b.', '(.)b', '[a-c]+$', '^a')))})"
                return filled(text, text, a, kind=TEXT)

    def _to_text(self, depth: int) -> Pair:
        kind = self.rng.choice((INT, DECIMAL, DOUBLE, BOOL, UUID, TEXT))
        arg = self.exact(kind, depth)
        if kind == DOUBLE and not arg.exact:
            arg = self.leaf(kind)
        theirs = {
            BOOL: "upper({}::text)",
            DECIMAL: "trim_scale({})::text",
            DOUBLE: "({} + 0.0)::text",
        }.get(kind, "{}::text")
        return _cast(arg, TEXT, theirs)

    # --- BOOL ---

    def comparable(self, depth: int) -> tuple[Pair, Pair]:
        """Two operands of = or <."""
        kind = self.any_kind()
        a = self.exact(kind, depth)
        if self.chance.one_in(5) and kind in (INT, TEXT):
            text = str(self.rng.choice(INTS)) if kind == INT else self.rng.choice(TEXTS)
            return a, Pair(quoted(text), quoted(text), kind)
        if kind in NUMBERS and self.chance.one_in(4):
            return a, self.expression(INT, depth)
        if kind == DECIMAL and self.chance.one_in(5):
            b = self.expression(DOUBLE, min(depth, 1))
            if b.exact and _digits_of_bits(b.size) + b.scale <= 15:
                # A DOUBLE beside a DECIMAL becomes one; PostgreSQL does it the other way round.
                return a, Pair(b.ours, f"({b.theirs})::numeric", DOUBLE, b.level)
        return a, self.exact(kind, depth)

    def _comparison(self, depth: int) -> Pair:
        a, b = self.comparable(depth)
        return infix(
            Pair(*a.at(CONCAT), a.kind),
            self.rng.choice(COMPARISONS),
            Pair(*b.at(CONCAT), b.kind),
            BOOL,
            PREDICATE,
        )

    def _logic(self, depth: int) -> Pair:
        op = self.rng.choice(("AND", "OR", "NOT"))
        a = self.expression(BOOL, depth)
        if op == "NOT":
            x, y = a.at(NOT)
            return Pair(f"NOT {x}", f"NOT {y}", BOOL, NOT)
        return infix(a, op, self.expression(BOOL, depth), BOOL, AND if op == "AND" else OR)

    def _test(self, depth: int) -> Pair:
        negated = self.rng.choice(("", "NOT "))
        if self.rng.random() < 0.5:
            text = f"{{}} IS {negated}NULL"
            return filled(text, text, self.expression(self.any_kind(), depth), kind=BOOL, level=PREDICATE)
        text = f"{{}} IS {negated}{self.rng.choice(('TRUE', 'FALSE', 'UNKNOWN'))}"
        return filled(text, text, self.expression(BOOL, depth), kind=BOOL, level=PREDICATE)

    def _between(self, depth: int) -> Pair:
        a, b = self.comparable(depth)
        c = self.exact(a.kind, depth)
        text = f"{{}} {self.rng.choice(('', 'NOT '))}BETWEEN {{}} AND {{}}"
        return filled(text, text, a, b, c, kind=BOOL, level=PREDICATE)

    def _in_list(self, depth: int) -> Pair:
        kind = self.any_kind()
        arg = self.exact(kind, depth)
        if self.subqueries is not None and depth > 0 and self.rng.random() < 0.35:
            return self.subqueries.in_query(arg, depth)
        items = [self.exact(kind, min(depth, 1)) for _ in range(self.rng.randint(1, 4))]
        negated = self.rng.choice(("", "NOT "))
        x, y = arg.at(CONCAT)
        ours = [item.ours for item in items]
        theirs = [item.theirs for item in items]
        if self.chance.one_in(6):
            ours.append("NULL")
            theirs.append("NULL")
        return Pair(
            f"{x} {negated}IN ({', '.join(ours)})", f"{y} {negated}IN ({', '.join(theirs)})", BOOL, PREDICATE
        )

    def _any(self, depth: int) -> Pair | None:
        kind = self.rng.choice((INT, TEXT, DECIMAL, UUID, DOUBLE))
        arg = self.exact(kind, depth)
        items = [self.exact(kind, 0) for _ in range(self.rng.randint(1, 3))]
        x, y = arg.at(CONCAT)
        op = self.rng.choice(("= ANY", "<> ALL"))
        return Pair(
            f"{x} {op} (ARRAY[{', '.join(item.ours for item in items)}])",
            f"{y} {op} (ARRAY[{', '.join(item.theirs for item in items)}])",
            BOOL,
            PREDICATE,
        )

    def _like(self, depth: int) -> Pair:
        kind = self.rng.choice(("LIKE", "LIKE", "ILIKE", "SIMILAR TO"))
        patterns = SIMILAR if kind == "SIMILAR TO" else PATTERNS
        pattern = quoted(self.rng.choice(patterns)).replace("{", "{{").replace("}", "}}")
        escape = ""
        if kind == "LIKE" and self.chance.one_in(5):
            pattern, escape = "'a#%%'", " ESCAPE '#'"
        text = f"{{}} {self.rng.choice(('', 'NOT '))}{kind} {pattern}{escape}"
        return filled(text, text, self.expression(TEXT, depth), kind=BOOL, level=PREDICATE)

    def _distinct(self, depth: int) -> Pair:
        a, b = self.comparable(depth)
        text = f"{{}} IS {self.rng.choice(('', 'NOT '))}DISTINCT FROM {{}}"
        return filled(text, text, a, b, kind=BOOL, level=PREDICATE)

    def _rows(self, depth: int) -> Pair:
        if self.subqueries is not None and depth > 0 and self.rng.random() < 0.4:
            if self.rng.random() < 0.6:
                return self.subqueries.exists(depth)
            kinds = (self.any_kind(), self.any_kind())
            return self.subqueries.row_in_query([self.exact(kind, 0) for kind in kinds], depth)
        left, right = [], []
        for _ in range(self.rng.randint(2, 3)):
            a, b = self.comparable(0)
            left.append(a)
            right.append(b)
        op = self.rng.choice(COMPARISONS)
        return Pair(
            f"({', '.join(p.ours for p in left)}) {op} ({', '.join(p.ours for p in right)})",
            f"({', '.join(p.theirs for p in left)}) {op} ({', '.join(p.theirs for p in right)})",
            BOOL,
            PREDICATE,
        )

    def _text_test(self, depth: int) -> Pair:
        return call("starts_with", self.expression(TEXT, depth), self.leaf(TEXT), kind=BOOL)

    def _to_bool(self, depth: int) -> Pair:
        if self.chance.safe or self.rng.random() < 0.7:
            return _cast(self.expression(INT, depth), BOOL, "({} <> 0)")
        self.chance.fails()
        return _cast(self.expression(TEXT, depth), BOOL, "{}::bool")

    # --- DATETIME ---

    def _to_datetime(self, depth: int) -> Pair | None:
        text = quoted(self.rng.choice(("2024-02-29", "1999-12-31")))
        return Pair(f"to_date({text}, '%Y-%m-%d')", f"to_date({text}, 'YYYY-MM-DD')::timestamptz", DATETIME)


def exactly(pair: Pair) -> Pair:
    if pair.exact or pair.kind != DECIMAL:
        return pair
    return Pair(f"round({pair.ours}, 4)", f"round({pair.theirs}, 4)", DECIMAL, size=pair.size + 1, scale=4)


def _sized_like(made: Pair, args: Sequence[Pair]) -> Pair:
    return sized(
        made,
        max(arg.size for arg in args),
        max(arg.scale for arg in args),
        all(arg.exact for arg in args),
    )


def _bare_null(kind: str) -> Pair:
    return Pair("NULL", "NULL", kind)


def _negated(arg: Pair, kind: str) -> Pair:
    x, y = arg.at(ATOM)
    return Pair(f"- {x}", f"- {y}", kind, SIGN)


def _cast(arg: Pair, kind: str, theirs: str) -> Pair:
    x, y = arg.at(ATOM)
    other = theirs.format(f"({y})")
    return Pair(f"CAST({arg.ours} AS {kind})" if len(x) % 2 else f"{x}::{kind}", f"({other})", kind)


def _case_text(
    kind: str, operand: Pair | None, branches: Sequence[tuple[Pair, Pair]], otherwise: Pair | None
) -> Pair:
    ours = " ".join(f"WHEN {when.ours} THEN {then.ours}" for when, then in branches)
    theirs = " ".join(f"WHEN {when.theirs} THEN {then.theirs}" for when, then in branches)
    if operand is not None:
        ours, theirs = f"{operand.ours} {ours}", f"{operand.theirs} {theirs}"
    if otherwise is not None:
        ours, theirs = f"{ours} ELSE {otherwise.ours}", f"{theirs} ELSE {otherwise.theirs}"
    results = [then for _, then in branches] + ([otherwise] if otherwise is not None else [])
    return _sized_like(Pair(f"CASE {ours} END", f"CASE {theirs} END", kind), results)


def _digits_of_bits(bits: int) -> int:
    return bits * 302 // 1000 + 1


def _bits_of_digits(digits: int) -> int:
    return digits * 333 // 100 + 1
