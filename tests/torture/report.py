"""The report: one table for each combination, with the command to repeat the run. Tables of combinations that did not run stay as
they were."""
import datetime
import pathlib
import re

HEAD = """# Torture

Fault injection: three servers (release build) under the load of a few hundred clients, while a seeded schedule kills, pauses and
restarts servers and engines, cuts, blackholes, delays and slows the connections between them, sets clocks, and fills the disk of the
store. Others flood, and use credentials that have expired or were revoked.
Every client records what it receives; afterwards an independent judge checks each guarantee over this history (`tools/judge`).
Written by `make torture`; see `scripts/torture --help` for options.
"""


def table(result):
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    again = f"scripts/torture --combination {result.combination} --seconds {result.seconds:.0f} --seed {result.seed}"
    lines = [f"## {result.combination}", "",
             f"{result.seconds:.0f} s of faults, seed {result.seed}, {when}; "
             f"settled {result.settled_after:.1f} s after the last fault.",
             f"**{result.violations or 'No'} violation{'s' if result.violations != 1 else ''}.** Repeat: `{again}`", "",
             "| faults | |", "|---|---|",
             *[f"| {kind} | {count} |" for kind, count in sorted(result.faults.items())],
             *[f"| left out | {what} |" for what in result.left_out], "",
             "| operations | |", "|---|---|",
             *[f"| {kind} | {count:,} |" for kind, count in sorted(result.operations.items())], "",
             "| guarantee | checked | violations | allowed exceptions |", "|---|---|---|---|"]
    for verdict in result.verdicts:
        notes = ", ".join(f"{what}: {count}" for what, count in sorted(verdict.notes.items()))
        lines.append(f"| {verdict.name} | {verdict.checked:,} | {len(verdict.violations)} | {notes} |")
    return "\n".join(lines) + "\n"


def sections(text):
    """The sections of a report by combination."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return {part.split("\n", 1)[0].removeprefix("## ").strip(): part.rstrip() + "\n" for part in parts if part.startswith("## ")}


def write(path, results):
    path = pathlib.Path(path)
    known = sections(path.read_text()) if path.exists() else {}
    known |= {result.combination: table(result) for result in results}
    path.write_text("\n".join([HEAD, *(known[name] for name in sorted(known, reverse=True))]))
