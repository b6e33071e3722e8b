"""What really happened: when each user was connected, by the harness's own record.

A client is connected while all of this holds: its process runs, packets pass on its cable, the balancer has a connection between it
and a server, that server runs and is not suspended, and the client library itself does not say that it is disconnected. A user is
connected while one of their clients is.
"""
import dataclasses
import time


@dataclasses.dataclass
class Client:
    id: str
    user: str
    room: str
    watch: bool
    driver: object
    # Its connections at the balancer, each with the server it leads to. A connection that the client has given up may linger.
    links: dict = dataclasses.field(default_factory=dict)
    says_up: bool = False
    # Its user has closed it: some clients say so before they close the connection.
    closed: bool = False

    def is_connected(self):
        return not self.closed and self.driver.runs and self.driver.cable and self.says_up and any(server.serves for server in self.links.values())


class Record:
    def __init__(self):
        self.clients = {}
        # (room, user): [(when, connected, cause)], and the same of watchers by id.
        self.users, self.watchers = {}, {}
        # (watcher, when, what, about): what watchers were told.
        self.told = []

    def add(self, client):
        self.clients[client.id] = client
        if client.watch:
            self.watchers.setdefault(client.id, [])

    def heard(self, line):
        """A line of a driver."""
        client, what = self.clients.get(line["id"]), line["what"]
        if client is None:
            return
        if what in ("up", "down"):
            client.says_up = what == "up"
            self.look(client, "lost", line["at"])
        if client.watch:
            self.told.append((client.id, line["at"], what, line.get("users", line.get("user"))))

    def look(self, client, cause, at=None):
        """Notes whether the client's user is connected now; `cause` if not."""
        at = time.monotonic() if at is None else at
        if client.watch:
            return note(self.watchers[client.id], at, client.is_connected(), cause)
        # A client that was closed or whose process ended stays in the record.
        same = [one for one in self.clients.values() if (one.room, one.user) == (client.room, client.user) and not one.watch]
        return note(self.users.setdefault((client.room, client.user), []), at, any(one.is_connected() for one in same), cause)

    def look_at(self, clients, cause):
        for client in clients:
            self.look(client, cause)

    def of_server(self, server):
        return [client for client in self.clients.values() if server in client.links.values()]

    def of_driver(self, driver):
        return [client for client in self.clients.values() if client.driver is driver]


def note(timeline, at, connected, cause):
    if (timeline[-1][1] if timeline else False) != connected:
        timeline.append((max(at, timeline[-1][0] if timeline else at), connected, cause))
