"""Compares what watchers were told with what really happened.

Must hold: this file reads only the record and the bounds; it knows no system.
"""
import dataclasses
import itertools

# How long a watcher may take to learn that a user has come, before it counts as a false offline.
SETTLE = 3.0
# Beyond the documented bound: a busy machine is late.
SLACK = 1.5
# A client is connected a moment before it says so.
EARLY = 1.0
# A user who was away for less than this was never gone: showing it is a flap.
AWAY = 5.0


@dataclasses.dataclass
class Score:
    """Ghosts in user-seconds beyond the bound, false offlines and flaps in number, times in seconds."""

    ghosts: float = 0.0
    false_offlines: int = 0
    flaps: int = 0
    duplicates: int = 0
    online: list = dataclasses.field(default_factory=list)
    offline: list = dataclasses.field(default_factory=list)
    pairs: int = 0
    cpu: float = 0.0
    # The first of each kind, for people.
    examples: list = dataclasses.field(default_factory=list)

    def example(self, what):
        if len(self.examples) < 40:
            self.examples.append(what)


def intervals(timeline, end):
    """(began, ended, value, cause) of a timeline."""
    for (at, value, cause), (after, _, _) in itertools.pairwise([*timeline, (end, None, None)]):
        if after > at:
            yield at, after, value, cause


def known(told, connected, end):
    """When a watcher can know: it has a snapshot, has not lost its connection since, and had a moment after a fault of its own."""
    downs = sorted(at for at, what, _ in told if what == "down")
    windows, known_until = [], float("-inf")
    for at, what, _ in sorted(told, key=lambda line: line[0]):
        if what == "snapshot" and at >= known_until:
            known_until = next((down for down in downs if down > at), end)
            windows.append((at, known_until))
    found, first = [], True
    for began, ended, up, _ in intervals(connected, end):
        if up:
            found += overlap(began if first else began + SETTLE, ended, windows)
            first = False
    return found


def views(told, users):
    """What a watcher shows: the timeline of each user, and the events that changed nothing."""
    shown, repeated = {user: [] for user in users}, []
    for at, what, about in told:
        if what == "snapshot":
            changes = [(user, user in about, None) for user in users]
        elif what in ("online", "offline") and about in shown:
            changes = [(about, what == "online", what)]
        else:
            continue
        for user, value, event in changes:
            last = shown[user][-1][1] if shown[user] else False
            if last != value:
                shown[user].append((at, value, event))
            elif event:
                repeated.append((at, user, event))
    return shown, repeated


def overlap(began, ended, windows):
    for a, b in windows:
        if min(b, ended) > max(a, began):
            yield max(a, began), min(b, ended)


def judge(record, room, bounds, began, end):
    """The score of one room between two times. `bounds`: seconds after which a user must be shown offline, by cause."""
    score = Score()
    truth = {user: timeline for (at, user), timeline in record.users.items() if at == room}
    for watcher, connected in record.watchers.items():
        if record.clients[watcher].room != room:
            continue
        told = [(at, what, about) for one, at, what, about in record.told if one == watcher]
        windows = [(a, b) for a, b in overlap(began, end, known(told, connected, end))]
        shown, repeated = views(told, truth)
        for at, user, event in repeated:
            if any(a <= at <= b for a, b in windows):
                score.duplicates += 1
                score.example(f"{watcher}: {user} {event} twice at {at - began:.1f} s")
        for user, timeline in truth.items():
            score.pairs += 1
            judge_pair(score, f"{watcher} about {user}", timeline, shown[user], windows, bounds, began, end)
    return score


def judge_pair(score, who, truth, shown, windows, bounds, began, end):
    shows = list(intervals([(began - 1e6, False, None), *shown], end))
    for at, until, connected, cause in intervals(truth, end):
        allowed = at + (SETTLE if connected else bounds[cause] + SLACK)
        # Only the last interval has no change after it.
        last = until if connected or until == end else until - EARLY
        for since, still, value, _ in shows:
            for a, b in overlap(max(since, allowed), min(still, last), windows):
                # A watcher that has just come back shows what it knew before, until its snapshot.
                if value == connected or b - a < 0.05:
                    continue
                if connected:
                    score.false_offlines += 1
                    score.example(f"{who}: offline from {a - began:.1f} to {b - began:.1f} s though connected")
                else:
                    score.ghosts += b - a
                    score.example(f"{who}: a ghost from {a - began:.1f} to {b - began:.1f} s ({cause} at {at - began:.1f} s)")
        if began <= at and any(a <= at <= b for a, b in windows):
            late = next((since for since, still, value, _ in shows if value == connected and still > at), None)
            # A watcher that already shows what is true has nothing to learn.
            if late is not None and at < late < until:
                (score.online if connected else score.offline).append(late - at)
    judge_flaps(score, who, truth, shown, windows, began, end)


def judge_flaps(score, who, truth, shown, windows, began, end):
    for (gone, value, event), (back, _, _) in itertools.pairwise(shown):
        if value or event is None or not any(a <= gone <= b for a, b in windows):
            continue
        away = [min(until, back) - at for at, until, connected, _ in intervals(truth, end) if not connected and at <= back and until >= gone - 30]
        if max(away, default=0.0) < AWAY and any(connected and at <= gone for at, connected, _ in truth):
            score.flaps += 1
            score.example(f"{who}: offline at {gone - began:.1f} and online at {back - began:.1f} s, away for {max(away, default=0):.1f} s")


def together(scores):
    total = Score()
    for score in scores:
        for field in ("ghosts", "false_offlines", "flaps", "duplicates", "online", "offline", "pairs", "cpu", "examples"):
            setattr(total, field, getattr(total, field) + getattr(score, field))
    return total


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else None
