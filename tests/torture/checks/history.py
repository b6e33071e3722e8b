"""Channel history: the same messages in the same order for everyone, without a hole or a duplicate, through every fault.

Nothing expires during a run, so everything after a position can be recovered. `losses`: times at which a store was killed that may
lose its last second; a history that is shorter afterwards reuses offsets, which is announced by a gap or `recovered: false`.
"""
from ..fact import UNWRITTEN
from . import Verdict

# A client returns within seconds, and then learns that its position is gone.
EXCUSED = 30.0


def follows(known, position):
    """Whether a message is the next one: of the same epoch, or the first of a later one."""
    return position == (known[0], known[1] + 1) or (position[0] > known[0] and position[1] == 1)


def continues(since, position):
    """Whether nothing is missing between both. (0, 0) is the position before the first message of any epoch."""
    return position == since or (since == (0, 0) and position[1] == 0)


def messages_follow_each_other(clients, losses=()):
    verdict = Verdict("channels with history: no hole, no duplicate")
    for client in clients:
        known, gap = {}, set()
        for when, kind, *entry in client.log:
            if kind == "session" and entry[3]:
                # Until a subscribe of the new session is answered, its position is not known.
                known.clear()
            elif kind == "position":
                channel, since, position, recovered = entry
                verdict.looked_at += 1
                if recovered is True and not continues(since, position):
                    verdict.broken(f"{client.name} has {since} of {channel}, and continues after {position}")
                if recovered is False:
                    excuse(verdict, losses, when, f"{client.name} cannot recover {channel} after {since}; it is at {position}")
                known[channel] = position
                gap.discard(channel)
            elif kind == "gap":
                _, channel, _, first = entry
                if channel in known:
                    excuse(verdict, losses, when, f"{client.name} got a gap on {channel} at {known[channel]}")
                    gap.add(channel)
                elif channel is None and first is None:
                    # The session was reset: it subscribes again.
                    known.clear()
            elif kind == "stored":
                _, channel, of, number, position = entry
                if channel not in known:
                    # Unread events of a session whose position is not known yet.
                    continue
                verdict.looked_at += 1
                if not follows(known[channel], position) and not (channel in gap and position > known[channel]):
                    verdict.broken(f"{client.name} received {of} {number} at {position} of {channel} after {known[channel]}")
                known[channel] = position
                gap.discard(channel)
    return verdict


def excuse(verdict, losses, when, what):
    """A loss is allowed soon after the kill of a store that may lose its last second."""
    if any(killed < when < killed + EXCUSED for killed in losses):
        verdict.note("after the loss of a store's last second")
    else:
        verdict.broken(what)


def all_clients_have_the_same_history(clients, runs, losses=()):
    verdict = Verdict("channels with history: one order for all, as acknowledged")
    claims = {}
    for run in runs:
        times = {number: acknowledged for number, _, acknowledged in run.messages}
        for number, position in run.positions.items():
            claims.setdefault((run.channel, position), []).append((times[number], "its publisher", (run.of, number)))
    for client in clients:
        for when, kind, *entry in client.log:
            if kind == "stored":
                _, channel, of, number, position = entry
                claims.setdefault((channel, position), []).append((when, client.name, (of, number)))
    for (channel, position), said in claims.items():
        verdict.looked_at += 1
        if len({message for _, _, message in said}) == 1:
            continue
        first = min(when for when, _, _ in said)
        if any(first < killed < first + UNWRITTEN for killed in losses):
            verdict.note("offsets used again after the loss of a store's last second")
        else:
            verdict.broken(f"{position} of {channel} is {sorted({(who, message) for _, who, message in said})[:4]}")
    return verdict


def clients_have_everything_at_the_end(clients, runs, losses=()):
    verdict = Verdict("channels with history: every acknowledged message arrives")
    last = {}
    for run in runs:
        for number, _, acknowledged in run.messages:
            position = run.positions.get(number)
            if position is None:
                continue
            if any(acknowledged < killed < acknowledged + UNWRITTEN for killed in losses):
                verdict.note("acknowledged just before the kill of a store")
                continue
            last[run.channel] = max(last.get(run.channel, (0, 0)), position)
    for client in clients:
        for channel, position in last.items():
            verdict.looked_at += 1
            if client.positions.get(channel, (0, 0)) < position:
                verdict.broken(f"{client.name} is at {client.positions.get(channel)} of {channel}, which ends at {position}")
    return verdict
