"""Everybody who uses the tortured cluster, and what is true about them at the end."""
import asyncio
import collections
import time
import urllib.parse

from .checks.people import followers_know_the_truth
from .checks.rosters import members
from .fact import Facts
from .guest import Canary, Fan, Guest, Star
from .service import FAILURES, Service
from .speaker import Speaker

HALL = "hall#all"


class Load:
    def __init__(self, world, seed, size=1.0):
        self.world, self.seed = world, seed
        self.facts = Facts()
        many = lambda count: max(2, int(count * size))
        self.rooms = [f"game#r{n}" for n in range(many(10))]
        self.stages = [f"stage#s{n}" for n in range(4)]
        stars = [f"star{n}" for n in range(many(16))]
        # Who hides is nobody's guest in a room that is watched: others see him without a name there.
        hiders = stars[: max(1, len(stars) // 3)]
        self.guests = [self._guest(n) for n in range(many(120))]
        self.stars = [Star(world, name, name, seed, rooms=self.stages) for name in stars]
        self.fans = [Fan(world, f"fan{n}", f"fan{n}", seed, self.facts, [stars[(n + step) % len(stars)] for step in range(6)])
                     for n in range(many(30))]
        self.canaries = [Canary(world, node, seed) for node in world.nodes]
        self.speakers = [Speaker(world, f"speaker{n}", HALL if n % 4 == 0 else self.rooms[n % len(self.rooms)], seed)
                         for n in range(many(10))]
        holds = [(f"held#h{n % 4}", f"held{n}") for n in range(12)]
        self.service = Service(world, seed, self.facts, holds, hiders, [f"far{n}" for n in range(4)], stars, stars)
        self.tasks, self.last_words = [], []

    def _guest(self, n):
        room, other = self.rooms[n % len(self.rooms)], self.rooms[(n * 7 + 3) % len(self.rooms)]
        # Some are tabs of one user.
        user = f"user{n // 2}" if n % 3 == 0 else f"guest{n}"
        hall = n % 10 == 0
        listens, patterns = ([HALL], []) if n % 20 else ([], ["hall#*"])
        return Guest(self.world, f"guest{n}", user, self.seed, watches=[room], rooms=[room, other],
                     listens=listens if hall else [], patterns=patterns if hall else [])

    @property
    def clients(self):
        return [*self.guests, *self.stars, *self.fans, *self.canaries]

    @property
    def lives(self):
        return [life for speaker in [*self.speakers, *self.last_words] for life in speaker.lives]

    def begin(self):
        acting = [client.act() for client in self.clients] + self.service.tasks()
        living = [one.live() for one in [*self.clients, *self.speakers]]
        self.tasks = [asyncio.create_task(work) for work in [*living, *acting]]

    def failures(self):
        """Tasks of ours that ended by themselves: a mistake in the torture."""
        return [task.exception() for task in self.tasks if task.done() and not task.cancelled() and task.exception()]

    def be_quiet(self):
        """Everybody stays, and asks only for what was not answered yet."""
        for one in [*self.clients, *self.speakers, self.service]:
            one.quiet = True

    def is_settled(self):
        return all(client.is_settled() for client in self.clients) and not any(
            fact.doubt is not None for fact in self.facts.known.values())

    def unsettled(self):
        return [client.name for client in self.clients if not client.is_settled()]

    async def say_last_words(self):
        """On each server one more word on each channel: a hole before it shows."""
        for node in self.world.nodes:
            for channel in sorted({speaker.channel for speaker in self.speakers}):
                speaker = Speaker(self.world, f"last-{node.name}-{channel}", channel, self.seed, pause=0.0)
                self.last_words.append(speaker)
                await speaker.speak(node, most=2)

    # What is true at the end.

    def rosters(self):
        """By channel: who is there, by user and client."""
        found = {channel: {} for channel in [*self.rooms, *self.stages, Canary.CHANNEL]}
        for client in self.clients:
            for channel, want in client.wants.items():
                if want.there:
                    found[channel].setdefault(client.user, {})[client.client] = want.state
        return found

    def statuses(self):
        """By (fan, star): what a follower must believe at the end."""
        where = {star.user: sorted(name for name, want in star.wants.items() if want.there) for star in self.stars}
        expected = {}
        for (_, fan, star), fact in self.facts.of("follow").items():
            if not fact.value or not fan.startswith("fan"):
                continue
            hides = self.facts.known["visibility", star].value if ("visibility", star) in self.facts.known else "everyone"
            # Stars follow nobody: who shows himself to those whom he follows is seen by none of them.
            expected[fan, star] = (True, where[star]) if hides == "everyone" else (False, [])
        return expected

    def beliefs(self):
        return {(fan.user, star): status for fan in self.fans for star, status in fan.statuses.items()}

    # What the servers say at the end.

    async def read_rosters(self):
        found = {}
        for node in self.world.nodes:
            for channel in [*self.rooms, *self.stages, Canary.CHANNEL]:
                path = f"/v1/channels/{urllib.parse.quote(channel, safe='')}/presence?limit=1000"
                found[node.name, channel] = await self.service.request("GET", path, node)
        return found

    async def read_facts(self):
        found = collections.defaultdict(dict)
        for node in self.world.nodes:
            ask = lambda path: self.service.request("GET", path, node)
            followers = sorted({key[1] for key in self.facts.of("follow")})
            for user in followers:
                follows = set((await ask(f"/v1/users/{user}/following?limit=1000"))["users"])
                for key in self.facts.of("follow"):
                    if key[1] == user:
                        found[key][node.name] = key[2] in follows
            for key in self.facts.of("visibility"):
                found[key][node.name] = (await ask(f"/v1/users/{key[1]}"))["visibility"]
            held = {}
            for key in self.facts.of("hold"):
                if key[1] not in held:
                    held[key[1]] = members(await ask(f"/v1/channels/{urllib.parse.quote(key[1], safe='')}/presence?limit=1000"))
                found[key][node.name] = key[2] in held[key[1]]
            for key in self.facts.of("key"):
                headers = {"authorization": f"Bearer {self.service.keys[key[1]][1]}"}
                answer = await self.service.http.get(f"{node.url}/v1/channels/x/presence", headers=headers)
                found[key][node.name] = answer.status_code == 200
        return found

    async def settle(self, patience):
        """Waits until everybody is where he wants to be, then until servers and followers say so, or the time is over."""
        end = time.monotonic() + patience
        while not self.is_settled() and time.monotonic() < end:
            await asyncio.sleep(0.2)
        while time.monotonic() < end:
            try:
                rosters = await self.read_rosters()
            except FAILURES:
                await asyncio.sleep(0.5)
                continue
            truth = self.rosters()
            same = all(members(snapshot) == truth[channel] for (_, channel), snapshot in rosters.items())
            if same and not followers_know_the_truth(self.beliefs(), self.statuses()).violations:
                return True
            await asyncio.sleep(0.5)
        return False

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.service.close()
