"""Presence as watchers see it: snapshots and the changes after them."""
import functools

from .history import is_new_session
from .verdict import Verdict, guarantee

CHANGES = ("user_online", "client_online", "client_updated", "client_offline", "user_offline", "presence", "presence_mode")


class View:
    """A watcher's view of one channel: the state of each client of each user."""

    def __init__(self, snapshot):
        self.version = snapshot["version"]
        self.users = {user: dict(clients) for user, clients in snapshot["users"].items()}

    def apply(self, change):
        """Applies a change. Returns a description of a violation, or None."""
        what = change["what"]
        if what == "presence_mode":
            return None
        first = change.get("from_version", change["version"] - 1)
        # Changes sent together are absolute: they may start before the known version and must end after it.
        overlaps = what == "presence" and first <= self.version < change["version"]
        if first != self.version and not overlaps and not (first > self.version and not self.users):
            return f"version {change['version']} from {first} after {self.version}"
        self.version = change["version"]
        return self._apply_together(change) if what == "presence" else self._apply_one(what, change)

    def _apply_one(self, what, change):
        user, client = change["user"], change.get("client")
        clients = self.users.get(user)
        if what == "user_online":
            wrong = clients is not None and f"{user} joins twice"
            self.users[user] = {}
        elif what == "client_online":
            wrong = clients is None and f"a client of {user} joins before its user" or client in (clients or ()) and f"client {client} joins twice"
            self.users.setdefault(user, {})[client] = change.get("state")
        elif what == "user_offline":
            wrong = clients is None and f"{user} leaves without being present" or clients and f"{user} leaves before their clients {clients}"
            self.users.pop(user, None)
        else:
            wrong = client not in (clients or ()) and f"client {client} changes without being present"
            if not wrong and what == "client_offline":
                clients.pop(client)
            elif not wrong:
                clients[client] = change.get("state")
        return wrong or None

    def _apply_together(self, change):
        for entry in change.get("left", ()):
            if "client" in entry:
                self.users.get(entry["user"], {}).pop(entry["client"], None)
            else:
                self.users.pop(entry["user"], None)
        for entry in (*change.get("joined", ()), *change.get("updated", ())):
            user = self.users.setdefault(entry["user"], {})
            if entry.get("client"):
                user[entry["client"]] = entry.get("state")


@functools.cache
def replay(history):
    """Replays every watcher. Returns the verdicts about order and snapshots, and the final views by (client, channel)."""
    order, snapshots, finals = Verdict("order"), Verdict("snapshots"), {}
    for client, lines in history.clients.items():
        for channel, view in replay_client(client, lines, order, snapshots).items():
            finals[client, channel] = view.users
    return order, snapshots, finals


def replay_client(client, lines, order, snapshots):
    views, asked = {}, {}
    for line in lines:
        what, channel = line["what"], line.get("channel")
        if is_new_session(line):
            views, asked = {}, {}
        elif what == "subscribed" and line.get("members"):
            views[channel] = View(line["members"])
            asked.pop(channel, None)
        elif what == "gap":
            for name in [name for name in views if channel in (None, name)]:
                views.pop(name)
                asked.pop(name, None)
        elif what in CHANGES and channel in views:
            wrong = views[channel].apply(line)
            order.checked += 1
            if wrong:
                order.broken(f"{client} on {channel}: {wrong}")
                views.pop(channel)
            else:
                compare(client, channel, views[channel], asked, snapshots)
        elif what == "who" and channel in views:
            answer = line["members"]
            if line["known"] is not None and answer["version"] < line["known"]:
                order.broken(f"{client} on {channel}: who has version {answer['version']} after an event with {line['known']}")
            asked.setdefault(channel, []).append(answer)
            compare(client, channel, views[channel], asked, snapshots)
    return views


def compare(client, channel, view, asked, snapshots):
    """Compares requested snapshots when the view has reached their version."""
    answers = asked.pop(channel, ())
    for answer in answers:
        if answer["version"] == view.version:
            snapshots.checked += 1
            if answer["users"] != view.users:
                snapshots.broken(f"{client} on {channel} at {view.version}: {difference(view.users, answer['users'])}")
    if later := [answer for answer in answers if answer["version"] > view.version]:
        asked[channel] = later


