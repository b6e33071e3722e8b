"""Who is in a channel: a snapshot plus the changes since. No IO.

Must hold: a snapshot plus later events equals the later snapshot; an event that does not apply requests a new snapshot and changes nothing.
"""
from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Callable

from .emitter import Emitter

Event = dict[str, Any]

# An arrival and its client come in two events, and so does a leave: how long the first waits for the second.
SECOND_S = 0.05
SECOND = {"user_online": "client_online", "client_offline": "user_offline"}

# Limit of changes buffered while waiting for a snapshot; further ones are dropped.
BUFFERED = 4_096
EVENTS = frozenset(
    ["user_online", "user_offline", "client_online", "client_updated", "client_offline", "presence", "presence_mode"]
)


@dataclass
class Client:
    """One session of a user in the channel. Only snapshots contain `since`."""

    client: str
    state: Any = None
    since: int | None = None


@dataclass
class User:
    user: str
    name: str | None = None
    clients: dict[str, Client] = field(default_factory=dict)
    since: int | None = None
    # In the grace period: all their clients are lost, but they may still return.
    leaving: bool = False


class Presence(Emitter):
    """The live presence map of one channel. Emits `change` after each change, with the event that caused it."""

    EVENTS = frozenset(["change"])

    def __init__(self, channel: str, resync: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.channel = channel
        self.version = 0
        self.mode = "full"
        # All users, anonymous ones included.
        self.count = 0
        self.users: dict[str, User] = {}
        # Clients of anonymous users.
        self.anonymous: dict[str, Client] = {}
        self.synced = False
        self._buffered: list[Event] = []
        self._resync = resync
        # The change that waits for its second half.
        self._first: Event | None = None
        self._timer: asyncio.TimerHandle | None = None

    def restore(self, members: Event) -> None:
        """Loads a snapshot in the format of the reply to `who`."""
        if self.synced and members["version"] < self.version:
            # Older than the changes that have arrived since.
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
        early, self._buffered = self._buffered, []
        self._announce({"event": "snapshot", "channel": self.channel, "version": self.version})
        for event in early:
            self.apply(event)

    def lose(self) -> None:
        """Marks the map as stale: requests a snapshot once and buffers changes until it arrives."""
        if self.synced:
            self.synced = False
            self._resync()

    def apply(self, event: Event) -> None:
        version = event["version"]
        if not self.synced:
            if len(self._buffered) < BUFFERED:
                self._buffered.append(event)
            return
        if event["event"] == "presence_mode":
            self._set_mode(event)
            return
        if version <= self.version:
            return
        before = event.get("from_version", version - 1)
        # The version of an empty channel may jump.
        if before > self.version and self.count > 0:
            self._buffered = [event]
            self.lose()
            return
        if event["event"] == "presence":
            self._difference(event)
        else:
            self._single(event)
        self.version = version
        user = self.users.get(event.get("user") or "")
        leaves = event["event"] == "client_offline" and event.get("explicit") is True and user is not None and user.leaving
        if (event["event"] == "user_online" or leaves) and self._first is None:
            self._wait_for_second(event)
        else:
            self._announce(event)

    def _wait_for_second(self, event: Event) -> None:
        try:
            self._timer = asyncio.get_running_loop().call_later(SECOND_S, self._flush)
        except RuntimeError:
            # Without a loop nothing would end the wait.
            self.emit("change", event)
            return
        self._first = event

    def _flush(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self.emit("change", first)

    def _announce(self, event: Event) -> None:
        if self._timer is not None:
            self._timer.cancel()
        first = self._first
        if first is not None and first["user"] == event.get("user") and SECOND[first["event"]] == event["event"]:
            self._first = None
            event = {**first, **event, "event": f"user_{event['event'].partition('_')[2]}"}
        self._flush()
        self.emit("change", event)

    def _set_mode(self, event: Event) -> None:
        if event["version"] < self.version:
            return
        left_counts = self.mode == "counts" and event["mode"] != "counts"
        self.mode = event["mode"]
        if self.mode == "counts":
            # In counts mode most users are no longer reported, so their departure would be missed.
            self.users, self.anonymous = {}, {}
        self._announce(event)
        if left_counts or event["version"] > self.version:
            self.lose()

    def _single(self, event: Event) -> None:
        name, client = event["user"], event.get("client")
        kind = event["event"]
        if kind in ("user_online", "user_offline"):
            self.count += 1 if kind == "user_online" else -1
        if name is None:
            self._anonymous_change(kind, client, event.get("state"))
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

    def _anonymous_change(self, kind: str, client: str | None, state: Any) -> None:
        if client is None:
            # A hidden user is only counted.
            return
        if kind == "client_offline":
            self.anonymous.pop(client, None)
        elif kind in ("client_online", "client_updated"):
            self.anonymous.setdefault(client, Client(client)).state = state

    def _difference(self, event: Event) -> None:
        for gone in event.get("left", ()):
            name, client = gone["user"], gone.get("client")
            if name is None:
                self._anonymous_change("client_offline", client, None)
            elif client is None:
                self.users.pop(name, None)
            elif name in self.users:
                user = self.users[name]
                user.clients.pop(client, None)
                user.leaving = not user.clients
        for entry in (*event.get("joined", ()), *event.get("updated", ())):
            name, client = entry["user"], entry.get("client")
            if name is None:
                self._anonymous_change("client_online", client, entry.get("state"))
                continue
            user = self.users.setdefault(name, User(name, leaving=client is None))
            if client is not None:
                user.leaving = False
                user.clients.setdefault(client, Client(client)).state = entry.get("state")
        self.count = event["count"]
