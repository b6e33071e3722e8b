"""A recorded history: what every client did and saw, what the harness did to the servers, and the state at the end.

The file has one JSON object per line (see README.md). The lines of one client are in the order in which it saw them.
"""
import collections
import dataclasses
import gzip
import itertools
import json

FORMAT = 1
# Lines that are parsed together: they share the names of their fields in memory.
TOGETHER = 2_000


@dataclasses.dataclass
class PublisherRun:
    """The messages of one publisher on one connection: they are ordered."""

    of: str
    channel: str
    server: str
    process: int
    # (number, when sent, when acknowledged or None, position in the history of the channel or None)
    messages: list


class History:
    def __init__(self, lines):
        self.run, self.runs = {}, {}
        # By client, and by kind for lines without a client.
        self.clients, self.kinds = collections.defaultdict(list), collections.defaultdict(list)
        for line in lines:
            self._add(line)
        if self.run.get("format") != FORMAT:
            raise ValueError(f"the first line must be a `run` with \"format\": {FORMAT}")

    def _add(self, line):
        what = line["what"]
        if what == "run":
            self.run = line
        elif what == "publish":
            run = self.runs.get(line["of"])
            if run is None:
                run = self.runs[line["of"]] = PublisherRun(line["of"], line["channel"], line["server"], line["process"], [])
            run.messages.append((line["number"], line["at"], line["acknowledged"], place(line.get("position"))))
        elif "who" in line:
            self.clients[line["who"]].append(line)
        else:
            self.kinds[what].append(line)

    def of(self, what):
        return self.kinds[what]

    @property
    def store_losses(self):
        """When a store was killed that may lose what it acknowledged last."""
        return [line["at"] for line in self.of("store_killed")]

    def lost(self, when):
        """Whether what was acknowledged at this time may be lost with the last moment of a killed store."""
        return any(killed - self.run["unwritten"] < when < killed for killed in self.store_losses)

    def undisturbed_faults(self, effect, before, after):
        """The faults with this effect that no other fault overlaps: not from `before` seconds before it begins until `after`."""
        faults = self.of("fault")
        for fault in faults:
            began, ended = fault["at"] - before, after(fault)
            if fault["effect"] == effect and not any(
                    other is not fault and other["at"] < ended and other["until"] > began for other in faults):
                yield fault


def place(position):
    """A position in the history of a channel: epoch and offset."""
    return tuple(position) if position is not None else None


def sessions(lines):
    """Splits a client's lines into sessions: (lines, whether it was still open at the end)."""
    cut = [at for at, line in enumerate(lines) if is_new_session(line)]
    return [(lines[a:b], b == len(lines)) for a, b in zip(cut, cut[1:] + [len(lines)])]


def is_new_session(line):
    return line["what"] == "session" and line["fresh"]


def read(path):
    """Reads a history; a name that ends with .gz is unpacked."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return History(parse(file))


def parse(file):
    while part := list(itertools.islice(file, TOGETHER)):
        yield from json.loads("[" + ",".join(line for line in part if line.strip()) + "]")
