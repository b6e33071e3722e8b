"""Clients with desired state: each retries its subscriptions and presence until they are confirmed.

`RoomClient` subscribes and joins rooms; `HistoryClient` recovers what it missed of channels with history; `FollowedClient` is followed; `FollowerClient` follows; `Canary` stays on one server, so that
its death is noticed.
"""
import asyncio
import dataclasses

from .client import Disconnected, Client, Refused


@dataclasses.dataclass
class Want:
    there: bool
    state: object = None
    # Acknowledged by the server in this session.
    sure: bool = False


class RoomClient(Client):
    pause = (0.3, 1.5)
    drops = 0.03

    def __init__(self, cluster, name, user, seed, listens=(), watches=(), rooms=(), patterns=(), **more):
        super().__init__(cluster, name, user, seed, **more)
        self.listens, self.watches, self.rooms, self.patterns = listens, watches, rooms, patterns
        self.subscribed, self.wants, self.versions = set(), {}, {}
        self.turn = 0

    def on_new_session(self):
        self.subscribed.clear()
        self.versions.clear()
        for want in self.wants.values():
            # A new session is present nowhere.
            want.sure = not want.there

    def on_gap(self, channel):
        lost = [name for name in self.watches if channel in (None, name)]
        self.subscribed.difference_update(lost)

    def on_event(self, frame):
        if "version" in frame:
            self.versions[frame["channel"]] = frame["version"]

    async def act(self):
        """Acts at random and restores subscriptions and presence, until cancelled."""
        while True:
            try:
                await self.connected.wait()
                await self.restore()
                if not self.quiet:
                    await self.random_action()
            except (Disconnected, Refused):
                await asyncio.sleep(self.rng.uniform(0.1, 0.4))
            await asyncio.sleep(self.rng.uniform(*self.pause) if not self.quiet else 0.3)

    def is_settled(self):
        wanted = set(self.listens) | set(self.watches) | set(self.patterns)
        return self.connected.is_set() and self.subscribed == wanted and all(want.sure for want in self.wants.values())

    async def restore(self):
        for channel in [*self.watches, *self.listens]:
            if channel not in self.subscribed:
                await self.subscribe(channel)
        for pattern in self.patterns:
            if pattern not in self.subscribed:
                await self.ask("subscribe", keep=lambda _: self.note("subscribed", pattern, None), pattern=pattern)
                self.subscribed.add(pattern)
        for channel in [name for name, want in self.wants.items() if not want.sure]:
            await self.settle(channel)

    async def subscribe(self, channel):
        presence = channel in self.watches

        def keep(answer):
            members = answer.get("members")
            self.note("subscribed", channel, members)
            self.subscribed.add(channel)
            if members is not None:
                self.versions[channel] = members["version"]

        await self.ask("subscribe", keep=keep, channel=channel, presence=presence)

    async def settle(self, channel):
        want, session = self.wants[channel], self.client
        if want.there:
            await self.ask("join", channel=channel, state=want.state)
        else:
            await self.ask("leave", channel=channel)
        if self.client == session:
            want.sure = True

    async def random_action(self):
        throw = self.rng.random()
        if throw < self.drops:
            self.returns_after = self.rng.choice([(0.0, 0.1), (0.2, 0.8), (1.5, 2.5), (5.0, 6.0)])
            self.drop()
        elif throw < 0.2 and self.watches:
            channel = self.rng.choice(list(self.watches))
            asked = self.versions.get(channel)
            await self.ask("who", keep=lambda answer: self.note("who", channel, answer, asked), channel=channel, limit=1000)
        elif self.rooms:
            channel = self.rng.choice(self.rooms)
            want = self.wants.setdefault(channel, Want(False, sure=True))
            self.turn += 1
            if not want.there or throw < 0.7:
                want.there, want.state = True, {"of": self.name, "turn": self.turn}
            else:
                want.there, want.state = False, None
            want.sure = False
            await self.settle(channel)


class HistoryClient(RoomClient):
    """Listens to channels with history. It subscribes after the last position it has, and loses its session now and then."""

    drops = 0.15

    def __init__(self, cluster, name, user, seed, channels, **more):
        super().__init__(cluster, name, user, seed, listens=channels, **more)
        self.positions = {}

    def on_event(self, frame):
        if "offset" in frame:
            self.positions[frame["channel"]] = frame["epoch"], frame["offset"]

    async def subscribe(self, channel):
        since = self.positions.get(channel)

        def keep(answer):
            position = answer["epoch"], answer["offset"]
            self.note("position", channel, since, position, answer.get("recovered"))
            self.positions[channel] = position
            self.subscribed.add(channel)

        start = {"since": {"epoch": since[0], "offset": since[1]}} if since else {"last": 20}
        await self.ask("subscribe", keep=keep, channel=channel, **start)

    async def random_action(self):
        if self.rng.random() < self.drops:
            # After more than a second the session is gone.
            self.returns_after = self.rng.choice([(0.0, 0.3), (3.0, 6.0)])
            self.drop()


class FollowedClient(RoomClient):
    """A client of a followed user, which joins, leaves and disconnects."""

    drops = 0.06
    pause = (0.8, 3.0)


class FollowerClient(RoomClient):
    """Follows users and receives their statuses. Its follows are facts."""

    pause = (0.8, 3.0)

    def __init__(self, cluster, name, user, seed, facts, followed, **more):
        super().__init__(cluster, name, user, seed, status=True, **more)
        self.facts, self.followed = facts, followed
        for user_followed in followed:
            facts.fact(("follow", user, user_followed), False)
        # The last status of each followed user.
        self.statuses = {}

    def on_event(self, frame):
        if frame["event"] == "statuses":
            self.statuses = {status["user"]: status for status in frame["statuses"]}
        elif frame["event"] == "status":
            self.statuses[frame["user"]] = frame["status"]

    def on_new_session(self):
        super().on_new_session()
        self.statuses = {}

    def on_gap(self, channel):
        # A gap does not say which statuses were lost: reconnect and request all.
        self.drop()

    async def random_action(self):
        if self.rng.random() < self.drops:
            self.drop()
            return
        user_followed = self.rng.choice(self.followed)
        key = ("follow", self.user, user_followed)
        if self.facts.is_free(key):
            await self.change(key, user_followed, not self.facts.known[key].value)

    async def change(self, key, user_followed, on):
        async def act():
            await self.connected.wait()
            if on:
                self.note("follows", user_followed)
            await self.ask("follow" if on else "unfollow", keep=keep, user=user_followed)

        def keep(_):
            if not on:
                self.statuses.pop(user_followed, None)
                self.note("unfollowed", user_followed)

        await self.facts.change(key, on, act, (Disconnected, Refused))


class Canary(RoomClient):
    """Stays on one server, in one channel with the canaries of the other servers, and watches them."""

    CHANNEL = "canary#mine"
    drops = 0.0

    def __init__(self, cluster, node, seed):
        name = f"canary-{node.name}"
        super().__init__(cluster, name, name, seed, watches=[self.CHANNEL], pinned=node)
        self.wants[self.CHANNEL] = Want(True, {"of": name})
        # It never resumes, so that its server's death is visible.
        self.resumes = False

    async def random_action(self):
        await self.ask("ping")
