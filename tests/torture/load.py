"""The load on the cluster, and the expected state at the end."""
import asyncio
import collections
import time
import urllib.parse

from .client import members
from .fact import Facts
from .intruders import Intruders
from .load_clients import Canary, FollowedClient, FollowerClient, HistoryClient, RoomClient
from .service import FAILURES, Service
from .publisher import Publisher

SHARED_CHANNEL = "shared#all"


class Load:
    def __init__(self, cluster, seed, size=1.0):
        self.cluster, self.seed = cluster, seed
        self.facts = Facts()
        many = lambda count: max(2, int(count * size))
        self.rooms = [f"game#r{n}" for n in range(many(10))]
        self.followed_rooms = [f"stage#s{n}" for n in range(4)]
        followed = [f"user_followed{n}" for n in range(many(16))]
        # Hidden users do not join watched rooms, where others would see them as anonymous.
        hiders = followed[: max(1, len(followed) // 3)]
        self.room_clients = [self._room_client(n) for n in range(many(120))]
        self.followed = [FollowedClient(cluster, name, name, seed, rooms=self.followed_rooms) for name in followed]
        self.followers = [FollowerClient(cluster, f"follower{n}", f"follower{n}", seed, self.facts, [followed[(n + step) % len(followed)] for step in range(6)])
                     for n in range(many(30))]
        self.canaries = [Canary(cluster, node, seed) for node in cluster.nodes]
        self.publishers = [Publisher(cluster, f"publisher{n}", SHARED_CHANNEL if n % 4 == 0 else self.rooms[n % len(self.rooms)], seed)
                         for n in range(many(10))]
        self.chats = ["chat#c0", "chat#c1"]
        self.history_clients = [HistoryClient(cluster, f"reader{n}", f"reader{n}", seed, self.chats) for n in range(many(12))]
        self.history_publishers = [Publisher(cluster, f"chatter{n}", self.chats[n % 2], seed) for n in range(4)]
        holds = [(f"held#h{n % 4}", f"held{n}") for n in range(12)]
        self.service = Service(cluster, seed, self.facts, holds, hiders, [f"far{n}" for n in range(4)], followed, followed)
        self.intruders = Intruders(cluster, seed)
        self.tasks, self.last_publishers = [], []

    def _room_client(self, n):
        room, other = self.rooms[n % len(self.rooms)], self.rooms[(n * 7 + 3) % len(self.rooms)]
        # Some clients are tabs of one user.
        user = f"user{n // 2}" if n % 3 == 0 else f"client{n}"
        hall = n % 10 == 0
        listens, patterns = ([SHARED_CHANNEL], []) if n % 20 else ([], ["shared#*"])
        return RoomClient(self.cluster, f"client{n}", user, self.seed, watches=[room], rooms=[room, other],
                     listens=listens if hall else [], patterns=patterns if hall else [])

    @property
    def clients(self):
        return [*self.room_clients, *self.history_clients, *self.followed, *self.followers, *self.canaries]

    @property
    def all_publishers(self):
        return [*self.publishers, *self.history_publishers]

    @property
    def runs(self):
        return [run for publisher in [*self.publishers, *self.last_publishers] for run in publisher.runs]

    @property
    def history_runs(self):
        return [run for publisher in self.history_publishers for run in publisher.runs]

    def begin(self):
        acting = [client.act() for client in self.clients] + self.service.tasks() + self.intruders.tasks()
        living = [one.live() for one in [*self.clients, *self.all_publishers]]
        self.tasks = [asyncio.create_task(work) for work in [*living, *acting]]

    def failures(self):
        """Tasks of the load that ended unexpectedly: a bug in the test."""
        return [task.exception() for task in self.tasks if task.done() and not task.cancelled() and task.exception()]

    def stop_activity(self):
        """All clients stay connected and only retry unanswered commands."""
        for one in [*self.clients, *self.all_publishers, self.service, self.intruders]:
            one.quiet = True

    def is_settled(self):
        return all(client.is_settled() for client in self.clients) and not any(
            fact.doubt is not None for fact in self.facts.known.values())

    def unsettled(self):
        return [client.name for client in self.clients if not client.is_settled()]

    async def publish_last_messages(self):
        """Publishes one more message per server and channel, so that a loss before it becomes visible."""
        for node in self.cluster.nodes:
            for channel in sorted({publisher.channel for publisher in self.publishers}):
                publisher = Publisher(self.cluster, f"last-{node.name}-{channel}", channel, self.seed, pause=0.0)
                self.last_publishers.append(publisher)
                await publisher.publish(node, most=2)

    # Expected state at the end.

    def presence(self):
        """By channel: the present users and their clients."""
        found = {channel: {} for channel in [*self.rooms, *self.followed_rooms, Canary.CHANNEL]}
        for client in self.clients:
            for channel, want in client.wants.items():
                if want.there:
                    found[channel].setdefault(client.user, {})[client.client] = want.state
        return found

    def statuses(self):
        """By (follower, followed user): the status that the follower must have at the end."""
        where = {user_followed.user: sorted(name for name, want in user_followed.wants.items() if want.there) for user_followed in self.followed}
        expected = {}
        for (_, follower, user_followed), fact in self.facts.of("follow").items():
            if not fact.value or not follower.startswith("follower"):
                continue
            hides = self.facts.known["visibility", user_followed].value if ("visibility", user_followed) in self.facts.known else "everyone"
            # Followed users follow no one, so `followers_i_follow` hides them from all.
            expected[follower, user_followed] = (True, where[user_followed]) if hides == "everyone" else (False, [])
        return expected

    def followers_know(self):
        """Whether every follower has the expected statuses."""
        statuses = {follower.user: follower.statuses for follower in self.followers}
        for (follower, user), (online, channels) in self.statuses().items():
            status = statuses[follower].get(user)
            if status is None or status["online"] != online or online and sorted(status["channels"]) != channels:
                return False
        return True

    # State reported by the servers at the end.

    async def read_presence(self):
        found = {}
        for node in self.cluster.nodes:
            for channel in [*self.rooms, *self.followed_rooms, Canary.CHANNEL]:
                path = f"/v1/channels/{urllib.parse.quote(channel, safe='')}/presence?limit=1000"
                found[node.name, channel] = await self.service.request("GET", path, node)
        return found

    async def read_facts(self):
        found = collections.defaultdict(dict)
        for node in self.cluster.nodes:
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

    async def settle(self, timeout):
        """Waits until all clients are settled and servers and followers agree, or until the timeout."""
        end = time.monotonic() + timeout
        while not self.is_settled() and time.monotonic() < end:
            await asyncio.sleep(0.2)
        while time.monotonic() < end:
            try:
                presence = await self.read_presence()
            except FAILURES:
                await asyncio.sleep(0.5)
                continue
            truth = self.presence()
            same = all(members(snapshot) == truth[channel] for (_, channel), snapshot in presence.items())
            if same and self.followers_know():
                return True
            await asyncio.sleep(0.5)
        return False

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.service.close()
