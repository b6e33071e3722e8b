"""Writes what happened in a run as a history that `tools/judge` reads (format: tools/judge/README.md)."""
import gzip
import json

from .client import members
from .cluster import LEASE
from .fact import UNWRITTEN

BACK_WITHIN = 6.0
# How late this machine may be under the load.
SLACK = 1.5


def write(path, cluster, load, read, servers):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8") as out:
        for line in lines(cluster, load, read, servers):
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def lines(cluster, load, read, servers):
    yield {"what": "run", "format": 1, "system": "tavern", "combination": cluster.combination, "seed": load.seed, "lease": LEASE,
           "back_within": BACK_WITHIN, "slack": SLACK, "unwritten": UNWRITTEN}
    yield from of_harness(cluster)
    for run in [*load.runs, *load.history_runs]:
        for number, sent, acknowledged in run.messages:
            yield {"at": sent, "what": "publish", "of": run.of, "channel": run.channel, "server": run.node, "process": run.process,
                   "number": number, "acknowledged": acknowledged, "position": run.positions.get(number)}
    for client in load.clients:
        for when, kind, *entry in client.log:
            yield {**of_client(kind, entry), "at": when, "who": client.name}
    yield from of_end(load, read, servers)


def of_harness(cluster):
    for fault, began, ended in cluster.happened:
        servers = [node.name for node in cluster.nodes] if fault.target in ("all", *cluster.engines, "store") else [fault.target]
        effect = {"node kill": "killed", "node long pause": "suspended past its lease"}.get(fault.kind, "")
        yield {"at": began, "until": ended, "what": "fault", "kind": fault.kind, "servers": servers, "effect": effect}
    for node in cluster.nodes:
        yield from ({"at": when, "what": "killed", "server": node.name, "process": run} for run, when in node.kills)
    # Only Redis may lose what it acknowledged last.
    yield from ({"at": when, "what": "store_killed"} for kind, when in cluster.engine_kills if kind == cluster.store == "redis")
    yield from ({"at": when, "what": "late", "seconds": late} for when, late in cluster.lates)


FIELDS = {
    "message": ("seq", "channel", "of", "number"), "stored": ("seq", "channel", "of", "number", "position"),
    "position": ("channel", "since", "position", "recovered"), "gap": ("seq", "channel", "pattern", "from"),
    "refused": ("op", "code", "retry_after_ms"), "hang": ("op", "server", "seconds", "began"), "follows": ("user",),
    "unfollowed": ("user",), "session": ("client", "server", "process", "fresh"),
}


def of_client(kind, entry):
    if kind == "event":
        seq, frame = entry
        return {**frame, "what": frame["event"], "seq": seq}
    if kind == "subscribed":
        channel, snapshot = entry
        return {"what": kind, "channel": channel, "members": versioned(snapshot)}
    if kind == "who":
        channel, snapshot, known = entry
        return {"what": kind, "channel": channel, "members": versioned(snapshot), "known": known}
    return {"what": "message" if kind == "stored" else kind, **dict(zip(FIELDS.get(kind, ()), entry))}


def versioned(snapshot):
    return snapshot and {"version": snapshot["version"], "users": members(snapshot)}


def of_end(load, read, servers):
    for channel, users in load.presence().items():
        yield {"what": "truth", "channel": channel, "users": users}
    for (server, channel), snapshot in servers.items():
        yield {"what": "shows", "server": server, "channel": channel, "users": members(snapshot)}
    for canary in load.canaries:
        yield {"what": "canary", "server": canary.pinned.name, "client": canary.name}
    for key, fact in load.facts.known.items():
        values = [[when if when > 0 else None, value] for when, value in fact.acknowledged]
        yield {"what": "fact", "key": " ".join(key), "values": values, "doubt": fact.doubt, "read": read.get(key, {})}
    for asked, answered, user, value in load.service.seen:
        yield {"what": "last_seen", "at": answered, "asked": asked, "user": user, "value": value}
    for (follower, user), (online, channels) in load.statuses().items():
        yield {"what": "true_status", "follower": follower, "user": user, "online": online, "channels": channels}
