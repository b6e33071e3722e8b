"""python3 tools/judge FILE: checks every guarantee on a recorded history. Exits with 1 if one was violated."""
import argparse
import dataclasses
import json
import pathlib
import sys

# Run by its folder, the program is not part of a package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from judge import GUARANTEES, judge, read  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="tools/judge", description=__doc__)
    parser.add_argument("history", nargs="?", help="JSON lines; see tools/judge/README.md; a name that ends with .gz is unpacked")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each guarantee")
    parser.add_argument("--list", action="store_true", help="print the guarantees, each with its sentence")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(f"{name}\n    {sentence}" for name, sentence, _ in GUARANTEES))
        return
    if not asked.history:
        parser.error("name a history")
    verdicts = judge(read(asked.history))
    for verdict in verdicts:
        if asked.json:
            print(json.dumps(dataclasses.asdict(verdict)))
            continue
        notes = ", ".join(f"{what}: {count}" for what, count in verdict.notes.items())
        print(f"{'ok ' if not verdict.violations else 'NOT'} {verdict.name}: {verdict.checked:,} checked, "
              f"{len(verdict.violations)} violations{f' ({notes})' if notes else ''}")
        for what in verdict.violations[:20]:
            print(f"      {what[:1000]}")
    sys.exit(1 if any(verdict.violations for verdict in verdicts) else 0)


if __name__ == "__main__":
    main()
