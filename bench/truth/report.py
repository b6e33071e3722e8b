"""Writes bench/TRUTH.md: a table for each score, a plot, and how it was measured."""
import dataclasses
import datetime
import html
import json
import os
import pathlib
import subprocess
import time

from . import scenarios, scores


def keep(folder, system, found, left_out):
    """Keeps the results of one system; those of others stay as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {"name": system.name, "when": time.time(), "load": os.getloadavg()[2], "build": build(), "left_out": left_out,
            "found": {name: dataclasses.asdict(score) for name, score in found.items()}}
    (folder / f"{system.name.replace(' ', '-')}.json").write_text(json.dumps(text))


def kept(folder):
    """By system: scores by scenario, what was left out, when, the load of the machine, and the build of Tavern."""
    texts = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {text["name"]: ({name: scores.Score(**score) for name, score in text["found"].items()}, text["left_out"], text["when"], text["load"],
                           text["build"])
            for text in texts}


def build():
    """The commit and the profile of Tavern."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{commit} ({pathlib.Path(os.environ['TAVERN_BIN']).parent.name})"


def line(score):
    return (f"ghosts {score.ghosts:.1f} s, false offlines {score.false_offlines}, flaps {score.flaps}, duplicates {score.duplicates}, "
            f"came {times(score.online)}, gone {times(score.offline)}, CPU {score.cpu:.1f} s ({score.pairs} pairs of watcher and user)")


def times(values):
    if not values:
        return "–"
    return f"{scores.percentile(values, 0.5):.2f} / {scores.percentile(values, 0.99):.2f}"


HEAD = """# How true is presence?

Users join rooms through real clients. Then tabs close, cables are cut, and servers, bus and store fail. A judge that knows what
really happened compares it with what every watcher was told. Written by `make truth`; the judge is `bench/truth/scores.py`.

A user is **connected** while one of their clients is: its process runs, packets pass on its cable, and it has a connection to a server
that runs and is not suspended, by the harness's own record.

- **Ghosts**: user-seconds for which a watcher shows a user who is gone, beyond the documented bound (and {slack} s for the machine).
- **False offlines**: how often a watcher shows a user as offline who has been connected for {settle:.0f} s.
- **Flaps**: offline and online events about a user who was away for less than {away:.0f} s.
- **Duplicates**: events that change nothing.
- **Time to truth**: from the moment when a user comes or goes to the event at the watcher, p50 / p99 in seconds. A user counts as gone
  only after a grace period, which the settings choose.
- **CPU**: seconds of processor time of servers and engines during all scenarios; a process that ended is not counted.

A watcher is not judged while it has no connection itself.
"""


