"""`scripts/torture`: runs fault injection on one combination or all, prints progress, writes the report. Exits with 1 if a
guarantee was violated."""
import argparse
import asyncio
import pathlib
import random
import signal
import sys
import time

from .report import write
from .run import torture
from .cluster import COMBINATIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--combination", choices=[*COMBINATIONS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=600, help="duration of the faults (600)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same schedule; default: random, printed")
    parser.add_argument("--size", type=float, default=1.0, help="size of the load: 1 is about 180 clients")
    parser.add_argument("--report", default=str(ROOT / "bench" / "TORTURE.md"), help="file for the tables; `-`: none")
    parser.add_argument("--keep", default=str(ROOT / "bench" / "out" / "torture"),
                        help="folder for logs and histories when a guarantee was violated")
    parser.add_argument("--history", type=pathlib.Path,
                        help="write what every client did and saw as JSON lines for tools/judge; one file for each combination")
    return parser.parse_args()


def main():
    asked = arguments()
    # Clean up on SIGTERM too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    names = COMBINATIONS if asked.combination == "all" else [asked.combination]
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1, 1_000_000)
    results = []
    for name in names:
        print(f"== {name}, seed {seed}, {asked.seconds:.0f} s", flush=True)
        began = time.monotonic()
        log = lambda text: print(f"   {time.monotonic() - began:7.1f}  {text}", flush=True)
        history = asked.history and (asked.history if len(names) == 1 else asked.history.with_name(f"{name}-{asked.history.name}"))
        result = asyncio.run(torture(name, seed, asked.seconds, asked.size, log, pathlib.Path(asked.keep) / name, history))
        results.append(result)
        for verdict in result.verdicts:
            print(f"   {'ok ' if not verdict.violations else 'NOT'} {verdict.name}: {verdict.checked:,} checked, "
                  f"{len(verdict.violations)} violations {verdict.notes or ''}")
            for what in verdict.violations[:5]:
                print(f"         {what[:500]}")
        for what in result.broke:
            print(f"   the test itself failed: {what}")
    if asked.report != "-":
        write(asked.report, results)
    sys.exit(1 if any(result.violations for result in results) else 0)


main()
