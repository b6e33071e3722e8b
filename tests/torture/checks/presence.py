"""Presence as watchers see it: versions never decrease without a gap, a snapshot plus events equals the next snapshot, and at the
end all views equal the state of every server and the expected state.
"""
from . import Verdict

CHANGES = ("user_online", "client_online", "client_updated", "client_offline", "user_offline", "presence", "presence_mode")


def members(snapshot):
    return {user["user"]: {client["client"]: client["state"] for client in user["clients"]} for user in snapshot["users"]}


class View:
    """A watcher's view of one channel."""

    def __init__(self, snapshot):
        self.version, self.users = snapshot["version"], members(snapshot)

    def apply(self, event):
        """Applies an event. Returns a description of a violation, or None."""
        kind = event["event"]
        if kind == "presence_mode":
            return None
        first = event.get("from_version", event["version"] - 1)
        # A coalesced event is absolute: it may start before the known version and must end after it.
        overlaps = kind == "presence" and first <= self.version < event["version"]
        if first != self.version and not overlaps and not (first > self.version and not self.users):
            return f"version {event['version']} from {first} after {self.version}"
        self.version = event["version"]
        return getattr(self, "_" + kind)(event)

    def _user_online(self, event):
        if event["user"] in self.users:
            return f"{event['user']} joins twice"
        self.users[event["user"]] = {}
        return None

    def _client_online(self, event):
        user = self.users.get(event["user"])
        if user is None:
            return f"a client of {event['user']} joins before its user"
        if event["client"] in user:
            return f"client {event['client']} joins twice"
        user[event["client"]] = event["state"]
        return None

    def _client_updated(self, event):
        if event["client"] not in self.users.get(event["user"], {}):
            return f"client {event['client']} updates without being present"
        self.users[event["user"]][event["client"]] = event["state"]
        return None

    def _client_offline(self, event):
        if self.users.get(event["user"], {}).pop(event["client"], self) is self:
            return f"client {event['client']} leaves without being present"
        return None

    def _user_offline(self, event):
        left = self.users.pop(event["user"], None)
        if left is None:
            return f"{event['user']} leaves without being present"
        return f"{event['user']} leaves before their clients {left}" if left else None

    def _presence(self, event):
        """Absolute entries: the current state."""
        for entry in event.get("left", ()):
            if "client" in entry:
                self.users.get(entry["user"], {}).pop(entry["client"], None)
            else:
                self.users.pop(entry["user"], None)
        for entry in (*event.get("joined", ()), *event.get("updated", ())):
            user = self.users.setdefault(entry["user"], {})
            if entry.get("client"):
                user[entry["client"]] = entry.get("state")
        return None


def replay(client, verdict, snapshots):
    """Replays a watcher's history. Returns its final views."""
    views, asked = {}, {}
    for entry in client.log:
        kind = entry[1]
        if kind == "session" and entry[5]:
            views, asked = {}, {}
        elif kind == "subscribed" and entry[3] is not None:
            views[entry[2]] = View(entry[3])
            asked.pop(entry[2], None)
        elif kind == "gap":
            for channel in [name for name in views if entry[3] in (None, name)]:
                views.pop(channel)
                asked.pop(channel, None)
        elif kind == "event" and entry[3]["event"] in CHANGES and entry[3]["channel"] in views:
            channel = entry[3]["channel"]
            wrong = views[channel].apply(entry[3])
            verdict.looked_at += 1
            if wrong:
                verdict.broken(f"{client.name} on {channel}: {wrong}")
                views.pop(channel)
            else:
                compare(client, channel, views[channel], asked, snapshots)
        elif kind == "who" and entry[2] in views:
            _, _, channel, answer, version = entry
            if version is not None and answer["version"] < version:
                verdict.broken(f"{client.name} on {channel}: who has version {answer['version']} after an event with {version}")
            asked.setdefault(channel, []).append(answer)
            compare(client, channel, views[channel], asked, snapshots)
    return views


def compare(client, channel, view, asked, snapshots):
    """Compares requested snapshots when the view has reached their version."""
    later = []
    for answer in asked.pop(channel, ()):
        if answer["version"] > view.version:
            later.append(answer)
        elif answer["version"] == view.version:
            snapshots.looked_at += 1
            if members(answer) != view.users:
                snapshots.broken(f"{client.name} on {channel} at {view.version}: {difference(view.users, members(answer))}")
    if later:
        asked[channel] = later


def difference(view, other):
    return {user: (view.get(user), other.get(user)) for user in {*view, *other} if view.get(user) != other.get(user)}


def watchers_get_events_in_order(clients):
    """Also returns each watcher's final views and the verdict about snapshots."""
    order = Verdict("versions of a channel increase by one")
    snapshots = Verdict("snapshot plus events equals the next snapshot")
    views = {client.name: replay(client, order, snapshots) for client in clients if client.watches}
    return order, snapshots, views


def all_views_agree_at_the_end(views, servers, truth):
    """`servers`: the state by (node, channel); `truth`: the present users by channel."""
    verdict = Verdict("all views and all servers agree at the end")
    for (node, channel), snapshot in servers.items():
        verdict.looked_at += 1
        if difference(truth[channel], members(snapshot)):
            verdict.broken(f"{node} about {channel}: (truth, server) {difference(truth[channel], members(snapshot))}")
    for name, channels in views.items():
        for channel, view in channels.items():
            verdict.looked_at += 1
            if difference(truth[channel], view.users):
                verdict.broken(f"{name} about {channel}: (truth, view) {difference(truth[channel], view.users)}")
    return verdict
