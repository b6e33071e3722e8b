"""Followers: at the end each knows what each of those whom he follows does; after `unfollow` nothing more is heard."""
from . import Verdict


def followers_know_the_truth(beliefs, truth):
    """`beliefs`: by (follower, followee) the status told last; `truth`: by the same what it must be: (online, channels)."""
    verdict = Verdict("at the end followers know what is true")
    for pair, expected in truth.items():
        verdict.looked_at += 1
        status = beliefs.get(pair)
        known = None if status is None else (status["online"], sorted(status["channels"]) if status["online"] else [])
        if known != expected:
            verdict.broken(f"{pair[0]} believes of {pair[1]} {known}, true is {expected}")
    return verdict


def nothing_is_heard_after_unfollow(fans):
    verdict = Verdict("after unfollow nothing more is heard")
    for fan in fans:
        over = set()
        for entry in fan.log:
            if entry[1] == "session" and entry[5]:
                over.clear()
            elif entry[1] == "follows":
                over.discard(entry[2])
            elif entry[1] == "unfollowed":
                over.add(entry[2])
            elif entry[1] == "told" and entry[3]["event"] == "status":
                verdict.looked_at += 1
                if entry[3]["user"] in over:
                    verdict.broken(f"{fan.name} heard of {entry[3]['user']} after unfollow")
    return verdict
