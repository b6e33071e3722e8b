"""Channel messages: at most once, in the order of each speaker, and every hole is announced.

A session's window on a channel begins with the reply to its subscribe. Inside it every acknowledged word is heard, or a `gap`
about the channel stands between the words around the hole. `resumed:false` announces everything of the session before it.
One loss cannot be announced by anybody and is counted instead: the last words of a server that was killed, after which nothing of
that process reached the listener on that channel.
"""
import bisect
import fnmatch

from . import Verdict


def sessions(log):
    """A client's history cut into its sessions: (entries, whether it was still open at the end)."""
    cut = [at for at, entry in enumerate(log) if entry[1] == "session" and entry[5]]
    return [(log[a:b], b == len(log)) for a, b in zip(cut, cut[1:] + [len(log)])]


def mailboxes_have_no_holes(clients):
    """The numbers of a session's events count by one; only a `gap {from, to}` stands for several."""
    verdict = Verdict("mailbox numbers count by one")
    for client in clients:
        for entries, _ in sessions(client.log):
            last = 0
            for entry in entries:
                if entry[1] not in ("message", "gap", "told"):
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
    """What one session heard of one channel."""

    def __init__(self, began, at):
        self.began, self.at = began, at
        # By life: numbers and their places in the history. Places of gaps. By (node, process): the last place of its words.
        self.heard, self.gaps, self.last = {}, [], {}


def windows(entries, lives):
    """By channel. A pattern's window is that of every channel that matches."""
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
            numbers, places = window.heard.setdefault(of, ([], []))
            numbers.append(number)
            places.append(at)
            if of in lives:
                window.last[lives[of].node, lives[of].process] = at
        elif kind == "gap":
            for channel, window in found.items():
                if entry[3] in (None, channel) and (entry[4] is None or fnmatch.fnmatchcase(channel, entry[4])):
                    window.gaps.append(at)
            for pattern, window in patterns.items():
                if entry[3] is None and entry[4] in (None, pattern) and not (window.gaps and window.gaps[-1] == at):
                    window.gaps.append(at)
    return found


def words_come_once_and_in_order(clients, lives):
    verdict = Verdict("a word comes once, in its speaker's order")
    lives = {life.of: life for life in lives}
    for client in clients:
        for entries, _ in sessions(client.log):
            for channel, window in windows(entries, lives).items():
                for of, (numbers, _) in window.heard.items():
                    verdict.looked_at += len(numbers)
                    for a, b in zip(numbers, numbers[1:]):
                        if b <= a:
                            verdict.broken(f"{client.name} heard {of} {b} after {a} on {channel}")
    return verdict


def every_hole_is_announced(clients, lives, kills):
    """`kills`: (node, process) that were killed."""
    verdict = Verdict("no acknowledged word is lost without a gap")
    by_channel, named = {}, {life.of: life for life in lives}
    for life in lives:
        by_channel.setdefault(life.channel, []).append(life)
    for client in clients:
        for entries, open_at_end in sessions(client.log):
            for channel, window in windows(entries, named).items():
                for life in by_channel.get(channel, ()):
                    check_life(verdict, client, window, life, open_at_end, entries, kills)
    return verdict


def check_life(verdict, client, window, life, open_at_end, entries, kills):
    numbers, places = window.heard.get(life.of, ([], []))
    if not numbers and not open_at_end:
        # Nothing of it came before the session was lost, which was said.
        return
    heard = set(numbers)
    last_known = float("inf") if open_at_end else numbers[-1]
    for number, sent, acknowledged in life.words:
        if acknowledged is None or sent <= window.began or number > last_known:
            continue
        verdict.looked_at += 1
        if number in heard:
            continue
        next_one = bisect.bisect_left(numbers, number)
        before = places[next_one - 1] if next_one else window.at
        after = places[next_one] if next_one < len(places) else len(entries)
        process = life.node, life.process
        is_last = next_one == len(places) and window.last.get(process, -1) <= before
        if any(before < gap < after for gap in window.gaps):
            verdict.note("announced as a gap")
        elif process in kills and is_last:
            verdict.note("last words of a killed server")
        else:
            verdict.broken(f"{client.name} never heard {life.of} {number} on {life.channel} ({life.node}), and no gap was told")
