"""Followers have the final status of each followed user; no status arrives after `unfollow`."""
from . import Verdict


def followers_know_the_final_status(beliefs, truth):
    """`beliefs`: the last status by (follower, followee); `truth`: the expected (online, channels) by the same key."""
    verdict = Verdict("followers have the final statuses")
    for pair, expected in truth.items():
        verdict.looked_at += 1
        status = beliefs.get(pair)
        known = None if status is None else (status["online"], sorted(status["channels"]) if status["online"] else [])
        if known != expected:
            verdict.broken(f"{pair[0]} believes of {pair[1]} {known}, true is {expected}")
    return verdict


def no_status_after_unfollow(followers):
    verdict = Verdict("no status after unfollow")
    for follower in followers:
        over = set()
        for entry in follower.log:
            if entry[1] == "session" and entry[5]:
                over.clear()
            elif entry[1] == "follows":
                over.discard(entry[2])
            elif entry[1] == "unfollowed":
                over.add(entry[2])
            elif entry[1] == "event" and entry[3]["event"] == "status":
                verdict.looked_at += 1
                if entry[3]["user"] in over:
                    verdict.broken(f"{follower.name} got a status of {entry[3]['user']} after unfollow")
    return verdict
