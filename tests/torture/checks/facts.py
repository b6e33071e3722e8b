"""Acknowledged facts are kept exactly; last_seen never moves backwards."""
from . import Verdict


def acknowledged_facts_are_kept(facts, read, losses):
    """`read`: the values by key and node. `losses`: times at which a store was killed that may lose its last second."""
    verdict = Verdict("acknowledged facts are kept")
    for key, fact in facts.known.items():
        possible = fact.possible(losses)
        for node, value in read.get(key, {}).items():
            verdict.looked_at += 1
            if value not in possible:
                verdict.broken(f"{key} is {value!r} on {node}, acknowledged {fact.acknowledged[-2:]}, possible {possible}")
            elif value != fact.value:
                verdict.note("unknown outcome, or lost with the last second of a killed Redis")
        if not read.get(key):
            verdict.broken(f"{key} was not read")
    return verdict


def last_seen_never_goes_back(seen, losses):
    """`seen`: (asked, answered, user, last seen). Answers that overlap have no order."""
    verdict = Verdict("last_seen never moves backwards")
    by_user = {}
    for asked, answered, user, value in sorted(seen, key=lambda one: one[1]):
        verdict.looked_at += 1
        before = by_user.setdefault(user, [])
        known = [(when, then) for when, then in before if when <= asked and then is not None]
        if known:
            when, then = max(known, key=lambda one: one[1])
            if (value is None or value < then) and not any(when - 3 < loss < answered for loss in losses):
                verdict.broken(f"{user} was seen at {then} and later at {value}")
        before.append((answered, value))
    return verdict
