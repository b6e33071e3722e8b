"""Many clients that live through restarts as good clients do: they obey `closing`, come back anywhere, and check every number.

`Guest` is one client; `Speaker` publishes without a pause and knows what was accepted; `Crowd` is all of them. What a guest
must hold: its mailbox has no hole and no repetition, every session is resumed, each speaker is heard in order and whole.
"""
import asyncio
import collections
import json
import random
import time

import websockets.asyncio.client
import websockets.exceptions

WAIT = 20


async def connect(server, user):
    return await websockets.asyncio.client.connect(
        f"{server.ws_url}?user={user}", compression=None, ping_interval=None, max_queue=4096, open_timeout=WAIT, proxy=None,
        close_timeout=1,
    )


async def connect_any(servers, user, dice):
    """To whichever server takes it: some are down, some are about to be."""
    end = time.monotonic() + WAIT
    while True:
        server = dice.choice(servers)
        try:
            socket = await connect(server, user)
            hello = json.loads(await asyncio.wait_for(socket.recv(), WAIT))["ok"]
            return socket, hello
        except (OSError, websockets.exceptions.WebSocketException, asyncio.TimeoutError):
            if time.monotonic() > end:
                raise
            await asyncio.sleep(dice.uniform(0.05, 0.3))


class Guest:
    def __init__(self, name, servers, home, channels, watches=(), joins=(), follows=()):
        self.name, self.servers, self.home = name, servers, home
        self.channels, self.watches, self.joins, self.follows = channels, watches, joins, follows
        self.dice = random.Random(name)
        self.seq, self.ids = 0, 0
        self.heard = collections.defaultdict(list)
        self.changes = []
        self.failures = []
        self.moves, self.longest = 0, 0.0
        # Where it came back to, when, and after which number.
        self.log = []
        # What it waits for while it has no session.
        self.away = None
        self.stopped = False

    async def begin(self):
        self.socket = await connect(self.home, self.name)
        hello = json.loads(await self.socket.recv())["ok"]
        self.session, self.client = hello["session"], hello["client"]
        for channel in self.channels:
            await self.ok(op="subscribe", channel=channel)
        for channel in self.watches:
            await self.ok(op="subscribe", channel=channel, presence=True)
        for channel in self.joins:
            await self.ok(op="join", channel=channel, state={"of": self.name})
        for user in self.follows:
            await self.ok(op="follow", user=user)

    async def ok(self, **command):
        self.ids += 1
        number = self.ids
        await self.socket.send(json.dumps({"id": number} | command))
        while True:
            frame = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
            if frame.get("id") == number:
                assert "ok" in frame, frame
                return frame["ok"]
            self.take(frame)

    def take(self, frame):
        if frame.get("event") == "closing":
            return frame["reconnect_after_ms"]
        if "seq" not in frame:
            self.failures.append(f"{self.name}: {frame}")
            return None
        if frame["seq"] != self.seq + 1:
            self.failures.append(f"{self.name}: {frame['seq']} after {self.seq}: {frame}")
        self.seq = frame["seq"]
        if frame["event"] == "message":
            self.heard[frame["data"]["of"]].append(frame["data"]["n"])
        else:
            self.changes.append(frame)
        return None

    async def live(self):
        """Reads until it is told to stop; comes back whenever it is sent away."""
        while not self.stopped:
            try:
                after = self.take(json.loads(await self.socket.recv()))
            except websockets.exceptions.ConnectionClosed:
                after = 0 if not self.stopped else None
            if after is not None and not self.stopped:
                self.away = "the moment it was told"
                await self.socket.close()
                await asyncio.sleep(after / 1000)
                await self.come_back()

    async def come_back(self):
        began = time.monotonic()
        self.away = "a connection"
        self.socket, hello = await connect_any(self.servers, self.name, self.dice)
        self.away = f"an answer of {hello['node']}"
        try:
            await self.socket.send(json.dumps({"id": 0, "op": "hello", "session": self.session, "seq": self.seq}))
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
            while reply.get("id") != 0:
                reply = json.loads(await asyncio.wait_for(self.socket.recv(), WAIT))
        except websockets.exceptions.ConnectionClosed:
            # This one stops too: on to the next.
            return await self.come_back()
        self.moves += 1
        self.log.append((round(began, 2), hello["node"], self.seq))
        self.longest = max(self.longest, time.monotonic() - began)
        if "ok" not in reply or not reply["ok"]["resumed"] or reply["ok"]["client"] != self.client:
            self.failures.append(f"{self.name} was not resumed at {reply}")
            self.stopped = True
            return None
        self.session, self.away = reply["ok"]["session"], None


