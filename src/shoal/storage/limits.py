"""What a statement may cost, and what its client hears when it costs more.

Here: Limits, too_many_opcodes(), too_many_rows().
Not here: counting (readers.py for SELECT, node/execute.py for what writes), whose word counts (node/executing.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shoal.errors import ConfigurationLimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """0 is no limit."""

    opcodes: int = 0  # sql_vdbe_opcode_max: steps of SQLite's machine
    rows: int = 0  # sql_motion_row_max: of the answer, and those that an INSERT brings


NO_LIMITS: Final = Limits()

# How often a limit on opcodes is looked at on the way to it.
_OPCODE_CHECKS: Final = 16


def opcodes_between_looks(limit: int) -> int:
    return max(1, limit // _OPCODE_CHECKS)


def too_many_opcodes(limit: int) -> ConfigurationLimitExceeded:
    return ConfigurationLimitExceeded(f"Reached a limit on max executed vdbe opcodes. Limit: {limit}")


def too_many_rows(limit: int, found: int) -> ConfigurationLimitExceeded:
    return ConfigurationLimitExceeded(f"Exceeded maximum number of rows ({limit}) in virtual table: {found}")
