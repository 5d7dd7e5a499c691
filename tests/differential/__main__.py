"""python -m tests.differential FIRST_SEED COUNT [STATEMENTS]: rounds by hand, mismatches printed as they come.

What the tables of a seed held is in a file of the temporary directory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.postgres import Postgres

from tests.differential.rounds import Report, run_round
from tests.differential.sides import Theirs


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    statements = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    server = Postgres()
    report = Report()
    began = time.monotonic()
    try:
        server.start()
        theirs = Theirs(server.url)
        for seed in range(first, first + count):
            known = len(report.mismatches)
            with tempfile.TemporaryDirectory() as directory:
                run_round(seed, theirs, Path(directory) / "shoal", report, statements)
            for mismatch in report.mismatches[known:]:
                print(mismatch, end="\n\n", flush=True)
            if len(report.mismatches) > known:
                Path(tempfile.gettempdir(), f"shoal-differential-{seed}.sql").write_text(
                    ";\n".join(report.mismatches[-1].setup), encoding="utf-8"
                )
        theirs.close()
    finally:
        server.stop()
    print(
        f"{report.statements} statements in {time.monotonic() - began:.0f} s,"
        f" {len(report.mismatches)} mismatches; {report.outcomes.most_common()}"
    )


if __name__ == "__main__":
    main()
