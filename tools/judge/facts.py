"""Facts that servers acknowledged, and what followers are told."""
from .history import is_new_session
from .verdict import guarantee


@guarantee("what was answered `ok` is kept")
def acknowledged_facts_are_kept(history, verdict):
    for fact in history.of("fact"):
        # Oldest first: [when acknowledged, value]; the first was never changed.
        values = fact["values"]
        possible = [values[-1][1]] + ([fact["doubt"]] if fact["doubt"] is not None else [])
        for (_, earlier), (when, value) in zip(values, values[1:]):
            if history.lost(when):
                possible += [earlier, value]
        if not fact["read"]:
            verdict.broken(f"{fact['key']} was not read")
        for server, value in fact["read"].items():
            verdict.checked += 1
            if value not in possible:
                verdict.broken(f"{fact['key']} is {value!r} on {server}, acknowledged {values[-2:]}, possible {possible}")
            elif value != values[-1][1]:
                verdict.note("unknown outcome, or lost with the last second of a killed store")


@guarantee("`last_seen` never moves backwards.")
def last_seen_never_moves_backwards(history, verdict):
    by_user = {}
    for line in sorted(history.of("last_seen"), key=lambda line: line["at"]):
        asked, answered, value = line["asked"], line["at"], line["value"]
        verdict.checked += 1
        before = by_user.setdefault(line["user"], [])
        if value is None:
            continue  # They are online, or were never seen.
        # Answers that overlap have no order.
        known = max(((then, when) for when, then in before if when <= asked), default=None)
        if known and value < known[0]:
            if not any(known[1] - 3 < loss < answered for loss in history.store_losses):
                verdict.broken(f"{line['user']} was seen at {known[0]} and later at {value}")
        before.append((answered, value))


def beliefs(lines):
    """The last status of each user that a follower was told."""
    known = {}
    for line in lines:
        what = line["what"]
        if is_new_session(line):
            known = {}
        elif what == "statuses":
            known = {status["user"]: status for status in line["statuses"]}
        elif what == "status":
            known[line["user"]] = line["status"]
        elif what == "unfollowed":
            known.pop(line["user"], None)
    return known


@guarantee("When nothing changes any more, followers have the current status of every user they follow.")
def followers_have_the_final_statuses(history, verdict):
    known = {}
    for line in history.of("true_status"):
        follower, user = line["follower"], line["user"]
        if follower not in known:
            known[follower] = beliefs(history.clients[follower])
        verdict.checked += 1
        status = known[follower].get(user)
        seen = status and [status["online"], sorted(status["channels"]) if status["online"] else []]
        if seen != [line["online"], line["channels"]]:
            verdict.broken(f"{follower} believes of {user} {seen}, true is {[line['online'], line['channels']]}")


@guarantee("No status arrives after `unfollow` was answered.")
def no_status_after_unfollow(history, verdict):
    for client, lines in history.clients.items():
        over = set()
        for line in lines:
            if is_new_session(line):
                over.clear()
            elif line["what"] == "follows":
                over.discard(line["user"])
            elif line["what"] == "unfollowed":
                over.add(line["user"])
            elif line["what"] == "status":
                verdict.checked += 1
                if line["user"] in over:
                    verdict.broken(f"{client} got a status of {line['user']} after unfollow")
