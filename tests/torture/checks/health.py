"""The servers themselves: they do not end by themselves, answer instead of hanging, say when they cannot serve, come back, stay
small, and the death of one is seen by the others in time.
"""
from . import Verdict

MEMORY_BYTES = 600 * 1024 * 1024
# What the machine may be late by under this load.
SLACK = 1.5
BACK_WITHIN = 6.0
# A store that is away this long must show in readiness.
NOTICED_WITHIN = 6.0


def servers_live(nodes, unclean_stops):
    verdict = Verdict("servers end only when told, and cleanly")
    for node in nodes:
        verdict.looked_at += node.life
        for when, code, log in node.crashes:
            verdict.broken(f"{node.name} ended with {code}: {log[-600:]}")
        for line in node.panics():
            verdict.broken(f"{node.name}: {line}")
        if node.failed_starts:
            verdict.note("starts without an engine", node.failed_starts)
    for name, _, code in unclean_stops:
        verdict.broken(f"{name} was asked to stop and ended with {code}")
    return verdict


def every_command_is_answered(answered, hangs, nodes):
    """`answered`: how many were. `hangs`: (what, node, seconds, began). A server that sleeps answers nobody. Of a command whose
    line was lost nothing is known."""
    verdict = Verdict("every command is answered in time", looked_at=answered + len(hangs))
    nodes = {node.name: node for node in nodes}
    for what, name, seconds, began in hangs:
        if nodes[name].slept_during(began, began + seconds):
            verdict.note("server was asleep")
        else:
            verdict.broken(f"{what} at {name} had no answer for {seconds:.0f} s")
    return verdict


def refusals_say_when_to_return(refusals, known):
    """`refusals`: (code, retry_after_ms). Only codes that ask to try again, and `unavailable` says when."""
    verdict = Verdict("a server that cannot says so, and when to try again")
    for code, retry_after_ms in refusals:
        verdict.looked_at += 1
        if code not in known:
            verdict.broken(f"refused with {code}")
        elif code == "unavailable" and retry_after_ms is None:
            verdict.broken("unavailable without a time to try again")
        verdict.note(str(code))
    return verdict


def readiness_tells_the_truth(nodes, outages, ended):
    """`outages`: (node, began, ended) of a store out of reach. After the end everybody is ready."""
    verdict = Verdict("readiness fails without the store and comes back")
    for node in nodes:
        for name, began, over in outages:
            if name != node.name or over - began < NOTICED_WITHIN + 1 or node.slept_during(began, over):
                continue
            looks = [status for when, status in node.looks if began + NOTICED_WITHIN < when < over]
            if looks:
                verdict.looked_at += 1
                if all(status == 200 for status in looks):
                    verdict.broken(f"{node.name} stayed ready though the store was away for {over - began:.1f} s")
        verdict.looked_at += 1
        after = [status for when, status in node.looks if when > ended]
        if not after or after[-1] != 200:
            verdict.broken(f"{node.name} is not ready at the end: {after[-3:]}")
    return verdict


def memory_is_bounded(nodes):
    verdict = Verdict(f"memory stays below {MEMORY_BYTES // 1024 // 1024} MiB")
    for node in nodes:
        verdict.looked_at += len(node.memory)
        most = max(node.memory, default=0)
        verdict.note(f"{node.name} MiB", most // 1024 // 1024)
        if most > MEMORY_BYTES:
            verdict.broken(f"{node.name} held {most // 1024 // 1024} MiB")
    return verdict


def death_is_seen(deaths, canaries, lease):
    """`deaths`: (node, when, how late the machine was) with nothing else wrong until the lease is over. Canaries of other servers
    hear of it in time."""
    verdict = Verdict(f"a server's death is seen within {lease + 2:.0f} s")
    by_node = {canary.pinned.name: canary for canary in canaries}
    for name, when, late in deaths:
        dead = by_node[name]
        joined = [entry for entry in dead.log if entry[1] == "session" and entry[0] < when]
        if not joined:
            continue
        client, until = joined[-1][2], when + lease + 2 + SLACK + late
        for watcher in canaries:
            entries = [entry for entry in watcher.log if when - 2 < entry[0] < until]
            if watcher is dead or any(entry[1] in ("session", "down") for entry in entries):
                continue
            if not knew(watcher, client, when):
                continue
            verdict.looked_at += 1
            if not any(tells_of(entry, client) for entry in entries if entry[0] > when):
                verdict.broken(f"{watcher.name} was not told within {lease + 2:.0f} s that {client} went with {name}")
    return verdict


def fenced_servers_come_back(pauses, canaries):
    """`pauses`: (node, ended) of a server that slept past its lease with nothing else wrong. Its client is announced again."""
    verdict = Verdict(f"a server that slept past its lease announces its clients again within {BACK_WITHIN:.0f} s")
    by_node = {canary.pinned.name: canary for canary in canaries}
    for name, ended in pauses:
        until = ended + BACK_WITHIN + SLACK
        sleeper = by_node[name]
        sessions = [entry for entry in sleeper.log if entry[1] == "session" and entry[0] < ended]
        if not sessions or any(entry[1] in ("session", "down") for entry in sleeper.log if ended - 12 < entry[0] < until):
            continue
        client = sessions[-1][2]
        for watcher in canaries:
            lately = [entry for entry in watcher.log if ended - 12 < entry[0] < until]
            if watcher is sleeper or any(entry[1] in ("session", "down") for entry in lately):
                continue
            about = [entry for entry in lately if f"'{client}'" in str(entry)]
            if not any(tells_of(entry, client) for entry in about):
                continue
            verdict.looked_at += 1
            if tells_of(about[-1], client):
                verdict.broken(f"{watcher.name} was not told that {client} is back with {name}")
    return verdict


def knew(watcher, client, when):
    """It was told of the client before, and nothing else since."""
    last = None
    for entry in watcher.log:
        if entry[0] >= when:
            break
        if f"'{client}'" in str(entry):
            last = entry
    return last is not None and not tells_of(last, client)


def tells_of(entry, client):
    """Whether this tells that a client is gone."""
    if entry[1] == "subscribed":
        return f"'{client}'" not in str(entry[3])
    if entry[1] != "told":
        return False
    event = entry[3]
    if event["event"] == "client_offline":
        return event["client"] == client
    return event["event"] == "presence" and any(one.get("client") in (client, None) for one in event.get("left", ()))