def difference(view, other):
    return {user: (view.get(user), other.get(user)) for user in sorted({*view, *other}) if view.get(user) != other.get(user)}


def take(verdict, found):
    verdict.checked, verdict.violations, verdict.notes = found.checked, found.violations, found.notes


@guarantee("a snapshot, then every later change, in order, once")
def watchers_get_every_change_in_order(history, verdict):
    take(verdict, replay(history)[0])


@guarantee("A snapshot equals the earlier snapshot with the changes after it.")
def snapshots_equal_the_changes_before_them(history, verdict):
    take(verdict, replay(history)[1])


@guarantee("after faults end, all servers agree")
def views_and_servers_agree_at_the_end(history, verdict):
    truth = {line["channel"]: line["users"] for line in history.of("truth")}
    shown = {(line["server"], line["channel"]): line["users"] for line in history.of("shows")}
    for (name, channel), users in [*shown.items(), *replay(history)[2].items()]:
        if channel in truth:
            verdict.checked += 1
            if wrong := difference(truth[channel], users):
                verdict.broken(f"{name} about {channel}: (truth, seen) {wrong}")


def canaries(history):
    """By server: the client that stays on it, and its lines. The canaries watch one channel with all of them."""
    return {line["server"]: (line["client"], history.clients[line["client"]]) for line in history.of("canary")}


def tells_of(line, client):
    """Whether this line says that a client is offline."""
    if line["what"] == "subscribed":
        return not mentions(line, client)
    if line["what"] == "client_offline":
        return line["client"] == client
    return line["what"] == "presence" and any(one.get("client") in (client, None) for one in line.get("left", ()))


def mentions(line, client):
    return f"'{client}'" in str(line)


def reconnected(lines):
    return any(line["what"] in ("session", "down") for line in lines)


def during(lines, began, ended):
    return [line for line in lines if began < line["at"] < ended]


@guarantee("after a server dies, its users are shown no longer than lease plus grace period")
def users_of_a_dead_server_go_offline(history, verdict):
    lease, within, slack = history.run["lease"], history.run["lease"] + 2, history.run["slack"]
    watchers = canaries(history)
    for fault in history.undisturbed_faults("killed", 1, lambda fault: fault["at"] + lease + 4):
        server, when = fault["servers"][0], fault["at"]
        _, lines = watchers[server]
        late = sum(line["seconds"] for line in history.of("late") if when <= line["at"] <= when + lease + 4)
        clients = [line["client"] for line in lines if line["what"] == "session" and line["at"] < when]
        for watcher, seen in watchers.values():
            known = clients and [line for line in seen if line["at"] < when and mentions(line, clients[-1])]
            lately = during(seen, when - 2, when + within + slack + late)
            if seen is lines or not known or tells_of(known[-1], clients[-1]) or reconnected(lately):
                continue
            verdict.checked += 1
            if not any(tells_of(line, clients[-1]) for line in lately if line["at"] > when):
                verdict.broken(f"{watcher} did not learn within {within:.0f} s that {clients[-1]} on {server} is offline")


@guarantee("It starts a new epoch and announces its connected clients again.")
def suspended_servers_announce_their_clients(history, verdict):
    watchers = canaries(history)
    for fault in history.undisturbed_faults("suspended past its lease", 1, lambda fault: fault["until"] + 4):
        server, ended = fault["servers"][0], fault["until"]
        began, until = ended - 12, ended + history.run["back_within"] + history.run["slack"]
        _, lines = watchers[server]
        clients = [line["client"] for line in lines if line["what"] == "session" and line["at"] < ended]
        if not clients or reconnected(during(lines, began, until)):
            continue
        for watcher, seen in watchers.values():
            lately = during(seen, began, until)
            about = [line for line in lately if mentions(line, clients[-1])]
            if seen is lines or reconnected(lately) or not any(tells_of(line, clients[-1]) for line in about):
                continue
            verdict.checked += 1
            if tells_of(about[-1], clients[-1]):
                verdict.broken(f"{watcher} did not learn that {clients[-1]} on {server} is back")