class Speaker:
    """Says numbered words on a channel, on one server as long as that lives, then on the next under another name."""

    def __init__(self, name, servers, channel, pause):
        self.name, self.servers, self.channel, self.pause = name, servers, channel, pause
        self.dice = random.Random(name)
        # Words that were accepted, by the name they were said under; one more may be under way.
        self.accepted = {}
        self.stopped = False

    async def live(self):
        lives = 0
        while not self.stopped:
            lives += 1
            of = f"{self.name}.{lives}"
            self.accepted[of] = 0
            socket, _ = await connect_any(self.servers, self.name, self.dice)
            try:
                while not self.stopped:
                    word = {"of": of, "n": self.accepted[of]}
                    await socket.send(json.dumps({"id": 1, "op": "publish", "channel": self.channel, "data": word}))
                    while "ok" not in json.loads(await asyncio.wait_for(socket.recv(), WAIT)):
                        pass
                    self.accepted[of] += 1
                    await asyncio.sleep(self.pause)
                await socket.close()
            except websockets.exceptions.ConnectionClosed:
                pass


class Crowd:
    """Guests spread over the servers: rooms of ten that listen, are present, are watched by one of them, and follow others."""

    def __init__(self, servers, count, speakers=3, pause=0.02):
        rooms = max(1, count // 10)
        self.guests = []
        for n in range(count):
            room = f"game#r{n % rooms}"
            watches = [room] if n < rooms else []
            channels = [room, f"own#g{n}"] + (["hall#all"] if n % 4 == 0 else [])
            # On this server and on another.
            follows = [f"g{(n + step) % count}" for step in (1, len(servers) * 2)]
            self.guests.append(Guest(f"g{n}", servers, servers[n % len(servers)], channels, watches, [room], follows))
        names = ["hall#all"] + [f"game#r{n % rooms}" for n in range(speakers - 1)]
        self.speakers = [Speaker(f"s{n}", servers, name, pause) for n, name in enumerate(names)]
        self.tasks = []

    async def begin(self):
        await self.at_once(self.guests, lambda guest: guest.begin())
        # Every watcher and follower was told of everybody's arrival; from here on nothing happens that anybody should notice.
        for guest in self.guests:
            await guest.ok(op="ping")
        await asyncio.sleep(1.5)
        for guest in self.guests:
            await guest.ok(op="ping")
            guest.changes.clear()
        self.tasks = [asyncio.create_task(one.live()) for one in self.guests + self.speakers]

    @staticmethod
    async def at_once(guests, action, most=50):
        for first in range(0, len(guests), most):
            await asyncio.gather(*map(action, guests[first:first + most]))

    @staticmethod
    async def until(fact, patience):
        """Waits for it, and a moment longer for what nobody expects."""
        end = time.monotonic() + patience
        while not fact() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)

    def everybody_is_back(self):
        return not any(guest.away for guest in self.guests)

    def everything_is_heard(self):
        return self.everybody_is_back() and all(
            len(guest.heard[of]) >= count for guest in self.guests for speaker in self.speakers
            if speaker.channel in guest.channels for of, count in speaker.accepted.items())

    async def check(self):
        """Everybody has heard everything, once and in order, and nobody noticed anything."""
        for speaker in self.speakers:
            speaker.stopped = True
        await asyncio.gather(*self.tasks[len(self.guests):])
        await self.until(self.everything_is_heard, 3)
        failures = []
        for guest, task in zip(self.guests, self.tasks):
            failures += guest.failures
            if task.done():
                failures.append(f"{guest.name} ({guest.client}) gave up: {task.exception()!r}")
            elif guest.away:
                failures.append(f"{guest.name} ({guest.client}) is not back: {guest.away}")
            if guest.changes:
                failures.append(f"{guest.name} noticed {guest.changes[:3]}")
            for speaker in (s for s in self.speakers if s.channel in guest.channels):
                for of, count in speaker.accepted.items():
                    words = guest.heard[of]
                    if words != list(range(len(words))) or not count <= len(words) <= count + 1:
                        missing = sorted(set(range(count)) - set(words))
                        failures.append(f"{guest.name} heard {len(words)} of {count} by {of}, not {missing[:5]}; moved {guest.log}")
            guest.stopped = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(guest.socket.close() for guest in self.guests), return_exceptions=True)
        return failures
