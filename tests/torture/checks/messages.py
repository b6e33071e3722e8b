"""Channel messages: at most once, in the order of each publisher, and every loss is announced.

A session's window on a channel starts with the reply to its subscribe. Inside it every acknowledged message arrives, or a `gap`
for the channel is between the messages around the loss. `resumed:false` announces the loss of the whole previous session.
One loss cannot be announced and is counted instead: the last messages of a killed server, after which nothing of that process
reached the subscriber on that channel.
"""
import bisect
import fnmatch

from . import Verdict


def sessions(log):
    """Splits a client's history into sessions: (entries, whether it was still open at the end)."""
    cut = [at for at, entry in enumerate(log) if entry[1] == "session" and entry[5]]
    return [(log[a:b], b == len(log)) for a, b in zip(cut, cut[1:] + [len(log)])]


def mailboxes_have_no_losses_of(clients):
    """The seqs of a session increase by one; only a `gap {from, to}` covers several."""
    verdict = Verdict("mailbox seqs have no gaps")
    for client in clients:
        for entries, _ in sessions(client.log):
            last = 0
            for entry in entries:
                if entry[1] not in ("message", "stored", "gap", "event"):
                    continue
                seq = entry[2]
                if seq is None:
                    last = None
                    continue
                first = entry[5] if entry[1] == "gap" and entry[5] is not None else seq
                verdict.looked_at += 1
                if last is not None and first != last + 1:
                    verdict.broken(f"{client.name}: {entry[1]} {seq} after {last}")
                last = seq
    return verdict


class Window:
    """What one session received on one channel."""

    def __init__(self, began, at):
        self.began, self.at = began, at
        # By run: numbers and their positions in the history. Positions of gaps. By (node, process): position of its last message.
        self.received, self.gaps, self.last = {}, [], {}


def windows(entries, runs):
    """By channel. A pattern opens a window for every matching channel."""
    found, patterns = {}, {}
    for at, entry in enumerate(entries):
        kind = entry[1]
        if kind == "subscribed":
            begun = patterns if "*" in entry[2] else found
            begun.setdefault(entry[2], Window(entry[0], at))
        elif kind == "message":
            _, _, _, channel, of, number = entry
            window = found.get(channel)
            if window is None:
                pattern = next((name for name in patterns if fnmatch.fnmatchcase(channel, name)), None)
                if pattern is None:
                    continue
                window = found[channel] = Window(patterns[pattern].began, patterns[pattern].at)
                window.gaps = patterns[pattern].gaps
            numbers, places = window.received.setdefault(of, ([], []))
            numbers.append(number)
            places.append(at)
            if of in runs:
                window.last[runs[of].node, runs[of].process] = at
        elif kind == "gap":
            for channel, window in found.items():
                if entry[3] in (None, channel) and (entry[4] is None or fnmatch.fnmatchcase(channel, entry[4])):
                    window.gaps.append(at)
            for pattern, window in patterns.items():
                if entry[3] is None and entry[4] in (None, pattern) and not (window.gaps and window.gaps[-1] == at):
                    window.gaps.append(at)
    return found


def messages_arrive_once_and_in_order(clients, runs):
    verdict = Verdict("a message arrives once, in its publisher's order")
    runs = {run.of: run for run in runs}
    for client in clients:
        for entries, _ in sessions(client.log):
            for channel, window in windows(entries, runs).items():
                for of, (numbers, _) in window.received.items():
                    verdict.looked_at += len(numbers)
                    for a, b in zip(numbers, numbers[1:]):
                        if b <= a:
                            verdict.broken(f"{client.name} received {of} {b} after {a} on {channel}")
    return verdict


def every_loss_is_announced(clients, runs, kills):
    """`kills`: (node, process) that were killed."""
    verdict = Verdict("no acknowledged message is lost without a gap")
    by_channel, named = {}, {run.of: run for run in runs}
    for run in runs:
        by_channel.setdefault(run.channel, []).append(run)
    for client in clients:
        for entries, open_at_end in sessions(client.log):
            for channel, window in windows(entries, named).items():
                for run in by_channel.get(channel, ()):
                    check_run(verdict, client, window, run, open_at_end, entries, kills)
    return verdict


def check_run(verdict, client, window, run, open_at_end, entries, kills):
    numbers, places = window.received.get(run.of, ([], []))
    if not numbers and not open_at_end:
        # Nothing arrived before the session was lost, which was announced.
        return
    received = set(numbers)
    last_known = float("inf") if open_at_end else numbers[-1]
    for number, sent, acknowledged in run.messages:
        if acknowledged is None or sent <= window.began or number > last_known:
            continue
        verdict.looked_at += 1
        if number in received:
            continue
        next_one = bisect.bisect_left(numbers, number)
        before = places[next_one - 1] if next_one else window.at
        after = places[next_one] if next_one < len(places) else len(entries)
        process = run.node, run.process
        is_last = next_one == len(places) and window.last.get(process, -1) <= before
        if any(before < gap < after for gap in window.gaps):
            verdict.note("announced as a gap")
        elif process in kills and is_last:
            verdict.note("last messages of a killed server")
        else:
            verdict.broken(f"{client.name} never received {run.of} {number} on {run.channel} ({run.node}), without a gap")
