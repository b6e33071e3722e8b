"""What only the harness knows of servers: they do not crash, answer every command, report unavailability and recovery, end
credentials, and have bounded memory. What clients see is judged by `tools/judge`.
"""
from judge.verdict import Verdict

MEMORY_BYTES = 600 * 1024 * 1024
# Allowed scheduling delay under this load.
SLACK = 1.5
REVOKED_WITHIN = 5.0
# `drain_ms` of the servers.
DRAIN = 4.0
# A store outage of this length must show in readiness.
NOTICED_WITHIN = 6.0


def servers_stay_up(nodes, unclean_stops, outages=()):
    """`unclean_stops`: (node, when it was asked to stop, exit code). A server that cannot reach its store until `drain_ms` is over exits
    with 1."""
    verdict = Verdict("servers exit only when asked to, and cleanly")
    for node in nodes:
        verdict.checked += node.process_number
        for when, code, log in node.crashes:
            verdict.broken(f"{node.name} ended with {code}: {log[-600:]}")
        for line in node.panics():
            verdict.broken(f"{node.name}: {line}")
        if node.failed_starts:
            verdict.note("starts without an engine", node.failed_starts)
    for name, when, code in unclean_stops:
        if code == 1 and any(node == name and began <= when + SLACK and ended >= when + DRAIN for node, began, ended in outages):
            verdict.note("stops without a store")
        else:
            verdict.broken(f"{name} was asked to stop and ended with {code}")
    return verdict


def every_command_is_answered(answered, hangs, nodes):
    """`answered`: the number of answered commands. `hangs`: (what, node, seconds, began). A suspended server does not answer.
    Commands on lost connections do not count."""
    verdict = Verdict("every command is answered in time", checked=answered + len(hangs))
    nodes = {node.name: node for node in nodes}
    for what, name, seconds, began in hangs:
        if nodes[name].slept_during(began, began + seconds):
            verdict.note("server was suspended")
        else:
            verdict.broken(f"{what} at {name} had no reply for {seconds:.0f} s")
    return verdict


def refusals_say_when_to_return(refusals, known, clocks_ahead=()):
    """`refusals`: (code, retry_after_ms, when). Only retry codes are allowed, and `unavailable` must have a delay. While the clock of a
    server is ahead, tokens have expired. `clocks_ahead`: (began, ended)."""
    verdict = Verdict("refusals ask for a retry and say when")
    for code, retry_after_ms, when in refusals:
        verdict.checked += 1
        if code == "unauthenticated" and when is not None and any(began - SLACK < when < ended + SLACK for began, ended in clocks_ahead):
            verdict.note("unauthenticated while a clock was ahead")
            continue
        if code not in known:
            verdict.broken(f"refused with {code}")
        elif code == "unavailable" and retry_after_ms is None:
            verdict.broken("unavailable without retry_after_ms")
        verdict.note(str(code))
    return verdict


def readiness_is_correct(nodes, outages, ended):
    """`outages`: (node, began, ended) of an unreachable store. At the end all servers are ready."""
    verdict = Verdict("readiness fails without the store and recovers")
    for node in nodes:
        for name, began, over in outages:
            if name != node.name or over - began < NOTICED_WITHIN + 1 or node.slept_during(began, over):
                continue
            looks = [status for when, status in node.looks if began + NOTICED_WITHIN < when < over]
            if looks:
                verdict.checked += 1
                if all(status == 200 for status in looks):
                    verdict.broken(f"{node.name} stayed ready although the store was unreachable for {over - began:.1f} s")
        verdict.checked += 1
        after = [status for when, status in node.looks if when > ended]
        if not after or after[-1] != 200:
            verdict.broken(f"{node.name} is not ready at the end: {after[-3:]}")
    return verdict


def memory_is_bounded(nodes):
    verdict = Verdict(f"memory stays below {MEMORY_BYTES // 1024 // 1024} MiB")
    for node in nodes:
        verdict.checked += len(node.memory)
        most = max(node.memory, default=0)
        verdict.note(f"{node.name} MiB", most // 1024 // 1024)
        if most > MEMORY_BYTES:
            verdict.broken(f"{node.name} held {most // 1024 // 1024} MiB")
    return verdict


# The expiry of a token is checked at least this often, and a busy machine answers late.
EXPIRY_MARGIN = 6.0


def credentials_end(greetings, lifetimes, nodes):
    """No one is greeted with an expired token, and no one stays much longer than their token. A suspended server closes later."""
    verdict = Verdict("expired tokens are refused, also while connected")
    for node, reply in greetings:
        verdict.checked += 1
        if "ok" in reply:
            verdict.broken(f"{node} greeted a client with an expired token")
    by_name = {node.name: node for node in nodes}
    for name, expires, answered in lifetimes:
        verdict.checked += 1
        if answered <= expires + EXPIRY_MARGIN:
            continue
        if by_name[name].slept_during(expires - EXPIRY_MARGIN, answered):
            verdict.note("its server was suspended")
        else:
            verdict.broken(f"{name} answered {answered - expires:.1f} s after the token had expired")
    return verdict


def revoked_keys_end(revoked, nodes, slow_stores):
    """`revoked`: (node, when the revocation was acknowledged, when the last command was answered). A server that does not reach its
    store learns of it later."""
    verdict = Verdict("revoked keys end what they opened", checked=len(revoked))
    by_name = {node.name: node for node in nodes}
    for name, when, answered in revoked:
        if answered <= when + REVOKED_WITHIN + SLACK:
            continue
        if by_name[name].slept_during(when, answered):
            verdict.note("its server was suspended")
        elif any(node == name and began < answered and ended > when for node, began, ended in slow_stores):
            verdict.note("its server did not reach the store")
        else:
            verdict.broken(f"{name} answered {answered - when:.1f} s after the key had been revoked")
    return verdict
