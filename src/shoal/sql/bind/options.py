"""OPTION (name = value, …) of a query or DML: what may be said, and the last one of duplicates wins.

Here: bind_options().
Not here: what the limits do (local/, node/), the defaults (node/settings.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shoal.errors import DatatypeMismatch, InvalidParameterValue, SqlSyntaxError
from shoal.sql import ast, plan
from shoal.sql.bind.binding import Binding
from shoal.types.sqltype import INT

READ_PREFERENCES: Final = frozenset({"leader", "replica", "any"})
FORWARDS: Final = frozenset({"on", "off", "ro_to_rw"})


def bind_options(binding: Binding, options: tuple[ast.Option, ...]) -> plan.Options:
    bound = plan.Options()
    for option in options:
        match option.name.text:
            case "sql_vdbe_opcode_max":
                bound = replace(bound, vdbe_opcode_max=_limit(binding, option))
            case "sql_motion_row_max":
                bound = replace(bound, motion_row_max=_limit(binding, option))
            case "read_preference":
                bound = replace(bound, read_preference=_word(option, READ_PREFERENCES))
            case "forward":
                bound = replace(bound, forward=_word(option, FORWARDS))
            case _:
                raise SqlSyntaxError(
                    "rule parsing error: expected VdbeOpcodeMax, MotionRowMax, ReadPreference, or Forward",
                    position=option.name.at + 1,
                )
    if bound.forward == "off" and bound.read_preference == "any":
        raise InvalidParameterValue(
            'invalid OptionSpec: "forward = off" is not compatible with "read_preference = any"',
            position=options[0].at + 1,
        )
    return bound


def _limit(binding: Binding, option: ast.Option) -> plan.Const | plan.Param:
    value = option.value
    if isinstance(value, ast.Literal) and value.kind is ast.LiteralKind.INTEGER and not value.negative:
        return binding.literal(value, INT)
    if isinstance(value, ast.Parameter):
        t = binding.parameters.type_of(value.number, INT, value.at)
        if not t.is_int:
            raise DatatypeMismatch(
                f"invalid OptionSpec: expected option {option.name.text} to be a non-negative integer, "
                f"got: {t.error_name}",
                position=value.at + 1,
            )
        return plan.Param(value.number, t)
    raise SqlSyntaxError("rule parsing error: expected Unsigned or Parameter", position=value.at + 1)


def _word(option: ast.Option, words: frozenset[str]) -> str:
    value = option.value
    if isinstance(value, ast.Name) and value.text.lower() in words:
        return value.text.lower()
    raise SqlSyntaxError(
        f"rule parsing error: expected {', '.join(sorted(words))} for {option.name.text}",
        position=value.at + 1,
    )
