"""Many seeds, or one that is watched: python -m tests.simulation --help."""

from __future__ import annotations

import argparse
import logging
import sys
from asyncio import events

from tests.simulation.many import run_many
from tests.simulation.run import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--instances", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=570, help="of real time, at most")
    parser.add_argument("--log", action="store_true", help="what the instances say")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        if arguments.log:
            _show_logs()
        outcome = run_seed(arguments.seed, arguments.instances)
        print(outcome.failure or "fine")
        print(outcome.trace, outcome.answers, outcome.kinds, outcome.faults, sep="\n")
        return outcome.failure is not None
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    totals = run_many(seeds, instances=arguments.instances, jobs=arguments.jobs, seconds=arguments.seconds)
    print(totals)
    return bool(totals.failures)


def _show_logs() -> None:
    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            loop = events._get_running_loop()
            now = f"{loop.time():9.4f}" if loop is not None else " " * 9
            name = getattr(loop, "name", "")
            return f"{now} {name:5} {record.name.split('.')[-1]}: {record.getMessage()}"

    logging.disable(logging.NOTSET)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


if __name__ == "__main__":
    sys.exit(main())