def write(path, systems, measured):
    """`measured`: by system, as `kept` returns it; written in the order of `systems`."""
    measured = {name: measured[name] for name in systems if name in measured}
    results = {name: (found, left_out) for name, (found, left_out, *_) in measured.items()}
    text = [HEAD.format(slack=scores.SLACK, settle=scores.SETTLE, away=scores.AWAY), "## In all scenarios", "",
            "| system | ghosts, user-seconds | false offlines | flaps | duplicates | came, p50 / p99 s | gone, p50 / p99 s | CPU, s |",
            "|---|---|---|---|---|---|---|---|"]
    when = [datetime.datetime.fromtimestamp(when, datetime.timezone.utc) for _, _, when, *_ in measured.values()]
    loads = [load for _, _, _, load, _ in measured.values()]
    builds = sorted({build for name, (*_, build) in measured.items() if name.startswith("tavern")})
    text.insert(1, f"Measured from {min(when):%Y-%m-%d %H:%M} to {max(when):%Y-%m-%d %H:%M} UTC on {os.cpu_count()} cores, with a load of "
                f"{min(loads):.0f} to {max(loads):.0f} (on an idle machine 1 to 2). "
                f"Tavern: {', '.join(builds)}.\n")
    totals = {name: scores.together(found.values()) for name, (found, _) in results.items()}
    for name, total in totals.items():
        text.append(f"| {name} | {total.ghosts:.0f} | {total.false_offlines} | {total.flaps} | {total.duplicates} | {times(total.online)} | "
                    f"{times(total.offline)} | {total.cpu:.1f} |")
    text += ["", "![Ghosts, false offlines and flaps of each system](plots/truth.svg)", ""]
    for title, cell in (("Ghosts, user-seconds", lambda score: f"{score.ghosts:.0f}"), ("False offlines", lambda score: score.false_offlines),
                        ("Flaps", lambda score: score.flaps), ("Duplicates", lambda score: score.duplicates),
                        ("Time until a user who came is shown, p50 / p99 s", lambda score: times(score.online)),
                        ("Time until a user who is gone is shown so, p50 / p99 s", lambda score: times(score.offline))):
        text += [f"## {title}", "", "| scenario | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
        for name in [*scenarios.CLIENTS, *scenarios.SERVERS]:
            row = [cell(found[name]) if name in found else "" for found, _ in results.values()]
            if any(value != "" for value in row):
                text.append(f"| {name} | " + " | ".join(map(str, row)) + " |")
        text.append("")
    described = {**scenarios.CLIENTS, **scenarios.SERVERS}
    text += ["## Scenarios", "", *[f"- **{name}**: {what}" for name, what in described.items()], ""]
    text += ["In each room three watchers, one on each server. Empty cells were left out:", ""]
    text += [f"- {name}, {scenario}: {why}" for name, (_, left_out) in results.items() for scenario, why in left_out.items()]
    text += ["", "## Settings", "", "| system | servers | engines | settings | bounds: connection lost / cable cut / server dead |",
             "|---|---|---|---|---|"]
    text += [f"| {name} | {systems[name].servers} | {', '.join(sorted(set(systems[name].engines.values()))) or 'SQLite in a folder'} | {systems[name].settings} | "
             f"{' / '.join(f'{systems[name].bounds[cause]} s' for cause in ('lost', 'cut', 'server'))} |" for name in results]
    text += ["", "Systems that document no bound are measured with that of Tavern's settings. Clients reconnect through a balancer with "
             "health checks. Redis has `appendonly yes`; NATS and Postgres have their defaults.", ""]
    worst = [f"- {name}, {scenario}: {score.examples[0]}" for name, (found, _) in results.items()
             for scenario, score in found.items() if score.examples]
    text += ["## The first thing that was wrong", "", *(worst or ["Nothing."]), ""]
    path.write_text("\n".join(text))
    (path.parent / "plots").mkdir(exist_ok=True)
    (path.parent / "plots" / "truth.svg").write_text(plot(totals))


BARS = (("ghosts, user-seconds", "#c0392b", lambda score: score.ghosts), ("false offlines", "#e69f00", lambda score: score.false_offlines),
        ("flaps", "#4477aa", lambda score: score.flaps))


def plot(totals):
    """Three bars for each system; the lengths are square roots, so that one and a thousand are both visible."""
    left, width, bar, gap = 190, 470, 13, 16
    height = 50 + len(totals) * (len(BARS) * bar + gap)
    most = max([1.0, *(value(score) for score in totals.values() for _, _, value in BARS)]) ** 0.5
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    for number, (label, colour, _) in enumerate(BARS):
        out.append(f'<rect x="{left + number * 165}" y="12" width="11" height="11" fill="{colour}"/>'
                   f'<text x="{left + number * 165 + 16}" y="22">{label}</text>')
    y = 42
    for name, score in totals.items():
        out.append(f'<text x="{left - 8}" y="{y + 24}" text-anchor="end">{html.escape(name)}</text>')
        for _, colour, value in BARS:
            length = value(score) ** 0.5 / most * width
            out.append(f'<rect x="{left}" y="{y}" width="{max(length, 1):.1f}" height="{bar - 2}" fill="{colour}"/>'
                       f'<text x="{left + length + 5:.1f}" y="{y + 10}" font-size="10">{value(score):.0f}</text>')
            y += bar
        y += gap
    return "\n".join([*out, "</svg>\n"])
