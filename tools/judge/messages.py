"""Channel messages.

A session's window on a channel starts with the reply to its subscribe. Inside it every acknowledged message arrives, or a `gap` for
the channel is between the messages around the loss. A new session announces the loss of the whole previous one.
"""
import bisect
import fnmatch

from .history import sessions
from .verdict import guarantee


@guarantee("Sequence numbers of a session have no holes: a `gap` names the first that it replaces.")
def sequence_numbers_have_no_holes(history, verdict):
    for client, lines in history.clients.items():
        for session, _ in sessions(lines):
            last = 0
            for line in session:
                if "seq" not in line:
                    continue
                seq, first = line["seq"], line.get("from") if line["what"] == "gap" else None
                verdict.checked += seq is not None
                if None not in (seq, last) and (first or seq) != last + 1:
                    verdict.broken(f"{client}: {line['what']} {seq} after {last}")
                last = seq


class Window:
    """What one session received on one channel."""

    def __init__(self, began, at, gaps):
        self.began, self.at, self.gaps = began, at, gaps
        # By run: numbers and their places in the session. By server process: the place of its last message.
        self.received, self.last = {}, {}


def windows(session, runs):
    """By channel. A pattern opens a window for every matching channel."""
    found, patterns = {}, {}
    for at, line in enumerate(session):
        what, channel = line["what"], line.get("channel")
        if what == "subscribed":
            (patterns if "*" in channel else found).setdefault(channel, Window(line["at"], at, []))
        elif what == "message" and "position" not in line:
            window = found.get(channel)
            if window is None:
                pattern = next((name for name in patterns if fnmatch.fnmatchcase(channel, name)), None)
                if pattern is None:
                    continue
                window = found[channel] = Window(patterns[pattern].began, patterns[pattern].at, patterns[pattern].gaps)
            numbers, places = window.received.setdefault(line["of"], ([], []))
            numbers.append(line["number"])
            places.append(at)
            if run := runs.get(line["of"]):
                window.last[run.server, run.process] = at
        elif what == "gap":
            asked = line.get("pattern")
            for name, window in found.items():
                if channel in (None, name) and (asked is None or fnmatch.fnmatchcase(name, asked)):
                    window.gaps.append(at)
            for name, window in patterns.items():
                if channel is None and asked in (None, name) and not (window.gaps and window.gaps[-1] == at):
                    window.gaps.append(at)
    return found


@guarantee("at most once, in order per publisher and channel, to every subscribed session")
def messages_arrive_once_and_in_order(history, verdict):
    for client, lines in history.clients.items():
        for session, _ in sessions(lines):
            for channel, window in windows(session, history.runs).items():
                for of, (numbers, _) in window.received.items():
                    verdict.checked += len(numbers)
                    for a, b in zip(numbers, numbers[1:]):
                        if b <= a:
                            verdict.broken(f"{client} received {of} {b} after {a} on {channel}")


@guarantee("a session that resumes in time gets what it missed, or a `gap`")
def no_acknowledged_message_is_lost_without_a_gap(history, verdict):
    by_channel = {}
    for run in history.runs.values():
        if all(position is None for *_, position in run.messages):
            by_channel.setdefault(run.channel, []).append(run)
    kills = {(kill["server"], kill["process"]) for kill in history.of("killed")}
    for client, lines in history.clients.items():
        for session, is_open in sessions(lines):
            for channel, window in windows(session, history.runs).items():
                for run in by_channel.get(channel, ()):
                    check_run(verdict, client, window, run, len(session) if is_open else None, kills)


def check_run(verdict, client, window, run, end, kills):
    """`end`: the length of a session that was open at the end of the run."""
    numbers, places = window.received.get(run.of, ([], []))
    if not numbers and end is None:
        # Nothing arrived before the session was lost, which was announced.
        return
    received, last_known = set(numbers), numbers[-1] if end is None else float("inf")
    for number, sent, acknowledged, _ in run.messages:
        if acknowledged is None or sent <= window.began or number > last_known:
            continue
        verdict.checked += 1
        if number in received:
            continue
        following = bisect.bisect_left(numbers, number)
        before = places[following - 1] if following else window.at
        after = places[following] if following < len(places) else end
        process = run.server, run.process
        if any(before < gap < after for gap in window.gaps):
            verdict.note("announced as a gap")
        elif process in kills and following == len(places) and window.last.get(process, -1) <= before:
            # The one loss that cannot be announced: nothing of that process came later.
            verdict.note("last messages of a killed server")
        else:
            verdict.broken(f"{client} never received {run.of} {number} on {run.channel} ({run.server}), without a gap")
