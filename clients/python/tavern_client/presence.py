"""Who is in a channel, kept up to date from a snapshot and the changes after it. Knows no sockets and no clock.

Must hold: snapshot and later events give the later snapshot; whatever cannot be applied asks for a new snapshot and changes nothing.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

from .emitter import Emitter

Event = dict[str, Any]

# Changes that wait for a snapshot; beyond these the snapshot is asked for again.
EARLY = 4_096
EVENTS = frozenset(
    ["user_online", "user_offline", "client_online", "client_updated", "client_offline", "presence", "presence_mode"]
)


@dataclass
class Client:
    """One session of a user in the channel. `since` is known from snapshots only."""

    client: str
    state: Any = None
    since: int | None = None


@dataclass
class User:
    user: str
    name: str | None = None
    clients: dict[str, Client] = field(default_factory=dict)
    since: int | None = None
    # In a grace: his clients are lost, and he may still come back.
    leaving: bool = False


class Presence(Emitter):
    """The live map of one channel. `change` is emitted after each change, with the event that caused it."""

    def __init__(self, channel: str, resync: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.channel = channel
        self.version = 0
        self.mode = "full"
        # Users there, those without a name included.
        self.count = 0
        self.users: dict[str, User] = {}
        # Clients of people without a name.
        self.anonymous: dict[str, Client] = {}
        self.synced = False
        self._early: list[Event] = []
        self._resync = resync

    def restore(self, members: Event) -> None:
        """Takes a snapshot shaped like the answer to `who`."""
        if self.synced and members["version"] < self.version:
            # Read before what was told meanwhile.
            return
        self.version, self.count = members["version"], members["count"]
        self.users, self.anonymous = {}, {}
        listed = members.get("users")
        if listed is None:
            self.mode = "counts"
        elif self.mode == "counts":
            self.mode = "coalesced"
        for shown in listed or ():
            clients = {c["client"]: Client(c["client"], c.get("state"), c.get("since")) for c in shown["clients"]}
            if shown["user"] is None:
                self.anonymous.update(clients)
            else:
                leaving = bool(shown.get("leaving", False))
                self.users[shown["user"]] = User(shown["user"], shown.get("name"), clients, shown.get("since"), leaving)
        self.synced = True
        early, self._early = self._early, []
        self.emit("change", {"event": "snapshot", "channel": self.channel, "version": self.version})
        for event in early:
            self.apply(event)

    def lose(self) -> None:
        """What is known may be wrong: holds changes back until the next snapshot, and asks for it once."""
        if self.synced:
            self.synced = False
            self._resync()

    def apply(self, event: Event) -> None:
        version = event["version"]
        if not self.synced:
            if len(self._early) < EARLY:
                self._early.append(event)
            return
        if event["event"] == "presence_mode":
            self._turn(event)
            return
        if version <= self.version:
            return
        before = event.get("from_version", version - 1)
        # After a channel was empty its version may jump.
        if before > self.version and self.count > 0:
            self._early = [event]
            self.lose()
            return
        if event["event"] == "presence":
            self._difference(event)
        else:
            self._single(event)
        self.version = version
        self.emit("change", event)

    def _turn(self, event: Event) -> None:
        if event["version"] < self.version:
            return
        left_counts = self.mode == "counts" and event["mode"] != "counts"
        self.mode = event["mode"]
        if self.mode == "counts":
            # From now on only some are named: those known would never be told to go.
            self.users, self.anonymous = {}, {}
        self.emit("change", event)
        if left_counts or event["version"] > self.version:
            self.lose()

    def _single(self, event: Event) -> None:
        name, client = event["user"], event.get("client")
        kind = event["event"]
        if kind in ("user_online", "user_offline"):
            self.count += 1 if kind == "user_online" else -1
        if name is None:
            self._nameless(kind, client, event.get("state"))
            return
        if kind == "user_offline":
            self.users.pop(name, None)
            return
        user = self.users.setdefault(name, User(name))
        if kind == "user_online":
            user.name = event.get("name")
        elif client is None:
            return
        elif kind == "client_online":
            user.leaving = False
            user.clients[client] = Client(client, event.get("state"))
        elif kind == "client_updated" and client in user.clients:
            user.clients[client].state = event.get("state")
        elif kind == "client_offline":
            user.clients.pop(client, None)
            user.leaving = not user.clients

    def _nameless(self, kind: str, client: str | None, state: Any) -> None:
        if client is None:
            # Somebody who hides: counted, nothing else.
            return
        if kind == "client_offline":
            self.anonymous.pop(client, None)
        elif kind in ("client_online", "client_updated"):
            self.anonymous.setdefault(client, Client(client)).state = state

    def _difference(self, event: Event) -> None:
        for gone in event.get("left", ()):
            name, client = gone["user"], gone.get("client")
            if name is None:
                self._nameless("client_offline", client, None)
            elif client is None:
                self.users.pop(name, None)
            elif name in self.users:
                user = self.users[name]
                user.clients.pop(client, None)
                user.leaving = not user.clients
        for entry in (*event.get("joined", ()), *event.get("updated", ())):
            name, client = entry["user"], entry.get("client")
            if name is None:
                self._nameless("client_online", client, entry.get("state"))
                continue
            user = self.users.setdefault(name, User(name, leaving=client is None))
            if client is not None:
                user.leaving = False
                user.clients.setdefault(client, Client(client)).state = entry.get("state")
        self.count = event["count"]
