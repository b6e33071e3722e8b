"""Channels with history.

Nothing expires during a run, so everything after a position can be recovered. A store that may lose its last moment when it is killed
may have a shorter history afterwards and use offsets again; a gap or `recovered: false` announces that.
"""
from .history import is_new_session, place
from .verdict import guarantee

# A client returns within seconds, and then learns that its position is gone.
EXCUSED = 30.0
# Before the first message of any epoch.
START = (0, 0)


def follows(known, position):
    """Whether a message is the next one: of the same epoch, or the first of a later one."""
    return position == (known[0], known[1] + 1) or (position[0] > known[0] and position[1] == 1)


@guarantee("no hole and no duplicate for a client that recovers from its last position, or `recovered: false`")
def stored_messages_follow_each_other(history, verdict):
    for client, lines in history.clients.items():
        known, gaps = {}, set()
        for line in lines:
            what, channel, position = line["what"], line.get("channel"), place(line.get("position"))
            if is_new_session(line):
                # Until a subscribe of the new session is answered, its position is not known.
                known.clear()
            elif what == "position":
                since, recovered = place(line["since"]), line["recovered"]
                verdict.checked += 1
                if recovered and position != since and not (since == START and position[1] == 0):
                    verdict.broken(f"{client} has {since} of {channel}, and continues after {position}")
                if recovered is False:
                    excuse(history, verdict, line["at"], f"{client} cannot recover {channel} after {since}; it is at {position}")
                known[channel] = position
                gaps.discard(channel)
            elif what == "gap" and channel in known:
                excuse(history, verdict, line["at"], f"{client} got a gap on {channel} at {known[channel]}")
                gaps.add(channel)
            elif what == "gap" and channel is None and line.get("from") is None:
                # The session was reset: it subscribes again.
                known.clear()
            elif what == "message" and position and channel in known:
                verdict.checked += 1
                if not follows(known[channel], position) and not (channel in gaps and position > known[channel]):
                    verdict.broken(f"{client} received {line['of']} {line['number']} at {position} of {channel} after {known[channel]}")
                known[channel] = position
                gaps.discard(channel)


def excuse(history, verdict, when, what):
    """A loss is allowed soon after the kill of a store that may lose its last moment."""
    if any(killed < when < killed + EXCUSED for killed in history.store_losses):
        verdict.note("after the loss of a store's last second")
    else:
        verdict.broken(what)


@guarantee("to every subscriber in the order of its offset, at least once within the retained range by position")
def stored_messages_have_one_order_for_all(history, verdict):
    claims = {}
    for run in history.runs.values():
        for number, _, acknowledged, position in run.messages:
            if position:
                claims.setdefault((run.channel, position), []).append((acknowledged, "its publisher", (run.of, number)))
    for client, lines in history.clients.items():
        for line in lines:
            if line["what"] == "message" and "position" in line:
                claims.setdefault((line["channel"], place(line["position"])), []).append(
                    (line["at"], client, (line["of"], line["number"])))
    for (channel, position), said in claims.items():
        verdict.checked += 1
        if len({message for _, _, message in said}) == 1:
            continue
        if history.lost(min(when for when, _, _ in said)):
            verdict.note("offsets used again after the loss of a store's last second")
        else:
            verdict.broken(f"{position} of {channel} is {sorted({(who, message) for _, who, message in said})[:4]}")


@guarantee("stored before the publisher is answered")
def acknowledged_stored_messages_reach_everybody(history, verdict):
    ends = {}
    for run in history.runs.values():
        for _, _, acknowledged, position in run.messages:
            if position and history.lost(acknowledged):
                verdict.note("acknowledged just before the kill of a store")
            elif position:
                ends[run.channel] = max(ends.get(run.channel, START), position)
    for client, lines in history.clients.items():
        at = {line["channel"]: place(line["position"]) for line in lines if "position" in line}
        for channel in at.keys() & ends.keys():
            verdict.checked += 1
            if at[channel] < ends[channel]:
                verdict.broken(f"{client} is at {at[channel]} of {channel}, which ends at {ends[channel]}")
