"""`scripts/truth`: how true is presence? Compares what watchers are told with what really happened, on several systems."""
import argparse
import asyncio
import pathlib
import signal
import sys
import time

from . import report, scenarios
from .systems import systems

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The results of each system, so that one of them can be measured again.
KEPT = ROOT / "bench" / "out" / "truth"
# The whole run.
LONGEST = 60 * 60


def main():
    parser = argparse.ArgumentParser(prog="scripts/truth", description=__doc__)
    parser.add_argument("--only", action="append", help="only systems whose name contains this; may be repeated")
    parser.add_argument("--scenario", action="append", choices=[*scenarios.CLIENTS, *scenarios.SERVERS], help="only this one")
    parser.add_argument("--sockudo", help="a sockudo program (cargo install sockudo --features redis)")
    parser.add_argument("--report", default=str(ROOT / "bench" / "TRUTH.md"), help="file for the tables; `-`: none")
    asked = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    chosen = [system for name, system in systems(asked.sockudo).items() if not asked.only or any(part in name for part in asked.only)]
    began, results = time.monotonic(), {}
    for system in chosen:
        if time.monotonic() - began > LONGEST - 300:
            print(f"{system.name}: left out, the hour is over", flush=True)
            continue
        print(f"== {system.name}", flush=True)
        log = lambda text: print(f"   {time.monotonic() - began:7.1f}  {text}", flush=True)
        found, left_out = results[system.name] = asyncio.run(scenarios.all_of(system, log, asked.scenario))
        report.keep(KEPT, system, found, left_out)
        for name, score in found.items():
            print(f"   {name}: {report.line(score)}", flush=True)
            for what in score.examples[:6]:
                print(f"      {what}", flush=True)
        for name, why in left_out.items():
            print(f"   {name}: left out, {why}", flush=True)
    if asked.report != "-":
        report.write(pathlib.Path(asked.report), systems(asked.sockudo or "sockudo"), report.kept(KEPT))
    failed = [name for name, (found, _) in results.items() if name.startswith("tavern") and any(
        score.ghosts or score.false_offlines or score.flaps for score in found.values())]
    sys.exit(f"not true: {', '.join(failed)}" if failed else 0)


main()
