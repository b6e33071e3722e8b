"""Clients with a place in the world: what each wants to be true (where it listens, watches and is present) is asked for until
it is so.

`Guest` listens and is present in rooms; `Star` is followed; `Fan` follows; `Canary` sits on one server and is missed when that
dies.
"""
import asyncio
import dataclasses

from .client import Away, Client, Refused


@dataclasses.dataclass
class Want:
    there: bool
    state: object = None
    # The server has said yes to this, in this session.
    sure: bool = False


class Guest(Client):
    pause = (0.3, 1.5)
    drops = 0.03

    def __init__(self, world, name, user, seed, listens=(), watches=(), rooms=(), patterns=(), **more):
        super().__init__(world, name, user, seed, **more)
        self.listens, self.watches, self.rooms, self.patterns = listens, watches, rooms, patterns
        self.subscribed, self.wants, self.versions = set(), {}, {}
        self.turn = 0

    def begun_anew(self):
        self.subscribed.clear()
        self.versions.clear()
        for want in self.wants.values():
            # A new session is nowhere.
            want.sure = not want.there

    def missed(self, channel):
        lost = [name for name in self.watches if channel in (None, name)]
        self.subscribed.difference_update(lost)

    def heard(self, frame):
        if "version" in frame:
            self.versions[frame["channel"]] = frame["version"]

    async def act(self):
        """Does something now and then, and sees to it that what it wants is so, for ever."""
        while True:
            try:
                await self.connected.wait()
                await self.tend()
                if not self.quiet:
                    await self.something()
            except (Away, Refused):
                await asyncio.sleep(self.dice.uniform(0.1, 0.4))
            await asyncio.sleep(self.dice.uniform(*self.pause) if not self.quiet else 0.3)

    def is_settled(self):
        wanted = set(self.listens) | set(self.watches) | set(self.patterns)
        return self.connected.is_set() and self.subscribed == wanted and all(want.sure for want in self.wants.values())

    async def tend(self):
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

    async def something(self):
        throw = self.dice.random()
        if throw < self.drops:
            self.returns_after = self.dice.choice([(0.0, 0.1), (0.2, 0.8), (1.5, 2.5), (5.0, 6.0)])
            self.drop()
        elif throw < 0.2 and self.watches:
            channel = self.dice.choice(list(self.watches))
            asked = self.versions.get(channel)
            await self.ask("who", keep=lambda answer: self.note("who", channel, answer, asked), channel=channel, limit=1000)
        elif self.rooms:
            channel = self.dice.choice(self.rooms)
            want = self.wants.setdefault(channel, Want(False, sure=True))
            self.turn += 1
            if not want.there or throw < 0.7:
                want.there, want.state = True, {"of": self.name, "turn": self.turn}
            else:
                want.there, want.state = False, None
            want.sure = False
            await self.settle(channel)


class Star(Guest):
    """Somebody who is followed: here and there, sometimes gone."""

    drops = 0.06
    pause = (0.8, 3.0)


class Fan(Guest):
    """Follows stars, and is told what they do. Whom it follows are facts."""

    pause = (0.8, 3.0)

    def __init__(self, world, name, user, seed, facts, stars, **more):
        super().__init__(world, name, user, seed, status=True, **more)
        self.facts, self.stars = facts, stars
        for star in stars:
            facts.fact(("follow", user, star), False)
        # What it was told of each.
        self.statuses = {}

    def heard(self, frame):
        if frame["event"] == "statuses":
            self.statuses = {status["user"]: status for status in frame["statuses"]}
        elif frame["event"] == "status":
            self.statuses[frame["user"]] = frame["status"]

    def begun_anew(self):
        super().begun_anew()
        self.statuses = {}

    def missed(self, channel):
        # Nothing tells what was lost: it comes back and asks for everybody.
        self.drop()

    async def something(self):
        if self.dice.random() < self.drops:
            self.drop()
            return
        star = self.dice.choice(self.stars)
        key = ("follow", self.user, star)
        if self.facts.is_free(key):
            await self.change(key, star, not self.facts.known[key].value)

    async def change(self, key, star, on):
        async def act():
            await self.connected.wait()
            if on:
                self.note("follows", star)
            await self.ask("follow" if on else "unfollow", keep=keep, user=star)

        def keep(_):
            if not on:
                self.statuses.pop(star, None)
                self.note("unfollowed", star)

        await self.facts.change(key, on, act, (Away, Refused))


class Canary(Guest):
    """Sits on one server, in one channel with the canaries of the others, and watches them."""

    CHANNEL = "canary#mine"
    drops = 0.0

    def __init__(self, world, node, seed):
        name = f"canary-{node.name}"
        super().__init__(world, name, name, seed, watches=[self.CHANNEL], pinned=node)
        self.wants[self.CHANNEL] = Want(True, {"of": name})
        # It does not come back as the same one: its death is to be seen.
        self.resumes = False

    async def something(self):
        await self.ask("ping")
